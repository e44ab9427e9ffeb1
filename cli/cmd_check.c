/* lamina check: everything that is wrong with a stack, before anything of it is loaded; and that it then does compose. */
#include "commands.h"
#include "default_model.h"
#include "open.h"
#include "report.h"

#include <stdlib.h>

static int print_sound(const struct options *o, const struct opened *all)
{
    const char *id = lam_composition_id(all->composition);
    if (o->json)
        return print_json(o, json_pack("{s:s,s:s,s:I,s:[]}", "composition_id", id, "standing", standing(all), "adapters",
                                       (json_int_t)all->n_adapters, "faults"));
    printf("nothing is wrong\ncomposition %s\n", id);
    print_standing(stdout, all, 0);
    return 0;
}

int cmd_check(struct options *o)
{
    lam_error err;
    lam_fault_list faults = {0};
    char path[MODEL_PATH];
    int failed = choose_model(o, 0, 0, path);
    if (failed) return failed;
    lam_code code = stack_check(o, &faults, &err);
    if (faults.n) list_faults(faults.items, faults.n);
    lam_fault_list_release(&faults);
    if (code != LAM_OK) return report(o, &err);
    struct opened *all = calloc(1, sizeof *all);
    code = all ? open_all(o, all, &err) : fail_memory(&err);
    int status = code == LAM_OK ? print_sound(o, all) : report(o, &err);
    if (all) close_all(all);
    free(all);
    return status;
}
