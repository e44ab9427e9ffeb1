#include "adapter/adapter.h"
#include "adapter/factor.h"
#include "base/alloc.h"
#include "base/str.h"
#include "tensor/decode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is known of an adapter file while it is opened. */
struct opening {
    const char *path;
    struct lam_slm *file;
    const struct lam_base_targets *base;
    struct lam_adapter *adapter;
    size_t n_used;
};

double lam_lora_scale(const struct lam_lora *m)
{
    return m->alpha / (m->rank_stabilised ? sqrt((double)m->rank) : (double)m->rank);
}

static int compare_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct lam_target *)item)->name);
}

const struct lam_target *lam_find_target(const struct lam_base_targets *base, const char *name, size_t len)
{
    char key[64];
    if (len >= sizeof key) return NULL;
    memcpy(key, name, len);
    key[len] = 0;
    if (strlen(key) != len) return NULL; /* a zero within: JSON can have one */
    return bsearch(key, base->items, base->n_items, sizeof *base->items, compare_name);
}

static lam_code check_binding(const struct opening *o, bool waive, lam_error *err)
{
    const json_t *bases = json_object_get(o->file->metadata, "bases");
    if (!json_is_array(bases)) return LAM_RAISE(err, LAM_E_FORMAT, "%s: metadata lacks bases", o->path);
    o->adapter->bound = false;
    for (size_t i = 0; i < json_array_size(bases); i++) {
        const char *digest = json_string_value(json_array_get(bases, i));
        if (!digest) return LAM_RAISE(err, LAM_E_FORMAT, "%s: bases[%zu] is not a digest", o->path, i);
        if (strcmp(digest, o->base->base_digest) == 0) o->adapter->bound = true;
    }
    if (o->adapter->bound || waive) return LAM_OK;
    if (json_array_size(bases) == 0)
        return LAM_RAISE(err, LAM_E_UNBOUND, "%s is bound to no base; import it with -m BASE", o->path);
    return LAM_RAISE(err, LAM_E_WRONG_BASE, "%s is bound to base %s, this base is %s", o->path,
                     json_string_value(json_array_get(bases, 0)), o->base->base_digest);
}

static lam_code verify_pieces(const struct opening *o, lam_error *err)
{
    for (size_t i = 0; i < o->file->n_pieces; i++) LAM_TRY(lam_slm_verify_piece(o->file, i, err));
    return LAM_OK;
}

/* The tensor "<target><suffix>", checked to be rows × cols; *out is NULL if it is absent. */
static lam_code find_part(struct opening *o, const struct lam_target *target, const char *suffix, enum lam_adapter_part part,
                          uint32_t rows, uint32_t cols, const struct lam_slm_entry **out, lam_error *err)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s", target->name, suffix);
    const struct lam_slm_entry *e = *out = lam_slm_find(o->file, name);
    if (!e) return LAM_OK;
    if (e->dims[0] != cols || e->dims[1] != rows || e->dims[2] != 1 || e->dims[3] != 1)
        return LAM_RAISE(err, LAM_E_SHAPE, "%s: %s has %u rows of %u, the base asks for %u of %u", o->path, name, e->dims[1],
                         e->dims[0], rows, cols);
    if (lam_dtype_is_quantised(e->dtype) || e->layout != LAM_LAYOUT_PLAIN)
        return LAM_RAISE(err, LAM_E_DTYPE, "%s: %s has type %s", o->path, name, lam_dtype_info(e->dtype)->name);
    if (e->role != ((uint32_t)target->role | (uint32_t)part << 16) || e->layer != target->layer)
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: %s has role %u, layer %u", o->path, name, e->role, e->layer);
    o->n_used++;
    return LAM_OK;
}

