/* What a merged base consists of, and what is told of it. */
#include "base/alloc.h"
#include "base/json.h"
#include "run/merge.h"
#include "tensor/decode.h"
#include "tensor/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---- */

/* A type of more bits, for those that are only read. */
static enum lam_dtype encoded_type(enum lam_dtype dtype)
{
    switch (dtype) {
    case LAM_Q2_K: case LAM_Q3_K: return LAM_Q4_1;
    case LAM_Q4_K: return LAM_Q5_1;
    case LAM_Q5_K: case LAM_Q6_K: return LAM_Q8_0;
    default: return dtype;
    }
}

static enum lam_dtype named_type(const char *name)
{
    static const struct {
        const char *name;
        enum lam_dtype dtype;
    } types[] = {{"f32", LAM_F32}, {"f16", LAM_F16}, {"bf16", LAM_BF16}, {"q8_0", LAM_Q8_0}, {"q5_1", LAM_Q5_1},
                 {"q5_0", LAM_Q5_0}, {"q4_1", LAM_Q4_1}, {"q4_0", LAM_Q4_0}, {"q4_64", LAM_Q4_64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].dtype;
    return LAM_F32;
}

/* The type of a changed matrix: the wanted one, one that can be encoded, and one that its rows can be cut into. */
static lam_code choose_type(const struct lam_merging *m, struct lam_merge_tensor *t, lam_error *err)
{
    t->wanted = m->options->dtype ? named_type(m->options->dtype) : t->matrix->dtype;
    t->dtype = encoded_type(t->wanted);
    if (t->cols % lam_dtype_info(t->dtype)->block_elements != 0)
        t->dtype = t->cols % lam_dtype_info(LAM_Q8_0)->block_elements == 0 ? LAM_Q8_0 : LAM_F16;
    if (t->dtype == t->wanted || !m->options->strict) return LAM_OK;
    return LAM_RAISE(err, LAM_E_DTYPE, "tensor %s cannot be encoded as %s: %s would be taken", t->name, lam_dtype_info(t->wanted)->name,
                     lam_dtype_info(t->dtype)->name);
}

/* ---- the list ---- */

static bool is_changed(const struct lam_overlay_slot *slot) { return slot->n_ops || slot->weight || slot->input; }

static lam_code add(struct lam_merging *m, const struct lam_merge_tensor *t, lam_error *err)
{
    if (m->n == m->room) {
        size_t room = m->room ? 2 * m->room : 128;
        struct lam_merge_tensor *grown = lam_realloc(m->tensors, room, sizeof *grown);
        if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", room);
        m->tensors = grown;
        m->room = room;
    }
    m->tensors[m->n++] = *t;
    return LAM_OK;
}

static const struct lam_slm_entry *find(const struct lam_merging *m, enum lam_role role, uint32_t layer, char name[64])
{
    const struct lam_model *model = m->composition->base->model;
    const struct lam_tensor_spec *spec = lam_arch_find(model->config.arch, role);
    name[0] = 0;
    if (!spec) return NULL;
    lam_tensor_name(spec, layer, name);
    return lam_slm_find(model->file, name);
}

/* The slot of the module that a tensor belongs to. */
static const struct lam_overlay_slot *slot_of(const struct lam_merging *m, const char *tensor, const struct lam_target **target)
{
    const char *dot = strrchr(tensor, '.');
    *target = dot ? lam_find_target(&m->composition->base->model->targets, tensor, (size_t)(dot - tensor)) : NULL;
    return lam_overlay_slot(m->overlay, *target);
}

static lam_code add_matrix(struct lam_merging *m, enum lam_role role, uint32_t layer, lam_error *err)
{
    const struct lam_target *target;
    struct lam_merge_tensor t = {.role = role, .layer = layer};
    t.entry = find(m, role, layer, t.name);
    if (role == LAM_ROLE_OUTPUT && !t.entry && !m->tied) t.entry = lam_slm_find(m->composition->base->model->file, "token_embd.weight");
    if (!t.entry) return LAM_OK;
    t.cols = t.entry->dims[0];
    t.rows = t.entry->dims[1];
    t.dtype = t.wanted = t.entry->dtype;
    const struct lam_overlay_slot *slot = slot_of(m, t.name, &target);
    if (target && is_changed(slot)) {
        t.slot = slot;
        t.matrix = target->matrix;
        t.by_row = role == LAM_ROLE_EMBEDDING;
        LAM_TRY(choose_type(m, &t, err));
    }
    return add(m, &t, err);
}

static lam_code read_vector(const struct lam_merging *m, const struct lam_slm_entry *e, uint32_t n, float **out, lam_error *err)
{
    *out = lam_alloc(n, sizeof **out);
    if (!*out) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u values", n);
    if (e) lam_decode_row(e->dtype, lam_slm_tensor_data(m->composition->base->model->file, e), n, *out);
    return LAM_OK;
}

/* A norm, or another vector that no adapter changes. */
static lam_code add_norm(struct lam_merging *m, enum lam_role role, uint32_t layer, lam_error *err)
{
    const struct lam_target *target;
    float offset = m->composition->base->model->config.norm_offset;
    struct lam_merge_tensor t = {.role = role, .layer = layer, .rows = 1};
    t.entry = find(m, role, layer, t.name);
    if (!t.entry) return LAM_OK;
    t.cols = t.entry->dims[0];
    t.dtype = t.wanted = t.entry->dtype;
    const struct lam_overlay_slot *slot = slot_of(m, t.name, &target);
    if (target && slot->vector) {
        LAM_TRY(read_vector(m, NULL, t.cols, &t.values, err));
        for (uint32_t i = 0; i < t.cols; i++) t.values[i] = slot->vector[i] - offset;
        t.dtype = LAM_F32;
    }
    return add(m, &t, err);
}

/* Whether a layer's matrix gets a bias that the base has not; then all layers get one (lam_arch_check_counts). */
static lam_code find_new_bias(const struct lam_merging *m, enum lam_role matrix, bool *needed, lam_error *err)
{
    const struct lam_model *model = m->composition->base->model;
    enum lam_role role = lam_role_bias(matrix);
    *needed = false;
    for (size_t i = 0; i < model->targets.n_items; i++) {
        const struct lam_target *target = &model->targets.items[i];
        const struct lam_overlay_slot *slot = lam_overlay_slot(m->overlay, target);
        char name[64];
        if (target->role != matrix || (!slot->shift && !slot->bias)) continue;
        *needed = true;
        if (!role || !lam_arch_find(model->config.arch, role))
            return LAM_RAISE(err, LAM_E_UNSUPPORTED, "module %s gets a bias, for which a %s has no place", target->name, model->config.arch->name);
        find(m, role, target->layer, name);
    }
    return LAM_OK;
}

static lam_code add_bias(struct lam_merging *m, enum lam_role matrix, uint32_t layer, bool needed, lam_error *err)
{
    const struct lam_target *target;
    struct lam_merge_tensor t = {.role = lam_role_bias(matrix), .layer = layer, .rows = 1};
    char name[64];
    if (!t.role) return LAM_OK;
    t.entry = find(m, t.role, layer, t.name);
    find(m, matrix, layer, name);
    const struct lam_overlay_slot *slot = slot_of(m, name, &target);
    if (!t.name[0] || !target || (!t.entry && !needed)) return LAM_OK;
    t.cols = target->rows;
    t.dtype = t.wanted = t.entry ? (enum lam_dtype)t.entry->dtype : LAM_F32;
    if (!t.entry || slot->bias || slot->shift) {
        LAM_TRY(read_vector(m, t.entry, t.cols, &t.values, err));
        for (uint32_t i = 0; i < t.cols; i++) {
            if (slot->bias) t.values[i] = slot->bias[i];
            if (slot->shift) t.values[i] = slot->shift[i] + t.values[i];
        }
        t.dtype = LAM_F32;
    }
    return add(m, &t, err);
}

static lam_code decide_tied(struct lam_merging *m, lam_error *err)
{
    const struct lam_model *model = m->composition->base->model;
    const struct lam_overlay_slot *embedding = lam_overlay_slot(m->overlay, model->embedding.target);
    const struct lam_target *head = lam_find_target(&model->targets, "output", strlen("output"));
    const struct lam_overlay_slot *output = lam_overlay_slot(m->overlay, head);
    m->tied = model->config.tied;
    if (!m->tied || (!is_changed(embedding) && !is_changed(output))) return LAM_OK;
    if (is_changed(embedding) && is_changed(output)) LAM_TRY(lam_merge_alike(m, embedding, output, &m->tied, err));
    else m->tied = false;
    return LAM_OK;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* All tensors, in the order of execution. */
static lam_code list_all(struct lam_merging *m, lam_error *err)
{
    static const enum lam_role matrices[] = {LAM_ROLE_Q, LAM_ROLE_K, LAM_ROLE_V, LAM_ROLE_O, LAM_ROLE_GATE, LAM_ROLE_UP, LAM_ROLE_DOWN};
    static const enum lam_role norms[] = {LAM_ROLE_ATTN_NORM, LAM_ROLE_Q_NORM, LAM_ROLE_K_NORM, LAM_ROLE_POST_ATTN_NORM, LAM_ROLE_FFN_NORM,
                                          LAM_ROLE_POST_FFN_NORM};
    bool needed[COUNT(matrices)], unused;
    LAM_TRY(decide_tied(m, err));
    for (size_t i = 0; i < COUNT(matrices); i++) LAM_TRY(find_new_bias(m, matrices[i], &needed[i], err));
    LAM_TRY(find_new_bias(m, LAM_ROLE_OUTPUT, &unused, err));
    LAM_TRY(add_matrix(m, LAM_ROLE_EMBEDDING, LAM_LAYER_NONE, err));
    LAM_TRY(add_norm(m, LAM_ROLE_ROPE_FACTORS, LAM_LAYER_NONE, err));
    for (uint32_t layer = 0; layer < m->composition->base->model->config.n_layers; layer++) {
        for (size_t i = 0; i < COUNT(norms); i++) LAM_TRY(add_norm(m, norms[i], layer, err));
        for (size_t i = 0; i < COUNT(matrices); i++) {
            LAM_TRY(add_matrix(m, matrices[i], layer, err));
            LAM_TRY(add_bias(m, matrices[i], layer, needed[i], err));
        }
    }
    LAM_TRY(add_norm(m, LAM_ROLE_OUTPUT_NORM, LAM_LAYER_NONE, err));
    return m->tied ? LAM_OK : add_matrix(m, LAM_ROLE_OUTPUT, LAM_LAYER_NONE, err);
}

static int compare_places(const void *a, const void *b)
{
    const struct lam_merge_tensor *x = a, *y = b;
    return x->place != y->place ? (x->place > y->place) - (x->place < y->place) : (x->number > y->number) - (x->number < y->number);
}

/* Tensors lie in the base's order, which its weights_root covers: where nothing is changed the digest is the base's. New ones follow the tensor that
 * they are computed after. */
lam_code lam_merge_list(struct lam_merging *m, lam_error *err)
{
    const struct lam_slm *file = m->composition->base->model->file;
    uint64_t place = 0;
    LAM_TRY(list_all(m, err));
    for (size_t i = 0; i < m->n; i++) {
        const struct lam_slm_entry *own = lam_slm_find(file, m->tensors[i].name);
        if (own) place = own->offset;
        m->tensors[i].place = place;
        m->tensors[i].number = i;
    }
    qsort(m->tensors, m->n, sizeof *m->tensors, compare_places);
    return LAM_OK;
}

/* ---- the report ---- */

static double part(double of, double whole) { return whole > 0.0 ? of / whole : 0.0; }

static json_t *tensor_json(const struct lam_merge_tensor *t)
{
    const struct lam_merge_sums *s = &t->sums;
    json_t *out = json_pack("{s:s,s:s}", "tensor", t->name, "type", lam_dtype_info(t->dtype)->name);
    int failed = 0;
    if (t->slot) {
        failed |= json_object_set_new(out, "relative_error", json_real(sqrt(part(s->error, s->exact))));
        failed |= json_object_set_new(out, "relative_change", json_real(sqrt(part(s->change, s->exact))));
        failed |= json_object_set_new(out, "error_to_change", json_real(sqrt(part(s->error, s->change))));
        failed |= json_object_set_new(out, "change_lost", json_real(s->change > 0.0 ? 1.0 - s->kept / s->change : 0.0));
        if (t->dtype != t->wanted) failed |= json_object_set_new(out, "wanted", json_string(lam_dtype_info(t->wanted)->name));
        if (t->matrix->residual.n) failed |= json_object_set_new(out, "residuals_dropped", json_integer(t->matrix->residual.n));
    }
    return lam_json_whole(out, failed);
}

json_t *lam_merge_report(const struct lam_merging *m)
{
    json_t *list = json_array();
    size_t n_copied = 0;
    int failed = 0;
    struct lam_merge_sums all = {0};
    for (size_t i = 0; i < m->n; i++) {
        const struct lam_merge_tensor *t = &m->tensors[i];
        if (!t->slot && !t->values) {
            n_copied++;
            continue;
        }
        failed |= json_array_append_new(list, tensor_json(t));
        all.exact += t->sums.exact, all.change += t->sums.change, all.error += t->sums.error, all.kept += t->sums.kept;
    }
    bool untied = m->composition->base->model->config.tied && !m->tied;
    list = lam_json_whole(list, failed);
    return json_pack("{s:s,s:s,s:s,s:o,s:I,s:b,s:f,s:f,s:f}", "base", m->composition->base->model->base_digest, "composition_id",
                     m->composition->id, "base_digest", m->base_digest, "tensors", list, "copied", (json_int_t)n_copied, "untied", untied,
                     "relative_error", sqrt(part(all.error, all.exact)), "error_to_change", sqrt(part(all.error, all.change)), "change_lost",
                     all.change > 0.0 ? 1.0 - all.kept / all.change : 0.0);
}
