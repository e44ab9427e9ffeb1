#include "adapter/opening.h"
#include "adapter/staged.h"
#include "base/alloc.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define MAX_INVOCATION 1024

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

static lam_code check_binding(const struct lam_opening *o, bool waive, lam_error *err)
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
        return LAM_RAISE(err, LAM_E_UNBOUND, "%s is bound to no base: import it for this base, or waive that", o->path);
    return LAM_RAISE(err, LAM_E_WRONG_BASE, "%s is bound to base %s, this base is %s", o->path,
                     json_string_value(json_array_get(bases, 0)), o->base->base_digest);
}

static lam_code verify_pieces(const struct lam_opening *o, lam_error *err)
{
    for (size_t i = 0; i < o->file->n_pieces; i++) LAM_TRY(lam_slm_verify_piece(o->file, i, err));
    return LAM_OK;
}

/* What a module is follows from its tensors; it is one thing. */
static lam_code open_methods(struct lam_opening *o, const json_t *item, struct lam_module *m, lam_error *err)
{
    enum lam_method methods[4] = {0};
    bool factors = json_object_get(item, "rank") != NULL;
    if (factors) {
        LAM_TRY(lam_lora_open(o, item, m, err));
        LAM_TRY(lam_dora_open(o, m, err));
    } else if (json_object_size(item) != 1) {
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "%s: module %s has unknown fields", o->path, m->target->name);
    }
    methods[0] = m->method, m->method = LAM_METHOD_NONE;
    LAM_TRY(lam_ia3_open(o, m, err));
    methods[1] = m->method, m->method = LAM_METHOD_NONE;
    LAM_TRY(lam_sparse_open(o, m, err));
    methods[2] = m->method, m->method = LAM_METHOD_NONE;
    LAM_TRY(lam_dense_open(o, m, err));
    methods[3] = m->method, m->method = LAM_METHOD_NONE;
    for (size_t i = 0; i < 4; i++) {
        if (!methods[i]) continue;
        if (m->method) return LAM_RAISE(err, LAM_E_CONFLICT, "%s: %s is changed in two ways", o->path, m->target->name);
        m->method = methods[i];
    }
    LAM_TRY(lam_replaced_open(o, m, err));
    if (m->method || m->weight.tiles || m->vector || m->bias) return LAM_OK;
    return LAM_RAISE(err, LAM_E_MISSING_TENSOR, "%s: module %s has no tensor", o->path, m->target->name);
}

static lam_code open_module(struct lam_opening *o, const json_t *item, struct lam_module *m, lam_error *err)
{
    const char *name = NULL;
    size_t name_len = 0;
    json_error_t problem;
    if (json_unpack_ex((json_t *)item, &problem, 0, "{s:s%}", "name", &name, &name_len) != 0)
        return lam_json_refuse(&problem, o->path, err);
    m->target = lam_find_target(o->base, name, name_len);
    if (!m->target) return LAM_RAISE(err, LAM_E_UNMATCHED, "%s: the base has no module %s", o->path, name);
    return open_methods(o, item, m, err);
}

static lam_code open_modules(struct lam_opening *o, lam_error *err)
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
        int order = i ? strcmp(a->modules[i - 1].target->name, a->modules[i].target->name) : -1;
        if (order == 0) return LAM_RAISE(err, LAM_E_DUPLICATE, "%s: module %s occurs twice", o->path, a->modules[i].target->name);
        if (order > 0) return LAM_RAISE(err, LAM_E_ORDER, "%s: module %s is out of order", o->path, a->modules[i].target->name);
    }
    if (o->n_used != o->file->n_entries)
        return LAM_RAISE(err, LAM_E_UNMATCHED, "%s: %zu of %zu tensors belong to no module", o->path,
                         o->file->n_entries - o->n_used, o->file->n_entries);
    a->n_tensors = o->n_used;
    a->bytes = o->bytes;
    return LAM_OK;
}

/* "activation": { "invocation": [token, …] } */
static lam_code open_activation(struct lam_opening *o, lam_error *err)
{
    const json_t *activation = json_object_get(o->file->metadata, "activation"), *list = json_object_get(activation, "invocation");
    size_t n = json_array_size(list);
    if (!activation) return LAM_OK;
    if (n == 0 || n > MAX_INVOCATION || json_object_size(activation) != 1)
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: an activation is an invocation of 1 to %d tokens", o->path, MAX_INVOCATION);
    o->adapter->invocation = lam_alloc(n, sizeof *o->adapter->invocation);
    if (!o->adapter->invocation) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", o->path);
    o->adapter->n_invocation = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *token = json_array_get(list, i);
        if (!json_is_integer(token) || json_integer_value(token) < 0 || json_integer_value(token) > INT32_MAX)
            return LAM_RAISE(err, LAM_E_TOKEN, "%s: token %zu of the invocation is no token", o->path, i);
        o->adapter->invocation[i] = (uint32_t)json_integer_value(token);
    }
    return LAM_OK;
}

