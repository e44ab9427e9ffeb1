/* Every variant of the kernel table gives the bits of the scalar definition, and the definition agrees with a brute-force
 * account of its own integers and with exact sums of decoded values. */
#include "support.h"

#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "tensor/decode.h"
#include "tensor/half.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TILE LAM_TILE_ROWS
#define MAX_ROWS 35

static const enum lam_dtype quantised[] = {LAM_Q4_0, LAM_Q4_1, LAM_Q5_0, LAM_Q5_1, LAM_Q8_0,
                                           LAM_Q2_K, LAM_Q3_K, LAM_Q4_K, LAM_Q5_K, LAM_Q6_K};
#define N_QUANTISED (sizeof quantised / sizeof *quantised)

static uint32_t below(uint64_t *rng, uint32_t n) { return (uint32_t)((test_random(rng) >> 32) * n >> 32); }

static void *grab(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

/* A finite f16: any exponent, or one extreme. */
static uint16_t random_f16(uint64_t *rng)
{
    static const uint16_t extreme[] = {0, 0x8000, 1, 0x8001, 0x3ff, 0x83ff, 0x400, 0x7bff, 0xfbff, 0x3c00, 0xbc00, 0x0200};
    if (below(rng, 4) == 0) return extreme[below(rng, sizeof extreme / sizeof *extreme)];
    uint16_t bits = (uint16_t)test_random(rng);
    return (bits & 0x7c00) == 0x7c00 ? (uint16_t)(bits & ~0x4000) : bits;
}

/* One block: random bytes, or every byte alike (all zero, all ones, all −128, …), with finite scales; mild: of one exponent, so
 * that in a long sum no block drowns the others. */
static void fill_block(const struct lam_dtype_info *info, uint64_t *rng, uint8_t *block, bool mild)
{
    static const uint8_t alike[] = {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x55, 0xaa};
    if (below(rng, 3) == 0)
        memset(block, alike[below(rng, sizeof alike)], info->block_bytes);
    else
        for (size_t i = 0; i < info->block_bytes; i += 8) {
            uint64_t bits = test_random(rng);
            memcpy(block + i, &bits, info->block_bytes - i < 8 ? info->block_bytes - i : 8);
        }
    for (size_t at = 0; at < info->fields[0].size; at += 2) { /* field 0 of a quantised block: its f16 scales */
        uint16_t bits = mild ? (uint16_t)((test_random(rng) & 0x83ff) | 0x2c00) : random_f16(rng);
        memcpy(block + info->fields[0].offset + at, &bits, 2);
    }
}

/* A row of activations: mild, wild from one element to the next, zero or tiny groups, extremes of one sign. One row in eight
 * may overflow; in half of the rows all groups have the same magnitude. */
static void fill_activations(uint64_t *rng, float *x, size_t cols)
{
    bool huge = below(rng, 8) == 0, even = below(rng, 2) == 0;
    for (size_t g = 0; g < cols; g += LAM_GROUP) {
        uint32_t kind = below(rng, even ? 2 : 8) + (even ? 6 : 0);
        float unit = even ? 127.0f : ldexpf(1.0f, (int)below(rng, 40) - 20);
        for (size_t k = g; k < cols && k < g + LAM_GROUP; k++) {
            float v = test_random_float(rng) * unit;
            switch (kind) {
            case 0: v = 0.0f; break;
            case 1: v = ldexpf(v, -110); break;                             /* below 2^-100: counts as zero */
            case 2: v = ldexpf(test_random_float(rng), -(int)below(rng, 140)); break;
            case 3: v = k % 2 ? v : v * 10000.0f; break;
            case 4: v = k % 3 ? 1.0f : -1.0f; break;                        /* codes ±127 */
            case 5: v = 1.0f; break;
            case 6: v = (float)((int)below(rng, 255) - 127) + (below(rng, 2) ? 0.5f : 0.0f); break; /* ties */
            default: break;
            }
            x[k] = v;
        }
        if (kind == 6) x[g] = 127.0f;
        if (kind == 2 && huge && below(rng, 4) == 0) x[g] = 3e38f;
    }
}

static struct lam_q8_rows quantise_rows(uint64_t *rng, size_t n_rows, size_t groups)
{
    struct lam_q8_rows rows = {grab(n_rows * groups * LAM_GROUP), grab(n_rows * groups * sizeof(float)),
                               grab(n_rows * groups * 2 * sizeof(int32_t)), n_rows, groups};
    float *x = grab(groups * LAM_GROUP * sizeof(float));
    for (size_t n = 0; n < n_rows; n++) {
        fill_activations(rng, x, groups * LAM_GROUP);
        assert_true(lam_quantise8_scalar(x, groups * LAM_GROUP, rows.q + n * groups * LAM_GROUP, rows.scale + n * groups,
                                         rows.half + n * groups * 2));
    }
    free(x);
    return rows;
}

static void free_q8(struct lam_q8_rows *rows)
{
    free(rows->q);
    free(rows->scale);
    free(rows->half);
}

/* plain[16 rows] of blocks and the tile made of them; both freed by the caller. */
static void make_tile(enum lam_dtype dtype, uint64_t *rng, size_t cols, uint8_t **plain, uint8_t **tile)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    size_t row_bytes, stride;
    assert_true(lam_dtype_row_bytes(dtype, cols, &row_bytes) && lam_tile_stride(dtype, cols, &stride));
    *plain = grab(row_bytes * TILE);
    *tile = grab(stride);
    bool mild = below(rng, 2) == 0;
    for (size_t at = 0; at < row_bytes * TILE; at += info->block_bytes) fill_block(info, rng, *plain + at, mild);
    lam_tile_rows(dtype, cols, *plain, TILE, *tile);
}

