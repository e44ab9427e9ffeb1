/* Block-quantised products with VNNI. A register holds one unit (4 columns) of 16 rows: lane = output row. Codes are taken
 * unsigned and the offset times the sum of the activations' codes is taken off in exact integers. */
#include "kernels/avx512.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define CHUNK 8      /* groups that share one look at the rows' scales; a K block */
#define UNITS 8      /* units of 4 columns in a group */
#define FEW_ROWS 8   /* rows, at most, for which a group is decoded straight into the product */
#define MANY_ROWS 17 /* from here on it pays to keep decoded chunks (measured) */
#define ROW_BLOCK 8  /* rows of activations for which a group stays in registers */

/* One group of 16 rows. */
struct group {
    __m512i w[UNITS]; /* unsigned codes */
    __m512 s, m;      /* scale and minimum as nc1's product takes them */
    __m512i sc[2];    /* Q6_K: integer scales of the halves */
    __m512i pair;     /* Q2_K, Q3_K: the same, a pair of int16 */
    __m512i shift;    /* Q3_K: minus offset times the scales, a pair of int16 */
    __m512i mn;       /* Q2_K: minima of the halves, a pair of int16 */
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
INLINE __m512i left(__m512i a, unsigned bits) { return _mm512_slli_epi32(a, bits); }
INLINE __m512i shifted(__m512i a, int to_right) { return to_right < 0 ? left(a, (unsigned)-to_right) : right(a, (unsigned)to_right); }

/* A pointer of which the compiler forgets what it has read there: values kept from group to group would leave registers. */
INLINE const void *forget(const void *p)
{
    __asm__("" : "+r"(p) : : "memory");
    return p;
}

INLINE int code_offset(enum lam_dtype dtype)
{
    switch (dtype) {
    case LAM_Q4_0: case LAM_Q4_64: return 8;
    case LAM_Q5_0: return 16;
    case LAM_Q8_0: return 128;
    case LAM_Q3_K: return 4;
    case LAM_Q6_K: return 32;
    default: return 0;
    }
}

/* Codes below 8: the sum of a half's products fits in int16. */
INLINE bool is_narrow(enum lam_dtype dtype) { return dtype == LAM_Q2_K || dtype == LAM_Q3_K; }

/* Where a code's lowest bit lies in the bytes of group g when it is taken in place: a mask is cheaper than a shift for every unit,
 * and one shift mends the sum. */
INLINE unsigned in_place(enum lam_dtype dtype, size_t g)
{
    switch (dtype) {
    case LAM_Q2_K: return 2 * (g % 4);
    case LAM_Q3_K: return g % 4 < 3 ? 2 * (g % 4) : 0; /* 3 bits */
    case LAM_Q4_K: return 4 * (g % 2);
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

INLINE void decode_q4_64(const uint8_t *b, size_t g, struct group *out)
{
    out->s = _mm512_loadu_ps(b);
    nibbles(b + 64 + 256 * g, out);
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
    k->sc[0] = _mm512_or_si512(low_bits(a, 15), low_bits(left(high, 4), 48));
    k->sc[1] = _mm512_or_si512(low_bits(b, 15), low_bits(left(high, 2), 48));
    k->sc[2] = _mm512_or_si512(low_bits(right(a, 4), 15), low_bits(high, 48));
    k->sc[3] = _mm512_or_si512(low_bits(right(b, 4), 15), low_bits(right(high, 2), 48));
}

/* Bytes 2·(g mod 2) and the next of every lane as a pair of int16. */
INLINE __m512i byte_pair(__m512i bytes, size_t g)
{
    const int first = (int)(2 * (g % 2)), zeros = (int)0x80008000;
    __m128i lane = _mm_set_epi32(0xd000c, 0x90008, 0x50004, 0x10000);
    lane = _mm_or_si128(_mm_add_epi8(lane, _mm_set1_epi16((short)first)), _mm_set1_epi32(zeros));
    return _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(lane));
}

/* Unit u of group g of a type with sub-blocks of 16, lowest bits at bit `at` of the bytes. */
INLINE __m512i codes_k16(enum lam_dtype dtype, const struct block *k, size_t g, size_t u, unsigned at)
{
    const size_t part = g / 4, q = g % 4;
    __m512i low, high;
    switch (dtype) {
    case LAM_Q2_K:
        return low_bits(right(unit(k->bytes, 320 + 512 * part + 64 * u), 2 * q - at), (int8_t)(3 << at));
    case LAM_Q3_K:
        low = right(unit(k->bytes, 736 + 512 * part + 64 * u), 2 * q - at);
        high = shifted(unit(k->bytes, 224 + 64 * u), (int)g - (int)at - 2);
        return _mm512_or_si512(low_bits(low, (int8_t)(3 << at)), low_bits(high, (int8_t)(4 << at)));
    default: /* Q6_K */
        low = right(unit(k->bytes, 1312 + 1024 * part + 512 * (q % 2) + 64 * u), 4 * (q / 2));
        high = shifted(unit(k->bytes, 288 + 512 * part + 64 * u), 2 * (int)q - 4);
        return _mm512_or_si512(low_bits(low, 15), low_bits(high, 48));
    }
}

/* Everything of such a group but its codes. */
INLINE void scales_k16(enum lam_dtype dtype, const struct block *k, size_t g, struct group *out)
{
    __m512i scales;
    out->s = k->d;
    switch (dtype) {
    case LAM_Q2_K:
        scales = byte_pair(unit(k->bytes, 64 + 64 * (g / 2)), g);
        out->m = k->m;
        out->pair = low_bits(scales, 15);
        out->mn = _mm512_srli_epi16(scales, 4);
        break;
    case LAM_Q3_K:
        out->pair = _mm512_sub_epi16(byte_pair(k->sc[g / 2], g), _mm512_set1_epi16(32));
        out->shift = _mm512_mullo_epi16(out->pair, _mm512_set1_epi16(-4));
        break;
    default: /* Q6_K */
        scales = unit(k->bytes, 32 + 64 * (g / 2));
        out->sc[0] = _mm512_srai_epi32(left(scales, 24 - 16 * (g % 2)), 24);
        out->sc[1] = _mm512_srai_epi32(left(scales, 16 - 16 * (g % 2)), 24);
        break;
    }
}

INLINE void decode_k16(enum lam_dtype dtype, const struct block *k, size_t g, unsigned at, struct group *out)
{
    scales_k16(dtype, k, g, out);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) out->w[u] = codes_k16(dtype, k, g, u, at);
}

INLINE void decode_q4_k(const struct block *k, size_t g, unsigned at, struct group *out)
{
    scales_k32(k, g, out);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) {
        __m512i q = unit(k->bytes, 256 + 512 * (g / 2) + 64 * u);
        out->w[u] = low_bits(right(q, 4 * (g % 2) - at), (int8_t)(15 << at));
    }
}

