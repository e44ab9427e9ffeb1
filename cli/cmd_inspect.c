/* lamina inspect: what a file or folder holds. */
#include "commands.h"
#include "describe.h"
#include "report.h"

#include "lamina/manifest.h"
#include "lamina/receipt.h"

#include <stdlib.h>

/* What a file says of itself may be anything. */
static int show(const struct options *o, const json_t *object, bool list_tensors)
{
    lam_error err;
    json_t *plain = printable(object);
    if (plain) describe(plain, list_tensors);
    int status = plain ? 0 : report(o, (fail_memory(&err), &err));
    json_decref(plain);
    return status;
}

/* A manifest as it stands, with what its receipts say of the id that it names. */
static int inspect_manifest(const struct options *o, const char *path)
{
    lam_error err;
    lam_manifest *m;
    lam_fault_list faults = {0};
    lam_trust *trust = NULL;
    char standing[256] = "not known: the manifest names no id", *text = NULL;
    lam_code code = lam_manifest_read(path, &m, &faults, &err);
    list_faults(faults.items, faults.n);
    lam_fault_list_release(&faults);
    if (code == LAM_OK) code = lam_trust_open(NULL, &trust, &err);
    if (code == LAM_OK && m->id) code = lam_standing(m->id, m->n_adapters, m->receipts, m->n_receipts, trust, standing, &err);
    if (code == LAM_OK) code = lam_manifest_json(m, path, &text, &err);
    lam_trust_free(trust);
    lam_manifest_free(m);
    if (code != LAM_OK) return report(o, &err);
    json_t *object = json_pack("{s:s,s:s,s:s,s:o}", "path", path, "kind", "manifest", "standing", standing, "manifest",
                               json_loads(text, 0, NULL));
    lam_memory_free(text);
    if (o->json) return print_json(o, object);
    int status = show(o, object, false);
    json_decref(object);
    return status;
}

int cmd_inspect(struct options *o)
{
    lam_error err;
    char *text;
    int status = 0;
    if (o->n_rest != 1) return usage(o, "inspect takes one FILE");
    if (lam_manifest_detect(o->rest[0])) return inspect_manifest(o, o->rest[0]);
    if (lam_inspect(o->rest[0], !o->json || o->tensors, &text, &err) != LAM_OK) {
        about(&err, o->rest[0]);
        return report(o, &err);
    }
    if (o->json) {
        puts(text);
    } else {
        json_t *object = json_loads(text, 0, NULL);
        status = show(o, object, o->tensors);
        json_decref(object);
    }
    lam_memory_free(text);
    return status;
}
