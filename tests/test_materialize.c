/* Materialised matrices are formed a tile at a time: no float32 copy of the model, nor of more than one tensor of it. */
#include "alloc_meter.h"
#include "fixture.h"

#define BASE "tests/golden/llama-gqa"
#define METHODS "tests/golden/methods/llama-gqa/"
#define CONTEXT 32
/* of BASE (tools/golden/tiny_models.py): the embedding, 288 rows of 64 */
#define LARGEST ((size_t)288 * 64 * sizeof(float))

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

/* Methods without factors, which materialize holds in float32 once more. */
static void test_no_copy_of_the_model(void **state)
{
    (void)state;
    static const char *const adapters[] = {METHODS "dense.slm", METHODS "sparse.slm", METHODS "ia3"};
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++) {
        struct fixture f;
        fixture_import(&f, BASE, &adapters[i], 1);
        f.waive = true;
        size_t dual = peak_of(&f, LAM_POLICY_DUAL), joined = peak_of(&f, LAM_POLICY_MATERIALIZE);
        if (joined <= dual) fail_msg("%s: %zu bytes under dual, %zu under materialize: nothing was formed", adapters[i], dual, joined);
        if (joined - dual > LARGEST) fail_msg("%s: materialize takes %zu bytes more, the largest tensor has %zu", adapters[i], joined - dual, LARGEST);
        fixture_remove(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_copy_of_the_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
