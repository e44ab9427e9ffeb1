/* Two adapters of one display name and other bytes: nothing is keyed to the name, so they stay apart everywhere. */
#include "reuse_fixture.h"

enum { FIRST, SECOND, FIRST_RENAMED, SECOND_RENAMED, N_ADAPTERS };

/* The renamed ones have the factors of the others. */
static const struct reuse_adapter adapters[] = {
    [FIRST] = {.name = "poet", .layer = {ALL, ALL}, .seed = 1},     [SECOND] = {.name = "poet", .layer = {ALL, ALL}, .seed = 2},
    [FIRST_RENAMED] = {.name = "one", .layer = {ALL, ALL}, .seed = 1}, [SECOND_RENAMED] = {.name = "two", .layer = {ALL, ALL}, .seed = 2},
};

static const uint32_t tokens[] = {11, 12, 13, 14, 15, 16};
#define N_TOKENS (sizeof tokens / sizeof *tokens)

static lam_composition *stack_of(const struct reuse *r, size_t a, size_t b)
{
    lam_error err;
    lam_composition *c;
    assert_ok(lam_compose(r->base, (lam_adapter *[]){r->adapters[a], r->adapters[b]}, (double[]){1.0, 0.5}, 2, NULL, &c, &err), err);
    return c;
}

static void same_future(lam_composition *a, lam_composition *b, bool same)
{
    char left[LAM_DIGEST_TEXT], right[LAM_DIGEST_TEXT];
    reuse_fresh(a, tokens, N_TOKENS, 0, left);
    reuse_fresh(b, tokens, N_TOKENS, 0, right);
    assert_true((strcmp(left, right) == 0) == same);
}

/* Each computes as if it had a name of its own, alone and together, and every identity is another one. */
static void each_acts_as_under_a_name_of_its_own(void **state)
{
    (void)state;
    struct reuse r;
    lam_adapter_info first, second;
    reuse_open(&r, REUSE_BASE, adapters, N_ADAPTERS, NULL);
    lam_adapter_describe(r.adapters[FIRST], &first);
    lam_adapter_describe(r.adapters[SECOND], &second);
    assert_string_equal(first.name, second.name);
    assert_string_not_equal(first.digest, second.digest);
    same_future(r.with[FIRST], r.with[FIRST_RENAMED], true);
    same_future(r.with[SECOND], r.with[SECOND_RENAMED], true);
    same_future(r.with[FIRST], r.with[SECOND], false);
    lam_composition *both = stack_of(&r, FIRST, SECOND), *turned = stack_of(&r, SECOND, FIRST), *renamed = stack_of(&r, FIRST_RENAMED, SECOND_RENAMED);
    same_future(both, renamed, true);
    same_future(both, turned, false);
    const char *ids[] = {lam_composition_id(r.with[FIRST]), lam_composition_id(r.with[SECOND]), lam_composition_id(both), lam_composition_id(turned)};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < i; j++) assert_string_not_equal(ids[i], ids[j]);
    lam_composition_free(both);
    lam_composition_free(turned);
    lam_composition_free(renamed);
    reuse_close(&r);
}

/* Neither rows in the prefix cache nor a saved session of the one serve the other. */
static void nothing_of_one_serves_the_other(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    char path[600];
    reuse_open(&r, REUSE_BASE, adapters, N_ADAPTERS, &(lam_engine_options){.prefix_cache = 16u << 20});
    lam_session *s = fixture_session(r.with[FIRST], 40);
    reuse_feed(s, tokens, N_TOKENS);
    snprintf(path, sizeof path, "%s/poet.session", r.folder);
    assert_ok(lam_session_save(s, path, &err), err);
    lam_session_free(s);
    static const size_t order[] = {SECOND, FIRST, SECOND}, cached[] = {0, N_TOKENS - 1, N_TOKENS - 1};
    for (size_t i = 0; i < 3; i++) {
        s = fixture_session(r.with[order[i]], 40);
        reuse_feed(s, tokens, N_TOKENS);
        assert_int_equal(lam_session_cached(s), cached[i]);
        lam_session_free(s);
    }
    assert_int_equal(lam_session_restore(r.with[SECOND], path, NULL, &s, &err), LAM_E_KV_REVISION);
    assert_null(s);
    assert_ok(lam_session_restore(r.with[FIRST], path, NULL, &s, &err), err);
    lam_session_free(s);
    reuse_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_acts_as_under_a_name_of_its_own), cmocka_unit_test(nothing_of_one_serves_the_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
