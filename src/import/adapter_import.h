/* What importing an adapter shares, whatever it comes from: the base's modules, the checks of their tensors, and the writing.
 * Memory: one struct per matrix and norm of the base, the list of faults, and one range of rows (4 MiB or one row) beside the mapped
 * files. */
#ifndef LAM_IMPORT_ADAPTER_IMPORT_H
#define LAM_IMPORT_ADAPTER_IMPORT_H

#include "format/slm.h"
#include "import/adapter_faults.h"
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
    bool shared;            /* stands for another module too, which counts it (a tied base's embedding and head) */
    const uint8_t *data;    /* rows one after the other, at any alignment; borrowed */
};

#define LAM_N_PARTS (LAM_PART_WEIGHT + 1)

/* A matrix of the base, or a norm, and what the source has for it. */
struct lam_import_module {
    char name[32];          /* "blk.0.attn_q" */
    char hf_name[64];       /* "model.layers.0.self_attn.q_proj" */
    enum lam_role role;
    enum lam_module_kind kind;
    uint32_t layer;
    uint32_t d_in, d_out;   /* of the matrix as it is applied: an embedding has d_in = n_vocab; of a norm: n, 1 */
    bool has_bias;          /* in the base */
    bool own_copy;          /* the configuration gives it a tensor of its own (modules_to_save) */
    uint32_t rank;          /* as the configuration says; 0: it does not */
    double alpha;
    bool rank_stabilised;
    struct lam_part parts[LAM_N_PARTS]; /* by enum lam_adapter_part */
};

struct lam_adapter_import {
    const char *base_path;
    struct lam_slm *base;             /* owned */
    struct lam_config config;
    struct lam_import_module *modules;   /* in execution order; owned */
    struct lam_import_module **by_name;  /* the same n_modules, sorted by name; owned */
    size_t n_modules;
    bool rows_interleaved;            /* the source's rows of q and k lie in GGUF's order of pairs */
    float norm_offset;                /* added to what the source holds of a norm, as config.norm_offset to what the base does */
    const char *method;               /* "lora", "dora" or "ia3" */
    uint32_t *invocation;             /* owned, [n_invocation]: activated LoRA; NULL: every row */
    size_t n_invocation;
    bool accept_tokenizer;
    char *name;                       /* for display; owned */
    json_t *source;                   /* provenance; owned */
    struct lam_adapter_report *report;
    struct lam_faults faults;
    void *made[6];                    /* owned: what parts point to that is not in the source */
    size_t n_copies;                  /* tensors that only repeat the base's values, and were compared with them */
};

/* Both fill in the modules' parts, method, name and source; the mapped files must be held until the adapter is written. What is wrong
 * with the adapter goes to import->faults; other failures, and what makes the rest meaningless, are returned. */
struct lam_safetensors;
struct lam_gguf;
lam_code lam_adapter_read_peft(struct lam_adapter_import *import, const char *folder, struct lam_safetensors **file, lam_error *err);
lam_code lam_adapter_read_gguf(struct lam_adapter_import *import, const char *path, struct lam_gguf **file, lam_error *err);

/* A PEFT folder's tensors, given to the modules' parts by their keys, and which modules adapter_config.json means against which ones
 * the file has. */
struct lam_peft_config;
lam_code lam_adapter_take_peft(struct lam_adapter_import *import, const struct lam_safetensors *file, lam_error *err);
lam_code lam_adapter_target_peft(struct lam_adapter_import *import, const struct lam_peft_config *config, lam_error *err);

/* trainable_token_indices: the rows that the file has for tokens of an embedding or a head, as sparse deltas to the base's. A tied base
 * has them in both unless the configuration names the head by itself. indices may be NULL. */
lam_code lam_adapter_take_tokens(struct lam_adapter_import *import, const json_t *indices, lam_error *err);

/* What the parts must be to one another and to the base, into import->faults: LAM_E_UNMATCHED, LAM_E_MISSING_PAIR, LAM_E_TRANSPOSED,
 * LAM_E_TRANSPOSED_B, LAM_E_AMBIGUOUS, LAM_E_RANK, LAM_E_SHAPE, LAM_E_TOKENIZER, LAM_E_NON_FINITE. Sets the modules' ranks. */
