/* Block-quantised products with Advanced SIMD. A register holds one unit (4 columns) of 4 rows, lane = output row; a tile is
 * worked on in four quarters. Codes below 64 stay unsigned, Q8_0's are signed; offsets times the sum of the activations' codes
 * are taken off in exact integers.
 *
 * What an instruction set multiplies with is dot_half, which the including file defines; product() does the rest. */
#ifndef LAM_KERNELS_GEMM_QUANT_NEON_H
#define LAM_KERNELS_GEMM_QUANT_NEON_H

#include "kernels/neon.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define CHUNK 8     /* groups that share one look at the rows' scales; a K block */
#define UNITS 8     /* units of 4 columns in a group */
#define ROW_BLOCK 4 /* rows of activations that share the registers of a group */
#define LANES 4
#define QUARTERS (LAM_TILE_ROWS / LANES)

/* p plus, in each lane, the products of its 16 bytes in w[4] with q. dtype is a constant that bounds the codes. */
INLINE int32x4_t dot_half(enum lam_dtype dtype, int32x4_t p, const uint8x16_t w[UNITS / 2], int8x16_t q);

/* One group of 4 rows. */
struct group {
    uint8x16_t w[UNITS]; /* codes; signed for Q8_0 */
    float32x4_t s, m;    /* scale and minimum as nc1's product takes them */
    int32x4_t sc[2];     /* K16 and K16_MIN: integer scale of each half */
    int32x4_t mn[2];     /* K16_MIN: minimum of each half */
};

/* What a block's groups share, for one quarter of the tile. */
struct block {
    const uint8_t *bytes; /* of the whole tile's block */
    size_t quarter;
    float32x4_t d, m;
    uint8x16_t sc[4], mn[2]; /* four groups (K32) or halves (Q3_K) a lane, one a byte */
};

/* What one row of activations brings to a chunk besides codes and scales. */
struct terms {
    int32_t start[CHUNK];    /* minus offset times the sum of codes */
    int32_t shift[CHUNK][2]; /* K16: the same for each half, before its scale */
    float u[CHUNK];          /* scale times sum of codes */
};

INLINE uint8x16_t unit(const struct block *k, size_t at) { return vld1q_u8(k->bytes + at + 16 * k->quarter); }
INLINE float32x4_t scales(const struct block *k, size_t at) { return load_f16(k->bytes + at + 8 * k->quarter); }
INLINE uint8x16_t masked(uint8x16_t a, uint8_t mask) { return vandq_u8(a, vdupq_n_u8(mask)); }

/* Every byte; the distance is a constant once loops are unrolled, and then part of the instruction. */
INLINE uint8x16_t shifted(uint8x16_t a, int to_right) { return to_right < 0 ? a << -to_right : a >> to_right; }

/* Byte i of every lane; unsigned, and with its sign. */
INLINE int32x4_t byte_of(uint8x16_t a, size_t i)
{
    uint32x4_t lanes = vreinterpretq_u32_u8(a);
    return vreinterpretq_s32_u32((lanes >> (8 * (int)i)) & 255);
}

INLINE int32x4_t signed_byte_of(uint8x16_t a, size_t i)
{
    int32x4_t lanes = vreinterpretq_s32_u8(a);
    return (lanes << (24 - 8 * (int)i)) >> 24;
}

INLINE int code_offset(enum lam_dtype dtype)
{
    switch (dtype) {
    case LAM_Q4_0: case LAM_Q4_64: return 8;
    case LAM_Q5_0: return 16;
    case LAM_Q3_K: return 4;
    case LAM_Q6_K: return 32;
    default: return 0;
    }
}

/* Unit u of 32 nibbles: low halves of bytes first, then the high ones. */
INLINE uint8x16_t nibbles(const struct block *k, size_t at, size_t u)
{
    uint8x16_t q = unit(k, at + 64 * (u % 4));
    return u < 4 ? masked(q, 15) : vshrq_n_u8(q, 4);
}

