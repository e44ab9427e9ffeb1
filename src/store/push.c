/* Pushing an artefact of the store to a registry: blobs first, the manifest last. */
#include "lamina/pull.h"
#include "base/alloc.h"
#include "base/os.h"
#include "store/exchange.h"

#include <stdio.h>
#include <string.h>

struct push {
    struct lam_exchange t;
    struct lam_artifact artifact;
    struct lam_lock **holds;   /* [n_holds], owned */
    size_t n_holds;
    uint64_t done, total;      /* bytes of blobs */
    lam_transfer_report *out;
};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "push: out of memory"); }

static const struct lam_descriptor *blob_of(const struct push *p, size_t i) { return i ? &p->artifact.layers[i - 1] : &p->artifact.config; }

/* Keeps gc from what is being sent. */
static lam_code hold_blobs(struct push *p, lam_error *err)
{
    size_t n = p->artifact.n_layers + 1;
    p->holds = lam_alloc(n, sizeof *p->holds);
    if (!p->holds) return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const struct lam_descriptor *d = blob_of(p, i);
        LAM_TRY(lam_blob_hold(p->t.store, d->digest, &p->holds[p->n_holds++], err));
        LAM_TRY(lam_blob_check(p->t.store, d->digest, d->size, err));
        p->total += d->size;
    }
    return LAM_OK;
}

static bool tell(void *context, uint64_t done)
{
    const struct push *p = context;
    return !p->t.o->progress || p->t.o->progress(p->t.o->progress_context, "send", p->done + done, p->total);
}

static lam_code push_blob(struct push *p, const struct lam_descriptor *d, lam_error *err)
{
    struct lam_mapping file;
    char *path;
    bool skipped;
    uint64_t sent = 0;
    LAM_TRY(lam_blob_path(p->t.store, d->digest, &path, err));
    lam_code code = lam_map_file(path, &file, err);
    lam_free(path);
    if (code != LAM_OK) return code;
    code = lam_remote_upload(&p->t.remote, d->digest, file.data ? file.data : (const uint8_t *)"", file.size, &skipped, &sent, tell,
                             p, err);
    lam_unmap_file(&file);
    p->done += d->size;
    p->out->moved += sent;
    p->out->bytes += d->size;
    p->out->n_blobs++;
    if (code == LAM_OK) p->out->n_had += skipped;
    return code;
}

static lam_code push_manifest(struct push *p, lam_error *err)
{
    const struct lam_reference *r = &p->t.reference;
    struct lam_str text = {0};
    lam_code code = lam_blob_read(p->t.store, p->artifact.digest, p->artifact.size, &text, err);
    if (code == LAM_OK)
        code = lam_remote_put_manifest(&p->t.remote, r->tag ? r->tag : p->artifact.digest, text.data, text.len, p->artifact.digest,
                                       err);
    lam_str_release(&text);
    return code;
}

static lam_code push(struct push *p, const char *reference, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    const struct lam_reference *to = &p->t.reference;
    if (to->kind != LAM_REFERENCE_REGISTRY)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s: a push goes to a registry (oci://HOST/NAME:TAG)", to->url);
    p->t.remote.push = true;
    LAM_TRY(lam_store_resolve(p->t.store, reference, digest, err));
    LAM_TRY(lam_artifact_open(p->t.store, digest, UINT64_MAX, &p->artifact, err));
    p->out->kind = p->artifact.kind;
    strcpy(p->out->digest, digest);
    strcpy(p->out->root, digest);
    snprintf(p->out->name, sizeof p->out->name, "%.131s", to->url);
    if (to->pin[0] && strcmp(to->pin, digest) != 0)
        return LAM_RAISE(err, LAM_E_ROOT, "%.100s is %s, the reference says %s", reference, digest, to->pin);
    LAM_TRY(hold_blobs(p, err));
    for (size_t i = 0; i <= p->artifact.n_layers; i++) LAM_TRY(push_blob(p, blob_of(p, i), err));
    return push_manifest(p, err);
}

lam_code lam_push(lam_store *store, const char *reference, const char *to, const lam_transfer_options *options,
                  lam_transfer_report *out,
                  lam_error *err)
{
    struct push p = {.out = out, .artifact = {.kind = LAM_STORE_FOREIGN}};
    *out = (lam_transfer_report){.kind = LAM_STORE_FOREIGN};
    lam_code code = lam_exchange_open(&p.t, store, to, options, err);
    if (code == LAM_OK) code = push(&p, reference, err);
    for (size_t i = 0; i < p.n_holds; i++) lam_unlock(p.holds[i]);
    lam_free(p.holds);
    lam_artifact_release(&p.artifact);
    lam_exchange_close(&p.t);
    return code;
}
