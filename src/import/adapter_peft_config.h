/* adapter_config.json of PEFT 0.21 and before.
 *
 * Every field of PEFT's LoraConfig is either honoured, or has no effect on inference, or is refused by name (LAM_E_METHOD) when it
 * is set. A field that PEFT 0.21 does not know is LAM_E_UNKNOWN_FIELD unless its value is null, false or empty.
 *
 * Without effect, and why: init_lora_weights true, false, "gaussian", "orthogonal", "eva" and "mica" only choose the factors that
 * training starts from, and the file holds the trained ones ("pissa", "olora", "corda", "loftq" and "lora_ga" also change the base
 * when PEFT loads them, and are refused; converted adapters say true); lora_dropout acts in training alone; the
 * sub-configurations of an initialisation go with it; fan_in_fan_out is set to false by PEFT on nn.Linear, which all matrices of
 * these architectures are, with a warning, and A [rank, d_in], B [d_out, rank] stay as they are. */
#ifndef LAM_IMPORT_ADAPTER_PEFT_CONFIG_H
#define LAM_IMPORT_ADAPTER_PEFT_CONFIG_H

#include "base/error.h"
#include "base/json.h"
#include "import/adapter_match.h"

enum lam_peft_bias { LAM_PEFT_BIAS_NONE, LAM_PEFT_BIAS_ALL, LAM_PEFT_BIAS_LORA_ONLY };

struct lam_peft_config {
    json_t *json;                     /* owned; what follows points into it */
    uint32_t rank;                    /* r */
    double alpha;                     /* lora_alpha */
    bool rank_stabilised;             /* use_rslora */
    bool fan_in_fan_out;
    enum lam_peft_bias bias;
    const char *base;                 /* base_model_name_or_path or NULL */
    const char *version;              /* peft_version or NULL */
    struct lam_module_match *modules; /* owned */
    struct lam_pattern_table *rank_pattern, *alpha_pattern; /* owned */
};

/* what names the text in errors. On failure *out needs no release. */
lam_code lam_peft_config_parse(const char *text, size_t len, const char *what, struct lam_peft_config *out, lam_error *err);
void lam_peft_config_release(struct lam_peft_config *c);

/* Rank and alpha of one module. LAM_E_RANK for a rank that is no positive number. */
lam_code lam_peft_config_module(const struct lam_peft_config *c, const char *module, uint32_t *rank, double *alpha, lam_error *err);

#endif
