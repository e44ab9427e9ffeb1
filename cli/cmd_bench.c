/* lamina bench: prefill and decode rates, load and switch times, resident memory. */
#include "commands.h"
#include "default_model.h"
#include "open.h"
#include "process.h"
#include "progress.h"
#include "report.h"

#include <stdlib.h>

#define DEFAULT_PREFILL 256
#define DEFAULT_DECODE 128
#define RUNS 3
#define MOST_SESSIONS 8

static const size_t batches[] = {1, 4, MOST_SESSIONS};
#define N_BATCHES (sizeof batches / sizeof *batches)

struct figures {
    size_t n_prefill, n_decode, n_vocab;
    double prefill, decode[N_BATCHES], switching; /* seconds, the best of the runs */
    struct progress progress;
    uint64_t done, total;                         /* tokens */
};

/* Tokens are arbitrary and the same every time. */
static uint32_t token(const struct figures *f, size_t i) { return (uint32_t)((i * 7919 + 17) % f->n_vocab); }

static void keep_best(double *best, double seconds)
{
    if (*best == 0.0 || seconds < *best) *best = seconds;
}

static lam_code advance(struct figures *f, uint64_t tokens, lam_error *err)
{
    f->done += tokens;
    if (progress_step(&f->progress, "bench", f->done, f->total)) return LAM_OK;
    return fail(err, LAM_E_CANCELLED, "stopped");
}

static lam_code run_prefill(struct figures *f, lam_session *session, lam_error *err)
{
    uint32_t *tokens = malloc(f->n_prefill * sizeof *tokens);
    if (!tokens) return fail_memory(err);
    for (size_t i = 0; i < f->n_prefill; i++) tokens[i] = token(f, i);
    double start = now_seconds();
    lam_code code = lam_session_feed(session, tokens, f->n_prefill, NULL, NULL, err);
    keep_best(&f->prefill, now_seconds() - start);
    free(tokens);
    return code == LAM_OK ? advance(f, f->n_prefill, err) : code;
}

/* n_decode tokens in each of the first n sessions, a pass a token. */
static lam_code run_decode(struct figures *f, lam_session *const sessions[], size_t batch, lam_error *err)
{
    uint32_t tokens[MOST_SESSIONS];
    size_t n = batches[batch];
    lam_code code = LAM_OK;
    double start = now_seconds();
    for (size_t i = 0; code == LAM_OK && i < f->n_decode; i++) {
        for (size_t k = 0; k < n; k++) tokens[k] = token(f, i + k);
        code = lam_session_step(sessions, tokens, n, err);
        if (code == LAM_OK) code = advance(f, n, err);
    }
    keep_best(&f->decode[batch], now_seconds() - start);
    return code;
}

/* The first session has the prompt; the others, which only keep it company, a token. */
static lam_code run_once(const struct opened *all, struct figures *f, lam_error *err)
{
    lam_session *sessions[MOST_SESSIONS] = {0};
    uint32_t first = token(f, 0);
    lam_code code = LAM_OK;
    size_t room = f->n_prefill + N_BATCHES * f->n_decode + 1;
    for (size_t k = 0; code == LAM_OK && k < MOST_SESSIONS; k++) code = lam_session_new(all->composition, room, &sessions[k], err);
    if (code == LAM_OK) code = run_prefill(f, sessions[0], err);
    for (size_t k = 1; code == LAM_OK && k < MOST_SESSIONS; k++) code = lam_session_feed(sessions[k], &first, 1, NULL, NULL, err);
    for (size_t b = 0; code == LAM_OK && b < N_BATCHES; b++) code = run_decode(f, sessions, b, err);
    for (size_t k = 0; k < MOST_SESSIONS; k++) lam_session_free(sessions[k]);
    return code;
}

/* Composing what is loaded already: what a switch costs before its first token. */
static lam_code time_switch(const struct opened *all, struct figures *f, lam_error *err)
{
    lam_composition *composition;
    double start = now_seconds();
    lam_code code = compose(all, false, &composition, err);
    f->switching = now_seconds() - start;
    if (code == LAM_OK) lam_composition_free(composition);
    return code;
}

