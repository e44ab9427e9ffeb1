#include "model/arch.h"
#include "format/slm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct lam_arch *const archs[] = {&lam_arch_llama, &lam_arch_qwen2, &lam_arch_qwen3, &lam_arch_gemma3};
#define N_ARCHS (sizeof archs / sizeof *archs)

const char *lam_arch_names(void) { return "llama, qwen2, qwen3, gemma3"; }

const struct lam_arch *lam_arch_by_name(const char *name, size_t len)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strlen(archs[i]->name) == len && memcmp(archs[i]->name, name, len) == 0) return archs[i];
    return NULL;
}

const struct lam_arch *lam_arch_by_hf_type(const char *type)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strcmp(archs[i]->hf_type, type) == 0) return archs[i];
    return NULL;
}

/* Cuts "<prefix>N." off name: the rest and N, or NULL. */
static const char *cut_layer(const char *name, const char *prefix, uint32_t *layer)
{
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0) return NULL;
    const char *digits = name + len;
    uint32_t n = 0;
    const char *c = digits;
    for (; *c >= '0' && *c <= '9' && c - digits < 5; c++) n = n * 10 + (uint32_t)(*c - '0');
    if (c == digits || *c != '.' || (c - digits > 1 && *digits == '0')) return NULL;
    *layer = n;
    return c + 1;
}

static const struct lam_tensor_spec *match(const struct lam_arch *a, const char *name, const char *layer_prefix, bool hf,
                                           uint32_t *layer)
{
    *layer = LAM_LAYER_NONE;
    const char *rest = cut_layer(name, layer_prefix, layer);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct lam_tensor_spec *spec = &a->tensors[i];
        const char *wanted = hf ? spec->hf : spec->gguf;
        if (wanted && spec->in_layer == (rest != NULL) && strcmp(wanted, rest ? rest : name) == 0) return spec;
    }
    return NULL;
}

const struct lam_tensor_spec *lam_arch_match_gguf(const struct lam_arch *a, const char *name, uint32_t *layer)
{
    return match(a, name, "blk.", false, layer);
}

const struct lam_tensor_spec *lam_arch_match_hf(const struct lam_arch *a, const char *name, uint32_t *layer)
{
    if (strncmp(name, "model.", 6) == 0) name += 6;
    return match(a, name, "layers.", true, layer);
}

const struct lam_tensor_spec *lam_arch_find(const struct lam_arch *a, enum lam_role role)
{
    for (size_t i = 0; i < a->n_tensors; i++)
        if (a->tensors[i].role == role) return &a->tensors[i];
    return NULL;
}

lam_code lam_arch_check_counts(const struct lam_arch *a, uint32_t n_layers, const uint32_t counts[LAM_MAX_SPECS], lam_error *err)
{
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct lam_tensor_spec *spec = &a->tensors[i];
        if (spec->in_layer && spec->presence == LAM_OPTIONAL && counts[i] != 0 && counts[i] != n_layers)
            return LAM_RAISE(err, LAM_E_MISSING_TENSOR, "tensor %s is in %u of %u layers", spec->gguf, counts[i], n_layers);
    }
    return LAM_OK;
}

void lam_tensor_name(const struct lam_tensor_spec *spec, uint32_t layer, char out[64])
{
    if (spec->in_layer) snprintf(out, 64, "blk.%u.%s", layer, spec->gguf);
    else snprintf(out, 64, "%s", spec->gguf);
}

void lam_role_shape(const struct lam_config *c, enum lam_role role, uint32_t *rows, uint32_t *cols)
{
    uint32_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    *rows = 1;
    switch (role) {
    case LAM_ROLE_EMBEDDING: case LAM_ROLE_OUTPUT: *rows = c->n_vocab; *cols = c->d_model; break;
    case LAM_ROLE_Q: *rows = q; *cols = c->d_model; break;
    case LAM_ROLE_K: case LAM_ROLE_V: *rows = kv; *cols = c->d_model; break;
    case LAM_ROLE_O: *rows = c->d_model; *cols = q; break;
    case LAM_ROLE_GATE: case LAM_ROLE_UP: *rows = c->d_ff; *cols = c->d_model; break;
    case LAM_ROLE_DOWN: *rows = c->d_model; *cols = c->d_ff; break;
    case LAM_ROLE_Q_BIAS: *cols = q; break;
    case LAM_ROLE_K_BIAS: case LAM_ROLE_V_BIAS: *cols = kv; break;
    case LAM_ROLE_GATE_BIAS: case LAM_ROLE_UP_BIAS: *cols = c->d_ff; break;
    case LAM_ROLE_Q_NORM: case LAM_ROLE_K_NORM: *cols = c->head_dim; break;
    case LAM_ROLE_ROPE_FACTORS: *cols = c->head_dim / 2; break;
    default: *cols = c->d_model; break; /* norms, and the biases of O and DOWN */
    }
}
