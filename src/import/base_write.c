#include "import/base_write.h"
#include "base/alloc.h"
#include "base/utf8.h"
#include "format/slm.h"
#include "format/vocab.h"
#include "import/quantise.h"
#include "tensor/decode.h"
#include "tensor/encode.h"
#include "tensor/tiles.h"

#include <inttypes.h>
#include <string.h>

/* The order in which a forward pass reads the tensors: it is the file's. */
static const enum lam_role roles_before[] = {LAM_ROLE_EMBEDDING, LAM_ROLE_ROPE_FACTORS};
static const enum lam_role roles_in_layer[] = {
    LAM_ROLE_ATTN_NORM, LAM_ROLE_Q, LAM_ROLE_Q_BIAS, LAM_ROLE_Q_NORM, LAM_ROLE_K, LAM_ROLE_K_BIAS, LAM_ROLE_K_NORM, LAM_ROLE_V,
    LAM_ROLE_V_BIAS, LAM_ROLE_O, LAM_ROLE_O_BIAS, LAM_ROLE_POST_ATTN_NORM, LAM_ROLE_FFN_NORM, LAM_ROLE_GATE, LAM_ROLE_GATE_BIAS,
    LAM_ROLE_UP, LAM_ROLE_UP_BIAS, LAM_ROLE_DOWN, LAM_ROLE_DOWN_BIAS, LAM_ROLE_POST_FFN_NORM};
static const enum lam_role roles_after[] = {LAM_ROLE_OUTPUT_NORM, LAM_ROLE_OUTPUT};
#define COUNT(array) (sizeof(array) / sizeof *(array))

#define ENCODER_VERSION 1 /* raise it when the same weights give other blocks or residuals */

/* A tensor at its place in the file. */
struct placed {
    const struct lam_base_tensor *tensor;
    bool encoded; /* to Q4_64 */
    struct lam_outliers largest, outliers; /* weights taken out before encoding; errors */
};

struct base_writer {
    struct lam_base_source *source;
    struct lam_quantise quantise;
    float *row, *errors; /* [widest encoded row]; owned */
    uint8_t *blocks;     /* a tile's encoded rows; owned */
    size_t widest;
    const struct lam_base_tensor **slots;   /* [(n_layers + 1) * n_specs], NULL where the source has none; owned */
    struct placed *ordered;                 /* n_ordered, in execution order; owned */
    size_t n_ordered;
    struct lam_slm_out *out;
    struct lam_progress progress;
};

void lam_base_source_release(struct lam_base_source *s)
{
    lam_free(s->tensors);
    json_decref(s->metadata);
    lam_free_aligned(s->vocab);
    *s = (struct lam_base_source){0};
}

lam_code lam_set_text(json_t *object, const char *key, const char *text, size_t len, const char *what, lam_error *err)
{
    if (lam_utf8_valid_prefix((const uint8_t *)text, len) != len) return LAM_RAISE(err, LAM_E_UTF8, "%s is not UTF-8", what);
    if (json_object_set_new(object, key, json_stringn(text, len)) != 0) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s", what);
    return LAM_OK;
}

static const struct lam_base_tensor **slot_of(const struct base_writer *w, const struct lam_tensor_spec *spec, uint32_t layer)
{
    const struct lam_config *c = &w->source->config;
    size_t row = layer == LAM_LAYER_NONE ? c->n_layers : layer;
    return &w->slots[row * c->arch->n_tensors + (size_t)(spec - c->arch->tensors)];
}

static lam_code check_shape(const struct lam_config *c, const struct lam_base_tensor *t, lam_error *err)
{
    uint32_t rows, cols;
    lam_role_shape(c, t->spec->role, &rows, &cols);
    bool matrix = lam_role_is_matrix(t->spec->role);
    if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1 || t->n_dims < 1 || (matrix && t->n_dims != 2))
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.128s has the shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "], the "
                         "configuration asks for [%" PRIu32 ", %" PRIu32 ", 1, 1]", t->name, t->dims[0], t->dims[1], t->dims[2],
                         t->dims[3], cols, rows);
    if (!matrix && lam_dtype_is_quantised(t->dtype))
        return LAM_RAISE(err, LAM_E_DTYPE, "tensor %.128s: a vector of type %s; F32, F16 and BF16 are possible", t->name,
                         lam_dtype_info(t->dtype)->name);
    return LAM_OK;
}

