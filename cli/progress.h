/* A progress bar on a terminal's standard error, with rate and time left; and where Ctrl-C stops long work. */
#ifndef LAM_CLI_PROGRESS_H
#define LAM_CLI_PROGRESS_H

#include "report.h"

struct progress {
    bool show;          /* on a terminal, without --quiet and --json */
    bool drawn;         /* a bar stands on the line */
    const char *unit;   /* "MB" or "tokens" */
    double size;        /* of a unit: 1e6 bytes or 1 token */
    const char *stage;
    double start, last; /* seconds: the stage's begin, the last drawing */
};

/* For work counted in bytes, or in tokens. Ctrl-C is held until progress_end. */
void progress_begin(struct progress *p, const struct options *o, bool tokens);
/* A lam_progress_fn: context is the struct progress. stage is borrowed until progress_end. False after Ctrl-C. */
bool progress_step(void *context, const char *stage, uint64_t done, uint64_t total);
/* Takes the bar away. */
void progress_end(struct progress *p);

#endif