INLINE void decode_q5_k(const struct block *k, size_t g, struct group *out)
{
    scales_k32(k, g, out);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) {
        __m512i low = right(unit(k->bytes, 768 + 512 * (g / 2) + 64 * u), 4 * (g % 2)), high = unit(k->bytes, 256 + 64 * u);
        high = shifted(high, (int)g - 4);
        out->w[u] = _mm512_or_si512(low_bits(low, 15), low_bits(high, 16));
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

/* Group g of the block; codes' lowest bits at bit `at` of their bytes. */
INLINE void decode(enum lam_dtype dtype, const struct block *k, size_t g, unsigned at, struct group *out)
{
    switch (dtype) {
    case LAM_Q4_0: decode_q4_0(k->bytes, out); break;
    case LAM_Q4_1: decode_q4_1(k->bytes, out); break;
    case LAM_Q5_0: decode_q5_0(k->bytes, out); break;
    case LAM_Q5_1: decode_q5_1(k->bytes, out); break;
    case LAM_Q8_0: decode_q8_0(k->bytes, out); break;
    case LAM_Q4_64: decode_q4_64(k->bytes, g, out); break;
    case LAM_Q4_K: decode_q4_k(k, g, at, out); break;
    case LAM_Q5_K: decode_q5_k(k, g, out); break;
    default: decode_k16(dtype, k, g, at, out); break;
    }
}

/* xs[n], half[n][2] of n <= CHUNK groups of one row. */
INLINE void load_terms(enum lam_form form, int offset, const float *xs, const int32_t *half, size_t n, struct terms *t)
{
    __m512i h = _mm512_maskz_loadu_epi32((__mmask16)((1u << 2 * n) - 1), half);
    __m256i codes = _mm512_cvtepi64_epi32(_mm512_add_epi32(h, _mm512_shuffle_epi32(h, _MM_PERM_CDAB)));
    if (form == LAM_FORM_SCALE)
        _mm256_storeu_si256((__m256i *)t->start, _mm256_mullo_epi32(codes, _mm256_set1_epi32(-offset)));
    if (form == LAM_FORM_K16)
        _mm512_storeu_si512(t->start, _mm512_mullo_epi32(h, _mm512_set1_epi32(-offset)));
    if (form == LAM_FORM_K16 || form == LAM_FORM_K16_MIN)
        _mm256_storeu_si256((__m256i *)t->pair, _mm512_cvtepi32_epi16(h));
    if (form == LAM_FORM_SCALE_MIN || form == LAM_FORM_K32)
        _mm256_storeu_ps(t->u, _mm256_mul_ps(_mm256_maskz_loadu_ps((__mmask8)((1u << n) - 1), xs), _mm256_cvtepi32_ps(codes)));
}

INLINE __m512i dot(__m512i sum, const struct group *w, const int8_t *q, size_t from, size_t to)
{
#pragma GCC unroll 8
    for (size_t u = from; u < to; u++) sum = _mm512_dpbusd_epi32(sum, w->w[u], broadcast4(q + 4 * u));
    return sum;
}

/* What the sum of half h of a K16 or K16_MIN group begins with. */
INLINE __m512i half_start(enum lam_form form, bool narrow, const struct terms *t, size_t g, size_t h)
{
    return form == LAM_FORM_K16 && !narrow ? _mm512_set1_epi32(t->start[2 * g + h]) : _mm512_setzero_si512();
}

/* The halves' sums times their scales; codes' lowest bits at bit `at`. */
INLINE __m512i scaled_halves(enum lam_form form, bool narrow, const struct group *w, __m512i sum0, __m512i sum1,
                             const struct terms *t, size_t g, unsigned at)
{
    if (!narrow) return _mm512_add_epi32(_mm512_mullo_epi32(sum0, w->sc[0]), _mm512_mullo_epi32(sum1, w->sc[1]));
    __m512i sums = _mm512_mask_mov_epi16(_mm512_srai_epi32(sum0, at), 0xaaaaaaaa, left(sum1, 16 - at));
    if (form == LAM_FORM_K16_MIN) return _mm512_madd_epi16(sums, w->pair);
    return _mm512_dpwssd_epi32(_mm512_madd_epi16(w->shift, _mm512_set1_epi32(t->pair[g])), sums, w->pair);
}

/* The integer product of a group. */
INLINE __m512i group_product(enum lam_form form, bool narrow, const struct group *w, const int8_t *q, const struct terms *t, size_t g,
                             unsigned at)
{
    if (form == LAM_FORM_SCALE) return dot(_mm512_set1_epi32(t->start[g]), w, q, 0, 8);
    if (form == LAM_FORM_SCALE_MIN || form == LAM_FORM_K32) return _mm512_srai_epi32(dot(_mm512_setzero_si512(), w, q, 0, 8), at);
    __m512i sum0 = dot(half_start(form, narrow, t, g, 0), w, q, 0, 4), sum1 = dot(half_start(form, narrow, t, g, 1), w, q, 4, 8);
    return scaled_halves(form, narrow, w, sum0, sum1, t, g, at);
}

/* acc plus group g of the chunk with its integer product p: the float operations of docs/numeric.md "Blocks" in their order. */
INLINE __m512 add_product(enum lam_form form, const struct group *w, __m512i p, float xs, const struct terms *t, size_t g, __m512 acc)
{
    __m512 scale = _mm512_set1_ps(xs);
    acc = _mm512_add_ps(acc, _mm512_mul_ps(_mm512_cvtepi32_ps(p), _mm512_mul_ps(w->s, scale)));
    if (form == LAM_FORM_SCALE_MIN) acc = _mm512_add_ps(acc, _mm512_mul_ps(w->m, _mm512_set1_ps(t->u[g])));
    if (form == LAM_FORM_K32) acc = _mm512_sub_ps(acc, _mm512_mul_ps(w->m, _mm512_set1_ps(t->u[g])));
    if (form == LAM_FORM_K16_MIN) {
        __m512i minima = _mm512_madd_epi16(w->mn, _mm512_set1_epi32(t->pair[g]));
        acc = _mm512_sub_ps(acc, _mm512_mul_ps(_mm512_mul_ps(w->m, scale), _mm512_cvtepi32_ps(minima)));
    }
    return acc;
}

INLINE __m512 add_group(enum lam_form form, bool narrow, const struct group *w, const int8_t *q, float xs, const struct terms *t,
                        size_t g, unsigned at, __m512 acc)
{
    return add_product(form, w, group_product(form, narrow, w, q, t, g, at), xs, t, g, acc);
}

/* y[n_rows, 16] += groups from .. from+n-1 of rows first .. first+n_rows-1; n_rows is a constant. */
INLINE void add_rows(enum lam_form form, bool narrow, int offset, const struct group *chunk, size_t from, size_t n, const struct lam_q8_rows *x,
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
            acc[r] = add_group(form, narrow, &w, q + (r * x->groups + g) * LAM_GROUP, xs[r * x->groups + g], &terms[r], g, 0, acc[r]);
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
#pragma GCC unroll 8
    for (size_t r = 0; r < n_rows; r++) acc[r] = _mm512_setzero_ps();
    for (size_t from = 0; from < groups; from += CHUNK) {
        size_t n = groups - from < CHUNK ? groups - from : CHUNK;
        struct terms terms[FEW_ROWS];
#pragma GCC unroll 8
        for (size_t r = 0; r < n_rows; r++) {
            size_t at = (first + r) * groups + from;
            load_terms(form, code_offset(dtype), x->scale + at, x->half + 2 * at, n, &terms[r]);
        }
        for (size_t g = 0; g < n; g += block_groups, tile += block_bytes) {
            struct block block;
            open_block(dtype, tile, &block);
#pragma GCC unroll 8
            for (size_t i = 0; i < block_groups; i++) {
                const struct terms *t = dtype == LAM_Q6_K ? terms : forget(terms); /* measured */
                struct group w;
                if (i % 2 == 0) prefetch(tile + i * group_bytes, block_groups == 1 ? group_bytes : 2 * group_bytes);
                decode(dtype, &block, i, in_place(dtype, i), &w);
#pragma GCC unroll 8
                for (size_t r = 0; r < n_rows; r++) {
                    size_t at = (first + r) * groups + from + g + i;
                    acc[r] = add_group(form, is_narrow(dtype), &w, x->q + at * LAM_GROUP, x->scale[at], &t[r], g + i,
                                       in_place(dtype, i), acc[r]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < n_rows; r++) _mm512_storeu_ps(y + (first + r) * y_stride, acc[r]);
}

/* One row and a narrow type: four groups together, so that the bytes that they share are read once. */
INLINE void one_row_narrow(enum lam_dtype dtype, enum lam_form form, const uint8_t *tile, size_t block_bytes, const struct lam_q8_rows *x,
                           float *y)
{
    __m512 acc = _mm512_setzero_ps();
    for (size_t from = 0; from < x->groups; from += CHUNK, tile += block_bytes) {
        struct terms terms;
        struct block block;
        load_terms(form, code_offset(dtype), x->scale + from, x->half + 2 * from, CHUNK, &terms);
        open_block(dtype, tile, &block);
#pragma GCC unroll 2
        for (size_t part = 0; part < CHUNK; part += 4) {
            const int8_t *q = x->q + (from + part) * LAM_GROUP;
            const struct terms *t = forget(&terms);
            __m512i sums[4][2];
            prefetch(tile + part / 4 * (block_bytes / 2), block_bytes / 2);
#pragma GCC unroll 8
            for (size_t u = 0; u < UNITS; u++) {
#pragma GCC unroll 4
                for (size_t i = 0; i < 4; i++) {
                    if (u % 4 == 0) sums[i][u / 4] = half_start(form, true, t, part + i, u / 4);
                    __m512i codes = codes_k16(dtype, &block, part + i, u, in_place(dtype, i));
                    sums[i][u / 4] = _mm512_dpbusd_epi32(sums[i][u / 4], codes, broadcast4(q + i * LAM_GROUP + 4 * u));
                }
            }
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++) {
                struct group w;
                scales_k16(dtype, &block, part + i, &w);
                __m512i p = scaled_halves(form, true, &w, sums[i][0], sums[i][1], t, part + i, in_place(dtype, i));
                acc = add_product(form, &w, p, x->scale[from + part + i], t, part + i, acc);
            }
        }
    }
    _mm512_storeu_ps(y, acc);
}

/* A decoded chunk with all rows. */
INLINE void add_all_rows(enum lam_form form, bool narrow, int offset, const struct group *chunk, size_t from, size_t n,
                         const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    size_t r = 0;
    for (; r + 8 <= x->n_rows; r += 8) add_rows(form, narrow, offset, chunk, from, n, x, r, 8, y, y_stride);
    if (r + 4 <= x->n_rows) {
        add_rows(form, narrow, offset, chunk, from, n, x, r, 4, y, y_stride);
        r += 4;
    }
    if (r + 2 <= x->n_rows) {
        add_rows(form, narrow, offset, chunk, from, n, x, r, 2, y, y_stride);
        r += 2;
    }
    if (r < x->n_rows) add_rows(form, narrow, offset, chunk, from, n, x, r, 1, y, y_stride);
}

/* The multiplication depends on the form alone, so that types share its code. */
static __attribute__((noinline)) void multiply(enum lam_form form, bool narrow, int offset, const struct group *chunk, size_t from, size_t n,
                                               const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    switch (form) {
    case LAM_FORM_SCALE: add_all_rows(LAM_FORM_SCALE, false, offset, chunk, from, n, x, y, y_stride); break;
    case LAM_FORM_SCALE_MIN: add_all_rows(LAM_FORM_SCALE_MIN, false, offset, chunk, from, n, x, y, y_stride); break;
    case LAM_FORM_K32: add_all_rows(LAM_FORM_K32, false, offset, chunk, from, n, x, y, y_stride); break;
    case LAM_FORM_K16:
        if (narrow) add_all_rows(LAM_FORM_K16, true, offset, chunk, from, n, x, y, y_stride);
        else add_all_rows(LAM_FORM_K16, false, offset, chunk, from, n, x, y, y_stride);
        break;
    case LAM_FORM_K16_MIN: add_all_rows(LAM_FORM_K16_MIN, true, offset, chunk, from, n, x, y, y_stride); break;
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
            for (size_t i = 0; i < block_groups; i++) decode(dtype, &block, i, 0, &chunk[g + i]);
        }
        multiply(form, is_narrow(dtype), code_offset(dtype), chunk, from, n, x, y, y_stride);
    }
}

/* dtype, form and the block's shape are constants here. */
INLINE void product(enum lam_dtype dtype, enum lam_form form, size_t row_bytes, size_t block_groups, const uint8_t *tile,
                    const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    size_t block_bytes = row_bytes * LAM_TILE_ROWS, r = 0;
    if (x->n_rows == 1 && is_narrow(dtype)) {
        one_row_narrow(dtype, form, tile, block_bytes, x, y);
        return;
    }
    if (x->n_rows >= (in_place(dtype, 1) != 0 ? ROW_BLOCK : MANY_ROWS)) { /* codes taken in place cost a shift a row */
        many_rows(dtype, form, tile, block_bytes, block_groups, x, y, y_stride);
        return;
    }
    if (r + 8 <= x->n_rows) {
        few_rows(dtype, form, tile, block_bytes, block_groups, x, r, 8, y, y_stride);
        r += 8;
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
    case LAM_Q4_64: product(LAM_Q4_64, LAM_FORM_SCALE, 36, 2, tile, x, y, y_stride); break;
    default: break; /* float types go to gemm_float */
    }
}
