/* Sessions of every method, under either policy and under none, meet in one plan: each row has the bits that it has alone. */
#include "fixture.h"

#include "run/objects.h"

#define MOST 16             /* adapters of a meeting */
#define MOST_GUESTS (2 * MOST + 1)
#define PROMPT 12
#define STEPS 6
#define CONTEXT (PROMPT + STEPS + MOST_GUESTS)

struct meeting {
    const char *base, *methods, *adapters[MOST]; /* the folder of the adapters, and their names; the last is NULL */
    bool quantised;
};

#define COMMON "lora", "rslora", "dora", "dora-b", "ia3", "ia3-joined", "alora", "alora-b", "lora-bias", "norms", \
               "saved-head", "embed", "sparse.slm", "dense.slm"
#define LLAMA "tests/golden/llama-gqa"
#define QWEN "tests/golden/qwen2-tied"
static const struct meeting meetings[] = {
    {LLAMA "/llama-gqa-q4_0.gguf", "tests/golden/methods/llama-gqa/", {COMMON, "saved-embed"}, true},
    {LLAMA, "tests/golden/methods/llama-gqa/", {COMMON, "saved-embed"}, false},
    {QWEN "/qwen2-tied-q8_0.gguf", "tests/golden/methods/qwen2-tied/", {COMMON, "bias-all"}, true},
    {QWEN, "tests/golden/methods/qwen2-tied/", {COMMON, "bias-all"}, false},
};

/* One composition, with a session for the plan, one for it alone, and one of the bare base with the same tokens. */
struct guest {
    const char *name;
    lam_policy policy;
    lam_composition *composition;
    lam_session *met, *alone, *bare;
    uint32_t tokens[CONTEXT];
    size_t n_prompt;
    bool acts;
};

struct party {
    struct fixture f;
    size_t n_vocab;
    lam_composition *bare;
    struct guest guests[MOST_GUESTS];
    size_t n;
};

/* tokens[CONTEXT], no two guests' the same, with the invocation, if there is one, in the midst of the prompt. */
static void choose_tokens(const struct party *p, const lam_adapter *adapter, struct guest *g)
{
    lam_adapter_info info = {0};
    fixture_tokens(7 + p->n, p->n_vocab, g->tokens, CONTEXT);
    g->n_prompt = PROMPT + p->n; /* no two of one length, either */
    if (adapter) lam_adapter_describe(adapter, &info);
    if (info.invocation) memcpy(g->tokens + PROMPT / 2, info.invocation, info.n_invocation * sizeof *g->tokens);
}

static lam_session *begin(lam_composition *c, const struct guest *g)
{
    lam_error err;
    lam_session *s = fixture_session(c, CONTEXT);
    assert_ok(lam_session_feed(s, g->tokens, g->n_prompt, NULL, NULL, &err), err);
    return s;
}

/* adapter NULL: the base itself. Every second one has a weight other than 1. */
static void invite(struct party *p, const char *name, lam_adapter *adapter, lam_policy policy)
{
    lam_error err;
    struct guest *g = &p->guests[p->n];
    *g = (struct guest){.name = name, .policy = policy};
    lam_compose_options options = {.policy = policy};
    double weight = p->n / 2 % 2 ? 0.5 : 1.0;
    assert_ok(lam_compose(p->f.base, &adapter, &weight, adapter ? 1 : 0, &options, &g->composition, &err), err);
    choose_tokens(p, adapter, g);
    g->met = begin(g->composition, g);
    g->alone = begin(g->composition, g);
    g->bare = begin(p->bare, g);
    p->n++;
}

