#include "model/model.h"
#include "base/alloc.h"
#include "base/budget.h"
#include "model/identity.h"
#include "model/rope.h"
#include "tensor/decode.h"
#include "tensor/tiles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While a model is opened: where the next decoded vector and target go. */
struct binder {
    struct lam_model *model;
    float *next_vector;
    char *next_name;
};

static const struct lam_slm_entry *find_role(const struct lam_slm *s, const struct lam_tensor_spec *spec, uint32_t layer)
{
    char name[64];
    lam_tensor_name(spec, layer, name);
    return lam_slm_find(s, name);
}

/* One pass over the directory: every entry belongs to the architecture, once, with the shape that the configuration gives. */
static lam_code check_entries(const struct lam_model *m, size_t *n_vectors, size_t *n_vector_floats, lam_error *err)
{
    const struct lam_config *c = &m->config;
    uint32_t counts[LAM_MAX_SPECS] = {0};
    for (size_t i = 0; i < m->file->n_entries; i++) {
        const struct lam_slm_entry *e = &m->file->entries[i];
        char name[64];
        uint32_t layer, rows, cols;
        snprintf(name, sizeof name, "%.*s", (int)e->name_len, m->file->names + e->name_offset);
        const struct lam_tensor_spec *spec = e->name_len < sizeof name ? lam_arch_match_gguf(c->arch, name, &layer) : NULL;
        if (!spec || (spec->in_layer && layer >= c->n_layers) || (spec->role == LAM_ROLE_OUTPUT && c->tied))
            return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "tensor %s has no place in a %s of %u layers", name, c->arch->name, c->n_layers);
        bool matrix = lam_role_is_matrix(spec->role);
        lam_role_shape(c, spec->role, &rows, &cols);
        if (e->role != (uint32_t)spec->role || e->layer != layer)
            return LAM_RAISE(err, LAM_E_FORMAT, "tensor %s: directory says role %u, layer %u", name, e->role, e->layer);
        if (e->dims[0] != cols || e->dims[1] != rows || e->dims[2] != 1 || e->dims[3] != 1)
            return LAM_RAISE(err, LAM_E_SHAPE, "tensor %s has %u rows of %u, the configuration asks for %u of %u", name, e->dims[1],
                             e->dims[0], rows, cols);
        if (e->layout != (matrix ? LAM_LAYOUT_TILE16 : LAM_LAYOUT_PLAIN))
            return LAM_RAISE(err, LAM_E_FORMAT, "tensor %s: layout %u", name, e->layout);
        if (!matrix && lam_dtype_is_quantised(e->dtype))
            return LAM_RAISE(err, LAM_E_DTYPE, "tensor %s: a vector of type %s", name, lam_dtype_info(e->dtype)->name);
        if (!matrix) {
            ++*n_vectors;
            *n_vector_floats += cols;
        }
        counts[spec - c->arch->tensors]++;
    }
    return lam_arch_check_counts(c->arch, c->n_layers, counts, err);
}

static lam_code bind_vector(struct binder *b, enum lam_role role, uint32_t layer, float offset, const float **out, lam_error *err)
{
    struct lam_model *m = b->model;
    const struct lam_tensor_spec *spec = lam_arch_find(m->config.arch, role);
    const struct lam_slm_entry *e = spec ? find_role(m->file, spec, layer) : NULL;
    *out = NULL;
    if (!e) {
        if (!spec || spec->presence == LAM_OPTIONAL) return LAM_OK;
        char name[64];
        lam_tensor_name(spec, layer, name);
        return LAM_RAISE(err, LAM_E_MISSING_TENSOR, "tensor %s is missing", name);
    }
    m->vector_list[m->n_vectors++] = (struct lam_vector){.entry = e, .to = b->next_vector, .offset = offset};
    *out = b->next_vector;
    b->next_vector += e->dims[0];
    return LAM_OK;
}

static lam_code bind_bias(struct binder *b, enum lam_role role, uint32_t layer, const float **out, lam_error *err)
{
    return bind_vector(b, role, layer, 0.0f, out, err);
}

/* The next target, under a tensor's name without ".weight"; matrices and norms get their pointers to it in link_targets. */
static void add_target(struct binder *b, const char *tensor, struct lam_target target)
{
    struct lam_model *m = b->model;
    const char *ending = strstr(tensor, ".weight");
    size_t len = ending ? (size_t)(ending - tensor) : strlen(tensor);
    memcpy(b->next_name, tensor, len);
    b->next_name[len] = 0;
    target.name = b->next_name;
    m->target_items[m->targets.n_items++] = target;
    b->next_name += len + 1;
}

