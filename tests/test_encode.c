/* Q4_64 and outlier residuals against what tools/emulator/q4_64.py, written from docs/format.md, makes of the same floats. */
#include "support.h"

#include "base/sha256.h"
#include "format/gguf.h"
#include "import/quantise.h"
#include "tensor/decode.h"
#include "tensor/encode.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/data/q4_64/"

static json_t *load_golden(void)
{
    json_error_t problem;
    json_t *golden = json_load_file(FOLDER "golden.json", 0, &problem);
    if (!golden) fail_msg("golden.json: %s", problem.text);
    return golden;
}

static size_t size_in(const json_t *object, const char *key) { return (size_t)json_integer_value(json_object_get(object, key)); }

static void assert_digest(const char *what, const void *bytes, size_t size, const json_t *expected)
{
    uint8_t digest[LAM_SHA256_BYTES];
    char text[LAM_DIGEST_TEXT];
    lam_sha256(bytes, size, digest);
    lam_digest_text(digest, text);
    if (!json_is_string(expected) || strcmp(text, json_string_value(expected)) != 0) fail_msg("%s: %s", what, text);
}

static void test_blocks(void **state)
{
    (void)state;
    json_t *golden = load_golden();
    size_t rows = size_in(golden, "rows"), cols = size_in(golden, "cols"), size, expected_size, row_bytes;
    uint8_t *raw = test_read_file(FOLDER "rows.f32", &size), *expected = test_read_file(FOLDER "rows.blocks", &expected_size);
    const float *x = (const float *)(const void *)raw;
    assert_int_equal(size, rows * cols * sizeof *x);
    assert_true(lam_dtype_row_bytes(LAM_Q4_64, cols, &row_bytes));
    assert_int_equal(expected_size, rows * row_bytes);
    uint8_t *blocks = malloc(row_bytes);
    float *decoded = malloc(size);
    assert_true(blocks && decoded);
    for (size_t r = 0; r < rows; r++) {
        assert_true(lam_encode_q4_64_row(x + r * cols, cols, blocks));
        if (memcmp(blocks, expected + r * row_bytes, row_bytes) != 0) fail_msg("row %zu has other blocks", r);
        assert_true(lam_row_is_finite(LAM_Q4_64, blocks, cols));
        lam_decode_row(LAM_Q4_64, blocks, cols, decoded + r * cols);
    }
    assert_digest("decoded", decoded, size, json_object_get(golden, "decoded"));
    free(decoded);
    free(blocks);
    free(expected);
    free(raw);
    json_decref(golden);
}

/* The residual of errors[rows, cols], as bytes; freed with lam_outliers_release. */
static struct lam_outliers collect(const float *errors, size_t rows, size_t cols, size_t n, size_t *bytes)
{
    struct lam_outliers o;
    lam_error err;
    assert_ok(lam_outliers_begin(&o, n, &err), err);
    for (size_t r = 0; r < rows; r++) lam_outliers_add_row(&o, r, cols, errors + r * cols);
    assert_ok(lam_outliers_finish(&o, rows, cols, &err), err);
    assert_true(lam_residual_bytes(rows, cols, (uint32_t)n, bytes));
    struct lam_residual r = lam_residual_view(o.bytes, rows, cols, (uint32_t)n);
    assert_ok(lam_residual_check(&r, rows, cols, "test", 4, &err), err);
    return o;
}

static void test_outliers(void **state)
{
    (void)state;
    json_t *golden = load_golden(), *digest;
    size_t rows = size_in(golden, "rows"), cols = size_in(golden, "cols"), bytes;
    uint8_t *raw = test_read_file(FOLDER "rows.f32", NULL);
    const char *n;
    json_object_foreach(json_object_get(golden, "outliers"), n, digest) {
        struct lam_outliers o = collect((const float *)(const void *)raw, rows, cols, (size_t)atoi(n), &bytes);
        assert_digest(n, o.bytes, bytes, digest);
        lam_outliers_release(&o);
    }
    free(raw);
    json_decref(golden);
}

/* Rows so wide that columns need 32 bits. */
static void test_wide(void **state)
{
    (void)state;
    json_t *golden = load_golden(), *wide = json_object_get(golden, "wide");
    size_t rows = size_in(wide, "rows"), cols = size_in(wide, "cols"), bytes;
    float *errors = malloc(rows * cols * sizeof *errors);
    assert_non_null(errors);
    for (uint64_t i = 0; i < rows * cols; i++)
        errors[i] = (float)((double)((uint32_t)(i * 2654435761u) >> 8) / 16777216.0 - 0.5);
    struct lam_outliers o = collect(errors, rows, cols, size_in(wide, "n"), &bytes);
    assert_digest("wide", o.bytes, bytes, json_object_get(wide, "residual"));
    lam_outliers_release(&o);
    free(errors);
    json_decref(golden);
}

/* How much of the squared error is left. */
struct errors {
    double encoded, with_residual, weights;
};

