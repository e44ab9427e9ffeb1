/* What lamina bench measures. Every run of it does all that was asked for once, so that a machine that slows down
 * does so for all figures alike; what is told is the median of the runs, with the least and the most. */
#ifndef LAM_CLI_BENCH_H
#define LAM_CLI_BENCH_H

#include "open.h"
#include "progress.h"
#include "series.h"

#define BENCH_MOST_SESSIONS 64
#define BENCH_MOST_RATES 24
#define BENCH_MOST_BATCHES 8

/* The parts that --only names. */
enum bench_part {
    BENCH_BANDWIDTH = 1, BENCH_PREFILL = 2, BENCH_DECODE = 4, BENCH_BATCH = 8, BENCH_CONTEXT = 16, BENCH_ADAPTERS = 32,
    BENCH_SWITCH = 64, BENCH_LOAD = 128, BENCH_MEMORY = 256, BENCH_ALL = 511,
    BENCH_POLICIES = 512 /* only where it is named: materialising is slow */
};
enum { BENCH_STACK, BENCH_BASE, BENCH_OTHER_POLICY, BENCH_COMPOSITIONS };
const char *bench_part_name(enum bench_part part);

/* Tokens through sessions, a feed (prefill) or a pass a token. */
struct bench_rate {
    enum bench_part part;
    size_t composition;              /* the one of the command line, or one to compare with */
    size_t sessions, tokens, position; /* tokens of each session, the first of them at position */
    uint64_t weight_bytes, kv_bytes; /* that the pass halfway reads, adapters' operators among the weights */
    struct series seconds;           /* of all tokens */
    struct series ratio;             /* of its speed to that of the rate after it, in the same run */
    size_t compared;                 /* that rate's composition */
};

struct bench {
    const struct options *options;
    struct opened all;
    unsigned parts;
    size_t n_runs, n_prefill, n_decode, context;
    size_t batches[BENCH_MOST_SESSIONS], n_batches;

    lam_composition *compositions[BENCH_COMPOSITIONS]; /* NULL where there is nothing to compare with; but for the first owned */
    lam_session *sessions[BENCH_COMPOSITIONS][BENCH_MOST_SESSIONS], *far[BENCH_COMPOSITIONS];
    struct bench_rate rates[BENCH_MOST_RATES];
    size_t n_rates;
    uint64_t adapter_bytes;
    uint32_t *lead;                   /* owned, [n_lead]: what every history begins with, the activated adapters' invocations */
    size_t n_lead;

    struct series bandwidth;          /* bytes a second */
    lam_composition *other;           /* what the switches go to and come from; owned */
    lam_session *pair[2];
    struct series compose, first, steady, difference; /* seconds */
    struct series ready, first_token, verify;         /* seconds */
    double anonymous, peak;           /* resident bytes: after load and before any session; before anything is loaded again */

    struct progress progress;
    uint64_t done, total;             /* tokens */
};

/* bench_parts.c: what --only asks for; false after a line about what is wrong. */
bool bench_parse_parts(struct bench *b);
/* The next word of a list with commas, of *len letters; NULL at its end. */
const char *bench_next_word(const char **list, size_t *len);

/* bench_rates.c: what is asked for becomes rates, with sessions; then one run of them. */
lam_code bench_rates_plan(struct bench *b, lam_error *err);
lam_code bench_rates_run(struct bench *b, lam_error *err);
/* Session (new if *session is NULL) with position tokens in its history, the same ones every time. */
lam_code bench_place(struct bench *b, lam_composition *composition, size_t position, lam_session **session, lam_error *err);
/* Token i of every history: of the lead, then arbitrary, and the same every time. */
uint32_t bench_token(const struct bench *b, size_t i);

/* bench_start.c: one run of the switch, and of loading. */
lam_code bench_switch_run(struct bench *b, lam_error *err);
lam_code bench_load_run(struct bench *b, lam_error *err);

/* bench_report.c. The exit status. */
int bench_print_json(const struct bench *b);
void bench_print_table(const struct bench *b);

#endif
