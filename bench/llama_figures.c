/* The figures of `lamina bench`, measured in llama.cpp through its public interface (llama.h, v0.5.0), one run of each, as JSON:
 *
 *   llama_figures MODEL.gguf THREADS PREFILL DECODE SESSIONS PART [LORA.gguf …]
 *
 * SESSIONS is a list such as 8,16; PART is load, rates, batch, adapters or switch. bench/versus_llamacpp.py builds and calls it.
 * Everything is llama.cpp's default: weights repacked at load, flash attention as it chooses, 512 tokens a micro-batch. */
#define _POSIX_C_SOURCE 200809L
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POSITION 128     /* of the first token decoded */
#define FIRST_PROMPT 4
#define SWITCHES 16
#define MOST_LORAS 4
#define MOST_TOKENS 65536

struct run {
    const char *path;
    int threads, prefill, decode;
    struct llama_model *model;
    struct llama_adapter_lora *loras[MOST_LORAS];
    int n_loras, n_vocab;
    struct llama_context *context;
    struct llama_batch batch;
    const char *separator; /* between two rates */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "llama_figures: %s\n", what);
    exit(1);
}

static void quiet(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static double anonymous_bytes(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double kib = 0.0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "Anonymous:", 10) == 0) kib = strtod(line + 10, NULL);
    if (f) fclose(f);
    return kib * 1024.0;
}

static void load(struct run *r)
{
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    r->model = llama_model_load_from_file(r->path, params);
    if (!r->model) die("the model cannot be loaded");
    r->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(r->model));
}

/* positions for each of sessions. */
static void make_context(struct run *r, int sessions, int positions)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)(sessions * ((positions + 255) / 256 * 256));
    params.n_batch = 2048;
    params.n_seq_max = (uint32_t)sessions;
    params.n_threads = params.n_threads_batch = r->threads;
    if (r->context) llama_free(r->context);
    r->context = llama_init_from_model(r->model, params);
    if (!r->context) die("no context");
}

static void add(struct run *r, int position, int session, bool logits)
{
    struct llama_batch *b = &r->batch;
    b->token[b->n_tokens] = (llama_token)((position * 7919 + 17) % r->n_vocab);
    b->pos[b->n_tokens] = position;
    b->n_seq_id[b->n_tokens] = 1;
    b->seq_id[b->n_tokens][0] = session;
    b->logits[b->n_tokens++] = logits;
}

static void decode(struct run *r)
{
    if (llama_decode(r->context, r->batch) != 0) die("llama_decode failed");
    llama_synchronize(r->context);
    r->batch.n_tokens = 0;
}

static void feed(struct run *r, int session, int from, int n)
{
    for (int i = 0; i < n; i++) add(r, from + i, session, i + 1 == n);
    decode(r);
}

static void truncate(struct run *r, int session, int length)
{
    llama_memory_seq_rm(llama_get_memory(r->context), session, length, -1);
}

static void step(struct run *r, int sessions, int position)
{
    for (int k = 0; k < sessions; k++) add(r, position, k, true);
    decode(r);
}

static void print_rate(struct run *r, const char *part, int sessions, int tokens, double seconds)
{
    printf("%s{\"part\": \"%s\", \"sessions\": %d, \"tokens\": %d, \"tokens_per_second\": %.3f}", r->separator, part, sessions, tokens,
           sessions * tokens / seconds);
    r->separator = ", ";
}

static void time_prefill(struct run *r)
{
    feed(r, 0, 0, r->prefill); /* its buffers are touched once before */
    truncate(r, 0, 0);
    double start = now();
    feed(r, 0, 0, r->prefill);
    print_rate(r, "prefill", 1, r->prefill, now() - start);
}

/* Every session has POSITION tokens or more. */
static void time_decode(struct run *r, const char *part, int sessions, int n)
{
    for (int k = 0; k < sessions; k++) truncate(r, k, POSITION);
    step(r, sessions, POSITION);
    for (int k = 0; k < sessions; k++) truncate(r, k, POSITION);
    double start = now();
    for (int i = 0; i < n; i++) step(r, sessions, POSITION + i);
    print_rate(r, part, sessions, n, now() - start);
}

static int single_room(const struct run *r)
{
    return 1 + (r->prefill > POSITION + r->decode ? r->prefill : POSITION + r->decode);
}

static void use(struct run *r, int first, int n)
{
    float scales[MOST_LORAS];
    for (int i = 0; i < n; i++) scales[i] = 1.0f;
    if (llama_set_adapters_lora(r->context, r->loras + first, (size_t)n, scales) != 0) die("the adapters cannot be set");
}

