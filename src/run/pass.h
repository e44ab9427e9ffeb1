/* Rows of one history through the model, in plans of the engine's size: what feeding and re-basing have in common. */
#ifndef LAM_RUN_PASS_H
#define LAM_RUN_PASS_H

#include "run/objects.h"

struct lam_pass {
    struct lam_composition *composition;
    struct lam_kv *kv;             /* holds rows below `from`, writable from there on */
    const uint32_t *tokens;        /* [end]: the whole history */
    const size_t *starts;          /* [n_activated] */
    size_t from, end;              /* what to compute; from < end */
    size_t told;                   /* `each` is told of positions from here on */
    float *logits;                 /* out: [n_vocab] of position end-1 */
    lam_logits_fn each;            /* may be NULL */
    void *context;
    lam_feed_progress_fn progress; /* may be NULL */
    void *progress_context;
};

/* Under the lock of the engine's pool. */
lam_code lam_pass_run(const struct lam_pass *pass, lam_error *err);

/* A row plan's entry: position of a history under its starts. LAM_E_NO_MEMORY. */
lam_code lam_pass_row(struct lam_composition *c, const size_t *starts, uint32_t token, size_t position, struct lam_kv *kv, float *logits,
                      struct lam_row *out, lam_error *err);

#endif
