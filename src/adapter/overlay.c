#include "adapter/overlay.h"
#include "base/alloc.h"

#include <float.h>
#include <math.h>

const struct lam_overlay_slot *lam_overlay_slot(const struct lam_overlay *o, const struct lam_target *target)
{
    static const struct lam_overlay_slot nothing = {0};
    return o ? &o->slots[target - o->first_target] : &nothing;
}

/* b + w·(b' − b), and b' itself at weight 1. */
static lam_code blend_bias(const struct lam_lora *m, const float *base, double weight, const float **out, lam_error *err)
{
    uint32_t n = m->target->rows;
    if (*out) return LAM_RAISE(err, LAM_E_CONFLICT, "two adapters replace the bias of %s", m->target->name);
    if (!base) return LAM_RAISE(err, LAM_E_UNMATCHED, "the base has no bias at %s", m->target->name);
    float *bias = lam_alloc(n, sizeof *bias), w = (float)weight;
    if (!bias) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a bias of %u", n);
    *out = bias;
    for (uint32_t i = 0; i < n; i++) {
        bias[i] = weight == 1.0 ? m->bias[i] : base[i] + w * (m->bias[i] - base[i]);
        if (!isfinite(bias[i])) return LAM_RAISE(err, LAM_E_ARGUMENT, "at weight %g the bias of %s is not finite", weight, m->target->name);
    }
    return LAM_OK;
}

/* Operators of one target, adapter by adapter; modules are sorted as targets are, so each adapter has a cursor. */
static lam_code build_slot(const struct lam_target *t, struct lam_adapter *const *adapters, const double *weights, size_t n,
                           size_t *cursors, const float *base_bias, struct lam_overlay_op *ops, struct lam_overlay_slot *slot,
                           lam_error *err)
{
    slot->ops = ops;
    for (size_t i = 0; i < n; i++) {
        if (cursors[i] == adapters[i]->n_modules || adapters[i]->modules[cursors[i]].target != t) continue;
        const struct lam_lora *m = &adapters[i]->modules[cursors[i]++];
        if (weights[i] == 0.0) continue;
        double scale = weights[i] * lam_lora_scale(m);
        if (fabs(scale) > FLT_MAX)
            return LAM_RAISE(err, LAM_E_ARGUMENT, "adapter %s at weight %g: %s is scaled by %g, beyond float32", adapters[i]->name, weights[i],
                             t->name, scale);
        ops[slot->n_ops++] = (struct lam_overlay_op){.lora = m, .scale = (float)scale};
        if (m->bias) LAM_TRY(blend_bias(m, base_bias, weights[i], &slot->bias, err));
    }
    return LAM_OK;
}

lam_code lam_overlay_build(const struct lam_base_targets *base, struct lam_adapter *const *adapters, const double *weights,
                           size_t n_adapters, lam_base_bias_fn base_bias, const void *context, struct lam_overlay *out,
                           lam_error *err)
{
    size_t n_ops = 0;
    for (size_t i = 0; i < n_adapters; i++) n_ops += adapters[i]->n_modules;
    *out = (struct lam_overlay){.first_target = base->items, .n_slots = base->n_items};
    out->slots = lam_alloc(base->n_items, sizeof *out->slots);
    out->ops = lam_alloc(n_ops, sizeof *out->ops);
    size_t *cursors = lam_alloc(n_adapters, sizeof *cursors);
    lam_code code = out->slots && out->ops && cursors ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "an overlay of %zu operators", n_ops);
    struct lam_overlay_op *next = out->ops;
    for (size_t t = 0; code == LAM_OK && t < base->n_items; t++) {
        code = build_slot(&base->items[t], adapters, weights, n_adapters, cursors, base_bias(context, &base->items[t]), next,
                          &out->slots[t], err);
        next += out->slots[t].n_ops;
    }
    lam_free(cursors);
    if (code != LAM_OK) lam_overlay_release(out);
    return code;
}

void lam_overlay_release(struct lam_overlay *o)
{
    for (size_t i = 0; o->slots && i < o->n_slots; i++) lam_free((void *)o->slots[i].bias);
    lam_free(o->slots);
    lam_free(o->ops);
    *o = (struct lam_overlay){0};
}
