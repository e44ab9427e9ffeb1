/* What a switch between two compositions in memory costs while a generation runs, and what activating an adapter from its file costs:
 *
 *   switch MODEL.slm A.slm B.slm COLD.slm THREADS SWITCHES REQUESTS
 *
 * as JSON, times in seconds. The generation holds a lease of what was active when it began and decodes, the likeliest token each
 * time, in a thread of its own; it never stops for a switch. Beside it, and again with nothing beside it:
 *
 *   publish   lam_runtime_activate, A and B in turn, SWITCHES times
 *   kept      a switch, then the first token of a session that already has its prompt under the composition switched to: REQUESTS times
 *   prefill   a switch, then the first token of a new session, whose prompt is computed under that composition: REQUESTS times
 *   cold      COLD.slm is loaded, composed, activated, and a new session gives the logits behind one token, with the file in the system's
 *             cache and with that cache dropped
 *   gaps      of the generation, from token to token, in each of these
 *
 * bench/versus_llama_server.py sets it beside llama-server. */
#define _DEFAULT_SOURCE
#include "lamina/runtime.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HISTORY 128      /* tokens that the generation begins with */
#define PROMPT 256       /* tokens of a request */
#define CONTEXT 1024
#define UNDISTURBED 200  /* tokens */
#define PAUSE 0.005      /* seconds between two switches */
#define COLD_STARTS 5
#define MOST_TIMES 65536

struct times {
    size_t n;
    double values[MOST_TIMES];
};

/* One that runs, on the lease that was current when it began. */
struct generation {
    lam_session *session;
    pthread_t thread;
    atomic_bool stop;
    atomic_size_t n_tokens;
    struct times *gaps;
};

