/* Importing float sources with --quantise: what is encoded, what stays, what is refused, and that the same source gives the same base.
 * That the blocks and logits are right is held against NumPy in test_encode.c and test_golden.c. */
#include "import/import.h"
#include "format/slm.h"
#include "source_edit.h"
#include "tensor/decode.h"
#include "tensor/tiles.h"

#include <math.h>

#define GOLDEN "tests/golden/"
#define COUNT(array) (sizeof(array) / sizeof *(array))

static char *work; /* a fresh folder for each test */

static int set_up(void **state)
{
    (void)state;
    work = test_make_folder();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_folder(work);
    return 0;
}

static lam_code import_as(const char *source, const char *name, const char *quantise, lam_error *err)
{
    char *out = path_in(work, name);
    struct lam_import_options options = {.quantise = quantise};
    lam_code code = lam_import_base(source, out, &options, err);
    free(out);
    return code;
}

static struct lam_slm *imported(const char *source, const char *name, const char *quantise)
{
    lam_error err;
    struct lam_slm *slm;
    char *path = path_in(work, name);
    assert_ok(import_as(source, name, quantise, &err), err);
    assert_ok(lam_slm_open(path, &slm, &err), err);
    for (size_t i = 0; i < slm->n_pieces; i++) assert_ok(lam_slm_verify_piece(slm, i, &err), err);
    free(path);
    return slm;
}

/* A row as it is computed with: decoded, plus its residual. */
static void row_of(const struct lam_slm *s, const struct lam_slm_entry *e, size_t r, float *out)
{
    lam_error err;
    struct lam_residual residual;
    size_t stride = 0, row_bytes = 0;
    lam_tile_stride(e->dtype, e->dims[0], &stride);
    lam_dtype_row_bytes(e->dtype, e->dims[0], &row_bytes);
    uint8_t *row = malloc(row_bytes);
    assert_non_null(row);
    lam_untile_row(e->dtype, e->dims[0], lam_slm_tensor_data(s, e) + r / LAM_TILE_ROWS * stride, r % LAM_TILE_ROWS, row);
    lam_decode_row(e->dtype, row, e->dims[0], out);
    assert_ok(lam_slm_residual(s, e, &residual, &err), err);
    lam_residual_add_row(&residual, r, out);
    free(row);
}

/* Squared distance of a matrix of two bases. */
static double distance(const struct lam_slm *a, const struct lam_slm *b, const char *name)
{
    const struct lam_slm_entry *ea = lam_slm_find(a, name), *eb = lam_slm_find(b, name);
    double sum = 0.0;
    assert_true(ea && eb && ea->dims[0] == eb->dims[0] && ea->dims[1] == eb->dims[1]);
    float *ra = malloc(ea->dims[0] * sizeof *ra), *rb = malloc(ea->dims[0] * sizeof *rb);
    assert_true(ra && rb);
    for (size_t r = 0; r < ea->dims[1]; r++) {
        row_of(a, ea, r, ra);
        row_of(b, eb, r, rb);
        for (size_t k = 0; k < ea->dims[0]; k++) sum += ((double)ra[k] - (double)rb[k]) * ((double)ra[k] - (double)rb[k]);
    }
    free(ra);
    free(rb);
    return sum;
}

static bool is_matrix(const struct lam_slm_entry *e) { return e->layout == LAM_LAYOUT_TILE16; }

/* llama-gqa: rows of 64, but those of ffn_down are 108 long; an untied head. */
static void test_what_is_encoded(void **state)
{
    (void)state;
    static const struct {
        const char *source, *quantise;
        bool embedding, output;
    } cases[] = {{GOLDEN "llama-gqa/llama-gqa-f32.gguf", "q4_64:outliers=0.01", true, true},
                 {GOLDEN "llama-gqa", "q4_64:outliers=0.01,keep=embedding", false, true},
                 {GOLDEN "llama-gqa", "q4_64:keep=output,outliers=0.01", true, false}};
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct lam_slm *plain = imported(cases[c].source, "plain.slm", NULL), *s = imported(cases[c].source, "q.slm", cases[c].quantise);
        size_t n_encoded = 0, n_left = 0;
        assert_int_equal(s->n_entries, plain->n_entries);
        for (size_t i = 0; i < s->n_entries; i++) {
            const struct lam_slm_entry *e = &s->entries[i], *was = &plain->entries[i];
            char name[128];
            snprintf(name, sizeof name, "%.*s", (int)e->name_len, s->names + e->name_offset);
            bool kept = (strcmp(name, "token_embd.weight") == 0 && !cases[c].embedding) ||
                        (strcmp(name, "output.weight") == 0 && !cases[c].output);
            bool encoded = is_matrix(e) && e->dims[0] % 64 == 0 && !kept;
            assert_int_equal(e->dtype, encoded ? LAM_Q4_64 : was->dtype);
            assert_int_equal(lam_slm_residual_values(s, e), encoded ? e->dims[0] * e->dims[1] / 100 : 0);
            if (!encoded) assert_memory_equal(lam_slm_tensor_data(s, e), lam_slm_tensor_data(plain, was), e->bytes);
            if (is_matrix(e)) n_encoded += encoded, n_left += !encoded;
        }
        assert_true(n_encoded > 0 && n_left > 0);
        lam_slm_close(plain);
        lam_slm_close(s);
    }
}

