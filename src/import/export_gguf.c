/* A base back to GGUF v3. What came from GGUF goes back byte for byte; what came from Hugging Face gets GGUF's conventions:
 * vectors in F32, Gemma's norms with their 1 added, llama's q and k rows in the order for pairs (2i, 2i+1). */
#include "base/alloc.h"
#include "import/export_keys.h"
#include "import/progress.h"
#include "model/rope.h"
#include "tensor/decode.h"
#include "tensor/tiles.h"

#include <stdlib.h>
#include <string.h>

#define ROPE_FREQS "rope_freqs.weight"

struct exporter {
    const struct lam_model *model;
    const struct lam_slm_entry **entries; /* n, in the order of the new file; NULL for computed rotary factors; owned */
    size_t n;
    bool convert;                         /* from Hugging Face's conventions */
    struct lam_progress progress;
};

static bool is_vector(const struct lam_slm_entry *e) { return !lam_role_is_matrix((enum lam_role)e->role); }

/* Heads whose rows GGUF has in another order, else 0. */
static uint32_t permuted_heads(const struct exporter *x, const struct lam_slm_entry *e)
{
    const struct lam_config *c = &x->model->config;
    if (!x->convert || !c->arch->gguf_rope_interleaved || c->rope_interleaved) return 0;
    if (e->role == LAM_ROLE_Q || e->role == LAM_ROLE_Q_BIAS) return c->n_heads;
    return e->role == LAM_ROLE_K || e->role == LAM_ROLE_K_BIAS ? c->n_kv_heads : 0;
}

/* The row here that becomes GGUF's row: halves (i, i + d/2) of a head become pairs (2i, 2i + 1). */
static size_t row_here(size_t row, size_t head_dim)
{
    size_t head = row / head_dim, at = row % head_dim;
    return head * head_dim + at % 2 * (head_dim / 2) + at / 2;
}

static bool is_norm(uint32_t role)
{
    return role == LAM_ROLE_OUTPUT_NORM || role == LAM_ROLE_ATTN_NORM || role == LAM_ROLE_POST_ATTN_NORM ||
           role == LAM_ROLE_FFN_NORM || role == LAM_ROLE_POST_FFN_NORM || role == LAM_ROLE_Q_NORM || role == LAM_ROLE_K_NORM;
}

static lam_code fill_matrix(const struct exporter *x, const struct lam_slm_entry *e, uint8_t *buffer, lam_error *err)
{
    const uint8_t *tiles = lam_slm_tensor_data(x->model->file, e);
    size_t stride, row_bytes, head_dim = x->model->config.head_dim, n_rows = e->dims[1];
    if (!lam_tile_stride(e->dtype, e->dims[0], &stride) || !lam_dtype_row_bytes(e->dtype, e->dims[0], &row_bytes))
        return LAM_RAISE(err, LAM_E_OVERFLOW, "a row of %u weights", e->dims[0]);
    bool permute = permuted_heads(x, e) != 0;
    for (size_t row = 0; row < n_rows; row++) {
        size_t from = permute ? row_here(row, head_dim) : row;
        lam_untile_row(e->dtype, e->dims[0], tiles + from / LAM_TILE_ROWS * stride, from % LAM_TILE_ROWS, buffer + row * row_bytes);
    }
    return LAM_OK;
}

/* To F32; little-endian as the whole file. */
static lam_code fill_converted(const struct exporter *x, const struct lam_slm_entry *e, uint8_t *buffer, lam_error *err)
{
    const struct lam_config *c = &x->model->config;
    float *values = lam_alloc(e->dims[0], sizeof *values), *out = (float *)(void *)buffer;
    if (!values) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u values", e->dims[0]);
    lam_decode_row(e->dtype, lam_slm_tensor_data(x->model->file, e), e->dims[0], values);
    bool permute = permuted_heads(x, e) != 0;
    float offset = is_norm(e->role) ? c->norm_offset : 0.0f;
    for (size_t i = 0; i < e->dims[0]; i++) {
        float value = values[permute ? row_here(i, c->head_dim) : i];
        out[i] = offset != 0.0f ? value + offset : value;
    }
    lam_free(values);
    return LAM_OK;
}

/* Llama 3.1's scaling as factors that divide the plain frequencies. */
static lam_code fill_rope_factors(const struct lam_config *c, float *out, lam_error *err)
{
    size_t n = c->head_dim / 2;
    float *scaled = lam_alloc(n, sizeof *scaled);
    if (!scaled) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rotary factors", n);
    struct lam_rope plain = {.theta = c->rope.theta, .attention_factor = 1.0};
    lam_rope_frequencies(&plain, c->head_dim, NULL, out);
    lam_rope_frequencies(&c->rope, c->head_dim, NULL, scaled);
    for (size_t i = 0; i < n; i++) out[i] = (float)((double)out[i] / (double)scaled[i]);
    lam_free(scaled);
    return LAM_OK;
}

/* See lam_gguf_fill_fn. */
static lam_code fill(void *context, size_t index, uint8_t *buffer, size_t bytes, lam_error *err)
{
    struct exporter *x = context;
    const struct lam_slm_entry *e = x->entries[index];
    if (!e) LAM_TRY(fill_rope_factors(&x->model->config, (float *)(void *)buffer, err));
    else if (!is_vector(e)) LAM_TRY(fill_matrix(x, e, buffer, err));
    else if (x->convert) LAM_TRY(fill_converted(x, e, buffer, err));
    else memcpy(buffer, lam_slm_tensor_data(x->model->file, e), bytes);
    return lam_progress_add(&x->progress, bytes, err);
}

