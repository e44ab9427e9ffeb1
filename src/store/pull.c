/* Pulling: what is expected, fetching what the store lacks, and placing all of it at once. */
#include "lamina/pull.h"
#include "base/alloc.h"
#include "base/os.h"
#include "compose/manifest.h"
#include "store/change.h"
#include "store/fetch_slm.h"
#include "store/known.h"
#include "store/naming.h"
#include "store/piece.h"
#include "store/seed.h"
#include "store/exchange.h"
#include "store/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef LAM_SEED_URL
#define LAM_SEED_URL ""
#endif
#ifndef LAM_SEED_ROOT
#define LAM_SEED_ROOT "" /* "#sha256:…": what the seed's default must be */
#endif

/* A blob that the store will have, and who it was fetched from if that is known for a repair. */
struct part {
    struct lam_staged staged;     /* path NULL: the store has it */
    struct lam_lock *hold;        /* of one that it has */
    char *url;                    /* owned, or NULL: of an .slm */
    char root[LAM_DIGEST_TEXT];
};

struct pull {
    struct lam_exchange t;
    lam_transfer_report *out;
    char expected[LAM_DIGEST_TEXT]; /* "": nothing is known */
    struct part *parts;             /* [n_parts], owned */
    size_t n_parts;
    struct lam_work work;
    char *partial;                  /* owned: the folder of what is not whole */
    bool recorded;                  /* the records tell of it */
};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "pull: out of memory"); }

const char *lam_root_origin_name(lam_root_origin origin)
{
    static const char *const names[] = {"", "given", "signed", "pinned", "known", "first use"};
    return (unsigned)origin < sizeof names / sizeof *names ? names[origin] : "?";
}

bool lam_is_remote(const char *text) { return lam_reference_is_remote(text); }

const char *lam_seed_default(void)
{
    const char *named = getenv("LAMINA_SEED_URL");
    if (named) return *named ? named : NULL;
    return *LAM_SEED_URL ? LAM_SEED_URL LAM_SEED_ROOT : NULL;
}

/* ---- what is expected ---- */

/* What url must be: pin, then what a trusted key signed, then what was seen there before. */
static lam_code expect(struct pull *p, const char *url, const char *reference, const char *pin, const char *signed_root,
                       const char *signer, lam_error *err)
{
    if (*pin) {
        bool own = *LAM_SEED_ROOT && strcmp(reference, LAM_SEED_URL LAM_SEED_ROOT) == 0;
        p->out->origin = own ? LAM_ROOT_PINNED : LAM_ROOT_GIVEN;
        strcpy(p->expected, pin);
    } else if (signed_root) {
        p->out->origin = LAM_ROOT_SIGNED;
        snprintf(p->out->signer, sizeof p->out->signer, "%.150s", signer);
        strcpy(p->expected, signed_root);
    } else {
        LAM_TRY(lam_known_find(p->t.store, url, p->expected, err));
        p->out->origin = p->expected[0] ? LAM_ROOT_KNOWN : LAM_ROOT_FIRST_USE;
    }
    return LAM_OK;
}

/* Why another root than the known one is no small thing, and what to do about it. */
static lam_code explain(const struct pull *p, const char *url, char mark, lam_code code, lam_error *err)
{
    if (code != LAM_E_ROOT || p->out->origin != LAM_ROOT_KNOWN || !err) return code;
    lam_error why = *err;
    return LAM_RAISE(err, code, "%.240s. It was %.24s… when it was first pulled: if you know that it was meant to change, pull %.100s%csha256:… with the new digest",
                     why.message, p->expected, url, mark);
}

static lam_code accept_first(void *context, const uint8_t root[32], lam_error *err)
{
    const struct pull *p = context;
    char text[LAM_DIGEST_TEXT];
    (void)err;
    lam_digest_text(root, text);
    lam_exchange_say(&p->t, "nothing vouches for %s: it is taken as it comes (trust on first use), and its root %s is recorded",
                     p->t.reference.url, text);
    return LAM_OK;
}

static lam_code check_digest(const struct pull *p, const char *url, const char *digest, lam_error *err)
{
    if (!p->expected[0]) {
        lam_exchange_say(&p->t, "nothing vouches for %s: it is taken as it comes (trust on first use), and its digest %s is recorded", url, digest);
        return LAM_OK;
    }
    if (strcmp(p->expected, digest) == 0) return LAM_OK;
    return LAM_RAISE(err, LAM_E_ROOT, "%.200s: it is %s, expected is %s", url, digest, p->expected);
}