/* 16 in byte j of unit u where bit 4u + j of the lane is set. */
INLINE uint8x16_t fifth_bits(const struct block *k, size_t at, size_t u)
{
    const uint8x16_t first_byte = vreinterpretq_u8_u32((uint32x4_t){0, 0x04040404, 0x08080808, 0x0c0c0c0c});
    uint8x16_t spread = vqtbl1q_u8(unit(k, at), vaddq_u8(first_byte, vdupq_n_u8((uint8_t)(u / 2))));
    uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(u % 2 ? 0x80402010 : 0x08040201));
    return masked(vtstq_u8(spread, bit), 16);
}

/* Unit u of group g: unsigned codes, signed for Q8_0. All but k are constants. */
INLINE uint8x16_t codes(enum lam_dtype dtype, const struct block *k, size_t g, size_t u)
{
    const int i = (int)g, part = i / 4, q = i % 4;
    uint8x16_t low, high;
    switch (dtype) {
    case LAM_Q4_0: return nibbles(k, 32, u);
    case LAM_Q4_64: return nibbles(k, 64 + 256 * g, u);
    case LAM_Q4_1: return nibbles(k, 64, u);
    case LAM_Q5_0: return vorrq_u8(nibbles(k, 96, u), fifth_bits(k, 32, u));
    case LAM_Q5_1: return vorrq_u8(nibbles(k, 128, u), fifth_bits(k, 64, u));
    case LAM_Q8_0: return unit(k, 32 + 64 * u);
    case LAM_Q2_K: return masked(shifted(unit(k, 320 + 512 * (size_t)part + 64 * u), 2 * q), 3);
    case LAM_Q3_K:
        low = shifted(unit(k, 736 + 512 * (size_t)part + 64 * u), 2 * q);
        high = shifted(unit(k, 224 + 64 * u), i - 2);
        return vorrq_u8(masked(low, 3), masked(high, 4));
    case LAM_Q4_K: return masked(shifted(unit(k, 256 + 512 * (g / 2) + 64 * u), 4 * (i % 2)), 15);
    case LAM_Q5_K:
        low = shifted(unit(k, 768 + 512 * (g / 2) + 64 * u), 4 * (i % 2));
        high = shifted(unit(k, 256 + 64 * u), i - 4);
        return vorrq_u8(masked(low, 15), masked(high, 16));
    default: /* Q6_K */
        low = shifted(unit(k, 1312 + 1024 * (size_t)part + 512 * (g % 2) + 64 * u), 4 * (q / 2));
        high = shifted(unit(k, 288 + 512 * (size_t)part + 64 * u), 2 * q - 4);
        return vorrq_u8(masked(low, 15), masked(high, 48));
    }
}

/* Q4_K and Q5_K: eight 6-bit scales and minima in 12 bytes. */
INLINE void open_k32(struct block *k)
{
    uint8x16_t a = unit(k, 64), b = unit(k, 128), c = unit(k, 192);
    k->sc[0] = masked(a, 63);
    k->mn[0] = masked(b, 63);
    k->sc[1] = vorrq_u8(masked(c, 15), masked(shifted(a, 2), 48));
    k->mn[1] = vorrq_u8(shifted(c, 4), masked(shifted(b, 2), 48));
}

/* Q3_K: scale j of 16, six bits: low nibbles in bytes 0..7, top pairs in bytes 8..11; 32 is taken off. */
INLINE void open_q3_k(struct block *k)
{
    uint8x16_t a = unit(k, 32), b = unit(k, 96), high = unit(k, 160), offset = vdupq_n_u8(32);
    k->sc[0] = vsubq_u8(vorrq_u8(masked(a, 15), masked(shifted(high, -4), 48)), offset);
    k->sc[1] = vsubq_u8(vorrq_u8(masked(b, 15), masked(shifted(high, -2), 48)), offset);
    k->sc[2] = vsubq_u8(vorrq_u8(shifted(a, 4), masked(high, 48)), offset);
    k->sc[3] = vsubq_u8(vorrq_u8(shifted(b, 4), masked(shifted(high, 2), 48)), offset);
}