static lam_code bind_norm(struct binder *b, enum lam_role role, uint32_t layer, struct lam_norm *out, lam_error *err)
{
    const struct lam_model *m = b->model;
    float offset = m->config.norm_offset;
    LAM_TRY(bind_vector(b, role, layer, offset, &out->w, err));
    if (!out->w) return LAM_OK;
    const struct lam_slm_entry *e = m->vector_list[m->n_vectors - 1].entry;
    char name[64];
    lam_tensor_name(lam_arch_find(m->config.arch, role), layer, name);
    add_target(b, name, (struct lam_target){.role = role, .layer = layer, .rows = 1, .cols = e->dims[0], .dtype = e->dtype, .vector = out->w,
                                            .offset = offset});
    return LAM_OK;
}

static lam_code bind_matrix(struct binder *b, enum lam_role role, uint32_t layer, struct lam_matrix *out, lam_error *err)
{
    struct lam_model *m = b->model;
    const struct lam_tensor_spec *spec = lam_arch_find(m->config.arch, role);
    const struct lam_slm_entry *e = find_role(m->file, spec, layer);
    char name[64];
    lam_tensor_name(spec, layer, name);
    if (!e) return LAM_RAISE(err, LAM_E_MISSING_TENSOR, "tensor %s is missing", name);
    *out = (struct lam_matrix){.dtype = e->dtype, .cols = e->dims[0], .rows = e->dims[1], .tiles = lam_slm_tensor_data(m->file, e)};
    lam_tile_stride(out->dtype, out->cols, &out->stride);
    LAM_TRY(lam_slm_residual(m->file, e, &out->residual, err));
    m->float_weights &= !lam_dtype_is_quantised(e->dtype);
    add_target(b, name, (struct lam_target){.role = role, .layer = layer, .rows = out->rows, .cols = out->cols, .dtype = out->dtype});
    return LAM_OK;
}

static lam_code bind_layer(struct binder *b, uint32_t i, lam_error *err)
{
    struct lam_layer *l = &b->model->layers[i];
    LAM_TRY(bind_norm(b, LAM_ROLE_ATTN_NORM, i, &l->attn_norm, err));
    LAM_TRY(bind_matrix(b, LAM_ROLE_Q, i, &l->q, err));
    LAM_TRY(bind_matrix(b, LAM_ROLE_K, i, &l->k, err));
    LAM_TRY(bind_matrix(b, LAM_ROLE_V, i, &l->v, err));
    LAM_TRY(bind_matrix(b, LAM_ROLE_O, i, &l->o, err));
    LAM_TRY(bind_bias(b, LAM_ROLE_Q_BIAS, i, &l->q_bias, err));
    LAM_TRY(bind_bias(b, LAM_ROLE_K_BIAS, i, &l->k_bias, err));
    LAM_TRY(bind_bias(b, LAM_ROLE_V_BIAS, i, &l->v_bias, err));
    LAM_TRY(bind_bias(b, LAM_ROLE_O_BIAS, i, &l->o_bias, err));
    LAM_TRY(bind_norm(b, LAM_ROLE_Q_NORM, i, &l->q_norm, err));
    LAM_TRY(bind_norm(b, LAM_ROLE_K_NORM, i, &l->k_norm, err));
    LAM_TRY(bind_norm(b, LAM_ROLE_POST_ATTN_NORM, i, &l->post_attn_norm, err));
    LAM_TRY(bind_norm(b, LAM_ROLE_FFN_NORM, i, &l->ffn_norm, err));
    LAM_TRY(bind_matrix(b, LAM_ROLE_GATE, i, &l->gate, err));
    LAM_TRY(bind_matrix(b, LAM_ROLE_UP, i, &l->up, err));
    LAM_TRY(bind_matrix(b, LAM_ROLE_DOWN, i, &l->down, err));
    LAM_TRY(bind_bias(b, LAM_ROLE_GATE_BIAS, i, &l->gate_bias, err));
    LAM_TRY(bind_bias(b, LAM_ROLE_UP_BIAS, i, &l->up_bias, err));
    LAM_TRY(bind_bias(b, LAM_ROLE_DOWN_BIAS, i, &l->down_bias, err));
    return bind_norm(b, LAM_ROLE_POST_FFN_NORM, i, &l->post_ffn_norm, err);
}