lam_code lam_adapter_check(struct lam_adapter_import *import, lam_error *err);

/* Drops the whole matrices and norms that equal the base's, in an adapter that has more than such; after lam_adapter_check. */
lam_code lam_adapter_drop_copies(struct lam_adapter_import *import, lam_error *err);

/* Writes what was checked; fills in the report. */
lam_code lam_adapter_write(struct lam_adapter_import *import, const char *out_path, const struct lam_import_options *options,
                           lam_error *err);

/* The digest of the adapter that was just written to path; without one it is removed. */
lam_code lam_adapter_tell_digest(const char *path, struct lam_adapter_report *report, lam_error *err);

/* A .slm adapter that is bound to no base → out_path, bound to the base at base_path. LAM_E_WRONG_BASE, LAM_E_ARGUMENT if it is bound
 * already; what lam_adapter_open raises where it does not fit. */
lam_code lam_adapter_bind(const char *path, const char *base_path, const char *out_path, const struct lam_import_options *options,
                          struct lam_adapter_report *report, lam_error *err);

/* A tokenizer and a chat template in the adapter's folder must be the base's (rule: adapter_tokenizer.c): LAM_E_TOKENIZER, LAM_E_TEMPLATE. With
 * import->accept_tokenizer differences are warnings, and stand in import->source, "accepted". */
lam_code lam_adapter_check_tokenizer(struct lam_adapter_import *import, const char *folder, lam_error *err);

/* The vocabulary section bytes[len] must mean the same as the base's: LAM_E_TOKENIZER names what differs. */
struct lam_vocab;
lam_code lam_adapter_compare_vocabulary(const uint8_t *bytes, size_t len, const struct lam_vocab *base, lam_error *err);

/* NULL if the base has no such module. */
struct lam_import_module *lam_adapter_find_module(const struct lam_adapter_import *import, const char *name);
/* The first module of a kind, which the embedding and the head alone are of theirs. */
struct lam_import_module *lam_adapter_find_kind(const struct lam_adapter_import *import, enum lam_module_kind kind);

/* Whether the source has anything for the module; whether it has A or B. */
bool lam_adapter_is_changed(const struct lam_import_module *m);
bool lam_adapter_has_factor(const struct lam_import_module *m);

/* Row r of a matrix of the base decoded with its residual: out[dims[0]]; block: room for a row of it. */
void lam_adapter_base_row(const struct lam_adapter_import *import, const struct lam_slm_entry *e, const struct lam_residual *residual,
                          size_t r, uint8_t *block, float *out);
/* The base's tensor that a module uses; NULL if there is none. */
const struct lam_slm_entry *lam_adapter_base_entry(const struct lam_adapter_import *import, const struct lam_import_module *m);

/* Row `row` of a part in the order and the form of the base's file: its elements, cols of the part's, in *item bytes each. B, biases
 * and matrices of q and k follow the base's pairs; A of an embedding is turned; a norm is float32, what the base's file would hold. */
enum lam_dtype lam_part_dtype(const struct lam_adapter_import *import, const struct lam_import_module *m, enum lam_adapter_part part);
void lam_part_size(const struct lam_import_module *m, enum lam_adapter_part part, uint32_t *rows, uint32_t *cols);
void lam_part_row(const struct lam_adapter_import *import, const struct lam_import_module *m, enum lam_adapter_part part, size_t row,
                  uint8_t *out);

/* import->name from text: well-formed UTF-8 without control characters and '/', at most 255 bytes, never empty, "." or "..". */
lam_code lam_adapter_set_name(struct lam_adapter_import *import, const char *text, size_t len, lam_error *err);

/* Another line of the report's warnings, if it fits. */
void lam_adapter_warn(struct lam_adapter_import *import, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* LAM_E_UNMATCHED for those of the source's n_tensors that match no module; says so if the adapter was made for another model. */
lam_code lam_adapter_fault_unmatched(struct lam_adapter_import *import, struct lam_names *tensors, size_t n_tensors, lam_error *err);

#endif