INLINE void open_block(enum lam_dtype dtype, const uint8_t *bytes, size_t quarter, struct block *k)
{
    k->bytes = bytes;
    k->quarter = quarter;
    k->m = vdupq_n_f32(0.0f);
    k->d = dtype == LAM_Q4_64 ? vreinterpretq_f32_u8(unit(k, 0)) : scales(k, 0);
    if (dtype == LAM_Q4_1 || dtype == LAM_Q5_1 || dtype == LAM_Q2_K || dtype == LAM_Q4_K || dtype == LAM_Q5_K) k->m = scales(k, 32);
    if (dtype == LAM_Q4_K || dtype == LAM_Q5_K) open_k32(k);
    if (dtype == LAM_Q3_K) open_q3_k(k);
}

/* Everything of group g but its codes. */
INLINE void load_scales(enum lam_dtype dtype, const struct block *k, size_t g, struct group *out)
{
    const size_t first = 2 * (g % 2); /* byte of the first half's scale */
    out->s = k->d;
    out->m = k->m;
    if (dtype == LAM_Q4_K || dtype == LAM_Q5_K) {
        out->s = vmulq_f32(k->d, vcvtq_f32_s32(byte_of(k->sc[g / 4], g % 4)));
        out->m = vmulq_f32(k->m, vcvtq_f32_s32(byte_of(k->mn[g / 4], g % 4)));
    }
    for (size_t h = 0; h < 2; h++) {
        if (dtype == LAM_Q3_K) out->sc[h] = signed_byte_of(k->sc[g / 2], first + h);
        if (dtype == LAM_Q6_K) out->sc[h] = signed_byte_of(unit(k, 32 + 64 * (g / 2)), first + h);
        if (dtype == LAM_Q2_K) {
            uint8x16_t packed = unit(k, 64 + 64 * (g / 2));
            out->sc[h] = byte_of(masked(packed, 15), first + h);
            out->mn[h] = byte_of(shifted(packed, 4), first + h);
        }
    }
}

/* xs[n], half[n][2] of n <= CHUNK groups of one row. */
INLINE void load_terms(enum lam_form form, int offset, const float *xs, const int32_t *half, size_t n, struct terms *t)
{
    for (size_t g = 0; g < n; g++) {
        int32_t sum = half[2 * g] + half[2 * g + 1];
        if (form == LAM_FORM_SCALE) t->start[g] = -offset * sum;
        if (form == LAM_FORM_SCALE_MIN || form == LAM_FORM_K32) t->u[g] = xs[g] * (float)sum;
        if (form == LAM_FORM_K16)
            for (size_t h = 0; h < 2; h++) t->shift[g][h] = -offset * half[2 * g + h];
    }
}

/* The integer product of a group with one row's codes. */
INLINE int32x4_t integer_product(enum lam_dtype dtype, enum lam_form form, const struct group *w, const int8_t *q,
                                 const struct terms *t, size_t g)
{
    const int32x4_t zero = vdupq_n_s32(0);
    const int8x16_t q0 = vld1q_s8(q), q1 = vld1q_s8(q + 16);
    if (form == LAM_FORM_K16 || form == LAM_FORM_K16_MIN) {
        bool shift = form == LAM_FORM_K16;
        int32x4_t s0 = dot_half(dtype, shift ? vdupq_n_s32(t->shift[g][0]) : zero, w->w, q0);
        int32x4_t s1 = dot_half(dtype, shift ? vdupq_n_s32(t->shift[g][1]) : zero, w->w + UNITS / 2, q1);
        return vmlaq_s32(vmulq_s32(w->sc[0], s0), w->sc[1], s1);
    }
    int32x4_t p = form == LAM_FORM_SCALE && code_offset(dtype) != 0 ? vdupq_n_s32(t->start[g]) : zero;
    return dot_half(dtype, dot_half(dtype, p, w->w, q0), w->w + UNITS / 2, q1);
}

