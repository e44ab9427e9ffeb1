/* Block-quantised products in 256-bit registers: all but the inner products, which are the including file's (`dots` and
 * `q8_0_offset` below). A register holds one unit (4 columns) of 8 rows, lane = output row; a tile is worked on in two halves.
 * Codes are taken unsigned; offsets times the sum of the activations' codes are taken off in exact integers. */
#ifndef LAM_KERNELS_GEMM_QUANT_256_H
#define LAM_KERNELS_GEMM_QUANT_256_H

#include "kernels/avx2.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define CHUNK 8     /* groups that share one look at the rows' scales; a K block */
#define UNITS 8     /* units of 4 columns in a group */
#define ROW_BLOCK 4 /* rows of activations that share the registers of a group */
#define LANES 8

/* One group of 8 rows. */
struct group {
    __m256i w[UNITS]; /* unsigned codes; Q8_0: plus q8_0_offset */
    __m256 s, m;      /* scale and minimum as nc1's product takes them */
    __m256i sc[2];    /* K16 and K16_MIN: integer scale of each half, twice as int16 */
    __m256i scales;   /* K16 and K16_MIN: the same, a pair of int16 */
    __m256i shift;    /* K16: minus offset times the scales of the halves, a pair of int16 */
    __m256i mn;       /* K16_MIN: minima of the halves, a pair of int16 */
};

/* What a block's groups share, for one half of the tile. */
struct block {
    const uint8_t *bytes; /* of the whole tile's block */
    size_t half;
    __m256 d, m;
    __m256i sc[4], mn[2]; /* four groups (K32) or halves (Q3_K) a lane, one a byte */
    __m256i first_byte;   /* shuffle that spreads byte 0 of every lane over the lane */
};

/* What one row of activations brings to a chunk besides codes and scales. */
struct terms {
    int32_t start[CHUNK]; /* minus offset times the sum of codes */
    float u[CHUNK];       /* scale times sum of codes */
    int32_t pair[CHUNK];  /* the halves' sums, a pair of int16 */
};

INLINE __m256i unit(const struct block *k, size_t at)
{
    return _mm256_loadu_si256((const __m256i *)(k->bytes + at + 32 * k->half));
}

INLINE __m256 halves(const struct block *k, size_t at) { return load_f16(k->bytes + at + 16 * k->half); }
INLINE __m256i both(__m256i a, int mask) { return _mm256_and_si256(a, _mm256_set1_epi32(mask)); }
INLINE __m256i low_bits(__m256i a, int8_t mask) { return _mm256_and_si256(a, _mm256_set1_epi8(mask)); }
INLINE __m256i right(__m256i a, unsigned bits) { return _mm256_srli_epi32(a, (int)bits); }
INLINE __m256i left(__m256i a, unsigned bits) { return _mm256_slli_epi32(a, (int)bits); }

/* A pointer of which the compiler forgets what it has read there: values kept across long stretches would leave registers. */
INLINE const void *forget(const void *p)
{
    __asm__("" : "+r"(p) : : "memory");
    return p;
}

/* What the including file brings. */

/* What is added to Q8_0's codes: 0, they stay signed, or 128. */
INLINE int q8_0_offset(void);

/* The groups that a product takes, of one half of the tile or of both: i of block k, or, where that is NULL, decoded already. */
struct operand {
    const struct block *k;
    size_t i, n_halves;
    const struct group *half[2]; /* [n_halves] */
};

/* p[h * n_rows + r] += the integer products of half h of w with the codes q[r * q_stride ..]; in K16 and K16_MIN the products of
 * the group's halves times their scales. All but q are constants. */
INLINE void dots(enum lam_dtype dtype, enum lam_form form, const struct operand *w, const int8_t *q, size_t q_stride, size_t n_rows,
                 __m256i p[]);

INLINE int code_offset(enum lam_dtype dtype)
{
    switch (dtype) {
    case LAM_Q4_0: case LAM_Q4_64: return 8;
    case LAM_Q5_0: return 16;
    case LAM_Q8_0: return q8_0_offset();
    case LAM_Q3_K: return 4;
    case LAM_Q6_K: return 32;
    default: return 0;
    }
}

/* Unit u of 32 nibbles: low halves of bytes first, then the high ones. */
INLINE __m256i nibbles(const struct block *k, size_t at, size_t u)
{
    __m256i q = unit(k, at + 64 * (u % 4));
    return low_bits(u < 4 ? q : right(q, 4), 15);
}

