/* Encoding to GGUF's types, byte for byte as the gguf package does (tools/make_encode_golden.py). */
#include "tensor/encode.h"
#include "support.h"
#include "tensor/decode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA "tests/data/encode/"

static void test_bytes_are_ggufs(void **state)
{
    (void)state;
    static const enum lam_dtype types[] = {LAM_Q8_0, LAM_Q4_0, LAM_Q4_1, LAM_Q5_0, LAM_Q5_1, LAM_BF16, LAM_F16};
    size_t size, n;
    float *x = (float *)(void *)test_read_file(DATA "x.f32", &size);
    n = size / sizeof *x;
    assert_int_equal(n, 4096);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char path[128];
        size_t want = 0, have = 0, block = lam_dtype_info(types[i])->block_bytes;
        snprintf(path, sizeof path, DATA "%s.bin", lam_dtype_info(types[i])->name);
        uint8_t *golden = test_read_file(path, &want);
        assert_true(lam_dtype_is_encoded(types[i]) && lam_dtype_row_bytes(types[i], n, &have));
        assert_int_equal(have, want);
        uint8_t *row = malloc(have);
        assert_non_null(row);
        assert_true(lam_encode_row(types[i], x, n, row));
        for (size_t b = 0; b < have / block; b++)
            if (memcmp(row + b * block, golden + b * block, block) != 0) fail_msg("%s: block %zu differs", lam_dtype_info(types[i])->name, b);
        free(row);
        free(golden);
    }
    free(x);
}

/* Floats go through unchanged, and what decoding gives encodes to itself in every type with a power of two for a scale. */
static void test_exact_values(void **state)
{
    (void)state;
    static const enum lam_dtype types[] = {LAM_F32, LAM_F16, LAM_BF16, LAM_Q8_0, LAM_Q4_0, LAM_Q5_0, LAM_Q4_64};
    float x[64], back[64];
    uint8_t row[64 * 4];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        float most = types[i] == LAM_Q8_0 ? 127.0f : 7.0f, least = types[i] == LAM_Q8_0 ? -127.0f : types[i] == LAM_Q5_0 ? -16.0f : -8.0f;
        for (int k = 0; k < 64; k++) x[k] = k % 32 == 3 ? least / 4.0f : (float)(k % 5 - 2) / 4.0f;
        x[7] = most / 4.0f;
        assert_true(lam_encode_row(types[i], x, 64, row));
        lam_decode_row(types[i], row, 64, back);
        assert_memory_equal(x, back, sizeof x);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[64] = {0};
    uint8_t row[256];
    assert_false(lam_encode_row(LAM_Q4_K, x, 64, row));
    for (int i = 0; i < 3; i++) {
        x[40] = bad[i];
        assert_false(lam_encode_row(LAM_Q8_0, x, 64, row));
        assert_false(lam_encode_row(LAM_F32, x, 64, row));
        assert_false(lam_encode_row(LAM_Q4_64, x, 64, row));
    }
    x[40] = 1e30f; /* no float16 holds its scale, or the element itself */
    assert_false(lam_encode_row(LAM_F16, x, 64, row));
    assert_false(lam_encode_row(LAM_Q4_0, x, 64, row));
    assert_true(lam_encode_row(LAM_BF16, x, 64, row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_are_ggufs), cmocka_unit_test(test_exact_values), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
