/* Figures as a table and as JSON. */
#include "bench.h"

/* amount over each value. */
static struct series per(double amount, const struct series *seconds)
{
    struct series out = {.n = 0};
    for (size_t i = 0; i < seconds->n; i++) series_add(&out, seconds->values[i] > 0.0 ? amount / seconds->values[i] : 0.0);
    return out;
}

static struct series tokens_per_second(const struct bench_rate *r) { return per((double)(r->tokens * r->sessions), &r->seconds); }

static double seconds_a_pass(const struct bench_rate *r) { return series_median(&r->seconds) / (double)r->tokens; }

/* Of the read bandwidth; 0 if that was not measured. */
static double share(const struct bench *b, const struct bench_rate *r, uint64_t bytes)
{
    double most = series_median(&b->bandwidth) * seconds_a_pass(r);
    return most > 0.0 ? (double)bytes / most : 0.0;
}

/* ---- JSON ---- */

static json_t *series_json(const struct series *s)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < s->n; i++) json_array_append_new(runs, json_real(s->values[i]));
    return json_pack("{s:f,s:f,s:f,s:o}", "median", series_median(s), "least", series_least(s), "most", series_most(s), "runs", runs);
}

/* By which most of a composition's matrices are computed. */
static const char *policy_of(const struct bench *b, size_t composition)
{
    bool materialize = (b->all.compose.policy == LAM_POLICY_MATERIALIZE) != (composition == BENCH_OTHER_POLICY);
    return materialize && composition != BENCH_BASE ? "materialize" : "dual";
}

static json_t *rate_json(const struct bench *b, const struct bench_rate *r)
{
    struct series speed = tokens_per_second(r);
    json_t *out = json_pack("{s:s,s:b,s:s,s:I,s:I,s:I,s:o,s:f}", "part", bench_part_name(r->part), "adapters",
                            r->composition != BENCH_BASE && b->all.n_adapters, "policy", policy_of(b, r->composition), "sessions", (json_int_t)r->sessions, "tokens",
                            (json_int_t)r->tokens, "position", (json_int_t)r->position, "tokens_per_second", series_json(&speed),
                            "seconds_a_pass", seconds_a_pass(r));
    if (r->ratio.n)
        json_object_set_new(out, r->compared == BENCH_BASE ? "ratio_to_base" : "ratio_to_other_policy", series_json(&r->ratio));
    if (r->part == BENCH_PREFILL) return out;
    json_object_set_new(out, "weight_bytes", json_integer((json_int_t)r->weight_bytes));
    json_object_set_new(out, "kv_bytes", json_integer((json_int_t)r->kv_bytes));
    json_object_set_new(out, "weight_bytes_per_second", json_real((double)r->weight_bytes / seconds_a_pass(r)));
    if (b->bandwidth.n == 0) return out;
    json_object_set_new(out, "share_of_bandwidth", json_real(share(b, r, r->weight_bytes)));
    json_object_set_new(out, "share_with_kv", json_real(share(b, r, r->weight_bytes + r->kv_bytes)));
    return out;
}

static json_t *switch_json(const struct bench *b)
{
    return json_pack("{s:o,s:o,s:o,s:o}", "first_seconds", series_json(&b->first), "steady_seconds", series_json(&b->steady),
                     "difference_seconds", series_json(&b->difference), "compose_seconds", series_json(&b->compose));
}

static json_t *load_json(const struct bench *b)
{
    struct series rate = per((double)b->all.info.weight_bytes, &b->verify);
    return json_pack("{s:o,s:o,s:o,s:o}", "ready_seconds", series_json(&b->ready), "first_token_seconds", series_json(&b->first_token),
                     "verify_seconds", series_json(&b->verify), "verify_bytes_per_second", series_json(&rate));
}

int bench_print_json(const struct bench *b)
{
    json_t *rates = json_array();
    for (size_t i = 0; i < b->n_rates; i++) json_array_append_new(rates, rate_json(b, &b->rates[i]));
    const struct opened *all = &b->all;
    json_t *out = json_pack("{s:s,s:s,s:s,s:s,s:I,s:s,s:s,s:I,s:I}", "model", all->info.name, "composition_id",
                            lam_composition_id(all->composition), "standing", standing(all), "bytes", bytes_state(b->options), "adapters", (json_int_t)all->n_adapters, "isa",
                            lam_engine_isa(all->engine), "machine", lam_engine_machine(all->engine), "threads",
                            (json_int_t)lam_engine_threads(all->engine), "runs", (json_int_t)b->n_runs);
    json_object_update_new(out, json_pack("{s:s,s:I,s:I,s:I,s:o}", "kv_format", lam_composition_kv_format(all->composition),
                                          "kv_bytes_per_token", (json_int_t)lam_composition_kv_bytes(all->composition),
                                          "weight_bytes", (json_int_t)all->info.weight_bytes, "adapter_bytes",
                                          (json_int_t)b->adapter_bytes, "rates", rates));
    if (b->bandwidth.n) json_object_set_new(out, "bandwidth_bytes_per_second", series_json(&b->bandwidth));
    if (b->first.n) json_object_set_new(out, "switch", switch_json(b));
    if (b->ready.n) json_object_set_new(out, "load", load_json(b));
    if (b->parts & BENCH_MEMORY)
        json_object_set_new(out, "memory", json_pack("{s:I,s:I}", "anonymous_bytes", (json_int_t)b->anonymous, "peak_resident_bytes",
                                                     (json_int_t)b->peak));
    return print_json(b->options, out);
}

