/* What adapters will take, from what their files say of their tensors. */
#include "adapter/factor.h"
#include "adapter/overlay.h"
#include "base/alloc.h"
#include "base/budget.h"
#include "base/footprint.h"
#include "run/plan.h"
#include "tensor/tiles.h"

#include <string.h>

size_t lam_plan_block(size_t n)
{
    const struct lam_footprint *f = lam_footprint_here();
    size_t unit = n < f->large ? 16 : f->page, bytes = (n + f->header + unit - 1) / unit * unit;
    return bytes < 2 * 16 ? 2 * 16 : bytes;
}

size_t lam_plan_counted(size_t n) { return lam_plan_block(n + LAM_BUDGET_HEAD); }

/* Jansson's values: a head of two words and what each kind has; an object's table begins with 8 buckets and doubles when it is full. */
size_t lam_plan_json(const json_t *value)
{
    size_t n = 0, bytes, buckets = 8, at;
    const char *key;
    json_t *item;
    switch (json_typeof(value)) {
    case JSON_STRING: return lam_plan_block(4 * sizeof(void *)) + lam_plan_block(json_string_length(value) + 1);
    case JSON_INTEGER: case JSON_REAL: return lam_plan_block(3 * sizeof(void *));
    case JSON_ARRAY:
        for (n = 8; n < json_array_size(value);) n *= 2;
        bytes = lam_plan_block(5 * sizeof(void *)) + lam_plan_block(n * sizeof(void *));
        json_array_foreach(value, at, item) bytes += lam_plan_json(item);
        return bytes;
    case JSON_OBJECT:
        while (buckets < json_object_size(value)) buckets *= 2;
        bytes = lam_plan_block(9 * sizeof(void *)) + lam_plan_block(buckets * 2 * sizeof(void *));
        json_object_foreach((json_t *)value, key, item) bytes += lam_plan_block(7 * sizeof(void *) + strlen(key) + 1) + lam_plan_json(item);
        return bytes;
    default: return 0;
    }
}

static void larger(size_t *most, size_t n)
{
    if (n > *most) *most = n;
}

struct reading {
    const struct lam_model *model;
    struct lam_plan_adapters *out;
    const lam_plan_stack *stack;
    const struct lam_slm *file; /* at work */
    const lam_plan_stack *loaded;
    bool activated;
    size_t overlay;            /* of one overlay */
};

static size_t factor_bytes(uint32_t rows, uint32_t cols, bool quantised)
{
    size_t bytes = 0;
    lam_factor_bytes(rows, cols, quantised, &bytes);
    return lam_plan_counted(bytes);
}

static bool materializes(const lam_plan_stack *stack, const struct lam_target *t)
{
    for (size_t i = 0; i < stack->n_module_policies; i++)
        if (strcmp(stack->module_policies[i].module, t->name) == 0) return stack->module_policies[i].policy == LAM_POLICY_MATERIALIZE;
    return stack->policy == LAM_POLICY_MATERIALIZE;
}

/* While DoRA measures its rows both factors are there in float64, and one in float32. */
static size_t dora_bytes(const struct reading *r, const struct lam_target *t)
{
    char name[96];
    lam_part_tensor(t->name, LAM_PART_A, name);
    const struct lam_slm_entry *a = lam_slm_find(r->file, name);
    size_t rank = a ? a->dims[1] : 0;
    return lam_plan_block(t->rows * rank * sizeof(double)) + lam_plan_block(t->cols * rank * sizeof(double)) +
           lam_plan_block(t->rows * rank * sizeof(float));
}