struct bench {
    lam_runtime *runtime;
    uint32_t n_vocab;
    size_t n_switches, n_requests;
    lam_adapter *adapters[2];
    lam_composition *pair[2];
    unsigned next;             /* of pair: what is switched to next */
    const char *cold_path;
    struct generation running; /* session: NULL if none is */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static void die(const char *what)
{
    fprintf(stderr, "switch: %s\n", what);
    exit(1);
}

static lam_error error;
static void need(lam_code code)
{
    if (code != LAM_OK) die(error.message);
}

/* ---- times ---- */

static struct times *new_times(void)
{
    struct times *t = calloc(1, sizeof *t);
    if (!t) die("out of memory");
    return t;
}

static void add(struct times *t, double seconds)
{
    if (t->n < MOST_TIMES) t->values[t->n++] = seconds;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least value that a share of all are not above. */
static double quantile(const struct times *t, double share)
{
    size_t rank = (size_t)(share * (double)t->n);
    if ((double)rank < share * (double)t->n) rank++;
    return t->values[rank ? rank - 1 : 0];
}

/* Prints and frees them. */
static void tell(const char *before, const char *name, struct times *t)
{
    qsort(t->values, t->n, sizeof *t->values, ascending);
    printf("%s\"%s\": {\"n\": %zu, \"median\": %.9f, \"p99\": %.9f, \"most\": %.9f}", before, name, t->n, quantile(t, 0.5), quantile(t, 0.99),
           quantile(t, 1.0));
    free(t);
}

/* ---- the generation beside ---- */

static uint32_t token_at(const struct bench *b, size_t i) { return (uint32_t)((i * 7919 + 17) % b->n_vocab); }

static void feed(const struct bench *b, lam_session *session, size_t n)
{
    uint32_t tokens[CONTEXT];
    for (size_t i = 0; i < n; i++) tokens[i] = token_at(b, i);
    need(lam_session_feed(session, tokens, n, NULL, NULL, &error));
}

/* Errors of its own: `error` is the other thread's. */
static void *generate(void *self)
{
    struct generation *g = self;
    const lam_sampling likeliest = {.temperature = 0.0f, .top_p = 1.0f, .repeat_penalty = 1.0f};
    lam_error err;
    uint32_t token;
    double last = now();
    while (!atomic_load(&g->stop)) {
        if (lam_session_sample(g->session, &likeliest, &token, &err) != LAM_OK) die(err.message);
        if (lam_session_length(g->session) == CONTEXT && lam_session_truncate(g->session, HISTORY, &err) != LAM_OK) die(err.message);
        if (lam_session_step(&g->session, &token, 1, &err) != LAM_OK) die(err.message);
        double end = now();
        add(g->gaps, end - last);
        last = end;
        atomic_fetch_add(&g->n_tokens, 1);
    }
    return NULL;
}

static lam_session *session_of_current(struct bench *b)
{
    lam_lease *lease;
    lam_session *session;
    need(lam_runtime_lease(b->runtime, &lease, &error));
    need(lam_lease_session(lease, CONTEXT, &session, &error));
    lam_lease_release(lease); /* the session has it */
    return session;
}

static void begin(struct bench *b, bool beside)
{
    struct generation *g = &b->running;
    *g = (struct generation){.session = NULL};
    if (!beside) return;
    g->session = session_of_current(b);
    g->gaps = new_times();
    feed(b, g->session, HISTORY);
    if (pthread_create(&g->thread, NULL, generate, g) != 0) die("no thread");
    while (atomic_load(&g->n_tokens) == 0) rest(PAUSE);
}

static void end(struct bench *b)
{
    struct generation *g = &b->running;
    if (!g->session) return;
    atomic_store(&g->stop, true);
    pthread_join(g->thread, NULL);
    lam_session_free(g->session);
    tell(", ", "gaps", g->gaps);
}

/* ---- the parts ---- */

static void undisturbed(struct bench *b)
{
    printf("\"undisturbed\": {\"prompt\": %d", PROMPT);
    begin(b, true);
    while (atomic_load(&b->running.n_tokens) < UNDISTURBED) rest(PAUSE);
    end(b);
    printf("}");
}

static void to_next(struct bench *b)
{
    need(lam_runtime_activate(b->runtime, b->pair[b->next], NULL, NULL, &error));
    b->next ^= 1;
}

static void publish(struct bench *b, bool beside)
{
    struct times *publish = new_times();
    begin(b, beside);
    for (size_t i = 0; i < b->n_switches; i++) {
        double start = now();
        to_next(b);
        add(publish, now() - start);
        rest(PAUSE);
    }
    tell("{", "publish", publish);
    end(b);
    printf("}");
}

static void kept(struct bench *b, bool beside)
{
    struct times *publish = new_times(), *whole = new_times();
    lam_session *sessions[2];
    uint32_t token = token_at(b, PROMPT - 1);
    for (int i = 0; i < 2; i++) {
        unsigned which = b->next;
        to_next(b);
        feed(b, sessions[which] = session_of_current(b), PROMPT);
    }
    begin(b, beside);
    for (size_t i = 0; i < b->n_requests; i++) {
        lam_session *session = sessions[b->next];
        need(lam_session_truncate(session, PROMPT - 1, &error));
        double start = now();
        to_next(b);
        double published = now();
        need(lam_session_step(&session, &token, 1, &error));
        add(whole, now() - start);
        add(publish, published - start);
        rest(PAUSE);
    }
    tell("{", "publish", publish);
    tell(", ", "first_token", whole);
    end(b);
    printf("}");
    for (int i = 0; i < 2; i++) lam_session_free(sessions[i]);
}

static void prefill(struct bench *b, bool beside)
{
    struct times *publish = new_times(), *computed = new_times(), *whole = new_times();
    begin(b, beside);
    for (size_t i = 0; i < b->n_requests; i++) {
        double start = now();
        to_next(b);
        double published = now();
        lam_session *session = session_of_current(b);
        feed(b, session, PROMPT);
        double done = now();
        add(publish, published - start);
        add(computed, done - published);
        add(whole, done - start);
        lam_session_free(session);
        rest(PAUSE);
    }
    tell("{", "publish", publish);
    tell(", ", "prefill", computed);
    tell(", ", "first_token", whole);
    end(b);
    printf("}");
}

/* Writes what is not yet on the disk, and asks the system to drop the rest. The share of the file that is still in its cache. */
static double drop(const char *path)
{
    struct stat info;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &info) != 0 || info.st_size == 0) die("the cold adapter's file cannot be read");
    size_t size = (size_t)info.st_size, page = (size_t)sysconf(_SC_PAGESIZE), n = (size + page - 1) / page, left = 0;
    if (fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) die("the cache cannot be dropped");
    unsigned char *resident = malloc(n);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    if (!resident || map == MAP_FAILED || mincore(map, size, resident) != 0) die("what is cached cannot be known");
    for (size_t i = 0; i < n; i++) left += resident[i] & 1;
    munmap(map, size);
    free(resident);
    close(file);
    return (double)left / (double)n;
}