static int compare_targets(const void *a, const void *b)
{
    return strcmp(((const struct lam_target *)a)->name, ((const struct lam_target *)b)->name);
}

static struct lam_matrix *matrix_of(struct lam_model *m, enum lam_role role, uint32_t layer)
{
    struct lam_layer *l = layer == LAM_LAYER_NONE ? NULL : &m->layers[layer];
    switch (role) {
    case LAM_ROLE_EMBEDDING: return &m->embedding;
    case LAM_ROLE_OUTPUT: return &m->output;
    case LAM_ROLE_Q: return &l->q;
    case LAM_ROLE_K: return &l->k;
    case LAM_ROLE_V: return &l->v;
    case LAM_ROLE_O: return &l->o;
    case LAM_ROLE_GATE: return &l->gate;
    case LAM_ROLE_UP: return &l->up;
    case LAM_ROLE_DOWN: return &l->down;
    default: return NULL;
    }
}

static struct lam_norm *norm_of(struct lam_model *m, enum lam_role role, uint32_t layer)
{
    struct lam_layer *l = layer == LAM_LAYER_NONE ? NULL : &m->layers[layer];
    switch (role) {
    case LAM_ROLE_OUTPUT_NORM: return &m->output_norm;
    case LAM_ROLE_ATTN_NORM: return &l->attn_norm;
    case LAM_ROLE_POST_ATTN_NORM: return &l->post_attn_norm;
    case LAM_ROLE_FFN_NORM: return &l->ffn_norm;
    case LAM_ROLE_POST_FFN_NORM: return &l->post_ffn_norm;
    case LAM_ROLE_Q_NORM: return &l->q_norm;
    case LAM_ROLE_K_NORM: return &l->k_norm;
    default: return NULL;
    }
}

/* Targets are sorted only now, so matrices and norms get their pointers last. */
static void link_targets(struct lam_model *m)
{
    qsort(m->target_items, m->targets.n_items, sizeof *m->target_items, compare_targets);
    m->targets.items = m->target_items;
    m->targets.base_digest = m->base_digest;
    for (size_t i = 0; i < m->targets.n_items; i++) {
        struct lam_target *t = &m->target_items[i];
        struct lam_matrix *matrix = matrix_of(m, t->role, t->layer);
        t->matrix = matrix;
        if (matrix) matrix->target = t;
        else norm_of(m, t->role, t->layer)->target = t;
    }
}

/* A tied head is a module of its own for adapters, with the embedding's bytes. */
static void bind_tied_output(struct binder *b)
{
    struct lam_model *m = b->model;
    m->output = m->embedding;
    add_target(b, "output", (struct lam_target){.role = LAM_ROLE_OUTPUT, .layer = LAM_LAYER_NONE, .rows = m->output.rows,
                                                .cols = m->output.cols, .dtype = m->output.dtype});
}

#define MAX_FREQUENCY 0x1p20f /* radians a position: with 2^27 positions still a float64 with its fraction */

static lam_code check_frequencies(const float *inv_freq, uint32_t n, lam_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (!(inv_freq[i] >= 0.0f && inv_freq[i] <= MAX_FREQUENCY))
            return LAM_RAISE(err, LAM_E_FORMAT, "rotary frequency %u is %g", i, (double)inv_freq[i]);
    return LAM_OK;
}

static lam_code bind_all(struct lam_model *m, lam_error *err)
{
    struct binder b = {.model = m, .next_vector = m->vectors, .next_name = m->target_names};
    m->float_weights = true;
    LAM_TRY(bind_matrix(&b, LAM_ROLE_EMBEDDING, LAM_LAYER_NONE, &m->embedding, err));
    LAM_TRY(bind_norm(&b, LAM_ROLE_OUTPUT_NORM, LAM_LAYER_NONE, &m->output_norm, err));
    LAM_TRY(bind_vector(&b, LAM_ROLE_ROPE_FACTORS, LAM_LAYER_NONE, 0.0f, &m->rope_factors, err));
    if (m->config.tied) bind_tied_output(&b);
    else LAM_TRY(bind_matrix(&b, LAM_ROLE_OUTPUT, LAM_LAYER_NONE, &m->output, err));
    for (uint32_t i = 0; i < m->config.n_layers; i++) LAM_TRY(bind_layer(&b, i, err));
    link_targets(m);
    return lam_model_read_vectors(m, err);
}

