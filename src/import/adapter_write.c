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
    const struct lam_part *part; /* NULL: zeros, for the factors of a module that only has a new bias */
    enum lam_adapter_part what;
    uint32_t rows, cols;
    size_t item; /* bytes of an element */
};

struct adapter_writer {
    const struct lam_adapter_import *import;
    struct written *tensors; /* owned */
    size_t n_tensors;
    struct lam_slm_out *out;
    struct lam_progress progress;
};

/* B and biases of q and k follow the base's rows: GGUF's llama files hold the rows of a head pairwise, (0, d/2, 1, d/2 + 1, …),
 * Hugging Face's in the order 0, 1, 2, … (llama.cpp, convert_hf_to_gguf.py, LlamaModel.permute). */
static uint32_t source_row(const struct lam_adapter_import *import, enum lam_role role, uint32_t row)
{
    bool to_pairs = import->config.rope_interleaved;
    if (to_pairs == import->rows_interleaved || (role != LAM_ROLE_Q && role != LAM_ROLE_K)) return row;
    uint32_t d = import->config.head_dim, half = d / 2, in_head = row % d, first = row - in_head;
    return first + (to_pairs ? in_head % 2 * half + in_head / 2 : in_head % half * 2 + in_head / half);
}

/* Elements of A of an embedding: the file holds [n_vocab, rank], PEFT [rank, n_vocab]. */
static void copy_turned_row(const struct written *t, size_t row, uint8_t *out)
{
    for (size_t k = 0; k < t->cols; k++)
        memcpy(out + k * t->item, t->part->data + (k * (size_t)t->part->cols + row) * t->item, t->item);
}

static void copy_row(const struct adapter_writer *w, const struct written *t, size_t row, uint8_t *out)
{
    size_t row_bytes = t->cols * t->item;
    enum lam_role role = t->module->role;
    if (!t->part) {
        memset(out, 0, row_bytes);
    } else if (t->what == LAM_PART_A && role == LAM_ROLE_EMBEDDING && !t->part->by_column) {
        copy_turned_row(t, row, out);
    } else if (t->what == LAM_PART_BIAS) {
        for (uint32_t i = 0; i < t->cols; i++)
            memcpy(out + i * t->item, t->part->data + source_row(w->import, role, i) * t->item, t->item);
    } else {
        size_t from = t->what == LAM_PART_B ? source_row(w->import, role, (uint32_t)row) : row;
        memcpy(out, t->part->data + from * row_bytes, row_bytes);
    }
}

/* See lam_slm_fill_fn. */
static lam_code fill(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    struct adapter_writer *w = context;
    const struct written *t = &w->tensors[index];
    size_t row_bytes = t->cols * t->item, first = (size_t)(offset / row_bytes);
    for (size_t i = 0; i < bytes / row_bytes; i++) copy_row(w, t, first + i, buffer + i * row_bytes);
    return lam_progress_add(&w->progress, bytes, err);
}

static lam_code declare(struct adapter_writer *w, const struct lam_import_module *m, enum lam_adapter_part what, lam_error *err)
{
    static const char *const endings[] = {NULL, "lora_a", "lora_b", "bias"};
    const struct lam_part *part = what == LAM_PART_A ? &m->a : what == LAM_PART_B ? &m->b : &m->bias;
    struct written *t = &w->tensors[w->n_tensors++];
    *t = (struct written){.module = m, .part = part->tensor ? part : NULL, .what = what};
    enum lam_dtype dtype = part->tensor ? part->dtype : m->bias.dtype;
    t->rows = what == LAM_PART_A ? m->rank : what == LAM_PART_B ? m->d_out : 1;
    t->cols = what == LAM_PART_A ? m->d_in : what == LAM_PART_B ? m->rank : m->d_out;
    if (what == LAM_PART_A && m->kind == LAM_MODULE_EMBEDDING) t->rows = m->d_in, t->cols = m->rank;
    lam_dtype_row_bytes(dtype, 1, &t->item);
    char name[48];
    snprintf(name, sizeof name, "%s.%s", m->name, endings[what]);
    struct lam_slm_decl decl = {.name = name, .dtype = dtype, .n_dims = what == LAM_PART_BIAS ? 1 : 2,
                                .dims = {t->cols, t->rows, 1, 1}, .layout = LAM_LAYOUT_PLAIN, .layer = (uint16_t)m->layer,
                                .role = (uint32_t)m->role | (uint32_t)what << 16};
    w->progress.total += (uint64_t)t->rows * t->cols * t->item;
    return lam_slm_out_tensor(w->out, &decl, err);
}

