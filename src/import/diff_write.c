/* Writing a difference as an adapter, and telling what it holds. */
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/json.h"
#include "import/diff.h"
#include "base/os.h"
#include "base/utf8.h"
#include "tensor/encode.h"

#include <stdlib.h>
#include <string.h>

/* One tensor of the file to write. */
struct written {
    const struct lam_diff_item *item;
    enum lam_adapter_part part;
    enum lam_dtype dtype;
    uint32_t rows, cols;
};

struct diff_writer {
    struct lam_diff *diff;
    struct written *tensors; /* owned */
    size_t n_tensors;
    struct lam_slm_out *out;
};

static const char *method_name(lam_diff_method method)
{
    return method == LAM_DIFF_SPARSE ? "sparse" : method == LAM_DIFF_DENSE ? "dense" : "lora";
}

static bool is_written(const struct lam_diff_item *item) { return item->part != LAM_PART_DELTA || item->n_kept > 0; }

static lam_code declare(struct diff_writer *w, const struct lam_diff_item *item, enum lam_adapter_part part, enum lam_dtype dtype, uint64_t rows,
                        uint64_t cols, lam_error *err)
{
    char name[96];
    size_t bytes = 0;
    bool vector = part == LAM_PART_STARTS || part == LAM_PART_COLUMNS || part == LAM_PART_VALUES || item->vector;
    if (rows > UINT32_MAX || cols > (part == LAM_PART_DELTA ? UINT32_MAX : INT32_MAX))
        return LAM_RAISE(err, LAM_E_LIMIT, "%s: %llu values, more than an index holds: lower the density", item->name, (unsigned long long)cols);
    lam_part_tensor(item->name, part, name);
    struct lam_slm_decl decl = {.name = name, .dtype = dtype, .n_dims = vector ? 1 : 2, .dims = {(uint32_t)cols, (uint32_t)rows, 1, 1},
                                .layout = LAM_LAYOUT_PLAIN, .layer = (uint16_t)item->layer, .role = (uint32_t)item->role | (uint32_t)part << 16};
    w->tensors[w->n_tensors++] = (struct written){item, part, dtype, (uint32_t)rows, (uint32_t)cols};
    lam_dtype_row_bytes(dtype, cols, &bytes);
    w->diff->progress.total += (uint64_t)bytes * rows;
    return lam_slm_out_tensor(w->out, &decl, err);
}

/* A of a matrix is [rank, cols]; of the embedding [n_vocab, rank], and B [d_model, rank]. */
static lam_code declare_factors(struct diff_writer *w, const struct lam_diff_item *item, enum lam_dtype dtype, lam_error *err)
{
    uint32_t rows = item->delta.rows, cols = item->delta.cols, rank = item->rank;
    bool embedding = item->role == LAM_ROLE_EMBEDDING;
    LAM_TRY(declare(w, item, LAM_PART_A, dtype, embedding ? rows : rank, embedding ? rank : cols, err));
    return declare(w, item, LAM_PART_B, dtype, embedding ? cols : rows, rank, err);
}

static lam_code declare_item(struct diff_writer *w, const struct lam_diff_item *item, lam_error *err)
{
    enum lam_dtype dtype = w->diff->dtype;
    if (!is_written(item)) return LAM_OK;
    if (item->part != LAM_PART_DELTA) return declare(w, item, item->part, LAM_F32, 1, item->delta.cols, err);
    if (w->diff->options->method == LAM_DIFF_LORA) return declare_factors(w, item, dtype, err);
    if (w->diff->options->method == LAM_DIFF_DENSE) return declare(w, item, LAM_PART_DELTA, dtype, item->delta.rows, item->delta.cols, err);
    LAM_TRY(declare(w, item, LAM_PART_STARTS, LAM_I32, 1, (uint64_t)item->delta.rows + 1, err));
    LAM_TRY(declare(w, item, LAM_PART_COLUMNS, LAM_I32, 1, item->n_kept, err));
    return declare(w, item, LAM_PART_VALUES, dtype, 1, item->n_kept, err);
}

/* ---- bytes ---- */

struct filling {
    const struct written *tensor;
    uint8_t *out;
    uint32_t first;  /* row of the first one in out */
    uint64_t n;      /* values so far */
};

/* See lam_delta_fn: rows of a dense delta, as they are kept. */
static void fill_dense(void *context, uint32_t row, const float *values)
{
    struct filling *f = context;
    size_t bytes = 0;
    lam_dtype_row_bytes(f->tensor->dtype, f->tensor->cols, &bytes);
    lam_encode_row(f->tensor->dtype, values, f->tensor->cols, f->out + (row - f->first) * bytes);
}

