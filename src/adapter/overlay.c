#include "adapter/overlay.h"
#include "adapter/dora.h"
#include "adapter/factor.h"
#include "adapter/lora.h"
#include "base/alloc.h"
#include "base/budget.h"

#include <float.h>
#include <math.h>
#include <string.h>

const struct lam_overlay_slot *lam_overlay_slot(const struct lam_overlay *o, const struct lam_target *target)
{
    static const struct lam_overlay_slot nothing = {0};
    return o ? &o->slots[target - o->first_target] : &nothing;
}

/* While an overlay is built: the items that have a module of the target at work, in order. */
struct building {
    const struct lam_stack *stack;
    size_t *cursors;                     /* [n]: modules are sorted as targets are */
    const struct lam_module **modules;   /* [n] of the target at work; NULL: the item leaves it alone */
    struct lam_slm **files;              /* [n], opened where a materialised slot needs them; owned */
    const struct lam_target *target;
    size_t owner;                        /* of the target; SIZE_MAX: none is named */
    const float *base_bias;
    struct lam_budget *budget;
};

static const char *name_of(const struct building *b, size_t item) { return b->stack->items[item].adapter->name; }

typedef bool (*claims_fn)(const struct building *b, size_t item);

static bool claims_all(const struct building *b, size_t i) { return b->stack->items[i].rule == LAM_RULE_REPLACE; }
static bool claims_weight(const struct building *b, size_t i) { return b->modules[i]->weight.tiles || b->modules[i]->vector; }
static bool claims_bias(const struct building *b, size_t i) { return b->modules[i]->bias; }

/* The one item that has what claims tells of, SIZE_MAX if none. */
static lam_code find_claimant(const struct building *b, claims_fn claims, const char *what, size_t *out, lam_error *err)
{
    size_t found = SIZE_MAX, second = SIZE_MAX;
    for (size_t i = 0; i < b->stack->n; i++) {
        if (!b->modules[i] || !claims(b, i)) continue;
        if (i == b->owner) {
            *out = i;
            return LAM_OK;
        }
        if (found == SIZE_MAX) found = i;
        else if (second == SIZE_MAX) second = i;
    }
    *out = found;
    if (second == SIZE_MAX) return LAM_OK;
    return LAM_RAISE(err, LAM_E_CONFLICT, "adapters %.100s and %.100s both replace %s %s; name its owner", name_of(b, found),
                     name_of(b, second), what, b->target->name);
}

/* Fills in modules for the target: who acts on it at all, and what the rules leave. */
static lam_code choose_modules(struct building *b, lam_error *err)
{
    size_t replacing;
    for (size_t i = 0; i < b->stack->n; i++) {
        const struct lam_stack_item *item = &b->stack->items[i];
        const struct lam_adapter *a = item->adapter;
        bool here = b->cursors[i] < a->n_modules && a->modules[b->cursors[i]].target == b->target;
        b->modules[i] = here && item->weight != 0.0 && item->active ? &a->modules[b->cursors[i]] : NULL;
        b->cursors[i] += here;
    }
    LAM_TRY(find_claimant(b, claims_all, "module", &replacing, err));
    for (size_t i = 0; replacing != SIZE_MAX && i < b->stack->n; i++)
        if (i < replacing || (i > replacing && claims_all(b, i))) b->modules[i] = NULL;
    return LAM_OK;
}

/* Values that the overlay keeps. */
static lam_code new_floats(const struct building *b, uint32_t n, float **out, lam_error *err)
{
    return lam_budget_alloc(b->budget, n, sizeof **out, b->target->name, out, err);
}

/* A weight by which values are mixed, in float32. */
static lam_code narrow(const struct building *b, double weight, float *out, lam_error *err)
{
    if (fabs(weight) > FLT_MAX) return LAM_RAISE(err, LAM_E_ARGUMENT, "weight %g of %s is beyond float32", weight, b->target->name);
    *out = (float)weight;
    return LAM_OK;
}

/* from + w·(to − from), and to itself at weight 1; from may be NULL at weight 1. */
static lam_code blend(const struct building *b, const float *from, const float *to, uint32_t n, double weight, float **out, lam_error *err)
{
    float w = 0.0f;
    LAM_TRY(narrow(b, weight, &w, err));
    LAM_TRY(new_floats(b, n, out, err));
    float *mixed = *out;
    for (uint32_t i = 0; i < n; i++) {
        mixed[i] = weight == 1.0 ? to[i] : from[i] + w * (to[i] - from[i]);
        if (!isfinite(mixed[i]))
            return LAM_RAISE(err, LAM_E_ARGUMENT, "at weight %g a value of %s is not finite", weight, b->target->name);
    }
    return LAM_OK;
}