/* 16 in byte j of unit u where bit 4u + j of the lane is set. */
INLINE __m256i fifth_bits(const struct block *k, size_t at, size_t u)
{
    __m256i byte = _mm256_add_epi8(k->first_byte, _mm256_set1_epi8((char)(u / 2)));
    __m256i bit = _mm256_set1_epi32(u % 2 ? (int)0x80402010 : 0x08040201);
    __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(unit(k, at), byte), bit), bit);
    return low_bits(set, 16);
}

INLINE __m256i shifted(__m256i a, int to_right)
{
    return to_right < 0 ? left(a, (unsigned)-to_right) : right(a, (unsigned)to_right);
}

/* Unit u of group g as struct group holds it. All but k are constants. */
INLINE __m256i codes(enum lam_dtype dtype, const struct block *k, size_t g, size_t u)
{
    const int i = (int)g, part = i / 4, q = i % 4;
    __m256i low, high;
    switch (dtype) {
    case LAM_Q4_0: return nibbles(k, 32, u);
    case LAM_Q4_1: return nibbles(k, 64, u);
    case LAM_Q5_0: return _mm256_or_si256(nibbles(k, 96, u), fifth_bits(k, 32, u));
    case LAM_Q5_1: return _mm256_or_si256(nibbles(k, 128, u), fifth_bits(k, 64, u));
    case LAM_Q8_0: return _mm256_xor_si256(unit(k, 32 + 64 * u), _mm256_set1_epi8((char)q8_0_offset()));
    case LAM_Q4_64: return nibbles(k, 64 + 256 * g, u);
    case LAM_Q2_K: return low_bits(shifted(unit(k, 320 + 512 * (size_t)part + 64 * u), 2 * q), 3);
    case LAM_Q3_K:
        low = shifted(unit(k, 736 + 512 * (size_t)part + 64 * u), 2 * q);
        high = shifted(unit(k, 224 + 64 * u), i - 2);
        return _mm256_or_si256(low_bits(low, 3), low_bits(high, 4));
    case LAM_Q4_K: return low_bits(shifted(unit(k, 256 + 512 * (g / 2) + 64 * u), 4 * (i % 2)), 15);
    case LAM_Q5_K:
        low = shifted(unit(k, 768 + 512 * (g / 2) + 64 * u), 4 * (i % 2));
        high = shifted(unit(k, 256 + 64 * u), i - 4);
        return _mm256_or_si256(low_bits(low, 15), low_bits(high, 16));
    default: /* Q6_K */
        low = shifted(unit(k, 1312 + 1024 * (size_t)part + 512 * (g % 2) + 64 * u), 4 * (q / 2));
        high = shifted(unit(k, 288 + 512 * (size_t)part + 64 * u), 2 * q - 4);
        return _mm256_or_si256(low_bits(low, 15), low_bits(high, 48));
    }
}

INLINE __m256i operand_codes(enum lam_dtype dtype, const struct operand *w, size_t half, size_t u)
{
    return w->k ? codes(dtype, w->k, w->i, u) : w->half[half]->w[u];
}

/* Q4_K and Q5_K: eight 6-bit scales and minima in 12 bytes. */
INLINE void open_k32(struct block *k)
{
    __m256i a = unit(k, 64), b = unit(k, 128), c = unit(k, 192);
    k->sc[0] = low_bits(a, 63);
    k->mn[0] = low_bits(b, 63);
    k->sc[1] = _mm256_or_si256(low_bits(c, 15), low_bits(right(a, 2), 48));
    k->mn[1] = _mm256_or_si256(low_bits(right(c, 4), 15), low_bits(right(b, 2), 48));
}

/* Q3_K: scale j of 16, six bits: low nibbles in bytes 0..7, top pairs in bytes 8..11; 32 is taken off. */
INLINE void open_q3_k(struct block *k)
{
    __m256i a = unit(k, 32), b = unit(k, 96), high = unit(k, 160), offset = _mm256_set1_epi8(32);
    k->sc[0] = _mm256_sub_epi8(_mm256_or_si256(low_bits(a, 15), low_bits(left(high, 4), 48)), offset);
    k->sc[1] = _mm256_sub_epi8(_mm256_or_si256(low_bits(b, 15), low_bits(left(high, 2), 48)), offset);
    k->sc[2] = _mm256_sub_epi8(_mm256_or_si256(low_bits(right(a, 4), 15), low_bits(high, 48)), offset);
    k->sc[3] = _mm256_sub_epi8(_mm256_or_si256(low_bits(right(b, 4), 15), low_bits(right(high, 2), 48)), offset);
}