/* The same for the parts of a sparse delta. */
static void fill_sparse(void *context, uint32_t row, const float *values)
{
    struct filling *f = context;
    size_t item = 0;
    lam_dtype_row_bytes(f->tensor->dtype, 1, &item);
    for (uint32_t k = 0; k < f->tensor->item->delta.cols; k++) {
        if (values[k] == 0.0f) continue;
        if (f->tensor->part == LAM_PART_COLUMNS) lam_store_u32(f->out + f->n * item, k);
        else if (f->tensor->part == LAM_PART_VALUES) lam_encode_row(f->tensor->dtype, &values[k], 1, f->out + f->n * item);
        f->n++;
    }
    if (f->tensor->part == LAM_PART_STARTS) lam_store_u32(f->out + ((size_t)row + 1) * item, (uint32_t)f->n);
}

/* Rows first … of a factor. */
static void fill_factor(const struct written *t, uint32_t first, size_t n, uint8_t *out)
{
    const struct lam_diff_item *item = t->item;
    bool embedding = item->role == LAM_ROLE_EMBEDDING, by_rank = t->part == LAM_PART_A && !embedding;
    const float *factor = (t->part == LAM_PART_A) == embedding ? item->left : item->right;
    size_t width = 0;
    lam_dtype_row_bytes(t->dtype, 1, &width);
    for (size_t r = 0; r < n; r++)
        for (size_t k = 0; k < t->cols; k++) {
            float value = by_rank ? factor[k * item->rank + first + r] : factor[(first + r) * item->rank + k];
            lam_encode_row(t->dtype, &value, 1, out + (r * t->cols + k) * width);
        }
}

/* See lam_slm_fill_fn. */
static lam_code fill(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    struct diff_writer *w = context;
    const struct written *t = &w->tensors[index];
    struct lam_diff *d = w->diff;
    size_t row_bytes = 0;
    lam_dtype_row_bytes(t->dtype, t->cols, &row_bytes);
    uint32_t first = (uint32_t)(offset / row_bytes), n = (uint32_t)(bytes / row_bytes), rows = t->item->delta.rows;
    struct filling f = {.tensor = t, .out = buffer, .first = first};
    if (t->part == LAM_PART_STARTS) lam_store_u32(buffer, 0);
    switch (t->part) {
    case LAM_PART_DELTA: LAM_TRY(lam_delta_each(&d->reader, &t->item->delta, true, first, first + n, fill_dense, &f, err)); break;
    case LAM_PART_STARTS:
    case LAM_PART_COLUMNS:
    case LAM_PART_VALUES: LAM_TRY(lam_delta_each(&d->reader, &t->item->delta, true, 0, rows, fill_sparse, &f, err)); break;
    case LAM_PART_A:
    case LAM_PART_B: fill_factor(t, first, n, buffer); break;
    default: lam_encode_row(LAM_F32, t->item->vector, t->cols, buffer); break;
    }
    LAM_TRY(lam_progress_add(&d->progress, bytes, err));
    if (d->progress.done < d->progress.total) return LAM_OK;
    LAM_TRY(lam_mapping_check(&d->base->file, err));
    return lam_mapping_check(&d->tuned->file, err);
}

/* ---- metadata ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct lam_diff_item *const *)a)->name, (*(const struct lam_diff_item *const *)b)->name);
}

/* One entry a module, which may have a matrix and a bias. */
static json_t *modules_json(const struct lam_diff *d)
{
    const struct lam_diff_item **sorted = lam_alloc(d->n_items, sizeof *sorted);
    json_t *list = json_array(), *last = NULL;
    size_t n = 0;
    int failed = !sorted || !list;
    for (size_t i = 0; sorted && i < d->n_items; i++)
        if (is_written(&d->items[i])) sorted[n++] = &d->items[i];
    if (sorted) qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 0; !failed && i < n; i++) {
        if (i == 0 || strcmp(sorted[i - 1]->name, sorted[i]->name) != 0) {
            last = json_pack("{s:s}", "name", sorted[i]->name);
            failed |= json_array_append_new(list, last);
        }
        if (!failed && sorted[i]->left) {
            failed |= json_object_set_new(last, "rank", json_integer(sorted[i]->rank));
            failed |= json_object_set_new(last, "alpha", json_real(sorted[i]->rank));
            failed |= json_object_set_new(last, "scaling", json_string("alpha/r"));
        }
    }
    lam_free(sorted);
    return lam_json_whole(list, failed);
}

