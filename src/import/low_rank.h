/* The nearest matrix of a given rank, of a matrix that is read in ranges of rows and never held as a whole.
 *
 * Randomised subspace iteration (Halko, Martinsson, Tropp 2011, arXiv:0909.4061, algorithm 4.4) in float64 with a fixed start, QR by
 * Householder's reflections, and the small triangle's singular values by one-sided Jacobi rotations. Every sum has one order, so the
 * bits don't depend on the number of threads. Why, and how near it comes: docs/decisions/2026-11-30-diff.md. */
#ifndef LAM_IMPORT_LOW_RANK_H
#define LAM_IMPORT_LOW_RANK_H

#include "base/error.h"
#include "base/pool.h"

#include <stdint.h>

struct lam_low_rank_source {
    uint32_t rows, cols;
    /* Rows first … first + n − 1 to out[n, cols]. */
    lam_code (*read)(void *context, uint32_t first, uint32_t n, float *out, lam_error *err);
    void *context;
    struct lam_pool *pool;
};

struct lam_low_rank {
    uint32_t rank;
    double *left, *right;  /* [rows, rank], [cols, rank], owned: matrix ≈ left · rightᵀ, each with the root of the singular values */
    double *sigma;         /* [rank], falling; owned */
    double squares;        /* sum of all of the matrix's squares */
    unsigned n_iterations;
};

/* rank: 1 to the lesser of rows and cols. LAM_E_NO_MEMORY and what read raises. */
lam_code lam_low_rank_find(const struct lam_low_rank_source *source, uint32_t rank, struct lam_low_rank *out, lam_error *err);
void lam_low_rank_release(struct lam_low_rank *l);

/* How many rows are read at a time: some 4 MiB, at least 16. */
uint32_t lam_low_rank_batch(uint32_t rows, uint32_t cols);

#endif
