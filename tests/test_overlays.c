/* The overlays of activated adapters: one for each set that acts, and no more of them than are kept, however many sets there were. */
#include "alloc_meter.h"
#include "reuse_fixture.h"
#include "run/objects.h"

#define N_ADAPTERS 10 /* 1,024 sets */
#define N_SETS (1u << N_ADAPTERS)

static uint32_t invocation_of(size_t adapter) { return 200 + (uint32_t)adapter; }

/* The logits behind the invocations of a set and three tokens, in a new session of c. */
static void logits_of(lam_composition *c, unsigned set, float out[REUSE_VOCAB])
{
    uint32_t tokens[N_ADAPTERS + 3];
    size_t n = 0;
    for (size_t i = 0; i < N_ADAPTERS; i++)
        if (set >> i & 1) tokens[n++] = invocation_of(i);
    for (uint32_t i = 0; i < 3; i++) tokens[n++] = 40 + 7 * i;
    lam_session *s = fixture_session(c, n);
    lam_session_allow_base(s, true);
    reuse_feed(s, tokens, n);
    memcpy(out, lam_session_logits(s), REUSE_VOCAB * sizeof *out);
    lam_session_free(s);
}

static void compose_all(const struct reuse *r, lam_composition **out)
{
    double weights[N_ADAPTERS];
    lam_error err;
    for (size_t i = 0; i < N_ADAPTERS; i++) weights[i] = 1.0;
    assert_ok(lam_compose(r->base, r->adapters, weights, N_ADAPTERS, NULL, out, &err), err);
}

/* Every set has its turn. What the composition holds stays below what so many of its largest overlay take as are kept; and a set whose
 * overlay was dropped has the logits of a composition that never had another set. */
static void test_memory_is_flat(void **state)
{
    static struct reuse r;
    struct reuse_adapter adapters[N_ADAPTERS];
    const lam_engine_options options = {.threads = 1};
    lam_composition *c, *fresh;
    static float got[REUSE_VOCAB], want[REUSE_VOCAB];
    char names[N_ADAPTERS][8];
    (void)state;
    for (size_t i = 0; i < N_ADAPTERS; i++) {
        snprintf(names[i], sizeof names[i], "act%zu", i);
        adapters[i] = (struct reuse_adapter){names[i], {ALL, ALL}, false, 5 + i, {invocation_of(i)}, 1, false};
    }
    reuse_open(&r, REUSE_BASE, adapters, N_ADAPTERS, &options);
    logits_of(r.bare, 0, got); /* what the base allocates at its first pass */
    size_t before = meter_now;
    meter_start();
    compose_all(&r, &c);
    size_t largest = meter_bytes();
    for (unsigned set = 0; set < N_SETS; set++) {
        logits_of(c, set, got);
        if (meter_now - before > (LAM_MOST_VARIANTS + N_ADAPTERS) * largest)
            fail_msg("%zu bytes after %u sets; the largest overlay takes %zu at most", meter_now - before, set + 1, largest);
    }
    for (unsigned set = 1; set < N_SETS; set += 101) {
        logits_of(c, set, got);
        compose_all(&r, &fresh);
        logits_of(fresh, set, want);
        lam_composition_free(fresh);
        assert_memory_equal(got, want, sizeof got);
    }
    lam_composition_free(c);
    reuse_close(&r);
}

/* A plan that needs more sets at once than are kept has all of them: each session in its own. */
static void test_one_plan_of_many_sets(void **state)
{
    enum { N = 3 * LAM_MOST_VARIANTS };
    static struct reuse r;
    struct reuse_adapter adapters[N_ADAPTERS];
    const lam_engine_options options = {.threads = 1, .max_rows = N};
    lam_composition *c;
    lam_session *sessions[N];
    lam_error err;
    static float one_by_one[N][REUSE_VOCAB];
    uint32_t tokens[N];
    char names[N_ADAPTERS][8];
    (void)state;
    for (size_t i = 0; i < N_ADAPTERS; i++) {
        snprintf(names[i], sizeof names[i], "act%zu", i);
        adapters[i] = (struct reuse_adapter){names[i], {Q | V, MLP}, false, 5 + i, {invocation_of(i)}, 1, false};
    }
    reuse_open(&r, REUSE_BASE, adapters, N_ADAPTERS, &options);
    compose_all(&r, &c);
    for (unsigned round = 0; round < 2; round++)
        for (unsigned k = 0; k < N; k++) {
            uint32_t begin[N_ADAPTERS + 1];
            size_t n = 0;
            for (size_t i = 0; i < N_ADAPTERS; i++)
                if ((5 * k + 3) >> i & 1) begin[n++] = invocation_of(i);
            begin[n++] = 41;
            sessions[k] = fixture_session(c, n + 1);
            lam_session_allow_base(sessions[k], true);
            reuse_feed(sessions[k], begin, n);
            tokens[k] = 60;
            if (round == 1) continue;
            assert_ok(lam_session_step(&sessions[k], &tokens[k], 1, &err), err);
            memcpy(one_by_one[k], lam_session_logits(sessions[k]), sizeof one_by_one[k]);
            lam_session_free(sessions[k]);
        }
    assert_ok(lam_session_step(sessions, tokens, N, &err), err);
    for (unsigned k = 0; k < N; k++) {
        assert_memory_equal(lam_session_logits(sessions[k]), one_by_one[k], sizeof one_by_one[k]);
        lam_session_free(sessions[k]);
    }
    lam_composition_free(c);
    reuse_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_is_flat), cmocka_unit_test(test_one_plan_of_many_sets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