static void run_load(struct run *r)
{
    double start = now();
    load(r);
    make_context(r, 1, 256);
    double ready = now();
    double anonymous = anonymous_bytes();
    feed(r, 0, 0, FIRST_PROMPT);
    printf("\"ready_seconds\": %.6f, \"first_token_seconds\": %.6f, \"anonymous_bytes\": %.0f", ready - start, now() - ready, anonymous);
}

static void run_single(struct run *r)
{
    if (r->prefill > 0) time_prefill(r);
    if (r->decode == 0) return;
    if (r->prefill < POSITION) {
        truncate(r, 0, 0);
        feed(r, 0, 0, POSITION);
    }
    time_decode(r, "decode", 1, r->decode);
}

static void run_batch(struct run *r, const char *list)
{
    for (char *end; *list; list = *end ? end + 1 : end) {
        int sessions = (int)strtol(list, &end, 10);
        if (end == list || sessions < 1) die("SESSIONS is no list of numbers");
        make_context(r, sessions, POSITION + r->decode);
        for (int k = 0; k < sessions; k++) feed(r, k, 0, POSITION);
        time_decode(r, "batch", sessions, r->decode / 4);
    }
}

/* "sets": the base, each adapter alone, all of them: the same rates under each. */
static void run_adapters(struct run *r)
{
    make_context(r, 1, single_room(r));
    int n_sets = r->n_loras + (r->n_loras > 1 ? 2 : 1);
    for (int set = 0; set < n_sets; set++) {
        bool all = set > r->n_loras;
        use(r, all || set == 0 ? 0 : set - 1, all ? r->n_loras : set > 0);
        truncate(r, 0, 0);
        printf("%s[", set ? ", " : "");
        r->separator = "";
        run_single(r);
        printf("]");
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return 0.5 * (values[(n - 1) / 2] + values[n / 2]);
}

/* The first adapter and the base in turn, two steps each. */
static void run_switch(struct run *r)
{
    double first[SWITCHES], steady[SWITCHES];
    make_context(r, 1, single_room(r));
    feed(r, 0, 0, POSITION);
    for (int i = -2; i < SWITCHES; i++) {
        double start = now();
        use(r, 0, i & 1);
        step(r, 1, POSITION);
        double middle = now();
        truncate(r, 0, POSITION);
        double again = now();
        step(r, 1, POSITION);
        double end = now();
        truncate(r, 0, POSITION);
        if (i < 0) continue;
        first[i] = middle - start;
        steady[i] = end - again;
    }
    double a = median(first, SWITCHES), b = median(steady, SWITCHES);
    printf("\"first_seconds\": %.6f, \"steady_seconds\": %.6f, \"difference_seconds\": %.6f", a, b, a - b);
}

int main(int argc, char **argv)
{
    if (argc < 7 || argc > 7 + MOST_LORAS) die("MODEL THREADS PREFILL DECODE SESSIONS PART [LORA …]");
    struct run r = {.path = argv[1], .threads = atoi(argv[2]), .prefill = atoi(argv[3]), .decode = atoi(argv[4]), .separator = ""};
    const char *part = argv[6];
    if (r.threads < 1 || r.prefill < 0 || r.prefill > MOST_TOKENS || r.decode < 0 || r.decode > MOST_TOKENS) die("a number out of range");
    llama_log_set(quiet, NULL);
    llama_backend_init();
    r.batch = llama_batch_init(MOST_TOKENS, 0, 1);
    if (strcmp(part, "load") != 0) load(&r);
    for (int i = 7; i < argc; i++)
        if (!(r.loras[r.n_loras++] = llama_adapter_lora_init(r.model, argv[i]))) die("an adapter cannot be loaded");
    printf("{");
    if (strcmp(part, "load") == 0) {
        run_load(&r);
    } else if (strcmp(part, "rates") == 0) {
        make_context(&r, 1, single_room(&r));
        printf("\"rates\": [");
        run_single(&r);
        printf("]");
    } else if (strcmp(part, "batch") == 0) {
        printf("\"rates\": [");
        run_batch(&r, argv[5]);
        printf("]");
    } else if (strcmp(part, "adapters") == 0) {
        printf("\"sets\": [");
        run_adapters(&r);
        printf("]");
    } else if (strcmp(part, "switch") == 0 && r.n_loras) {
        run_switch(&r);
    } else {
        die("no such PART");
    }
    printf("}\n");
    return 0;
}
