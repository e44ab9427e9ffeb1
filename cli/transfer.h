/* What pull, push, and the first launch have in common: options, lines that the library says, the report. */
#ifndef LAM_CLI_TRANSFER_H
#define LAM_CLI_TRANSFER_H

#include "progress.h"

#include "lamina/pull.h"

struct transfer {
    const struct options *o;
    struct progress progress;
    lam_transfer_options options;
    json_t *lines;               /* owned: what was said, for --json */
};

/* Reads the options. Ctrl-C is held from here to transfer_end, which is due in any case. */
lam_code transfer_begin(struct transfer *t, const struct options *o, lam_error *err);
void transfer_end(struct transfer *t);
/* The report as an object, with what was said. */
json_t *transfer_json(const struct transfer *t, const lam_transfer_report *r);
/* The store of the options. */
lam_code open_store(const struct options *o, bool create, lam_store **out, lam_error *err);

#endif