/* ---- fetching ---- */

static lam_code new_part(struct pull *p, struct part **out, lam_error *err)
{
    struct part *more = lam_realloc(p->parts, p->n_parts + 1, sizeof *more);
    if (!more) return no_memory(err);
    p->parts = more;
    *out = &more[p->n_parts++];
    **out = (struct part){.url = NULL};
    return LAM_OK;
}

static lam_code record_source(struct part *part, const char *url, const uint8_t root[32], lam_error *err)
{
    part->url = lam_strdup(url);
    lam_digest_text(root, part->root);
    return part->url ? LAM_OK : no_memory(err);
}

static bool is_slm(const struct lam_descriptor *d)
{
    return strcmp(d->media_type, LAM_TYPE_BASE_SLM) == 0 || strcmp(d->media_type, LAM_TYPE_ADAPTER_SLM) == 0;
}

static lam_code fetch_slm(struct pull *p, struct part *part, const struct lam_descriptor *d, const char *url, lam_error *err)
{
    uint8_t expected[32], root[32];
    char *path;
    if (!lam_digest_read(d->file_root, expected)) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%s: its file_root is none", d->digest);
    LAM_TRY(lam_exchange_sources(&p->t, url, err));
    LAM_TRY(lam_fetch_slm(p->t.sources, p->partial, expected, NULL, NULL, &path, root, err));
    p->out->moved += p->t.sources->fetched;
    LAM_TRY(lam_blob_stage_made(p->t.store, path, &part->staged, err));
    p->out->bytes += part->staged.size;
    LAM_TRY(record_source(part, url, root, err));
    if (strcmp(part->staged.digest, d->digest) == 0 && part->staged.size == d->size) return LAM_OK;
    return LAM_RAISE(err, LAM_E_DIGEST, "%.200s: %" PRIu64 " bytes with the digest %s; the manifest says %" PRIu64 " and %s", url,
                     part->staged.size, part->staged.digest, d->size, d->digest);
}

static lam_code fetch_small(struct pull *p, struct part *part, const struct lam_descriptor *d, lam_error *err)
{
    struct lam_str text = {0};
    lam_code code = d->size <= LAM_STORE_SMALL_MAX ? lam_remote_blob(&p->t.remote, d->digest, d->size, &text, err)
                  : LAM_RAISE(err, LAM_E_LIMIT, "%s (%.100s): %" PRIu64 " bytes, %" PRIu64 " at most", d->digest, d->media_type,
                              d->size, (uint64_t)LAM_STORE_SMALL_MAX);
    if (code == LAM_OK) code = lam_blob_stage_bytes(&p->work, text.data ? text.data : "", text.len, &part->staged, err);
    if (code == LAM_OK) {
        p->out->bytes += text.len;
        p->out->moved += text.len;
    }
    lam_str_release(&text);
    return code;
}

/* A blob of an artefact: as the store has it, or from the network. */
static lam_code fetch_blob(struct pull *p, const struct lam_descriptor *d, lam_error *err)
{
    struct part *part;
    LAM_TRY(new_part(p, &part, err));
    p->out->n_blobs++;
    if (lam_blob_check(p->t.store, d->digest, d->size, NULL) == LAM_OK) LAM_TRY(lam_blob_hold(p->t.store, d->digest, &part->hold, err));
    if (part->hold) {
        p->out->n_had++;
        p->out->bytes += d->size;
        return LAM_OK;
    }
    if (!is_slm(d)) return fetch_small(p, part, d, err);
    char *url = lam_remote_blob_url(&p->t.remote, d->digest);
    lam_code code = url ? fetch_slm(p, part, d, url, err) : no_memory(err);
    lam_free(url);
    return code;
}

/* ---- placing ---- */

/* Every .slm is what its layer says, and a composition composes to its id. */
static lam_code verify_placed(const struct pull *p, lam_error *err)
{
    struct lam_artifact a;
    LAM_TRY(lam_artifact_open(p->t.store, p->out->digest, UINT64_MAX, &a, err));
    lam_code code = lam_artifact_verify(p->t.store, &a, err);
    lam_artifact_release(&a);
    return code;
}

/* From where everything came, for the next pull and for repairs: once it is accepted. */
static lam_code record_roots(struct pull *p, lam_error *err)
{
    for (size_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].url) LAM_TRY(lam_known_set(p->t.store, p->parts[i].url, p->parts[i].root, err));
    return lam_known_set(p->t.store, p->t.reference.url, p->out->root, err);
}

