/* What the commands share: opening what the options name, progress, and saying what went wrong. */
#ifndef LAM_CLI_COMMON_H
#define LAM_CLI_COMMON_H

#include "options.h"

#include <jansson.h>
#include <stdio.h>

/* A loaded adapter and the name by which a chat calls it. */
struct named_adapter {
    lam_adapter *adapter;
    double weight;
};

/* A base with the adapters of the command line, and their composition. */
struct opened {
    lam_engine *engine;
    lam_base *base;
    lam_base_info info;
    char *base_path;                 /* the .slm */
    struct lam_cached *cached_base;  /* keeps the cache from removing it; NULL outside the cache */
    struct named_adapter adapters[MAX_ADAPTERS];
    size_t n_adapters;
    lam_composition *composition;
    double load_seconds;
};

/* Prints the error (as JSON with --json) and returns 1. */
int report(const struct options *o, const lam_error *err);
/* The same for a wrong use of the command line: returns 2. */
int usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The model of the options, imported into the cache if it is no .slm. What was opened is released by close_all in any case. */
lam_code open_base(const struct options *o, struct opened *out, lam_error *err);
/* open_base, the adapters and the composition. */
lam_code open_all(const struct options *o, struct opened *out, lam_error *err);
/* One more adapter for a base that is open; not yet in the composition. */
lam_code open_adapter(const struct options *o, struct opened *all, const struct adapter_option *a, lam_error *err);
void close_all(struct opened *all);

/* A progress bar on a terminal's standard error, nothing elsewhere. */
bool progress_bar(void *context, const char *stage, uint64_t done, uint64_t total);
lam_import_options import_options(const struct options *o);

/* Prints value and a line end to standard output, and releases it. Returns 0. */
int print_json(json_t *value);

/* All of a file, or of standard input for "-", zero-terminated; freed with free. */
lam_code read_whole(const char *path, char **text, size_t *len, lam_error *err);

/* The prompt of the options (--token-ids, -p or standard input) in tokens; freed with lam_memory_free. chat: through the template. */
lam_code prompt_tokens(const struct options *o, const struct opened *all, const char *text, bool chat, uint32_t **tokens, size_t *n,
                       lam_error *err);

/* "1,2, 3" → tokens, freed with lam_memory_free. */
lam_code parse_token_ids(const char *text, uint32_t **tokens, size_t *n, lam_error *err);

double now_seconds(void);

#endif
