/* lam_diff: what a tuned checkpoint changed. Differences are held against adapters that NumPy took of the same checkpoints
 * (tools/golden/make_methods.py), low-rank factors against NumPy's SVD, drops against another program's Philox4x32-10. */
#include "lamina/diff.h"
#include "base/json.h"
#include "base/random.h"
#include "fixture.h"
#include "format/role.h"
#include "format/slm.h"
#include "import/low_rank.h"
#include "tensor/decode.h"

#include <math.h>

#define GOLDEN "tests/golden/"

static char *folder;
static char base[512], tuned[512];

static char *in_folder(const char *name)
{
    static char path[4][600];
    static size_t next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static int set_up(void **state)
{
    lam_error err;
    (void)state;
    folder = test_make_folder();
    snprintf(base, sizeof base, "%s/base.slm", folder);
    snprintf(tuned, sizeof tuned, "%s/tuned.slm", folder);
    assert_ok(lam_import_base(GOLDEN "llama-gqa", base, NULL, &err), err);
    assert_ok(lam_import_base(GOLDEN "methods/llama-gqa/tuned-dense", tuned, NULL, &err), err);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_folder(folder);
    return 0;
}

static struct lam_slm *taken(const lam_diff_options *o, const char *name, json_t **report)
{
    lam_error err;
    struct lam_slm *s;
    char *text;
    const char *path = in_folder(name);
    assert_ok(lam_diff(base, tuned, path, o, &text, &err), err);
    if (report) assert_ok(lam_json_parse(text, strlen(text), "report", report, &err), err);
    lam_memory_free(text);
    assert_ok(lam_slm_open(path, &s, &err), err);
    for (size_t i = 0; i < s->n_pieces; i++) assert_ok(lam_slm_verify_piece(s, i, &err), err);
    return s;
}

static float *floats_of(const struct lam_slm *s, const struct lam_slm_entry *e)
{
    size_t n = (size_t)e->dims[0] * e->dims[1];
    float *out = malloc(n * sizeof *out);
    assert_non_null(out);
    lam_decode_row(e->dtype, lam_slm_tensor_data(s, e), n, out);
    return out;
}

/* Every tensor of another program's difference is in ours, the same bits; and we have no more. */
static void assert_equal_to(const struct lam_slm *s, const char *golden)
{
    lam_error err;
    struct lam_slm *g;
    assert_ok(lam_slm_open(golden, &g, &err), err);
    assert_true(g->n_entries > 3);
    assert_int_equal(s->n_entries, g->n_entries);
    for (size_t i = 0; i < g->n_entries; i++) {
        char name[128];
        const struct lam_slm_entry *e = &g->entries[i];
        snprintf(name, sizeof name, "%.*s", (int)e->name_len, g->names + e->name_offset);
        const struct lam_slm_entry *own = lam_slm_find(s, name);
        if (!own) fail_msg("%s is missing", name);
        assert_int_equal(own->dtype, e->dtype);
        assert_int_equal(own->role, e->role);
        assert_memory_equal(own->dims, e->dims, sizeof e->dims);
        assert_memory_equal(lam_slm_tensor_data(s, own), lam_slm_tensor_data(g, e), e->bytes);
    }
    lam_slm_close(g);
}

static void test_dense_is_numpys(void **state)
{
    (void)state;
    struct lam_slm *s = taken(&(lam_diff_options){.method = LAM_DIFF_DENSE}, "dense.slm", NULL);
    assert_equal_to(s, GOLDEN "methods/llama-gqa/dense.slm");
    lam_slm_close(s);
}

/* The adapter computes what the tuned model computes. */
static void test_adapter_gives_the_tuned_model(void **state)
{
    (void)state;
    lam_error err;
    struct fixture f = {0};
    lam_composition *c;
    lam_adapter *a;
    lam_base *other;
    const uint32_t tokens[] = {1, 17, 230, 44, 5, 99, 64};
    const size_t n = sizeof tokens / sizeof *tokens;
    lam_slm_close(taken(&(lam_diff_options){.method = LAM_DIFF_SPARSE}, "sparse.slm", NULL));
    assert_ok(lam_engine_new(NULL, &f.engine, &err), err);
    assert_ok(lam_base_open(f.engine, base, LAM_VERIFY_FULL, &f.base, &err), err);
    assert_ok(lam_base_open(f.engine, tuned, LAM_VERIFY_FULL, &other, &err), err);
    assert_ok(lam_adapter_load(f.base, in_folder("sparse.slm"), false, &a, &err), err);
    lam_composition *plain;
    assert_ok(lam_compose(f.base, (lam_adapter *[]){a}, (double[]){1.0}, 1, NULL, &c, &err), err);
    assert_ok(lam_compose(other, NULL, NULL, 0, NULL, &plain, &err), err);
    lam_session *with = fixture_session(c, 16), *want = fixture_session(plain, 16);
    assert_ok(lam_session_feed(with, tokens, n, NULL, NULL, &err), err);
    assert_ok(lam_session_feed(want, tokens, n, NULL, NULL, &err), err);
    const float *x = lam_session_logits(with), *y = lam_session_logits(want);
    float most = 0.0f, apart = 0.0f;
    for (size_t i = 0; i < fixture_vocab(&f); i++) {
        most = fmaxf(most, fabsf(y[i]));
        apart = fmaxf(apart, fabsf(x[i] - y[i]));
    }
    assert_true(most > 1.0f && apart <= 1e-5f * most);
    lam_session_free(with);
    lam_session_free(want);
    lam_composition_free(c);
    lam_composition_free(plain);
    lam_adapter_unload(a);
    lam_base_free(other);
    fixture_close(&f);
}

/* The same bytes on one thread and on three, whatever the method. */
static void test_threads_change_nothing(void **state)
{
    (void)state;
    lam_error err;
    const lam_diff_options all[] = {{.method = LAM_DIFF_SPARSE, .density = 0.2, .drop = 0.5, .seed = 7, .dtype = "f16"},
                                    {.method = LAM_DIFF_DENSE, .dtype = "bf16"},
                                    {.method = LAM_DIFF_LORA, .rank = 5, .dtype = "f16"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t size[2];
        uint8_t *bytes[2];
        for (size_t k = 0; k < 2; k++) {
            lam_diff_options o = all[i];
            o.threads = k ? 3 : 1;
            assert_ok(lam_diff(base, tuned, in_folder("same.slm"), &o, NULL, &err), err);
            bytes[k] = test_read_file(in_folder("same.slm"), &size[k]);
        }
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(bytes[0], bytes[1], size[0]);
        free(bytes[0]);
        free(bytes[1]);
    }
}

static int by_size(const void *a, const void *b)
{
    float l = *(const float *)a, r = *(const float *)b;
    return (l < r) - (l > r);
}

/* Of every matrix just the wanted number is kept, and no dropped element is larger than a kept one. */
static void test_density(void **state)
{
    (void)state;
    struct lam_slm *all = taken(&(lam_diff_options){.method = LAM_DIFF_DENSE}, "all.slm", NULL);
    struct lam_slm *some = taken(&(lam_diff_options){.method = LAM_DIFF_DENSE, .density = 0.1}, "some.slm", NULL);
    size_t n_matrices = 0;
    for (size_t i = 0; i < all->n_entries; i++) {
        const struct lam_slm_entry *e = &all->entries[i], *k = &some->entries[i];
        size_t n = (size_t)e->dims[0] * e->dims[1], wanted = (size_t)(0.1 * (double)n + 0.5), n_kept = 0, changed = 0;
        if (e->role >> 16 != LAM_PART_DELTA) continue;
        n_matrices++;
        float *x = floats_of(all, e), *y = floats_of(some, k), *sizes = malloc(n * sizeof *sizes), least = INFINITY;
        assert_non_null(sizes);
        for (size_t j = 0; j < n; j++) {
            sizes[j] = fabsf(x[j]);
            changed += x[j] != 0.0f;
            if (y[j] == 0.0f) continue;
            n_kept++;
            assert_true(y[j] == x[j]);
            least = fminf(least, sizes[j]);
        }
        qsort(sizes, n, sizeof *sizes, by_size);
        assert_int_equal(n_kept, changed < wanted ? changed : wanted);
        assert_true(n_kept == 0 || least == sizes[n_kept - 1]);
        free(x);
        free(y);
        free(sizes);
    }
    assert_true(n_matrices > 3);
    lam_slm_close(all);
    lam_slm_close(some);
}

/* Bits of the first 64 elements that a program in Python keeps: Philox4x32-10 with counter (index / 4, key of the name), key (seed),
 * word index mod 4, dropped below P · 2^32; its first vector is the one of the authors' test suite. */
static void test_drop(void **state)
{
    (void)state;
    static const struct {
        const char *module;
        uint64_t seed, kept;
        double drop;
    } cases[] = {{"blk.0.attn_output", 7, 0xe289969614340ed3, 0.5}, {"blk.0.attn_output", 4294967303, 0x80000010200010, 0.9},
                 {"token_embd", 7, 0xe58f0b210600543b, 0.5}, {"token_embd", 4294967303, 0x0000000100014000, 0.9}};
    struct lam_slm *all = taken(&(lam_diff_options){.method = LAM_DIFF_DENSE}, "all.slm", NULL);
    size_t n_cases = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *report;
        char name[64];
        lam_diff_options o = {.method = LAM_DIFF_DENSE, .drop = cases[i].drop, .seed = cases[i].seed};
        struct lam_slm *s = taken(&o, "drop.slm", &report);
        snprintf(name, sizeof name, "%s.delta", cases[i].module);
        const struct lam_slm_entry *was = lam_slm_find(all, name), *e = lam_slm_find(s, name);
        if (was && e) {
            float *x = floats_of(all, was), *y = floats_of(s, e);
            size_t n = (size_t)e->dims[0] * e->dims[1], n_kept = 0, n_changed = 0;
            for (size_t k = 0; k < n; k++) {
                n_changed += x[k] != 0.0f;
                n_kept += y[k] != 0.0f;
                if (k < 64 && x[k] != 0.0f) assert_int_equal(y[k] != 0.0f, cases[i].kept >> k & 1);
                if (y[k] != 0.0f) assert_true(y[k] == (float)((double)x[k] / (1.0 - cases[i].drop)));
            }
            double share = (double)n_kept / (double)n_changed, sigma = sqrt(cases[i].drop * (1.0 - cases[i].drop) / (double)n_changed);
            assert_true(fabs(share - (1.0 - cases[i].drop)) < 5.0 * sigma);
            n_cases++;
            free(x);
            free(y);
        }
        const json_t *settings = json_object_get(json_object_get(s->metadata, "source"), "diff"); /* the artefact tells it, too */
        assert_true(json_real_value(json_object_get(settings, "drop")) == cases[i].drop);
        assert_int_equal(json_integer_value(json_object_get(settings, "seed")), cases[i].seed);
        json_decref(report);
        lam_slm_close(s);
    }
    assert_int_equal(n_cases, 4);
    lam_slm_close(all);
}

/* ---- low rank ---- */

struct matrix {
    uint32_t cols;
    float *values;
};

static lam_code read_rows(void *context, uint32_t first, uint32_t n, float *out, lam_error *err)
{
    const struct matrix *m = context;
    (void)err;
    memcpy(out, m->values + (size_t)first * m->cols, (size_t)n * m->cols * sizeof *out);
    return LAM_OK;
}

/* numpy.linalg.svd in float64 of the same matrices: the root of the squares beyond the rank, the first and the last singular value
 * within. SplitMix64 seeded with 1000 rows + cols; "decay": column k times 2^-k. */
static void test_low_rank_is_numpys(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows, cols, rank;
        bool decay;
        double rest, sigma[2];
    } cases[] = {{40, 60, 5, false, 22.9787051471, {8.05016835039, 6.67259315141}},
                 {60, 40, 5, false, 23.4513305225, {7.68620380807, 6.58008209075}},
                 {300, 200, 16, false, 124.862902094, {17.7369755683, 15.6449415587}},
                 {80, 24, 6, true, 0.0897208273194, {4.60821177679, 0.161155278514}},
                 {7, 5, 5, false, 0, {2.10499110807, 0.665446051816}},
                 {5, 70, 3, false, 5.95855182495, {5.74107026105, 5.08106198702}}};
    lam_error err;
    struct lam_pool *pool;
    assert_ok(lam_pool_new(2, &pool, &err), err);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t rows = cases[c].rows, cols = cases[c].cols, rank = cases[c].rank;
        uint64_t seed = rows * 1000 + cols;
        struct matrix m = {cases[c].cols, malloc(rows * cols * sizeof(float))};
        assert_non_null(m.values);
        for (size_t i = 0; i < rows * cols; i++) {
            m.values[i] = test_random_float(&seed);
            if (cases[c].decay) m.values[i] *= ldexpf(1.0f, -(int)(i % cols));
        }
        struct lam_low_rank found;
        struct lam_low_rank_source source = {cases[c].rows, cases[c].cols, read_rows, &m, pool};
        assert_ok(lam_low_rank_find(&source, cases[c].rank, &found, &err), err);
        double rest = 0.0, all = 0.0;
        for (size_t r = 0; r < rows; r++)
            for (size_t k = 0; k < cols; k++) {
                double sum = 0.0, x = (double)m.values[r * cols + k];
                for (size_t i = 0; i < rank; i++) sum += found.left[r * rank + i] * found.right[k * rank + i];
                rest += (x - sum) * (x - sum);
                all += x * x;
            }
        assert_true(sqrt(rest) <= cases[c].rest * 1.001 + 1e-9 * sqrt(all));
        assert_true(sqrt(rest) >= cases[c].rest * (1.0 - 1e-6) - 1e-9 * sqrt(all));
        assert_true(fabs(found.sigma[0] - cases[c].sigma[0]) <= 1e-4 * cases[c].sigma[0]);
        assert_true(fabs(found.sigma[rank - 1] - cases[c].sigma[1]) <= 0.02 * cases[c].sigma[1]);
        assert_true(fabs(found.squares - all) <= 1e-9 * all);
        lam_low_rank_release(&found);
        free(m.values);
    }
    lam_pool_free(pool);
}

