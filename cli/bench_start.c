/* What comes before the steady state: a switch between compositions, and loading. */
#include "bench.h"

#define SWITCHES 8       /* there and back, a run */
#define POSITION 128     /* where both sessions stand */
#define FIRST_PROMPT 4   /* tokens */

/* B is the base where the command line has adapters, else a second composition of the same. */
static lam_code make_pair(struct bench *b, lam_error *err)
{
    lam_code code = b->all.n_adapters ? lam_compose(b->all.base, NULL, NULL, 0, &b->all.compose, &b->other, err)
                                      : compose(&b->all, false, &b->other, err);
    lam_composition *both[2] = {b->all.composition, b->other};
    for (size_t i = 0; code == LAM_OK && i < 2; i++) code = bench_place(b, both[i], POSITION, &b->pair[i], err);
    return code;
}

static lam_code time_step(struct bench *b, lam_session *session, double *seconds, lam_error *err)
{
    uint32_t token = bench_token(b, lam_session_length(session));
    double start = now_seconds();
    lam_code code = lam_session_step(&session, &token, 1, err);
    *seconds = now_seconds() - start;
    return code;
}

static lam_code time_compose(struct bench *b, lam_error *err)
{
    lam_composition *composition;
    double start = now_seconds();
    lam_code code = compose(&b->all, false, &composition, err);
    series_add(&b->compose, now_seconds() - start);
    if (code == LAM_OK) lam_composition_free(composition);
    return code;
}

/* A A B B A A …: each session's step after a switch, and its next one. */
lam_code bench_switch_run(struct bench *b, lam_error *err)
{
    struct series first = {.n = 0}, steady = {.n = 0};
    lam_code code = b->other ? LAM_OK : make_pair(b, err);
    if (code == LAM_OK) code = time_compose(b, err);
    for (size_t i = 0; code == LAM_OK && i < 2 * SWITCHES; i++) {
        double after, next;
        lam_session *session = b->pair[i % 2];
        code = lam_session_truncate(session, POSITION, err);
        if (code == LAM_OK) code = time_step(b, session, &after, err);
        if (code == LAM_OK) code = time_step(b, session, &next, err);
        if (code != LAM_OK || i == 0) continue; /* before the first of all came something else */
        series_add(&first, after);
        series_add(&steady, next);
    }
    if (code != LAM_OK) return code;
    series_add(&b->first, series_median(&first));
    series_add(&b->steady, series_median(&steady));
    series_add(&b->difference, series_median(&first) - series_median(&steady));
    return LAM_OK;
}

static lam_code time_load(struct bench *b, lam_engine **engine, lam_base **base, lam_composition **composition, lam_error *err)
{
    lam_engine_options options = {.threads = lam_engine_threads(b->all.engine), .isa = lam_engine_isa(b->all.engine)};
    double start = now_seconds();
    lam_code code = lam_engine_new(&options, engine, err);
    if (code == LAM_OK) code = lam_base_open(*engine, b->all.base_path, LAM_VERIFY_OFF, base, err);
    if (code == LAM_OK) code = lam_compose(*base, NULL, NULL, 0, &b->all.compose, composition, err);
    series_add(&b->ready, now_seconds() - start);
    return code;
}

static lam_code time_first_token(struct bench *b, lam_composition *composition, lam_error *err)
{
    lam_session *session = NULL;
    uint32_t tokens[FIRST_PROMPT];
    for (size_t i = 0; i < FIRST_PROMPT; i++) tokens[i] = bench_token(b, i);
    double start = now_seconds();
    lam_code code = lam_session_new(composition, 0, &session, err);
    if (code == LAM_OK) code = lam_session_feed(session, tokens, FIRST_PROMPT, NULL, NULL, err);
    series_add(&b->first_token, now_seconds() - start);
    lam_session_free(session);
    return code;
}

/* All objects anew, the file in the system's cache: to the base being ready, then to the logits behind a short prompt; apart from
 * that, all bytes verified. */
lam_code bench_load_run(struct bench *b, lam_error *err)
{
    lam_engine *engine = NULL;
    lam_base *base = NULL;
    lam_composition *composition = NULL;
    lam_code code = time_load(b, &engine, &base, &composition, err);
    if (code == LAM_OK) code = time_first_token(b, composition, err);
    double start = now_seconds();
    if (code == LAM_OK) code = lam_base_verify(base, NULL, err);
    series_add(&b->verify, now_seconds() - start);
    lam_composition_free(composition);
    lam_base_free(base);
    lam_engine_free(engine);
    return code;
}
