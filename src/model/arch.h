/* Architectures as data: what each one has beyond the shared forward pass, and how its tensors are called.
 * One small file an architecture (arch_<name>.c); arch.c holds what they share. */
#ifndef LAM_MODEL_ARCH_H
#define LAM_MODEL_ARCH_H

#include "format/role.h"
#include "model/config.h"

enum lam_presence { LAM_REQUIRED, LAM_OPTIONAL };

/* One tensor of an architecture. Names within a layer are suffixes of "blk.N." and "model.layers.N.". */
struct lam_tensor_spec {
    enum lam_role role;
    enum lam_presence presence;
    bool in_layer;
    const char *gguf; /* "attn_q.weight" */
    const char *hf;   /* "self_attn.q_proj.weight" */
};

struct lam_arch {
    const char *name;                /* GGUF's general.architecture */
    const char *hf_type;             /* config.json's model_type */
    const struct lam_tensor_spec *tensors;
    size_t n_tensors;
    enum lam_activation activation;
    bool gguf_rope_interleaved;      /* its GGUF files hold q and k rows permuted for pairs (2i, 2i+1) */
    bool hf_rope_interleaved;
    float hf_norm_offset;
    bool hf_tied_default;            /* tie_word_embeddings when config.json does not say */
    /* Fields beyond the shared ones; may be NULL. */
    lam_code (*from_gguf)(const struct lam_gguf *g, struct lam_config *c, lam_error *err);
    lam_code (*from_hf)(const json_t *config, struct lam_config *c, lam_error *err);
};

extern const struct lam_arch lam_arch_llama, lam_arch_qwen2, lam_arch_qwen3, lam_arch_gemma3;

/* By GGUF name or by Hugging Face model_type; NULL if we do not run it. */
const struct lam_arch *lam_arch_by_name(const char *name, size_t len);
const struct lam_arch *lam_arch_by_hf_type(const char *type);
/* "llama, qwen2, …" for messages. */
const char *lam_arch_names(void);

/* The spec and layer of a tensor name in GGUF's or Hugging Face's naming; NULL if the architecture has no such tensor.
 * *layer is LAM_LAYER_NONE outside layers. Hugging Face names may lack the "model." prefix. */
const struct lam_tensor_spec *lam_arch_match_gguf(const struct lam_arch *a, const char *name, uint32_t *layer);
const struct lam_tensor_spec *lam_arch_match_hf(const struct lam_arch *a, const char *name, uint32_t *layer);
const struct lam_tensor_spec *lam_arch_find(const struct lam_arch *a, enum lam_role role);

#define LAM_MAX_SPECS 32 /* tensors of an architecture */

/* An optional tensor of the layers is in all of them or in none; counts[i] tells how many layers have a->tensors[i].
 * LAM_E_MISSING_TENSOR names one that only some have. */
lam_code lam_arch_check_counts(const struct lam_arch *a, uint32_t n_layers, const uint32_t counts[LAM_MAX_SPECS], lam_error *err);

/* GGUF's name of a tensor: out[64]. */
void lam_tensor_name(const struct lam_tensor_spec *spec, uint32_t layer, char out[64]);

/* rows and cols that the configuration gives a tensor; rows = 1 and cols = length for vectors. */
void lam_role_shape(const struct lam_config *c, enum lam_role role, uint32_t *rows, uint32_t *cols);

#endif
