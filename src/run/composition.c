#include "base/alloc.h"
#include "compose/identity.h"
#include "run/objects.h"

#include <math.h>
#include <string.h>

lam_code lam_adapter_load(lam_base *base, const char *path, bool waive, lam_adapter **out, lam_error *err)
{
    *out = NULL;
    lam_adapter *a = lam_alloc(1, sizeof *a);
    if (!a) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_code code = lam_adapter_open(path, &base->model->targets, waive, &a->staged, err);
    if (code != LAM_OK) {
        lam_free(a);
        return code;
    }
    a->holders = 1;
    atomic_fetch_add(&base->holders, 1);
    a->base = base;
    *out = a;
    return LAM_OK;
}

void lam_adapter_unload(lam_adapter *a)
{
    if (!a || atomic_fetch_sub(&a->holders, 1) != 1) return;
    lam_adapter_free(a->staged);
    lam_base_free(a->base);
    lam_free(a);
}

void lam_adapter_describe(const lam_adapter *a, lam_adapter_info *out)
{
    const struct lam_adapter *s = a->staged;
    *out = (lam_adapter_info){.name = s->name, .digest = s->digest, .n_modules = s->n_modules, .n_tensors = s->n_tensors,
                              .staged_bytes = s->bytes, .bound = s->bound};
    for (size_t i = 0; i < s->n_modules; i++) out->n_no_effect += s->modules[i].no_effect;
}

static const float *base_bias(const void *context, const struct lam_target *t)
{
    const struct lam_model *m = context;
    const struct lam_layer *l = t->layer == LAM_LAYER_NONE ? NULL : &m->layers[t->layer];
    switch (t->role) {
    case LAM_ROLE_Q: return l->q_bias;
    case LAM_ROLE_K: return l->k_bias;
    case LAM_ROLE_V: return l->v_bias;
    case LAM_ROLE_O: return l->o_bias;
    case LAM_ROLE_GATE: return l->gate_bias;
    case LAM_ROLE_UP: return l->up_bias;
    case LAM_ROLE_DOWN: return l->down_bias;
    default: return NULL;
    }
}

/* The format that is asked for; by default float16, or float32 if every matrix of the base is of a float type. */
static lam_code choose_kv(const struct lam_base *base, lam_kv choice, enum lam_kv_type *out, lam_error *err)
{
    switch (choice) {
    case LAM_KV_DEFAULT: *out = base->model->float_weights ? LAM_KV_F32 : LAM_KV_F16; return LAM_OK;
    case LAM_KV_FLOAT16: *out = LAM_KV_F16; return LAM_OK;
    case LAM_KV_FLOAT32: *out = LAM_KV_F32; return LAM_OK;
    case LAM_KV_INT8: *out = LAM_KV_I8; return LAM_OK;
    }
    return LAM_RAISE(err, LAM_E_ARGUMENT, "there is no KV format %d", (int)choice);
}

static lam_code validate(const struct lam_base *base, lam_adapter *const adapters[], const double weights[], size_t n, lam_error *err)
{
    LAM_TRY(lam_mapping_check(&base->model->file->file, err));
    for (size_t i = 0; i < n; i++) {
        if (adapters[i]->base != base)
            return LAM_RAISE(err, LAM_E_WRONG_BASE, "adapter %s was loaded for another base", adapters[i]->staged->name);
        if (!isfinite(weights[i]))
            return LAM_RAISE(err, LAM_E_ARGUMENT, "adapter %s: its weight is not finite", adapters[i]->staged->name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(adapters[j]->staged->digest, adapters[i]->staged->digest) == 0)
                return LAM_RAISE(err, LAM_E_DUPLICATE, "adapter %s occurs twice", adapters[i]->staged->name);
    }
    return LAM_OK;
}

