/* What importing a base shares, whatever it comes from: checking its tensors and writing them.
 * Memory: one range of tiles (4 MiB or one tile) beside the mapped source, the vocabulary section and the metadata; with outlier
 * residuals, all of them (5 bytes for each value and 4 for each row) and 64 bytes for each value of the matrix at hand. */
#ifndef LAM_IMPORT_BASE_WRITE_H
#define LAM_IMPORT_BASE_WRITE_H

#include "import/import.h"
#include "import/progress.h"
#include "model/arch.h"

/* A tensor of the source that the architecture has a place for. */
struct lam_base_tensor {
    const struct lam_tensor_spec *spec;
    uint32_t layer;       /* LAM_LAYER_NONE outside layers */
    const char *name;     /* as the source says it; borrowed */
    enum lam_dtype dtype;
    uint8_t n_dims;
    uint64_t dims[4];     /* GGUF's order: dims[0] is the row length; unused ones are 1 */
    const uint8_t *data;  /* rows one after the other, in GGUF's form; borrowed */
};

struct lam_base_source {
    struct lam_config config;
    struct lam_base_tensor *tensors; /* n_tensors, owned */
    size_t n_tensors;
    const struct lam_mapping *files; /* n_files, borrowed: what the tensors point into */
    size_t n_files;
    json_t *metadata;                /* owned; without "config", which lam_base_write adds */
    uint8_t *vocab;                  /* the section's bytes, owned, lam_free_aligned */
    size_t vocab_bytes;
};

/* LAM_E_EXTRA_TENSOR, LAM_E_DUPLICATE, LAM_E_MISSING_TENSOR, LAM_E_SHAPE, LAM_E_DTYPE, LAM_E_NON_FINITE, LAM_E_LIMIT,
 * LAM_E_NO_SPACE, LAM_E_CANCELLED, LAM_E_CHANGED (a source file was written meanwhile); no file is left after one. */
lam_code lam_base_write(struct lam_base_source *source, const char *out_path, const struct lam_import_options *options,
                        lam_error *err);
void lam_base_source_release(struct lam_base_source *source);

/* Sets key to text[len] in object; LAM_E_FORMAT naming what if the text is not UTF-8. */
lam_code lam_set_text(json_t *object, const char *key, const char *text, size_t len, const char *what, lam_error *err);

/* True if folder/name exists. */
lam_code lam_folder_has(const char *folder, const char *name, bool *there, lam_error *err);

lam_code lam_import_gguf(const char *path, const char *out_path, const struct lam_import_options *options, lam_error *err);
lam_code lam_import_hf(const char *folder, const char *out_path, const struct lam_import_options *options, lam_error *err);

#endif
