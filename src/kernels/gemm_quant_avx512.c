/* Block-quantised products with VNNI. A register holds one unit (4 columns) of 16 rows: lane = output row. Codes are taken
 * unsigned and the offset times the sum of the activations' codes is taken off in exact integers. */
#include "kernels/avx512.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define CHUNK 8      /* groups that share one look at the rows' scales; a K block */
#define UNITS 8      /* units of 4 columns in a group */
#define FEW_ROWS 4   /* rows for which a group is decoded straight into the product */
#define MANY_ROWS 12 /* from here on it pays to keep decoded chunks (measured) */
#define ROW_BLOCK 8  /* rows of activations for which a group stays in registers */

/* One group of 16 rows. */
struct group {
    __m512i w[UNITS]; /* unsigned codes */
    __m512 s, m;      /* scale and minimum as nc1's product takes them */
    __m512i sc[2];    /* K16 and K16_MIN: integer scales of the halves */
    __m512i mn;       /* K16_MIN: minima of the halves, a pair of int16 */
};

/* What a block's groups share. */
struct block {
    const uint8_t *bytes;
    __m512 d, m;
    __m512i sc[4], mn[2]; /* four groups (K32) or halves (Q3_K) a lane, one a byte */
};

/* What one row of activations brings to a chunk besides codes and scales. */
struct terms {
    int32_t start[2 * CHUNK]; /* minus offset times the sum of codes: of groups, or of halves (K16) */
    float u[CHUNK];           /* scale times sum of codes */
    int32_t pair[CHUNK];      /* the halves' sums, a pair of int16 */
};

INLINE __m512i unit(const uint8_t *bytes, size_t at) { return _mm512_loadu_si512(bytes + at); }
INLINE __m512i both(__m512i a, int mask) { return _mm512_and_si512(a, _mm512_set1_epi32(mask)); }
INLINE __m512i low_bits(__m512i a, int8_t mask) { return _mm512_and_si512(a, _mm512_set1_epi8(mask)); }
INLINE __m512i right(__m512i a, unsigned bits) { return _mm512_srli_epi32(a, bits); }

INLINE int code_offset(enum lam_dtype dtype)
{
    switch (dtype) {
    case LAM_Q4_0: return 8;
    case LAM_Q5_0: return 16;
    case LAM_Q8_0: return 128;
    case LAM_Q3_K: return 4;
    case LAM_Q6_K: return 32;
    default: return 0;
    }
}

INLINE void nibbles(const uint8_t *qs, struct group *out)
{
#pragma GCC unroll 4
    for (size_t u = 0; u < 4; u++) {
        __m512i q = unit(qs, 64 * u);
        out->w[u] = low_bits(q, 15);
        out->w[u + 4] = low_bits(right(q, 4), 15);
    }
}

/* Bit 4u + j of a lane of qh is the fifth bit of byte j of unit u. */
INLINE void fifth_bits(const uint8_t *qh, struct group *out)
{
    const __m512i byte_of_lane = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    const __m512i even = _mm512_set1_epi32(0x08040201), odd = _mm512_set1_epi32((int)0x80402010);
    const __m512i sixteen = _mm512_set1_epi8(16);
    __m512i bits = unit(qh, 0);
#pragma GCC unroll 4
    for (size_t u = 0; u < UNITS; u += 2) {
        __m512i b = _mm512_shuffle_epi8(bits, _mm512_add_epi8(byte_of_lane, _mm512_set1_epi8((char)(u / 2))));
        out->w[u] = _mm512_mask_add_epi8(out->w[u], _mm512_test_epi8_mask(b, even), out->w[u], sixteen);
        out->w[u + 1] = _mm512_mask_add_epi8(out->w[u + 1], _mm512_test_epi8_mask(b, odd), out->w[u + 1], sixteen);
    }
}

INLINE void decode_q4_0(const uint8_t *b, struct group *out)
{
    out->s = load_f16(b);
    nibbles(b + 32, out);
}

INLINE void decode_q4_1(const uint8_t *b, struct group *out)
{
    out->s = load_f16(b);
    out->m = load_f16(b + 32);
    nibbles(b + 64, out);
}

INLINE void decode_q5_0(const uint8_t *b, struct group *out)
{
    out->s = load_f16(b);
    nibbles(b + 96, out);
    fifth_bits(b + 32, out);
}

