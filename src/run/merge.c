/* Writing the new base. */
#include "run/merge.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/json.h"
#include "model/identity.h"
#include "tensor/encode.h"
#include "tensor/tiles.h"

#include <string.h>

static const struct lam_slm *file_of(const struct lam_merging *m) { return m->composition->base->model->file; }

static lam_code declare(struct lam_merging *m, struct lam_slm_out *out, const struct lam_merge_tensor *t, lam_error *err)
{
    bool matrix = lam_role_is_matrix(t->role);
    size_t bytes = 0;
    struct lam_slm_decl decl = {.name = t->name, .dtype = t->dtype, .n_dims = matrix ? 2 : 1, .dims = {t->cols, t->rows, 1, 1},
                                .layout = matrix ? LAM_LAYOUT_TILE16 : LAM_LAYOUT_PLAIN, .layer = (uint16_t)t->layer, .role = (uint32_t)t->role};
    if (t->entry && !t->slot && !t->values) {
        decl.n_dims = t->entry->n_dims;
        decl.residual_values = lam_slm_residual_values(file_of(m), t->entry);
    }
    if (matrix) lam_tiled_bytes(t->dtype, t->rows, t->cols, &bytes);
    else lam_dtype_row_bytes(t->dtype, t->cols, &bytes);
    m->progress.total += bytes;
    return lam_slm_out_tensor(out, &decl, err);
}

/* See lam_slm_fill_fn. */
static lam_code fill(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    struct lam_merging *m = context;
    struct lam_merge_tensor *t = &m->tensors[index];
    size_t stride = 0;
    if (t->values) {
        lam_encode_row(LAM_F32, t->values, t->cols, buffer);
    } else if (t->slot) {
        lam_tile_stride(t->dtype, t->cols, &stride);
        LAM_TRY(lam_merge_tiles(m, t, (size_t)(offset / stride), bytes / stride, buffer, err));
    } else {
        memcpy(buffer, lam_slm_tensor_data(file_of(m), t->entry) + offset, bytes);
    }
    LAM_TRY(lam_progress_add(&m->progress, bytes, err));
    return m->progress.done == m->progress.total ? lam_mapping_check(&file_of(m)->file, err) : LAM_OK;
}

/* See lam_slm_residual_fn. The parts of a residual lie one after the other, starts first. */
static lam_code residual(void *context, size_t index, const uint8_t **bytes, lam_error *err)
{
    const struct lam_merging *m = context;
    struct lam_residual r;
    LAM_TRY(lam_slm_residual(file_of(m), m->tensors[index].entry, &r, err));
    *bytes = (const uint8_t *)r.starts;
    return LAM_OK;
}

static json_t *adapters_json(const struct lam_composition *c)
{
    json_t *list = json_array();
    int failed = 0;
    for (size_t i = 0; i < c->n_adapters; i++)
        failed |= json_array_append_new(list, json_pack("{s:s,s:s,s:f,s:s}", "digest", c->adapters[i]->staged->digest, "name",
                                                        c->adapters[i]->staged->name, "weight", c->weights[i], "rule",
                                                        c->rules[i] == LAM_RULE_REPLACE ? "replace" : "add"));
    return lam_json_whole(list, failed);
}

/* A composition's own template becomes the new base's, and has a key in an export to GGUF even if the base's file had none. */
static int put_template(json_t *metadata, const char *text)
{
    json_t *keys = json_object_get(json_object_get(metadata, "gguf"), "keys"), *key;
    size_t i;
    bool named = !keys;
    json_array_foreach(keys, i, key) {
        const char *from = json_string_value(json_object_get(key, "from"));
        named |= from && strcmp(from, "chat_template") == 0;
    }
    int failed = named ? 0 : json_array_append_new(keys, json_pack("{s:s,s:s}", "key", "tokenizer.chat_template", "from", "chat_template"));
    return failed | json_object_set_new(metadata, "chat_template", json_string(text));
}

/* Where it came from, for people; what the head is; and the names that an export to GGUF goes by. */
static lam_code make_metadata(const struct lam_merging *m, json_t **out, lam_error *err)
{
    const struct lam_composition *c = m->composition;
    json_t *copy = *out = json_deep_copy(file_of(m)->metadata), *names = json_object_get(json_object_get(copy, "gguf"), "tensors");
    int failed = json_object_get(copy, "source") ? 0 : json_object_set_new(copy, "source", json_object());
    failed |= json_object_set_new(json_object_get(copy, "source"), "merged",
                                  json_pack("{s:s,s:s,s:o}", "base", c->base->model->base_digest, "composition", c->id, "adapters",
                                            adapters_json(c)));
    failed |= json_object_set_new(json_object_get(copy, "config"), "tied", json_boolean(m->tied));
    if (c->template_text) failed |= put_template(copy, c->template_text);
    for (size_t i = 0; names && i < m->n; i++)
        if (!lam_slm_find(file_of(m), m->tensors[i].name)) failed |= json_array_append_new(names, json_string(m->tensors[i].name));
    return failed ? LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata") : LAM_OK;
}

