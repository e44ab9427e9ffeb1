/* The linear layers that share an input: base products and adapter operators of every row, in one pass of the pool. */
#ifndef LAM_MODEL_LINEAR_H
#define LAM_MODEL_LINEAR_H

#include "adapter/overlay.h"
#include "base/pool.h"
#include "kernels/kernels.h"
#include "model/model.h"

#include <stdatomic.h>

/* y[n_rows, rows of w] = x · wᵀ, plus the operators of each row's overlay, plus the bias. */
struct lam_linear {
    const struct lam_matrix *w;
    const float *bias; /* [rows] or NULL */
    float *y;          /* row stride y_stride, a multiple of 16 and at least the rows of w rounded up to 16; NULL: only done sees it */
    size_t y_stride;
};

/* Scratch of the linear layers, grown when a call needs more and kept. */
struct lam_linear_scratch {
    struct lam_budget *budget;          /* borrowed; NULL: none */
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
    float *tile_out;                    /* [threads, what a thread needs] */
    size_t tile_out_floats;
    float *scaled;                      /* [n_rows, x_stride]: x times what IA³ scales it by */
    size_t scaled_floats;
};

void lam_linear_scratch_release(struct lam_linear_scratch *s);

#define LAM_LINEAR_MAX 3

/* A call with done has linears of equally many rows; it is told of every run of columns first .. first+n-1 (n a multiple of 16:
 * the last run may end beyond the rows of w) once all linears hold it for all rows, the first one's at y[n_rows, y_stride]. Runs
 * are disjoint, threads several. A linear without y is the only one of its call. */
typedef void (*lam_linear_done_fn)(void *context, size_t first, size_t n, float *y, size_t y_stride);

struct lam_linear_call {
    const float *x;                             /* [n_rows, cols], row stride x_stride */
    size_t x_stride, n_rows;
    const struct lam_overlay *const *overlays;  /* [n_rows]; NULL entries: base */
    const struct lam_linear *linears;           /* [n], all with cols columns */
    size_t n;                                   /* 1 .. LAM_LINEAR_MAX */
    atomic_bool *failed;                        /* [n_rows]; set where a row has a value that is not finite; others are not affected */
    lam_linear_done_fn done;
    void *context;                              /* of done */
};

lam_code lam_linear_run(struct lam_linear_scratch *s, struct lam_pool *pool, const struct lam_kernels *kernels,
                        const struct lam_linear_call *call, lam_error *err);

#endif
