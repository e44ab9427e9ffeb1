/* The command line's options: one list, one spelling in every command. */
#ifndef LAM_CLI_OPTIONS_H
#define LAM_CLI_OPTIONS_H

#include "lamina/lamina.h"

#define MAX_ADAPTERS 64

struct adapter_option {
    char *path;              /* owned */
    double weight;
    lam_stack_rule rule;
    bool waive, accept_tokenizer; /* of a manifest */
    const char *digest;      /* of a manifest: what the file must hold; NULL: anything */
    const char *name;        /* of a manifest; NULL: as the file says */
};

/* What was given with an option that may be repeated; borrowed from argv. */
#define MAX_LIST 256
struct list {
    const char *items[MAX_LIST];
    size_t n;
};

/* Numbers that may not have been given: 0 is not the same. */
struct count {
    uint64_t value;
    bool given;
};
struct real {
    double value;
    bool given;
};

struct options {
    const char *command;   /* its name; NULL before one is known */
    const char *model, *prompt, *system, *output, *quantise, *token_ids, *only, *sessions, *method, *density, *drop, *dtype, *budget, *template;
    struct adapter_option adapters[MAX_ADAPTERS];
    size_t n_adapters;
    struct list owners, policies, figures, receipts, from, search;
    const char *trust, *key, *by;
    const char *store, *name, *reason, *limit_rate, *user, *cacert, *first;
    struct list sources;
    const char *save_session, *restore_session, *draft;
    struct count tokens, prefill, threads, context, chunk, runs, top_k, seed, prefix_cache, connections;
    struct real temperature, top_p, min_p, repeat_penalty;
    bool allow_base;       /* where an activated adapter's invocation is missing */
    bool raw, echo, json, tensors, waive, accept_tokenizer, strict, repair, check_chain, plain_http, list, quiet, help;
    bool bare_model;       /* the model was named without -m */
    bool unnamed_model;    /* no model was named: it is the one that runs then */
    lam_verify verify;
    lam_kv kv;
    char **rest;           /* what is no option, borrowed from argv */
    size_t n_rest;
};

/* Parses argv[first..argc) for a command that takes the options in names (ended by NULL). On a wrong option says why and returns false.
 * options_release is due in any case. */
bool options_parse(int argc, char **argv, int first, const char *command, const char *const *names, struct options *o);
void options_release(struct options *o);

/* Whether argv[first..argc) asks for JSON, also where it cannot be parsed. */
bool options_want_json(int argc, char **argv, int first);

/* The help of a command's options in names; model_help (may be NULL) stands in place of the usual one of -m. */
void options_print_help(const char *command, const char *const *names, const char *model_help);

uint64_t count_or(struct count c, uint64_t otherwise);
/* The value of an option that is a number of bytes, perhaps with k, M, G or T. text NULL: *out stays. LAM_E_ARGUMENT. */
lam_code read_bytes(const char *option, const char *text, uint64_t *out, lam_error *err);

/* All of text as a number: decimals, nan or inf; no blank in front, nothing hexadecimal. */
bool read_real(const char *text, double *out);

/* "FILE[=WEIGHT][,replace]": the last '=' counts if a number follows and the text as a whole is no file's name; likewise ",replace" and
 * ",add" at the end. */
lam_code adapter_option_parse(const char *text, struct adapter_option *out, lam_error *err);

#endif