static void assert_same(const char *what, const char *variant, const char *type, size_t n_rows, size_t cols, const float *expected,
                        const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&expected[i], &got[i], 4) != 0)
            fail_msg("%s %s %s rows %zu cols %zu: element %zu is %a, scalar gives %a", what, variant, type, n_rows, cols, i,
                     (double)got[i], (double)expected[i]);
}

static size_t n_finite, n_results; /* of check_quant */

/* One product of every variant against the scalar one; y_stride is TILE + pad, and the pad must stay as it was. */
static void check_quant(enum lam_dtype dtype, uint64_t *rng, size_t n_rows, size_t groups, size_t pad)
{
    size_t cols = groups * LAM_GROUP, stride = TILE + pad, size = n_rows * stride;
    struct lam_q8_rows x = quantise_rows(rng, n_rows, groups);
    uint8_t *plain, *tile;
    make_tile(dtype, rng, cols, &plain, &tile);
    float *expected = grab(size * sizeof(float)), *got = grab(size * sizeof(float));
    for (size_t i = 0; i < size; i++) expected[i] = 7.0f;
    lam_gemm_quant_scalar(dtype, tile, &x, expected, stride);
    for (size_t i = 0; i < size; i++) n_finite += isfinite(expected[i]) != 0;
    n_results += size;
    for (size_t v = 1; v < lam_n_variants; v++) {
        if (!lam_variants[v].supported()) continue;
        for (size_t i = 0; i < size; i++) got[i] = 7.0f;
        lam_variants[v].kernels->gemm_quant(dtype, tile, &x, got, stride);
        assert_same("gemm_quant", lam_variants[v].kernels->name, lam_dtype_info(dtype)->name, n_rows, cols, expected, got, size);
    }
    free(expected);
    free(got);
    free(plain);
    free(tile);
    free_q8(&x);
}

static void test_quant_variants(void **state)
{
    (void)state;
    uint64_t rng = 1;
    for (size_t t = 0; t < N_QUANTISED; t++) {
        size_t block_groups = lam_dtype_info(quantised[t])->block_elements / LAM_GROUP;
        for (size_t n_rows = 1; n_rows <= MAX_ROWS; n_rows++)
            for (size_t blocks = 1; blocks <= (block_groups == 1 ? 19 : 4); blocks++)
                check_quant(quantised[t], &rng, n_rows, blocks * block_groups, below(&rng, 3));
    }
}