static lam_code scale_of(const struct building *b, size_t item, double scale, struct lam_overlay_op *op, lam_error *err)
{
    if (fabs(scale) > FLT_MAX)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "adapter %.100s at weight %g: %s is scaled by %g, beyond float32", name_of(b, item),
                         b->stack->items[item].weight, b->target->name, scale);
    op->scale = (float)scale;
    return LAM_OK;
}

/* 1 + w·(l − 1), and l itself at weight 1. */
static lam_code ia3_factors(const struct building *b, const struct lam_module *m, double weight, uint32_t n, float **out, lam_error *err)
{
    float w = 0.0f;
    LAM_TRY(narrow(b, weight, &w, err));
    LAM_TRY(new_floats(b, n, out, err));
    float *f = *out;
    for (uint32_t i = 0; i < n; i++) f[i] = weight == 1.0 ? m->ia3[i] : 1.0f + w * (m->ia3[i] - 1.0f);
    return LAM_OK;
}

static lam_code low_rank_op(const struct building *b, size_t item, const struct lam_module *m, struct lam_overlay_op *op, lam_error *err)
{
    double scale = b->stack->items[item].weight * lam_lora_scale(&m->lora);
    LAM_TRY(scale_of(b, item, scale, op, err));
    if (m->lora.b_bias) {
        LAM_TRY(new_floats(b, m->target->rows, &op->shift, err));
        for (uint32_t r = 0; r < m->target->rows; r++) op->shift[r] = op->scale * m->lora.b_bias[r];
    }
    if (m->method != LAM_METHOD_DORA) return LAM_OK;
    LAM_TRY(new_floats(b, m->target->rows, &op->rows, err));
    lam_dora_factors(m, scale, op->rows);
    for (uint32_t r = 0; r < m->target->rows; r++)
        if (!isfinite(op->rows[r]))
            return LAM_RAISE(err, LAM_E_ARGUMENT, "adapter %.100s at weight %g: row %u of %s cannot be brought to its length", name_of(b, item),
                             b->stack->items[item].weight, r, b->target->name);
    return LAM_OK;
}

/* Multiplies the slot's input factors by those of one more module. */
static lam_code scale_input(const struct building *b, const struct lam_module *m, double weight, struct lam_overlay_slot *slot,
                            lam_error *err)
{
    float *factors = NULL;
    LAM_TRY(ia3_factors(b, m, weight, m->target->cols, &factors, err));
    if (!slot->input) {
        slot->input = factors;
        return LAM_OK;
    }
    for (uint32_t i = 0; i < m->target->cols; i++) slot->input[i] = slot->input[i] * factors[i];
    lam_budget_free(factors);
    return LAM_OK;
}

static lam_code add_method(const struct building *b, size_t item, struct lam_overlay_slot *slot, lam_error *err)
{
    const struct lam_module *m = b->modules[item];
    double weight = b->stack->items[item].weight;
    if (m->method == LAM_METHOD_NONE) return LAM_OK;
    if (m->method == LAM_METHOD_IA3_INPUT) return scale_input(b, m, weight, slot, err);
    struct lam_overlay_op *op = &slot->ops[slot->n_ops++];
    *op = (struct lam_overlay_op){.module = m, .method = m->method};
    switch (m->method) {
    case LAM_METHOD_LORA: case LAM_METHOD_DORA: return low_rank_op(b, item, m, op, err);
    case LAM_METHOD_IA3_OUTPUT: return ia3_factors(b, m, weight, m->target->rows, &op->rows, err);
    default: return scale_of(b, item, weight, op, err);
    }
}

