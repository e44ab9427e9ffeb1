/* The one forward pass, over a row plan: N token rows, each with its session's KV cache, its position and its overlay. A chat is a
 * plan of one session; a batch is a plan of many. What a row computes depends on its own session alone (docs/numeric.md). */
#ifndef LAM_MODEL_FORWARD_H
#define LAM_MODEL_FORWARD_H

#include "adapter/overlay.h"
#include "base/pool.h"
#include "cache/kv.h"
#include "kernels/kernels.h"
#include "model/model.h"

struct lam_row {
    uint32_t token;
    size_t position;                   /* in its history; the KV cache holds all earlier ones or this plan does, in order */
    struct lam_kv *kv;                 /* reserved up to position */
    const struct lam_overlay *overlay; /* NULL: the base */
    float *logits;                     /* out: [n_vocab]; NULL: not wanted */
    bool failed;                       /* out: an activation left the finite range; the row's session must end */
};

struct lam_forward;

/* Buffers for plans of up to max_rows rows of this model; pool and kernels are borrowed. */
lam_code lam_forward_new(const struct lam_model *model, struct lam_pool *pool, const struct lam_kernels *kernels, size_t max_rows,
                         struct lam_forward **out, lam_error *err);
void lam_forward_free(struct lam_forward *f);

/* Runs the plan. LAM_E_TOKEN for a token outside the vocabulary, LAM_E_ARGUMENT for too many rows, LAM_E_NO_MEMORY; a row that
 * failed has no meaning in its logits. */
lam_code lam_forward_run(struct lam_forward *f, struct lam_row *rows, size_t n_rows, lam_error *err);

/* How many plans were run, or begun. Nobody holds what only plans before the last of them held. */
uint64_t lam_forward_plans(const struct lam_forward *f);

#endif