/* ---- table ---- */

static void print_rate(const struct bench *b, const struct bench_rate *r)
{
    struct series speed = tokens_per_second(r);
    char range[48], name[32];
    snprintf(range, sizeof range, "(%.1f to %.1f)", series_least(&speed), series_most(&speed));
    snprintf(name, sizeof name, "%s%s%s", bench_part_name(r->part), r->composition == BENCH_STACK ? "" : ", ",
             r->composition == BENCH_STACK ? "" : r->composition == BENCH_BASE ? "base" : policy_of(b, r->composition));
    printf("%-20s %8zu %7zu %7zu %10.1f %-21s", name, r->sessions, r->tokens, r->position, series_median(&speed), range);
    if (r->part != BENCH_PREFILL) {
        printf(" %8.3f %8.2f", seconds_a_pass(r) * 1e3, (double)r->weight_bytes / seconds_a_pass(r) / 1e9);
        if (b->bandwidth.n) printf(" %6.2f %6.2f", share(b, r, r->weight_bytes), share(b, r, r->weight_bytes + r->kv_bytes));
    }
    printf("\n");
}

static void print_rates(const struct bench *b)
{
    printf("\n%-20s %8s %7s %7s %10s %-21s %8s %8s", "", "sessions", "tokens", "from", "tokens/s", "", "ms/pass", "GB/s");
    printf(b->bandwidth.n ? " %6s %6s\n" : "\n", "share", "and KV");
    for (size_t i = 0; i < b->n_rates; i++) print_rate(b, &b->rates[i]);
    printf("\n");
    for (size_t i = 0; i < b->n_rates; i++) {
        const struct bench_rate *r = &b->rates[i];
        if (r->ratio.n == 0) continue;
        const char *than = r->compared == BENCH_BASE ? "the base's" : "the other policy's";
        printf("with adapters  %s of %zu at %.3f of %s speed (%.3f to %.3f)\n", bench_part_name(r->part), r->tokens, series_median(&r->ratio),
               than, series_least(&r->ratio), series_most(&r->ratio));
    }
}

static void print_start(const struct bench *b)
{
    if (b->first.n)
        printf("switch         first token %.3f ms, next one %.3f ms: %+.3f ms (%+.3f to %+.3f); composing %.3f ms\n",
               series_median(&b->first) * 1e3, series_median(&b->steady) * 1e3, series_median(&b->difference) * 1e3,
               series_least(&b->difference) * 1e3, series_most(&b->difference) * 1e3, series_median(&b->compose) * 1e3);
    if (b->ready.n) {
        double verify = series_median(&b->verify);
        printf("load           ready in %.1f ms (%.1f to %.1f), logits of the first prompt %.1f ms later\n", series_median(&b->ready) * 1e3,
               series_least(&b->ready) * 1e3, series_most(&b->ready) * 1e3, series_median(&b->first_token) * 1e3);
        printf("verification   %.1f ms, %.2f GB/s\n", verify * 1e3, verify > 0.0 ? (double)b->all.info.weight_bytes / verify / 1e9 : 0.0);
    }
}

void bench_print_table(const struct bench *b)
{
    printf("%s, %zu adapters, %s, %u threads (%s), medians of %zu runs (least to most)\n", b->all.info.name, b->all.n_adapters,
           lam_engine_isa(b->all.engine), lam_engine_threads(b->all.engine), lam_engine_machine(b->all.engine), b->n_runs);
    if (b->n_rates) print_rates(b);
    print_standing(stdout, &b->all, 14);
    if (b->options->verify == LAM_VERIFY_OFF) printf("bytes unverified\n");
    printf("keys, values   %s, %zu bytes a token\n", lam_composition_kv_format(b->all.composition),
           lam_composition_kv_bytes(b->all.composition));
    if (b->bandwidth.n)
        printf("bandwidth      %.2f GB/s (%.2f to %.2f), reading the weights where they are mapped\n", series_median(&b->bandwidth) / 1e9,
               series_least(&b->bandwidth) / 1e9, series_most(&b->bandwidth) / 1e9);
    print_start(b);
    if (!(b->parts & BENCH_MEMORY)) return;
    printf("memory         weights %.2f MB", (double)b->all.info.weight_bytes / 1e6);
    if (b->anonymous > 0.0) printf(", anonymous %.1f MB after load", b->anonymous / 1e6);
    if (b->peak > 0.0) printf(", peak resident %.1f MB", b->peak / 1e6);
    printf("\n");
}
