/* The generator against Random123's known answers; the choice of a token against a brute force written from the header's words. */
#include "support.h"

#include "run/sampler.h"

#include <math.h>
#include <string.h>

/* philox4x32, 10 rounds, from Random123's tests/kat_vectors. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct { uint32_t counter[4], key[2], want[4]; } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        lam_philox(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].want, sizeof out);
    }
    assert_true(lam_uniform(0, 0) == (double)(0x6627e8d5e169c58du >> 11) / 9007199254740992.0); /* the first 53 bits */
}

static void test_uniform_depends_on_all_bits(void **state)
{
    (void)state;
    double first = lam_uniform(0, 0);
    for (int bit = 0; bit < 64; bit++) {
        assert_true(lam_uniform((uint64_t)1 << bit, 0) != first);
        assert_true(lam_uniform(0, (uint64_t)1 << bit) != first);
    }
    double sum = 0.0, square = 0.0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = lam_uniform(42, i);
        assert_true(u >= 0.0 && u < 1.0);
        sum += u;
        square += u * u;
    }
    assert_true(fabs(sum / 1e5 - 0.5) < 5 * sqrt(1.0 / 12 / 1e5)); /* five standard deviations */
    assert_true(fabs(square / 1e5 - 1.0 / 3) < 5 * sqrt(4.0 / 45 / 1e5));
}

/* ---- brute force ---- */

#define VOCAB 50
#define CLOSE 1e-5 /* a draw or a threshold this near a limit may fall on either side: float32 against float64 */

struct truth {
    size_t n;              /* kept tokens, most likely first */
    uint32_t token[VOCAB];
    double up_to[VOCAB];   /* cumulated probability */
    bool clear;            /* no threshold near a limit */
};

static void brute_force(const float *logits, const lam_sampling *p, const uint32_t *history, size_t n_history, struct truth *t)
{
    double logit[VOCAB], weight[VOCAB], total = 0.0, sum = 0.0;
    for (size_t i = 0; i < VOCAB; i++) {
        bool repeated = false;
        logit[i] = (double)logits[i];
        for (size_t j = 0; j < n_history; j++) repeated |= history[j] == i && n_history - j <= p->repeat_window;
        if (repeated) logit[i] = logit[i] > 0 ? (double)(logits[i] / p->repeat_penalty) : (double)(logits[i] * p->repeat_penalty);
    }
    /* Rank by counting who comes before. */
    for (size_t i = 0; i < VOCAB; i++) {
        size_t rank = 0;
        for (size_t j = 0; j < VOCAB; j++) rank += logit[j] > logit[i] || (logit[j] == logit[i] && j < i);
        t->token[rank] = (uint32_t)i;
    }
    size_t k = p->top_k && p->top_k < VOCAB ? p->top_k : VOCAB;
    t->clear = true;
    for (size_t i = 0; i < k; i++) total += weight[i] = exp(logit[t->token[i]] - logit[t->token[0]]);
    for (t->n = 0; t->n < k; t->n++) {
        bool enough = sum / total >= (double)p->top_p, unlikely = weight[t->n] < (double)p->min_p;
        if (t->n && (fabs(sum / total - (double)p->top_p) < CLOSE || fabs(weight[t->n] - (double)p->min_p) < CLOSE)) t->clear = false;
        if (t->n && (enough || unlikely)) break;
        sum += weight[t->n];
    }
    total = 0.0;
    for (size_t i = 0; i < t->n; i++) total += exp((logit[t->token[i]] - logit[t->token[0]]) / (double)p->temperature);
    sum = 0.0;
    for (size_t i = 0; i < t->n; i++) t->up_to[i] = sum += exp((logit[t->token[i]] - logit[t->token[0]]) / (double)p->temperature) / total;
}

static lam_sampling random_sampling(uint64_t *random)
{
    static const float tops[] = {1.0f, 0.95f, 0.5f, 0.1f, 0.0f}, mins[] = {0.0f, 0.05f, 0.3f, 1.0f};
    static const float penalties[] = {1.0f, 1.3f, 0.7f};
    static const uint32_t ks[] = {0, 1, 5, 49, 50, 51, 1000}, windows[] = {0, 1, 5, 64};
    return (lam_sampling){.temperature = 0.1f + (float)(test_random(random) % 30) / 10.0f, .top_k = ks[test_random(random) % 7],
                          .top_p = tops[test_random(random) % 5], .min_p = mins[test_random(random) % 4],
                          .repeat_penalty = penalties[test_random(random) % 3], .repeat_window = windows[test_random(random) % 4]};
}

