/* Prefill, decode and batched decode, with the adapters and without them. */
#include "bench.h"

#include <stdlib.h>

#define DECODE_POSITION 128 /* of the first token decoded */
#define PASSES_OF_BATCH 4   /* a batch makes this part of decode's passes */
#define CHUNK 512           /* tokens of a history fed between two looks at Ctrl-C */

static const size_t policy_prefills[] = {32, 128, 512, 2048, 4096};
#define N_POLICY_PREFILLS (sizeof policy_prefills / sizeof *policy_prefills)

uint32_t bench_token(const struct bench *b, size_t i)
{
    return i < b->n_lead ? b->lead[i] : (uint32_t)((i * 7919 + 17) % b->all.info.n_vocab);
}

static lam_code advance(struct bench *b, uint64_t tokens, lam_error *err)
{
    b->done += tokens;
    if (progress_step(&b->progress, "bench", b->done, b->total)) return LAM_OK;
    return fail(err, LAM_E_CANCELLED, "stopped");
}

static lam_code feed(struct bench *b, lam_session *session, size_t n, lam_error *err)
{
    size_t at = lam_session_length(session);
    uint32_t *tokens = malloc(n * sizeof *tokens);
    if (!tokens) return fail_memory(err);
    for (size_t i = 0; i < n; i++) tokens[i] = bench_token(b, at + i);
    lam_code code = lam_session_feed(session, tokens, n, NULL, NULL, err);
    free(tokens);
    return code;
}

/* Room for whatever any rate feeds. */
static size_t room(const struct bench *b)
{
    size_t most = b->n_prefill, decode = DECODE_POSITION + b->n_decode;
    if (b->parts & BENCH_POLICIES && most < policy_prefills[N_POLICY_PREFILLS - 1]) most = policy_prefills[N_POLICY_PREFILLS - 1];
    if (decode > most) most = decode;
    return (b->context > most ? b->context : most) + 1;
}

lam_code bench_place(struct bench *b, lam_composition *composition, size_t position, lam_session **session, lam_error *err)
{
    lam_code code = *session ? LAM_OK : lam_session_new(composition, room(b), session, err);
    if (code == LAM_OK) lam_session_allow_base(*session, true); /* a history too short for the lead is the base's */
    if (code == LAM_OK && lam_session_length(*session) > position) code = lam_session_truncate(*session, position, err);
    while (code == LAM_OK && lam_session_length(*session) < position) {
        size_t left = position - lam_session_length(*session);
        code = feed(b, *session, left < CHUNK ? left : CHUNK, err);
        if (code == LAM_OK) code = advance(b, 0, err);
    }
    return code;
}

static lam_session **sessions_of(struct bench *b, const struct bench_rate *r)
{
    return r->part == BENCH_CONTEXT ? &b->far[r->composition] : b->sessions[r->composition];
}

static lam_code place_all(struct bench *b, const struct bench_rate *r, size_t position, lam_error *err)
{
    lam_session **sessions = sessions_of(b, r);
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < r->sessions; i++)
        code = bench_place(b, b->compositions[r->composition], position, &sessions[i], err);
    return code;
}

static size_t at_least_one(size_t n, size_t part) { return n && n < part ? 1 : n / part; }

static void add_rate(struct bench *b, enum bench_part part, size_t composition, size_t sessions, size_t tokens, size_t position)
{
    if (tokens == 0 || b->n_rates == BENCH_MOST_RATES) return;
    b->rates[b->n_rates++] = (struct bench_rate){.part = part, .composition = composition, .sessions = sessions, .tokens = tokens,
                                                 .position = position};
    b->total += b->n_runs * sessions * tokens;
}

/* Of the stack, and then of the base to compare with. */
static void add_compared(struct bench *b, enum bench_part part, size_t tokens, size_t position)
{
    add_rate(b, part, BENCH_STACK, 1, tokens, position);
    if (b->compositions[BENCH_BASE] && b->parts & BENCH_ADAPTERS) add_rate(b, part, BENCH_BASE, 1, tokens, position);
}