INLINE void open_block(enum lam_dtype dtype, const uint8_t *bytes, size_t half, struct block *k)
{
    k->bytes = bytes;
    k->half = half;
    k->m = _mm256_setzero_ps();
    k->d = dtype == LAM_Q4_64 ? _mm256_castsi256_ps(unit(k, 0)) : halves(k, 0);
    k->first_byte = _mm256_broadcastsi128_si256(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    if (dtype == LAM_Q4_1 || dtype == LAM_Q5_1 || dtype == LAM_Q2_K || dtype == LAM_Q4_K || dtype == LAM_Q5_K) k->m = halves(k, 32);
    if (dtype == LAM_Q4_K || dtype == LAM_Q5_K) open_k32(k);
    if (dtype == LAM_Q3_K) open_q3_k(k);
}

/* scales: bytes 2·(g mod 2) and the next of a lane are the signed scales of the halves of group g. */
INLINE void scales_k16(const struct block *k, __m256i scales, size_t g, int offset, struct group *out)
{
    __m256i byte = _mm256_add_epi8(k->first_byte, _mm256_set1_epi8((char)(2 * (g % 2))));
    out->sc[0] = _mm256_srai_epi16(_mm256_shuffle_epi8(scales, byte), 8);
    out->sc[1] = _mm256_srai_epi16(_mm256_shuffle_epi8(scales, _mm256_add_epi8(byte, _mm256_set1_epi8(1))), 8);
    out->scales = _mm256_blend_epi16(out->sc[0], out->sc[1], 0xaa);
    out->shift = _mm256_mullo_epi16(out->scales, _mm256_set1_epi16((short)-offset));
}

/* Everything of group g but its codes. */
INLINE void load_scales(enum lam_dtype dtype, const struct block *k, size_t g, struct group *out)
{
    out->s = k->d;
    out->m = k->m;
    if (dtype == LAM_Q4_K || dtype == LAM_Q5_K) {
        unsigned shift = 8 * (g % 4);
        out->s = _mm256_mul_ps(k->d, _mm256_cvtepi32_ps(both(right(k->sc[g / 4], shift), 255)));
        out->m = _mm256_mul_ps(k->m, _mm256_cvtepi32_ps(both(right(k->mn[g / 4], shift), 255)));
    }
    if (dtype == LAM_Q3_K) scales_k16(k, k->sc[g / 2], g, 4, out);
    if (dtype == LAM_Q6_K) scales_k16(k, unit(k, 32 + 64 * (g / 2)), g, 32, out);
    if (dtype == LAM_Q2_K) {
        __m256i scales = unit(k, 64 + 64 * (g / 2)), own = right(scales, 16 * (g % 2));
        scales_k16(k, low_bits(scales, 15), g, 0, out);
        out->mn = _mm256_or_si256(both(right(own, 4), 15), both(left(own, 4), 15 << 16));
    }
}

/* xs[n], half[n][2] of n <= CHUNK groups of one row. */
INLINE void load_terms(enum lam_form form, int offset, const float *xs, const int32_t *half, size_t n, struct terms *t)
{
    for (size_t g = 0; g < n; g++) {
        int32_t codes = half[2 * g] + half[2 * g + 1];
        if (form == LAM_FORM_SCALE) t->start[g] = -offset * codes;
        if (form == LAM_FORM_SCALE_MIN || form == LAM_FORM_K32) t->u[g] = xs[g] * (float)codes;
        if (form == LAM_FORM_K16 || form == LAM_FORM_K16_MIN)
            t->pair[g] = (int32_t)(((uint32_t)half[2 * g] & 0xffff) | (uint32_t)half[2 * g + 1] << 16);
    }
}

/* acc plus group g of the chunk with its integer product p: the float operations of docs/numeric.md "Blocks" in their order. */
INLINE __m256 add_product(enum lam_form form, const struct group *w, __m256i p, float xs, const struct terms *t, size_t g,
                          __m256 acc)
{
    __m256 scale = _mm256_set1_ps(xs);
    acc = _mm256_add_ps(acc, _mm256_mul_ps(_mm256_cvtepi32_ps(p), _mm256_mul_ps(w->s, scale)));
    if (form == LAM_FORM_SCALE_MIN) acc = _mm256_add_ps(acc, _mm256_mul_ps(w->m, _mm256_set1_ps(t->u[g])));
    if (form == LAM_FORM_K32) acc = _mm256_sub_ps(acc, _mm256_mul_ps(w->m, _mm256_set1_ps(t->u[g])));
    if (form == LAM_FORM_K16_MIN) {
        __m256i minima = _mm256_madd_epi16(w->mn, _mm256_set1_epi32(t->pair[g]));
        acc = _mm256_sub_ps(acc, _mm256_mul_ps(_mm256_mul_ps(w->m, scale), _mm256_cvtepi32_ps(minima)));
    }
    return acc;
}

/* acc[h * n_rows + r] plus group g of the chunk; q and xs are the first row's, at that group. */
INLINE void add_group(enum lam_dtype dtype, enum lam_form form, const struct operand *w, const int8_t *q, const float *xs,
                      size_t groups, const struct terms *t, size_t g, size_t n_rows, __m256 acc[])
{
    __m256i p[2 * ROW_BLOCK];
#pragma GCC unroll 8
    for (size_t i = 0; i < w->n_halves * n_rows; i++) {
        size_t r = i % n_rows;
        p[i] = _mm256_setzero_si256();
        if (form == LAM_FORM_SCALE && code_offset(dtype) != 0) p[i] = _mm256_set1_epi32(t[r].start[g]);
        if (form == LAM_FORM_K16) p[i] = _mm256_madd_epi16(w->half[i / n_rows]->shift, _mm256_set1_epi32(t[r].pair[g]));
    }
    dots(dtype, form, w, q, groups * LAM_GROUP, n_rows, p);
#pragma GCC unroll 8
    for (size_t i = 0; i < w->n_halves * n_rows; i++) {
        size_t r = i % n_rows;
        acc[i] = add_product(form, w->half[i / n_rows], p[i], xs[r * groups], &t[r], g, acc[i]);
    }
}

/* y[n_rows, 16] += groups from .. from+n-1 of rows first .. first+n_rows-1; n_rows is a constant. */
INLINE void add_rows(enum lam_dtype dtype, enum lam_form form, const struct group chunk[2][CHUNK], size_t from, size_t n,
                     const struct lam_q8_rows *x, size_t first, size_t n_rows, float *y, size_t y_stride)
{
    struct terms terms[ROW_BLOCK];
    __m256 acc[2 * ROW_BLOCK];
    const int8_t *q = x->q + (first * x->groups + from) * LAM_GROUP;
    const float *xs = x->scale + first * x->groups + from;
    for (size_t r = 0; r < n_rows; r++) {
        size_t at = (first + r) * x->groups + from;
        load_terms(form, code_offset(dtype), x->scale + at, x->half + 2 * at, n, &terms[r]);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < 2 * n_rows; i++) acc[i] = _mm256_loadu_ps(y + (first + i % n_rows) * y_stride + i / n_rows * LANES);
    for (size_t g = 0; g < n; g++) {
        struct operand w = {.n_halves = 2, .half = {&chunk[0][g], &chunk[1][g]}};
        add_group(dtype, form, &w, q + g * LAM_GROUP, xs + g, x->groups, terms, g, n_rows, acc);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < 2 * n_rows; i++) _mm256_storeu_ps(y + (first + i % n_rows) * y_stride + i / n_rows * LANES, acc[i]);
}

/* Decoding and product of one row in one pass over the tile. */
INLINE void one_row(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, size_t block_groups,
                    const struct lam_q8_rows *x, float *y)
{
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (size_t from = 0; from < x->groups; from += CHUNK) {
        size_t n = x->groups - from < CHUNK ? x->groups - from : CHUNK;
        struct terms terms;
        load_terms(form, code_offset(dtype), x->scale + from, x->half + 2 * from, n, &terms);
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            prefetch(tile, block_bytes);
            for (size_t half = 0; half < 2; half++) {
                const int8_t *q = x->q + (from + g) * LAM_GROUP;
                const float *xs = x->scale + from + g;
                const struct terms *t = &terms;
                struct block block;
                if (block_groups > 1) {
                    q = forget(q);
                    xs = forget(xs);
                    t = forget(t);
                }
                open_block(dtype, tile, half, &block);
#pragma GCC unroll 8
                for (size_t i = 0; i < block_groups; i++) {
                    struct group w;
                    load_scales(dtype, &block, i, &w);
                    struct operand operand = {&block, i, 1, {&w}};
                    add_group(dtype, form, &operand, q + i * LAM_GROUP, xs + i, x->groups, t, g + i, 1, &acc[half]);
                }
            }
        }
    }
    _mm256_storeu_ps(y, acc[0]);
    _mm256_storeu_ps(y + LANES, acc[1]);
}

