/* lamina perplexity: exp of the mean negative log-likelihood. Windows are llama.cpp's: the text is cut into windows of -c tokens,
 * each begins with BOS where the model has one, and the second half of each is scored. */
#include "commands.h"
#include "default_model.h"
#include "progress.h"
#include "prompt.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>

#define DEFAULT_WINDOW 512
#define CHUNK 32 /* rows of a pass: each has logits here, and a large vocabulary's take room */

struct score {
    const uint32_t *tokens; /* of the window */
    size_t window, first;   /* first: position from which on it is scored */
    size_t before, total;   /* tokens of the windows before, of all */
    double sum, sum_squares;
    char text_digest[LAM_DIGEST_TEXT];
    size_t count;
    struct progress progress;
};

static bool score_position(void *context, size_t position, const float *logits, size_t n_vocab)
{
    struct score *s = context;
    bool more = progress_step(&s->progress, "score", s->before + position, s->total);
    if (position < s->first || position + 1 >= s->window) return more;
    double largest = (double)logits[0], total = 0.0;
    for (size_t i = 1; i < n_vocab; i++) largest = fmax(largest, (double)logits[i]);
    for (size_t i = 0; i < n_vocab; i++) total += exp((double)logits[i] - largest);
    double nll = largest + log(total) - (double)logits[s->tokens[position + 1]];
    s->sum += nll;
    s->sum_squares += nll * nll;
    s->count++;
    return more;
}

static lam_code score_windows(const struct options *o, const struct opened *all, uint32_t *tokens, bool bos, struct score *s, lam_error *err)
{
    lam_session *session;
    lam_code code = lam_session_new(all->composition, s->window, &session, err);
    if (code == LAM_OK) lam_session_allow_base(session, o->allow_base);
    uint32_t first = tokens[0];
    for (s->before = 0; code == LAM_OK && s->before < s->total; s->before += s->window) {
        uint32_t *begin = tokens + s->before, saved = *begin;
        s->tokens = begin;
        if (bos) *begin = first;
        code = lam_session_truncate(session, 0, err);
        if (code == LAM_OK) code = lam_session_feed(session, begin, s->window, score_position, s, err);
        *begin = saved;
    }
    lam_session_free(session);
    return code == LAM_OK ? LAM_OK : explain_feed(err);
}

static int print_score(const struct options *o, const struct opened *all, const struct score *s, double seconds)
{
    double mean = s->sum / (double)s->count, perplexity = exp(mean);
    double variance = s->sum_squares / (double)s->count - mean * mean;
    double deviation = s->count > 1 ? sqrt(fmax(variance, 0.0) / (double)(s->count - 1)) * perplexity : 0.0;
    if (o->json)
        return print_json(o, json_pack("{s:f,s:f,s:f,s:I,s:I,s:I,s:s,s:s,s:s,s:{s:f,s:s,s:s,s:s,s:I}}", "perplexity", perplexity, "deviation", deviation,
                                       "mean_nll", mean, "tokens", (json_int_t)s->total, "scored_tokens", (json_int_t)s->count, "context",
                                       (json_int_t)s->window, "text_digest", s->text_digest, "composition_id",
                                       lam_composition_id(all->composition), "kv_format", lam_composition_kv_format(all->composition),
                                       "machine", "seconds", seconds, "standing", standing(all), "bytes", bytes_state(o), "isa",
                                       lam_engine_isa(all->engine), "threads", (json_int_t)lam_engine_threads(all->engine)));
    printf("perplexity %.4f +/- %.4f over %zu tokens in windows of %zu\ncomposition %s\n", perplexity, deviation, s->count, s->window,
           lam_composition_id(all->composition));
    print_standing(stdout, all, 0);
    print_kv_format(stdout, o, all);
    if (o->verify == LAM_VERIFY_OFF) printf("bytes unverified\n");
    note(o, "%zu tokens in %.1f s, %.1f/s", s->total, seconds, (double)s->total / seconds);
    return 0;
}

/* Scores the text of path; the score's progress is held meanwhile. */
static lam_code score_file(const struct options *o, const struct opened *all, const char *path, struct score *s, lam_error *err)
{
    struct text text = {0};
    struct tokens tokens = {0}, bos = {0};
    lam_code code = read_whole(path, &text, err);
    if (code == LAM_OK) lam_digest_bytes(text.bytes, text.len, s->text_digest);
    if (code == LAM_OK) code = lam_tokenize(all->base, text.bytes, text.len, LAM_TOKENIZE_SPECIAL, &tokens.ids, &tokens.n, err);
    if (code == LAM_OK && tokens.n < s->window)
        code = fail(err, LAM_E_ARGUMENT, "%s has %zu tokens, and a window %zu (-c sets it)", path, tokens.n, s->window);
    if (code == LAM_OK) code = lam_tokenize(all->base, "", 0, LAM_TOKENIZE_SPECIAL, &bos.ids, &bos.n, err);
    s->total = tokens.n / s->window * s->window;
    progress_begin(&s->progress, o, true);
    if (code == LAM_OK) code = score_windows(o, all, tokens.ids, bos.n > 0, s, err);
    progress_end(&s->progress);
    if (code == LAM_E_CANCELLED) fail(err, code, "stopped after %zu of %zu tokens", s->before - s->window, s->total);
    free(text.bytes);
    lam_memory_free(bos.ids);
    lam_memory_free(tokens.ids);
    return code;
}

int cmd_perplexity(struct options *o)
{
    lam_error err;
    struct opened all;
    size_t window = (size_t)count_or(o->context, DEFAULT_WINDOW);
    struct score s = {.window = window, .first = window / 2};
    char path[MODEL_PATH];
    int failed = choose_model(o, 1, 1, path);
    if (failed) return failed;
    if (window < 4) return usage(o, "--ctx %zu: a window has 4 tokens at least", window);
    o->chunk = (struct count){CHUNK, true};
    lam_code code = open_all(o, &all, &err);
    double start = now_seconds();
    if (code == LAM_OK) code = score_file(o, &all, o->rest[0], &s, &err);
    int status = code == LAM_OK ? print_score(o, &all, &s, now_seconds() - start) : report(o, &err);
    close_all(&all);
    return status;
}
