/* Writing what an adapter import has checked. */
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/files.h"
#include "import/adapter_import.h"
#include "import/progress.h"
#include "model/identity.h"
#include "tensor/decode.h"

#include <stdio.h>
#include <string.h>

/* One tensor of the file to write. */
struct written {
    const struct lam_import_module *module;
    enum lam_adapter_part part;
    size_t row_bytes;
};

struct adapter_writer {
    const struct lam_adapter_import *import;
    struct written *tensors; /* owned */
    size_t n_tensors;
    struct lam_slm_out *out;
    struct lam_progress progress;
};

/* See lam_slm_fill_fn. */
static lam_code fill(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    struct adapter_writer *w = context;
    const struct written *t = &w->tensors[index];
    size_t first = (size_t)(offset / t->row_bytes);
    for (size_t i = 0; i < bytes / t->row_bytes; i++) lam_part_row(w->import, t->module, t->part, first + i, buffer + i * t->row_bytes);
    return lam_progress_add(&w->progress, bytes, err);
}

static lam_code declare(struct adapter_writer *w, const struct lam_import_module *m, enum lam_adapter_part part, lam_error *err)
{
    struct written *t = &w->tensors[w->n_tensors++];
    enum lam_dtype dtype = lam_part_dtype(w->import, m, part);
    uint32_t rows, cols;
    char name[96];
    *t = (struct written){.module = m, .part = part};
    lam_part_size(m, part, &rows, &cols);
    lam_dtype_row_bytes(dtype, cols, &t->row_bytes);
    lam_part_tensor(m->name, part, name);
    bool matrix = part == LAM_PART_A || part == LAM_PART_B || (part == LAM_PART_WEIGHT && m->kind != LAM_MODULE_NORM);
    struct lam_slm_decl decl = {.name = name, .dtype = dtype, .n_dims = matrix ? 2 : 1, .dims = {cols, rows, 1, 1},
                                .layout = LAM_LAYOUT_PLAIN, .layer = (uint16_t)m->layer, .role = (uint32_t)m->role | (uint32_t)part << 16};
    w->progress.total += (uint64_t)rows * t->row_bytes;
    return lam_slm_out_tensor(w->out, &decl, err);
}

static lam_code declare_all(struct adapter_writer *w, lam_error *err)
{
    const struct lam_adapter_import *import = w->import;
    for (size_t i = 0; i < import->n_modules; i++)
        for (int part = 0; part < LAM_N_PARTS; part++)
            if (import->modules[i].parts[part].tensor)
                LAM_TRY(declare(w, &import->modules[i], (enum lam_adapter_part)part, err));
    return LAM_OK;
}

static json_t *module_json(const struct lam_import_module *m)
{
    if (!lam_adapter_has_factor(m)) return json_pack("{s:s}", "name", m->name);
    return json_pack("{s:s,s:I,s:f,s:s}", "name", m->name, "rank", (json_int_t)m->rank, "alpha", m->alpha, "scaling",
                     m->rank_stabilised ? "alpha/sqrt(r)" : "alpha/r");
}

