/* Attention of a plan's rows over their caches, cut into calls of the attention kernel: queries that share a KV head share a call, so
 * that K and V are read once for them. How it is cut decides no bit. */
#ifndef LAM_MODEL_ATTEND_H
#define LAM_MODEL_ATTEND_H

#include "base/pool.h"
#include "model/forward.h"

struct lam_attend {
    struct lam_budget *budget;      /* borrowed; NULL: none */
    const struct lam_config *config;
    const struct lam_kernels *kernels;
    struct lam_pool *pool;
    float *scores;              /* [threads, LAM_ATTENTION_QUERIES, scores_stride] */
    size_t scores_stride;
    const void **page_pointers; /* [threads, 2, max_pages] */
    size_t max_pages;
    /* The plan: runs of rows of one session, rows_at_once at most; the heads of a group in pieces. */
    struct lam_attend_block {
        size_t row, n_rows;
    } *blocks;                  /* [max_rows] */
    size_t n_blocks, pieces;
    const struct lam_row *rows;
    size_t n_rows;
    /* the layer at work */
    uint32_t layer;
    const float *q;
    float *out;
    size_t stride;
};

lam_code lam_attend_init(struct lam_attend *a, const struct lam_config *config, struct lam_pool *pool,
                         const struct lam_kernels *kernels, size_t max_rows, lam_error *err);
void lam_attend_release(struct lam_attend *a);

/* Cuts the plan and makes room for it. rows[n_rows] are borrowed until the next plan. */
lam_code lam_attend_plan(struct lam_attend *a, const struct lam_row *rows, size_t n_rows, lam_error *err);

/* q[n_rows, n_heads, head_dim] → out, both with this stride; every row's K and V of the layer are stored. */
void lam_attend_run(struct lam_attend *a, uint32_t layer, const float *q, float *out, size_t stride);

#endif