/* Chunk by chunk: decoded once, then multiplied with all rows. */
INLINE void many_rows(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, size_t block_groups,
                      const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    for (size_t r = 0; r < x->n_rows; r++) memset(y + r * y_stride, 0, LAM_TILE_ROWS * sizeof *y);
    for (size_t from = 0; from < x->groups; from += CHUNK) {
        struct group chunk[2][CHUNK];
        size_t n = x->groups - from < CHUNK ? x->groups - from : CHUNK, r = 0;
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            prefetch(tile, block_bytes);
            for (size_t half = 0; half < 2; half++) {
                struct block block;
                open_block(dtype, tile, half, &block);
#pragma GCC unroll 8
                for (size_t i = 0; i < block_groups; i++) {
                    load_scales(dtype, &block, i, &chunk[half][g + i]);
#pragma GCC unroll 8
                    for (size_t u = 0; u < UNITS; u++) chunk[half][g + i].w[u] = codes(dtype, &block, i, u);
                }
            }
        }
        for (; r + 4 <= x->n_rows; r += 4) add_rows(dtype, form, chunk, from, n, x, r, 4, y, y_stride);
        if (r + 2 <= x->n_rows) {
            add_rows(dtype, form, chunk, from, n, x, r, 2, y, y_stride);
            r += 2;
        }
        if (r < x->n_rows) add_rows(dtype, form, chunk, from, n, x, r, 1, y, y_stride);
    }
}