/* A million blocks of each type, one or two rows of activations. Most results are finite, or little would be compared. */
static void test_quant_many_blocks(void **state)
{
    (void)state;
    n_finite = n_results = 0;
    uint64_t rng = 2;
    for (size_t t = 0; t < N_QUANTISED; t++) {
        size_t block_groups = lam_dtype_info(quantised[t])->block_elements / LAM_GROUP;
        for (size_t done = 0; done < 1000000; done += 125 * TILE)
            check_quant(quantised[t], &rng, 1 + done / (125 * TILE) % 2, 125 * block_groups, 0);
    }
    assert_true(n_finite > n_results / 4 * 3);
}

/* The float16 scale at offset `at` of every block of a row. */
static void set_scale(const struct lam_dtype_info *info, uint8_t *row, size_t n_blocks, size_t at, uint16_t bits)
{
    for (size_t b = 0; b < n_blocks; b++) memcpy(row + b * info->block_bytes + at, &bits, 2);
}

/* With scale and minimum 1 and codes in one group alone, the product is an integer below 2^24: exactly Σ weight·code. */
static void check_integers(enum lam_dtype dtype, uint64_t *rng, bool extreme)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    size_t cols = info->block_elements, groups = cols / LAM_GROUP, at = below(rng, (uint32_t)groups);
    uint8_t *plain, *tile;
    float w[256], scale[8] = {0}, y[TILE];
    int8_t q[256] = {0};
    int32_t half[16] = {0};
    make_tile(dtype, rng, cols, &plain, &tile);
    for (size_t r = 0; r < TILE; r++)
        for (size_t f = 0; f < info->fields[0].size; f += 2)
            set_scale(info, plain + r * info->block_bytes, 1, info->fields[0].offset + f, 0x3c00);
    lam_tile_rows(dtype, cols, plain, TILE, tile);
    for (size_t k = at * LAM_GROUP; k < (at + 1) * LAM_GROUP; k++) {
        q[k] = (int8_t)(extreme ? 127 : (int)below(rng, 255) - 127);
        half[k / 16] += q[k];
    }
    scale[at] = 1.0f;
    struct lam_q8_rows x = {q, scale, half, 1, groups};
    lam_gemm_quant_scalar(dtype, tile, &x, y, TILE);
    for (size_t r = 0; r < TILE; r++) {
        int64_t sum = 0;
        lam_decode_row(dtype, plain + r * info->block_bytes, cols, w);
        for (size_t k = 0; k < cols; k++) sum += (int64_t)w[k] * q[k];
        assert_true(llabs(sum) < 1 << 24);
        if ((double)y[r] != (double)sum) fail_msg("%s: %a is not %lld", info->name, (double)y[r], (long long)sum);
    }
    free(plain);
    free(tile);
}

static void test_quant_integers(void **state)
{
    (void)state;
    uint64_t rng = 3;
    for (size_t t = 0; t < N_QUANTISED; t++)
        for (int i = 0; i < 400; i++) check_integers(quantised[t], &rng, i % 4 == 0);
}

/* Against float64 sums of decoded values. The bound: half an ulp for each rounding that a term meets (decoding 3, product 4)
 * and for each of the two additions a group makes, plus the smallest subnormal for every operation. The two parts of a value,
 * scaled weight and minimum, are told apart by decoding with the other's scale set to zero. */