static lam_code place_tensors(struct base_writer *w, lam_error *err)
{
    const struct lam_config *c = &w->source->config;
    uint32_t counts[LAM_MAX_SPECS] = {0};
    w->slots = lam_alloc((size_t)(c->n_layers + 1) * c->arch->n_tensors, sizeof *w->slots);
    w->ordered = lam_alloc(w->source->n_tensors, sizeof *w->ordered);
    if (!w->slots || !w->ordered) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", w->source->n_tensors);
    for (size_t i = 0; i < w->source->n_tensors; i++) {
        const struct lam_base_tensor *t = &w->source->tensors[i];
        if (t->layer != LAM_LAYER_NONE && t->layer >= c->n_layers)
            return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "tensor %.128s: the model has %" PRIu32 " layers", t->name, c->n_layers);
        const struct lam_base_tensor **slot = slot_of(w, t->spec, t->layer);
        if (*slot) return LAM_RAISE(err, LAM_E_DUPLICATE, "tensors %.128s and %.128s are the same one", (*slot)->name, t->name);
        LAM_TRY(check_shape(c, t, err));
        *slot = t;
        counts[t->spec - c->arch->tensors]++;
    }
    return lam_arch_check_counts(c->arch, c->n_layers, counts, err);
}

/* Declares the tensor of a role, if the source has it. */
static lam_code declare_role(struct base_writer *w, enum lam_role role, uint32_t layer, lam_error *err)
{
    const struct lam_config *c = &w->source->config;
    const struct lam_tensor_spec *spec = lam_arch_find(c->arch, role);
    if (!spec) return LAM_OK;
    const struct lam_base_tensor *t = *slot_of(w, spec, layer);
    char name[64];
    lam_tensor_name(spec, layer, name);
    if (!t) {
        bool wanted = spec->presence == LAM_REQUIRED || (role == LAM_ROLE_OUTPUT && !c->tied);
        return wanted ? LAM_RAISE(err, LAM_E_MISSING_TENSOR, "tensor %s is missing", name) : LAM_OK;
    }
    if (role == LAM_ROLE_OUTPUT && c->tied)
        return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "tensor %.128s: the head is tied to the embedding", t->name);
    struct placed placed = {.tensor = t, .encoded = lam_quantise_takes(&w->quantise, role, t->dims[0])};
    uint64_t n_values = placed.encoded ? lam_quantise_values(&w->quantise, t->dims[1], t->dims[0]) : 0;
    if (w->quantise.on && lam_dtype_is_quantised(t->dtype))
        return LAM_RAISE(err, LAM_E_DTYPE, "tensor %.128s is %s: what is quantised already isn't quantised again; take float weights",
                         t->name, lam_dtype_info(t->dtype)->name);
    if (n_values > UINT32_MAX) return LAM_RAISE(err, LAM_E_LIMIT, "tensor %.128s: more than 2^32 outliers", t->name);
    if (placed.encoded && t->dims[0] > w->widest) w->widest = (size_t)t->dims[0];
    placed.outliers.n = (size_t)n_values;
    struct lam_slm_decl decl = {.name = name, .dtype = placed.encoded ? LAM_Q4_64 : t->dtype, .residual_values = (uint32_t)n_values,
                                .n_dims = t->n_dims, .layer = (uint16_t)layer, .role = role,
                                .layout = lam_role_is_matrix(role) ? LAM_LAYOUT_TILE16 : LAM_LAYOUT_PLAIN};
    size_t row_bytes;
    for (int i = 0; i < 4; i++) decl.dims[i] = (uint32_t)t->dims[i];
    LAM_TRY(lam_slm_out_tensor(w->out, &decl, err));
    lam_dtype_row_bytes(t->dtype, t->dims[0], &row_bytes);
    w->progress.total += row_bytes * t->dims[1];
    w->ordered[w->n_ordered++] = placed;
    return LAM_OK;
}

static lam_code declare_all(struct base_writer *w, lam_error *err)
{
    for (size_t i = 0; i < COUNT(roles_before); i++) LAM_TRY(declare_role(w, roles_before[i], LAM_LAYER_NONE, err));
    for (uint32_t layer = 0; layer < w->source->config.n_layers; layer++)
        for (size_t i = 0; i < COUNT(roles_in_layer); i++) LAM_TRY(declare_role(w, roles_in_layer[i], layer, err));
    for (size_t i = 0; i < COUNT(roles_after); i++) LAM_TRY(declare_role(w, roles_after[i], LAM_LAYER_NONE, err));
    if (w->n_ordered != w->source->n_tensors)
        return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "%zu of %zu tensors have no place in the file", w->source->n_tensors - w->n_ordered,
                         w->source->n_tensors);
    return LAM_OK;
}