static lam_code write_slm(struct lam_merging *m, struct lam_slm_out *out, const json_t *metadata, const char *path, lam_error *err)
{
    uint64_t bytes;
    for (size_t i = 0; i < m->n; i++) LAM_TRY(declare(m, out, &m->tensors[i], err));
    lam_slm_out_metadata(out, metadata);
    lam_slm_out_vocab(out, file_of(m)->vocab, file_of(m)->vocab_bytes);
    lam_slm_out_residuals(out, residual);
    LAM_TRY(lam_slm_out_size(out, &bytes, err));
    LAM_TRY(lam_check_room(path, bytes, NULL, err));
    LAM_TRY(lam_progress_add(&m->progress, 0, err));
    return lam_slm_out_write(out, path, fill, m, NULL, err);
}

static lam_code write_base(struct lam_merging *m, const char *path, lam_error *err)
{
    struct lam_slm_out *out = NULL;
    json_t *metadata = NULL;
    lam_code code = make_metadata(m, &metadata, err);
    if (code == LAM_OK) code = lam_slm_out_new(LAM_SLM_BASE, m->tied ? LAM_SLM_TIED : 0, &out, err);
    if (code == LAM_OK) code = write_slm(m, out, metadata, path, err);
    lam_slm_out_free(out);
    json_decref(metadata);
    return code;
}

/* Opens what was written, as anybody will, and takes its digest. */
static lam_code check_written(struct lam_merging *m, const char *path, lam_error *err)
{
    struct lam_model *model;
    LAM_TRY(lam_model_open(path, NULL, &model, err));
    memcpy(m->base_digest, model->base_digest, sizeof m->base_digest);
    lam_model_close(model);
    return LAM_OK;
}

static bool is_gguf(const char *path)
{
    size_t len = strlen(path);
    return len >= 5 && strcmp(path + len - 5, ".gguf") == 0;
}

/* GGUF by way of a .slm beside it. */
static lam_code write_gguf(struct lam_merging *m, const char *path, lam_error *err)
{
    struct lam_str part = {0};
    if (!lam_str_printf(&part, "%s.merging.slm", path)) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s", path);
    bool free = !lam_path_exists(part.data);
    lam_code code = free ? write_base(m, part.data, err)
                         : LAM_RAISE(err, LAM_E_CONFLICT, "%s is in the way; remove it if it is what a killed merge left", part.data);
    if (code == LAM_OK) code = check_written(m, part.data, err);
    if (code == LAM_OK) code = lam_export_gguf(part.data, path, &m->progress_options, err);
    if (free) lam_remove_file(part.data, NULL);
    lam_str_release(&part);
    return code;
}

static lam_code check(const struct lam_merging *m, lam_error *err)
{
    const struct lam_composition *c = m->composition;
    const char *dtype = m->options->dtype;
    bool known = !dtype;
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "q4_64"};
    for (size_t i = 0; !known && i < sizeof types / sizeof *types; i++) known = strcmp(dtype, types[i]) == 0;
    if (!known)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "type \"%.40s\": f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 and q4_64 are possible", dtype);
    if (c->n_activated)
        return LAM_RAISE(err, LAM_E_MERGE_ACTIVATED, "adapter %s is activated by its invocation: rows before it are the base's, which one set of "
                         "weights cannot be", lam_composition_activated(c, 0)->name);
    for (size_t i = 0; i < c->base->model->targets.n_items; i++)
        if (c->n_adapters && !(c->materialize && c->materialize[i]))
            return LAM_RAISE(err, LAM_E_ARGUMENT, "merging takes a composition of the policy materialize in every module");
    return LAM_OK;
}

static lam_code merge(struct lam_merging *m, const char *path, lam_error *err)
{
    LAM_TRY(check(m, err));
    LAM_TRY(lam_base_verify(m->composition->base, NULL, err));
    struct lam_pool *pool = m->composition->base->engine->pool;
    lam_pool_lock(pool);
    lam_code code = lam_composition_overlay(m->composition, lam_composition_all_active(m->composition), &m->overlay, err);
    lam_pool_unlock(pool);
    LAM_TRY(code);
    LAM_TRY(lam_merge_list(m, err));
    if (is_gguf(path)) return write_gguf(m, path, err);
    LAM_TRY(write_base(m, path, err));
    return check_written(m, path, err);
}

lam_code lam_merge(lam_composition *composition, const char *out_path, const lam_merge_options *options, char **report, lam_error *err)
{
    const lam_merge_options defaults = {0};
    struct lam_merging m = {.composition = composition, .options = options ? options : &defaults};
    struct lam_str text = {0};
    m.progress_options = (struct lam_import_options){.progress = m.options->progress, .progress_context = m.options->progress_context};
    m.progress = (struct lam_progress){.options = &m.progress_options, .stage = "merge"};
    if (report) *report = NULL;
    lam_code code = merge(&m, out_path, err);
    json_t *json = code == LAM_OK && report ? lam_merge_report(&m) : NULL;
    if (code == LAM_OK && report) code = json ? lam_json_canonical(json, &text, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "the report");
    if (code == LAM_OK && report) *report = text.data;
    else lam_str_release(&text);
    if (code != LAM_OK && m.base_digest[0]) lam_remove_file(out_path, NULL);
    json_decref(json);
    for (size_t i = 0; i < m.n; i++) lam_free(m.tensors[i].values);
    lam_free(m.tensors);
    return code;
}
