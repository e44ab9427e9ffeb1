/* A base, opened: its configuration and its tensors bound to their roles. The weights stay where they lie in the mapped file. */
#ifndef LAM_MODEL_MODEL_H
#define LAM_MODEL_MODEL_H

#include "adapter/adapter.h"
#include "format/slm.h"
#include "model/arch.h"
#include "tensor/matrix.h"

/* A norm's weights, decoded and owned by the model; w is NULL where the model has none. */
struct lam_norm {
    const float *w;
    const struct lam_target *target; /* what adapters know it as */
};

struct lam_layer {
    struct lam_matrix q, k, v, o, gate, up, down;
    struct lam_norm attn_norm, post_attn_norm, ffn_norm, post_ffn_norm; /* [d_model] */
    struct lam_norm q_norm, k_norm;                                    /* [head_dim] */
    /* Decoded vectors, owned by the model; NULL where the model has none. */
    const float *q_bias, *k_bias, *v_bias, *o_bias, *gate_bias, *up_bias, *down_bias;
};

/* A tensor that is used decoded. */
struct lam_vector {
    const struct lam_slm_entry *entry;
    float *to;    /* [entry->dims[0]] */
    float offset; /* added to every element */
};

struct lam_model {
    struct lam_slm *file;
    struct lam_config config;
    struct lam_matrix embedding, output; /* output is the embedding where tied */
    struct lam_norm output_norm;
    float *inv_freq, *inv_freq_local;    /* [head_dim/2], owned */
    struct lam_layer *layers;            /* [n_layers] */
    float *vectors;                      /* what the pointers above point into */
    struct lam_vector *vector_list;      /* [n_vectors], owned */
    size_t n_vectors;
    const float *rope_factors;           /* [head_dim/2], in vectors, or NULL */
    struct lam_target *target_items;
    char *target_names;
    struct lam_base_targets targets;
    char base_digest[LAM_DIGEST_TEXT];
    bool float_weights;                  /* every matrix has a float type */
};

/* LAM_E_MISSING_TENSOR, LAM_E_EXTRA_TENSOR, LAM_E_SHAPE, LAM_E_DTYPE and what lam_slm_open raises. */
/* budget may be NULL; else what the model, its forward passes, adapters and overlays take is counted there: LAM_E_BUDGET. */
lam_code lam_model_open(const char *path, struct lam_budget *budget, struct lam_model **out, lam_error *err);
/* Decodes the vectors, and what follows from them, once more: from bytes that were verified since. Nobody may use m meanwhile.
 * LAM_E_NON_FINITE, LAM_E_FORMAT. */
lam_code lam_model_read_vectors(struct lam_model *m, lam_error *err);
void lam_model_close(struct lam_model *m);

#endif
