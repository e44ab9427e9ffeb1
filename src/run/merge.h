/* What lam_merge (lamina/merge.h) works on: the tensors of the new base.
 * Memory: one buffer of the writer, and for each thread a tile of the widest matrix in float32 and a few rows. */
#ifndef LAM_RUN_MERGE_H
#define LAM_RUN_MERGE_H

#include "import/progress.h"
#include "lamina/merge.h"
#include "run/objects.h"

/* Sums over a changed matrix, in float64: of squares of the exact value, of its change, of what encoding left out; and of what was stored
 * of the change times the change. */
struct lam_merge_sums {
    double exact, change, error, kept;
};

struct lam_merge_tensor {
    char name[64];
    uint64_t place;                      /* its offset in the base, or that of the tensor that it is computed after … */
    size_t number;                       /* … as the how manieth in the order of execution */
    const struct lam_slm_entry *entry;   /* of the base, whose bytes are copied; NULL for a new vector */
    const struct lam_matrix *matrix;     /* of a changed matrix; else NULL */
    const struct lam_overlay_slot *slot; /* then */
    bool by_row;                         /* it is looked up, not multiplied (docs/numeric.md, "Embedding rows") */
    float *values;                       /* [cols], owned: of a changed vector */
    enum lam_role role;
    uint32_t layer, rows, cols;
    enum lam_dtype dtype, wanted;        /* wanted: what it should have been */
    struct lam_merge_sums sums;
};

struct lam_merging {
    struct lam_composition *composition;
    const lam_merge_options *options;
    const struct lam_overlay *overlay;
    struct lam_merge_tensor *tensors;    /* [n], in the base's order; owned */
    size_t n, room;
    bool tied;                           /* the new base is */
    char base_digest[LAM_DIGEST_TEXT];   /* the new one's */
    struct lam_import_options progress_options;
    struct lam_progress progress;
};

/* Lists what the new base consists of. */
lam_code lam_merge_list(struct lam_merging *m, lam_error *err);

/* Tiles first .. first + n - 1 of a changed matrix into out, encoded; adds to its sums. LAM_E_NON_FINITE, LAM_E_NO_MEMORY. */
lam_code lam_merge_tiles(struct lam_merging *m, struct lam_merge_tensor *t, size_t first, size_t n, uint8_t *out, lam_error *err);
/* Whether embedding and head come out alike, bit for bit. */
lam_code lam_merge_alike(struct lam_merging *m, const struct lam_overlay_slot *embedding, const struct lam_overlay_slot *head, bool *alike,
                         lam_error *err);

/* A new reference; NULL when memory is lacking. */
json_t *lam_merge_report(const struct lam_merging *m);

#endif
