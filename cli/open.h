/* Opening what the options name: base, adapters, their composition. */
#ifndef LAM_CLI_OPEN_H
#define LAM_CLI_OPEN_H

#include "stack.h"

#include <stdio.h>

/* A loaded adapter, under a name that no other one here has. */
struct named_adapter {
    lam_adapter *adapter;
    char *name;       /* owned */
    double weight;
    lam_stack_rule rule;
};

/* A base with the adapters of the command line, and their composition. */
struct opened {
    lam_engine *engine;
    lam_base *base;
    lam_base_info info;
    char *base_path;                 /* the .slm */
    struct lam_cached *cached_base;  /* keeps the cache from removing it */
    struct named_adapter adapters[MAX_ADAPTERS];
    size_t n_adapters;
    struct stack stack;              /* adapters are its own, in its order, and those that were added later */
    lam_compose_options compose;     /* without rules and owners, which compose adds */
    lam_composition *composition;
    lam_sampling sampling;           /* of the options, else of the manifest, else the default */
    double load_seconds;
    char standing[256];              /* by receipts, of the composition that has them; "": there are none */
    char standing_id[LAM_DIGEST_TEXT];
};

/* The model of the options, or of the manifest that it is, imported into the cache if it is no .slm. What was opened is released by
 * close_all in any case. */
lam_code open_base(const struct options *o, struct opened *out, lam_error *err);
/* open_base, the adapters and the composition. */
lam_code open_all(const struct options *o, struct opened *out, lam_error *err);
/* "base", "unverified mixture", "claimed by …" or "verified by NAME" (lamina/receipt.h), of the composition as it is now. */
const char *standing(const struct opened *all);
/* The same of another composition of what is open. */
const char *standing_of(const struct opened *all, const lam_composition *composition);
/* Sets it by receipts[n], each checked against the composition and the trust list of the options. */
lam_code take_receipts(const struct options *o, struct opened *all, const char *const receipts[], size_t n, lam_error *err);
/* "verified", or "unverified" with --verify off: the base's bytes that a result came from. */
const char *bytes_state(const struct options *o);
/* A line that tells it, but for a composition without adapters; its first word takes width. */
void print_standing(FILE *to, const struct opened *all, int width);
/* A line that tells how keys and values are kept, if that was chosen with --kv. */
void print_kv_format(FILE *to, const struct options *o, const struct opened *all);
/* One more adapter for a base that is open; not yet in the composition. */
lam_code open_adapter(const struct options *o, struct opened *all, const struct adapter_option *a, lam_error *err);
/* Unloads the last adapter. */
void drop_adapter(struct opened *all);
/* A composition of the adapters; those of weight 0 are left out with skip_zero. */
lam_code compose(const struct opened *all, bool skip_zero, lam_composition **out, lam_error *err);
/* LAM_E_CONFLICT if path is a file that the options name, or the manifest that is the model, to be read from. The manifest itself is not
 * looked at: some replace it. */
lam_code check_not_read(const struct options *o, const struct opened *all, const char *path, lam_error *err);
void close_all(struct opened *all);

#endif