/* More residuals, less error; and the source's name for what encoded it. */
static void test_residuals_help(void **state)
{
    (void)state;
    const char *source = GOLDEN "qwen2-tied/qwen2-tied-f16.gguf";
    struct lam_slm *plain = imported(source, "plain.slm", NULL), *none = imported(source, "0.slm", "q4_64"),
                   *some = imported(source, "1.slm", "q4_64:outliers=0.01"), *many = imported(source, "5.slm", "q4_64:outliers=0.05");
    for (size_t i = 0; i < plain->n_entries; i++) {
        const struct lam_slm_entry *e = &plain->entries[i];
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)e->name_len, plain->names + e->name_offset);
        if (!is_matrix(e) || e->dims[0] % 64) continue;
        double d0 = distance(plain, none, name), d1 = distance(plain, some, name), d5 = distance(plain, many, name);
        assert_true(d0 > d1 && d1 > d5 && d5 > 0.0);
    }
    const json_t *encoder = json_object_get(json_object_get(some->metadata, "source"), "encoder");
    assert_string_equal(json_string_value(json_object_get(encoder, "quantise")), "q4_64:outliers=0.01");
    assert_int_equal(json_integer_value(json_object_get(encoder, "version")), 1);
    lam_slm_close(plain);
    lam_slm_close(none);
    lam_slm_close(some);
    lam_slm_close(many);
}

static void digest_of(const char *name, char out[LAM_DIGEST_TEXT])
{
    lam_error err;
    char *path = path_in(work, name), *text;
    assert_ok(lam_inspect(path, false, &text, &err), err);
    json_t *found = json_loads(text, 0, NULL);
    snprintf(out, LAM_DIGEST_TEXT, "%s", json_string_value(json_object_get(found, "base_digest")));
    json_decref(found);
    lam_memory_free(text);
    free(path);
}

static void test_deterministic(void **state)
{
    (void)state;
    lam_error err;
    char first[LAM_DIGEST_TEXT], second[LAM_DIGEST_TEXT], other[LAM_DIGEST_TEXT];
    const char *source = GOLDEN "gemma3-swa/gemma3-swa-bf16.gguf";
    assert_ok(import_as(source, "a.slm", "q4_64:outliers=0.005", &err), err);
    assert_ok(import_as(source, "b.slm", "q4_64:outliers=0.005", &err), err);
    assert_ok(import_as(source, "c.slm", "q4_64:outliers=0.006", &err), err);
    char *a = path_in(work, "a.slm"), *b = path_in(work, "b.slm");
    assert_same_files(a, b);
    digest_of("a.slm", first);
    digest_of("b.slm", second);
    digest_of("c.slm", other);
    assert_string_equal(first, second);
    assert_string_not_equal(first, other);
    free(a);
    free(b);
}

static void test_refused(void **state)
{
    (void)state;
    lam_error err;
    char *out = path_in(work, "out.slm"), *base = path_in(work, "base.slm"), *gguf = path_in(work, "out.gguf");
    assert_int_equal(import_as(GOLDEN "qwen2-tied/qwen2-tied-q8_0.gguf", "out.slm", "q4_64", &err), LAM_E_DTYPE);
    assert_non_null(strstr(err.message, "Q8_0"));
    assert_int_equal(import_as(GOLDEN "qwen2-tied", "out.slm", "q3", &err), LAM_E_ARGUMENT);
    assert_int_equal(count_files(work), 0);
    assert_ok(import_as(GOLDEN "llama-gqa/llama-gqa-f32.gguf", "base.slm", "q4_64", &err), err);
    struct lam_import_options options = {.quantise = "q4_64"};
    assert_int_equal(lam_import_adapter(GOLDEN "adapters/llama-gqa/all-r4", base, out, &options, NULL, &err), LAM_E_ARGUMENT);
    assert_int_equal(lam_export_gguf(base, gguf, NULL, &err), LAM_E_DTYPE);
    assert_non_null(strstr(err.message, "Q4_64"));
    assert_int_equal(count_files(work), 1);
    free(out);
    free(base);
    free(gguf);
}

/* No type number of our own is taken from, or written into, a GGUF file. */
static void test_not_in_gguf(void **state)
{
    (void)state;
    lam_error err;
    struct lam_gguf_out *o;
    const uint64_t dims[4] = {64, 2, 1, 1};
    assert_ok(lam_gguf_out_new(&o, &err), err);
    assert_int_equal(lam_gguf_out_tensor(o, "w", LAM_Q4_64, 2, dims, &err), LAM_E_DTYPE);
    lam_gguf_out_free(o);
}