static void test_against_brute_force(void **state)
{
    (void)state;
    uint64_t random = 5;
    size_t compared = 0, kept = 0;
    for (int round = 0; round < 4000; round++) {
        float logits[VOCAB];
        uint32_t history[20];
        struct truth t;
        lam_error err;
        size_t n_history = test_random(&random) % 21;
        for (size_t i = 0; i < VOCAB; i++) logits[i] = rintf(test_random_float(&random) * 40.0f) / 8.0f; /* many ties */
        for (size_t i = 0; i < n_history; i++) history[i] = (uint32_t)(test_random(&random) % (VOCAB + 5)); /* some outside */
        lam_sampling p = random_sampling(&random);
        brute_force(logits, &p, history, n_history, &t);
        kept += t.n;
        for (int i = 0; i < 20; i++) {
            double u = i == 0 ? 0.0 : i == 1 ? 1.0 - 0x1p-53 : (double)(test_random(&random) >> 11) * 0x1p-53;
            size_t want = 0;
            uint32_t token;
            while (want + 1 < t.n && t.up_to[want] <= u) want++;
            bool clear = t.clear;
            for (size_t j = 0; j < t.n; j++) clear &= fabs(t.up_to[j] - u) > CLOSE || j + 1 == t.n;
            if (!clear) continue;
            assert_ok(lam_sample(logits, VOCAB, &p, history, n_history, u, &token, &err), err);
            assert_int_equal(token, t.token[want]);
            compared++;
        }
    }
    assert_true(compared > 60000 && kept > 4000 * 3);
}

static uint32_t choose(const float *logits, size_t n, lam_sampling p, double u)
{
    uint32_t token;
    lam_error err;
    assert_ok(lam_sample(logits, n, &p, NULL, 0, u, &token, &err), err);
    return token;
}

static void test_greedy_and_ties(void **state)
{
    (void)state;
    lam_sampling p;
    lam_sampling_default(&p);
    const float ties[] = {1.0f, 3.0f, 2.0f, 3.0f, 3.0f}, zeros[] = {-0.0f, 0.0f, -0.0f}, one[] = {-5.0f};
    p.temperature = 0.0f;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(choose(ties, 5, p, i / 10.0), 1);
        assert_int_equal(choose(zeros, 3, p, i / 10.0), 0); /* the two zeros are equal */
        assert_int_equal(choose(one, 1, p, i / 10.0), 0);
    }
    p = (lam_sampling){.temperature = 1.0f, .top_k = 2, .top_p = 1.0f, .repeat_penalty = 1.0f};
    for (int i = 0; i < 10; i++) assert_int_equal(choose(ties, 5, p, i / 10.0), i < 5 ? 1 : 3); /* of three equals the two lower ids */
    p.top_k = 0;
    const float far[] = {1000.0f, -1000.0f, 999.0f}; /* exp of it would overflow */
    p.temperature = 0.001f;
    for (int i = 0; i < 10; i++) assert_int_equal(choose(far, 3, p, i / 10.0), 0);
}

static void test_parameters(void **state)
{
    (void)state;
    const struct { lam_sampling p; const char *word; } bad[] = {
        {{.temperature = -1, .top_p = 1, .repeat_penalty = 1}, "temperature"},
        {{.temperature = NAN, .top_p = 1, .repeat_penalty = 1}, "temperature"},
        {{.temperature = INFINITY, .top_p = 1, .repeat_penalty = 1}, "temperature"},
        {{.temperature = 1, .top_p = 1.5f, .repeat_penalty = 1}, "top-p"},
        {{.temperature = 1, .top_p = NAN, .repeat_penalty = 1}, "top-p"},
        {{.temperature = 1, .top_p = 1, .min_p = -0.1f, .repeat_penalty = 1}, "min-p"},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 0}, "penalty"},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = NAN}, "penalty"},
    };
    const float logits[] = {0, 1};
    lam_error err;
    uint32_t token = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lam_sample(logits, 2, &bad[i].p, NULL, 0, 0.5, &token, &err), LAM_E_ARGUMENT);
        assert_non_null(strstr(err.message, bad[i].word));
        assert_int_equal(token, 7);
    }
}

/* 40,000 draws of eight tokens against their probabilities: chi-square with 7 degrees of freedom, above 40.5 once in a million. */
static void test_frequencies(void **state)
{
    (void)state;
    const float logits[] = {0.0f, 1.0f, -1.0f, 0.5f, 2.0f, -2.0f, 1.5f, 0.25f};
    const float temperatures[] = {0.5f, 1.0f, 2.0f};
    for (int t = 0; t < 3; t++) {
        lam_sampling p = {.temperature = temperatures[t], .top_p = 1.0f, .repeat_penalty = 1.0f};
        double total = 0.0, chi = 0.0;
        size_t count[8] = {0};
        for (uint64_t i = 0; i < 40000; i++) count[choose(logits, 8, p, lam_uniform(99, i))]++;
        for (int i = 0; i < 8; i++) total += exp((double)logits[i] / (double)temperatures[t]);
        for (int i = 0; i < 8; i++) {
            double want = 40000 * exp((double)logits[i] / (double)temperatures[t]) / total;
            chi += ((double)count[i] - want) * ((double)count[i] - want) / want;
        }
        assert_true(chi < 40.5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers), cmocka_unit_test(test_uniform_depends_on_all_bits),
        cmocka_unit_test(test_against_brute_force), cmocka_unit_test(test_greedy_and_ties), cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_frequencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