static json_t *modules_json(const struct lam_adapter_import *import)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < import->n_modules; i++) {
        if (!lam_adapter_is_changed(import->by_name[i])) continue;
        if (json_array_append_new(list, module_json(import->by_name[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static bool add_activation(const struct lam_adapter_import *import, json_t *metadata)
{
    if (import->n_invocation == 0) return true;
    json_t *tokens = json_array();
    bool ok = tokens != NULL;
    for (size_t i = 0; ok && i < import->n_invocation; i++) ok = json_array_append_new(tokens, json_integer(import->invocation[i])) == 0;
    json_t *activation = ok ? json_pack("{s:O}", "invocation", tokens) : NULL;
    json_decref(tokens);
    return activation && json_object_set_new(metadata, "activation", activation) == 0;
}

static lam_code make_metadata(const struct lam_adapter_import *import, json_t **out, lam_error *err)
{
    char base[LAM_DIGEST_TEXT];
    LAM_TRY(lam_base_digest(import->base, base, err));
    *out = json_pack("{s:s,s:s,s:[s],s:o,s:O}", "method", import->method, "name", import->name, "bases", base, "modules",
                     modules_json(import), "source", import->source);
    return *out && add_activation(import, *out) ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's metadata");
}

static bool is_all(const struct lam_part *p, float wanted)
{
    size_t item = 0;
    lam_dtype_row_bytes(p->dtype, 1, &item);
    for (uint64_t i = 0; i < p->rows * p->cols; i++) {
        float value;
        lam_decode_row(p->dtype, p->data + i * item, 1, &value);
        if (value != wanted) return false;
    }
    return true;
}

/* A B of zeros, an l of ones. DoRA with a B of zeros still scales each row to its magnitude. */
static bool has_no_effect(const struct lam_import_module *m)
{
    const struct lam_part *parts = m->parts;
    if (parts[LAM_PART_BIAS].tensor || parts[LAM_PART_WEIGHT].tensor || parts[LAM_PART_MAGNITUDE].tensor || parts[LAM_PART_VALUES].tensor)
        return false;
    if (parts[LAM_PART_B_BIAS].tensor && !is_all(&parts[LAM_PART_B_BIAS], 0.0f)) return false;
    if (parts[LAM_PART_B].tensor) return is_all(&parts[LAM_PART_B], 0.0f);
    return is_all(&parts[parts[LAM_PART_IA3_INPUT].tensor ? LAM_PART_IA3_INPUT : LAM_PART_IA3_OUTPUT], 1.0f);
}

static void count(struct lam_adapter_import *import)
{
    struct lam_adapter_report *r = import->report;
    r->n_applied = import->n_copies;
    for (size_t i = 0; i < import->n_modules; i++) {
        const struct lam_import_module *m = &import->modules[i];
        if (!lam_adapter_is_changed(m)) continue;
        r->n_modules++;
        for (int part = 0; part < LAM_N_PARTS; part++) r->n_applied += m->parts[part].tensor && !m->parts[part].shared;
        r->n_no_effect += has_no_effect(m);
    }
    r->n_tensors = r->n_applied;
}

static lam_code write_all(struct adapter_writer *w, json_t **metadata, const char *out_path, const struct lam_import_options *options,
                          lam_error *err)
{
    uint64_t bytes;
    LAM_TRY(lam_slm_out_new(LAM_SLM_ADAPTER, 0, &w->out, err));
    w->tensors = lam_alloc(LAM_N_PARTS * w->import->n_modules, sizeof *w->tensors);
    if (!w->tensors) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu modules", w->import->n_modules);
    LAM_TRY(declare_all(w, err));
    LAM_TRY(make_metadata(w->import, metadata, err));
    lam_slm_out_metadata(w->out, *metadata);
    LAM_TRY(lam_slm_out_size(w->out, &bytes, err));
    LAM_TRY(lam_check_room(out_path, bytes, options, err));
    LAM_TRY(lam_progress_add(&w->progress, 0, err));
    return lam_slm_out_write(w->out, out_path, fill, w, NULL, err);
}

lam_code lam_adapter_tell_digest(const char *path, struct lam_adapter_report *report, lam_error *err)
{
    struct lam_slm *s = NULL;
    lam_code code = lam_slm_open(path, &s, err);
    if (code == LAM_OK) code = lam_adapter_digest(s, report->digest, err);
    lam_slm_close(s);
    if (code != LAM_OK) lam_remove_file(path, NULL);
    return code;
}

lam_code lam_adapter_write(struct lam_adapter_import *import, const char *out_path, const struct lam_import_options *options,
                           lam_error *err)
{
    struct adapter_writer w = {.import = import, .progress = {.options = options, .stage = "import"}};
    json_t *metadata = NULL;
    lam_code code = write_all(&w, &metadata, out_path, options, err);
    lam_slm_out_free(w.out);
    lam_free(w.tensors);
    json_decref(metadata);
    if (code != LAM_OK) return code;
    count(import);
    return lam_adapter_tell_digest(out_path, import->report, err);
}
