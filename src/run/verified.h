/* Which pieces of a base's weights were hashed against the file's Merkle tree in this process.
 *
 * Lazily verified, a base is ready without a look at its weights; the first call that computes with it has hashed, on all threads,
 * what it reads: every piece but those that hold nothing but embedding rows, and of these the ones that the call's tokens lie in. A piece
 * is taken for good until a hash of it fails; one that failed is hashed again by the next call that needs it.
 * All of this happens under the lock of the engine's pool, but for lam_verified_init. */
#ifndef LAM_RUN_VERIFIED_H
#define LAM_RUN_VERIFIED_H

#include "base/pool.h"
#include "lamina/lamina.h"
#include "model/model.h"

struct lam_verified {
    struct lam_model *model;  /* borrowed */
    struct lam_pool *pool;    /* borrowed */
    lam_verify mode;
    bool complete;            /* every piece is good */
    bool vectors_read;        /* the model's decoded vectors come from pieces that were good */
    bool *good;               /* [n_pieces], owned */
    size_t *sought;           /* [n_pieces], owned: the pieces being hashed */
    size_t n_sought;
    size_t rows_first, rows_end; /* pieces that hold nothing but rows of an embedding that is not the head, too */
};

/* With LAM_VERIFY_FULL hashes everything now. */
lam_code lam_verified_init(struct lam_verified *v, struct lam_model *model, struct lam_pool *pool, lam_verify mode, lam_error *err);
void lam_verified_release(struct lam_verified *v);

/* Hashes every piece, whatever is known of it. LAM_E_DIGEST, LAM_E_CHANGED. */
lam_code lam_verified_all(struct lam_verified *v, lam_error *err);

/* Before tokens[n] run through the model: LAM_OK if all that they depend on is verified, or verification is off. n may be 0. */
lam_code lam_verified_need(struct lam_verified *v, const uint32_t *tokens, size_t n, lam_error *err);

#endif