static void check_sums(enum lam_dtype dtype, uint64_t *rng, size_t n_blocks)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    size_t cols = n_blocks * info->block_elements, groups = cols / LAM_GROUP, row_bytes = n_blocks * info->block_bytes;
    size_t scale_at = info->fields[0].offset;
    struct lam_q8_rows x = quantise_rows(rng, 1, groups);
    uint8_t *plain, *tile, *row = grab(row_bytes);
    float y[TILE], *scaled = grab(cols * sizeof(float)), *minima = grab(cols * sizeof(float));
    make_tile(dtype, rng, cols, &plain, &tile);
    for (size_t g = 0; g < groups; g++) x.scale[g] = fminf(x.scale[g], 1e30f); /* times any weight scale: no overflow */
    lam_gemm_quant_scalar(dtype, tile, &x, y, TILE);
    for (size_t r = 0; r < TILE; r++) {
        memset(minima, 0, cols * sizeof(float));
        memcpy(row, plain + r * row_bytes, row_bytes);
        if (info->fields[0].size == 4) {
            set_scale(info, row, n_blocks, scale_at, 0);
            lam_decode_row(dtype, row, cols, minima);
            memcpy(row, plain + r * row_bytes, row_bytes);
            set_scale(info, row, n_blocks, scale_at + 2, 0);
        }
        lam_decode_row(dtype, row, cols, scaled);
        double sum = 0.0, magnitude = 0.0;
        for (size_t k = 0; k < cols; k++) {
            double v = (double)x.scale[k / LAM_GROUP] * x.q[k];
            sum += (double)scaled[k] * v + (double)minima[k] * v;
            magnitude += fabs((double)scaled[k] * v) + fabs((double)minima[k] * v);
        }
        double bound = (double)(2 * groups + 7) * (0x1p-24 * magnitude + 0x1p-149 * 1e6);
        if (magnitude < 1e37 && !(fabs((double)y[r] - sum) <= bound))
            fail_msg("%s: %a, float64 %a, bound %g", info->name, (double)y[r], sum, bound);
    }
    free(plain);
    free(tile);
    free(row);
    free(scaled);
    free(minima);
    free_q8(&x);
}

static void test_quant_sums(void **state)
{
    (void)state;
    uint64_t rng = 4;
    for (size_t t = 0; t < N_QUANTISED; t++)
        for (size_t n = 1; n <= 40; n++) check_sums(quantised[t], &rng, n);
}

/* Finite float bytes of a tile, with every exponent or mild ones. */
static void fill_floats(enum lam_dtype dtype, uint64_t *rng, uint8_t *bytes, size_t n, bool mild)
{
    for (size_t i = 0; i < n; i++) {
        float v = mild ? test_random_float(rng) : ldexpf(test_random_float(rng), (int)below(rng, 250) - 125);
        uint32_t bits;
        memcpy(&bits, &v, 4);
        uint16_t half = dtype == LAM_BF16 ? (uint16_t)(bits >> 16) : mild ? lam_f32_to_f16(v) : random_f16(rng);
        if (dtype == LAM_F32)
            memcpy(bytes + 4 * i, &v, 4);
        else
            memcpy(bytes + 2 * i, &half, 2);
    }
}

static double decoded(enum lam_dtype dtype, const uint8_t *bytes, size_t i)
{
    float v;
    lam_decode_row(dtype, bytes + i * (dtype == LAM_F32 ? 4 : 2), 1, &v);
    return (double)v;
}

static void check_float(enum lam_dtype dtype, uint64_t *rng, size_t n_rows, size_t cols, bool mild)
{
    size_t stride, x_stride = cols + below(rng, 3), y_stride = TILE + below(rng, 3), size = n_rows * y_stride;
    assert_true(lam_tile_stride(dtype, cols, &stride));
    uint8_t *tile = grab(stride);
    float *x = grab(n_rows * x_stride * sizeof(float)), *expected = grab(size * sizeof(float)), *got = grab(size * sizeof(float));
    fill_floats(dtype, rng, tile, cols * TILE, mild);
    fill_floats(LAM_F32, rng, (uint8_t *)x, n_rows * x_stride, mild);
    for (size_t i = 0; i < size; i++) expected[i] = 7.0f;
    lam_gemm_float_scalar(dtype, tile, cols, x, x_stride, n_rows, expected, y_stride);
    for (size_t v = 1; v < lam_n_variants; v++) {
        if (!lam_variants[v].supported()) continue;
        for (size_t i = 0; i < size; i++) got[i] = 7.0f;
        lam_variants[v].kernels->gemm_float(dtype, tile, cols, x, x_stride, n_rows, got, y_stride);
        assert_same("gemm_float", lam_variants[v].kernels->name, lam_dtype_info(dtype)->name, n_rows, cols, expected, got, size);
    }
    for (size_t n = 0; mild && n < n_rows; n++)
        for (size_t r = 0; r < TILE; r++) {
            double sum = 0.0, magnitude = 0.0;
            for (size_t k = 0; k < cols; k++) {
                double term = decoded(dtype, tile, k * TILE + r) * (double)x[n * x_stride + k];
                sum += term;
                magnitude += fabs(term);
            }
            assert_true(fabs((double)expected[n * y_stride + r] - sum) <= (double)(33 + cols / 32) * 0x1p-24 * magnitude + 1e-40);
        }
    free(tile);
    free(x);
    free(expected);
    free(got);
}

