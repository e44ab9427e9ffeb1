/* What lam_diff (lamina/diff.h) works on: the tensors that differ, and their writing.
 * Memory: two mapped files, some 4 MiB of rows, the factors that are found (LoRA), and one buffer of the writer, which holds at least one
 * vector of sparse values as a whole. A low-rank search takes (rows + cols) · 1.5 rank float64 of one matrix more. */
#ifndef LAM_IMPORT_DIFF_H
#define LAM_IMPORT_DIFF_H

#include "import/delta.h"
#include "import/progress.h"
#include "lamina/diff.h"
#include "model/arch.h"

/* A tensor that differs. */
struct lam_diff_item {
    char name[32];                 /* of its module: "blk.0.attn_q" */
    enum lam_role role;            /* the module's */
    uint32_t layer;
    enum lam_adapter_part part;    /* DELTA of a matrix; WEIGHT: a norm; BIAS */
    struct lam_delta delta;        /* of a matrix */
    float *vector;                 /* [delta.cols], owned: the new norm or bias */
    uint32_t rank;
    float *left, *right;           /* [rows, rank], [cols, rank], owned, as stored */
    unsigned n_iterations;
    uint64_t n_changed, n_kept;    /* elements */
    double base, all, kept, rest;  /* norms: of the base's tensor, the difference, what is stored of it, what is not */
};

struct lam_diff {
    const lam_diff_options *options;
    enum lam_dtype dtype;
    struct lam_slm *base, *tuned;   /* owned */
    struct lam_config config, tuned_config;
    char base_digest[LAM_DIGEST_TEXT], tuned_digest[LAM_DIGEST_TEXT];
    struct lam_pool *pool;          /* owned */
    struct lam_delta_reader reader;
    struct lam_diff_item *items;    /* n_items, in execution order; owned */
    size_t n_items, n_unchanged;
    json_t *warnings;               /* array; owned */
    struct lam_import_options progress_options;
    struct lam_progress progress;
};

/* Writes the adapter. LAM_E_CONFLICT if nothing is left to write. */
lam_code lam_diff_write(struct lam_diff *d, const char *out_path, lam_error *err);
/* What lam_diff reports: a new reference, or NULL when memory is lacking. */
json_t *lam_diff_report(const struct lam_diff *d, const char *adapter_digest);
/* The metadata's "source", too: how the difference was taken. */
json_t *lam_diff_settings(const struct lam_diff *d);

#endif
