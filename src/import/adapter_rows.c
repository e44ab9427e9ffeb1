/* The source's tensors in the order and the form of the base's file, and which of them only repeat it. */
#include "base/alloc.h"
#include "base/cursor.h"
#include "import/adapter_import.h"
#include "tensor/decode.h"
#include "tensor/tiles.h"

#include <string.h>

/* Rows of q and k follow the base's: GGUF's llama files hold the rows of a head pairwise, (0, d/2, 1, d/2 + 1, …),
 * Hugging Face's in the order 0, 1, 2, … (llama.cpp, convert_hf_to_gguf.py, LlamaModel.permute). */
static size_t source_row(const struct lam_adapter_import *import, enum lam_role role, size_t row)
{
    bool to_pairs = import->config.rope_interleaved;
    if (to_pairs == import->rows_interleaved || (role != LAM_ROLE_Q && role != LAM_ROLE_K)) return row;
    size_t d = import->config.head_dim, half = d / 2, in_head = row % d, first = row - in_head;
    return first + (to_pairs ? in_head % 2 * half + in_head / 2 : in_head % half * 2 + in_head / half);
}

/* What a norm's values differ by in the base's file: Hugging Face's files of Gemma hold w where GGUF's hold 1 + w. */
static float offset_of(const struct lam_adapter_import *import, const struct lam_import_module *m, enum lam_adapter_part part)
{
    return m->kind == LAM_MODULE_NORM && part == LAM_PART_WEIGHT ? import->norm_offset - import->config.norm_offset : 0.0f;
}

enum lam_dtype lam_part_dtype(const struct lam_adapter_import *import, const struct lam_import_module *m, enum lam_adapter_part part)
{
    return offset_of(import, m, part) != 0.0f ? LAM_F32 : m->parts[part].dtype;
}

void lam_part_size(const struct lam_import_module *m, enum lam_adapter_part part, uint32_t *rows, uint32_t *cols)
{
    const bool embedding = m->kind == LAM_MODULE_EMBEDDING;
    *rows = 1;
    *cols = m->d_out;
    switch (part) {
    case LAM_PART_A: *rows = embedding ? m->d_in : m->rank, *cols = embedding ? m->rank : m->d_in; break;
    case LAM_PART_B: *rows = m->d_out, *cols = m->rank; break;
    case LAM_PART_WEIGHT: *rows = embedding ? m->d_in : m->d_out, *cols = embedding ? m->d_out : m->d_in; break;
    case LAM_PART_IA3_INPUT: *cols = m->d_in; break;
    case LAM_PART_STARTS: case LAM_PART_COLUMNS: case LAM_PART_VALUES: *cols = (uint32_t)m->parts[part].cols; break;
    default: break;
    }
}

/* Elements of a column: the file holds A of an embedding as [n_vocab, rank], PEFT as [rank, n_vocab]. */
static void copy_column(const struct lam_part *p, size_t item, size_t column, size_t n, uint8_t *out)
{
    for (size_t k = 0; k < n; k++) memcpy(out + k * item, p->data + (k * (size_t)p->cols + column) * item, item);
}

static void add_offset(const struct lam_part *p, size_t n, float offset, uint8_t *out)
{
    size_t item = 0;
    lam_dtype_row_bytes(p->dtype, 1, &item);
    for (size_t i = 0; i < n; i++) {
        float value;
        uint32_t bits;
        lam_decode_row(p->dtype, p->data + i * item, 1, &value);
        value += offset;
        memcpy(&bits, &value, sizeof bits);
        lam_store_u32(out + 4 * i, bits);
    }
}

void lam_part_row(const struct lam_adapter_import *import, const struct lam_import_module *m, enum lam_adapter_part part, size_t row,
                  uint8_t *out)
{
    const struct lam_part *p = &m->parts[part];
    float offset = offset_of(import, m, part);
    uint32_t rows, cols;
    size_t item = 0;
    lam_part_size(m, part, &rows, &cols);
    lam_dtype_row_bytes(p->dtype, 1, &item);
    if (offset != 0.0f) {
        add_offset(p, cols, offset, out);
    } else if (part == LAM_PART_A && m->kind == LAM_MODULE_EMBEDDING && !p->by_column) {
        copy_column(p, item, row, cols, out);
    } else if (part == LAM_PART_BIAS || part == LAM_PART_MAGNITUDE || part == LAM_PART_B_BIAS || part == LAM_PART_IA3_OUTPUT) {
        for (size_t i = 0; i < cols; i++) memcpy(out + i * item, p->data + source_row(import, m->role, i) * item, item);
    } else {
        size_t from = part == LAM_PART_B || part == LAM_PART_WEIGHT ? source_row(import, m->role, row) : row;
        memcpy(out, p->data + from * cols * item, cols * item);
    }
}