static void check_matrix(const struct lam_gguf_tensor *t, double fraction, const json_t *expected, struct errors *sums)
{
    lam_error err;
    size_t rows = (size_t)t->dims[1], cols = (size_t)t->dims[0], source_bytes, row_bytes, bytes;
    assert_true(lam_dtype_row_bytes(t->dtype, cols, &source_bytes) && lam_dtype_row_bytes(LAM_Q4_64, cols, &row_bytes));
    uint8_t *blocks = malloc(rows * row_bytes);
    float *x = malloc(rows * cols * sizeof *x), *errors = malloc(rows * cols * sizeof *errors);
    assert_true(blocks && x && errors);
    size_t n = (size_t)lam_quantise_values(&(struct lam_quantise){.on = true, .outliers = fraction}, rows, cols);
    struct lam_outliers largest;
    assert_ok(lam_outliers_begin(&largest, n, &err), err);
    for (size_t r = 0; r < rows; r++) {
        lam_decode_row(t->dtype, t->data + r * source_bytes, cols, x + r * cols);
        lam_outliers_add_row(&largest, r, cols, x + r * cols);
    }
    lam_outliers_sort(&largest);
    for (size_t r = 0; r < rows; r++) {
        float *rest = errors + r * cols;
        memcpy(rest, x + r * cols, cols * sizeof *rest);
        lam_outliers_blank(&largest, r, cols, rest);
        assert_true(lam_encode_q4_64_row(rest, cols, blocks + r * row_bytes));
        lam_decode_row(LAM_Q4_64, blocks + r * row_bytes, cols, errors + r * cols);
    }
    for (size_t i = 0; i < rows * cols; i++) errors[i] = x[i] - errors[i];
    assert_digest(t->name, blocks, rows * row_bytes, json_object_get(expected, "blocks"));
    struct lam_outliers o = collect(errors, rows, cols, n, &bytes);
    assert_digest(t->name, o.bytes, bytes, json_object_get(expected, "residual"));
    for (size_t i = 0; i < rows * cols; i++) sums->encoded += (double)errors[i] * (double)errors[i];
    struct lam_residual residual = lam_residual_view(o.bytes, rows, cols, (uint32_t)n);
    for (size_t i = 0; i < rows * cols; i++) errors[i] = -errors[i]; /* decoded − original */
    for (size_t r = 0; r < rows; r++) lam_residual_add_row(&residual, r, errors + r * cols);
    for (size_t i = 0; i < rows * cols; i++) {
        sums->with_residual += (double)errors[i] * (double)errors[i];
        sums->weights += (double)x[i] * (double)x[i];
    }
    lam_outliers_release(&o);
    lam_outliers_release(&largest);
    free(blocks);
    free(x);
    free(errors);
}

static void test_model(void **state)
{
    (void)state;
    lam_error err;
    struct lam_gguf *g;
    json_t *golden = load_golden(), *model = json_object_get(golden, "model");
    double fraction = json_number_value(json_object_get(model, "fraction"));
    struct errors sums = {0};
    size_t n = 0;
    assert_ok(lam_gguf_open(json_string_value(json_object_get(model, "file")), &g, &err), err);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const json_t *expected = json_object_get(json_object_get(model, "matrices"), g->tensors[i].name);
        if (!expected) continue;
        check_matrix(&g->tensors[i], fraction, expected, &sums);
        n++;
    }
    assert_int_equal(n, json_object_size(json_object_get(model, "matrices")));
    double encoded = sqrt(sums.encoded / sums.weights), with_residual = sqrt(sums.with_residual / sums.weights);
    printf("relative error of %zu matrices with %g as residuals: %.4f, without adding them %.4f\n", n, fraction, with_residual, encoded);
    assert_true(with_residual < encoded && with_residual < 0.09);
    lam_gguf_close(g);
    json_decref(golden);
}

static void test_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[128] = {0};
    uint8_t blocks[72];
    for (size_t i = 0; i < 3; i++)
        for (size_t at = 0; at < 128; at += 127) {
            x[at] = bad[i];
            assert_false(lam_encode_q4_64_row(x, 128, blocks));
            x[at] = 0.0f;
        }
    assert_true(lam_encode_q4_64_row(x, 128, blocks));
}

static void test_option(void **state)
{
    (void)state;
    lam_error err;
    struct lam_quantise q;
    static const char *const wrong[] = {"", "q4", "Q4_64", "q4_640", "q4_64:", "q4_64:outliers", "q4_64:outliers=", "q4_64:outliers=.",
        "q4_64:outliers=0.06", "q4_64:outliers=-0.01", "q4_64:outliers=1e-3", "q4_64:outliers=0.01,", "q4_64:keep=norm", "q4_64:x=1",
        "q4_64:outliers=0.00000000000000001", "q4_64,outliers=0.01"};
    assert_ok(lam_quantise_parse(NULL, &q, &err), err);
    assert_false(q.on);
    assert_ok(lam_quantise_parse("q4_64", &q, &err), err);
    assert_true(q.on && q.outliers == 0.0 && !q.keep_embedding && !q.keep_output);
    assert_ok(lam_quantise_parse("q4_64:keep=output,outliers=0.005,keep=embedding", &q, &err), err);
    assert_true(q.on && q.outliers == 0.005 && q.keep_embedding && q.keep_output);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (lam_quantise_parse(wrong[i], &q, &err) != LAM_E_ARGUMENT) fail_msg("%s was taken", wrong[i]);
    assert_false(lam_quantise_takes(&(struct lam_quantise){.on = true}, LAM_ROLE_Q, 96));
    assert_false(lam_quantise_takes(&(struct lam_quantise){.on = true}, LAM_ROLE_ATTN_NORM, 64));
    assert_false(lam_quantise_takes(&(struct lam_quantise){.on = true, .keep_output = true}, LAM_ROLE_OUTPUT, 64));
    assert_true(lam_quantise_takes(&(struct lam_quantise){.on = true, .keep_output = true}, LAM_ROLE_EMBEDDING, 64));
    assert_int_equal(lam_quantise_values(&(struct lam_quantise){.on = true, .outliers = 0.05}, UINT32_MAX, 64), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_outliers), cmocka_unit_test(test_wide), cmocka_unit_test(test_model),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
