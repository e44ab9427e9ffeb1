/* adapter_config.json of PEFT 0.21 and before: LoRA (with DoRA, rsLoRA, activated LoRA) and IA³.
 *
 * Every field of PEFT's LoraConfig and IA3Config is either honoured, or has no effect on inference, or is refused by name
 * (LAM_E_METHOD) when it is set. A field that PEFT 0.21 does not know is LAM_E_UNKNOWN_FIELD unless its value is null, false or empty.
 *
 * Without effect, and why: init_lora_weights true, false, "gaussian", "orthogonal", "eva" and "mica", and init_ia3_weights, only choose
 * what training starts from, and the file holds what it ended with ("pissa", "olora", "corda", "loftq" and "lora_ga" also change the
 * base when PEFT loads them, and are refused; converted adapters say true); lora_dropout acts in training alone; the
 * sub-configurations of an initialisation go with it; fan_in_fan_out is set to false by PEFT on nn.Linear, which all matrices of
 * these architectures are, with a warning, and A [rank, d_in], B [d_out, rank] stay as they are. */
#ifndef LAM_IMPORT_ADAPTER_PEFT_CONFIG_H
#define LAM_IMPORT_ADAPTER_PEFT_CONFIG_H

#include "base/error.h"
#include "base/json.h"
#include "import/adapter_faults.h"
#include "import/adapter_match.h"

enum lam_peft_bias { LAM_PEFT_BIAS_NONE, LAM_PEFT_BIAS_ALL, LAM_PEFT_BIAS_LORA_ONLY };

struct lam_peft_config {
    json_t *json;                     /* owned; what follows points into it */
    bool ia3;                         /* peft_type: IA3, else LORA */
    uint32_t rank;                    /* r */
    double alpha;                     /* lora_alpha */
    bool rank_stabilised;             /* use_rslora */
    bool dora;                        /* use_dora */
    bool b_bias;                      /* lora_bias */
    bool ensure_tying;                /* ensure_weight_tying */
    bool fan_in_fan_out;
    enum lam_peft_bias bias;
    const json_t *invocation;         /* alora_invocation_tokens: a list of token numbers; NULL: every row */
    const json_t *token_indices;      /* trainable_token_indices: a list, or an object of lists by the module's name; NULL: none */
    const char *base;                 /* base_model_name_or_path or NULL */
    const char *version;              /* peft_version or NULL */
    struct lam_module_match *modules; /* owned */
    struct lam_pattern_table *rank_pattern, *alpha_pattern; /* owned */
};

/* what names the text in errors. model_type: the base's, which decides what IA³ targets where the text does not; NULL: llama. All fields
 * are looked at: each fault goes to faults, and the first is raised. On failure *out needs no release. */
lam_code lam_peft_config_parse(const char *text, size_t len, const char *what, const char *model_type, struct lam_peft_config *out,
                               struct lam_faults *faults, lam_error *err);
void lam_peft_config_release(struct lam_peft_config *c);

/* Rank and alpha of one module. LAM_E_RANK for a rank that is no positive number. */
lam_code lam_peft_config_module(const struct lam_peft_config *c, const char *module, uint32_t *rank, double *alpha, lam_error *err);

#endif
