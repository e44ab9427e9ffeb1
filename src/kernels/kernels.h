/* The kernel table: what each function computes, in which order, on which shapes. The scalar functions are the definition
 * (numeric contract nc1, docs/numeric.md); every other variant gives the same bits for every input.
 *
 * Matrices w[rows, cols] are row tiles (tensor/tiles.h); a kernel call computes the 16 outputs of one tile for n_rows rows of
 * activations, so that weights are read once per call. Everything is row-major; strides count elements. */
#ifndef LAM_KERNELS_KERNELS_H
#define LAM_KERNELS_KERNELS_H

#include "base/error.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAM_KV_PAGE 256 /* positions in a KV page; also the attention tile of nc1 */

/* Rows quantised to 8 bits for block-quantised weights: groups of 32, the last one padded with zeros. */
struct lam_q8_rows {
    int8_t *q;      /* [n_rows, groups*32], |q| <= 127 */
    float *scale;   /* [n_rows, groups] */
    int32_t *half;  /* [n_rows, groups, 2]: sums of the codes 0..15 and 16..31 of a group */
    size_t n_rows, groups;
};

/* Rows quantised to 14 bits for adapter factors. */
struct lam_q14_rows {
    int16_t *q;     /* [n_rows, groups*32], |q| <= 8191 */
    float *scale;   /* [n_rows, groups] */
    size_t n_rows, groups;
};

/* Tiles of 16 rows of an adapter factor f[rows, cols] in 14 bits, one after the other. In a tile group follows group of 32 columns:
 * float32 scale[16 rows], then int16 q[pair][16 rows][2] for the group's columns in pairs, an odd last column padded by 0. */
struct lam_q14_tiles {
    const uint8_t *bytes;
    size_t cols, n;
};

/* Bytes of a tile, or of its groups before a column that begins a group. */
static inline size_t lam_q14_tile_bytes(size_t cols) { return 64 * ((cols + 31) / 32 + (cols + 1) / 2); }

/* How K and V lie in a page of 256 positions of one layer and KV head; a page has a K part and a V part.
 *   F16, F32  K: 16 tiles [d][16] (lane = position), V: [256][d]
 *   I8        K: int8 [16 tiles][d4/4][16 positions][4], d4 = d rounded up to 4 and the rest zero, then float32 scales
 *             [16 tiles][groups][16], groups of 32 dimensions, the last may be short;
 *             V: int8 [128 position pairs][d][2], then float32 scales [256]. All codes are in -127..127.
 * Both parts begin at a multiple of 64 bytes. */
enum lam_kv_type { LAM_KV_F16, LAM_KV_F32, LAM_KV_I8 };

size_t lam_kv_k_bytes(enum lam_kv_type type, size_t d); /* of a K part; a multiple of 64 */
size_t lam_kv_v_bytes(enum lam_kv_type type, size_t d);

#define LAM_ATTENTION_QUERIES 8 /* at most in one call */
#define LAM_ATTENTION_DIM 512   /* d at most */

/* Attention of n queries that share one KV head: heads of a group, rows of one session, or both. The bits are those of each query
 * alone. Positions from the smallest first to the largest last must be stored and finite; others are not read, but for what shares
 * a K tile or a pair of V positions with them, whose values count nothing. */
struct lam_attention {
    enum lam_kv_type kv;
    const void *const *k_pages;     /* k_pages[p] holds positions 256p .. 256p+255; read where a query sees something */
    const void *const *v_pages;
    size_t d;                       /* head dimension, 1 .. LAM_ATTENTION_DIM */
    float scale;                    /* applied to q before the products */
    float softcap;                  /* 0: none; else s = cap·tanh(s / cap) */
    size_t n;                       /* 1 .. LAM_ATTENTION_QUERIES */
    struct lam_query {
        const float *q;             /* [d] */
        size_t first, last;         /* visible positions, inclusive */
        float *out;                 /* [d]; NaN where the arithmetic left the finite range */
    } query[LAM_ATTENTION_QUERIES];
    float *scores;                  /* scratch [n, scores_stride] */
    size_t scores_stride;           /* at least the largest last + 256 */
};

struct lam_kernels {
    const char *name; /* "scalar", "avx2", "avx2-vnni", "avx512", … */

    /* One row x[cols] → q[groups*32], scale[groups], half[groups*2]. False if an element is not finite. */
    bool (*quantise8)(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half);
    /* One row x[cols] → q[groups*32], scale[groups]. False if an element is not finite. */
    bool (*quantise14)(const float *x, size_t cols, int16_t *q, float *scale);

    /* y[n_rows, 16] (row stride y_stride) = x · tileᵀ for block-quantised weights of cols = x->groups*32 columns. */
    void (*gemm_quant)(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);
    /* The same for F32, F16 and BF16 weights and float rows x[n_rows, cols]. */
    void (*gemm_float)(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride,
                       size_t n_rows, float *y, size_t y_stride);
    /* y[n_rows, 16·tiles->n] += x · tilesᵀ, the product as in gemm_quant and then added; rows first .. first+n_rows-1 of x. */
    void (*add_q14)(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                    size_t y_stride);

    /* y[i] = (x[i] · r) · w[i], r = 1 / sqrt(Σx²/n + eps). y may be x. */
    void (*rms_norm)(const float *x, const float *w, size_t n, float eps, float *y);
    void (*attention)(const struct lam_attention *a);
    /* k[d], v[d] → position `at` (0..255) of a page's parts. False if a value is out of the type's range (not finite, or beyond
     * float16); the position then holds zeros, so that what is stored is always finite. */
    bool (*kv_store)(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part);
    /* x[2n] in place: a' = a·cos − b·sin, b' = b·cos + a·sin for pairs (2i, 2i+1) if interleaved, else (i, i + n). */
    void (*rotate)(float *x, size_t n, const float *cosine, const float *sine, bool interleaved);
    /* y[i] = act(gate[i]) · up[i] */
    void (*silu_mul)(const float *gate, const float *up, size_t n, float *y);
    void (*gelu_mul)(const float *gate, const float *up, size_t n, float *y);
};

/* Every variant that this program holds, slowest first, scalar always at 0; n_variants of them. Dispatch, tests and benchmarks
 * read this list. */
struct lam_variant {
    const struct lam_kernels *kernels;
    bool (*supported)(void); /* by the CPU that we run on */
};
extern const struct lam_variant lam_variants[];
extern const size_t lam_n_variants;

/* The fastest supported variant, or the named one (name may be NULL or ""). LAM_E_ISA if it is unknown or unsupported. */
lam_code lam_kernels_pick(const char *name, const struct lam_kernels **out, lam_error *err);

#endif
