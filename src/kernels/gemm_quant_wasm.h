/* Block-quantised products in WebAssembly. A register holds one unit (4 columns) of 4 rows, lane = output row; a tile is worked on
 * in four quarters. Codes are taken unsigned but for Q8_0's; offsets times the sum of the activations' codes are taken off in exact
 * integers. Loops over units stay loops: unrolled, V8 runs out of registers and the product takes twice the time.
 *
 * How codes are multiplied the including file defines: prepare, pack, one_row_dots and row_block_dots. product() does the rest. */
#ifndef LAM_KERNELS_GEMM_QUANT_WASM_H
#define LAM_KERNELS_GEMM_QUANT_WASM_H

#include "kernels/simd128.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define CHUNK 8     /* groups that share one look at the rows' scales; a K block */
#define UNITS 8     /* units of 4 columns in a group */
#define HALF_UNITS 4
#define ROW_BLOCK 4 /* rows of activations that share a group's codes */
#define LANES 4
#define QUARTERS 4
#define PAIR 2      /* quarters whose sums stay in registers for ROW_BLOCK rows */

/* A block of the whole tile. */
struct block {
    const uint8_t *bytes;
    v128_t d[QUARTERS], m[QUARTERS]; /* of a K block, whose groups share them */
};

/* Everything of one group of 4 rows but its codes. */
struct scales {
    v128_t s, m;  /* scale and minimum as nc1's product takes them */
    v128_t sc[2]; /* K16 and K16_MIN: integer scale of each half */
    v128_t mn;    /* K16_MIN: minima of the halves, a pair of int16 */
};

/* What one row of activations brings to a chunk besides codes and scales. */
struct terms {
    int32_t start[CHUNK][2]; /* minus offset times the sum of codes: of the group in [0], or of each half (K16) */
    float u[CHUNK];          /* scale times sum of codes */
    int32_t pair[CHUNK];     /* the halves' sums, a pair of int16 */
};

/* A group's codes of the tile, and the codes of one row's chunk, in the form in which row_block_dots takes them: one plane or two. */
struct packed {
    v128_t w[2][UNITS][QUARTERS];
};
struct row {
    int32_t q[2][CHUNK * UNITS];
    int32_t rest[CHUNK]; /* belongs to the sum of a group in any case */
};

INLINE void prepare(enum lam_dtype dtype, const int8_t *q, size_t n_groups, struct row *out);
INLINE void pack(enum lam_dtype dtype, const struct block *k, size_t g, struct packed *out);
/* p[quarter] += Σ codes·q over units from .. to-1 of group g of block k; q is the group's. */
INLINE void one_row_dots(enum lam_dtype dtype, const struct block *k, size_t g, size_t from, size_t to, const int8_t *q,
                         v128_t p[QUARTERS]);
/* p[row][i] += the same for quarters first + i and n_rows rows, at group g of their chunk. */
INLINE void row_block_dots(enum lam_dtype dtype, const struct packed *w, size_t first, size_t g, size_t from, size_t to,
                           const struct row *rows, size_t n_rows, v128_t p[ROW_BLOCK][PAIR]);

INLINE v128_t unit(const struct block *k, size_t at, size_t quarter) { return wasm_v128_load(k->bytes + at + 16 * quarter); }
INLINE v128_t masked(v128_t a, int32_t mask) { return wasm_v128_and(a, wasm_i32x4_splat(mask)); }
INLINE v128_t low_bits(v128_t a, int8_t mask) { return wasm_v128_and(a, wasm_i8x16_splat(mask)); }