json_t *lam_diff_settings(const struct lam_diff *d)
{
    const lam_diff_options *o = d->options;
    json_t *out = json_pack("{s:s,s:s,s:s,s:s}", "method", method_name(o->method), "base", d->base_digest, "tuned", d->tuned_digest, "dtype",
                            lam_dtype_info(d->dtype)->name);
    int failed = 0;
    if (o->method == LAM_DIFF_LORA) failed |= json_object_set_new(out, "rank", json_integer(o->rank));
    if (o->density > 0.0 && o->density < 1.0) failed |= json_object_set_new(out, "density", json_real(o->density));
    if (o->drop > 0.0) {
        failed |= json_object_set_new(out, "drop", json_real(o->drop));
        failed |= json_object_set_new(out, "seed", json_integer((json_int_t)o->seed));
        failed |= json_object_set_new(out, "rescale", json_real(1.0 / (1.0 - o->drop)));
    }
    return lam_json_whole(out, failed);
}

/* The output file's name without its ending. */
static json_t *name_json(const char *out_path)
{
    const char *name = lam_path_base(out_path), *dot = strrchr(name, '.');
    size_t len = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    len = lam_utf8_valid_prefix((const uint8_t *)name, len < 255 ? len : 255);
    return len ? json_stringn(name, len) : json_string("diff");
}

static lam_code make_metadata(const struct lam_diff *d, const char *out_path, json_t **out, lam_error *err)
{
    *out = json_pack("{s:s,s:o,s:[s],s:o,s:{s:o}}", "method", method_name(d->options->method), "name", name_json(out_path), "bases",
                     d->base_digest, "modules", modules_json(d), "source", "diff", lam_diff_settings(d));
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's metadata");
}

static lam_code write_all(struct diff_writer *w, json_t **metadata, const char *out_path, lam_error *err)
{
    struct lam_diff *d = w->diff;
    uint64_t bytes;
    w->tensors = lam_alloc(d->n_items, 3 * sizeof *w->tensors);
    if (!w->tensors) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", d->n_items);
    LAM_TRY(lam_slm_out_new(LAM_SLM_ADAPTER, 0, &w->out, err));
    d->progress = (struct lam_progress){.options = &d->progress_options, .stage = "write"};
    for (size_t i = 0; i < d->n_items; i++) LAM_TRY(declare_item(w, &d->items[i], err));
    if (w->n_tensors == 0) return LAM_RAISE(err, LAM_E_CONFLICT, "nothing is left of the differences: raise the density");
    LAM_TRY(make_metadata(d, out_path, metadata, err));
    lam_slm_out_metadata(w->out, *metadata);
    LAM_TRY(lam_slm_out_size(w->out, &bytes, err));
    LAM_TRY(lam_check_room(out_path, bytes, NULL, err));
    LAM_TRY(lam_progress_add(&d->progress, 0, err));
    return lam_slm_out_write(w->out, out_path, fill, w, NULL, err);
}

lam_code lam_diff_write(struct lam_diff *d, const char *out_path, lam_error *err)
{
    struct diff_writer w = {.diff = d};
    json_t *metadata = NULL;
    lam_code code = write_all(&w, &metadata, out_path, err);
    lam_slm_out_free(w.out);
    lam_free(w.tensors);
    json_decref(metadata);
    return code;
}

static json_t *item_json(const struct lam_diff_item *item)
{
    static const char *const parts[] = {[LAM_PART_DELTA] = "matrix", [LAM_PART_WEIGHT] = "norm", [LAM_PART_BIAS] = "bias"};
    json_t *out = json_pack("{s:s,s:s,s:I,s:I,s:f,s:f,s:f,s:f,s:I,s:I,s:f}", "module", item->name, "part", parts[item->part], "rows",
                            (json_int_t)item->delta.rows, "cols", (json_int_t)item->delta.cols, "norm_base", item->base, "norm_delta",
                            item->all, "norm_kept", item->kept, "norm_rest", item->rest, "changed", (json_int_t)item->n_changed, "kept",
                            (json_int_t)item->n_kept, "relative_rest", item->all > 0.0 ? item->rest / item->all : 0.0);
    int failed = 0;
    if (item->left) {
        failed |= json_object_set_new(out, "rank", json_integer(item->rank));
        failed |= json_object_set_new(out, "iterations", json_integer(item->n_iterations));
    }
    return lam_json_whole(out, failed);
}

json_t *lam_diff_report(const struct lam_diff *d, const char *adapter_digest)
{
    json_t *out = lam_diff_settings(d), *list = json_array();
    int failed = 0;
    for (size_t i = 0; i < d->n_items; i++) failed |= json_array_append_new(list, item_json(&d->items[i]));
    failed |= json_object_set_new(out, "adapter_digest", json_string(adapter_digest));
    failed |= json_object_set_new(out, "tensors", list);
    failed |= json_object_set_new(out, "unchanged", json_integer((json_int_t)d->n_unchanged));
    failed |= json_object_set(out, "warnings", d->warnings);
    return lam_json_whole(out, failed);
}
