/* Which pieces of a damaged .slm are bad: those alone need be fetched again. */
#ifndef LAM_STORE_PIECES_H
#define LAM_STORE_PIECES_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct lam_bad_pieces {
    size_t *list;           /* [n], owned, rising */
    size_t n, n_pieces;
    uint64_t data_offset;   /* where piece 0 begins in the file; each is LAM_PIECE_BYTES long, the last one may be shorter */
};

/* Hashes the pieces of the .slm at path against its piece table, which file_root (which must be from elsewhere) covers. LAM_E_DIGEST or the
 * file's error if what lies before the data is damaged: then nothing can be told of the pieces. */
lam_code lam_bad_pieces_find(const char *path, const char *file_root, struct lam_bad_pieces *out, lam_error *err);
void lam_bad_pieces_release(struct lam_bad_pieces *bad);

#endif
