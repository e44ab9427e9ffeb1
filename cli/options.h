/* The command line's options: one list, one spelling in every command. */
#ifndef LAM_CLI_OPTIONS_H
#define LAM_CLI_OPTIONS_H

#include "lamina/lamina.h"

#define MAX_ADAPTERS 64

struct adapter_option {
    char *path;    /* owned */
    double weight;
};

struct options {
    const char *model, *prompt, *output, *token_ids;
    struct adapter_option adapters[MAX_ADAPTERS];
    size_t n_adapters;
    size_t n_tokens;       /* -n; 0: not given */
    lam_sampling sampling;
    unsigned threads;
    size_t context, chunk;
    bool raw, echo, json, tensors, waive, quiet, help;
    lam_verify verify;
    const char *system;
    char **rest;           /* what is no option, borrowed from argv */
    size_t n_rest;
};

/* Parses argv[first..argc). On a wrong option prints why and returns false. */
bool options_parse(int argc, char **argv, int first, struct options *o);
void options_release(struct options *o);

/* The help of the options in letters (their short names, or the first letter of a long one as options.c lists them). */
void options_print_help(const char *const *names);

/* If no -m was given, takes the model from the first of the rest. False, with a message, if there is none. */
bool options_take_model(struct options *o);

/* "FILE=WEIGHT": the last '=' counts if a number follows. False on lack of memory. */
bool adapter_option_parse(const char *text, struct adapter_option *out);

#endif
