/* Blocks decode to the bits that other programs give (tests/data/blocks), and tiles keep every byte. */
#include "support.h"

#include "base/sha256.h"
#include "tensor/decode.h"
#include "tensor/half.h"
#include "tensor/dtype.h"
#include "tensor/tiles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/data/blocks/"

static const enum lam_dtype types[] = {LAM_F32,  LAM_F16,  LAM_BF16, LAM_Q4_0, LAM_Q4_1, LAM_Q5_0, LAM_Q5_1,
                                       LAM_Q8_0, LAM_Q2_K, LAM_Q3_K, LAM_Q4_K, LAM_Q5_K, LAM_Q6_K, LAM_Q4_64};
#define N_TYPES (sizeof types / sizeof *types)

static uint8_t *read_data(const char *name, const char *suffix, size_t *size)
{
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s%s", name, suffix);
    return test_read_file(path, size);
}

/* The digest of that name in golden.txt is that of the bytes. */
static void assert_golden(const char *name, const void *bytes, size_t size)
{
    char key[64], text[LAM_DIGEST_TEXT];
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256(bytes, size, digest);
    lam_digest_text(digest, text);
    char *golden = (char *)read_data("golden.txt", "", NULL);
    snprintf(key, sizeof key, "%s ", name);
    char *line = strstr(golden, key);
    if (!line) fail_msg("golden.txt has no %s", name);
    line[strlen(key) + 64] = 0;
    assert_string_equal(text + strlen("sha256:"), line + strlen(key));
    free(golden);
}

/* A block's layout (ggml's block_* structures): every byte in exactly one field. */
static void test_layouts(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct lam_dtype_info *info = lam_dtype_info(types[t]);
        uint8_t seen[256] = {0};
        assert_non_null(info);
        assert_ptr_equal(lam_dtype_by_name(info->name), info);
        for (size_t f = 0; f < info->n_fields; f++) {
            assert_int_equal(info->fields[f].size % info->fields[f].unit, 0);
            for (size_t i = 0; i < info->fields[f].size; i++) seen[info->fields[f].offset + i]++;
        }
        for (size_t i = 0; i < sizeof seen; i++) assert_int_equal(seen[i], i < info->block_bytes);
    }
    const struct lam_dtype_info *index = lam_dtype_info(26); /* ggml's GGML_TYPE_I32: indices, never a weight */
    assert_ptr_equal(lam_dtype_by_name("I32"), index);
    assert_int_equal(index->block_elements, 1);
    assert_int_equal(index->block_bytes, 4);
    assert_false(lam_dtype_in_gguf(LAM_I32) || lam_dtype_is_quantised(LAM_I32) || lam_dtype_is_float(LAM_I32));
    assert_null(lam_dtype_info(4));
    assert_null(lam_dtype_info(99));
    assert_null(lam_dtype_info(129));
    assert_null(lam_dtype_by_name("Q9_K"));
}

static void test_llamacpp_vectors(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct lam_dtype_info *info = lam_dtype_info(types[t]);
        size_t size, expected_size;
        float got[2048];
        if (types[t] == LAM_F32 || !lam_dtype_in_gguf(types[t])) continue; /* Q4_64: test_encode.c */
        uint8_t *blocks = read_data(info->name, ".q", &size), *expected = read_data(info->name, ".deq.f32", &expected_size);
        assert_int_equal(size, 2048 / info->block_elements * info->block_bytes);
        assert_int_equal(expected_size, sizeof got);
        lam_decode_row(types[t], blocks, 2048, got);
        assert_memory_equal(got, expected, sizeof got);
        free(blocks);
        free(expected);
    }
}

static void test_gguf_package(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct lam_dtype_info *info = lam_dtype_info(types[t]);
        size_t size;
        if (!lam_dtype_is_quantised(types[t]) || !lam_dtype_in_gguf(types[t])) continue;
        uint8_t *blocks = read_data(info->name, ".blocks", &size);
        size_t elements = size / info->block_bytes * info->block_elements;
        assert_int_equal(size, 64 * info->block_bytes);
        float *got = malloc(elements * sizeof *got);
        assert_non_null(got);
        assert_true(lam_row_is_finite(types[t], blocks, elements));
        lam_decode_row(types[t], blocks, elements, got);
        assert_golden(info->name, got, elements * sizeof *got);
        free(got);
        free(blocks);
    }
}

static void test_f16_to_f32(void **state)
{
    (void)state;
    float *got = malloc(65536 * sizeof *got);
    assert_non_null(got);
    for (uint32_t h = 0; h < 65536; h++) {
        got[h] = lam_f16_to_f32((uint16_t)h);
        assert_int_equal(isnan(got[h]) != 0, (h & 0x7fff) > 0x7c00);
        if (isnan(got[h])) got[h] = 0.0f;
    }
    assert_golden("f16_to_f32", got, 65536 * sizeof *got);
    free(got);
}

static float from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

/* The sample of tools/make_block_golden.py. */
static void test_f32_to_f16(void **state)
{
    (void)state;
    const size_t spread = 1000000, ties = 0x7c00 * 3;
    uint16_t *got = malloc((spread + 2 * ties) * sizeof *got);
    assert_non_null(got);
    for (size_t i = 0; i < spread; i++) {
        uint32_t bits = (uint32_t)(i * 2654435761u);
        got[i] = lam_f32_to_f16(from_bits((bits & 0x7fffffff) > 0x7f800000 ? bits & 0x80000000 : bits));
    }
    for (size_t i = 0; i < ties; i++) {
        uint16_t h = (uint16_t)(i / 3);
        double upper = h == 0x7bff ? 65536.0 : (double)lam_f16_to_f32((uint16_t)(h + 1));
        float middle = (float)(((double)lam_f16_to_f32(h) + upper) / 2.0);
        uint32_t bits;
        memcpy(&bits, &middle, 4);
        bits += (uint32_t)(i % 3) - 1;
        got[spread + i] = lam_f32_to_f16(from_bits(bits));
        got[spread + ties + i] = lam_f32_to_f16(from_bits(bits | 0x80000000));
    }
    assert_golden("f32_to_f16", got, (spread + 2 * ties) * sizeof *got);
    assert_true((lam_f32_to_f16(NAN) & 0x7fff) > 0x7c00);
    free(got);
}