INLINE v128_t shifted(v128_t a, int to_right)
{
    if (to_right == 0) return a;
    return to_right < 0 ? wasm_i32x4_shl(a, (uint32_t)-to_right) : wasm_u32x4_shr(a, (uint32_t)to_right);
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

/* Bytes hold the codes of units u and u + 4. */
INLINE bool nibble_pairs(enum lam_dtype dtype)
{
    return dtype == LAM_Q4_0 || dtype == LAM_Q4_1 || dtype == LAM_Q5_0 || dtype == LAM_Q5_1 || dtype == LAM_Q4_64;
}

INLINE v128_t nibbles(const struct block *k, size_t at, size_t u, size_t quarter, bool high)
{
    v128_t q = unit(k, at + 64 * u, quarter);
    return low_bits(high ? wasm_u32x4_shr(q, 4) : q, 15);
}

/* 16 in byte j of unit u (+ 4 if high) where bit 4u + j of the lane is set. */
INLINE v128_t fifth_bits(const struct block *k, size_t at, size_t u, size_t quarter, bool high)
{
    const v128_t first_byte = wasm_i8x16_const(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    v128_t byte = wasm_i8x16_add(first_byte, wasm_i8x16_splat((int8_t)(u / 2 + (high ? 2 : 0))));
    v128_t bit = wasm_i32x4_splat(u % 2 ? (int32_t)0x80402010 : 0x08040201);
    return low_bits(wasm_i8x16_eq(wasm_v128_and(wasm_i8x16_swizzle(unit(k, at, quarter), byte), bit), bit), 16);
}

/* Unit u of group g: codes of 4 rows. u is below 4 where bytes hold pairs, and high then takes the other. All but k, u and
 * high are constants. */
INLINE v128_t codes(enum lam_dtype dtype, const struct block *k, size_t g, size_t u, size_t quarter, bool high)
{
    const int i = (int)g, part = i / 4, q = i % 4;
    v128_t a, b;
    switch (dtype) {
    case LAM_Q4_0: return nibbles(k, 32, u, quarter, high);
    case LAM_Q4_64: return nibbles(k, 64 + 256 * g, u, quarter, high);
    case LAM_Q4_1: return nibbles(k, 64, u, quarter, high);
    case LAM_Q5_0: return wasm_v128_or(nibbles(k, 96, u, quarter, high), fifth_bits(k, 32, u, quarter, high));
    case LAM_Q5_1: return wasm_v128_or(nibbles(k, 128, u, quarter, high), fifth_bits(k, 64, u, quarter, high));
    case LAM_Q8_0: return unit(k, 32 + 64 * u, quarter);
    case LAM_Q2_K: return low_bits(shifted(unit(k, 320 + 512 * (size_t)part + 64 * u, quarter), 2 * q), 3);
    case LAM_Q3_K:
        a = shifted(unit(k, 736 + 512 * (size_t)part + 64 * u, quarter), 2 * q);
        b = shifted(unit(k, 224 + 64 * u, quarter), i - 2);
        return wasm_v128_or(low_bits(a, 3), low_bits(b, 4));
    case LAM_Q4_K: return low_bits(shifted(unit(k, 256 + 512 * (g / 2) + 64 * u, quarter), 4 * (i % 2)), 15);
    case LAM_Q5_K:
        a = shifted(unit(k, 768 + 512 * (g / 2) + 64 * u, quarter), 4 * (i % 2));
        b = shifted(unit(k, 256 + 64 * u, quarter), i - 4);
        return wasm_v128_or(low_bits(a, 15), low_bits(b, 16));
    default: /* Q6_K */
        a = shifted(unit(k, 1312 + 1024 * (size_t)part + 512 * (g % 2) + 64 * u, quarter), 4 * (q / 2));
        b = shifted(unit(k, 288 + 512 * (size_t)part + 64 * u, quarter), 2 * q - 4);
        return wasm_v128_or(low_bits(a, 15), low_bits(b, 48));
    }
}

INLINE bool has_minimum(enum lam_dtype dtype)
{
    return dtype == LAM_Q4_1 || dtype == LAM_Q5_1 || dtype == LAM_Q2_K || dtype == LAM_Q4_K || dtype == LAM_Q5_K;
}

INLINE v128_t block_scale(enum lam_dtype dtype, const uint8_t *bytes, size_t quarter)
{
    return dtype == LAM_Q4_64 ? wasm_v128_load(bytes + 16 * quarter) : load_f16(bytes + 8 * quarter);
}

INLINE v128_t block_minimum(enum lam_dtype dtype, const uint8_t *bytes, size_t quarter)
{
    return has_minimum(dtype) ? load_f16(bytes + 32 + 8 * quarter) : wasm_f32x4_splat(0.0f);
}

INLINE void open_block(enum lam_dtype dtype, const uint8_t *bytes, size_t block_groups, struct block *k)
{
    k->bytes = bytes;
#pragma clang loop unroll(full)
    for (size_t c = 0; c < (block_groups == 8 ? QUARTERS : 0); c++) {
        k->d[c] = block_scale(dtype, bytes, c);
        k->m[c] = block_minimum(dtype, bytes, c);
    }
}

/* Q4_K and Q5_K: scale and minimum, six bits each, of group g in 12 bytes, times the block's. */
INLINE void scales_k32(const struct block *k, size_t g, size_t quarter, struct scales *out)
{
    v128_t a = unit(k, 64, quarter), b = unit(k, 128, quarter), sc, mn;
    const int at = 8 * (int)(g % 4);
    if (g < 4) {
        sc = masked(shifted(a, at), 63);
        mn = masked(shifted(b, at), 63);
    } else {
        v128_t c = unit(k, 192, quarter);
        sc = wasm_v128_or(masked(shifted(c, at), 15), masked(shifted(a, at + 2), 48));
        mn = wasm_v128_or(masked(shifted(c, at + 4), 15), masked(shifted(b, at + 2), 48));
    }
    out->s = wasm_f32x4_mul(out->s, wasm_f32x4_convert_i32x4(sc));
    out->m = wasm_f32x4_mul(out->m, wasm_f32x4_convert_i32x4(mn));
}

/* Q3_K: scale j of 16, six bits less 32: low nibbles in bytes 0..7, top pairs in bytes 8..11. */
INLINE v128_t scale_q3_k(const struct block *k, int j, size_t quarter)
{
    v128_t low = unit(k, j / 4 % 2 ? 96 : 32, quarter), high = unit(k, 160, quarter);
    low = masked(shifted(low, 8 * (j % 4) + 4 * (j / 8)), 15);
    high = masked(shifted(high, 8 * (j % 4) + 2 * (j / 4) - 4), 48);
    return wasm_i32x4_sub(wasm_v128_or(low, high), wasm_i32x4_splat(32));
}

/* Everything of group g but its codes; all but k is constant. */
INLINE void load_scales(enum lam_dtype dtype, const struct block *k, size_t block_groups, size_t g, size_t quarter,
                        struct scales *out)
{
    const int byte = 2 * (int)(g % 2);
    out->s = block_groups == 8 ? k->d[quarter] : block_scale(dtype, k->bytes, quarter);
    out->m = block_groups == 8 ? k->m[quarter] : block_minimum(dtype, k->bytes, quarter);
    out->sc[0] = out->sc[1] = out->mn = wasm_i32x4_splat(0);
    if (dtype == LAM_Q4_K || dtype == LAM_Q5_K) scales_k32(k, g, quarter, out);
#pragma clang loop unroll(full)
    for (int h = 0; h < 2; h++) {
        if (dtype == LAM_Q3_K) out->sc[h] = scale_q3_k(k, 2 * (int)g + h, quarter);
        if (dtype == LAM_Q6_K) {
            v128_t packed = unit(k, 32 + 64 * (g / 2), quarter);
            out->sc[h] = wasm_i32x4_shr(wasm_i32x4_shl(packed, (uint32_t)(24 - 8 * (byte + h))), 24);
        }
        if (dtype == LAM_Q2_K) out->sc[h] = masked(shifted(unit(k, 64 + 64 * (g / 2), quarter), 8 * (byte + h)), 15);
    }
    if (dtype == LAM_Q2_K) {
        v128_t own = shifted(unit(k, 64 + 64 * (g / 2), quarter), 8 * byte);
        out->mn = wasm_v128_or(masked(shifted(own, 4), 15), masked(shifted(own, -4), 15 << 16));
    }
}

/* xs[n], half[n][2] of n <= CHUNK groups of one row. */
INLINE void load_terms(enum lam_form form, int offset, const float *xs, const int32_t *half, size_t n, struct terms *t)
{
    for (size_t g = 0; g < n; g++) {
        int32_t low = half[2 * g], high = half[2 * g + 1];
        if (form == LAM_FORM_SCALE) t->start[g][0] = -offset * (low + high);
        if (form == LAM_FORM_K16) {
            t->start[g][0] = -offset * low;
            t->start[g][1] = -offset * high;
        }
        if (form == LAM_FORM_SCALE_MIN || form == LAM_FORM_K32) t->u[g] = xs[g] * (float)(low + high);
        if (form == LAM_FORM_K16_MIN) t->pair[g] = (int32_t)(((uint32_t)low & 0xffff) | (uint32_t)high << 16);
    }
}

/* What the sums of group g, or of its half h, start with. */
INLINE v128_t start(enum lam_dtype dtype, enum lam_form form, const struct terms *t, size_t g, size_t h)
{
    bool offset = code_offset(dtype) != 0 && (form == LAM_FORM_SCALE || form == LAM_FORM_K16);
    return wasm_i32x4_splat(offset ? t->start[g][h] : 0);
}

/* acc plus group g of the chunk with its integer product p: the float operations of docs/numeric.md "Blocks" in their order. */
INLINE v128_t add_product(enum lam_form form, const struct scales *w, v128_t p, float xs, const struct terms *t, size_t g, v128_t acc)
{
    v128_t scale = wasm_f32x4_splat(xs);
    acc = wasm_f32x4_add(acc, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(p), wasm_f32x4_mul(w->s, scale)));
    if (form == LAM_FORM_SCALE_MIN) acc = wasm_f32x4_add(acc, wasm_f32x4_mul(w->m, wasm_f32x4_splat(t->u[g])));
    if (form == LAM_FORM_K32) acc = wasm_f32x4_sub(acc, wasm_f32x4_mul(w->m, wasm_f32x4_splat(t->u[g])));
    if (form == LAM_FORM_K16_MIN) {
        v128_t minima = wasm_i32x4_dot_i16x8(w->mn, wasm_i32x4_splat(t->pair[g]));
        acc = wasm_f32x4_sub(acc, wasm_f32x4_mul(wasm_f32x4_mul(w->m, scale), wasm_f32x4_convert_i32x4(minima)));
    }
    return acc;
}

/* y[16] plus group i of block k, which is group g of the chunk. The sums live in memory: kept in registers they, or scales that are
 * read too early, would drive those of the loop over units out of them. */
INLINE void add_group(enum lam_dtype dtype, enum lam_form form, const struct block *k, size_t block_groups, size_t i, const int8_t *q,
                      float xs, const struct terms *t, size_t g, float *y)
{
    const bool halves = form == LAM_FORM_K16 || form == LAM_FORM_K16_MIN;
    v128_t p[QUARTERS], second[QUARTERS];
#pragma clang loop unroll(full)
    for (size_t c = 0; c < QUARTERS; c++) {
        p[c] = start(dtype, form, t, g, 0);
        second[c] = halves ? start(dtype, form, t, g, 1) : p[c];
    }
    one_row_dots(dtype, k, i, 0, halves ? HALF_UNITS : UNITS, q, p);
    if (halves) one_row_dots(dtype, k, i, HALF_UNITS, UNITS, q, second);
#pragma clang loop unroll(full)
    for (size_t c = 0; c < QUARTERS; c++) {
        struct scales w;
        load_scales(dtype, k, block_groups, i, c, &w);
        if (halves) p[c] = wasm_i32x4_add(wasm_i32x4_mul(p[c], w.sc[0]), wasm_i32x4_mul(second[c], w.sc[1]));
        wasm_v128_store(y + c * LANES, add_product(form, &w, p[c], xs, t, g, wasm_v128_load(y + c * LANES)));
    }
}

/* Decoding and product of one row in one pass over the tile. */
INLINE void one_row(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, size_t block_groups,
                    const struct lam_q8_rows *x, float *y)
{
    memset(y, 0, LAM_TILE_ROWS * sizeof *y);
    for (size_t from = 0; from < x->groups; from += CHUNK) {
        size_t n = x->groups - from < CHUNK ? x->groups - from : CHUNK;
        struct terms terms;
        load_terms(form, code_offset(dtype), x->scale + from, x->half + 2 * from, n, &terms);
#pragma clang loop unroll(disable)
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            struct block block;
            open_block(dtype, tile, block_groups, &block);
#pragma clang loop unroll(full)
            for (size_t i = 0; i < block_groups; i++)
                add_group(dtype, form, &block, block_groups, i, x->q + (from + g + i) * LAM_GROUP, x->scale[from + g + i], &terms, g + i, y);
        }
    }
}

