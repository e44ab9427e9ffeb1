/* A model's configuration: everything besides the weights that enters the computation. One struct, read from GGUF keys or from
 * a Hugging Face config.json, kept in .slm as canonical JSON, and digested as part of base_digest. */
#ifndef LAM_MODEL_CONFIG_H
#define LAM_MODEL_CONFIG_H

#include "base/error.h"
#include "base/json.h"
#include "format/gguf.h"

#include <stdbool.h>
#include <stdint.h>

#define LAM_MAX_LAYERS 256

enum lam_rope_scaling { LAM_ROPE_PLAIN, LAM_ROPE_LINEAR, LAM_ROPE_LLAMA3, LAM_ROPE_YARN };

/* Rotary embedding, Su et al. 2021 (arXiv:2104.09864). */
struct lam_rope {
    double theta;                    /* base of the frequencies */
    enum lam_rope_scaling scaling;
    double factor;                   /* linear, llama3, yarn: context extension */
    double original_context;         /* llama3, yarn: positions of the unextended model */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;     /* yarn (Peng et al. 2023, arXiv:2309.00071) */
    double attention_factor;         /* yarn: multiplies cos and sin; 1 otherwise */
};

enum lam_activation { LAM_SILU, LAM_GELU_TANH };

struct lam_config {
    const struct lam_arch *arch;
    uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab, n_context;
    float norm_eps;
    float norm_offset;               /* added to every norm weight: 1 for Gemma from Hugging Face, else 0 */
    struct lam_rope rope;            /* global layers */
    struct lam_rope rope_local;      /* sliding-window layers; equal to rope where the architecture has one */
    bool rope_interleaved;           /* pairs (2i, 2i+1), as llama's GGUF rows lie; else (i, i + d/2) */
    uint32_t window;                 /* positions that a sliding-window layer sees, its own included; 0: none */
    bool local[LAM_MAX_LAYERS];      /* layer has the sliding window */
    float attention_scale;           /* multiplies q before the product with k */
    float attention_softcap, logit_softcap; /* 0: none */
    float embedding_scale;           /* multiplies the token's embedding */
    enum lam_activation activation;
    bool tied;                       /* the head is the embedding */
};

lam_code lam_config_from_gguf(const struct lam_gguf *g, struct lam_config *out, lam_error *err);
/* config: the parsed config.json. */
lam_code lam_config_from_hf(const json_t *config, struct lam_config *out, lam_error *err);

/* A field of config.json; *out stays where it is absent or null. LAM_E_FORMAT if it is of another type or, where required, missing. */
lam_code lam_hf_u32(const json_t *config, const char *key, bool required, uint32_t *out, lam_error *err);
lam_code lam_hf_number(const json_t *object, const char *key, bool required, double *out, lam_error *err);
lam_code lam_hf_text(const json_t *object, const char *key, const char **out, lam_error *err);
lam_code lam_hf_object(const json_t *object, const char *key, const json_t **out, lam_error *err);

/* Sizes that the forward pass can run: LAM_E_FORMAT or LAM_E_LIMIT names the field. */
lam_code lam_config_check(const struct lam_config *c, lam_error *err);

/* The canonical object, every field in it; a new reference or NULL when memory is lacking. */
json_t *lam_config_to_json(const struct lam_config *c);
lam_code lam_config_from_json(const json_t *object, struct lam_config *out, lam_error *err);

#endif