INLINE void decode_q5_1(const uint8_t *b, struct group *out)
{
    out->s = load_f16(b);
    out->m = load_f16(b + 32);
    nibbles(b + 128, out);
    fifth_bits(b + 64, out);
}

INLINE void decode_q8_0(const uint8_t *b, struct group *out)
{
    out->s = load_f16(b);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) out->w[u] = _mm512_xor_si512(unit(b, 32 + 64 * u), _mm512_set1_epi8((char)0x80));
}

/* Q4_K and Q5_K: eight 6-bit scales and minima in 12 bytes. */
INLINE void open_k32(struct block *k)
{
    __m512i a = unit(k->bytes, 64), b = unit(k->bytes, 128), c = unit(k->bytes, 192);
    k->m = load_f16(k->bytes + 32);
    k->sc[0] = low_bits(a, 63);
    k->mn[0] = low_bits(b, 63);
    k->sc[1] = _mm512_or_si512(low_bits(c, 15), low_bits(right(a, 2), 48));
    k->mn[1] = _mm512_or_si512(low_bits(right(c, 4), 15), low_bits(right(b, 2), 48));
}

INLINE void scales_k32(const struct block *k, size_t g, struct group *out)
{
    unsigned shift = 8 * (g % 4);
    out->s = _mm512_mul_ps(k->d, _mm512_cvtepi32_ps(both(right(k->sc[g / 4], shift), 255)));
    out->m = _mm512_mul_ps(k->m, _mm512_cvtepi32_ps(both(right(k->mn[g / 4], shift), 255)));
}

/* Q3_K: scale j of 16, six bits: low nibbles in bytes 0..7, top pairs in bytes 8..11. */
INLINE void open_q3_k(struct block *k)
{
    __m512i a = unit(k->bytes, 32), b = unit(k->bytes, 96), high = unit(k->bytes, 160);
    k->sc[0] = _mm512_or_si512(low_bits(a, 15), low_bits(_mm512_slli_epi32(high, 4), 48));
    k->sc[1] = _mm512_or_si512(low_bits(b, 15), low_bits(_mm512_slli_epi32(high, 2), 48));
    k->sc[2] = _mm512_or_si512(low_bits(right(a, 4), 15), low_bits(high, 48));
    k->sc[3] = _mm512_or_si512(low_bits(right(b, 4), 15), low_bits(right(high, 2), 48));
}

INLINE void decode_q2_k(const struct block *k, size_t g, struct group *out)
{
    __m512i scales = right(unit(k->bytes, 64 + 64 * (g / 2)), 16 * (g % 2));
    out->s = k->d;
    out->m = k->m;
    out->sc[0] = both(scales, 15);
    out->sc[1] = both(right(scales, 8), 15);
    out->mn = _mm512_or_si512(both(right(scales, 4), 15), both(_mm512_slli_epi32(scales, 4), 15 << 16));
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++)
        out->w[u] = low_bits(right(unit(k->bytes, 320 + 512 * (g / 4) + 64 * u), 2 * (g % 4)), 3);
}

INLINE void decode_q3_k(const struct block *k, size_t g, struct group *out)
{
    __m512i scales = right(k->sc[g / 2], 16 * (g % 2)), offset = _mm512_set1_epi32(32);
    out->s = k->d;
    out->sc[0] = _mm512_sub_epi32(both(scales, 255), offset);
    out->sc[1] = _mm512_sub_epi32(both(right(scales, 8), 255), offset);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) {
        __m512i low = right(unit(k->bytes, 736 + 512 * (g / 4) + 64 * u), 2 * (g % 4)), high = unit(k->bytes, 224 + 64 * u);
        high = g < 2 ? _mm512_slli_epi32(high, g < 2 ? 2 - g : 0) : right(high, g < 2 ? 0 : g - 2);
        out->w[u] = _mm512_or_si512(low_bits(low, 3), low_bits(high, 4));
    }
}

INLINE void decode_q4_k(const struct block *k, size_t g, struct group *out)
{
    scales_k32(k, g, out);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) out->w[u] = low_bits(right(unit(k->bytes, 256 + 512 * (g / 2) + 64 * u), 4 * (g % 2)), 15);
}