/* Rows of a part and of the base's tensor side by side. */
struct comparison {
    const struct lam_slm_entry *entry;
    struct lam_residual residual;
    uint8_t *row;  /* owned */
    float *a, *b;  /* owned */
};

void lam_adapter_base_row(const struct lam_adapter_import *import, const struct lam_slm_entry *e, const struct lam_residual *residual,
                          size_t r, uint8_t *block, float *out)
{
    const uint8_t *data = lam_slm_tensor_data(import->base, e);
    size_t stride = 0;
    if (e->layout != LAM_LAYOUT_TILE16) {
        lam_decode_row(e->dtype, data, e->dims[0], out);
        return;
    }
    lam_tile_stride(e->dtype, e->dims[0], &stride);
    lam_untile_row(e->dtype, e->dims[0], data + r / LAM_TILE_ROWS * stride, r % LAM_TILE_ROWS, block);
    lam_decode_row(e->dtype, block, e->dims[0], out);
    lam_residual_add_row(residual, r, out);
}

static bool equals_base(const struct lam_adapter_import *import, const struct lam_import_module *m, struct comparison *c)
{
    const struct lam_slm_entry *e = c->entry;
    for (size_t r = 0; r < e->dims[1]; r++) {
        lam_adapter_base_row(import, e, &c->residual, r, c->row, c->a);
        lam_part_row(import, m, LAM_PART_WEIGHT, r, c->row);
        lam_decode_row(lam_part_dtype(import, m, LAM_PART_WEIGHT), c->row, e->dims[0], c->b);
        for (size_t i = 0; i < e->dims[0]; i++)
            if (c->a[i] != c->b[i]) return false;
    }
    return true;
}

const struct lam_slm_entry *lam_adapter_base_entry(const struct lam_adapter_import *import, const struct lam_import_module *m)
{
    char name[96];
    lam_part_tensor(m->name, LAM_PART_WEIGHT, name);
    if (m->kind == LAM_MODULE_HEAD && import->config.tied) return lam_slm_find(import->base, "token_embd.weight");
    return lam_slm_find(import->base, name);
}

static lam_code compare(const struct lam_adapter_import *import, const struct lam_import_module *m, bool *equal, lam_error *err)
{
    struct comparison c = {.entry = lam_adapter_base_entry(import, m)};
    size_t row_bytes = 0, own_bytes = 0;
    *equal = false;
    if (!c.entry) return LAM_OK;
    lam_dtype_row_bytes(c.entry->dtype, c.entry->dims[0], &row_bytes);
    lam_dtype_row_bytes(LAM_F32, c.entry->dims[0], &own_bytes);
    c.row = lam_alloc(row_bytes > own_bytes ? row_bytes : own_bytes, 1);
    c.a = lam_alloc(c.entry->dims[0], sizeof *c.a);
    c.b = lam_alloc(c.entry->dims[0], sizeof *c.b);
    lam_code code = c.row && c.a && c.b ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a row of %u", c.entry->dims[0]);
    if (code == LAM_OK && c.entry->layout == LAM_LAYOUT_TILE16) code = lam_slm_residual(import->base, c.entry, &c.residual, err);
    if (code == LAM_OK) *equal = equals_base(import, m, &c);
    lam_free(c.row);
    lam_free(c.a);
    lam_free(c.b);
    return code;
}

/* Whether the adapter has anything but whole tensors. */
static bool has_other_parts(const struct lam_adapter_import *import)
{
    for (size_t i = 0; i < import->n_modules; i++)
        for (int part = 0; part < LAM_N_PARTS; part++)
            if (part != LAM_PART_WEIGHT && import->modules[i].parts[part].tensor) return true;
    return false;
}

lam_code lam_adapter_drop_copies(struct lam_adapter_import *import, lam_error *err)
{
    bool others = has_other_parts(import);
    for (size_t i = 0; i < import->n_modules; i++) {
        struct lam_import_module *m = &import->modules[i];
        struct lam_part *p = &m->parts[LAM_PART_WEIGHT];
        bool equal;
        if (!p->tensor) continue;
        LAM_TRY(compare(import, m, &equal, err));
        if (!equal && !m->own_copy && !p->shared) lam_adapter_warn(import, "%.120s: takes the place of the base's", p->tensor);
        if (!equal || !others) continue;
        import->n_copies += !p->shared;
        *p = (struct lam_part){0};
    }
    return LAM_OK;
}