/* A chunk of the tile. */
struct chunk {
    struct packed codes[CHUNK];
    struct scales scales[CHUNK][QUARTERS];
};

/* acc[row][i] plus group g of the chunk for quarters first + i; xs is the first row's, at that group. */
INLINE void add_group_to_rows(enum lam_dtype dtype, enum lam_form form, const struct chunk *chunk, size_t first, size_t g,
                              const struct row *rows, const struct terms *t, const float *xs, size_t groups, size_t n_rows,
                              v128_t acc[ROW_BLOCK][PAIR])
{
    const bool halves = form == LAM_FORM_K16 || form == LAM_FORM_K16_MIN;
    v128_t p[ROW_BLOCK][PAIR], sum[ROW_BLOCK][PAIR];
#pragma clang loop unroll(full)
    for (size_t h = 0; h < (halves ? 2 : 1); h++) {
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++) sum[r][0] = sum[r][1] = start(dtype, form, &t[r], g, h);
        row_block_dots(dtype, &chunk->codes[g], first, g, h * HALF_UNITS, halves ? (h + 1) * HALF_UNITS : UNITS, rows, n_rows, sum);
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
            for (size_t i = 0; i < PAIR; i++) {
                v128_t scaled = halves ? wasm_i32x4_mul(sum[r][i], chunk->scales[g][first + i].sc[h]) : sum[r][i];
                p[r][i] = h == 0 ? scaled : wasm_i32x4_add(p[r][i], scaled);
            }
    }