/* Factors times each other, as they stand in the file, leave just what the report says of the difference. */
static void test_report_of_factors(void **state)
{
    (void)state;
    json_t *report, *item;
    size_t i, n_checked = 0;
    struct lam_slm *all = taken(&(lam_diff_options){.method = LAM_DIFF_DENSE}, "all.slm", NULL);
    struct lam_slm *s = taken(&(lam_diff_options){.method = LAM_DIFF_LORA, .rank = 6, .dtype = "f16"}, "lora.slm", &report);
    json_array_foreach(json_object_get(report, "tensors"), i, item) {
        char name[64];
        const char *module = json_string_value(json_object_get(item, "module"));
        if (!json_object_get(item, "rank")) continue;
        snprintf(name, sizeof name, "%s.delta", module);
        const struct lam_slm_entry *d = lam_slm_find(all, name);
        snprintf(name, sizeof name, "%s.lora_a", module);
        const struct lam_slm_entry *ea = lam_slm_find(s, name);
        snprintf(name, sizeof name, "%s.lora_b", module);
        const struct lam_slm_entry *eb = lam_slm_find(s, name);
        assert_true(d && ea && eb);
        bool embedding = strcmp(module, "token_embd") == 0;
        size_t rows = d->dims[1], cols = d->dims[0], rank = 6;
        float *x = floats_of(all, d), *a = floats_of(s, ea), *b = floats_of(s, eb);
        double rest = 0.0, whole = 0.0;
        for (size_t r = 0; r < rows; r++)
            for (size_t k = 0; k < cols; k++) {
                double sum = 0.0, v = (double)x[r * cols + k];
                for (size_t j = 0; j < rank; j++)
                    sum += embedding ? (double)a[r * rank + j] * (double)b[k * rank + j] : (double)b[r * rank + j] * (double)a[j * cols + k];
                rest += (v - sum) * (v - sum);
                whole += v * v;
            }
        assert_true(fabs(json_real_value(json_object_get(item, "norm_rest")) - sqrt(rest)) <= 1e-4 * sqrt(whole));
        assert_true(fabs(json_real_value(json_object_get(item, "norm_delta")) - sqrt(whole)) <= 1e-9 * sqrt(whole));
        n_checked++;
        free(x);
        free(a);
        free(b);
    }
    assert_true(n_checked > 3);
    json_decref(report);
    lam_slm_close(all);
    lam_slm_close(s);
}

