/* lamina bench: prefill, decode and batch rates beside the memory's own, adapters, switch and load times, memory. */
#include "bench.h"
#include "commands.h"
#include "default_model.h"
#include "process.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_PREFILL 512
#define DEFAULT_DECODE 64
#define DEFAULT_RUNS 5
#define BANDWIDTH_SECONDS 0.03 /* of passes over the weights, the fastest of which counts */

static bool parse_sessions(struct bench *b)
{
    const char *list = b->options->sessions ? b->options->sessions : "4,8,16", *word;
    size_t len;
    while ((word = bench_next_word(&list, &len))) {
        char *end;
        unsigned long n = strtoul(word, &end, 10);
        if (end != word + len || *word < '0' || *word > '9' || n < 1 || n > BENCH_MOST_SESSIONS || b->n_batches == BENCH_MOST_BATCHES) {
            usage(b->options, "--sessions %s: up to %d numbers from 1 to %d are possible", b->options->sessions, BENCH_MOST_BATCHES,
                  BENCH_MOST_SESSIONS);
            return false;
        }
        b->batches[b->n_batches++] = n;
    }
    return true;
}

static lam_code time_bandwidth(struct bench *b, lam_error *err)
{
    double best = 0.0, start = now_seconds();
    lam_code code = LAM_OK;
    for (int i = 0; code == LAM_OK && (i < 3 || now_seconds() - start < BANDWIDTH_SECONDS); i++) {
        double rate = 0.0;
        code = lam_base_read_bandwidth(b->all.base, &rate, err);
        if (rate > best) best = rate;
    }
    series_add(&b->bandwidth, best);
    return code;
}

/* The same stack, with materialize and dual the other way round. */
static lam_code compose_other_policy(struct bench *b, lam_error *err)
{
    struct opened other = b->all;
    if (b->all.n_adapters == 0) return fail(err, LAM_E_ARGUMENT, "--only policies needs adapters: a base alone is the same under both");
    other.compose.policy = b->all.compose.policy == LAM_POLICY_DUAL ? LAM_POLICY_MATERIALIZE : LAM_POLICY_DUAL;
    return compose(&other, false, &b->compositions[BENCH_OTHER_POLICY], err);
}

static lam_code add_lead(struct bench *b, const lam_adapter_info *info, lam_error *err)
{
    if (info->n_invocation == 0) return LAM_OK;
    uint32_t *longer = realloc(b->lead, (b->n_lead + info->n_invocation) * sizeof *longer);
    if (!longer) return fail_memory(err);
    b->lead = longer;
    memcpy(b->lead + b->n_lead, info->invocation, info->n_invocation * sizeof *longer);
    b->n_lead += info->n_invocation;
    return LAM_OK;
}

static lam_code prepare(struct bench *b, lam_error *err)
{
    lam_code code = LAM_OK;
    b->anonymous = process_anonymous_bytes();
    b->compositions[BENCH_STACK] = b->all.composition;
    if (b->all.n_adapters)
        code = lam_compose(b->all.base, NULL, NULL, 0, &(lam_compose_options){.kv = b->all.compose.kv}, &b->compositions[BENCH_BASE], err);
    if (code == LAM_OK && b->parts & BENCH_POLICIES) code = compose_other_policy(b, err);
    for (size_t i = 0; code == LAM_OK && i < b->all.n_adapters; i++) {
        lam_adapter_info info;
        lam_adapter_describe(b->all.adapters[i].adapter, &info);
        code = add_lead(b, &info, err);
        if (b->all.adapters[i].weight != 0.0) b->adapter_bytes += info.staged_bytes;
    }
    return code == LAM_OK ? bench_rates_plan(b, err) : code;
}

static lam_code measure(struct bench *b, lam_error *err)
{
    progress_begin(&b->progress, b->options, true);
    lam_code code = prepare(b, err);
    for (size_t i = 0; code == LAM_OK && i < b->n_runs; i++) {
        if (b->parts & BENCH_BANDWIDTH) code = time_bandwidth(b, err);
        if (code == LAM_OK) code = bench_rates_run(b, err);
        if (code == LAM_OK && b->parts & BENCH_SWITCH) code = bench_switch_run(b, err);
        if (i == 0) b->peak = process_peak_bytes();
        if (code == LAM_OK && b->parts & BENCH_LOAD) code = bench_load_run(b, err);
    }
    progress_end(&b->progress);
    return code;
}

static void release(struct bench *b)
{
    for (size_t c = 0; c < BENCH_COMPOSITIONS; c++) {
        for (size_t k = 0; k < BENCH_MOST_SESSIONS; k++) lam_session_free(b->sessions[c][k]);
        lam_session_free(b->far[c]);
        if (c != BENCH_STACK) lam_composition_free(b->compositions[c]);
    }
    for (size_t i = 0; i < 2; i++) lam_session_free(b->pair[i]);
    lam_composition_free(b->other);
    free(b->lead);
    close_all(&b->all);
}

static int run(struct bench *b)
{
    lam_error err;
    int status = 0;
    lam_code code = open_all(b->options, &b->all, &err);
    if (code == LAM_OK) code = measure(b, &err);
    if (code != LAM_OK) status = report(b->options, &err);
    else if (b->options->json) status = bench_print_json(b);
    else bench_print_table(b);
    release(b);
    return status;
}

int cmd_bench(struct options *o)
{
    char path[MODEL_PATH];
    struct bench *b = calloc(1, sizeof *b);
    lam_error err;
    if (!b) {
        fail_memory(&err);
        return report(o, &err);
    }
    b->options = o;
    b->n_prefill = (size_t)count_or(o->prefill, DEFAULT_PREFILL);
    b->n_decode = (size_t)count_or(o->tokens, DEFAULT_DECODE);
    b->n_runs = (size_t)count_or(o->runs, DEFAULT_RUNS);
    b->context = (size_t)count_or(o->context, 0);
    int status = choose_model(o, 0, 0, path);
    if (status == 0 && !(bench_parse_parts(b) && parse_sessions(b))) status = 2;
    if (status == 0)
        status = b->n_decode > 1000000 ? usage(o, "--tokens %zu: bench takes 1000000 at most", b->n_decode) : run(b);
    free(b);
    return status;
}