#pragma clang loop unroll(full)
    for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
        for (size_t i = 0; i < PAIR; i++)
            acc[r][i] = add_product(form, &chunk->scales[g][first + i], p[r][i], xs[r * groups], &t[r], g, acc[r][i]);
}

/* y[n_rows, 16] += groups from .. from+n-1 of rows at .. at+n_rows-1; n_rows is a constant. */
INLINE void add_rows(enum lam_dtype dtype, enum lam_form form, const struct chunk *chunk, size_t from, size_t n,
                     const struct lam_q8_rows *x, size_t at, size_t n_rows, float *y, size_t y_stride)
{
    struct terms terms[ROW_BLOCK];
    struct row rows[ROW_BLOCK];
    for (size_t r = 0; r < n_rows; r++) {
        size_t here = (at + r) * x->groups + from;
        load_terms(form, code_offset(dtype), x->scale + here, x->half + 2 * here, n, &terms[r]);
        prepare(dtype, x->q + here * LAM_GROUP, n, &rows[r]);
    }
#pragma clang loop unroll(disable)
    for (size_t first = 0; first < QUARTERS; first += PAIR) {
        float *out = y + at * y_stride + first * LANES;
        v128_t acc[ROW_BLOCK][PAIR];
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
            for (size_t i = 0; i < PAIR; i++) acc[r][i] = wasm_v128_load(out + r * y_stride + i * LANES);
#pragma clang loop unroll(disable)
        for (size_t g = 0; g < n; g++)
            add_group_to_rows(dtype, form, chunk, first, g, rows, terms, x->scale + at * x->groups + from + g, x->groups, n_rows, acc);
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
            for (size_t i = 0; i < PAIR; i++) wasm_v128_store(out + r * y_stride + i * LANES, acc[r][i]);
    }
}

