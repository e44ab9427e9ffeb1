/* A damaged blob of a .slm, made whole from where it was pulled. */
#include "lamina/pull.h"
#include "base/alloc.h"
#include "store/fetch_slm.h"
#include "store/fsck.h"
#include "store/known.h"
#include "store/reach.h"
#include "store/exchange.h"

#include <string.h>

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "repair: out of memory"); }

struct refetching {
    const lam_transfer_options *options; /* may be NULL */
    uint64_t n_bytes;
};

/* The registry's reference that a blob's URL belongs to, for its login: "https://HOST/v2/NAME/blobs/…" → "oci://HOST/NAME". A copy of
 * the URL itself for other URLs; NULL when memory is lacking. */
static char *reference_of(const char *url)
{
    const char *host = strstr(url, "://") + 3, *v2 = strstr(host, "/v2/"), *blobs = v2 ? strstr(v2, "/blobs/sha256:") : NULL;
    struct lam_str s = {0};
    if (!blobs) return lam_strdup(url);
    bool ok = lam_str_printf(&s, "oci://%.*s/%.*s", (int)(v2 - host), host, (int)(blobs - v2 - 4), v2 + 4);
    if (!ok) lam_str_release(&s);
    return s.data;
}

static lam_code fetch_from(lam_store *store, const char *url, const char *damaged, const uint8_t root[32],
                           const lam_transfer_options *options, char **path,
                           uint64_t *n_bytes, lam_error *err)
{
    struct lam_exchange t = {0};
    lam_transfer_options plain = options ? *options : (lam_transfer_options){0};
    plain.plain_http = strncmp(url, "http://", 7) == 0;
    char *reference = reference_of(url), *partial = NULL;
    lam_code code = reference ? lam_exchange_open(&t, store, reference, &plain, err) : no_memory(err);
    if (code == LAM_OK) code = lam_store_path(store, LAM_STORE_PARTIAL, &partial, err);
    if (code == LAM_OK) code = lam_exchange_sources(&t, url, err);
    if (code == LAM_OK) code = lam_fetch_repaired(t.sources, partial, damaged, root, path, err);
    if (t.sources) *n_bytes += t.sources->fetched;
    lam_exchange_close(&t);
    lam_free(partial);
    lam_free(reference);
    return code;
}

/* From one URL of a list, a line each, after the other. */
static lam_code fetch_from_any(lam_store *store, char *urls, const char *damaged, const uint8_t root[32],
                               const lam_transfer_options *options, char **path,
                               uint64_t *n_bytes, lam_error *err)
{
    lam_code code = LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: it is not known where it came from", damaged);
    for (char *url = urls, *end; *path == NULL && (end = strchr(url, '\n')) != NULL; url = end + 1) {
        *end = 0;
        if (strncmp(url, "http", 4) == 0) code = fetch_from(store, url, damaged, root, options, path, n_bytes, err);
        if (code == LAM_E_CANCELLED) break;
    }
    return code;
}

/* A lam_repair_source's fetch. Which pieces are bad is found again on the way, in the copy that is put right. */
static lam_code refetch(void *context, struct lam_store *store, const struct lam_reached *blob, const struct lam_bad_pieces *bad,
                        struct lam_work *w,
                        char **path, lam_error *err)
{
    struct refetching *r = context;
    struct lam_str urls = {0};
    uint8_t root[32];
    char *damaged = NULL;
    (void)bad, (void)w;
    *path = NULL;
    if (!lam_digest_read(blob->file_root, root)) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s is no .slm", blob->digest);
    lam_code code = lam_blob_path(store, blob->digest, &damaged, err);
    if (code == LAM_OK) code = lam_known_urls(store, blob->file_root, &urls, err);
    if (code == LAM_OK && !urls.data && !lam_str_puts(&urls, "")) code = no_memory(err);
    if (code == LAM_OK) code = fetch_from_any(store, urls.data, damaged, root, r->options, path, &r->n_bytes, err);
    lam_str_release(&urls);
    lam_free(damaged);
    return code;
}

lam_code lam_pull_fsck(lam_store *store, const lam_transfer_options *options, lam_fault_list *found, lam_fault_list *left,
                       uint64_t *n_bytes,
                       lam_error *err)
{
    struct refetching r = {.options = options};
    const struct lam_repair_source source = {refetch, &r};
    lam_code code = lam_store_fsck_from(store, true, &source, found, left, err);
    *n_bytes = r.n_bytes;
    return code;
}