/* acc plus group g of the chunk with its integer product p: the float operations of docs/numeric.md "Products with block-quantised
 * weights" in their order. half: the sums of the group's codes. */
INLINE float32x4_t add_product(enum lam_form form, const struct group *w, int32x4_t p, float xs, const int32_t *half,
                               const struct terms *t, size_t g, float32x4_t acc)
{
    float32x4_t scale = vdupq_n_f32(xs);
    acc = vaddq_f32(acc, vmulq_f32(vcvtq_f32_s32(p), vmulq_f32(w->s, scale)));
    if (form == LAM_FORM_SCALE_MIN) acc = vaddq_f32(acc, vmulq_f32(w->m, vdupq_n_f32(t->u[g])));
    if (form == LAM_FORM_K32) acc = vsubq_f32(acc, vmulq_f32(w->m, vdupq_n_f32(t->u[g])));
    if (form == LAM_FORM_K16_MIN) {
        int32x4_t minima = vmlaq_n_s32(vmulq_n_s32(w->mn[0], half[0]), w->mn[1], half[1]);
        acc = vsubq_f32(acc, vmulq_f32(vmulq_f32(w->m, scale), vcvtq_f32_s32(minima)));
    }
    return acc;
}

/* y[n_rows, 16] += groups from .. from+n-1 of rows first .. first+n_rows-1; n_rows is a constant. */
INLINE void add_rows(enum lam_dtype dtype, enum lam_form form, const struct group chunk[QUARTERS][CHUNK], size_t from, size_t n,
                     const struct lam_q8_rows *x, size_t first, size_t n_rows, float *y, size_t y_stride)
{
    struct terms terms[ROW_BLOCK];
    for (size_t r = 0; r < n_rows; r++) {
        size_t at = (first + r) * x->groups + from;
        load_terms(form, code_offset(dtype), x->scale + at, x->half + 2 * at, n, &terms[r]);
    }
    for (size_t quarter = 0; quarter < QUARTERS; quarter++) {
        float *out = y + first * y_stride + quarter * LANES;
        float32x4_t acc[ROW_BLOCK];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) acc[r] = vld1q_f32(out + r * y_stride);
        for (size_t g = 0; g < n; g++)
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) {
                const struct group *w = &chunk[quarter][g];
                size_t at = (first + r) * x->groups + from + g;
                int32x4_t p = integer_product(dtype, form, w, x->q + at * LAM_GROUP, &terms[r], g);
                acc[r] = add_product(form, w, p, x->scale[at], x->half + 2 * at, &terms[r], g, acc[r]);
            }
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) vst1q_f32(out + r * y_stride, acc[r]);
    }
}

/* One group of a block decoded; all but k are constants. */
INLINE void load_group(enum lam_dtype dtype, const struct block *k, size_t g, struct group *out)
{
    load_scales(dtype, k, g, out);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) out->w[u] = codes(dtype, k, g, u);
}