/* Chunk by chunk: decoded once, then multiplied with all rows. */
INLINE void many_rows(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, size_t block_groups,
                      const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    for (size_t r = 0; r < x->n_rows; r++) memset(y + r * y_stride, 0, LAM_TILE_ROWS * sizeof *y);
    for (size_t from = 0; from < x->groups; from += CHUNK) {
        struct chunk chunk;
        size_t n = x->groups - from < CHUNK ? x->groups - from : CHUNK, r = 0;
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            struct block block;
            open_block(dtype, tile, block_groups, &block);
#pragma clang loop unroll(full)
            for (size_t i = 0; i < block_groups; i++) {
                for (size_t c = 0; c < QUARTERS; c++) load_scales(dtype, &block, block_groups, i, c, &chunk.scales[g + i][c]);
                pack(dtype, &block, i, &chunk.codes[g + i]);
            }
        }
        for (; r + 4 <= x->n_rows; r += 4) add_rows(dtype, form, &chunk, from, n, x, r, 4, y, y_stride);
        if (r + 2 <= x->n_rows) {
            add_rows(dtype, form, &chunk, from, n, x, r, 2, y, y_stride);
            r += 2;
        }
        if (r < x->n_rows) add_rows(dtype, form, &chunk, from, n, x, r, 1, y, y_stride);
    }
}

