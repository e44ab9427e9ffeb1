/* An adapter .slm that is bound to no base, bound to one: a copy of it, checked against that base as when it is loaded. */
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "import/adapter_import.h"
#include "import/progress.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

struct binding {
    struct lam_slm *file;
    const struct lam_slm_entry **order; /* [file->n_entries], as they lie in the file; owned */
    struct lam_slm_out *out;
    json_t *metadata;                   /* owned */
    struct lam_progress progress;
};

static int by_offset(const void *a, const void *b)
{
    const struct lam_slm_entry *l = *(const struct lam_slm_entry *const *)a, *r = *(const struct lam_slm_entry *const *)b;
    return (l->offset > r->offset) - (l->offset < r->offset);
}

/* See lam_slm_fill_fn. */
static lam_code fill(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    struct binding *b = context;
    memcpy(buffer, lam_slm_tensor_data(b->file, b->order[index]) + offset, bytes);
    return lam_progress_add(&b->progress, bytes, err);
}

static lam_code declare(struct binding *b, const struct lam_slm_entry *e, lam_error *err)
{
    char name[LAM_SLM_NAME_MAX + 1];
    memcpy(name, b->file->names + e->name_offset, e->name_len);
    name[e->name_len] = 0;
    struct lam_slm_decl decl = {.name = name, .dtype = (enum lam_dtype)e->dtype, .n_dims = e->n_dims, .layout = (enum lam_slm_layout)e->layout,
                                .layer = e->layer, .role = e->role};
    memcpy(decl.dims, e->dims, sizeof decl.dims);
    b->progress.total += e->bytes;
    return lam_slm_out_tensor(b->out, &decl, err);
}

static lam_code make_metadata(struct binding *b, const char *base_digest, lam_error *err)
{
    json_t *bases = json_pack("[s]", base_digest);
    b->metadata = json_copy(b->file->metadata);
    if (b->metadata && bases && json_object_set_new(b->metadata, "bases", bases) == 0) return LAM_OK;
    return LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's metadata");
}

static lam_code write_copy(struct binding *b, const char *base_digest, const char *out_path, const struct lam_import_options *options,
                           lam_error *err)
{
    uint64_t bytes;
    size_t n = b->file->n_entries;
    LAM_TRY(lam_slm_out_new(LAM_SLM_ADAPTER, b->file->flags, &b->out, err));
    b->order = lam_alloc(n, sizeof *b->order);
    if (!b->order) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", n);
    for (size_t i = 0; i < n; i++) b->order[i] = &b->file->entries[i];
    qsort(b->order, n, sizeof *b->order, by_offset);
    for (size_t i = 0; i < n; i++) LAM_TRY(declare(b, b->order[i], err));
    LAM_TRY(make_metadata(b, base_digest, err));
    lam_slm_out_metadata(b->out, b->metadata);
    LAM_TRY(lam_slm_out_size(b->out, &bytes, err));
    LAM_TRY(lam_check_room(out_path, bytes, options, err));
    LAM_TRY(lam_progress_add(&b->progress, 0, err));
    return lam_slm_out_write(b->out, out_path, fill, b, NULL, err);
}

static lam_code check_unbound(const char *path, const struct lam_slm *file, const struct lam_adapter *a, const char *base_digest, lam_error *err)
{
    const json_t *bases = json_object_get(file->metadata, "bases");
    if (json_array_size(bases) == 0) return LAM_OK;
    if (a->bound) return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is bound to this base already", path);
    return LAM_RAISE(err, LAM_E_WRONG_BASE, "%s is bound to base %s and stays so, this base is %s", path,
                     json_string_value(json_array_get(bases, 0)), base_digest);
}

static void count(const struct lam_adapter *a, struct lam_adapter_report *report)
{
    report->n_tensors = report->n_applied = a->n_tensors;
    report->n_modules = a->n_modules;
    for (size_t i = 0; i < a->n_modules; i++) report->n_no_effect += a->modules[i].no_effect;
}

lam_code lam_adapter_bind(const char *path, const char *base_path, const char *out_path, const struct lam_import_options *options,
                          struct lam_adapter_report *report, lam_error *err)
{
    struct binding b = {.progress = {.options = options, .stage = "import"}};
    struct lam_model *model;
    struct lam_adapter *a = NULL;
    LAM_TRY(lam_model_open(base_path, NULL, &model, err));
    lam_code code = lam_adapter_open(path, &model->targets, true, &a, err);
    if (code == LAM_OK) code = lam_adapter_reopen(a, &b.file, err);
    if (code == LAM_OK) code = check_unbound(path, b.file, a, model->base_digest, err);
    if (code == LAM_OK) code = write_copy(&b, model->base_digest, out_path, options, err);
    if (code == LAM_OK) count(a, report);
    lam_slm_out_free(b.out);
    lam_free(b.order);
    json_decref(b.metadata);
    lam_slm_close(b.file);
    lam_adapter_free(a);
    lam_model_close(model);
    return code == LAM_OK ? lam_adapter_tell_digest(out_path, report, err) : code;
}
