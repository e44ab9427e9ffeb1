/* lamina perplexity: exp of the mean negative log-likelihood. Windows are llama.cpp's: the text is cut into windows of -c tokens,
 * each begins with BOS where the model has one, and the second half of each is scored. */
#include "commands.h"
#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct score {
    const uint32_t *tokens; /* of the window */
    size_t n, first;
    double sum, sum_squares;
    size_t count;
};

static bool score_position(void *context, size_t position, const float *logits, size_t n_vocab)
{
    struct score *s = context;
    if (position < s->first || position + 1 >= s->n) return true;
    double largest = (double)logits[0], total = 0.0;
    for (size_t i = 1; i < n_vocab; i++) largest = fmax(largest, (double)logits[i]);
    for (size_t i = 0; i < n_vocab; i++) total += exp((double)logits[i] - largest);
    double nll = largest + log(total) - (double)logits[s->tokens[position + 1]];
    s->sum += nll;
    s->sum_squares += nll * nll;
    s->count++;
    return true;
}

static lam_code score_windows(const struct options *o, struct opened *all, uint32_t *tokens, size_t n, size_t window, bool bos,
                              struct score *s, lam_error *err)
{
    lam_session *session;
    lam_code code = lam_session_new(all->composition, window, &session, err);
    uint32_t first = tokens[0];
    size_t n_windows = n / window;
    lam_import_options progress = import_options(o);
    for (size_t w = 0; code == LAM_OK && w < n_windows; w++) {
        if (progress.progress) progress.progress(NULL, "score", w * window, n_windows * window);
        s->tokens = tokens + w * window;
        s->n = window;
        s->first = window / 2;
        uint32_t saved = tokens[w * window];
        if (bos) tokens[w * window] = first;
        code = lam_session_truncate(session, 0, err);
        if (code == LAM_OK) code = lam_session_feed(session, tokens + w * window, window, score_position, s, err);
        tokens[w * window] = saved;
    }
    if (progress.progress) progress.progress(NULL, "score", 1, 1);
    lam_session_free(session);
    return code;
}

static int print_score(const struct options *o, const struct opened *all, const struct score *s, size_t window, double seconds)
{
    double mean = s->sum / (double)s->count, perplexity = exp(mean);
    double variance = s->sum_squares / (double)s->count - mean * mean;
    double deviation = s->count > 1 ? sqrt(variance / (double)(s->count - 1)) * perplexity : 0.0;
    if (o->json)
        return print_json(json_pack("{s:f,s:f,s:f,s:I,s:I,s:f,s:s}", "perplexity", perplexity, "deviation", deviation, "mean_nll", mean,
                                    "scored_tokens", (json_int_t)s->count, "context", (json_int_t)window, "seconds", seconds,
                                    "composition_id", lam_composition_id(all->composition)));
    printf("perplexity %.4f +/- %.4f over %zu tokens in windows of %zu, %.1f s\ncomposition %s\n", perplexity, deviation, s->count,
           window, seconds, lam_composition_id(all->composition));
    return 0;
}

int cmd_perplexity(struct options *o)
{
    lam_error err = {0};
    struct opened all;
    char *text = NULL;
    uint32_t *tokens = NULL;
    size_t len = 0, n = 0, window = o->context ? o->context : 512;
    struct score s = {0};
    if (!options_take_model(o)) return 2;
    if (o->n_rest != 1) return usage("perplexity takes one FILE");
    if (window < 4) return usage("a window of %zu tokens is too short", window);
    if (!o->chunk) o->chunk = 32; /* every row has logits here */
    lam_code code = open_all(o, &all, &err);
    if (code == LAM_OK) code = read_whole(o->rest[0], &text, &len, &err);
    if (code == LAM_OK) code = lam_tokenize(all.base, text, len, LAM_TOKENIZE_SPECIAL, &tokens, &n, &err);
    int status = 1;
    if (code != LAM_OK) {
        status = report(o, &err);
    } else if (n < window) {
        status = usage("%s has %zu tokens, a window %zu", o->rest[0], n, window);
    } else {
        uint32_t *bos = NULL;
        size_t n_bos = 0;
        double start = now_seconds();
        code = lam_tokenize(all.base, "", 0, LAM_TOKENIZE_SPECIAL, &bos, &n_bos, &err);
        if (code == LAM_OK) code = score_windows(o, &all, tokens, n, window, n_bos > 0, &s, &err);
        lam_memory_free(bos);
        status = code == LAM_OK ? print_score(o, &all, &s, window, now_seconds() - start) : report(o, &err);
    }
    free(text);
    lam_memory_free(tokens);
    close_all(&all);
    return status;
}