static void test_float_variants(void **state)
{
    (void)state;
    static const enum lam_dtype types[] = {LAM_F32, LAM_F16, LAM_BF16};
    uint64_t rng = 5;
    for (size_t t = 0; t < 3; t++)
        for (size_t n_rows = 1; n_rows <= MAX_ROWS; n_rows++)
            for (size_t cols = 1; cols <= 300; cols += 1 + below(&rng, 12)) check_float(types[t], &rng, n_rows, cols, cols % 2);
}

static void check_q14(uint64_t *rng, size_t n_rows, size_t cols, bool extreme)
{
    size_t groups = (cols + LAM_GROUP - 1) / LAM_GROUP, first = below(rng, 3), all = first + n_rows + 1;
    size_t pairs = (cols + 1) / 2, x_groups = groups + below(rng, 2), y_stride = TILE + below(rng, 3), size = n_rows * y_stride;
    struct lam_q14_rows x = {grab(all * x_groups * LAM_GROUP * 2), grab(all * x_groups * 4), all, x_groups};
    int16_t *q = grab(pairs * TILE * 4);
    float *scale = grab(groups * TILE * 4), *expected = grab(size * 4), *got = grab(size * 4);
    struct lam_q14_tile tile = {q, scale, cols};
    for (size_t i = 0; i < all * x_groups * LAM_GROUP; i++) x.q[i] = (int16_t)(extreme ? 8191 : (int)below(rng, 16383) - 8191);
    for (size_t i = 0; i < all * x_groups; i++) x.scale[i] = fabsf(test_random_float(rng));
    for (size_t i = 0; i < groups * TILE; i++) scale[i] = ldexpf(fabsf(test_random_float(rng)), -(int)below(rng, 60));
    for (size_t p = 0; p < pairs; p++)
        for (size_t i = 0; i < TILE * 2; i++) {
            int v = extreme ? (i / 2 % 2 ? 8191 : -8191) : (int)below(rng, 16383) - 8191;
            q[p * TILE * 2 + i] = (int16_t)(2 * p + i % 2 < cols ? v : 0);
        }
    for (size_t i = 0; i < size; i++) expected[i] = 7.0f;
    lam_gemm_q14_scalar(&tile, &x, first, n_rows, expected, y_stride);
    for (size_t v = 1; v < lam_n_variants; v++) {
        if (!lam_variants[v].supported()) continue;
        for (size_t i = 0; i < size; i++) got[i] = 7.0f;
        lam_variants[v].kernels->gemm_q14(&tile, &x, first, n_rows, got, y_stride);
        assert_same("gemm_q14", lam_variants[v].kernels->name, "", n_rows, cols, expected, got, size);
    }
    for (size_t n = 0; n < n_rows; n++)
        for (size_t r = 0; r < TILE; r++) {
            double sum = 0.0, magnitude = 0.0;
            for (size_t k = 0; k < cols; k++) {
                double term = (double)q[(k / 2 * TILE + r) * 2 + k % 2] * x.q[(first + n) * x_groups * LAM_GROUP + k] *
                              (double)scale[k / 32 * TILE + r] * (double)x.scale[(first + n) * x_groups + k / 32];
                sum += term;
                magnitude += fabs(term);
            }
            assert_true(fabs((double)expected[n * y_stride + r] - sum) <= (double)(groups + 3) * 0x1p-24 * magnitude + 1e-40);
        }
    free(x.q);
    free(x.scale);
    free(q);
    free(scale);
    free(expected);
    free(got);
}

