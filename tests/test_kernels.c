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

static const enum lam_dtype quantised[] = {LAM_Q4_0, LAM_Q4_1, LAM_Q5_0, LAM_Q5_1, LAM_Q8_0, LAM_Q4_64,
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

/* A finite float32: one of float16's extremes, one of any exponent, or, mostly, one that leaves a product finite. */
static uint32_t random_f32(uint64_t *rng)
{
    uint32_t bits = (uint32_t)test_random(rng);
    if (below(rng, 4) == 0) {
        float v = lam_f16_to_f32(random_f16(rng));
        memcpy(&bits, &v, 4);
    } else if (below(rng, 1000) != 0) {
        bits = (bits & 0x807fffff) | below(rng, 127 + 30) << 23;
    }
    return (bits & 0x7f800000) == 0x7f800000 ? bits & ~0x40000000u : bits;
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
    const struct lam_field *scales = &info->fields[0]; /* of float16, or one float32 */
    for (size_t at = 0; at < scales->size; at += scales->unit) {
        uint16_t half = mild ? (uint16_t)((test_random(rng) & 0x83ff) | 0x2c00) : random_f16(rng);
        uint32_t bits = mild ? (uint32_t)((test_random(rng) & 0x807fffff) | 0x3d800000) : random_f32(rng);
        memcpy(block + scales->offset + at, scales->unit == 4 ? (void *)&bits : (void *)&half, scales->unit);
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

/* Blocks of each type that test_quant_many_blocks compares. A block counts once, whatever number of rows and variants meet it. */
static size_t n_blocks_wanted(void)
{
    const char *given = getenv("LAMINA_KERNEL_BLOCKS");
    return given ? strtoull(given, NULL, 10) : 300000;
}

/* Many blocks of each type, with any number of rows and any length; every other product has one row. Most results are finite, or
 * little would be compared. */
static void test_quant_many_blocks(void **state)
{
    (void)state;
    uint64_t rng = 2;
    for (size_t t = 0; t < N_QUANTISED; t++) {
        const struct lam_dtype_info *info = lam_dtype_info(quantised[t]);
        size_t done = 0, n_products = 0;
        n_finite = n_results = 0;
        for (; done < n_blocks_wanted(); n_products++) {
            size_t n_rows = n_products % 2 ? 1 : 1 + n_products / 2 % MAX_ROWS, blocks = 1 + below(&rng, 100);
            check_quant(quantised[t], &rng, n_rows, blocks * info->block_elements / LAM_GROUP, below(&rng, 3));
            done += blocks * TILE;
        }
        assert_true(n_finite > n_results / 4 * 3);
        if (getenv("LAMINA_KERNEL_BLOCKS"))
            print_message("%s: %zu blocks in %zu products, %zu results equal in every variant\n", info->name, done, n_products, n_results);
    }
}

/* Scale i (of the block's first field) of every block of a row: 1 or 0. */
static void set_scale(const struct lam_dtype_info *info, uint8_t *row, size_t n_blocks, size_t i, bool one)
{
    const uint16_t half = one ? 0x3c00 : 0;
    const float whole = one ? 1.0f : 0.0f;
    const struct lam_field *scales = &info->fields[0];
    for (size_t b = 0; b < n_blocks; b++)
        memcpy(row + b * info->block_bytes + scales->offset + i * scales->unit, scales->unit == 4 ? (const void *)&whole : &half,
               scales->unit);
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
        for (size_t i = 0; i < info->fields[0].size / info->fields[0].unit; i++)
            set_scale(info, plain + r * info->block_bytes, 1, i, true);
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
    struct lam_q8_rows x = quantise_rows(rng, 1, groups);
    uint8_t *plain, *tile, *row = grab(row_bytes);
    float y[TILE], *scaled = grab(cols * sizeof(float)), *minima = grab(cols * sizeof(float));
    make_tile(dtype, rng, cols, &plain, &tile);
    for (size_t g = 0; g < groups; g++) x.scale[g] = fminf(x.scale[g], 1e30f); /* times any weight scale: no overflow */
    lam_gemm_quant_scalar(dtype, tile, &x, y, TILE);
    for (size_t r = 0; r < TILE; r++) {
        memset(minima, 0, cols * sizeof(float));
        memcpy(row, plain + r * row_bytes, row_bytes);
        if (info->fields[0].size > info->fields[0].unit) {
            set_scale(info, row, n_blocks, 0, false);
            lam_decode_row(dtype, row, cols, minima);
            memcpy(row, plain + r * row_bytes, row_bytes);
            set_scale(info, row, n_blocks, 1, false);
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
    size_t groups = (cols + LAM_GROUP - 1) / LAM_GROUP, first = below(rng, 3), all = first + n_rows + 1, n_tiles = 1 + below(rng, 3);
    size_t x_groups = groups + below(rng, 2), y_stride = n_tiles * TILE + below(rng, 3), size = n_rows * y_stride;
    size_t bytes = lam_q14_tile_bytes(cols);
    struct lam_q14_rows x = {grab(all * x_groups * LAM_GROUP * 2), grab(all * x_groups * 4), all, x_groups};
    uint8_t *tiles = grab(n_tiles * bytes);
    double *exact = grab(n_tiles * TILE * cols * sizeof *exact); /* code times scale */
    float *before = grab(size * 4), *expected = grab(size * 4), *got = grab(size * 4);
    for (size_t i = 0; i < all * x_groups * LAM_GROUP; i++) x.q[i] = (int16_t)(extreme ? 8191 : (int)below(rng, 16383) - 8191);
    for (size_t i = 0; i < all * x_groups; i++) x.scale[i] = fabsf(test_random_float(rng));
    for (size_t i = 0; i < size; i++) before[i] = test_random_float(rng);
    memset(tiles, 0, n_tiles * bytes);
    for (size_t t = 0; t < n_tiles; t++)
        for (size_t r = 0; r < TILE; r++)
            for (size_t g = 0; g < groups; g++) { /* 32 columns: 64 bytes of scales, 16 pairs of 64 bytes */
                uint8_t *group = tiles + t * bytes + g * (64 + 16 * 64);
                float scale = ldexpf(fabsf(test_random_float(rng)), -(int)below(rng, 60));
                memcpy(group + 4 * r, &scale, 4);
                for (size_t k = 0; k < LAM_GROUP && g * LAM_GROUP + k < cols; k++) {
                    int16_t v = (int16_t)(extreme ? (r % 2 ? 8191 : -8191) : (int)below(rng, 16383) - 8191);
                    memcpy(group + 64 + k / 2 * 64 + 4 * r + k % 2 * 2, &v, 2);
                    exact[(t * TILE + r) * cols + g * LAM_GROUP + k] = (double)v * (double)scale;
                }
            }
    struct lam_q14_tiles factor = {tiles, cols, n_tiles};
    memcpy(expected, before, size * 4);
    lam_add_q14_scalar(&factor, &x, first, n_rows, expected, y_stride);
    for (size_t v = 1; v < lam_n_variants; v++) {
        if (!lam_variants[v].supported()) continue;
        memcpy(got, before, size * 4);
        lam_variants[v].kernels->add_q14(&factor, &x, first, n_rows, got, y_stride);
        assert_same("add_q14", lam_variants[v].kernels->name, "", n_rows, cols, expected, got, size);
    }
    for (size_t n = 0; n < n_rows; n++)
        for (size_t r = 0; r < n_tiles * TILE; r++) {
            double sum = (double)before[n * y_stride + r], magnitude = fabs(sum);
            for (size_t k = 0; k < cols; k++) {
                double term = exact[r * cols + k] * x.q[(first + n) * x_groups * LAM_GROUP + k] *
                              (double)x.scale[(first + n) * x_groups + k / 32];
                sum += term;
                magnitude += fabs(term);
            }
            assert_true(fabs((double)expected[n * y_stride + r] - sum) <= (double)(groups + 4) * 0x1p-24 * magnitude + 1e-40);
        }
    free(x.q);
    free(x.scale);
    free(tiles);
    free(exact);
    free(before);
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

static const char *const kv_names[] = {"f16", "f32", "i8"};

/* Pages of one KV head, filled by the scalar kv_store. */
struct pages {
    enum lam_kv_type type;
    size_t d, n;
    void **k, **v;
};

static struct pages make_pages(uint64_t *rng, enum lam_kv_type type, size_t d, size_t n_positions, float k_unit)
{
    struct pages out = {type, d, (n_positions + LAM_KV_PAGE - 1) / LAM_KV_PAGE, NULL, NULL};
    float *k = grab(d * 4), *v = grab(d * 4);
    out.k = grab(out.n * sizeof *out.k);
    out.v = grab(out.n * sizeof *out.v);
    for (size_t p = 0; p < out.n; p++) { /* what nobody stored is NaN or -1 */
        out.k[p] = grab(lam_kv_k_bytes(type, d));
        out.v[p] = grab(lam_kv_v_bytes(type, d));
        memset(out.k[p], 0xff, lam_kv_k_bytes(type, d));
        memset(out.v[p], 0xff, lam_kv_v_bytes(type, d));
    }
    for (size_t p = 0; p < n_positions; p++) {
        float v_unit = below(rng, 8) ? 1.0f : ldexpf(1.0f, -(int)below(rng, 130));
        for (size_t i = 0; i < d; i++) {
            k[i] = test_random_float(rng) * k_unit;
            v[i] = test_random_float(rng) * v_unit;
        }
        assert_true(lam_kv_store_scalar(type, d, k, v, p % LAM_KV_PAGE, out.k[p / LAM_KV_PAGE], out.v[p / LAM_KV_PAGE]));
    }
    free(k);
    free(v);
    return out;
}

static void free_pages(struct pages *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->k[i]);
        free(p->v[i]);
    }
    free(p->k);
    free(p->v);
}

static double half_or_float(enum lam_kv_type type, const void *part, size_t i)
{
    return type == LAM_KV_F32 ? (double)((const float *)part)[i] : (double)lam_f16_to_f32(((const uint16_t *)part)[i]);
}

static double stored_k(const struct pages *pages, size_t position, size_t i)
{
    size_t d = pages->d, d4 = (d + 3) / 4 * 4, in = position % LAM_KV_PAGE, tile = in / 16, lane = in % 16;
    const void *part = pages->k[position / LAM_KV_PAGE];
    if (pages->type != LAM_KV_I8) return half_or_float(pages->type, part, tile * 16 * d + i * 16 + lane);
    const float *scale = (const float *)(const void *)((const char *)part + LAM_KV_PAGE * d4);
    return (double)((const int8_t *)part)[tile * 16 * d4 + i / 4 * 64 + lane * 4 + i % 4] *
           (double)scale[(tile * ((d + 31) / 32) + i / 32) * 16 + lane];
}

static double stored_v(const struct pages *pages, size_t position, size_t i)
{
    size_t d = pages->d, in = position % LAM_KV_PAGE;
    const void *part = pages->v[position / LAM_KV_PAGE];
    if (pages->type != LAM_KV_I8) return half_or_float(pages->type, part, in * d + i);
    const float *scale = (const float *)(const void *)((const char *)part + LAM_KV_PAGE * d);
    return (double)((const int8_t *)part)[in / 2 * 2 * d + i * 2 + in % 2] * (double)scale[in];
}

/* softmax(scale · q·K) V of one query in float64 on what is stored, and how far from it nc1 may be: a score meets d + 3 roundings, with
 * I8 also half a step of q's codes for every dimension; a weight's relative error is twice a score's absolute one; with I8 each page's
 * weight is rounded to 1/32767 of the page's largest term. */
static void check_query(const struct lam_attention *a, const struct pages *pages, const struct lam_query *query)
{
    size_t d = a->d, n = query->last - query->first + 1;
    double *s = grab(n * sizeof *s), total = 0.0, out[512] = {0}, error = 0.0, largest_v = 0.0, top = -1e300;
    for (size_t p = 0; p < n; p++) {
        double sum = 0.0, magnitude = 0.0, steps = 0.0;
        for (size_t i = 0; i < d; i++) {
            double k = stored_k(pages, query->first + p, i), amax = 0.0;
            sum += (double)query->q[i] * (double)a->scale * k;
            magnitude += fabs((double)query->q[i] * (double)a->scale * k);
            for (size_t j = i / 32 * 32; a->kv == LAM_KV_I8 && j < d && j < i / 32 * 32 + 32; j++)
                amax = fmax(amax, fabs((double)query->q[j] * (double)a->scale));
            steps += amax / 254.0 * fabs(k);
        }
        s[p] = a->softcap != 0.0f ? (double)a->softcap * tanh(sum / (double)a->softcap) : sum;
        error = fmax(error, steps + (double)(d + 3) * 0x1p-24 * magnitude);
        top = fmax(top, s[p]);
    }
    for (size_t p = 0; p < n; p++) {
        double w = exp(s[p] - top);
        total += w;
        for (size_t i = 0; i < d; i++) {
            double v = stored_v(pages, query->first + p, i);
            largest_v = fmax(largest_v, fabs(v));
            out[i] += w * v;
        }
    }
    double bound = largest_v * (exp(2.0 * error) - 1.0 + (double)(n + 20) * 0x1p-23 + exp(-64.0) * (double)n);
    if (a->kv == LAM_KV_I8) bound += largest_v * 1.01 * (double)n / 65534.0;
    for (size_t i = 0; i < d; i++)
        if (!(fabs((double)query->out[i] - out[i] / total) <= bound + 1e-24))
            fail_msg("attention %s d %zu: %a, float64 %a, bound %g", kv_names[a->kv], d, (double)query->out[i], out[i] / total, bound);
    free(s);
}

/* n queries over one KV head: the scalar definition against float64; every variant against it, all queries at once and each alone. */
static void check_attention(uint64_t *rng, enum lam_kv_type kv, size_t d, size_t n, size_t last, bool window, float softcap, float k_unit)
{
    struct pages pages = make_pages(rng, kv, d, last + 1, k_unit);
    float *q = grab(n * d * 4), *expected = grab(n * d * 4), *got = grab(n * d * 4);
    size_t stride = last + 256, size = n * stride * 4;
    struct lam_attention a = {.kv = kv, .k_pages = (const void *const *)pages.k, .v_pages = (const void *const *)pages.v, .d = d,
                              .scale = 1.0f / sqrtf((float)d), .softcap = softcap, .n = n, .scores = grab(size),
                              .scores_stride = stride};
    for (size_t i = 0; i < n * d; i++) q[i] = test_random_float(rng);
    for (size_t i = 0; i < n; i++) {
        size_t end = i == 0 ? last : below(rng, (uint32_t)last + 1);
        if (below(rng, 2)) end = last - (end < 8 && end < last ? end : 0); /* as rows of one prompt */
        a.query[i] = (struct lam_query){q + i * d, window ? below(rng, (uint32_t)end + 1) : 0, end, expected + i * d};
    }
    lam_attention_scalar(&a);
    for (size_t i = 0; i < n; i++) check_query(&a, &pages, &a.query[i]);
    for (size_t i = 0; i < n; i++) a.query[i].out = got + i * d;
    for (size_t v = 0; v < lam_n_variants; v++) {
        const struct lam_kernels *kernels = lam_variants[v].kernels;
        if (!lam_variants[v].supported()) continue;
        memset(a.scores, 0x7f, size);
        kernels->attention(&a);
        assert_same("attention", kernels->name, kv_names[kv], n, d, expected, got, n * d);
        for (size_t i = 0; i < n; i++) {
            struct lam_attention one = a;
            one.n = 1;
            one.query[0] = a.query[i];
            memset(got + i * d, 0x7f, d * 4);
            kernels->attention(&one);
        }
        assert_same("attention alone", kernels->name, kv_names[kv], n, d, expected, got, n * d);
    }
    free_pages(&pages);
    free(a.scores);
    free(q);
    free(expected);
    free(got);
}

static void test_attention_variants(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 2, 6, 7, 16, 30, 33, 64, 72, 80, 96, 127, 128, 136, 200, 256, 512};
    uint64_t rng = 10;
    for (size_t t = 0; t < sizeof dims / sizeof *dims; t++)
        for (int i = 0; i < 24; i++) {
            size_t last = below(&rng, i % 4 ? 90 : 800), n = 1 + below(&rng, LAM_ATTENTION_QUERIES);
            check_attention(&rng, (enum lam_kv_type)(i % 3), dims[t], n, last, i / 3 % 2, i % 5 == 4 ? 5.0f : 0.0f, i / 6 % 2 ? 1.0f : 60.0f);
        }
}

/* A query that is not finite gives no number, and harms no other of the call. */
static void test_attention_not_finite(void **state)
{
    (void)state;
    uint64_t rng = 12;
    float q[2][40], out[2][40], alone[40], scores[2 * 512];
    for (int kv = 0; kv < 3; kv++) {
        struct pages pages = make_pages(&rng, (enum lam_kv_type)kv, 40, 50, 1.0f);
        for (size_t i = 0; i < 80; i++) q[i / 40][i % 40] = test_random_float(&rng);
        q[0][37] = INFINITY;
        struct lam_attention a = {.kv = (enum lam_kv_type)kv, .k_pages = (const void *const *)pages.k,
                                  .v_pages = (const void *const *)pages.v, .d = 40, .scale = 1.0f, .n = 1,
                                  .query = {{q[1], 0, 49, alone}}, .scores = scores, .scores_stride = 512};
        lam_attention_scalar(&a);
        for (size_t v = 0; v < lam_n_variants; v++) {
            if (!lam_variants[v].supported()) continue;
            a.n = 2;
            a.query[0] = (struct lam_query){q[0], 0, 49, out[0]};
            a.query[1] = (struct lam_query){q[1], 0, 49, out[1]};
            lam_variants[v].kernels->attention(&a);
            assert_true(isnan(out[0][0]));
            assert_memory_equal(out[1], alone, sizeof alone);
        }
        free_pages(&pages);
    }
}

/* Every variant stores the scalar definition's bytes; one value in some rows is out of range, and then zeros are stored. */
static void check_store(uint64_t *rng, enum lam_kv_type type, size_t d)
{
    size_t k_bytes = lam_kv_k_bytes(type, d), v_bytes = lam_kv_v_bytes(type, d), at = below(rng, LAM_KV_PAGE);
    uint8_t *want[2] = {grab(k_bytes), grab(v_bytes)}, *got[2] = {grab(k_bytes), grab(v_bytes)};
    float *x[2] = {grab(d * 4), grab(d * 4)};
    static const float ends[] = {65519.9f, 65520.0f, -65520.0f, 3e38f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0.0f, 0x1p-25f, 0x1.8p-24f};
    for (int part = 0; part < 2; part++) {
        int exponent = below(rng, 6) ? (int)below(rng, 30) - 15 : -(int)below(rng, 140);
        for (size_t i = 0; i < d; i++) x[part][i] = ldexpf(test_random_float(rng), exponent - (int)below(rng, 4));
        if (below(rng, 3) == 0) x[part][below(rng, (uint32_t)d)] = ends[below(rng, sizeof ends / sizeof *ends)];
    }
    bool fits = true;
    for (size_t i = 0; i < 2 * d; i++) {
        float v = x[i / d][i % d];
        fits &= isfinite(v) && (type != LAM_KV_F16 || (lam_f32_to_f16(v) & 0x7c00) != 0x7c00);
    }
    memset(want[0], 0x55, k_bytes);
    memset(want[1], 0x55, v_bytes);
    assert_int_equal(lam_kv_store_scalar(type, d, x[0], x[1], at, want[0], want[1]), fits);
    for (size_t v = 1; v < lam_n_variants; v++) {
        if (!lam_variants[v].supported()) continue;
        memset(got[0], 0x55, k_bytes);
        memset(got[1], 0x55, v_bytes);
        assert_int_equal(lam_variants[v].kernels->kv_store(type, d, x[0], x[1], at, got[0], got[1]), fits);
        if (memcmp(want[0], got[0], k_bytes) || memcmp(want[1], got[1], v_bytes))
            fail_msg("kv_store %s %s d %zu position %zu", lam_variants[v].kernels->name, kv_names[type], d, at);
    }
    struct pages pages = {type, d, 1, (void **)want, (void **)want + 1};
    for (size_t i = 0; i < d; i++) {
        double k = fits ? (double)x[0][i] : 0.0, step = 0.0;
        for (size_t j = i / 32 * 32; j < d && j < i / 32 * 32 + 32; j++) step = fmax(step, fabs((double)x[0][j]));
        step = type == LAM_KV_I8 ? step / 253.9 : type == LAM_KV_F16 ? fabs(k) * 0x1p-11 + 0x1p-25 : 0.0;
        if (!(fabs(stored_k(&pages, at, i) - k) <= (fits ? step + 0x1p-100 : 0.0)))
            fail_msg("kv_store %s d %zu: %a is stored as %a", kv_names[type], d, k, stored_k(&pages, at, i));
    }
    for (int part = 0; part < 2; part++) {
        free(want[part]);
        free(got[part]);
        free(x[part]);
    }
}

static void test_store_variants(void **state)
{
    (void)state;
    uint64_t rng = 11;
    for (size_t d = 1; d <= 512; d += d < 140 ? 1 : 31)
        for (int i = 0; i < 30; i++) check_store(&rng, (enum lam_kv_type)(i % 3), d);
}

static void test_rotate_variants(void **state)
{
    (void)state;
    uint64_t rng = 13;
    float x[2][512], angle[2][256];
    for (size_t n = 1; n <= 256; n++)
        for (int interleaved = 0; interleaved < 2; interleaved++)
            for (size_t v = 1; v < lam_n_variants; v++) {
                if (!lam_variants[v].supported()) continue;
                for (size_t i = 0; i < 512; i++) {
                    x[0][i] = x[1][i] = test_random_float(&rng);
                    angle[i / 256][i % 256] = test_random_float(&rng);
                }
                lam_rotate_scalar(x[0], n, angle[0], angle[1], interleaved);
                lam_variants[v].kernels->rotate(x[1], n, angle[0], angle[1], interleaved);
                assert_same("rotate", lam_variants[v].kernels->name, interleaved ? "interleaved" : "halves", 1, n, x[0], x[1], 512);
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
        cmocka_unit_test(test_attention_variants), cmocka_unit_test(test_attention_not_finite),
        cmocka_unit_test(test_store_variants),     cmocka_unit_test(test_rotate_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
