/* lamina inspect: what a file or folder holds. */
#include "commands.h"
#include "describe.h"
#include "report.h"

int cmd_inspect(struct options *o)
{
    lam_error err;
    char *text;
    if (o->n_rest != 1) return usage(o, "inspect takes one FILE");
    if (lam_inspect(o->rest[0], !o->json || o->tensors, &text, &err) != LAM_OK) {
        about(&err, o->rest[0]);
        return report(o, &err);
    }
    if (o->json) {
        puts(text);
    } else {
        json_t *object = json_loads(text, 0, NULL);
        describe(object, o->tensors);
        json_decref(object);
    }
    lam_memory_free(text);
    return 0;
}
