/* Which modules adapter_config.json means, against which ones the file has tensors for. */
#include "import/adapter_import.h"
#include "import/adapter_peft_config.h"

#include <stdio.h>
#include <string.h>

struct targeting {
    struct lam_adapter_import *import;
    const struct lam_peft_config *config;
    struct lam_names outside; /* tensors of modules that the configuration does not mean */
    struct lam_names empty;   /* modules that it means, without tensors */
    uint32_t n_layers;        /* the last layer with tensors, plus 1 */
    uint32_t first_empty;     /* the first layer of a module in empty; LAM_LAYER_NONE: none of them is in a layer */
};

static bool may_have_bias(enum lam_peft_bias bias, bool targeted)
{
    return bias == LAM_PEFT_BIAS_ALL || (bias == LAM_PEFT_BIAS_LORA_ONLY && targeted);
}

static lam_code add_outside(struct targeting *t, const struct lam_part *part, lam_error *err)
{
    return part->tensor ? lam_names_add(&t->outside, part->tensor, err) : LAM_OK;
}

static lam_code add_empty(struct targeting *t, const struct lam_import_module *m, lam_error *err)
{
    if (m->layer < t->first_empty) t->first_empty = m->layer;
    return lam_names_add(&t->empty, m->hf_name, err);
}

/* A tensor of a method that the configuration does not ask for. */
static lam_code refuse_part(struct targeting *t, const struct lam_part *part, const char *field, lam_error *err)
{
    if (!part->tensor) return LAM_OK;
    return lam_faults_add(&t->import->faults, err, LAM_E_METHOD, part->tensor, "belongs to %s, which adapter_config.json does not set",
                          field);
}

/* What PEFT cannot load on an embedding, or Lamina. */
static lam_code check_embedding(struct targeting *t, const struct lam_import_module *m, lam_error *err)
{
    const struct lam_peft_config *c = t->config;
    const char *field = c->ia3 ? "IA3" : c->dora ? "use_dora" : c->b_bias ? "lora_bias" : c->invocation ? "alora_invocation_tokens" : NULL;
    if (m->kind != LAM_MODULE_EMBEDDING || !field) return LAM_OK;
    return lam_faults_add(&t->import->faults, err, LAM_E_METHOD, m->hf_name, "%s on an embedding; Lamina does not support that", field);
}

static lam_code check_own_parts(struct targeting *t, const struct lam_import_module *m, lam_error *err)
{
    const struct lam_peft_config *c = t->config;
    struct lam_faults *f = &t->import->faults;
    if (m->kind == LAM_MODULE_EMBEDDING || !lam_adapter_has_factor(m)) return LAM_OK;
    if (c->dora && !m->parts[LAM_PART_MAGNITUDE].tensor)
        LAM_TRY(lam_faults_add(f, err, LAM_E_MISSING_PAIR, m->hf_name, "use_dora is set, and it has no lora_magnitude_vector"));
    if (c->b_bias && !m->parts[LAM_PART_B_BIAS].tensor)
        LAM_TRY(lam_faults_add(f, err, LAM_E_MISSING_PAIR, m->hf_name, "lora_bias is set, and it has no lora_B.bias"));
    return LAM_OK;
}

static lam_code target_lora(struct targeting *t, struct lam_import_module *m, bool targeted, lam_error *err)
{
    const struct lam_peft_config *c = t->config;
    lam_error fault;
    LAM_TRY(refuse_part(t, &m->parts[LAM_PART_IA3_OUTPUT], "IA3", err));
    if (!c->dora) LAM_TRY(refuse_part(t, &m->parts[LAM_PART_MAGNITUDE], "use_dora", err));
    if (!c->b_bias) LAM_TRY(refuse_part(t, &m->parts[LAM_PART_B_BIAS], "lora_bias", err));
    if (!targeted) {
        LAM_TRY(add_outside(t, &m->parts[LAM_PART_A], err));
        LAM_TRY(add_outside(t, &m->parts[LAM_PART_B], err));
        if (c->dora) LAM_TRY(add_outside(t, &m->parts[LAM_PART_MAGNITUDE], err));
        return c->b_bias ? add_outside(t, &m->parts[LAM_PART_B_BIAS], err) : LAM_OK;
    }
    LAM_TRY(check_embedding(t, m, err));
    if (!lam_adapter_has_factor(m)) LAM_TRY(add_empty(t, m, err));
    LAM_TRY(check_own_parts(t, m, err));
    m->rank_stabilised = c->rank_stabilised;
    if (lam_peft_config_module(c, m->hf_name, &m->rank, &m->alpha, &fault) == LAM_OK) return LAM_OK;
    return lam_faults_take(&t->import->faults, m->hf_name, &fault, err);
}

static lam_code target_ia3(struct targeting *t, struct lam_import_module *m, bool targeted, lam_error *err)
{
    static const enum lam_adapter_part others[] = {LAM_PART_A, LAM_PART_B, LAM_PART_MAGNITUDE, LAM_PART_B_BIAS};
    bool feedforward;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) LAM_TRY(refuse_part(t, &m->parts[others[i]], "LORA", err));
    if (!targeted) return add_outside(t, &m->parts[LAM_PART_IA3_OUTPUT], err);
    LAM_TRY(check_embedding(t, m, err));
    if (!m->parts[LAM_PART_IA3_OUTPUT].tensor) return add_empty(t, m, err);
    LAM_TRY(lam_module_match_feedforward(t->config->modules, m->hf_name, &feedforward, err));
    if (!feedforward) return LAM_OK;
    m->parts[LAM_PART_IA3_INPUT] = m->parts[LAM_PART_IA3_OUTPUT];
    m->parts[LAM_PART_IA3_OUTPUT] = (struct lam_part){0};
    return LAM_OK;
}