INLINE void decode_q5_k(const struct block *k, size_t g, struct group *out)
{
    scales_k32(k, g, out);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) {
        __m512i low = right(unit(k->bytes, 768 + 512 * (g / 2) + 64 * u), 4 * (g % 2)), high = unit(k->bytes, 256 + 64 * u);
        high = g < 4 ? _mm512_slli_epi32(high, g < 4 ? 4 - g : 0) : right(high, g < 4 ? 0 : g - 4);
        out->w[u] = _mm512_or_si512(low_bits(low, 15), low_bits(high, 16));
    }
}

INLINE void decode_q6_k(const struct block *k, size_t g, struct group *out)
{
    size_t part = g / 4, q = g % 4;
    __m512i scales = unit(k->bytes, 32 + 64 * (g / 2));
    out->s = k->d;
    out->sc[0] = _mm512_srai_epi32(_mm512_slli_epi32(scales, 24 - 16 * (g % 2)), 24);
    out->sc[1] = _mm512_srai_epi32(_mm512_slli_epi32(scales, 16 - 16 * (g % 2)), 24);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) {
        __m512i low = right(unit(k->bytes, 1312 + 1024 * part + 512 * (q % 2) + 64 * u), 4 * (q / 2));
        __m512i high = unit(k->bytes, 288 + 512 * part + 64 * u);
        high = q < 2 ? _mm512_slli_epi32(high, q < 2 ? 4 - 2 * q : 0) : right(high, q < 2 ? 0 : 2 * q - 4);
        out->w[u] = _mm512_or_si512(low_bits(low, 15), low_bits(high, 48));
    }
}

INLINE void open_block(enum lam_dtype dtype, const uint8_t *bytes, struct block *k)
{
    k->bytes = bytes;
    k->d = load_f16(bytes);
    if (dtype == LAM_Q4_K || dtype == LAM_Q5_K) open_k32(k);
    if (dtype == LAM_Q2_K) k->m = load_f16(bytes + 32);
    if (dtype == LAM_Q3_K) open_q3_k(k);
}

INLINE void decode(enum lam_dtype dtype, const struct block *k, size_t g, struct group *out)
{
    switch (dtype) {
    case LAM_Q4_0: decode_q4_0(k->bytes, out); break;
    case LAM_Q4_1: decode_q4_1(k->bytes, out); break;
    case LAM_Q5_0: decode_q5_0(k->bytes, out); break;
    case LAM_Q5_1: decode_q5_1(k->bytes, out); break;
    case LAM_Q8_0: decode_q8_0(k->bytes, out); break;
    case LAM_Q2_K: decode_q2_k(k, g, out); break;
    case LAM_Q3_K: decode_q3_k(k, g, out); break;
    case LAM_Q4_K: decode_q4_k(k, g, out); break;
    case LAM_Q5_K: decode_q5_k(k, g, out); break;
    case LAM_Q6_K: decode_q6_k(k, g, out); break;
    default: break;
    }
}

/* xs[n], half[n][2] of n <= CHUNK groups of one row. */
INLINE void load_terms(enum lam_form form, int offset, const float *xs, const int32_t *half, size_t n, struct terms *t)
{
    __m512i h = _mm512_maskz_loadu_epi32((__mmask16)((1u << 2 * n) - 1), half);
    __m256i codes = _mm512_cvtepi64_epi32(_mm512_add_epi32(h, _mm512_shuffle_epi32(h, _MM_PERM_CDAB)));
    if (form == LAM_FORM_SCALE)
        _mm256_storeu_si256((__m256i *)t->start, _mm256_mullo_epi32(codes, _mm256_set1_epi32(-offset)));
    else if (form == LAM_FORM_K16)
        _mm512_storeu_si512(t->start, _mm512_mullo_epi32(h, _mm512_set1_epi32(-offset)));
    else if (form == LAM_FORM_K16_MIN)
        _mm256_storeu_si256((__m256i *)t->pair, _mm512_cvtepi32_epi16(h));
    else
        _mm256_storeu_ps(t->u, _mm256_mul_ps(_mm256_maskz_loadu_ps((__mmask8)((1u << n) - 1), xs), _mm256_cvtepi32_ps(codes)));
}

INLINE __m512i dot(__m512i sum, const struct group *w, const int8_t *q, size_t from, size_t to)
{
#pragma GCC unroll 8
    for (size_t u = from; u < to; u++) sum = _mm512_dpbusd_epi32(sum, w->w[u], broadcast4(q + 4 * u));
    return sum;
}