lam_code lam_model_read_vectors(struct lam_model *m, lam_error *err)
{
    const struct lam_config *c = &m->config;
    for (size_t i = 0; i < m->n_vectors; i++) {
        const struct lam_vector *v = &m->vector_list[i];
        size_t n = v->entry->dims[0];
        lam_decode_row(v->entry->dtype, lam_slm_tensor_data(m->file, v->entry), n, v->to);
        for (size_t k = 0; v->offset != 0.0f && k < n; k++) v->to[k] = v->to[k] + v->offset;
    }
    for (uint32_t i = 0; m->rope_factors && i < c->head_dim / 2; i++)
        if (!(m->rope_factors[i] > 0.0f) || !isfinite(m->rope_factors[i]))
            return LAM_RAISE(err, LAM_E_NON_FINITE, "rope_freqs.weight: divisor %u is %g", i, (double)m->rope_factors[i]);
    lam_rope_frequencies(&c->rope, c->head_dim, m->rope_factors, m->inv_freq);
    lam_rope_frequencies(&c->rope_local, c->head_dim, NULL, m->inv_freq_local);
    LAM_TRY(check_frequencies(m->inv_freq, c->head_dim / 2, err));
    return check_frequencies(m->inv_freq_local, c->head_dim / 2, err);
}

#define TARGET_NAME_BYTES 40 /* "blk.255.post_attention_norm" and its zero fit */

static lam_code open_from(struct lam_model *m, lam_error *err)
{
    if (m->file->kind != LAM_SLM_BASE)
        return LAM_RAISE(err, LAM_E_FORMAT, "%s is an adapter, not a base", m->file->file.path);
    LAM_TRY(lam_config_from_json(json_object_get(m->file->metadata, "config"), &m->config, err));
    if (m->config.tied != ((m->file->flags & LAM_SLM_TIED) != 0))
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: header and configuration disagree on whether the head is tied", m->file->file.path);
    size_t n_vectors = 0, n_vector_floats = 0;
    LAM_TRY(check_entries(m, &n_vectors, &n_vector_floats, err));
    const struct lam_config *c = &m->config;
    size_t n_targets = (size_t)c->n_layers * 7 + 2 + n_vectors; /* matrices, and norms among the vectors */
    LAM_TRY(lam_budget_alloc(m->targets.budget, n_vector_floats, sizeof *m->vectors, "norms and biases", &m->vectors, err));
    m->vector_list = lam_alloc(n_vectors, sizeof *m->vector_list);
    m->layers = lam_alloc(c->n_layers, sizeof *m->layers);
    m->inv_freq = lam_alloc(c->head_dim / 2, sizeof *m->inv_freq);
    m->inv_freq_local = lam_alloc(c->head_dim / 2, sizeof *m->inv_freq_local);
    m->target_items = lam_alloc(n_targets, sizeof *m->target_items);
    m->target_names = lam_alloc(n_targets, TARGET_NAME_BYTES);
    if (!m->vector_list || !m->layers || !m->inv_freq || !m->inv_freq_local || !m->target_items || !m->target_names)
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "a model of %u layers", c->n_layers);
    LAM_TRY(bind_all(m, err));
    return lam_base_digest(m->file, m->base_digest, err);
}

lam_code lam_model_open(const char *path, struct lam_budget *budget, struct lam_model **out, lam_error *err)
{
    *out = NULL;
    struct lam_model *m = lam_alloc(1, sizeof *m);
    if (!m) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    m->targets.budget = budget;
    lam_code code = lam_slm_open(path, &m->file, err);
    if (code == LAM_OK) code = open_from(m, err);
    if (code == LAM_OK) *out = m;
    else lam_model_close(m);
    return code;
}

void lam_model_close(struct lam_model *m)
{
    if (!m) return;
    lam_slm_close(m->file);
    lam_budget_free(m->vectors);
    lam_free(m->vector_list);
    lam_free(m->layers);
    lam_free(m->inv_freq);
    lam_free(m->inv_freq_local);
    lam_free(m->target_items);
    lam_free(m->target_names);
    lam_free(m);
}