static lam_code place_all(struct pull *p, const struct lam_str *manifest, const char *name, lam_error *err)
{
    struct lam_store *s = p->t.store;
    lam_store_result result;
    for (size_t i = 0; i < p->n_parts; i++) {
        struct lam_staged *staged = &p->parts[i].staged;
        if (staged->path) LAM_TRY(lam_blob_place(s, staged, err));
    }
    LAM_TRY(lam_blob_put(s, &p->work, manifest->data, manifest->len, p->out->digest, err));
    LAM_TRY(verify_placed(p, err));
    LAM_TRY(record_roots(p, err));
    struct lam_naming naming = {.op = "pull", .name = name, .may_move = true, .kind = p->out->kind, .digest = p->out->digest,
                                .size = manifest->len};
    lam_code code = lam_name_manifest(s, &naming, &result, err);
    p->recorded = naming.recorded;
    if (code != LAM_OK) return code;
    if (result.from[0] && strcmp(result.from, result.digest) != 0)
        lam_exchange_say(&p->t, "the name %s meant %s before", name, result.from);
    return LAM_OK;
}

/* Everything is on this disk: it becomes part of the store. */
static lam_code install(struct pull *p, const struct lam_str *manifest, const char *name, lam_error *err)
{
    LAM_TRY(lam_store_lock(p->t.store, err));
    lam_code code = place_all(p, manifest, name, err);
    lam_store_unlock(p->t.store);
    snprintf(p->out->name, sizeof p->out->name, "%s", name);
    return code;
}

/* Everything that a manifest names. */
static lam_code pull_artifact(struct pull *p, const struct lam_str *manifest, const char *digest, const char *name, lam_error *err)
{
    struct lam_artifact a;
    LAM_TRY(lam_artifact_parse(manifest->data, manifest->len, digest, &a, err));
    lam_code code = LAM_OK;
    if (a.kind == LAM_STORE_FOREIGN)
        code = LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%.200s is nothing that Lamina runs", p->t.reference.url);
    p->out->kind = a.kind;
    strcpy(p->out->root, digest);
    if (code == LAM_OK) code = fetch_blob(p, &a.config, err);
    for (size_t i = 0; code == LAM_OK && i < a.n_layers; i++) code = fetch_blob(p, &a.layers[i], err);
    if (code == LAM_OK) code = install(p, manifest, name, err);
    lam_artifact_release(&a);
    return code;
}

/* ---- the three kinds of references ---- */

static lam_code name_of_url(const char *url, char name[132], lam_error *err)
{
    const char *path = strstr(url, "://") + 3;
    char *plain = lam_strndup(path, strcspn(path, "?"));
    bool good = plain && lam_name_of_file(plain, name) && lam_name_check(name, NULL) == LAM_OK;
    lam_free(plain);
    return good ? LAM_OK : LAM_RAISE(err, LAM_E_STORE_NAME, "%.300s gives no name for the store: give one with --name", url);
}

/* The file itself, and what makes it an artefact: an empty configuration and a manifest. */
static lam_code take_file(struct pull *p, char *path, struct lam_str *manifest, lam_error *err)
{
    struct part *part;
    struct lam_piece piece;
    LAM_TRY(lam_piece_of_made(p->t.store, path, &piece, err));
    struct lam_descriptor layer = lam_piece_layer(&piece);
    p->out->kind = piece.kind;
    p->out->bytes = piece.size;
    p->out->moved = p->t.sources->fetched;
    p->out->n_blobs = 1;
    strcpy(p->out->root, piece.file_root);
    lam_code code = lam_artifact_write(piece.kind, piece.meaning, NULL, &layer, 1, manifest, err);
    if (code == LAM_OK) code = new_part(p, &part, err);
    if (code == LAM_OK) {
        part->staged = piece.staged;
        piece.staged = (struct lam_staged){0};
    }
    lam_piece_release(&piece);
    if (code == LAM_OK) code = new_part(p, &part, err);
    return code == LAM_OK ? lam_blob_stage_bytes(&p->work, LAM_EMPTY_CONFIG, sizeof LAM_EMPTY_CONFIG - 1, &part->staged, err) : code;
}

