/* The commands: one function each, in a file of its own, that returns the exit status (0 done, 1 an error that was reported,
 * 2 wrong use). */
#ifndef LAM_CLI_COMMANDS_H
#define LAM_CLI_COMMANDS_H

#include "options.h"

struct command {
    const char *name;
    int (*run)(struct options *o);
    const char *arguments, *summary;
    const char *const *options; /* names, ended by NULL */
    const char *notes;          /* lines, or NULL */
    const char *examples;
};

/* NULL if there is none of this name; then *near (may be NULL) is one that was probably meant, or NULL. */
const struct command *command_find(const char *name, const struct command **near);
/* What there is, and how a command is used, on standard output. */
void commands_print_overview(void);
void command_print_help(const struct command *c);

int cmd_run(struct options *o);
int cmd_import(struct options *o);
int cmd_inspect(struct options *o);
int cmd_verify(struct options *o);
int cmd_export(struct options *o);
int cmd_logits(struct options *o);
int cmd_tokenize(struct options *o);
int cmd_detokenize(struct options *o);
int cmd_perplexity(struct options *o);
int cmd_bench(struct options *o);
int cmd_cache(struct options *o);
int cmd_compose(struct options *o);
int cmd_check(struct options *o);
int cmd_receipt(struct options *o);
int cmd_diff(struct options *o);
int cmd_merge(struct options *o);
int cmd_plan(struct options *o);
int cmd_store(struct options *o);
int cmd_pull(struct options *o);
int cmd_push(struct options *o);
int cmd_seed(struct options *o);

#endif