/* llama's GGUF files hold q and k in another order of rows: a tuned Hugging Face folder over such a base gives the same model. */
static void test_order_of_rows(void **state)
{
    (void)state;
    lam_error err;
    struct lam_slm *g, *t;
    char *text;
    assert_ok(lam_import_base(GOLDEN "llama-gqa/llama-gqa-f32.gguf", in_folder("gguf.slm"), NULL, &err), err);
    lam_code code = lam_diff(in_folder("gguf.slm"), base, in_folder("none.slm"), &(lam_diff_options){.method = LAM_DIFF_DENSE}, &text, &err);
    assert_int_equal(code, LAM_E_CONFLICT); /* the same weights, though q and k lie otherwise */
    assert_ok(lam_slm_open(in_folder("gguf.slm"), &g, &err), err);
    assert_ok(lam_slm_open(base, &t, &err), err);
    const struct lam_slm_entry *a = lam_slm_find(g, "blk.0.attn_q.weight"), *b = lam_slm_find(t, "blk.0.attn_q.weight");
    assert_true(a->bytes == b->bytes && memcmp(lam_slm_tensor_data(g, a), lam_slm_tensor_data(t, b), a->bytes) != 0);
    lam_slm_close(g);
    lam_slm_close(t);
}

static void test_refusals(void **state)
{
    (void)state;
    lam_error err;
    assert_ok(lam_import_base(GOLDEN "gemma3-swa", in_folder("gemma.slm"), NULL, &err), err);
    const struct {
        const char *tuned;
        lam_diff_options options;
        lam_code code;
    } cases[] = {{base, {.method = LAM_DIFF_DENSE}, LAM_E_CONFLICT},
                 {in_folder("gemma.slm"), {.method = LAM_DIFF_DENSE}, LAM_E_ARCHITECTURE},
                 {tuned, {.method = LAM_DIFF_LORA}, LAM_E_RANK},
                 {tuned, {.method = LAM_DIFF_DENSE, .density = 1.5}, LAM_E_ARGUMENT},
                 {tuned, {.method = LAM_DIFF_DENSE, .drop = 1.0}, LAM_E_ARGUMENT},
                 {tuned, {.method = LAM_DIFF_DENSE, .dtype = "q8_0"}, LAM_E_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_code code = lam_diff(base, cases[i].tuned, in_folder("refused.slm"), &cases[i].options, NULL, &err);
        if (code != cases[i].code) fail_msg("case %zu: %s: %s", i, lam_code_name(code), err.message);
        assert_false(lam_path_exists(in_folder("refused.slm")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_is_numpys), cmocka_unit_test(test_adapter_gives_the_tuned_model),
        cmocka_unit_test(test_threads_change_nothing), cmocka_unit_test(test_density), cmocka_unit_test(test_drop),
        cmocka_unit_test(test_low_rank_is_numpys), cmocka_unit_test(test_report_of_factors), cmocka_unit_test(test_order_of_rows),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