/* dtype, form and the block's shape are constants here. */
INLINE void product(enum lam_dtype dtype, enum lam_form form, size_t row_bytes, size_t block_groups, const uint8_t *tile,
                    const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    size_t block_bytes = row_bytes * LAM_TILE_ROWS;
    if (x->n_rows == 1)
        one_row(dtype, form, tile, block_bytes, block_groups, x, y);
    else
        many_rows(dtype, form, tile, block_bytes, block_groups, x, y, y_stride);
}

INLINE void gemm_quant(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    switch (dtype) {
    case LAM_Q4_0: product(LAM_Q4_0, LAM_FORM_SCALE, 18, 1, tile, x, y, y_stride); break;
    case LAM_Q4_1: product(LAM_Q4_1, LAM_FORM_SCALE_MIN, 20, 1, tile, x, y, y_stride); break;
    case LAM_Q5_0: product(LAM_Q5_0, LAM_FORM_SCALE, 22, 1, tile, x, y, y_stride); break;
    case LAM_Q5_1: product(LAM_Q5_1, LAM_FORM_SCALE_MIN, 24, 1, tile, x, y, y_stride); break;
    case LAM_Q8_0: product(LAM_Q8_0, LAM_FORM_SCALE, 34, 1, tile, x, y, y_stride); break;
    case LAM_Q2_K: product(LAM_Q2_K, LAM_FORM_K16_MIN, 84, 8, tile, x, y, y_stride); break;
    case LAM_Q3_K: product(LAM_Q3_K, LAM_FORM_K16, 110, 8, tile, x, y, y_stride); break;
    case LAM_Q4_K: product(LAM_Q4_K, LAM_FORM_K32, 144, 8, tile, x, y, y_stride); break;
    case LAM_Q5_K: product(LAM_Q5_K, LAM_FORM_K32, 176, 8, tile, x, y, y_stride); break;
    case LAM_Q6_K: product(LAM_Q6_K, LAM_FORM_K16, 210, 8, tile, x, y, y_stride); break;
    case LAM_Q4_64: product(LAM_Q4_64, LAM_FORM_SCALE, 36, 2, tile, x, y, y_stride); break;
    default: break; /* float types go to gemm_float */
    }
}

#endif