/* Under either policy: decoding, and prompts of several lengths. */
static void add_policies(struct bench *b)
{
    for (size_t c = BENCH_STACK; c < BENCH_COMPOSITIONS; c += BENCH_OTHER_POLICY)
        add_rate(b, BENCH_DECODE, c, 1, at_least_one(b->n_decode, PASSES_OF_BATCH), DECODE_POSITION);
    for (size_t i = 0; i < N_POLICY_PREFILLS; i++)
        for (size_t c = BENCH_STACK; c < BENCH_COMPOSITIONS; c += BENCH_OTHER_POLICY)
            add_rate(b, BENCH_PREFILL, c, 1, policy_prefills[i], 0);
}

/* What the pass halfway reads. Going there also touches all memory once, before anything is timed. */
static lam_code count_bytes(struct bench *b, struct bench_rate *r, lam_error *err)
{
    lam_session **sessions = sessions_of(b, r);
    lam_code code = place_all(b, r, r->position + r->tokens / 2, err);
    for (size_t i = 0; code == LAM_OK && i < r->sessions; i++) {
        uint64_t kv;
        lam_session_next_bytes(sessions[i], &r->weight_bytes, &kv);
        r->kv_bytes += kv;
    }
    if (r->composition != BENCH_BASE) r->weight_bytes += b->adapter_bytes;
    return code;
}

lam_code bench_rates_plan(struct bench *b, lam_error *err)
{
    lam_code code = LAM_OK;
    if (b->parts & BENCH_PREFILL) add_compared(b, BENCH_PREFILL, b->n_prefill, 0);
    if (b->parts & BENCH_DECODE) add_compared(b, BENCH_DECODE, b->n_decode, DECODE_POSITION);
    for (size_t i = 0; (b->parts & BENCH_BATCH) && i < b->n_batches; i++)
        add_rate(b, BENCH_BATCH, BENCH_STACK, b->batches[i], at_least_one(b->n_decode, PASSES_OF_BATCH), DECODE_POSITION);
    size_t far = at_least_one(b->n_decode, PASSES_OF_BATCH);
    if ((b->parts & BENCH_CONTEXT) && b->context > far) add_compared(b, BENCH_CONTEXT, far, b->context - far);
    if (b->compositions[BENCH_OTHER_POLICY]) add_policies(b);
    for (size_t i = 0; code == LAM_OK && i < b->n_rates; i++) code = count_bytes(b, &b->rates[i], err);
    return code;
}

static lam_code time_feed(struct bench *b, struct bench_rate *r, lam_session *session, lam_error *err)
{
    double start = now_seconds();
    lam_code code = feed(b, session, r->tokens, err);
    series_add(&r->seconds, now_seconds() - start);
    return code == LAM_OK ? advance(b, r->tokens, err) : code;
}

static lam_code time_steps(struct bench *b, struct bench_rate *r, lam_session *const sessions[], lam_error *err)
{
    uint32_t tokens[BENCH_MOST_SESSIONS];
    lam_code code = LAM_OK;
    double start = now_seconds();
    for (size_t i = 0; code == LAM_OK && i < r->tokens; i++) {
        for (size_t k = 0; k < r->sessions; k++) tokens[k] = bench_token(b, r->position + i + k);
        code = lam_session_step(sessions, tokens, r->sessions, err);
        if (code == LAM_OK) code = advance(b, r->sessions, err);
    }
    series_add(&r->seconds, now_seconds() - start);
    return code;
}

/* The rates of a comparison follow each other: the stack's, then the other one's. */
static void compare(struct bench_rate *stack, const struct bench_rate *other)
{
    double own = stack->seconds.values[stack->seconds.n - 1];
    stack->compared = other->composition;
    if (own > 0.0) series_add(&stack->ratio, other->seconds.values[other->seconds.n - 1] / own);
}

lam_code bench_rates_run(struct bench *b, lam_error *err)
{
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < b->n_rates; i++) {
        struct bench_rate *r = &b->rates[i];
        code = place_all(b, r, r->position, err);
        if (code != LAM_OK) return code;
        code = r->part == BENCH_PREFILL ? time_feed(b, r, *sessions_of(b, r), err) : time_steps(b, r, sessions_of(b, r), err);
        if (code == LAM_OK && r->composition != BENCH_STACK) compare(r - 1, r);
    }
    return code;
}