/* A whole tensor as float32, refused if a value is not finite. */
static lam_code read_floats(const struct opening *o, const struct lam_slm_entry *e, float **out, lam_error *err)
{
    size_t row_bytes = 0, n;
    lam_dtype_row_bytes(e->dtype, e->dims[0], &row_bytes);
    float *f = lam_mul_size(e->dims[0], e->dims[1], &n) ? lam_alloc(n, sizeof *f) : NULL;
    if (!f) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: a tensor of %u by %u", o->path, e->dims[1], e->dims[0]);
    for (size_t r = 0; r < e->dims[1]; r++) {
        const uint8_t *row = lam_slm_tensor_data(o->file, e) + r * row_bytes;
        if (!lam_row_is_finite(e->dtype, row, e->dims[0])) {
            lam_free(f);
            return LAM_RAISE(err, LAM_E_NON_FINITE, "%s: %.*s has a value that is not finite in row %zu", o->path, (int)e->name_len,
                             o->file->names + e->name_offset, r);
        }
        lam_decode_row(e->dtype, row, e->dims[0], f + r * e->dims[0]);
    }
    *out = f;
    return LAM_OK;
}

static bool all_zero(const float *f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (f[i] != 0.0f) return false;
    return true;
}

static lam_code stage_bias(struct opening *o, const char *name, struct lam_lora *m, lam_error *err)
{
    const struct lam_slm_entry *e;
    LAM_TRY(find_part(o, m->target, ".bias", LAM_PART_BIAS, 1, m->target->rows, &e, err));
    if (!e) return LAM_OK;
    if (!lam_role_bias(m->target->role))
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "%s: %s.bias: this module has no bias", o->path, name);
    return read_floats(o, e, &m->bias, err);
}

static lam_code stage_factors(struct opening *o, const char *name, struct lam_lora *m, lam_error *err)
{
    const struct lam_target *t = m->target;
    const struct lam_slm_entry *a, *b;
    bool embedding = t->role == LAM_ROLE_EMBEDDING;
    uint32_t d_out = embedding ? t->cols : t->rows;
    LAM_TRY(find_part(o, t, ".lora_a", LAM_PART_A, embedding ? t->rows : m->rank, embedding ? m->rank : t->cols, &a, err));
    LAM_TRY(find_part(o, t, ".lora_b", LAM_PART_B, d_out, m->rank, &b, err));
    if (!a || !b)
        return LAM_RAISE(err, LAM_E_MISSING_PAIR, "%s: %s has no %s", o->path, name, a ? "lora_b" : "lora_a");
    float *values = NULL;
    bool quantised = lam_dtype_is_quantised(t->dtype) && !embedding;
    LAM_TRY(read_floats(o, b, &values, err));
    m->no_effect = all_zero(values, (size_t)d_out * m->rank);
    lam_code code = lam_factor_stage(values, d_out, m->rank, quantised, &m->b, err);
    lam_free(values);
    if (code != LAM_OK) return code;
    if (embedding) return read_floats(o, a, &m->embedding_a, err);
    LAM_TRY(read_floats(o, a, &values, err));
    code = lam_factor_stage(values, m->rank, t->cols, quantised, &m->a, err);
    lam_free(values);
    return code;
}

static lam_code open_module(struct opening *o, const json_t *item, struct lam_lora *m, lam_error *err)
{
    const char *name = NULL, *scaling = NULL;
    size_t name_len = 0;
    json_int_t rank = 0;
    json_error_t problem;
    if (json_unpack_ex((json_t *)item, &problem, 0, "{s:s%,s:I,s:F,s:s}", "name", &name, &name_len, "rank", &rank, "alpha", &m->alpha,
                       "scaling", &scaling) != 0)
        return lam_json_refuse(&problem, o->path, err);
    if (json_object_size(item) != 4) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "%s: module %s has unknown fields", o->path, name);
    m->target = lam_find_target(o->base, name, name_len);
    if (!m->target) return LAM_RAISE(err, LAM_E_UNMATCHED, "%s: the base has no module %s", o->path, name);
    if (rank < 1 || rank > INT32_MAX)
        return LAM_RAISE(err, LAM_E_RANK, "%s: %s has rank %lld", o->path, name, (long long)rank);
    if (!isfinite(m->alpha)) return LAM_RAISE(err, LAM_E_NON_FINITE, "%s: %s: alpha is not finite", o->path, name);
    m->rank = (uint32_t)rank;
    m->rank_stabilised = strcmp(scaling, "alpha/sqrt(r)") == 0;
    if (!m->rank_stabilised && strcmp(scaling, "alpha/r") != 0)
        return LAM_RAISE(err, LAM_E_METHOD, "%s: %s: scaling rule %s", o->path, name, scaling);
    LAM_TRY(stage_factors(o, name, m, err));
    return stage_bias(o, name, m, err);
}