/* modules_to_save; PEFT's save_embedding_layers writes embeddings and heads, and nothing in the configuration says so. */
static lam_code target_copies(struct targeting *t, struct lam_import_module *m, bool targeted, lam_error *err)
{
    bool saved = m->own_copy = lam_module_match_saved(t->config->modules, m->hf_name);
    bool wants_bias = saved || may_have_bias(t->config->bias, targeted);
    bool may_be_whole = saved || m->kind == LAM_MODULE_EMBEDDING || m->kind == LAM_MODULE_HEAD;
    if (!may_be_whole) LAM_TRY(add_outside(t, &m->parts[LAM_PART_WEIGHT], err));
    if (!wants_bias) LAM_TRY(add_outside(t, &m->parts[LAM_PART_BIAS], err));
    if (saved && !m->parts[LAM_PART_WEIGHT].tensor) LAM_TRY(add_empty(t, m, err));
    if (m->has_bias && !m->parts[LAM_PART_BIAS].tensor && wants_bias)
        lam_adapter_warn(t->import, "%s: the file has no bias for it, the base's stays", m->hf_name);
    return LAM_OK;
}

static lam_code target_module(struct targeting *t, struct lam_import_module *m, lam_error *err)
{
    bool targeted;
    LAM_TRY(lam_module_match_find(t->config->modules, m->hf_name, m->kind, &targeted, err));
    LAM_TRY(target_copies(t, m, targeted, err));
    LAM_TRY(t->config->ia3 ? target_ia3(t, m, targeted, err) : target_lora(t, m, targeted, err));
    if (lam_adapter_is_changed(m) && m->layer != LAM_LAYER_NONE && m->layer >= t->n_layers) t->n_layers = m->layer + 1;
    if (!targeted || !t->config->ensure_tying || !t->import->config.tied) return LAM_OK;
    if (m->kind != LAM_MODULE_EMBEDDING && m->kind != LAM_MODULE_HEAD) return LAM_OK;
    return lam_faults_add(&t->import->faults, err, LAM_E_METHOD, m->hf_name,
                          "ensure_weight_tying ties the factors of the embedding and the head; Lamina does not support that");
}

static lam_code report_names(struct targeting *t, lam_error *err)
{
    static const char empty[] = "modules that adapter_config.json means, without tensors";
    char text[180];
    LAM_TRY(lam_names_fault(&t->outside, &t->import->faults, LAM_E_UNMATCHED, "tensors of modules that adapter_config.json does not mean",
                            "its module is not one that adapter_config.json means", err));
    if (t->n_layers > 0 && t->first_empty != LAM_LAYER_NONE && t->first_empty >= t->n_layers)
        snprintf(text, sizeof text, "made for another model: it has %u layer%s, the base %u; %s", t->n_layers, t->n_layers == 1 ? "" : "s",
                 t->import->config.n_layers, empty);
    else
        snprintf(text, sizeof text, "%s", empty);
    return lam_names_fault(&t->empty, &t->import->faults, LAM_E_UNMATCHED, text, "adapter_config.json means it, and it has no tensors",
                           err);
}

static bool same_tensor(const struct lam_part *a, const struct lam_part *b)
{
    size_t row_bytes = 0;
    if (a->dtype != b->dtype || a->rows != b->rows || a->cols != b->cols || a->n_dims != b->n_dims) return false;
    lam_dtype_row_bytes(a->dtype, a->cols, &row_bytes);
    return memcmp(a->data, b->data, row_bytes * (size_t)a->rows) == 0;
}

/* A whole embedding or head outside modules_to_save is loaded into the base's own tensor, which a tied base uses for both; a module of
 * modules_to_save has a copy of its own, and the other one keeps the base's. */
static lam_code share_tied(struct lam_adapter_import *import, lam_error *err)
{
    struct lam_import_module *embedding = lam_adapter_find_kind(import, LAM_MODULE_EMBEDDING);
    struct lam_import_module *head = lam_adapter_find_kind(import, LAM_MODULE_HEAD);
    if (!import->config.tied || !embedding || !head || embedding->own_copy || head->own_copy) return LAM_OK;
    struct lam_part *a = &embedding->parts[LAM_PART_WEIGHT], *b = &head->parts[LAM_PART_WEIGHT];
    if (a->tensor && b->tensor && !same_tensor(a, b))
        return lam_faults_add(&import->faults, err, LAM_E_CONFLICT, b->tensor, "differs from %.200s, and the base has one matrix for both",
                              a->tensor);
    struct lam_part *from = a->tensor ? a : b, *to = a->tensor ? b : a;
    if (!from->tensor || to->tensor) return LAM_OK;
    *to = *from;
    to->shared = true;
    return LAM_OK;
}

lam_code lam_adapter_target_peft(struct lam_adapter_import *import, const struct lam_peft_config *config, lam_error *err)
{
    struct targeting t = {.import = import, .config = config, .first_empty = LAM_LAYER_NONE};
    lam_code code = LAM_OK;
    for (size_t i = 0; i < import->n_modules && code == LAM_OK; i++) code = target_module(&t, &import->modules[i], err);
    if (code == LAM_OK) code = report_names(&t, err);
    if (code == LAM_OK) code = share_tied(import, err);
    lam_names_release(&t.outside);
    lam_names_release(&t.empty);
    return code;
}
