/* The bytes that a token reads, by hand from the shapes and types of the golden models, and the bandwidth that bounds them. */
#define _POSIX_C_SOURCE 200809L

#include "fixture.h"

#include <unistd.h>

#define SWA "tests/golden/gemma3-swa/gemma3-swa-q8_0.gguf"
#define GQA "tests/golden/llama-gqa/llama-gqa-f32.gguf"

static void assert_next(lam_session *session, uint64_t weights, uint64_t kv)
{
    uint64_t got_weights, got_kv;
    lam_session_next_bytes(session, &got_weights, &got_kv);
    assert_int_equal(got_weights, weights);
    assert_int_equal(got_kv, kv);
}

/* Q8_0 has 34 bytes for 32 weights. Width 64, 4 heads of 16 on one KV head, 32 wide feed-forward, 288 tokens, tied. A tile of
 * 16 rows of 32 is 544 bytes and stands on 576. K and V of a position are 16 float16 each. Six of seven layers see 16 positions. */
static void test_window(void **state)
{
    struct fixture f;
    uint32_t tokens[40];
    lam_error err;
    (void)state;
    fixture_import(&f, SWA, NULL, 0);
    fixture_open(&f, NULL);
    fixture_tokens(1, 288, tokens, 40);
    lam_composition *c = fixture_compose(&f, NULL, 0);
    lam_session *s = fixture_session(c, 64);
    uint64_t down = 64 / 16 * 576, per_layer = (2 * 32 * 64 + 2 * 16 * 64 + 2 * 64 * 64) / 32 * 34 + down;
    uint64_t weights = 288 * 64 / 32 * 34 + 7 * per_layer;
    assert_next(s, weights, 7 * 1 * 64);
    assert_ok(lam_session_feed(s, tokens, 15, NULL, NULL, &err), err);
    assert_next(s, weights, 7 * 16 * 64);
    assert_ok(lam_session_feed(s, tokens + 15, 25, NULL, NULL, &err), err);
    assert_next(s, weights, (6 * 16 + 41) * 64);
    assert_ok(lam_session_truncate(s, 10, &err), err);
    assert_next(s, weights, 7 * 11 * 64);
    lam_session_free(s);
    lam_composition_free(c);
    fixture_close(&f);
    fixture_remove(&f);
}

/* Float32, two layers, 2 KV heads of 16, a head of its own (the embedding is not counted); 108 rows are stored as 112. */
static void test_untied(void **state)
{
    struct fixture f;
    (void)state;
    fixture_import(&f, GQA, NULL, 0);
    fixture_open(&f, NULL);
    lam_composition *c = fixture_compose(&f, NULL, 0);
    lam_session *s = fixture_session(c, 64);
    uint64_t per_layer = (2 * 64 * 64 + 2 * 32 * 64 + 2 * 112 * 64 + 64 * 108) * 4;
    assert_next(s, 288 * 64 * 4 + 2 * per_layer, 2 * 2 * 2 * 16 * 4);
    lam_session_free(s);
    lam_composition_free(c);
    fixture_close(&f);
    fixture_remove(&f);
}

static void test_bandwidth(void **state)
{
    struct fixture f;
    lam_error err;
    double rate;
    (void)state;
    fixture_import(&f, GQA, NULL, 0);
    for (unsigned threads = 1; threads <= 3; threads++) {
        fixture_open(&f, &(lam_engine_options){.threads = threads});
        rate = 0.0;
        assert_ok(lam_base_read_bandwidth(f.base, &rate, &err), err);
        assert_true(rate > 1e6);  /* a page a millisecond would be more */
        assert_true(rate < 1e14);
        if (threads < 3) fixture_close(&f);
    }
    assert_int_equal(truncate(f.base_path, 4096), 0);
    assert_int_equal(lam_base_read_bandwidth(f.base, &rate, &err), LAM_E_CHANGED);
    fixture_close(&f);
    fixture_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_untied),
        cmocka_unit_test(test_bandwidth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
