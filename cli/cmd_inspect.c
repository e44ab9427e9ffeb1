/* lamina inspect: what a file or folder holds. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "describe.h"
#include "output.h"
#include "prompt.h"
#include "report.h"

#include "lamina/manifest.h"
#include "lamina/receipt.h"

#include <stdlib.h>
#include <sys/stat.h>

#define MOST_RECEIPT 1048576 /* bytes */

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

/* Takes the object over. */
static int tell(const struct options *o, json_t *object)
{
    if (o->json) return print_json(o, object);
    int status = show(o, object, false);
    json_decref(object);
    return status;
}

/* A manifest as it stands, with what its receipts say of the id that it names. */
static int inspect_manifest(const struct options *o, const char *path)
{
    lam_error err;
    lam_manifest *m;
    lam_fault_list faults = {0};
    lam_trust *trust = NULL;
    char standing[256] = "not known: the manifest names no id";
    lam_code code = lam_manifest_read(path, &m, &faults, &err);
    list_faults(faults.items, faults.n);
    lam_fault_list_release(&faults);
    if (code == LAM_OK) code = lam_trust_open(NULL, &trust, &err);
    if (code == LAM_OK && m->id) code = lam_standing(m->id, m->n_adapters, m->receipts, m->n_receipts, trust, standing, &err);
    lam_trust_free(trust);
    lam_manifest_free(m);
    if (code != LAM_OK) return report(o, (about(&err, path), &err));
    return tell(o, json_pack("{s:s,s:s,s:I,s:s,s:o}", "path", path, "kind", "manifest", "bytes", (json_int_t)file_bytes(path), "standing", standing,
                             "manifest", json_load_file(path, 0, NULL)));
}

/* The file as JSON if it is a receipt, with its bytes in *text; else NULL, and nothing in *text. */
static json_t *read_receipt(const char *path, struct text *text)
{
    struct stat st;
    lam_error err;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > MOST_RECEIPT || read_whole(path, text, &err) != LAM_OK) return NULL;
    json_t *whole = json_loadb(text->bytes, text->len, JSON_REJECT_DUPLICATES, NULL);
    if (json_object_get(whole, "statement")) return whole;
    json_decref(whole);
    free(text->bytes);
    *text = (struct text){0};
    return NULL;
}

/* A receipt with how it stands to the user's trust list; about which composition it is, it says itself. */
static int inspect_receipt(const struct options *o, const char *path, const struct text *text, const json_t *whole)
{
    lam_error err;
    lam_trust *trust = NULL;
    lam_receipt_info info;
    lam_code code = lam_trust_open(NULL, &trust, &err);
    if (code == LAM_OK && (code = lam_receipt_check(text->bytes, text->len, NULL, trust, &info, &err)) != LAM_OK) about(&err, path);
    lam_trust_free(trust);
    if (code != LAM_OK) return report(o, &err);
    return tell(o, json_pack("{s:s,s:s,s:I,s:s,s:s,s:s,s:s,s:s,s:O}", "path", path, "kind", "receipt", "bytes", (json_int_t)text->len, "standing",
                             info.standing, "composition_id", info.composition_id, "digest", info.digest, "by", info.by, "key", info.key,
                             "figures", json_object_get(json_object_get(whole, "statement"), "figures")));
}

int cmd_inspect(struct options *o)
{
    lam_error err;
    char *text;
    int status = 0;
    if (o->n_rest != 1) return usage(o, "inspect takes one FILE");
    struct text receipt = {0};
    json_t *whole = read_receipt(o->rest[0], &receipt);
    if (whole) {
        status = inspect_receipt(o, o->rest[0], &receipt, whole);
        json_decref(whole);
        free(receipt.bytes);
        return status;
    }
    if (lam_manifest_detect(o->rest[0])) return inspect_manifest(o, o->rest[0]); /* any other JSON object may be meant as one */
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