static lam_code pull_file(struct pull *p, const char *reference, const char *name, lam_error *err)
{
    const char *url = p->t.reference.url;
    struct lam_str manifest = {0};
    uint8_t expected[32], root[32];
    char *path, own[132];
    LAM_TRY(expect(p, url, reference, p->t.reference.pin, NULL, NULL, err));
    if (!name) LAM_TRY(name_of_url(url, own, err));
    LAM_TRY(lam_exchange_sources(&p->t, url, err));
    struct lam_sources *s = p->t.sources;
    for (size_t i = 0; i < p->t.o->n_sources; i++) s->list[s->n++] = (struct lam_source){.url = p->t.o->sources[i]}; /* the login is the first one's */
    bool known = lam_digest_read(p->expected, expected);
    lam_code code = lam_fetch_slm(s, p->partial, known ? expected : NULL, accept_first, p, &path, root, err);
    if (code != LAM_OK) return explain(p, url, '#', code, err);
    code = take_file(p, path, &manifest, err);
    if (code == LAM_OK) code = install(p, &manifest, name ? name : own, err);
    lam_str_release(&manifest);
    return code;
}

/* A pin of a seed is the digest of the model's manifest, or the file_root of its only .slm. */
static lam_code take_pin(struct pull *p, const struct lam_str *manifest, const char *digest, lam_error *err)
{
    struct lam_artifact a;
    if (!p->t.reference.pin[0] || strcmp(p->expected, digest) == 0) return LAM_OK;
    LAM_TRY(lam_artifact_parse(manifest->data, manifest->len, digest, &a, err));
    if (a.kind != LAM_STORE_COMPOSITION && a.n_layers == 1 && a.layers[0].file_root && strcmp(a.layers[0].file_root, p->expected) == 0)
        strcpy(p->expected, digest);
    lam_artifact_release(&a);
    return LAM_OK;
}

static lam_code read_seed(struct lam_exchange *t, struct lam_trust **trust, struct lam_seed *out, lam_error *err)
{
    struct lam_str text = {0};
    lam_error why;
    *out = (struct lam_seed){0};
    LAM_TRY(lam_trust_open(t->o->trust, trust, err));
    lam_code code = lam_remote_get(&t->remote, t->reference.url, NULL, &text, err);
    if (code == LAM_OK && (code = lam_seed_parse(text.data, text.len, *trust, out, &why)) != LAM_OK)
        LAM_RAISE(err, code, "%.200s: %.300s", t->reference.url, why.message);
    lam_str_release(&text);
    return code;
}

/* What is known of one model of a seed stands under "URL NAME" in known_roots: the URL alone is the index's. */
static lam_code pull_of_seed(struct pull *p, const struct lam_seed *seed, const char *reference, const char *item, const char *name,
                             lam_error *err)
{
    const char *digest;
    uint64_t size;
    struct lam_str manifest = {0}, known = {0};
    if (!item) item = seed->first;
    LAM_TRY(lam_seed_find(seed, item, &digest, &size, err));
    if (!lam_str_printf(&known, "%s %s", p->t.reference.url, item)) return no_memory(err);
    lam_code code = expect(p, known.data, reference, p->t.reference.pin, seed->seal.name ? digest : NULL, seed->seal.name, err);
    if (code == LAM_OK) code = lam_remote_blob(&p->t.remote, digest, size, &manifest, err);
    if (code == LAM_OK) code = take_pin(p, &manifest, digest, err);
    if (code == LAM_OK) code = explain(p, p->t.reference.url, '#', check_digest(p, known.data, digest, err), err);
    lam_free(p->t.reference.url); /* what is recorded from here on */
    p->t.reference.url = known.data;
    if (code == LAM_OK) code = pull_artifact(p, &manifest, digest, name ? name : item, err);
    lam_str_release(&manifest);
    return code;
}

static lam_code pull_seed(struct pull *p, const char *reference, const char *item, const char *name, lam_error *err)
{
    struct lam_seed seed;
    lam_trust *trust = NULL;
    char *index = lam_strdup(p->t.reference.url);
    lam_code code = index ? read_seed(&p->t, &trust, &seed, err) : no_memory(err);
    p->t.remote.index = index;
    if (code == LAM_OK) {
        code = pull_of_seed(p, &seed, reference, item, name, err);
        lam_seed_release(&seed);
    }
    lam_trust_free(trust);
    lam_free(index);
    return code;
}

