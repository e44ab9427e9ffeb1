/* lamina export: a base back to GGUF. */
#include "commands.h"
#include "default_model.h"
#include "output.h"
#include "progress.h"
#include "report.h"

#include "lamina/cache.h"

static lam_code export_base(struct options *o, lam_error *err)
{
    struct lam_cached base = {0};
    struct progress progress;
    lam_import_options options = {.progress = progress_step, .progress_context = &progress};
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = &progress};
    progress_begin(&progress, o, false);
    lam_code code = lam_cache_open_base(o->model, &cache, &base, err);
    if (code == LAM_OK) code = check_not_source(o->output, base.path, err);
    if (code == LAM_OK) code = lam_export_gguf(base.path, o->output, &options, err);
    progress_end(&progress);
    lam_cache_release(&base);
    return code == LAM_OK ? LAM_OK : about(err, o->model);
}

int cmd_export(struct options *o)
{
    lam_error err;
    char path[MODEL_PATH];
    if (!o->output) return usage(o, "where to? give -o FILE");
    if (!choose_model(o, 0, 0, path)) return 2;
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