static lam_code order_as_original(struct exporter *x, const json_t *names, lam_error *err)
{
    const struct lam_slm *s = x->model->file;
    bool *seen = lam_alloc(s->n_entries, sizeof *seen);
    lam_code code = seen ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", s->n_entries);
    if (code == LAM_OK && json_array_size(names) != s->n_entries)
        code = LAM_RAISE(err, LAM_E_FORMAT, "metadata names %zu tensors, the file has %zu", json_array_size(names), s->n_entries);
    for (size_t i = 0; code == LAM_OK && i < s->n_entries; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const struct lam_slm_entry *e = name ? lam_slm_find(s, name) : NULL;
        if (!e || seen[e - s->entries]) {
            code = LAM_RAISE(err, LAM_E_FORMAT, "metadata names the tensor %s, which is not in the file once", name ? name : "?");
            break;
        }
        seen[e - s->entries] = true;
        x->entries[x->n++] = e;
    }
    lam_free(seen);
    return code;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct lam_slm_entry *l = *(const struct lam_slm_entry *const *)a, *r = *(const struct lam_slm_entry *const *)b;
    return (l->offset > r->offset) - (l->offset < r->offset);
}

static void order_as_here(struct exporter *x)
{
    const struct lam_slm *s = x->model->file;
    if (x->model->config.rope.scaling == LAM_ROPE_LLAMA3) x->entries[x->n++] = NULL;
    size_t first = x->n;
    for (size_t i = 0; i < s->n_entries; i++) x->entries[x->n++] = &s->entries[i];
    qsort(x->entries + first, s->n_entries, sizeof *x->entries, compare_offsets);
}

static lam_code declare(struct exporter *x, struct lam_gguf_out *o, size_t i, lam_error *err)
{
    const struct lam_slm_entry *e = x->entries[i];
    const struct lam_slm *s = x->model->file;
    size_t row_bytes = 0;
    if (!e) {
        const uint64_t dims[4] = {x->model->config.head_dim / 2, 1, 1, 1};
        x->progress.total += dims[0] * sizeof(float);
        return lam_gguf_out_tensor(o, ROPE_FREQS, LAM_F32, 1, dims, err);
    }
    char name[LAM_SLM_NAME_MAX + 1];
    memcpy(name, s->names + e->name_offset, e->name_len);
    name[e->name_len] = 0;
    enum lam_dtype dtype = x->convert && is_vector(e) ? LAM_F32 : (enum lam_dtype)e->dtype;
    const uint64_t dims[4] = {e->dims[0], e->dims[1], e->dims[2], e->dims[3]};
    lam_dtype_row_bytes(dtype, dims[0], &row_bytes);
    x->progress.total += row_bytes * dims[1];
    return lam_gguf_out_tensor(o, name, dtype, e->n_dims, dims, err);
}

/* What GGUF has no place for. */
static lam_code refuse_own_forms(const struct lam_slm *s, lam_error *err)
{
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct lam_slm_entry *e = &s->entries[i];
        const char *name = s->names + e->name_offset;
        if (!lam_dtype_in_gguf(e->dtype))
            return LAM_RAISE(err, LAM_E_DTYPE, "tensor %.*s is %s, a type of Lamina's own that GGUF does not have: export the base that was "
                             "imported without quantising", (int)e->name_len, name, lam_dtype_info(e->dtype)->name);
        if (e->residual)
            return LAM_RAISE(err, LAM_E_UNSUPPORTED, "tensor %.*s has outlier residuals, which GGUF does not have", (int)e->name_len, name);
    }
    return LAM_OK;
}

static lam_code write_file(struct exporter *x, struct lam_gguf_out *o, const char *out_path, lam_error *err)
{
    const struct lam_slm *s = x->model->file;
    const json_t *names = json_object_get(json_object_get(s->metadata, "gguf"), "tensors");
    x->convert = !names;
    x->entries = lam_alloc(s->n_entries + 1, sizeof *x->entries);
    if (!x->entries) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", s->n_entries);
    LAM_TRY(refuse_own_forms(s, err));
    LAM_TRY(lam_export_keys(x->model, o, err));
    if (names) LAM_TRY(order_as_original(x, names, err));
    else order_as_here(x);
    for (size_t i = 0; i < x->n; i++) LAM_TRY(declare(x, o, i, err));
    LAM_TRY(lam_check_room(out_path, x->progress.total, x->progress.options, err));
    for (size_t i = 0; i < s->n_pieces; i++) LAM_TRY(lam_slm_verify_piece(s, i, err));
    LAM_TRY(lam_progress_add(&x->progress, 0, err));
    return lam_gguf_out_write(o, out_path, fill, x, err);
}

lam_code lam_export_gguf(const char *base_path, const char *out_path, const struct lam_import_options *options, lam_error *err)
{
    struct lam_model *m = NULL;
    struct lam_gguf_out *o = NULL;
    struct exporter x = {.progress = {.options = options, .stage = "export"}};
    lam_code code = lam_model_open(base_path, NULL, &m, err);
    if (code == LAM_OK) code = lam_gguf_out_new(&o, err);
    x.model = m;
    if (code == LAM_OK) code = write_file(&x, o, out_path, err);
    lam_gguf_out_free(o);
    lam_free(x.entries);
    lam_model_close(m);
    return code;
}
