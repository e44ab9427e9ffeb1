/* Encoding while importing: what "q4_64:outliers=0.005,keep=embedding" asks for, and the largest errors of a matrix. */
#ifndef LAM_IMPORT_QUANTISE_H
#define LAM_IMPORT_QUANTISE_H

#include "import/import.h"
#include "model/arch.h"
#include "tensor/residual.h"

#define LAM_OUTLIERS_MAX 0.05 /* more would be smaller with a larger block type */

struct lam_quantise {
    bool on;
    double outliers;                  /* fraction of a matrix's elements that get a residual */
    bool keep_embedding, keep_output; /* leave them as they are */
};

/* text may be NULL: off. LAM_E_ARGUMENT says what is wrong. */
lam_code lam_quantise_parse(const char *text, struct lam_quantise *out, lam_error *err);

/* Whether a float matrix of this role and row length is encoded. */
bool lam_quantise_takes(const struct lam_quantise *q, enum lam_role role, uint64_t cols);

/* Number of residual values of a matrix; UINT64_MAX if they are too many for a file. */
uint64_t lam_quantise_values(const struct lam_quantise *q, uint64_t rows, uint64_t cols);

/* Collects the n largest values of a matrix [rows, cols] while its rows go by, ties to the lower index: first of the weights, which are
 * taken out before the rest is encoded, then of the errors, which become the residual.
 * Memory: 32 bytes for each value, while collecting. */
struct lam_outlier;
struct lam_outliers {
    struct lam_outlier *found; /* n_found of at most 2n; owned */
    size_t n, n_found, at;
    float least;               /* magnitude above which a value may still be among the n; negative: any */
    uint8_t *bytes;            /* the finished residual, lam_residual_view's form; owned */
};

lam_code lam_outliers_begin(struct lam_outliers *o, size_t n, lam_error *err);
/* values[cols] of one row. Rows come in order. */
void lam_outliers_add_row(struct lam_outliers *o, uint64_t row, uint64_t cols, const float *values);
/* When all rows have been added: makes ready for lam_outliers_blank, which sets what was found in a row of values[cols] to 0. Rows
 * come in order. */
void lam_outliers_sort(struct lam_outliers *o);
void lam_outliers_blank(struct lam_outliers *o, uint64_t row, uint64_t cols, float *values);
/* Turns what was found into o->bytes. */
lam_code lam_outliers_finish(struct lam_outliers *o, uint64_t rows, uint64_t cols, lam_error *err);
void lam_outliers_release(struct lam_outliers *o);

#endif
