#include "store/switch.h"
#include "base/os.h"
#include "compose/activation.h"
#include "store/active.h"
#include "store/change.h"
#include "store/config.h"
#include "store/piece.h"

#include <string.h>

/* One switch. */
struct switching {
    struct lam_store *store;
    const char *digest;
    struct lam_artifact artifact;
    struct lam_active old, next;
    struct lam_change change;
    struct lam_writer *staged;  /* active.json as it will be */
};

/* The composition is whole and known: manifest and configuration by their bytes, the rest by length. */
static lam_code validate(void *self, lam_error *err)
{
    struct switching *w = self;
    lam_manifest *manifest;
    LAM_TRY(lam_artifact_open(w->store, w->digest, UINT64_MAX, &w->artifact, err));
    if (w->artifact.kind != LAM_STORE_COMPOSITION)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is no composition but of kind %s", w->digest, lam_store_kind_name(w->artifact.kind));
    LAM_TRY(lam_config_open(w->store, &w->artifact, &manifest, err));
    lam_manifest_free(manifest);
    for (size_t i = 0; i < w->artifact.n_layers; i++)
        LAM_TRY(lam_blob_check(w->store, w->artifact.layers[i].digest, w->artifact.layers[i].size, err));
    return LAM_OK;
}

/* From here on the next writer would know of it. */
static lam_code reserve(void *self, lam_error *err)
{
    struct switching *w = self;
    return lam_change_begin(w->store, &w->change, err);
}

static lam_code stage(void *self, lam_error *err)
{
    struct switching *w = self;
    return lam_active_stage(w->store, &w->next, &w->staged, err);
}

/* The pieces are hashed before their first use. */
static lam_code verify(void *self, lam_error *err)
{
    struct switching *w = self;
    return lam_layers_verify(w->store, &w->artifact, err);
}

static lam_code commit(void *self, lam_error *err)
{
    struct switching *w = self;
    struct lam_writer *staged = w->staged;
    w->staged = NULL; /* the commit frees it, whatever the outcome */
    return lam_writer_commit(staged, err);
}

static void unstage(void *self)
{
    struct switching *w = self;
    lam_writer_abort(w->staged);
    w->staged = NULL;
}

static const struct lam_activation_steps steps = {.validate = validate, .reserve = reserve, .stage = stage, .verify = verify, .commit = commit,
                                                  .unstage = unstage};

static lam_code run(struct switching *w, lam_error *err)
{
    lam_error why = {0};
    lam_code code = lam_activation_run(&steps, w, NULL, &why);
    if (code == LAM_OK) return lam_change_end(w->store, &w->change, "done", NULL, err);
    if (err) *err = why;
    return lam_change_failed(w->store, &w->change, &why);
}

/* Generations rise; JSON's whole numbers end at 2^53. */
static lam_code next_state(struct switching *w, lam_error *err)
{
    if (w->old.generation >= (uint64_t)1 << 53) return LAM_RAISE(err, LAM_E_LIMIT, "active.json: generation %llu is the last", (unsigned long long)w->old.generation);
    w->next.generation = w->old.generation + 1;
    memcpy(w->next.manifest, w->digest, LAM_DIGEST_TEXT);
    memcpy(w->next.previous, w->old.manifest, LAM_DIGEST_TEXT);
    w->change.generation = w->next.generation;
    w->change.from = w->old.generation ? w->old.manifest : NULL;
    w->change.to = w->digest;
    return LAM_OK;
}

/* What an artefact means, for active.json; validate looks at the rest. */
static lam_code read_id(struct switching *w, lam_error *err)
{
    struct lam_artifact a;
    LAM_TRY(lam_artifact_open(w->store, w->digest, UINT64_MAX, &a, err));
    if (a.id) memcpy(w->next.composition, a.id, LAM_DIGEST_TEXT);
    lam_artifact_release(&a);
    return LAM_OK;
}

lam_code lam_store_switch(struct lam_store *s, const char *op, const char *digest, lam_store_result *out, lam_error *err)
{
    struct switching w = {.store = s, .digest = digest, .artifact = {.kind = LAM_STORE_FOREIGN}, .change = {.op = op}};
    LAM_TRY(lam_active_read(s, &w.old, err));
    LAM_TRY(read_id(&w, err));
    LAM_TRY(next_state(&w, err));
    out->kind = LAM_STORE_COMPOSITION;
    out->changed = strcmp(w.old.manifest, digest) != 0;
    lam_code code = out->changed ? run(&w, err) : LAM_OK;
    memcpy(out->digest, digest, LAM_DIGEST_TEXT);
    memcpy(out->from, w.old.manifest, LAM_DIGEST_TEXT);
    memcpy(out->id, w.next.composition, LAM_DIGEST_TEXT);
    out->generation = out->changed ? w.next.generation : w.old.generation;
    lam_artifact_release(&w.artifact);
    return code;
}