static lam_code pull_registry(struct pull *p, const char *reference, const char *name, lam_error *err)
{
    const struct lam_reference *r = &p->t.reference;
    struct lam_str manifest = {0}, own = {0};
    char digest[LAM_DIGEST_TEXT];
    LAM_TRY(expect(p, r->url, reference, r->pin, NULL, NULL, err));
    bool tagged = r->tag && strcmp(r->tag, "latest") != 0;
    bool ok = lam_str_printf(&own, "%s%s%s", r->name, tagged ? ":" : "", tagged ? r->tag : "");
    lam_code code = ok ? lam_remote_manifest(&p->t.remote, r->tag ? r->tag : r->pin, &manifest, digest, err) : no_memory(err);
    if (code == LAM_OK) code = explain(p, r->url, '@', check_digest(p, r->url, digest, err), err);
    if (code == LAM_OK) code = pull_artifact(p, &manifest, digest, name ? name : own.data, err);
    lam_str_release(&own);
    lam_str_release(&manifest);
    return code;
}

static lam_code pull_kind(struct pull *p, const char *reference, const char *item, const char *name, lam_error *err)
{
    switch (p->t.reference.kind) {
    case LAM_REFERENCE_FILE: return pull_file(p, reference, name, err);
    case LAM_REFERENCE_SEED: return pull_seed(p, reference, item, name, err);
    case LAM_REFERENCE_REGISTRY: break;
    }
    return pull_registry(p, reference, name, err);
}

/* The audit tells of a failure, too, by where it should have come from. */
static lam_code pull_recorded(struct pull *p, const char *reference, const char *item, const char *name, lam_error *err)
{
    lam_error why = {0};
    lam_code code = pull_kind(p, reference, item, name, &why);
    struct lam_change change = {.op = "pull", .name = p->t.reference.url};
    if (code != LAM_OK && !p->recorded) lam_change_failed(p->t.store, &change, &why);
    if (code != LAM_OK && err) *err = why;
    return code;
}

static void release(struct pull *p)
{
    for (size_t i = 0; i < p->n_parts; i++) {
        lam_staged_release(&p->parts[i].staged);
        lam_unlock(p->parts[i].hold);
        lam_free(p->parts[i].url);
    }
    lam_free(p->parts);
    lam_free(p->partial);
    lam_work_close(&p->work);
    lam_exchange_close(&p->t);
}

lam_code lam_pull(lam_store *store, const char *reference, const char *item, const char *name, const lam_transfer_options *options,
                  lam_transfer_report *out, lam_error *err)
{
    struct pull p = {.out = out};
    *out = (lam_transfer_report){.kind = LAM_STORE_FOREIGN};
    lam_code code = lam_exchange_open(&p.t, store, reference, options, err);
    if (code == LAM_OK && name) code = lam_name_check(name, err);
    lam_reference_kind kind = p.t.reference.kind;
    if (code == LAM_OK && item && kind != LAM_REFERENCE_SEED)
        code = LAM_RAISE(err, LAM_E_ARGUMENT, "%.200s is no seed, which has several models to choose from", reference);
    if (code == LAM_OK && p.t.o->n_sources && kind != LAM_REFERENCE_FILE)
        code = LAM_RAISE(err, LAM_E_ARGUMENT, "more sources can be given for an .slm by its URL alone");
    if (code == LAM_OK) code = lam_work_open(store, &p.work, err);
    if (code == LAM_OK) code = lam_store_path(store, LAM_STORE_PARTIAL, &p.partial, err);
    if (code == LAM_OK) code = pull_recorded(&p, reference, item, name, err);
    release(&p);
    return code;
}

/* ---- lists, repairs ---- */

lam_code lam_seed_list(const char *reference, const lam_transfer_options *options, char **json, lam_error *err)
{
    struct lam_exchange t;
    struct lam_seed seed;
    lam_trust *trust = NULL;
    struct lam_str text = {0};
    *json = NULL;
    lam_code code = lam_exchange_open(&t, NULL, reference, options, err);
    if (code == LAM_OK && t.reference.kind != LAM_REFERENCE_SEED) code = LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s is no seed", reference);
    if (code == LAM_OK) code = read_seed(&t, &trust, &seed, err);
    if (code == LAM_OK) {
        json_t *out = json_pack("{s:s,s:O,s:s+}", "default", seed.first, "models", (json_t *)seed.models, "standing",
                                seed.seal.name ? "signed by " : "unsigned",
                                seed.seal.name ? seed.seal.name : "");
        code = out ? lam_json_canonical(out, &text, err) : no_memory(err);
        json_decref(out);
        lam_seed_release(&seed);
    }
    if (code == LAM_OK) *json = text.data;
    else lam_str_release(&text);
    lam_trust_free(trust);
    lam_exchange_close(&t);
    return code;
}
