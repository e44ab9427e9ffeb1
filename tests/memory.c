/* Takes the memory that a plan is of, for tests/cli/peak.py, which looks at it from outside. The command line has no way to switch a session
 * that goes on, nor to fill a prefix cache on purpose; its options are those of lamina plan:
 *     memory BASE.slm -c CONTEXT [-t THREADS] [--policy POLICY] [-a ADAPTER.slm]…
 *         --from ADAPTER.slm|base …    a full session under these adapters is switched to those of -a
 *         --prefix-cache MB            sessions of a full context follow one another until the cache is full
 * Without either it is one session with a full context. */
#include "lamina/lamina.h"
#include "lamina/reuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8

struct stack {
    const char *paths[MOST];
    lam_adapter *adapters[MOST];
    double weights[MOST];
    size_t n;
    lam_composition *composition;
};

struct memory {
    const char *base_path;
    size_t context, prefix_bytes;
    unsigned threads;
    lam_policy policy;
    bool switched;
    struct stack from, to;
    lam_engine *engine;
    lam_base *base;
    uint32_t *tokens; /* [context] */
};

static void need(lam_code code, const lam_error *err)
{
    if (code == LAM_OK) return;
    fprintf(stderr, "%s: %s\n", lam_code_name(code), err->message);
    exit(1);
}

static void read_option(struct memory *m, const char *name, const char *value)
{
    if (strcmp(name, "-c") == 0) m->context = strtoul(value, NULL, 10);
    else if (strcmp(name, "-t") == 0) m->threads = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--prefix-cache") == 0) m->prefix_bytes = strtoul(value, NULL, 10) << 20;
    else if (strcmp(name, "--policy") == 0) m->policy = strcmp(value, "materialize") == 0 ? LAM_POLICY_MATERIALIZE : LAM_POLICY_DUAL;
    else if (strcmp(name, "-a") == 0 && m->to.n < MOST) m->to.paths[m->to.n++] = value;
    else if (strcmp(name, "--from") == 0 && m->from.n < MOST) {
        m->switched = true;
        if (strcmp(value, "base") != 0) m->from.paths[m->from.n++] = value;
    } else {
        fprintf(stderr, "%s %s: not an option of this program\n", name, value);
        exit(2);
    }
}

/* An adapter that the other stack has is not loaded twice. */
static void open_stack(struct memory *m, struct stack *s, const struct stack *other)
{
    lam_error err;
    lam_compose_options options = {.policy = m->policy};
    for (size_t i = 0; i < s->n; i++) {
        s->weights[i] = other ? 1.0 : 0.5; /* after a switch no row is as before */
        for (size_t j = 0; other && j < other->n; j++)
            if (strcmp(s->paths[i], other->paths[j]) == 0) s->adapters[i] = other->adapters[j];
        if (!s->adapters[i]) need(lam_adapter_load(m->base, s->paths[i], false, &s->adapters[i], &err), &err);
    }
    need(lam_compose(m->base, s->adapters, s->weights, s->n, &options, &s->composition, &err), &err);
}

/* A session whose context is full, and one token drawn: fed n_fed tokens, and the others one by one, as if they had been drawn. */
static lam_session *full_session(struct memory *m, const struct stack *s, unsigned seed, size_t n_fed)
{
    lam_error err;
    lam_session *session;
    lam_sampling sampling;
    uint32_t token;
    lam_sampling_default(&sampling);
    for (size_t i = 0; i < m->context; i++) m->tokens[i] = 3 + (uint32_t)((i * 7 + seed * 13) % 200);
    need(lam_session_new(s->composition, m->context, &session, &err), &err);
    need(lam_session_feed(session, m->tokens, n_fed, NULL, NULL, &err), &err);
    for (size_t i = n_fed; i < m->context; i++) need(lam_session_step(&session, &m->tokens[i], 1, &err), &err);
    need(lam_session_sample(session, &sampling, &token, &err), &err);
    return session;
}

static void switch_session(struct memory *m)
{
    lam_error err;
    size_t kept;
    open_stack(m, &m->from, NULL);
    lam_session *session = full_session(m, &m->from, 0, m->context - 1);
    open_stack(m, &m->to, &m->from);
    need(lam_session_rebase(session, m->to.composition, &kept, &err), &err);
    if (kept) fprintf(stderr, "%zu rows were kept: the plan is of a switch that keeps none\n", kept);
    lam_session_free(session);
    if (kept) exit(1);
}

/* One session if there is no cache. */
static void fill_cache(struct memory *m)
{
    lam_prefix_figures figures;
    unsigned seed = 0;
    open_stack(m, &m->to, NULL);
    do {
        lam_session_free(full_session(m, &m->to, seed++, m->prefix_bytes ? 1 + m->context / 4 : m->context - 1));
        lam_engine_prefix(m->engine, &figures);
    } while (figures.budget && figures.evicted <= 2 * (m->context / 256 + 1)); /* a whole session came after the cache was full */
}

int main(int argc, char **argv)
{
    lam_error err;
    struct memory m = {.base_path = argc > 1 ? argv[1] : ""};
    for (int i = 2; i + 1 < argc; i += 2) read_option(&m, argv[i], argv[i + 1]);
    if (m.context < 2 || (m.switched && m.prefix_bytes)) return fprintf(stderr, "-c is needed, and --from or --prefix-cache or neither\n"), 2;
    m.tokens = malloc(m.context * sizeof *m.tokens);
    if (!m.tokens) return 1;
    need(lam_engine_new(&(lam_engine_options){.threads = m.threads, .prefix_cache = m.prefix_bytes}, &m.engine, &err), &err);
    need(lam_base_open(m.engine, m.base_path, LAM_VERIFY_LAZY, &m.base, &err), &err);
    if (m.switched) switch_session(&m);
    else fill_cache(&m);
    lam_composition_free(m.from.composition);
    lam_composition_free(m.to.composition);
    for (size_t i = 0; i < m.from.n; i++) lam_adapter_unload(m.from.adapters[i]);
    for (size_t i = 0; i < m.to.n; i++) {
        bool both = false;
        for (size_t j = 0; j < m.from.n; j++) both |= m.to.adapters[i] == m.from.adapters[j];
        if (!both) lam_adapter_unload(m.to.adapters[i]);
    }
    lam_base_free(m.base);
    lam_engine_free(m.engine);
    free(m.tokens);
    return 0;
}
