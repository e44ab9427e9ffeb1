/* Merkle tree of RFC 9162 (section 2.1) with SHA-256: leaf = H(0x00 ‖ data), node = H(0x01 ‖ left ‖ right). */
#ifndef LAM_FORMAT_MERKLE_H
#define LAM_FORMAT_MERKLE_H

#include "base/sha256.h"

#define LAM_PIECE_BYTES ((size_t)4 << 20)

void lam_merkle_leaf(const void *piece, size_t len, uint8_t out[32]);
/* Root over n leaves (32 bytes each, in order). n = 0 gives H("") as in the RFC. */
void lam_merkle_root(const uint8_t *leaves, size_t n, uint8_t out[32]);

#endif