/* A residual's bytes are looked at before they are used, also where the file is trusted. */
static void test_damaged_residual(void **state)
{
    (void)state;
    lam_error err;
    lam_engine *engine;
    lam_base *base;
    struct lam_slm *s = imported(GOLDEN "qwen2-tied/qwen2-tied-f16.gguf", "q.slm", "q4_64:outliers=0.01");
    struct lam_residual r;
    char *path = path_in(work, "q.slm");
    assert_ok(lam_slm_residual(s, lam_slm_find(s, "token_embd.weight"), &r, &err), err);
    long values = (long)((const uint8_t *)r.values - s->file.data), columns = (long)((const uint8_t *)r.columns16 - s->file.data),
         starts = (long)((const uint8_t *)r.starts - s->file.data);
    const struct {
        long at;
        uint8_t bytes[2];
        lam_code code;
    } damages[] = {{values, {0x00, 0x7c}, LAM_E_NON_FINITE}, {columns, {0xff, 0xff}, LAM_E_OVERFLOW}, {starts + 6, {0xff, 0xff}, LAM_E_FORMAT}};
    lam_slm_close(s);
    assert_ok(lam_engine_new(NULL, &engine, &err), err);
    for (size_t i = 0; i < COUNT(damages); i++) {
        uint8_t was[2];
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        assert_int_equal(fseek(f, damages[i].at, SEEK_SET), 0);
        assert_int_equal(fread(was, 1, 2, f), 2);
        assert_int_equal(fseek(f, damages[i].at, SEEK_SET), 0);
        assert_int_equal(fwrite(damages[i].bytes, 1, 2, f), 2);
        assert_int_equal(fflush(f), 0);
        assert_int_equal(lam_base_open(engine, path, LAM_VERIFY_OFF, &base, &err), damages[i].code);
        assert_non_null(strstr(err.message, "token_embd.weight"));
        assert_int_equal(fseek(f, damages[i].at, SEEK_SET), 0);
        assert_int_equal(fwrite(was, 1, 2, f), 2);
        assert_int_equal(fclose(f), 0);
    }
    assert_ok(lam_base_open(engine, path, LAM_VERIFY_FULL, &base, &err), err);
    lam_base_free(base);
    lam_engine_free(engine);
    free(path);
}

/* ---- computing ---- */

static const uint32_t tokens[] = {2, 181, 238, 73, 254, 77, 236, 210, 29, 14, 5, 99};

static bool keep_logits(void *context, size_t position, const float *logits, size_t n_vocab)
{
    float **at = context;
    (void)position;
    memcpy(*at, logits, n_vocab * sizeof **at);
    *at += n_vocab;
    return true;
}

/* Logits at every position with one instruction set, in passes of max_rows; freed with free. */
static float *logits_of(const char *path, const char *isa, unsigned threads, size_t max_rows, size_t *n)
{
    lam_error err;
    lam_engine *engine;
    lam_base *base;
    lam_composition *composition;
    lam_session *session;
    lam_base_info info;
    lam_engine_options options = {.isa = isa, .threads = threads, .max_rows = max_rows};
    if (lam_engine_new(&options, &engine, &err) == LAM_E_ISA) return NULL;
    assert_ok(lam_base_open(engine, path, LAM_VERIFY_FULL, &base, &err), err);
    lam_base_describe(base, &info);
    assert_ok(lam_compose(base, NULL, NULL, 0, NULL, &composition, &err), err);
    assert_ok(lam_session_new(composition, 0, &session, &err), err);
    *n = COUNT(tokens) * info.n_vocab;
    float *logits = malloc(*n * sizeof *logits), *at = logits;
    assert_non_null(logits);
    assert_ok(lam_session_feed(session, tokens, COUNT(tokens), keep_logits, &at, &err), err);
    lam_session_free(session);
    lam_composition_free(composition);
    lam_base_free(base);
    lam_engine_free(engine);
    return logits;
}

static void test_same_everywhere(void **state)
{
    (void)state;
    lam_error err;
    static const struct {
        const char *isa;
        unsigned threads;
        size_t max_rows;
    } ways[] = {{NULL, 0, 0}, {NULL, 3, 5}, {"scalar", 1, 1}, {"avx2", 2, 0}, {"avx512", 2, 1}, {"neon", 2, 0}};
    char *path = path_in(work, "q.slm");
    size_t n, n_other, compared = 0;
    assert_ok(import_as(GOLDEN "gemma3-swa/gemma3-swa-bf16.gguf", "q.slm", "q4_64:outliers=0.05", &err), err);
    float *expected = logits_of(path, "scalar", 1, 0, &n);
    assert_non_null(expected);
    for (size_t i = 0; i < COUNT(ways); i++) {
        float *got = logits_of(path, ways[i].isa, ways[i].threads, ways[i].max_rows, &n_other);
        if (!got) continue;
        assert_int_equal(n, n_other);
        assert_memory_equal(got, expected, n * sizeof *got);
        compared++;
        free(got);
    }
    assert_true(compared >= 3);
    free(expected);
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_what_is_encoded), TEST(test_residuals_help), TEST(test_deterministic), TEST(test_refused),
                                       TEST(test_not_in_gguf), TEST(test_damaged_residual),
                                       TEST(test_same_everywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
