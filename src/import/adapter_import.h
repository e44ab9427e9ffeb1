/* What importing an adapter shares, whatever it comes from: the base's modules, the checks of their factors, and the writing.
 * Memory: one struct per matrix of the base and one range of rows (4 MiB or one row) beside the mapped files. */
#ifndef LAM_IMPORT_ADAPTER_IMPORT_H
#define LAM_IMPORT_ADAPTER_IMPORT_H

#include "format/slm.h"
#include "import/adapter_match.h"
#include "import/import.h"
#include "model/arch.h"

/* A tensor of the source. */
struct lam_part {
    const char *tensor;     /* its name in the source, borrowed; NULL: absent */
    enum lam_dtype dtype;   /* F32, F16 or BF16 */
    uint8_t n_dims;
    uint64_t rows, cols;    /* as stored; a vector is one row */
    bool by_column;         /* stored as its transpose: llama.cpp's A of an embedding is [n_vocab, rank] */
    const uint8_t *data;    /* rows one after the other, at any alignment; borrowed */
};

/* A matrix of the base, or a norm (which no adapter may change here), and what the source has for it. */
struct lam_import_module {
    char name[32];          /* "blk.0.attn_q" */
    char hf_name[64];       /* "model.layers.0.self_attn.q_proj" */
    enum lam_role role;
    enum lam_module_kind kind;
    uint32_t layer;
    uint32_t d_in, d_out;   /* of the matrix as it is applied: an embedding has d_in = n_vocab */
    bool has_bias;          /* in the base */
    uint32_t rank;          /* as the configuration says; 0: it does not */
    double alpha;
    bool rank_stabilised;
    struct lam_part a, b, bias;
};

struct lam_adapter_import {
    const char *base_path;
    struct lam_slm *base;             /* owned */
    struct lam_config config;
    struct lam_import_module *modules;   /* in execution order; owned */
    struct lam_import_module **by_name;  /* the same n_modules, sorted by name; owned */
    size_t n_modules;
    bool rows_interleaved;            /* the source's rows of q and k lie in GGUF's order of pairs */
    char *name;                       /* for display; owned */
    json_t *source;                   /* provenance; owned */
    struct lam_adapter_report *report;
    size_t n_copies;                  /* tensors that only repeat the base's bytes, and were compared with them */
};

/* Both fill in the modules' parts, name and source; the mapped files must be held until the adapter is written. */
struct lam_safetensors;
struct lam_gguf;
lam_code lam_adapter_read_peft(struct lam_adapter_import *import, const char *folder, struct lam_safetensors **file, lam_error *err);
lam_code lam_adapter_read_gguf(struct lam_adapter_import *import, const char *path, struct lam_gguf **file, lam_error *err);

/* What the parts must be to one another and to the base: LAM_E_UNMATCHED, LAM_E_MISSING_PAIR, LAM_E_TRANSPOSED, LAM_E_AMBIGUOUS,
 * LAM_E_RANK, LAM_E_SHAPE, LAM_E_TOKENIZER, LAM_E_NON_FINITE. Sets the modules' ranks. */
lam_code lam_adapter_check(struct lam_adapter_import *import, lam_error *err);

/* Writes what was checked; fills in the report. */
lam_code lam_adapter_write(struct lam_adapter_import *import, const char *out_path, const struct lam_import_options *options,
                           lam_error *err);

/* A tokenizer in the adapter's folder must be the base's (rule: adapter_tokenizer.c), else LAM_E_TOKENIZER. */
lam_code lam_adapter_check_tokenizer(const char *folder, const struct lam_slm *base, lam_error *err);

/* NULL if the base has no such module. */
struct lam_import_module *lam_adapter_find_module(const struct lam_adapter_import *import, const char *name);

/* import->name from text: well-formed UTF-8 without control characters and '/', at most 255 bytes, never empty, "." or "..". */
lam_code lam_adapter_set_name(struct lam_adapter_import *import, const char *text, size_t len, lam_error *err);

/* Another line of the report's warnings, if it fits. */
void lam_adapter_warn(struct lam_adapter_import *import, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Names for one error message and the report. */
struct lam_names {
    const char **items; /* borrowed; the array is owned */
    size_t n, cap;
};
lam_code lam_names_add(struct lam_names *names, const char *name, lam_error *err);
void lam_names_release(struct lam_names *names);
/* Sorts the names into the report's list of what did not match. */
void lam_names_report(struct lam_names *names, struct lam_adapter_report *report);
/* "<what> (<count>): a, b, c", sorted; three names at most and not too long a line, then how many more there are; for
 * LAM_E_UNMATCHED all of them go to the report. what: 180 bytes at most. */
lam_code lam_names_raise(const struct lam_adapter_import *import, struct lam_names *names, lam_code code, const char *what, lam_error *err);
/* LAM_E_UNMATCHED for those of the source's n_tensors that match no module; says so if the adapter was made for another model. */
lam_code lam_adapter_raise_unmatched(const struct lam_adapter_import *import, struct lam_names *tensors, size_t n_tensors, lam_error *err);

#endif
