/* Hashing a file's pieces against its leaves, on the threads of a pool. */
#include "format/merkle.h"
#include "format/slm.h"

#include <string.h>

lam_code lam_slm_verify_piece(const struct lam_slm *s, size_t i, lam_error *err)
{
    if (i >= s->n_pieces) return LAM_RAISE(err, LAM_E_ARGUMENT, "piece %zu of %zu", i, s->n_pieces);
    size_t at = i * LAM_PIECE_BYTES, n = s->data_bytes - at < LAM_PIECE_BYTES ? s->data_bytes - at : LAM_PIECE_BYTES;
    uint8_t leaf[32];
    lam_merkle_leaf(s->data + at, n, leaf);
    if (memcmp(leaf, s->pieces + 32 * i, 32) == 0) return LAM_OK;
    char found[LAM_DIGEST_TEXT], declared[LAM_DIGEST_TEXT];
    lam_digest_text(leaf, found);
    lam_digest_text(s->pieces + 32 * i, declared);
    return LAM_RAISE(err, LAM_E_DIGEST, "%.200s: piece %zu of %zu (data bytes %zu to %zu) has the hash %s, the file says %s",
                     s->file.path ? s->file.path : "memory", i, s->n_pieces, at, at + n, found, declared);
}

struct work {
    const struct lam_slm *file;
    const size_t *list;
    bool *good;
};

static void hash_piece(void *context, size_t i, unsigned thread)
{
    const struct work *w = context;
    (void)thread;
    w->good[w->list[i]] = lam_slm_verify_piece(w->file, w->list[i], NULL) == LAM_OK;
}

lam_code lam_slm_verify_pieces(const struct lam_slm *s, struct lam_pool *pool, const size_t *list, size_t n, bool *good, lam_error *err)
{
    struct work w = {s, list, good};
    lam_pool_run(pool, n, hash_piece, &w);
    for (size_t i = 0; i < n; i++) {
        if (good[list[i]]) continue;
        LAM_TRY(lam_slm_verify_piece(s, list[i], err));
        return LAM_RAISE(err, LAM_E_CHANGED, "%s: piece %zu is being written", s->file.path ? s->file.path : "memory", list[i]);
    }
    return LAM_OK;
}
