/* safetensors reader: one file, or a sharded set through model.safetensors.index.json.
 * Format: huggingface/safetensors README ("Format"). Header at most 100,000,000 bytes as in the reference implementation; offsets
 * must tile the data without gap or overlap; names that occur twice are refused. Memory used is at most 8 times the headers'
 * (and the index's) bytes plus 256 KiB. */
#ifndef LAM_FORMAT_SAFETENSORS_H
#define LAM_FORMAT_SAFETENSORS_H

#include "base/error.h"
#include "base/os.h"
#include "tensor/dtype.h"

struct lam_st_tensor {
    const char *name;     /* owned by the reader */
    enum lam_dtype dtype; /* F32, F16, BF16; other types are LAM_E_DTYPE naming tensor and type */
    uint8_t n_dims;       /* 0..4 */
    uint64_t dims[4];     /* row-major: the last one is the row length */
    const uint8_t *data;  /* in the mapping; any alignment */
    size_t bytes;         /* 0 if a dimension is */
};

struct lam_safetensors {
    struct lam_mapping *files;
    size_t n_files;
    struct lam_st_tensor *tensors; /* sorted by name */
    size_t n_tensors;
};

/* path: a .safetensors file, or an index (its name ends in .json) beside the shards that it names. The index and the shards
 * must agree: LAM_E_MISSING_TENSOR, LAM_E_EXTRA_TENSOR. */
lam_code lam_st_open(const char *path, struct lam_safetensors **out, lam_error *err);
lam_code lam_st_open_memory(const uint8_t *bytes, size_t len, struct lam_safetensors **out, lam_error *err);
void lam_st_close(struct lam_safetensors *s);
const struct lam_st_tensor *lam_st_find(const struct lam_safetensors *s, const char *name);

#endif