/* acc plus group g of the chunk: the float operations of docs/numeric.md "Blocks" in their order. */
INLINE __m512 add_group(enum lam_form form, const struct group *w, const int8_t *q, float xs, const struct terms *t, size_t g,
                        __m512 acc)
{
    __m512 scale = _mm512_set1_ps(xs);
    __m512i p;
    if (form == LAM_FORM_K16 || form == LAM_FORM_K16_MIN) {
        bool shifted = form == LAM_FORM_K16;
        __m512i p0 = dot(shifted ? _mm512_set1_epi32(t->start[2 * g]) : _mm512_setzero_si512(), w, q, 0, 4);
        __m512i p1 = dot(shifted ? _mm512_set1_epi32(t->start[2 * g + 1]) : _mm512_setzero_si512(), w, q, 4, 8);
        p = _mm512_add_epi32(_mm512_mullo_epi32(p0, w->sc[0]), _mm512_mullo_epi32(p1, w->sc[1]));
    } else {
        p = dot(form == LAM_FORM_SCALE ? _mm512_set1_epi32(t->start[g]) : _mm512_setzero_si512(), w, q, 0, 8);
    }
    acc = _mm512_add_ps(acc, _mm512_mul_ps(_mm512_cvtepi32_ps(p), _mm512_mul_ps(w->s, scale)));
    if (form == LAM_FORM_SCALE_MIN) acc = _mm512_add_ps(acc, _mm512_mul_ps(w->m, _mm512_set1_ps(t->u[g])));
    if (form == LAM_FORM_K32) acc = _mm512_sub_ps(acc, _mm512_mul_ps(w->m, _mm512_set1_ps(t->u[g])));
    if (form == LAM_FORM_K16_MIN) {
        __m512i minima = _mm512_madd_epi16(w->mn, _mm512_set1_epi32(t->pair[g]));
        acc = _mm512_sub_ps(acc, _mm512_mul_ps(_mm512_mul_ps(w->m, scale), _mm512_cvtepi32_ps(minima)));
    }
    return acc;
}

/* y[n_rows, 16] += groups from .. from+n-1 of rows first .. first+n_rows-1; n_rows is a constant. */
INLINE void add_rows(enum lam_form form, int offset, const struct group *chunk, size_t from, size_t n, const struct lam_q8_rows *x,
                     size_t first, size_t n_rows, float *y, size_t y_stride)
{
    struct terms terms[ROW_BLOCK];
    __m512 acc[ROW_BLOCK];
    const int8_t *q = x->q + (first * x->groups + from) * LAM_GROUP;
    const float *xs = x->scale + first * x->groups + from;
#pragma GCC unroll 8
    for (size_t r = 0; r < n_rows; r++) {
        size_t at = (first + r) * x->groups + from;
        load_terms(form, offset, x->scale + at, x->half + 2 * at, n, &terms[r]);
        acc[r] = _mm512_loadu_ps(y + (first + r) * y_stride);
    }
    for (size_t g = 0; g < n; g++) {
        struct group w = chunk[g];
#pragma GCC unroll 8
        for (size_t r = 0; r < n_rows; r++)
            acc[r] = add_group(form, &w, q + (r * x->groups + g) * LAM_GROUP, xs[r * x->groups + g], &terms[r], g, acc[r]);
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < n_rows; r++) _mm512_storeu_ps(y + (first + r) * y_stride, acc[r]);
}

/* Decoding and product of rows first .. first+n_rows-1 (n_rows a constant, few) in one pass over the tile. */
INLINE void few_rows(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, size_t block_groups,
                     const struct lam_q8_rows *x, size_t first, size_t n_rows, float *y, size_t y_stride)
{
    const size_t group_bytes = block_bytes / block_groups, groups = x->groups;
    __m512 acc[FEW_ROWS];
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++) acc[r] = _mm512_setzero_ps();
    for (size_t from = 0; from < groups; from += CHUNK) {
        size_t n = groups - from < CHUNK ? groups - from : CHUNK;
        struct terms terms[FEW_ROWS];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) {
            size_t at = (first + r) * groups + from;
            load_terms(form, code_offset(dtype), x->scale + at, x->half + 2 * at, n, &terms[r]);
        }
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            struct block block;
            open_block(dtype, tile, &block);