/* Only what this reader knows: another member might change what the adapter does. */
static lam_code check_members(const struct lam_opening *o, lam_error *err)
{
    static const char *const known[] = {"method", "name", "bases", "modules", "activation", "source"};
    const char *key;
    json_t *value;
    json_object_foreach(o->file->metadata, key, value) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(key, known[i]) != 0) i++;
        if (i == sizeof known / sizeof *known) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "%s: metadata has an unknown field %s", o->path, key);
    }
    return LAM_OK;
}

static lam_code check_method(const struct lam_opening *o, lam_error *err)
{
    static const char *const known[] = {"lora", "dora", "ia3", "sparse", "dense"};
    const char *method = json_string_value(json_object_get(o->file->metadata, "method"));
    for (size_t i = 0; method && i < sizeof known / sizeof *known; i++)
        if (strcmp(method, known[i]) == 0) return LAM_OK;
    return LAM_RAISE(err, LAM_E_METHOD, "%s: adapter method %s", o->path, method ? method : "missing");
}

static lam_code open_from(struct lam_opening *o, bool waive, lam_error *err)
{
    if (o->file->kind != LAM_SLM_ADAPTER) return LAM_RAISE(err, LAM_E_FORMAT, "%s is a base, not an adapter", o->path);
    const char *name = json_string_value(json_object_get(o->file->metadata, "name"));
    LAM_TRY(check_members(o, err));
    LAM_TRY(check_method(o, err));
    LAM_TRY(check_binding(o, waive, err));
    LAM_TRY(verify_pieces(o, err));
    o->adapter->name = lam_strdup(name ? name : lam_path_base(o->path));
    o->adapter->path = lam_strdup(o->path);
    memcpy(o->adapter->file_root, o->file->file_root, sizeof o->adapter->file_root);
    if (!o->adapter->name || !o->adapter->path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", o->path);
    lam_clean_line(o->adapter->name);
    LAM_TRY(lam_adapter_digest(o->file, o->adapter->digest, err));
    LAM_TRY(open_activation(o, err));
    LAM_TRY(open_modules(o, err));
    struct lam_inspection staged;
    lam_adapter_inspect(o->adapter, &staged);
    o->adapter->seal = staged.seal;
    return LAM_OK;
}

lam_code lam_adapter_open(const char *path, const struct lam_base_targets *base, bool waive, struct lam_adapter **out, lam_error *err)
{
    *out = NULL;
    struct lam_opening o = {.path = path, .base = base, .budget = base->budget, .adapter = lam_alloc(1, sizeof *o.adapter)};
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
        struct lam_module *m = &a->modules[i];
        lam_lora_release(&m->lora);
        lam_dora_release(&m->dora);
        lam_sparse_release(&m->sparse);
        lam_budget_free((uint8_t *)m->dense.tiles);
        lam_budget_free((uint8_t *)m->weight.tiles);
        lam_budget_free(m->ia3);
        lam_budget_free(m->vector);
        lam_budget_free(m->bias);
    }
    lam_free(a->invocation);
    lam_free(a->path);
    lam_free(a->modules);
    lam_free(a->name);
    lam_free(a);
}

lam_code lam_adapter_reads_base(const char *path, bool *reads, lam_error *err)
{
    struct lam_slm *file;
    *reads = false;
    LAM_TRY(lam_slm_open(path, &file, err));
    for (size_t i = 0; i < file->n_entries; i++) *reads |= file->entries[i].role >> 16 == LAM_PART_MAGNITUDE;
    lam_slm_close(file);
    return LAM_OK;
}

lam_code lam_adapter_reopen(const struct lam_adapter *a, struct lam_slm **out, lam_error *err)
{
    LAM_TRY(lam_slm_open(a->path, out, err));
    lam_code code = memcmp((*out)->file_root, a->file_root, sizeof a->file_root) == 0
                        ? LAM_OK : LAM_RAISE(err, LAM_E_CHANGED, "%s is no longer the adapter that was loaded", a->path);
    for (size_t i = 0; code == LAM_OK && i < (*out)->n_pieces; i++) code = lam_slm_verify_piece(*out, i, err);
    if (code == LAM_OK) return LAM_OK;
    lam_slm_close(*out);
    *out = NULL;
    return code;
}