/* dtype, form and the block's shape are constants here. */
INLINE void shaped(enum lam_dtype dtype, enum lam_form form, size_t row_bytes, size_t block_groups, const uint8_t *tile,
                   const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    size_t block_bytes = row_bytes * LAM_TILE_ROWS;
    if (x->n_rows == 1)
        one_row(dtype, form, tile, block_bytes, block_groups, x, y);
    else
        many_rows(dtype, form, tile, block_bytes, block_groups, x, y, y_stride);
}

/* A function for each type: V8 optimises a function that is found to be hot, and a run waits less for one type than for all. */
#define SEPARATE static __attribute__((noinline))

SEPARATE void q4_0(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q4_0, LAM_FORM_SCALE, 18, 1, tile, x, y, y_stride);
}

SEPARATE void q4_1(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q4_1, LAM_FORM_SCALE_MIN, 20, 1, tile, x, y, y_stride);
}

SEPARATE void q5_0(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q5_0, LAM_FORM_SCALE, 22, 1, tile, x, y, y_stride);
}

SEPARATE void q5_1(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q5_1, LAM_FORM_SCALE_MIN, 24, 1, tile, x, y, y_stride);
}

SEPARATE void q8_0(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q8_0, LAM_FORM_SCALE, 34, 1, tile, x, y, y_stride);
}

SEPARATE void q2_k(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q2_K, LAM_FORM_K16_MIN, 84, 8, tile, x, y, y_stride);
}

SEPARATE void q3_k(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q3_K, LAM_FORM_K16, 110, 8, tile, x, y, y_stride);
}

SEPARATE void q4_k(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q4_K, LAM_FORM_K32, 144, 8, tile, x, y, y_stride);
}

SEPARATE void q5_k(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q5_K, LAM_FORM_K32, 176, 8, tile, x, y, y_stride);
}

SEPARATE void q6_k(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q6_K, LAM_FORM_K16, 210, 8, tile, x, y, y_stride);
}

SEPARATE void q4_64(const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    shaped(LAM_Q4_64, LAM_FORM_SCALE, 36, 2, tile, x, y, y_stride);
}

INLINE void product(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    switch (dtype) {
    case LAM_Q4_0: q4_0(tile, x, y, y_stride); break;
    case LAM_Q4_1: q4_1(tile, x, y, y_stride); break;
    case LAM_Q5_0: q5_0(tile, x, y, y_stride); break;
    case LAM_Q5_1: q5_1(tile, x, y, y_stride); break;
    case LAM_Q8_0: q8_0(tile, x, y, y_stride); break;
    case LAM_Q2_K: q2_k(tile, x, y, y_stride); break;
    case LAM_Q3_K: q3_k(tile, x, y, y_stride); break;
    case LAM_Q4_K: q4_k(tile, x, y, y_stride); break;
    case LAM_Q5_K: q5_k(tile, x, y, y_stride); break;
    case LAM_Q6_K: q6_k(tile, x, y, y_stride); break;
    case LAM_Q4_64: q4_64(tile, x, y, y_stride); break;
    default: break; /* float types go to gemm_float */
    }
}

#endif
