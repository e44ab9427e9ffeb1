/* One function a command: returns the exit status (0 done, 1 an error that was reported, 2 wrong use). */
#ifndef LAM_CLI_COMMANDS_H
#define LAM_CLI_COMMANDS_H

#include "options.h"

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

#endif
