/* The difference of a tensor between two bases, read row by row: decoded, in the order of the first one's rows; and what pruning, random
 * dropping and rounding leave of it. Nothing of it is held as a whole. */
#ifndef LAM_IMPORT_DELTA_H
#define LAM_IMPORT_DELTA_H

#include "base/pool.h"
#include "format/slm.h"

/* One of the two bases' tensors. */
struct lam_delta_side {
    const struct lam_slm *file;
    const struct lam_slm_entry *entry;
    struct lam_residual residual;
};

struct lam_delta {
    struct lam_delta_side base, tuned;
    uint32_t rows, cols;
    /* The tuned one's row that belongs to row r of the base: llama's q and k lie pairwise in GGUF (adapter_write.c). */
    uint32_t head_dim;     /* 0: row r */
    bool to_pairs;         /* the base's rows are those in pairs */
    /* What is kept of an element δ of index row · cols + column. */
    uint32_t cut;          /* bits of the least magnitude kept; 0: all */
    uint64_t last_tie;     /* of the elements of just this magnitude those up to this index */
    uint64_t drop_below;   /* dropped where the generator's 32 bits are below; 0: none */
    double divisor;        /* of those that are left */
    uint64_t key, seed;
    enum lam_dtype dtype;  /* to which they are rounded; F32: not at all */
};

/* Scratch of one reader for tensors of up to cols columns. */
struct lam_delta_reader {
    struct lam_pool *pool;
    uint32_t cols;
    size_t row_bytes;      /* of each thread's row in its blocks */
    uint8_t *blocks;       /* [threads, row_bytes], owned */
    float *tuned;          /* [threads, cols], owned */
    float *rows;           /* [lam_delta_batch rows], owned */
    size_t n_row_floats;
};
lam_code lam_delta_reader_init(struct lam_delta_reader *r, struct lam_pool *pool, uint32_t cols, size_t row_bytes, size_t n_row_floats,
                               lam_error *err);
void lam_delta_reader_release(struct lam_delta_reader *r);

/* Rows first … first + n − 1 of the difference to out[n, cols]; with change, as it is kept. LAM_E_NON_FINITE names the tensor's row. */
lam_code lam_delta_read(struct lam_delta_reader *r, const struct lam_delta *d, bool change, uint32_t first, uint32_t n, float *out,
                        lam_error *err);

/* fn(context, row, values[cols]) for rows first … last − 1 in order. */
typedef void (*lam_delta_fn)(void *context, uint32_t row, const float *values);
lam_code lam_delta_each(struct lam_delta_reader *r, const struct lam_delta *d, bool change, uint32_t first, uint32_t last, lam_delta_fn fn,
                        void *context, lam_error *err);

/* Decodes row r of one side into out[cols]; blocks has room for its bytes. */
void lam_delta_side_row(const struct lam_delta_side *side, uint32_t row, uint8_t *blocks, float *out);

/* Sets cut and last_tie so that the n elements of the largest magnitude are kept, ties to the lower index. Reads the tensor up to three times. */
lam_code lam_delta_prune(struct lam_delta_reader *r, struct lam_delta *d, uint64_t n, lam_error *err);

/* Row `row` of a difference to what is kept of it: pruned, then dropped and divided, then rounded. */
void lam_delta_change_row(const struct lam_delta *d, uint32_t row, float *values);

/* value as the type holds it. */
float lam_delta_round(enum lam_dtype dtype, float value);

#endif