static void test_q14_variants(void **state)
{
    (void)state;
    uint64_t rng = 6;
    for (size_t n_rows = 1; n_rows <= MAX_ROWS; n_rows++)
        for (size_t cols = 1; cols <= 200; cols += 1 + below(&rng, 4)) check_q14(&rng, n_rows, cols, cols % 5 == 0);
}

/* Codes, scales, sums and verdict on one row of every variant. */
static void check_quantise(const float *x, size_t cols)
{
    enum { GROUPS = 10 };
    size_t groups = (cols + LAM_GROUP - 1) / LAM_GROUP;
    int8_t q8[2][GROUPS * LAM_GROUP] = {{0}};
    int16_t q14[2][GROUPS * LAM_GROUP] = {{0}};
    float scale[2][GROUPS] = {{0}}, scale14[2][GROUPS] = {{0}};
    int32_t half[2][GROUPS * 2] = {{0}};
    bool finite = lam_quantise8_scalar(x, cols, q8[0], scale[0], half[0]);
    assert_int_equal(lam_quantise14_scalar(x, cols, q14[0], scale14[0]), finite);
    for (size_t v = 1; v < lam_n_variants; v++) {
        const struct lam_kernels *k = lam_variants[v].kernels;
        if (!lam_variants[v].supported()) continue;
        assert_int_equal(k->quantise8(x, cols, q8[1], scale[1], half[1]), finite);
        assert_int_equal(k->quantise14(x, cols, q14[1], scale14[1]), finite);
        assert_memory_equal(q8[1], q8[0], groups * LAM_GROUP);
        assert_memory_equal(q14[1], q14[0], groups * LAM_GROUP * 2);
        assert_memory_equal(scale[1], scale[0], groups * 4);
        assert_memory_equal(scale14[1], scale14[0], groups * 4);
        assert_memory_equal(half[1], half[0], groups * 8);
    }
    for (size_t g = 0; finite && g < groups; g++) { /* the definition: nearest codes, sums of the codes */
        int sums[2] = {0, 0};
        for (size_t i = 0; i < LAM_GROUP; i++) {
            size_t k = g * LAM_GROUP + i;
            double value = k < cols ? (double)x[k] : 0.0, s = (double)scale[0][g];
            sums[i / 16] += q8[0][k];
            assert_true(fabs(value - s * q8[0][k]) <= 0.50002 * s + 0x1p-100);
            assert_true(fabs(value - (double)scale14[0][g] * q14[0][k]) <= 0.501 * (double)scale14[0][g] + 0x1p-100);
        }
        assert_int_equal(half[0][2 * g], sums[0]);
        assert_int_equal(half[0][2 * g + 1], sums[1]);
    }
}

static void test_quantise_variants(void **state)
{
    (void)state;
    uint64_t rng = 7;
    float *x = grab(320 * sizeof(float));
    for (size_t i = 0; i < 20000; i++) {
        size_t cols = 1 + below(&rng, 320);
        float *row = x + 320 - cols; /* so that a read past the end is one past the allocation */
        fill_activations(&rng, row, cols);
        if (i % 16 == 0) row[below(&rng, (uint32_t)cols)] = i % 32 ? INFINITY : -NAN;
        check_quantise(row, cols);
    }
    free(x);
}