/* A folder's files may be written by others meanwhile: what was read is then not what lies there. */
static lam_code check_unchanged(const struct lam_base_source *s, lam_error *err)
{
    for (size_t i = 0; i < s->n_files; i++) LAM_TRY(lam_mapping_check(&s->files[i], err));
    return LAM_OK;
}

/* Finds the weights that are taken out, so that the others have scales of their own. */
static lam_code begin_outliers(struct base_writer *w, struct placed *placed, lam_error *err)
{
    const struct lam_base_tensor *t = placed->tensor;
    size_t cols = (size_t)t->dims[0], row_bytes = 0;
    lam_dtype_row_bytes(t->dtype, cols, &row_bytes);
    LAM_TRY(lam_outliers_begin(&placed->largest, placed->outliers.n, err));
    LAM_TRY(lam_outliers_begin(&placed->outliers, placed->outliers.n, err));
    for (size_t row = 0; row < t->dims[1]; row++) {
        lam_decode_row(t->dtype, t->data + row * row_bytes, cols, w->row);
        lam_outliers_add_row(&placed->largest, row, cols, w->row);
    }
    lam_outliers_sort(&placed->largest);
    return LAM_OK;
}

static lam_code finish_outliers(struct placed *placed, lam_error *err)
{
    lam_outliers_release(&placed->largest);
    return lam_outliers_finish(&placed->outliers, placed->tensor->dims[1], placed->tensor->dims[0], err);
}

/* n rows of finite floats, from row `first` on, to blocks in w->blocks; their errors to the outliers, if any are wanted. */
static void encode_rows(struct base_writer *w, struct placed *placed, size_t first, size_t n)
{
    const struct lam_base_tensor *t = placed->tensor;
    size_t cols = (size_t)t->dims[0], row_bytes = 0, encoded_bytes = 0;
    lam_dtype_row_bytes(t->dtype, cols, &row_bytes);
    lam_dtype_row_bytes(LAM_Q4_64, cols, &encoded_bytes);
    for (size_t r = 0; r < n; r++) {
        uint8_t *blocks = w->blocks + r * encoded_bytes;
        lam_decode_row(t->dtype, t->data + (first + r) * row_bytes, cols, w->row);
        memcpy(w->errors, w->row, cols * sizeof *w->row);
        lam_outliers_blank(&placed->largest, first + r, cols, w->errors);
        lam_encode_q4_64_row(w->errors, cols, blocks);
        if (placed->outliers.n == 0) continue;
        lam_decode_row(LAM_Q4_64, blocks, cols, w->errors);
        for (size_t k = 0; k < cols; k++) w->errors[k] = w->row[k] - w->errors[k];
        lam_outliers_add_row(&placed->outliers, first + r, cols, w->errors);
    }
}

static lam_code allocate_encoding(struct base_writer *w, lam_error *err)
{
    size_t row_bytes = 0;
    if (w->widest == 0) return LAM_OK;
    lam_dtype_row_bytes(LAM_Q4_64, w->widest, &row_bytes);
    w->row = lam_alloc(w->widest, sizeof *w->row);
    w->errors = lam_alloc(w->widest, sizeof *w->errors);
    w->blocks = lam_alloc(row_bytes, LAM_TILE_ROWS);
    return w->row && w->errors && w->blocks ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "rows of %zu", w->widest);
}

/* See lam_slm_residual_fn. */
static lam_code residual(void *context, size_t index, const uint8_t **bytes, lam_error *err)
{
    const struct base_writer *w = context;
    (void)err;
    *bytes = w->ordered[index].outliers.bytes;
    return LAM_OK;
}