/* One tensor of an adapter and the target that it changes. */
static void add_tensor(struct reading *r, const struct lam_slm_entry *e, const struct lam_target *t)
{
    struct lam_plan_adapters *out = r->out;
    enum lam_adapter_part part = (enum lam_adapter_part)(e->role >> 16);
    size_t at = (size_t)(t - r->model->targets.items), n = (size_t)e->dims[0] * e->dims[1], floats = lam_plan_counted(n * sizeof(float)), tiled = 0;
    bool embedding = t->role == LAM_ROLE_EMBEDDING, quantised = lam_dtype_is_quantised(t->dtype) && !embedding;
    uint32_t rows = e->dims[1], cols = e->dims[0];
    bool joined = t->matrix && !embedding && materializes(r->stack, t);
    switch (part) {
    case LAM_PART_A:
        out->staged += embedding ? floats : factor_bytes(rows, cols, quantised);
        larger(&out->transient, 2 * floats);
        if (joined) r->overlay += floats;
        else out->rank_floats[at] += ((size_t)rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS * LAM_TILE_ROWS;
        out->operators[at]++;
        out->effective[at] |= joined;
        break;
    case LAM_PART_B:
        out->staged += factor_bytes(rows, cols, quantised);
        larger(&out->transient, floats);
        if (joined) r->overlay += factor_bytes(rows, cols, false);
        break;
    case LAM_PART_MAGNITUDE:
        out->staged += floats + 3 * lam_plan_counted(n * sizeof(double));
        r->overlay += floats;
        larger(&out->transient, dora_bytes(r, t));
        break;
    case LAM_PART_DELTA: case LAM_PART_WEIGHT:
        if (t->matrix) lam_tiled_bytes(e->dtype, rows, cols, &tiled);
        out->staged += t->matrix ? lam_plan_counted(tiled) : floats;
        if (!t->matrix) r->overlay += floats;
        else out->operators[at]++, out->effective[at] |= joined || part == LAM_PART_WEIGHT;
        break;
    case LAM_PART_VALUES:
        out->staged += floats;
        out->operators[at]++;
        out->effective[at] |= joined;
        break;
    case LAM_PART_IA3_OUTPUT: out->operators[at]++; __attribute__((fallthrough));
    case LAM_PART_IA3_INPUT: case LAM_PART_BIAS: case LAM_PART_B_BIAS:
        out->staged += floats;
        r->overlay += floats;
        out->scales_inputs |= part == LAM_PART_IA3_INPUT;
        out->effective[at] |= joined && part != LAM_PART_BIAS;
        break;
    default: out->staged += floats; break; /* starts and columns: 32 bits each */
    }
}

static bool has_file(const lam_plan_stack *stack, const char *path)
{
    for (size_t i = 0; stack && i < stack->n; i++)
        if (strcmp(stack->adapters[i], path) == 0) return true;
    return false;
}

static lam_code add_adapter(struct reading *r, const char *path, lam_error *err)
{
    struct lam_slm *file;
    size_t staged = r->out->staged;
    LAM_TRY(lam_slm_open(path, &file, err));
    r->file = file;
    lam_code code = file->kind == LAM_SLM_ADAPTER ? LAM_OK : LAM_RAISE(err, LAM_E_FORMAT, "%s is a base, not an adapter", path);
    for (size_t i = 0; code == LAM_OK && i < file->n_entries; i++) {
        const struct lam_slm_entry *e = &file->entries[i];
        const char *name = file->names + e->name_offset;
        size_t len = e->name_len;
        while (len && name[len - 1] != '.') len--;
        const struct lam_target *t = len ? lam_find_target(&r->model->targets, name, len - 1) : NULL;
        if (!t) code = LAM_RAISE(err, LAM_E_UNMATCHED, "%s: the base has no module for the tensor %.*s", path, (int)e->name_len, name);
        else add_tensor(r, e, t);
    }
    size_t n_modules = json_array_size(json_object_get(file->metadata, "modules"));
    r->activated |= json_object_get(file->metadata, "activation") != NULL;
    r->out->staged += n_modules * sizeof(struct lam_module) + sizeof(struct lam_adapter);
    if (has_file(r->loaded, path)) r->out->staged = staged;
    r->overlay += 2 * n_modules * sizeof(struct lam_overlay_op);
    larger(&r->out->file_bytes, file->file.size);
    larger(&r->out->metadata, lam_plan_json(file->metadata));
    lam_slm_close(file);
    return code;
}

lam_code lam_plan_adapters(const struct lam_model *m, const lam_plan_stack *stack, const lam_plan_stack *loaded,
                           struct lam_plan_adapters *out, lam_error *err)
{
    size_t n = m->targets.n_items;
    struct reading r = {.model = m, .out = out, .stack = stack, .loaded = loaded};
    *out = (struct lam_plan_adapters){.rank_floats = lam_alloc(n, sizeof(size_t)), .operators = lam_alloc(n, sizeof(size_t)),
                                      .effective = lam_alloc(n, sizeof(bool))};
    lam_code code = out->rank_floats && out->operators && out->effective ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu targets", n);
    for (size_t i = 0; code == LAM_OK && stack && i < stack->n; i++) code = add_adapter(&r, stack->adapters[i], err);
    out->overlay = (r.overlay + n * sizeof(struct lam_overlay_slot)) * (r.activated ? 2 : 1);
    if (code != LAM_OK) lam_plan_adapters_release(out);
    return code;
}

void lam_plan_adapters_release(struct lam_plan_adapters *a)
{
    lam_free(a->rank_floats);
    lam_free(a->operators);
    lam_free(a->effective);
    *a = (struct lam_plan_adapters){0};
}