static void test_rms_norm_variants(void **state)
{
    (void)state;
    uint64_t rng = 8;
    for (size_t n = 1; n <= 400; n++) {
        float *x = grab(n * 4), *w = grab(n * 4), *expected = grab(n * 4);
        fill_floats(LAM_F32, &rng, (uint8_t *)x, n, n % 2);
        fill_floats(LAM_F32, &rng, (uint8_t *)w, n, true);
        lam_rms_norm_scalar(x, w, n, 1e-6f, expected);
        double square = 0.0;
        for (size_t i = 0; i < n; i++) square += (double)x[i] * (double)x[i];
        for (size_t i = 0; n % 2 && i < n; i++) {
            double y = (double)x[i] / sqrt(square / (double)n + (double)1e-6f) * (double)w[i];
            assert_true(fabs((double)expected[i] - y) <= (double)(n / 32 + 10) * 0x1p-24 * fabs(y));
        }
        for (size_t v = 1; v < lam_n_variants; v++) {
            if (!lam_variants[v].supported()) continue;
            float *y = grab(n * 4);
            memcpy(y, x, n * 4);
            lam_variants[v].kernels->rms_norm(y, w, n, 1e-6f, y);
            assert_same("rms_norm", lam_variants[v].kernels->name, "", 1, n, expected, y, n);
            free(y);
        }
        free(x);
        free(w);
        free(expected);
    }
}

typedef void mul_fn(const float *gate, const float *up, size_t n, float *y);

static void check_mul(const char *what, mul_fn *scalar, mul_fn *variant, const float *gate, const float *up, size_t n)
{
    float *expected = grab(n * 4), *got = grab(n * 4);
    scalar(gate, up, n, expected);
    variant(gate, up, n, got);
    assert_same(what, "", "", 1, n, expected, got, n);
    free(expected);
    free(got);
}

static void test_gated_variants(void **state)
{
    (void)state;
    uint64_t rng = 9;
    size_t n = 1 << 20;
    float *gate = grab(n * 4), *up = grab(n * 4);
    for (size_t i = 0; i < n; i++) { /* every sign, exponent and leading fraction; then the range in which exp matters */
        uint32_t bits = (uint32_t)(i << 12 | (test_random(&rng) & 0xfff));
        float v;
        if ((bits & 0x7f800000) == 0x7f800000) bits &= ~0x40000000u;
        memcpy(&v, &bits, 4);
        gate[i] = i % 3 ? v : test_random_float(&rng) * 100.0f;
        up[i] = test_random_float(&rng);
    }
    for (size_t v = 1; v < lam_n_variants; v++) {
        const struct lam_kernels *k = lam_variants[v].kernels;
        if (!lam_variants[v].supported()) continue;
        check_mul("silu_mul", lam_silu_mul_scalar, k->silu_mul, gate, up, n);
        check_mul("gelu_mul", lam_gelu_mul_scalar, k->gelu_mul, gate, up, n);
        for (size_t m = 1; m <= 67; m++) {
            check_mul("silu_mul", lam_silu_mul_scalar, k->silu_mul, gate + n - m, up + n - m, m);
            check_mul("gelu_mul", lam_gelu_mul_scalar, k->gelu_mul, gate + n - m, up + n - m, m);
        }
    }
    free(gate);
    free(up);
}

/* softmax(scale · q·K) V in float64. */
static void attention64(const struct lam_attention *a, double *out)
{
    size_t size = a->kv_dtype == LAM_F32 ? 4 : 2;
    double total = 0.0;
    for (size_t i = 0; i < a->d; i++) out[i] = 0.0;
    for (size_t p = a->first; p <= a->last; p++) {
        const uint8_t *k = (const uint8_t *)a->k_pages[p / LAM_KV_PAGE] + (p % LAM_KV_PAGE / 16 * 16 * a->d + p % 16) * size;
        const uint8_t *v = (const uint8_t *)a->v_pages[p / LAM_KV_PAGE] + p % LAM_KV_PAGE * a->d * size;
        double s = 0.0;
        for (size_t i = 0; i < a->d; i++) s += (double)a->q[i] * (double)a->scale * decoded(a->kv_dtype, k, i * 16);
        if (a->softcap != 0.0f) s = (double)a->softcap * tanh(s / (double)a->softcap);
        total += exp(s);
        for (size_t i = 0; i < a->d; i++) out[i] += exp(s) * decoded(a->kv_dtype, v, i);
    }
    for (size_t i = 0; i < a->d; i++) out[i] /= total;
}