static bool is_changed(const struct lam_import_module *m) { return m->a.tensor || m->bias.tensor; }

/* A module that only has a new bias gets factors of zeros, of rank 1: the file knows no module without factors. */
static lam_code declare_all(struct adapter_writer *w, lam_error *err)
{
    const struct lam_adapter_import *import = w->import;
    for (size_t i = 0; i < import->n_modules; i++) {
        struct lam_import_module *m = &import->modules[i];
        if (!is_changed(m)) continue;
        if (!m->a.tensor) m->rank = 1, m->alpha = 1.0, m->rank_stabilised = false;
        LAM_TRY(declare(w, m, LAM_PART_A, err));
        LAM_TRY(declare(w, m, LAM_PART_B, err));
        if (m->bias.tensor) LAM_TRY(declare(w, m, LAM_PART_BIAS, err));
    }
    return LAM_OK;
}

static json_t *modules_json(const struct lam_adapter_import *import)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < import->n_modules; i++) {
        const struct lam_import_module *m = import->by_name[i];
        if (!is_changed(m)) continue;
        json_t *item = json_pack("{s:s,s:I,s:f,s:s}", "name", m->name, "rank", (json_int_t)m->rank, "alpha", m->alpha, "scaling",
                                 m->rank_stabilised ? "alpha/sqrt(r)" : "alpha/r");
        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static lam_code make_metadata(const struct lam_adapter_import *import, json_t **out, lam_error *err)
{
    char base[LAM_DIGEST_TEXT];
    LAM_TRY(lam_base_digest(import->base, base, err));
    *out = json_pack("{s:s,s:s,s:[s],s:o,s:O}", "method", "lora", "name", import->name, "bases", base, "modules",
                     modules_json(import), "source", import->source);
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's metadata");
}

static bool is_zero(const struct lam_part *p)
{
    size_t item = 0;
    lam_dtype_row_bytes(p->dtype, 1, &item);
    for (uint64_t i = 0; i < p->rows * p->cols; i++) {
        float value;
        lam_decode_row(p->dtype, p->data + i * item, 1, &value);
        if (value != 0.0f) return false;
    }
    return true;
}

static void count(struct lam_adapter_import *import)
{
    struct lam_adapter_report *r = import->report;
    r->n_tensors = r->n_applied = import->n_copies;
    for (size_t i = 0; i < import->n_modules; i++) {
        const struct lam_import_module *m = &import->modules[i];
        if (!is_changed(m)) continue;
        r->n_modules++;
        r->n_applied += (m->a.tensor ? 2u : 0u) + (m->bias.tensor ? 1u : 0u);
        if (m->b.tensor && is_zero(&m->b)) r->n_no_effect++;
    }
    r->n_tensors = r->n_applied;
}

static lam_code write_all(struct adapter_writer *w, json_t **metadata, const char *out_path, const struct lam_import_options *options,
                          lam_error *err)
{
    uint64_t bytes;
    LAM_TRY(lam_slm_out_new(LAM_SLM_ADAPTER, 0, &w->out, err));
    w->tensors = lam_alloc(3 * w->import->n_modules, sizeof *w->tensors);
    if (!w->tensors) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu modules", w->import->n_modules);
    LAM_TRY(declare_all(w, err));
    LAM_TRY(make_metadata(w->import, metadata, err));
    lam_slm_out_metadata(w->out, *metadata);
    LAM_TRY(lam_slm_out_size(w->out, &bytes, err));
    LAM_TRY(lam_check_room(out_path, bytes, options, err));
    LAM_TRY(lam_progress_add(&w->progress, 0, err));
    return lam_slm_out_write(w->out, out_path, fill, w, NULL, err);
}

static lam_code digest_of(const char *path, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_slm *s;
    LAM_TRY(lam_slm_open(path, &s, err));
    lam_code code = lam_adapter_digest(s, out, err);
    lam_slm_close(s);
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
    code = digest_of(out_path, import->report->digest, err);
    if (code != LAM_OK) lam_remove_file(out_path, NULL);
    return code;
}
