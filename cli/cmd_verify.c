/* lamina verify: every byte of a .slm against its own tree. */
#include "commands.h"
#include "output.h"
#include "progress.h"
#include "report.h"

#include "lamina/manifest.h"

int cmd_verify(struct options *o)
{
    lam_error err;
    char root[LAM_DIGEST_TEXT];
    struct progress progress;
    if (o->n_rest != 1) return usage(o, "verify takes one FILE");
    const char *path = o->rest[0];
    if (lam_manifest_detect(path)) return usage(o, "%s is a manifest; lamina check %s looks at all that it names", path, path);
    lam_import_options options = {.progress = progress_step, .progress_context = &progress};
    double start = now_seconds();
    progress_begin(&progress, o, false);
    lam_source_kind kind;
    lam_code code = lam_verify_file(path, &options, root, &err);
    progress_end(&progress);
    double seconds = now_seconds() - start, bytes = file_bytes(path);
    if (code != LAM_OK) {
        lam_error none;
        about(&err, path);
        if (lam_source_detect(path, &kind, &none) == LAM_OK && (kind == LAM_SOURCE_HF_MODEL || kind == LAM_SOURCE_PEFT_ADAPTER))
            hint(&err, "import it first");
        return report(o, &err);
    }
    if (o->json)
        return print_json(o, json_pack("{s:b,s:s,s:s,s:I,s:f}", "verified", 1, "path", path, "file_root", root, "bytes", (json_int_t)bytes,
                                       "seconds", seconds));
    printf("%s: every piece matches\nfile_root  %s\n", path, root);
    note(o, "%.2f MB in %.2f s (%.2f GB/s). The root came with the file: compare it with one that you have from elsewhere.", bytes / 1e6, seconds, bytes / 1e9 / seconds);
    return 0;
}
