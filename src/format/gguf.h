/* GGUF v2 and v3 reader, split files included, and writer.
 * Format: the GGUF specification in the ggml repository (docs/gguf.md). Nothing of the file is trusted: memory used by the
 * reader is at most 8 times the file's bytes plus 4 KiB per file, and every size is checked before it is used. */
#ifndef LAM_FORMAT_GGUF_H
#define LAM_FORMAT_GGUF_H

#include "base/error.h"
#include "base/os.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lam_gguf_type {
    LAM_GGUF_U8 = 0, LAM_GGUF_I8, LAM_GGUF_U16, LAM_GGUF_I16, LAM_GGUF_U32, LAM_GGUF_I32, LAM_GGUF_F32,
    LAM_GGUF_BOOL, LAM_GGUF_STRING, LAM_GGUF_ARRAY, LAM_GGUF_U64, LAM_GGUF_I64, LAM_GGUF_F64
};

/* One key and its value; everything points into the mapped file. */
struct lam_gguf_kv {
    const char *key;            /* not zero-terminated */
    size_t key_len;
    enum lam_gguf_type type;
    enum lam_gguf_type item_type; /* of an array, else equal to type; arrays of arrays are refused */
    uint64_t count;             /* items; 1 for a scalar */
    const uint8_t *value;       /* first byte of the value (of the first item for arrays) */
    size_t value_bytes;
};

struct lam_gguf_tensor {
    const char *name;           /* zero-terminated copy, owned by the reader */
    enum lam_dtype dtype;
    uint8_t n_dims;             /* 1..4 */
    uint64_t dims[4];           /* GGUF order: dims[0] is the row length; unused ones are 1 */
    const uint8_t *data;        /* in the mapping of its split, aligned only as the file is */
    size_t bytes;
};

struct lam_gguf {
    struct lam_mapping *files;  /* n_files; [0] carries the metadata */
    size_t n_files;
    uint32_t version;
    size_t alignment;
    struct lam_gguf_kv *kvs;
    size_t n_kvs;
    struct lam_gguf_tensor *tensors; /* in file order, splits one after the other */
    size_t n_tensors;
    const struct lam_gguf_kv **kvs_by_key;             /* n_kvs, sorted */
    const struct lam_gguf_tensor **tensors_by_name;    /* n_tensors, sorted */
};

/* Opens path; if it is the first file of a split model (split.count > 1, name-00001-of-0000N.gguf) the others too.
 * Tensor types outside lam_dtype are LAM_E_DTYPE naming tensor and type. vocab-only files have 0 tensors. */
lam_code lam_gguf_open(const char *path, struct lam_gguf **out, lam_error *err);
/* The same over bytes in memory (one file, borrowed), for tests and fuzzing. */
lam_code lam_gguf_open_memory(const uint8_t *bytes, size_t len, struct lam_gguf **out, lam_error *err);
void lam_gguf_close(struct lam_gguf *g);

/* NULL if absent. */
const struct lam_gguf_kv *lam_gguf_find(const struct lam_gguf *g, const char *key);
const struct lam_gguf_tensor *lam_gguf_find_tensor(const struct lam_gguf *g, const char *name);

/* Typed scalar getters: *out keeps its value if the key is absent (required = false), LAM_E_FORMAT on a wrong type or
 * a value that does not fit, LAM_E_NOT_FOUND if required and absent. Integers of any width and sign convert exactly. */
lam_code lam_gguf_u32(const struct lam_gguf *g, const char *key, bool required, uint32_t *out, lam_error *err);
lam_code lam_gguf_f32(const struct lam_gguf *g, const char *key, bool required, float *out, lam_error *err);
lam_code lam_gguf_bool(const struct lam_gguf *g, const char *key, bool required, bool *out, lam_error *err);
/* *out borrowed, not zero-terminated. */
lam_code lam_gguf_string(const struct lam_gguf *g, const char *key, bool required, const char **out, size_t *len,
                         lam_error *err);
/* Array items. lam_gguf_next_string walks a string array: pass *at = kv->value first; false at the end. */
bool lam_gguf_next_string(const struct lam_gguf_kv *kv, const uint8_t **at, const char **out, size_t *len);
/* Item i of a numeric or bool array, converted; LAM_E_FORMAT on a wrong type. */
lam_code lam_gguf_item_f64(const struct lam_gguf_kv *kv, uint64_t i, double *out, lam_error *err);

/* Writing: a GGUF v3 file. Keys and tensors are written in the order they are added. */
struct lam_gguf_out;
lam_code lam_gguf_out_new(struct lam_gguf_out **out, lam_error *err);
/* A raw value in GGUF's encoding. count counts array items. */
lam_code lam_gguf_out_kv(struct lam_gguf_out *o, const char *key, size_t key_len, enum lam_gguf_type type,
                         enum lam_gguf_type item_type, uint64_t count, const void *value, size_t bytes, lam_error *err);
lam_code lam_gguf_out_u32(struct lam_gguf_out *o, const char *key, uint32_t value, lam_error *err);
lam_code lam_gguf_out_f32(struct lam_gguf_out *o, const char *key, float value, lam_error *err);
lam_code lam_gguf_out_bool(struct lam_gguf_out *o, const char *key, bool value, lam_error *err);
lam_code lam_gguf_out_string(struct lam_gguf_out *o, const char *key, const char *value, size_t len, lam_error *err);
/* The i-th key added so far, or the one of this name; *out borrows from o until the next key is added. False if there is
 * none. */
bool lam_gguf_out_kv_at(const struct lam_gguf_out *o, size_t i, struct lam_gguf_kv *out);
bool lam_gguf_out_find(const struct lam_gguf_out *o, const char *key, struct lam_gguf_kv *out);
/* Declares a tensor; its bytes come from fill(context, index of the tensor, buffer[bytes]) while writing. */
lam_code lam_gguf_out_tensor(struct lam_gguf_out *o, const char *name, enum lam_dtype dtype, uint8_t n_dims,
                             const uint64_t dims[4], lam_error *err);
typedef lam_code (*lam_gguf_fill_fn)(void *context, size_t index, uint8_t *buffer, size_t bytes, lam_error *err);
lam_code lam_gguf_out_write(struct lam_gguf_out *o, const char *path, lam_gguf_fill_fn fill, void *context,
                            lam_error *err);
void lam_gguf_out_free(struct lam_gguf_out *o);

#endif