static void test_bf16_to_f32(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float v = lam_bf16_to_f32((uint16_t)h), expected = from_bits(h << 16);
        assert_memory_equal(&v, &expected, 4);
    }
}

/* Tiles of 1 to 17 rows give every row back; padding and missing rows are zero. */
static void check_tiles(enum lam_dtype dtype, uint64_t *rng, size_t n_rows, size_t n_blocks)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    size_t cols = n_blocks * info->block_elements, row_bytes, stride, all;
    assert_true(lam_dtype_row_bytes(dtype, cols, &row_bytes) && lam_tile_stride(dtype, cols, &stride));
    assert_true(lam_tiled_bytes(dtype, n_rows, cols, &all));
    size_t n_tiles = (n_rows + 15) / 16;
    assert_int_equal(row_bytes, n_blocks * info->block_bytes);
    assert_int_equal(stride % 64, 0);
    assert_true(stride >= 16 * row_bytes && stride < 16 * row_bytes + 64);
    assert_int_equal(all, n_tiles * stride);
    uint8_t *rows = malloc(n_rows * row_bytes), *tiles = malloc(all), *back = malloc(row_bytes);
    assert_true(rows && tiles && back);
    for (size_t i = 0; i < n_rows * row_bytes; i++) rows[i] = (uint8_t)test_random(rng);
    memset(tiles, 0xcc, all);
    for (size_t t = 0; t < n_tiles; t++)
        lam_tile_rows(dtype, cols, rows + t * 16 * row_bytes, n_rows - t * 16 < 16 ? n_rows - t * 16 : 16, tiles + t * stride);
    for (size_t r = 0; r < n_tiles * 16; r++) {
        lam_untile_row(dtype, cols, tiles + r / 16 * stride, r % 16, back);
        if (r < n_rows) assert_memory_equal(back, rows + r * row_bytes, row_bytes);
        for (size_t i = 0; r >= n_rows && i < row_bytes; i++) assert_int_equal(back[i], 0);
    }
    for (size_t t = 0; t < n_tiles; t++)
        for (size_t i = 16 * row_bytes; i < stride; i++) assert_int_equal(tiles[t * stride + i], 0);
    /* The layout itself: unit u of field f of block b of row r. */
    const uint8_t *at = tiles;
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t f = 0; f < info->n_fields; f++)
            for (size_t u = 0; u < info->fields[f].size; u += info->fields[f].unit)
                for (size_t r = 0; r < 16; r++, at += info->fields[f].unit)
                    if (r < n_rows)
                        assert_memory_equal(at, rows + r * row_bytes + b * info->block_bytes + info->fields[f].offset + u,
                                            info->fields[f].unit);
    free(rows);
    free(tiles);
    free(back);
}

static void test_tiles(void **state)
{
    (void)state;
    uint64_t rng = 1;
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t n_rows = 1; n_rows <= 17; n_rows++)
            for (size_t n_blocks = 1; n_blocks <= 5; n_blocks++) check_tiles(types[t], &rng, n_rows, n_blocks);
}

static void test_sizes_refused(void **state)
{
    (void)state;
    size_t bytes;
    assert_false(lam_dtype_row_bytes(LAM_Q4_0, 33, &bytes));
    assert_false(lam_dtype_row_bytes(LAM_Q4_K, 128, &bytes));
    assert_false(lam_dtype_row_bytes(LAM_F32, UINT64_MAX, &bytes));
    assert_false(lam_tile_stride(LAM_F32, UINT64_MAX / 8, &bytes));
    assert_false(lam_tiled_bytes(LAM_F32, UINT64_MAX, 32, &bytes));
    assert_false(lam_tiled_bytes(LAM_F32, UINT64_MAX / 64, 32, &bytes));
}

/* Infinity or NaN in a scale, or in an element of a float type, is seen wherever it stands. */
static void test_not_finite(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct lam_dtype_info *info = lam_dtype_info(types[t]);
        for (size_t block = 0; block < 3; block++)
            for (size_t at = 0; at < info->fields[0].size; at += info->fields[0].unit) {
                uint8_t row[3 * 256] = {0};
                uint8_t *p = row + block * info->block_bytes + info->fields[0].offset + at + info->fields[0].unit - 1;
                assert_true(lam_row_is_finite(types[t], row, 3 * info->block_elements));
                p[0] = 0x7f; /* the top byte: f16 0x7fXX is NaN; bf16 and f32 need one more bit */
                if (types[t] == LAM_BF16 || types[t] == LAM_F32 || types[t] == LAM_Q4_64) p[-1] = 0x80;
                assert_false(lam_row_is_finite(types[t], row, 3 * info->block_elements));
                p[0] = 0xff;
                assert_false(lam_row_is_finite(types[t], row, 3 * info->block_elements));
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),    cmocka_unit_test(test_llamacpp_vectors), cmocka_unit_test(test_gguf_package),
        cmocka_unit_test(test_f16_to_f32), cmocka_unit_test(test_f32_to_f16),       cmocka_unit_test(test_bf16_to_f32),
        cmocka_unit_test(test_tiles),      cmocka_unit_test(test_sizes_refused),    cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