static lam_code measure(const struct options *o, const struct opened *all, struct figures *f, lam_error *err)
{
    f->total = f->n_prefill;
    for (size_t b = 0; b < N_BATCHES; b++) f->total += batches[b] * f->n_decode;
    f->total *= RUNS;
    lam_code code = LAM_OK;
    progress_begin(&f->progress, o, true);
    for (int i = 0; code == LAM_OK && i < RUNS; i++) code = run_once(all, f, err);
    if (code == LAM_OK) code = time_switch(all, f, err);
    progress_end(&f->progress);
    return code;
}

static double rate(size_t n, double seconds) { return seconds > 0.0 ? (double)n / seconds : 0.0; }

static int print_as_json(const struct options *o, const struct opened *all, const struct figures *f)
{
    double decode = rate(f->n_decode, f->decode[0]);
    json_t *list = json_array();
    for (size_t b = 0; f->n_decode && b < N_BATCHES; b++)
        json_array_append_new(list, json_pack("{s:I,s:f}", "sessions", (json_int_t)batches[b], "tokens_per_second",
                                              rate(f->n_decode * batches[b], f->decode[b])));
    return print_json(o, json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:o,s:f,s:f,s:I}", "model", all->info.name, "composition_id",
                                   lam_composition_id(all->composition), "isa", lam_engine_isa(all->engine), "threads",
                                   (json_int_t)lam_engine_threads(all->engine), "prefill_tokens", (json_int_t)f->n_prefill, "decode_tokens",
                                   (json_int_t)f->n_decode, "prefill_tokens_per_second", rate(f->n_prefill, f->prefill),
                                   "decode_tokens_per_second", decode, "weight_gigabytes_per_second",
                                   (double)all->info.weight_bytes * decode / 1e9, "decode", list, "load_seconds", all->load_seconds,
                                   "switch_seconds", f->switching, "peak_resident_bytes", (json_int_t)process_peak_bytes()));
}

static void print_table(const struct opened *all, const struct figures *f)
{
    printf("%s, %zu adapters, %s, %u threads, best of %d runs\n\n", all->info.name, all->n_adapters, lam_engine_isa(all->engine),
           lam_engine_threads(all->engine), RUNS);
    printf("%-10s %9s %8s %12s %12s\n", "", "sessions", "tokens", "tokens/s", "ms/token");
    printf("%-10s %9d %8zu %12.1f %12.3f\n", "prefill", 1, f->n_prefill, rate(f->n_prefill, f->prefill),
           f->prefill * 1e3 / (double)f->n_prefill);
    for (size_t b = 0; f->n_decode && b < N_BATCHES; b++) {
        size_t n = f->n_decode * batches[b];
        printf("%-10s %9zu %8zu %12.1f %12.3f\n", "decode", batches[b], n, rate(n, f->decode[b]), f->decode[b] * 1e3 / (double)n);
    }
    double decode = rate(f->n_decode, f->decode[0]);
    printf("\nload %.3f s, switch %.3f ms, weights %.2f MB read at %.2f GB/s\n", all->load_seconds, f->switching * 1e3,
           (double)all->info.weight_bytes / 1e6, (double)all->info.weight_bytes * decode / 1e9);
    if (process_peak_bytes() > 0.0) printf("peak resident %.1f MB\n", process_peak_bytes() / 1e6);
}

int cmd_bench(struct options *o)
{
    lam_error err;
    struct opened all;
    struct figures f = {.n_prefill = (size_t)count_or(o->prefill, DEFAULT_PREFILL),
                        .n_decode = (size_t)count_or(o->tokens, DEFAULT_DECODE)};
    char path[MODEL_PATH];
    int status = 0;
    if (!choose_model(o, 0, 0, path)) return 2;
    if (f.n_decode > 1000000) return usage(o, "--tokens %zu: bench takes 1000000 at most", f.n_decode);
    lam_code code = open_all(o, &all, &err);
    f.n_vocab = all.info.n_vocab;
    if (code == LAM_OK) code = measure(o, &all, &f, &err);
    if (code != LAM_OK) status = report(o, &err);
    else if (o->json) status = print_as_json(o, &all, &f);
    else print_table(&all, &f);
    close_all(&all);
    return status;
}