static lam_code make_identity(struct lam_composition *c, const double weights[], lam_error *err)
{
    struct lam_identity_adapter *list = lam_alloc(c->n_adapters, sizeof *list);
    if (!list) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapters", c->n_adapters);
    for (size_t i = 0; i < c->n_adapters; i++)
        list[i] = (struct lam_identity_adapter){.digest = c->adapters[i]->staged->digest, .weight = weights[i],
                                                .waived = !c->adapters[i]->staged->bound};
    const struct lam_base *b = c->base;
    struct lam_identity identity = {
        .base_digest = b->model->base_digest,
        .tokenizer_digest = b->tokenizer_digest,
        .template_digest = b->template_digest[0] ? b->template_digest : NULL,
        .kv_format = lam_composition_kv_format(c),
        .adapters = list,
        .n_adapters = c->n_adapters,
    };
    lam_code code = lam_identity_make(&identity, &c->json, c->id, err);
    lam_free(list);
    return code;
}

/* A bias that an adapter replaces is blended with the base's, here and now. */
static lam_code need_biases(lam_base *base, lam_adapter *const adapters[], size_t n, lam_error *err)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < adapters[i]->staged->n_modules; k++) any |= adapters[i]->staged->modules[k].bias != NULL;
    if (!any) return LAM_OK;
    lam_pool_lock(base->engine->pool);
    lam_code code = lam_verified_need(&base->verified, NULL, 0, err);
    lam_pool_unlock(base->engine->pool);
    return code;
}

static lam_code stage(struct lam_composition *c, lam_adapter *const adapters[], const double weights[], size_t n, lam_error *err)
{
    struct lam_adapter **staged = lam_alloc(n, sizeof *staged);
    c->adapters = lam_alloc(n, sizeof *c->adapters);
    if (!staged || !c->adapters) {
        lam_free(staged);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapters", n);
    }
    for (size_t i = 0; i < n; i++) {
        staged[i] = adapters[i]->staged;
        c->adapters[c->n_adapters++] = adapters[i];
        atomic_fetch_add(&adapters[i]->holders, 1);
    }
    const struct lam_model *m = c->base->model;
    lam_code code = lam_overlay_build(&m->targets, staged, weights, n, base_bias, m, &c->overlay, err);
    lam_free(staged);
    return code;
}

lam_code lam_compose(lam_base *base, lam_adapter *const adapters[], const double weights[], size_t n,
                     const lam_compose_options *options, lam_composition **out, lam_error *err)
{
    *out = NULL;
    enum lam_kv_type kv = LAM_KV_F16;
    LAM_TRY(choose_kv(base, options ? options->kv : LAM_KV_DEFAULT, &kv, err));
    LAM_TRY(validate(base, adapters, weights, n, err));
    LAM_TRY(need_biases(base, adapters, n, err));
    struct lam_composition *c = lam_alloc(1, sizeof *c);
    if (!c) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a composition");
    c->holders = 1;
    atomic_fetch_add(&base->holders, 1);
    c->base = base;
    c->kv = kv;
    lam_code code = stage(c, adapters, weights, n, err);
    if (code == LAM_OK) code = make_identity(c, weights, err);
    if (code == LAM_OK) *out = c;
    else lam_composition_free(c);
    return code;
}

void lam_composition_free(lam_composition *c)
{
    if (!c || atomic_fetch_sub(&c->holders, 1) != 1) return;
    lam_overlay_release(&c->overlay);
    for (size_t i = 0; i < c->n_adapters; i++) lam_adapter_unload(c->adapters[i]);
    lam_free(c->adapters);
    lam_str_release(&c->json);
    lam_base_free(c->base);
    lam_free(c);
}

const char *lam_composition_id(const lam_composition *c) { return c->id; }
const char *lam_composition_json(const lam_composition *c) { return c->json.data; }

const char *lam_composition_kv_format(const lam_composition *c)
{
    static const char *const names[] = {[LAM_KV_F16] = "f16", [LAM_KV_F32] = "f32", [LAM_KV_I8] = "i8"};
    return names[c->kv];
}

size_t lam_composition_kv_bytes(const lam_composition *c)
{
    const struct lam_config *m = &c->base->model->config;
    struct lam_kv one = {.type = c->kv, .n_layers = m->n_layers, .n_heads = m->n_kv_heads, .head_dim = m->head_dim};
    return lam_kv_page_bytes(&one) / LAM_KV_PAGE;
}