static void cold(struct bench *b, bool beside, bool dropped)
{
    struct times *load = new_times(), *compose = new_times(), *publish = new_times(), *first = new_times(), *whole = new_times();
    const double weight = 1.0;
    double cached = 0.0;
    begin(b, beside);
    for (size_t i = 0; i < COLD_STARTS; i++) {
        lam_adapter *adapter;
        lam_composition *composition;
        double left = dropped ? drop(b->cold_path) : 1.0;
        if (left > cached) cached = left;
        double start = now();
        need(lam_adapter_load(lam_runtime_base(b->runtime), b->cold_path, false, &adapter, &error));
        double loaded = now();
        need(lam_runtime_compose(b->runtime, &adapter, &weight, 1, NULL, &composition, &error));
        double composed = now();
        need(lam_runtime_activate(b->runtime, composition, NULL, NULL, &error));
        double published = now();
        lam_session *session = session_of_current(b);
        feed(b, session, 1);
        double done = now();
        add(load, loaded - start);
        add(compose, composed - loaded);
        add(publish, published - composed);
        add(first, done - published);
        add(whole, published - start);
        lam_session_free(session);
        to_next(b);
        lam_runtime_settle(b->runtime); /* nothing has the file mapped any more */
        lam_composition_free(composition);
        lam_adapter_unload(adapter);
    }
    printf("{\"cached\": %.3f", cached);
    tell(", ", "load", load);
    tell(", ", "compose", compose);
    tell(", ", "publish", publish);
    tell(", ", "activated", whole);
    tell(", ", "first_token", first);
    end(b);
    printf("}");
}

static void all_parts(struct bench *b, bool beside)
{
    printf("{\"publish\": ");
    publish(b, beside);
    printf(", \"kept\": ");
    kept(b, beside);
    printf(", \"prefill\": ");
    prefill(b, beside);
    printf(", \"cold\": ");
    cold(b, beside, true);
    printf(", \"cached\": ");
    cold(b, beside, false);
    printf("}");
}

/* Loads both adapters, and makes the first active. */
static void open_pair(struct bench *b, char **paths)
{
    const double weight = 1.0;
    for (int i = 0; i < 2; i++) {
        need(lam_adapter_load(lam_runtime_base(b->runtime), paths[i], false, &b->adapters[i], &error));
        need(lam_runtime_compose(b->runtime, &b->adapters[i], &weight, 1, NULL, &b->pair[i], &error));
    }
    to_next(b);
}

int main(int argc, char **argv)
{
    if (argc != 8) die("MODEL A B COLD THREADS SWITCHES REQUESTS");
    long numbers[3];
    for (int i = 0; i < 3; i++)
        if ((numbers[i] = strtol(argv[5 + i], NULL, 10)) < 1 || numbers[i] > MOST_TIMES) die("a number out of range");
    static struct bench b;
    b.n_switches = (size_t)numbers[1];
    b.n_requests = (size_t)numbers[2];
    b.cold_path = argv[4];
    lam_engine *engine;
    lam_base_info info;
    need(lam_engine_new(&(lam_engine_options){.threads = (unsigned)numbers[0]}, &engine, &error));
    need(lam_runtime_new(engine, &b.runtime, &error));
    need(lam_runtime_load(b.runtime, argv[1], LAM_VERIFY_LAZY, &error));
    lam_base_describe(lam_runtime_base(b.runtime), &info);
    b.n_vocab = info.n_vocab;
    open_pair(&b, argv + 2);
    printf("{");
    undisturbed(&b);
    printf(", \"beside\": ");
    all_parts(&b, true);
    printf(", \"alone\": ");
    all_parts(&b, false);
    printf("}\n");
    for (int i = 0; i < 2; i++) {
        lam_composition_free(b.pair[i]);
        lam_adapter_unload(b.adapters[i]);
    }
    lam_runtime_free(b.runtime);
    lam_engine_free(engine);
    return 0;
}