static lam_code open_modules(struct opening *o, lam_error *err)
{
    const json_t *modules = json_object_get(o->file->metadata, "modules");
    struct lam_adapter *a = o->adapter;
    size_t n = json_array_size(modules);
    if (n == 0) return LAM_RAISE(err, LAM_E_UNMATCHED, "%s changes no module", o->path);
    /* Each module is a distinct target, which bounds the count before anything is allocated. */
    if (n > o->base->n_items)
        return LAM_RAISE(err, LAM_E_UNMATCHED, "%s has %zu modules, the base %zu", o->path, n, o->base->n_items);
    a->modules = lam_alloc(n, sizeof *a->modules);
    if (!a->modules) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: %zu modules", o->path, n);
    a->n_modules = n;
    for (size_t i = 0; i < n; i++) {
        LAM_TRY(open_module(o, json_array_get(modules, i), &a->modules[i], err));
        if (i && strcmp(a->modules[i - 1].target->name, a->modules[i].target->name) >= 0)
            return LAM_RAISE(err, LAM_E_DUPLICATE, "%s: module %s occurs twice or out of order", o->path, a->modules[i].target->name);
        size_t bytes_a = 0, bytes_b = 0;
        lam_factor_bytes(a->modules[i].a.rows, a->modules[i].a.cols, a->modules[i].a.quantised, &bytes_a);
        lam_factor_bytes(a->modules[i].b.rows, a->modules[i].b.cols, a->modules[i].b.quantised, &bytes_b);
        a->bytes += bytes_a + bytes_b;
    }
    if (o->n_used != o->file->n_entries)
        return LAM_RAISE(err, LAM_E_UNMATCHED, "%s: %zu of %zu tensors belong to no module", o->path,
                         o->file->n_entries - o->n_used, o->file->n_entries);
    a->n_tensors = o->n_used;
    return LAM_OK;
}

static lam_code open_from(struct opening *o, bool waive, lam_error *err)
{
    if (o->file->kind != LAM_SLM_ADAPTER) return LAM_RAISE(err, LAM_E_FORMAT, "%s is a base, not an adapter", o->path);
    const char *method = json_string_value(json_object_get(o->file->metadata, "method"));
    const char *name = json_string_value(json_object_get(o->file->metadata, "name"));
    if (!method || strcmp(method, "lora") != 0)
        return LAM_RAISE(err, LAM_E_METHOD, "%s: adapter method %s", o->path, method ? method : "missing");
    LAM_TRY(check_binding(o, waive, err));
    LAM_TRY(verify_pieces(o, err));
    o->adapter->name = lam_strdup(name ? name : lam_path_base(o->path));
    if (!o->adapter->name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", o->path);
    lam_clean_line(o->adapter->name);
    LAM_TRY(lam_adapter_digest(o->file, o->adapter->digest, err));
    return open_modules(o, err);
}

lam_code lam_adapter_open(const char *path, const struct lam_base_targets *base, bool waive, struct lam_adapter **out, lam_error *err)
{
    *out = NULL;
    struct opening o = {.path = path, .base = base, .adapter = lam_alloc(1, sizeof *o.adapter)};
    if (!o.adapter) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_code code = lam_slm_open(path, &o.file, err);
    if (code == LAM_OK) code = open_from(&o, waive, err);
    lam_slm_close(o.file);
    if (code == LAM_OK) *out = o.adapter;
    else lam_adapter_free(o.adapter);
    return code;
}

void lam_adapter_free(struct lam_adapter *a)
{
    if (!a) return;
    for (size_t i = 0; i < a->n_modules; i++) {
        lam_factor_release(&a->modules[i].a);
        lam_factor_release(&a->modules[i].b);
        lam_free(a->modules[i].embedding_a);
        lam_free(a->modules[i].bias);
    }
    lam_free(a->modules);
    lam_free(a->name);
    lam_free(a);
}
