#include "run/sampler.h"
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/math.h"

#include <math.h>
#include <stdlib.h>

void lam_sampling_default(lam_sampling *out)
{
    *out = (lam_sampling){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.0f,
                          .repeat_window = 64};
}

static lam_code range(const char *name, double value, double low, double high, lam_error *err)
{
    if (value >= low && value <= high) return LAM_OK;
    return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is %g: %g to %g are possible", name, value, low, high);
}

lam_code lam_sampling_check(const lam_sampling *p, lam_error *err)
{
    LAM_TRY(range("temperature", (double)p->temperature, 0.0, 100.0, err));
    LAM_TRY(range("top-p", (double)p->top_p, 0.0, 1.0, err));
    LAM_TRY(range("min-p", (double)p->min_p, 0.0, 1.0, err));
    return range("repeat penalty", (double)p->repeat_penalty, 0.01, 100.0, err);
}

struct candidate {
    float logit;
    uint32_t token;
};

/* The order of likelihood: higher logit first, ties to the lower id. */
static bool before(struct candidate a, struct candidate b)
{
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

static int compare(const void *a, const void *b)
{
    struct candidate x = *(const struct candidate *)a, y = *(const struct candidate *)b;
    return before(x, y) ? -1 : before(y, x);
}

/* Restores the heap whose root is the least likely candidate. */
static void sift_down(struct candidate *heap, size_t n, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) return;
        if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
        if (!before(heap[i], heap[child])) return;
        struct candidate t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
        i = child;
    }
}

/* Moves the k most likely of c[n] to the front, sorted. */
static void select_top(struct candidate *c, size_t n, size_t k)
{
    if (k < n) {
        for (size_t i = k / 2; i-- > 0;) sift_down(c, k, i);
        for (size_t i = k; i < n; i++) {
            if (!before(c[i], c[0])) continue;
            c[0] = c[i];
            sift_down(c, k, 0);
        }
    }
    qsort(c, k, sizeof *c, compare);
}

static void penalise(struct candidate *c, size_t n_vocab, const lam_sampling *p, const uint32_t *history, size_t n)
{
    if (p->repeat_penalty == 1.0f) return;
    size_t from = n > p->repeat_window ? n - p->repeat_window : 0;
    for (size_t i = from; i < n; i++) {
        bool earlier = false; /* each token once */
        for (size_t j = from; j < i; j++) earlier |= history[j] == history[i];
        if (earlier || history[i] >= n_vocab) continue;
        float *logit = &c[history[i]].logit;
        *logit = *logit > 0.0f ? *logit / p->repeat_penalty : *logit * p->repeat_penalty;
    }
}

/* How many of the sorted candidates top-p and min-p keep: at least one. */
static size_t cut(const struct candidate *c, size_t n, const lam_sampling *p)
{
    double total = 0.0, sum = 0.0;
    for (size_t i = 0; i < n; i++) total = total + (double)lam_exp(c[i].logit - c[0].logit);
    size_t keep = 0;
    while (keep < n) {
        double e = (double)lam_exp(c[keep].logit - c[0].logit);
        if (keep && (sum >= (double)p->top_p * total || e < (double)p->min_p)) break;
        sum = sum + e;
        keep++;
    }
    return keep;
}

static uint32_t draw(const struct candidate *c, size_t n, float temperature, double uniform)
{
    double total = 0.0, sum = 0.0;
    for (size_t i = 0; i < n; i++) total = total + (double)lam_exp((c[i].logit - c[0].logit) / temperature);
    for (size_t i = 0; i < n; i++) {
        sum = sum + (double)lam_exp((c[i].logit - c[0].logit) / temperature);
        if (uniform * total < sum) return c[i].token;
    }
    return c[n - 1].token;
}

lam_code lam_sample(const float *logits, size_t n_vocab, const lam_sampling *p, const uint32_t *history, size_t n_history,
                    double uniform, uint32_t *token, lam_error *err)
{
    LAM_TRY(lam_sampling_check(p, err));
    struct candidate *c = lam_alloc(n_vocab, sizeof *c);
    if (!c) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu candidates", n_vocab);
    for (size_t i = 0; i < n_vocab; i++) c[i] = (struct candidate){logits[i], (uint32_t)i};
    penalise(c, n_vocab, p, history, n_history);
    size_t n = p->temperature == 0.0f ? 1 : p->top_k && p->top_k < n_vocab ? p->top_k : n_vocab;
    select_top(c, n_vocab, n);
    *token = p->temperature == 0.0f ? c[0].token : draw(c, cut(c, n, p), p->temperature, uniform);
    lam_free(c);
    return LAM_OK;
}