/* A matrix or norm in place of the base's. */
static lam_code replace_weight(const struct building *b, struct lam_overlay_slot *slot, lam_error *err)
{
    size_t item;
    LAM_TRY(find_claimant(b, claims_weight, "tensor", &item, err));
    if (item == SIZE_MAX) return LAM_OK;
    const struct lam_module *m = b->modules[item];
    double weight = b->stack->items[item].weight;
    if (m->vector) return blend(b, b->target->vector, m->vector, b->target->cols, weight, &slot->vector, err);
    for (size_t i = 0; i < b->stack->n; i++)
        if (b->modules[i] && b->modules[i]->method == LAM_METHOD_DORA)
            return LAM_RAISE(err, LAM_E_CONFLICT, "DoRA adapter %.100s scales rows of %s by the base's, which %.100s replaces", name_of(b, i),
                             b->target->name, name_of(b, item));
    if (weight == 1.0) {
        slot->weight = &m->weight;
        return LAM_OK;
    }
    struct lam_overlay_op *op = &slot->ops[slot->n_ops++];
    *op = (struct lam_overlay_op){.module = m, .method = LAM_METHOD_NONE};
    return scale_of(b, item, weight, op, err);
}

/* The bias is scaled with what it is added to. */
static lam_code make_bias(const struct building *b, struct lam_overlay_slot *slot, lam_error *err)
{
    size_t item;
    uint32_t n = b->target->rows;
    LAM_TRY(find_claimant(b, claims_bias, "the bias of", &item, err));
    if (item != SIZE_MAX && !b->base_bias)
        return LAM_RAISE(err, LAM_E_UNMATCHED, "the base has no bias at %s", b->target->name);
    if (item != SIZE_MAX) LAM_TRY(blend(b, b->base_bias, b->modules[item]->bias, n, b->stack->items[item].weight, &slot->bias, err));
    for (size_t o = 0; b->base_bias && o < slot->n_ops; o++) {
        if (slot->ops[o].method != LAM_METHOD_IA3_OUTPUT) continue;
        if (!slot->bias) LAM_TRY(blend(b, NULL, b->base_bias, n, 1.0, &slot->bias, err));
        for (uint32_t r = 0; r < n; r++) slot->bias[r] = slot->bias[r] * slot->ops[o].rows[r];
    }
    return LAM_OK;
}

/* The biases of B go the way of one more column of the matrix. */
static lam_code fold_shifts(const struct building *b, struct lam_overlay_slot *slot, lam_error *err)
{
    uint32_t n = b->target->rows;
    bool any = false;
    for (size_t o = 0; o < slot->n_ops; o++) any |= slot->ops[o].shift != NULL;
    if (!any) return LAM_OK;
    LAM_TRY(new_floats(b, n, &slot->shift, err));
    float *s = slot->shift;
    for (size_t o = 0; o < slot->n_ops; o++) {
        const struct lam_overlay_op *op = &slot->ops[o];
        for (uint32_t r = 0; r < n; r++) {
            float shift = op->shift ? op->shift[r] : 0.0f;
            if (op->method == LAM_METHOD_LORA) s[r] = s[r] + shift;
            else if (op->method == LAM_METHOD_DORA) s[r] = s[r] + ((op->rows[r] - 1.0f) * s[r] + op->rows[r] * shift);
            else if (op->method == LAM_METHOD_IA3_OUTPUT) s[r] = s[r] * op->rows[r];
        }
    }
    return LAM_OK;
}

/* The factors in float32, which only the file has where the base is quantised. */
static lam_code materialize(struct building *b, struct lam_overlay_slot *slot, lam_error *err)
{
    slot->materialize = true;
    for (size_t i = 0, o = 0; i < b->stack->n; i++) {
        const struct lam_module *m = b->modules[i];
        if (!m || (m->method != LAM_METHOD_LORA && m->method != LAM_METHOD_DORA)) continue;
        while (slot->ops[o].module != m || slot->ops[o].method != m->method) o++;
        if (!b->files[i]) LAM_TRY(lam_adapter_reopen(b->stack->items[i].adapter, &b->files[i], err));
        LAM_TRY(lam_lora_read(b->files[i], m, b->budget, &slot->ops[o].a, &slot->ops[o].b, err));
    }
    return fold_shifts(b, slot, err);
}

/* What weights, and products of several adapters, make of finite values may not be finite. */
static lam_code check_values(const struct building *b, const float *values, uint32_t n, lam_error *err)
{
    for (uint32_t i = 0; values && i < n; i++)
        if (!isfinite(values[i]))
            return LAM_RAISE(err, LAM_E_ARGUMENT, "with these adapters and weights value %u of what is laid over %s is beyond float32", i,
                             b->target->name);
    return LAM_OK;
}

