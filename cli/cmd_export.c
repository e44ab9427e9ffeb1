/* lamina export: a base back to GGUF. */
#include "commands.h"
#include "default_model.h"
#include "output.h"
#include "progress.h"
#include "report.h"

#include "stack.h"

#include <stdlib.h>

static lam_code export_base(struct options *o, lam_error *err)
{
    struct lam_cached base = {0};
    struct stack *s = calloc(1, sizeof *s);
    struct progress progress;
    lam_import_options options = {.progress = progress_step, .progress_context = &progress};
    char digest[LAM_DIGEST_TEXT];
    if (!s) return fail_memory(err);
    lam_code code = stack_open(o, s, err);
    if (code == LAM_OK && (s->m->n_adapters || s->m->template_text))
        code = fail(err, LAM_E_ARGUMENT, "%.200s is more than a base: lamina merge %.200s -o FILE.gguf makes one base of it", o->model, o->model);
    if (code == LAM_OK) code = stack_open_base(o, s, &base, digest, err);
    if (code == LAM_OK) code = check_not_source(o->output, base.path, err);
    if (code == LAM_OK && s->read) code = check_not_source(o->output, s->m->base_file, err);
    progress_begin(&progress, o, false);
    if (code == LAM_OK) code = lam_export_gguf(base.path, o->output, &options, err);
    progress_end(&progress);
    lam_cache_release(&base);
    stack_release(s);
    free(s);
    return code == LAM_OK ? LAM_OK : about(err, o->model);
}

int cmd_export(struct options *o)
{
    lam_error err;
    char path[MODEL_PATH];
    if (!o->output) return usage(o, "where to? give -o FILE");
    int failed = choose_model(o, 0, 0, path);
    if (failed) return failed;
    double start = now_seconds();
    lam_code code = check_not_source(o->output, o->model, &err);
    if (code == LAM_OK) code = check_replaceable(o->output, &err);
    if (code == LAM_OK) code = check_ending(o->output, ".gguf", &err);
    if (code == LAM_OK) code = export_base(o, &err);
    if (code != LAM_OK) return report(o, &err);
    double bytes = file_bytes(o->output), seconds = now_seconds() - start;
    if (o->json)
        return print_json(o, json_pack("{s:s,s:s,s:I,s:f}", "source", o->model, "output", o->output, "bytes", (json_int_t)bytes, "seconds",
                                       seconds));
    if (!o->quiet) printf("%s: GGUF, %.2f MB, from %s, in %.2f s\n", o->output, bytes / 1e6, o->model, seconds);
    return 0;
}
