/* What can be reached from the store's roots: the manifests of the index, of the active composition and the one before it. */
#ifndef LAM_STORE_REACH_H
#define LAM_STORE_REACH_H

#include "store/artifact.h"

struct lam_reached {
    char digest[LAM_DIGEST_TEXT];
    uint64_t size;                    /* as its descriptor says; UINT64_MAX: nothing does */
    bool is_manifest;
    lam_store_kind slm;               /* LAM_STORE_BASE, LAM_STORE_ADAPTER: a .slm; else LAM_STORE_FOREIGN */
    char file_root[LAM_DIGEST_TEXT];  /* of a .slm, else "" */
};
struct lam_reach {
    struct lam_reached *items;        /* [n], owned; sorted by digest when all are read */
    size_t n, room;
};

/* Called for a manifest that cannot be read: its digest, and why. A code other than LAM_OK ends the walk. */
typedef lam_code (*lam_unreadable_fn)(void *context, const char *digest, const lam_error *why, lam_error *err);

/* unreadable NULL: the first such manifest's error is the call's. */
lam_code lam_reach_read(const struct lam_store *s, lam_unreadable_fn unreadable, void *context, struct lam_reach *out, lam_error *err);
/* The same from one manifest. */
lam_code lam_reach_from(const struct lam_store *s, const char *digest, struct lam_reach *out, lam_error *err);
void lam_reach_release(struct lam_reach *r);
const struct lam_reached *lam_reach_find(const struct lam_reach *r, const char *digest);

#endif