/* See lam_slm_fill_fn. */
static lam_code fill(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    struct base_writer *w = context;
    struct placed *placed = &w->ordered[index];
    const struct lam_base_tensor *t = placed->tensor;
    enum lam_dtype dtype = placed->encoded ? LAM_Q4_64 : t->dtype;
    bool tiled = lam_role_is_matrix(t->spec->role);
    size_t row_bytes = 0, unit = 0, rows_in_unit = tiled ? LAM_TILE_ROWS : 1;
    lam_dtype_row_bytes(t->dtype, t->dims[0], &row_bytes);
    unit = row_bytes;
    if (tiled) lam_tile_stride(dtype, t->dims[0], &unit);
    if (placed->outliers.n && offset == 0) LAM_TRY(begin_outliers(w, placed, err));
    size_t first = (size_t)(offset / unit) * rows_in_unit, last = first + bytes / unit * rows_in_unit, n_rows = (size_t)t->dims[1];
    if (last > n_rows) last = n_rows;
    for (size_t row = first; row < last; row++)
        if (!lam_row_is_finite(t->dtype, t->data + row * row_bytes, (size_t)t->dims[0]))
            return LAM_RAISE(err, LAM_E_NON_FINITE, "tensor %.128s: row %zu holds NaN or infinity", t->name, row);
    for (size_t row = first; row < last; row += rows_in_unit, buffer += unit) {
        const uint8_t *rows = t->data + row * row_bytes;
        size_t n = last - row < rows_in_unit ? last - row : rows_in_unit;
        if (placed->encoded) encode_rows(w, placed, row, n);
        if (tiled) lam_tile_rows(dtype, t->dims[0], placed->encoded ? w->blocks : rows, n, buffer);
        else memcpy(buffer, rows, row_bytes);
    }
    if (placed->outliers.n && last == n_rows) LAM_TRY(finish_outliers(placed, err));
    LAM_TRY(lam_progress_add(&w->progress, (last - first) * row_bytes, err));
    return w->progress.done == w->progress.total ? check_unchanged(w->source, err) : LAM_OK;
}

static lam_code check_vocabulary(const struct lam_base_source *s, lam_error *err)
{
    struct lam_vocab vocab;
    LAM_TRY(lam_vocab_open(s->vocab, s->vocab_bytes, &vocab, err));
    if (vocab.n_tokens > s->config.n_vocab)
        return LAM_RAISE(err, LAM_E_TOKEN, "the vocabulary has %" PRIu32 " tokens, the embedding has %" PRIu32 " rows", vocab.n_tokens,
                         s->config.n_vocab);
    return LAM_OK;
}

/* source.encoder in the metadata: what made the blocks, for people. */
static lam_code note_encoder(const struct base_writer *w, const struct lam_import_options *options, lam_error *err)
{
    if (!w->quantise.on) return LAM_OK;
    json_t *source = json_object_get(w->source->metadata, "source");
    json_t *encoder = json_pack("{s:s,s:i}", "quantise", options->quantise, "version", ENCODER_VERSION);
    return json_object_set_new(source, "encoder", encoder) == 0 ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
}

static lam_code write_all(struct base_writer *w, const char *out_path, const struct lam_import_options *options, lam_error *err)
{
    uint64_t bytes;
    struct lam_base_source *s = w->source;
    LAM_TRY(check_vocabulary(s, err));
    LAM_TRY(lam_quantise_parse(options ? options->quantise : NULL, &w->quantise, err));
    LAM_TRY(place_tensors(w, err));
    LAM_TRY(lam_slm_out_new(LAM_SLM_BASE, s->config.tied ? LAM_SLM_TIED : 0, &w->out, err));
    LAM_TRY(declare_all(w, err));
    LAM_TRY(allocate_encoding(w, err));
    LAM_TRY(note_encoder(w, options, err));
    if (json_object_set_new(s->metadata, "config", lam_config_to_json(&s->config)) != 0)
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    lam_slm_out_metadata(w->out, s->metadata);
    lam_slm_out_residuals(w->out, residual);
    lam_slm_out_vocab(w->out, s->vocab, s->vocab_bytes);
    LAM_TRY(lam_slm_out_size(w->out, &bytes, err));
    LAM_TRY(lam_check_room(out_path, bytes, options, err));
    LAM_TRY(lam_progress_add(&w->progress, 0, err));
    return lam_slm_out_write(w->out, out_path, fill, w, NULL, err);
}

lam_code lam_base_write(struct lam_base_source *source, const char *out_path, const struct lam_import_options *options,
                        lam_error *err)
{
    struct base_writer w = {.source = source, .progress = {.options = options, .stage = "import"}};
    lam_code code = write_all(&w, out_path, options, err);
    lam_slm_out_free(w.out);
    lam_free(w.slots);
    for (size_t i = 0; i < w.n_ordered; i++) {
        lam_outliers_release(&w.ordered[i].largest);
        lam_outliers_release(&w.ordered[i].outliers);
    }
    lam_free(w.ordered);
    lam_free(w.row);
    lam_free(w.errors);
    lam_free(w.blocks);
    return code;
}
