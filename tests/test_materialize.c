/* Materialised matrices are formed a tile at a time: no float32 copy of the model, nor of more than one tensor of it. Loading holds nothing
 * twice either. */
#include "alloc_meter.h"
#include "fixture.h"

#define METHODS "tests/golden/methods/llama-gqa/"
#define CONTEXT 32

/* The matrices of a layer of the base (tools/golden/tiny_models.py), of which there are two. */
static const struct matrix { const char *name; size_t rows, cols; } matrices[] = {
    {"q", 64, 64}, {"k", 32, 64}, {"v", 32, 64}, {"o", 64, 64}, {"gate", 108, 64}, {"up", 108, 64}, {"down", 64, 108}};
#define N_MATRICES (sizeof matrices / sizeof *matrices)
#define N_LAYERS 2
#define LARGEST ((size_t)288 * 64 * sizeof(float)) /* the embedding */

/* Factors of a rank in float32 on the named matrices: A, and B in tiles of 16 rows. */
static size_t factor_bytes(size_t rank, const char *names)
{
    size_t values = 0;
    for (size_t i = 0; i < N_MATRICES; i++)
        if (strstr(names, matrices[i].name)) values += rank * (matrices[i].cols + (matrices[i].rows + 15) / 16 * 16);
    return N_LAYERS * values * sizeof(float);
}

static size_t model_bytes(void)
{
    size_t values = 0;
    for (size_t i = 0; i < N_MATRICES; i++) values += matrices[i].rows * matrices[i].cols;
    return N_LAYERS * values * sizeof(float);
}

/* The most that is allocated from the composition on to the last token. */
static size_t peak_of(struct fixture *f, lam_policy policy)
{
    lam_error err;
    const double weight = 0.5;
    uint32_t tokens[CONTEXT];
    for (uint32_t i = 0; i < CONTEXT; i++) tokens[i] = 3 + i * 7 % 200;
    fixture_open(f, &(lam_engine_options){.threads = 1});
    f->compose.policy = policy;
    meter_start();
    lam_composition *c = fixture_compose(f, &weight, 1);
    lam_session *s = fixture_session(c, CONTEXT);
    assert_ok(lam_session_feed(s, tokens, CONTEXT - 1, NULL, NULL, &err), err);
    assert_ok(lam_session_step(&s, &tokens[CONTEXT - 1], 1, &err), err);
    size_t bytes = meter_bytes();
    lam_session_free(s);
    lam_composition_free(c);
    fixture_close(f);
    return bytes;
}

/* Factors are held in float32 once more under materialize; of what has none, nothing is. */
static void test_no_copy_of_the_model(void **state)
{
    (void)state;
    static const char *const bases[] = {"tests/golden/llama-gqa", "tests/golden/llama-gqa/llama-gqa-q4_0.gguf"};
    static const struct { const char *source; size_t rank; const char *on; } adapters[] = {
        {METHODS "dense.slm", 0, ""}, {METHODS "sparse.slm", 0, ""}, {METHODS "ia3", 0, ""},
        {METHODS "lora", 4, "q k v o gate up down"}, {METHODS "rslora", 8, "q v up"}, {METHODS "dora", 4, "q k v o gate up down"}};
    for (size_t k = 0; k < sizeof bases / sizeof *bases; k++)
        for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++) {
            struct fixture f;
            fixture_import(&f, bases[k], &adapters[i].source, 1);
            f.waive = true;
            size_t dual = peak_of(&f, LAM_POLICY_DUAL), joined = peak_of(&f, LAM_POLICY_MATERIALIZE);
            size_t most = LARGEST + factor_bytes(adapters[i].rank, adapters[i].on);
            assert_true(most < model_bytes()); /* a copy would be noticed */
            if (joined <= dual) fail_msg("%s: %zu bytes under dual, %zu under materialize: nothing was formed", adapters[i].source, dual, joined);
            if (joined - dual > most)
                fail_msg("%s on %s: materialize takes %zu bytes more; the largest tensor and the factors have %zu", adapters[i].source, bases[k],
                         joined - dual, most);
            fixture_remove(&f);
        }
}

/* A base is mapped, and no byte of it is copied; loading adapters and composing them allocates at no moment more than a tenth above what
 * stays. */
static void test_loading_peaks_at_what_stays(void **state)
{
    (void)state;
    static const char *const adapters[] = {"data/adapters/oz", "data/adapters/shakespeare"};
    const double weights[] = {1, 0.5};
    struct fixture f;
    lam_error err;
    size_t size;
    fixture_import(&f, "data/stories260K-Q8_0.gguf", adapters, 2);
    free(test_read_file(f.base_path, &size));
    assert_ok(lam_engine_new(&(lam_engine_options){.threads = 1}, &f.engine, &err), err);
    meter_start();
    assert_ok(lam_base_open(f.engine, f.base_path, LAM_VERIFY_FULL, &f.base, &err), err);
    if (meter_bytes() > size / 10 + (meter_now - meter_base))
        fail_msg("opening a base of %zu bytes allocates %zu, of which %zu stay", size, meter_bytes(), meter_now - meter_base);
    for (size_t i = 0; i < 2; i++) {
        assert_ok(lam_adapter_load(f.base, f.adapter_paths[i], false, &f.adapters[i], &err), err);
        if (meter_bytes() + size > (meter_now - meter_base + size) * 11 / 10)
            fail_msg("%s: %zu bytes at most, of which %zu stay", adapters[i], meter_bytes(), meter_now - meter_base);
    }
    lam_composition *c = fixture_compose(&f, weights, 2);
    size_t stays = meter_now - meter_base + size;
    if (meter_bytes() + size > stays * 11 / 10) fail_msg("%zu bytes at most, of which %zu stay", meter_bytes() + size, stays);
    lam_composition_free(c);
    fixture_close(&f);
    fixture_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_copy_of_the_model), cmocka_unit_test(test_loading_peaks_at_what_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