static lam_code check_slot(const struct building *b, const struct lam_overlay_slot *slot, lam_error *err)
{
    uint32_t rows = b->target->rows;
    LAM_TRY(check_values(b, slot->input, b->target->cols, err));
    LAM_TRY(check_values(b, slot->bias, rows, err));
    LAM_TRY(check_values(b, slot->shift, rows, err));
    for (size_t o = 0; o < slot->n_ops; o++) {
        LAM_TRY(check_values(b, slot->ops[o].rows, rows, err));
        LAM_TRY(check_values(b, slot->ops[o].shift, rows, err));
    }
    return LAM_OK;
}

static lam_code build_slot(struct building *b, bool materialized, struct lam_overlay_slot *slot, lam_error *err)
{
    LAM_TRY(choose_modules(b, err));
    LAM_TRY(replace_weight(b, slot, err));
    for (size_t i = 0; i < b->stack->n; i++)
        if (b->modules[i]) LAM_TRY(add_method(b, i, slot, err));
    if (!b->target->matrix) return LAM_OK;
    LAM_TRY(make_bias(b, slot, err));
    if (!materialized || b->target->role == LAM_ROLE_EMBEDDING || !(slot->n_ops || slot->weight || slot->input)) return LAM_OK;
    return materialize(b, slot, err);
}

static lam_code build_slots(struct building *b, const struct lam_base_targets *base, lam_base_bias_fn base_bias, const void *context,
                            struct lam_overlay *out, lam_error *err)
{
    const struct lam_stack *stack = b->stack;
    struct lam_overlay_op *next = out->ops;
    for (size_t t = 0; t < base->n_items; t++) {
        b->target = &base->items[t];
        b->owner = stack->owners ? stack->owners[t] : SIZE_MAX;
        b->base_bias = base_bias(context, b->target);
        out->slots[t].ops = next;
        lam_code code = build_slot(b, stack->materialize && stack->materialize[t], &out->slots[t], err);
        if (code == LAM_OK) code = check_slot(b, &out->slots[t], err);
        next += out->slots[t].n_ops;
        if (code != LAM_OK) return code;
    }
    return LAM_OK;
}

lam_code lam_overlay_build(const struct lam_base_targets *base, const struct lam_stack *stack, lam_base_bias_fn base_bias,
                           const void *context, struct lam_overlay *out, lam_error *err)
{
    size_t n_ops = 0;
    for (size_t i = 0; i < stack->n; i++) n_ops += 2 * stack->items[i].adapter->n_modules; /* a weight and an operator */
    *out = (struct lam_overlay){.first_target = base->items, .n_slots = base->n_items};
    struct building b = {.stack = stack, .budget = base->budget};
    out->slots = lam_alloc(base->n_items, sizeof *out->slots);
    out->ops = lam_alloc(n_ops, sizeof *out->ops);
    b.cursors = lam_alloc(stack->n, sizeof *b.cursors);
    b.modules = lam_alloc(stack->n, sizeof *b.modules);
    b.files = lam_alloc(stack->n, sizeof *b.files);
    bool memory = out->slots && out->ops && b.cursors && b.modules && b.files;
    lam_code code = memory ? build_slots(&b, base, base_bias, context, out, err)
                           : LAM_RAISE(err, LAM_E_NO_MEMORY, "an overlay of %zu operators", n_ops);
    for (size_t i = 0; b.files && i < stack->n; i++) lam_slm_close(b.files[i]);
    lam_free(b.cursors);
    lam_free(b.modules);
    lam_free(b.files);
    if (code != LAM_OK) lam_overlay_release(out);
    return code;
}

void lam_overlay_release(struct lam_overlay *o)
{
    for (size_t i = 0; o->slots && i < o->n_slots; i++) {
        struct lam_overlay_slot *slot = &o->slots[i];
        for (size_t k = 0; k < slot->n_ops; k++) {
            lam_budget_free(slot->ops[k].rows);
            lam_budget_free(slot->ops[k].shift);
            lam_budget_free(slot->ops[k].a);
            lam_factor_release(&slot->ops[k].b);
        }
        lam_budget_free(slot->input);
        lam_budget_free(slot->bias);
        lam_budget_free(slot->vector);
        lam_budget_free(slot->shift);
    }
    lam_free(o->slots);
    lam_free(o->ops);
    *o = (struct lam_overlay){0};
}