/* A page of n elements of magnitude up to unit. */
static void *make_page(uint64_t *rng, enum lam_dtype kv, size_t n, float unit)
{
    void *page = grab(n * 4);
    for (size_t i = 0; i < n; i++) {
        float v = test_random_float(rng) * unit;
        if (kv == LAM_F32)
            ((float *)page)[i] = v;
        else
            ((uint16_t *)page)[i] = lam_f32_to_f16(v);
    }
    return page;
}

/* K and V in pages of their own, magnitudes up to k_unit and 1. */
static void check_attention(uint64_t *rng, enum lam_dtype kv, size_t d, size_t first, size_t last, float softcap, float k_unit)
{
    size_t pages = last / LAM_KV_PAGE + 1, n = LAM_KV_PAGE * d;
    void **k = grab(pages * sizeof *k), **v = grab(pages * sizeof *v);
    float *q = grab(d * 4), *expected = grab(d * 4), *got = grab(d * 4), *scores = grab((last + 256) * 4);
    double *exact = grab(d * sizeof *exact);
    for (size_t p = 0; p < pages; p++) {
        k[p] = make_page(rng, kv, n, k_unit);
        v[p] = make_page(rng, kv, n, 1.0f);
    }
    for (size_t i = 0; i < d; i++) q[i] = test_random_float(rng);
    struct lam_attention a = {q, kv, (const void *const *)k, (const void *const *)v, d, first, last,
                              1.0f / sqrtf((float)d), softcap, scores, expected};
    lam_attention_scalar(&a);
    attention64(&a, exact);
    /* Scores are below sqrt(d)·k_unit and meet d + 3 roundings; a weight's relative error is twice a score's absolute one. */
    double bound = 2.0 * (double)(d + 3) * 0x1p-24 * sqrt((double)d) * (double)k_unit + (double)(last - first + 20) * 0x1p-23;
    for (size_t i = 0; i < d; i++) assert_true(fabs((double)expected[i] - exact[i]) <= bound);
    a.out = got;
    for (size_t i = 1; i < lam_n_variants; i++) {
        if (!lam_variants[i].supported()) continue;
        memset(scores, 0x7f, (last + 256) * 4);
        lam_variants[i].kernels->attention(&a);
        assert_same("attention", lam_variants[i].kernels->name, "", first, last, expected, got, d);
    }
    for (size_t p = 0; p < pages; p++) {
        free(k[p]);
        free(v[p]);
    }
    free(k);
    free(v);
    free(q);
    free(expected);
    free(got);
    free(scores);
    free(exact);
}

static void test_attention_variants(void **state)
{
    (void)state;
    static const size_t dims[] = {2, 6, 16, 30, 64, 72, 80, 96, 128, 136, 200, 256, 512};
    uint64_t rng = 10;
    for (size_t t = 0; t < sizeof dims / sizeof *dims; t++)
        for (int i = 0; i < 24; i++) {
            size_t last = below(&rng, i % 4 ? 90 : 800), first = i % 3 ? 0 : below(&rng, (uint32_t)last + 1);
            check_attention(&rng, i / 2 % 2 ? LAM_F32 : LAM_F16, dims[t], first, last, i % 5 == 4 ? 5.0f : 0.0f, i % 2 ? 1.0f : 60.0f);
        }
}

static void test_variants_supported(void **state)
{
    (void)state;
    assert_string_equal(lam_variants[0].kernels->name, "scalar");
    assert_true(lam_variants[0].supported());
    for (size_t v = 1; v < lam_n_variants; v++)
        if (!lam_variants[v].supported()) print_message("%s is not checked: this CPU lacks it\n", lam_variants[v].kernels->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants_supported), cmocka_unit_test(test_quant_variants),
        cmocka_unit_test(test_quant_many_blocks),  cmocka_unit_test(test_quant_integers),
        cmocka_unit_test(test_quant_sums),         cmocka_unit_test(test_float_variants),
        cmocka_unit_test(test_q14_variants),       cmocka_unit_test(test_quantise_variants),
        cmocka_unit_test(test_rms_norm_variants),  cmocka_unit_test(test_gated_variants),
        cmocka_unit_test(test_attention_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
