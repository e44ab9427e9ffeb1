/* The linear layers that share an input: base products and adapter operators of every row, in two passes of the pool. */
#ifndef LAM_MODEL_LINEAR_H
#define LAM_MODEL_LINEAR_H

#include "adapter/overlay.h"
#include "base/pool.h"
#include "kernels/kernels.h"
#include "model/model.h"

/* y[n_rows, rows of w] = x · wᵀ, plus the operators of each row's overlay, plus the bias. */
struct lam_linear {
    const struct lam_matrix *w;
    const float *bias; /* [rows] or NULL */
    float *y;          /* row stride y_stride, a multiple of 16 and at least the rows of w rounded up to 16 */
    size_t y_stride;
};

/* Scratch of the linear layers, grown when a call needs more and kept. */
struct lam_linear_scratch {
    struct lam_q8_rows q8;
    struct lam_q14_rows q14;
    size_t q8_codes, q14_codes, scales; /* capacities in elements */
    struct lam_delta *deltas;           /* operator applications of one call */
    size_t n_deltas, max_deltas;
    float *t;                           /* A x of every delta */
    size_t t_floats;
    int16_t *tq;                        /* t in 14 bits */
    float *tq_scale;
    size_t tq_codes;
    float *tile_out;                    /* [threads, max rows, 16] */
    size_t tile_out_floats;
};

void lam_linear_scratch_release(struct lam_linear_scratch *s);

/* x[n_rows, cols] with row stride x_stride; overlays[n_rows] (NULL entries: base). failed[i] is set if row i has a value that is
 * not finite; other rows are not affected. n linears, at most 3, all with cols columns. */
lam_code lam_linear_run(struct lam_linear_scratch *s, struct lam_pool *pool, const struct lam_kernels *kernels, const float *x,
                        size_t x_stride, size_t n_rows, const struct lam_overlay *const *overlays, const struct lam_linear *linears,
                        size_t n, bool *failed, lam_error *err);

#endif
