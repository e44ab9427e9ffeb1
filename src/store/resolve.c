#include "store/resolve.h"
#include "base/alloc.h"
#include "compose/manifest.h"
#include "store/active.h"
#include "store/index.h"

#include <string.h>

#define LEAST_DIGITS 6

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

static void add_root(struct lam_roots *roots, const char *digest, uint64_t size)
{
    for (size_t i = 0; i < roots->n; i++)
        if (strcmp(roots->digests[i], digest) == 0) return;
    memcpy(roots->digests[roots->n], digest, LAM_DIGEST_TEXT);
    roots->sizes[roots->n++] = size;
}

lam_code lam_roots_read(const struct lam_store *s, struct lam_roots *out, lam_error *err)
{
    struct lam_index index;
    struct lam_active active;
    *out = (struct lam_roots){0};
    LAM_TRY(lam_active_read(s, &active, err));
    LAM_TRY(lam_index_read(s, &index, err));
    out->digests = lam_alloc(index.n + 2, sizeof *out->digests);
    out->sizes = lam_alloc(index.n + 2, sizeof *out->sizes);
    bool room = out->digests && out->sizes;
    for (size_t i = 0; room && i < index.n; i++) add_root(out, index.entries[i].manifest.digest, index.entries[i].manifest.size);
    if (room && active.generation) add_root(out, active.manifest, UINT64_MAX);
    if (room && active.previous[0]) add_root(out, active.previous, UINT64_MAX);
    lam_index_release(&index);
    if (room) return LAM_OK;
    lam_roots_release(out);
    return no_memory(err);
}

void lam_roots_release(struct lam_roots *roots)
{
    lam_free(roots->digests);
    lam_free(roots->sizes);
    *roots = (struct lam_roots){0};
}

lam_code lam_find_layer(const struct lam_store *s, const char *media_type, const char *meaning, struct lam_artifact *out,
                        const struct lam_descriptor **layer, lam_error *err)
{
    struct lam_roots roots;
    *layer = NULL;
    LAM_TRY(lam_roots_read(s, &roots, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && !*layer && i < roots.n; i++) {
        code = lam_artifact_open(s, roots.digests[i], roots.sizes[i], out, err);
        if (code != LAM_OK) {
            if (code != LAM_E_NO_MEMORY) code = LAM_OK; /* a damaged one has no layer to give */
            continue;
        }
        *layer = lam_artifact_layer(out, media_type, meaning);
        if (!*layer) lam_artifact_release(out);
    }
    lam_roots_release(&roots);
    return code;
}

/* ---- references ---- */

/* The digits of a reference that may be the beginning of a digest; NULL. */
static const char *digits_of(const char *reference)
{
    const char *digits = strncmp(reference, "sha256:", 7) == 0 ? reference + 7 : reference;
    size_t len = strspn(digits, "0123456789abcdef");
    return len >= LEAST_DIGITS && len <= 64 && !digits[len] ? digits : NULL;
}

static bool begins(const char *digest, const char *digits) { return digest && strncmp(digest + 7, digits, strlen(digits)) == 0; }

/* What begins with digits among the roots: by the manifest's digest, or by what it means. */
static lam_code find_digits(struct lam_store *s, const char *reference, const char *digits, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_roots roots;
    size_t found = 0;
    LAM_TRY(lam_roots_read(s, &roots, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < roots.n; i++) {
        struct lam_artifact a = {.kind = LAM_STORE_FOREIGN};
        bool meant = begins(roots.digests[i], digits);
        if (!meant && (code = lam_artifact_open(s, roots.digests[i], roots.sizes[i], &a, err)) == LAM_OK) {
            meant = begins(a.id, digits);
            lam_artifact_release(&a);
        }
        if (code != LAM_OK && code != LAM_E_NO_MEMORY) code = LAM_OK;
        if (meant && found++ == 0) memcpy(digest, roots.digests[i], LAM_DIGEST_TEXT);
    }
    lam_roots_release(&roots);
    if (code == LAM_OK && found > 1) return LAM_RAISE(err, LAM_E_CONFLICT, "%s: %zu things in the store begin so; more digits are needed", reference, found);
    if (code == LAM_OK && found == 0) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: nothing in the store begins so", reference);
    return code;
}

lam_code lam_store_resolve(lam_store *s, const char *reference, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_index index;
    digest[0] = 0;
    LAM_TRY(lam_index_read(s, &index, err));
    const struct lam_index_entry *e = lam_index_find(&index, reference);
    if (e) memcpy(digest, e->manifest.digest, LAM_DIGEST_TEXT);
    lam_index_release(&index);
    if (digest[0]) return LAM_OK;
    const char *digits = digits_of(reference);
    if (digits) return find_digits(s, reference, digits, digest, err);
    return LAM_RAISE(err, LAM_E_NOT_FOUND, "%.200s: no name and no digest in the store %.200s", reference, s->folder);
}

lam_code lam_resolve_open(struct lam_store *s, const char *reference, struct lam_artifact *out, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    *out = (struct lam_artifact){.kind = LAM_STORE_FOREIGN};
    LAM_TRY(lam_store_resolve(s, reference, digest, err));
    return lam_artifact_open(s, digest, UINT64_MAX, out, err);
}