#pragma GCC unroll 8
            for (size_t i = 0; i < block_groups; i++) {
                struct group w;
                prefetch(tile + i * group_bytes, group_bytes);
                decode(dtype, &block, i, &w);
#pragma GCC unroll 4
                for (size_t r = 0; r < n_rows; r++) {
                    size_t at = (first + r) * groups + from + g + i;
                    acc[r] = add_group(form, &w, x->q + at * LAM_GROUP, x->scale[at], &terms[r], g + i, acc[r]);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++) _mm512_storeu_ps(y + (first + r) * y_stride, acc[r]);
}

/* A decoded chunk with all rows. */
INLINE void add_all_rows(enum lam_form form, int offset, const struct group *chunk, size_t from, size_t n,
                         const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    size_t r = 0;
    for (; r + 8 <= x->n_rows; r += 8) add_rows(form, offset, chunk, from, n, x, r, 8, y, y_stride);
    if (r + 4 <= x->n_rows) {
        add_rows(form, offset, chunk, from, n, x, r, 4, y, y_stride);
        r += 4;
    }
    if (r + 2 <= x->n_rows) {
        add_rows(form, offset, chunk, from, n, x, r, 2, y, y_stride);
        r += 2;
    }
    if (r < x->n_rows) add_rows(form, offset, chunk, from, n, x, r, 1, y, y_stride);
}

/* The multiplication depends on the form alone, so that types share its code. */
static __attribute__((noinline)) void multiply(enum lam_form form, int offset, const struct group *chunk, size_t from, size_t n,
                                               const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    switch (form) {
    case LAM_FORM_SCALE: add_all_rows(LAM_FORM_SCALE, offset, chunk, from, n, x, y, y_stride); break;
    case LAM_FORM_SCALE_MIN: add_all_rows(LAM_FORM_SCALE_MIN, offset, chunk, from, n, x, y, y_stride); break;
    case LAM_FORM_K32: add_all_rows(LAM_FORM_K32, offset, chunk, from, n, x, y, y_stride); break;
    case LAM_FORM_K16: add_all_rows(LAM_FORM_K16, offset, chunk, from, n, x, y, y_stride); break;
    case LAM_FORM_K16_MIN: add_all_rows(LAM_FORM_K16_MIN, offset, chunk, from, n, x, y, y_stride); break;
    }
}

/* Chunk by chunk: decoded once, then multiplied with all rows. */
INLINE void many_rows(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, size_t block_groups,
                      const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    for (size_t r = 0; r < x->n_rows; r++) _mm512_storeu_ps(y + r * y_stride, _mm512_setzero_ps());
    for (size_t from = 0; from < x->groups; from += CHUNK) {
        struct group chunk[CHUNK];
        size_t n = x->groups - from < CHUNK ? x->groups - from : CHUNK;
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            struct block block;
            prefetch(tile, block_bytes);
            open_block(dtype, tile, &block);
#pragma GCC unroll 8
            for (size_t i = 0; i < block_groups; i++) decode(dtype, &block, i, &chunk[g + i]);
        }
        multiply(form, code_offset(dtype), chunk, from, n, x, y, y_stride);
    }
}

/* dtype, form and the block's shape are constants here. */
INLINE void product(enum lam_dtype dtype, enum lam_form form, size_t row_bytes, size_t block_groups, const uint8_t *tile,
                    const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    size_t block_bytes = row_bytes * LAM_TILE_ROWS, r = 0;
    if (x->n_rows >= MANY_ROWS) {
        many_rows(dtype, form, tile, block_bytes, block_groups, x, y, y_stride);
        return;
    }
    for (; r + 4 <= x->n_rows; r += 4) few_rows(dtype, form, tile, block_bytes, block_groups, x, r, 4, y, y_stride);
    if (r + 2 <= x->n_rows) {
        few_rows(dtype, form, tile, block_bytes, block_groups, x, r, 2, y, y_stride);
        r += 2;
    }
    if (r < x->n_rows) few_rows(dtype, form, tile, block_bytes, block_groups, x, r, 1, y, y_stride);
}

void lam_gemm_quant_avx512(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
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
    default: break; /* float types go to gemm_float */
    }
}