static void open_party(struct party *p, const struct meeting *m, unsigned threads)
{
    lam_error err;
    char paths[MOST][256];
    const char *sources[MOST];
    size_t n = 0;
    memset(p, 0, sizeof *p);
    for (; n < MOST && m->adapters[n]; n++) {
        snprintf(paths[n], sizeof paths[n], "%s%s", m->methods, m->adapters[n]);
        sources[n] = paths[n];
    }
    fixture_import(&p->f, m->base, sources, n);
    p->f.waive = true; /* the deltas are bound to no base */
    fixture_open(&p->f, &(lam_engine_options){.threads = threads});
    p->n_vocab = fixture_vocab(&p->f);
    assert_ok(lam_compose(p->f.base, NULL, NULL, 0, NULL, &p->bare, &err), err);
    for (size_t i = 0; i < n; i++)
        for (int policy = LAM_POLICY_DUAL; policy <= LAM_POLICY_MATERIALIZE; policy++)
            invite(p, m->adapters[i], p->f.adapters[i], (lam_policy)policy);
    invite(p, "base", NULL, LAM_POLICY_DUAL);
}

static void close_party(struct party *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct guest *g = &p->guests[i];
        lam_session_free(g->met);
        lam_session_free(g->alone);
        lam_session_free(g->bare);
        lam_composition_free(g->composition);
    }
    lam_composition_free(p->bare);
    fixture_close(&p->f);
    fixture_remove(&p->f);
}

/* One token of every guest in one plan, whose rows begin with another guest each time. */
static void step_together(struct party *p, size_t step)
{
    lam_error err;
    lam_session *sessions[MOST_GUESTS];
    uint32_t tokens[MOST_GUESTS];
    for (size_t i = 0; i < p->n; i++) {
        const struct guest *g = &p->guests[(i + step * 5) % p->n];
        sessions[i] = g->met;
        tokens[i] = g->tokens[g->n_prompt + step];
    }
    uint64_t plans = lam_forward_plans(p->f.base->forward);
    assert_ok(lam_session_step(sessions, tokens, p->n, &err), err);
    assert_int_equal(lam_forward_plans(p->f.base->forward), plans + 1);
}

static void check_guest(const struct party *p, struct guest *g, size_t step)
{
    lam_error err;
    const uint32_t *token = &g->tokens[g->n_prompt + step];
    size_t bytes = p->n_vocab * sizeof(float);
    assert_ok(lam_session_step(&g->alone, token, 1, &err), err);
    assert_ok(lam_session_step(&g->bare, token, 1, &err), err);
    if (memcmp(lam_session_logits(g->met), lam_session_logits(g->alone), bytes) != 0)
        fail_msg("%s under policy %d, step %zu: other logits in company than alone", g->name, (int)g->policy, step);
    g->acts |= memcmp(lam_session_logits(g->bare), lam_session_logits(g->alone), bytes) != 0;
}

static void meet(const struct meeting *m, unsigned threads)
{
    static struct party p;
    open_party(&p, m, threads);
    for (size_t step = 0; step < STEPS; step++) {
        step_together(&p, step);
        for (size_t i = 0; i < p.n; i++) check_guest(&p, &p.guests[i], step);
    }
    for (size_t i = 0; i < p.n; i++)
        if (p.guests[i].acts != (p.guests[i].composition->n_adapters > 0))
            fail_msg("%s under policy %d has the base's logits, or the base has others", p.guests[i].name, (int)p.guests[i].policy);
    close_party(&p);
}

static void test_one_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof meetings / sizeof *meetings; i++)
        for (unsigned threads = 1; threads <= 3; threads += 2) meet(&meetings[i], threads);
}

/* Of a quantised base the policies make different bits, so that either was computed as it was asked for. */
static void test_policies_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof meetings / sizeof *meetings; i++) {
        static struct party p;
        if (!meetings[i].quantised) continue;
        open_party(&p, &meetings[i], 2);
        for (size_t k = 0; k + 1 < p.n; k += 2) {
            lam_session *joined = begin(p.guests[k + 1].composition, &p.guests[k]), *dual = p.guests[k].alone;
            if (memcmp(lam_session_logits(dual), lam_session_logits(joined), p.n_vocab * sizeof(float)) == 0)
                fail_msg("%s: the same logits under either policy", p.guests[k].name);
            lam_session_free(joined);
        }
        close_party(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_plan), cmocka_unit_test(test_policies_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