/* Decoding and product of one row in one pass over the tile. */
INLINE void one_row(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, size_t block_groups,
                    const struct lam_q8_rows *x, float *y)
{
    float32x4_t acc[QUARTERS];
    for (size_t quarter = 0; quarter < QUARTERS; quarter++) acc[quarter] = vdupq_n_f32(0.0f);
    for (size_t from = 0; from < x->groups; from += CHUNK) {
        size_t n = x->groups - from < CHUNK ? x->groups - from : CHUNK;
        struct terms terms;
        load_terms(form, code_offset(dtype), x->scale + from, x->half + 2 * from, n, &terms);
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            prefetch(tile, block_bytes);
            for (size_t quarter = 0; quarter < QUARTERS; quarter++) {
                struct block block;
                open_block(dtype, tile, quarter, &block);
#pragma GCC unroll 8
                for (size_t i = 0; i < block_groups; i++) {
                    size_t at = from + g + i;
                    struct group w;
                    load_group(dtype, &block, i, &w);
                    int32x4_t p = integer_product(dtype, form, &w, x->q + at * LAM_GROUP, &terms, g + i);
                    acc[quarter] = add_product(form, &w, p, x->scale[at], x->half + 2 * at, &terms, g + i, acc[quarter]);
                }
            }
        }
    }
    for (size_t quarter = 0; quarter < QUARTERS; quarter++) vst1q_f32(y + quarter * LANES, acc[quarter]);
}

/* Chunk by chunk: decoded once, then multiplied with all rows. */
INLINE void many_rows(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, size_t block_groups,
                      const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    for (size_t r = 0; r < x->n_rows; r++) memset(y + r * y_stride, 0, LAM_TILE_ROWS * sizeof *y);
    for (size_t from = 0; from < x->groups; from += CHUNK) {
        struct group chunk[QUARTERS][CHUNK];
        size_t n = x->groups - from < CHUNK ? x->groups - from : CHUNK, r = 0;
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            prefetch(tile, block_bytes);
            for (size_t quarter = 0; quarter < QUARTERS; quarter++) {
                struct block block;
                open_block(dtype, tile, quarter, &block);
#pragma GCC unroll 8
                for (size_t i = 0; i < block_groups; i++) load_group(dtype, &block, i, &chunk[quarter][g + i]);
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
INLINE void block_product(enum lam_dtype dtype, enum lam_form form, size_t row_bytes, size_t block_groups, const uint8_t *tile,
                          const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    size_t block_bytes = row_bytes * LAM_TILE_ROWS;
    if (x->n_rows == 1)
        one_row(dtype, form, tile, block_bytes, block_groups, x, y);
    else
        many_rows(dtype, form, tile, block_bytes, block_groups, x, y, y_stride);
}

/* gemm_quant of the kernel table. */
INLINE void product(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    switch (dtype) {
    case LAM_Q4_0: block_product(LAM_Q4_0, LAM_FORM_SCALE, 18, 1, tile, x, y, y_stride); break;
    case LAM_Q4_64: block_product(LAM_Q4_64, LAM_FORM_SCALE, 36, 2, tile, x, y, y_stride); break;
    case LAM_Q4_1: block_product(LAM_Q4_1, LAM_FORM_SCALE_MIN, 20, 1, tile, x, y, y_stride); break;
    case LAM_Q5_0: block_product(LAM_Q5_0, LAM_FORM_SCALE, 22, 1, tile, x, y, y_stride); break;
    case LAM_Q5_1: block_product(LAM_Q5_1, LAM_FORM_SCALE_MIN, 24, 1, tile, x, y, y_stride); break;
    case LAM_Q8_0: block_product(LAM_Q8_0, LAM_FORM_SCALE, 34, 1, tile, x, y, y_stride); break;
    case LAM_Q2_K: block_product(LAM_Q2_K, LAM_FORM_K16_MIN, 84, 8, tile, x, y, y_stride); break;
    case LAM_Q3_K: block_product(LAM_Q3_K, LAM_FORM_K16, 110, 8, tile, x, y, y_stride); break;
    case LAM_Q4_K: block_product(LAM_Q4_K, LAM_FORM_K32, 144, 8, tile, x, y, y_stride); break;
    case LAM_Q5_K: block_product(LAM_Q5_K, LAM_FORM_K32, 176, 8, tile, x, y, y_stride); break;
    case LAM_Q6_K: block_product(LAM_Q6_K, LAM_FORM_K16, 210, 8, tile, x, y, y_stride); break;
    default: break; /* float types go to gemm_float */
    }
}

#endif
