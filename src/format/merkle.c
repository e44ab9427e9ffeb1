#include "format/merkle.h"

void lam_merkle_leaf(const void *piece, size_t len, uint8_t out[32])
{
    struct lam_sha256 s;
    lam_sha256_init(&s);
    lam_sha256_update(&s, "\x00", 1);
    lam_sha256_update(&s, piece, len);
    lam_sha256_final(&s, out);
}

static void merkle_node(const uint8_t left[32], const uint8_t right[32], uint8_t out[32])
{
    struct lam_sha256 s;
    lam_sha256_init(&s);
    lam_sha256_update(&s, "\x01", 1);
    lam_sha256_update(&s, left, 32);
    lam_sha256_update(&s, right, 32);
    lam_sha256_final(&s, out);
}

/* n > 1 leaves split at the largest power of two below n; the depth is at most 64. */
void lam_merkle_root(const uint8_t *leaves, size_t n, uint8_t out[32])
{
    if (n == 0) {
        lam_sha256("", 0, out);
        return;
    }
    if (n == 1) {
        for (size_t i = 0; i < 32; i++) out[i] = leaves[i];
        return;
    }
    size_t k = 1;
    while (k < n - k) k *= 2;
    uint8_t left[32], right[32];
    lam_merkle_root(leaves, k, left);
    lam_merkle_root(leaves + k * 32, n - k, right);
    merkle_node(left, right, out);
}
