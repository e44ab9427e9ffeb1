/* trainable_token_indices: PEFT keeps the new rows themselves and puts them in place of the base's (TrainableTokensLayer), in the order
 * of the list of tokens. Here a row is its difference to the base's decoded row, a sparse delta of that module. */
#include "base/alloc.h"
#include "base/cursor.h"
#include "import/adapter_import.h"
#include "tensor/decode.h"

#include <inttypes.h>
#include <string.h>

/* The new rows of one module. */
struct rows {
    struct lam_adapter_import *import;
    struct lam_import_module *module;
    struct lam_part source;  /* [n, width] */
    const json_t *tokens;    /* the token of each row */
    size_t n;
    uint32_t width;
    uint32_t *place;         /* owned, [n_vocab]: 1 + the row of a token, 0 where it has none */
    uint8_t *block;          /* owned: a row of the base's, as stored */
    float *row;              /* owned, [width] */
};

static lam_code no_memory(const struct rows *r, lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rows of tokens", r->n); }

/* Sets place. */
static lam_code check_tokens(struct rows *r, lam_error *err)
{
    struct lam_faults *f = &r->import->faults;
    const struct lam_part *p = &r->source;
    if (p->n_dims != 2 || p->rows != r->n || p->cols != r->width)
        return lam_faults_add(f, err, LAM_E_SHAPE, p->tensor, "is %" PRIu64 " by %" PRIu64 "; trainable_token_indices has %zu tokens of %u "
                              "values", p->rows, p->cols, r->n, r->width);
    for (size_t i = 0; i < r->n; i++) {
        json_int_t token = json_integer_value(json_array_get(r->tokens, i));
        if (token >= (json_int_t)r->import->config.n_vocab)
            return lam_faults_add(f, err, LAM_E_TOKENIZER, p->tensor, "is for token %lld; the base has %u tokens", (long long)token,
                                  r->import->config.n_vocab);
        if (r->place[token])
            return lam_faults_add(f, err, LAM_E_DUPLICATE, p->tensor, "has two rows for token %lld", (long long)token);
        r->place[token] = (uint32_t)i + 1;
    }
    return LAM_OK;
}

/* n values of 4 bytes that the import keeps until it ends. */
static uint8_t *keep(struct lam_adapter_import *import, size_t n)
{
    size_t i = 0;
    while (i + 1 < sizeof import->made / sizeof *import->made && import->made[i]) i++;
    return import->made[i] ? NULL : (import->made[i] = lam_alloc(n, 4));
}

static void store_float(uint8_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    lam_store_u32(at, bits);
}

static void fill_row(const struct rows *r, const struct lam_slm_entry *e, const struct lam_residual *residual, uint32_t token,
                     uint8_t *columns, uint8_t *values)
{
    size_t row_bytes = 0, item = 0;
    lam_dtype_row_bytes(r->source.dtype, r->width, &row_bytes);
    lam_dtype_row_bytes(r->source.dtype, 1, &item);
    const uint8_t *fresh = r->source.data + (r->place[token] - 1) * row_bytes;
    lam_adapter_base_row(r->import, e, residual, token, r->block, r->row);
    for (uint32_t c = 0; c < r->width; c++) {
        float value;
        lam_decode_row(r->source.dtype, fresh + c * item, 1, &value);
        lam_store_u32(columns + 4 * c, c);
        store_float(values + 4 * c, value - r->row[c]);
    }
}

static void set_part(const struct rows *r, enum lam_adapter_part part, enum lam_dtype dtype, const uint8_t *data, size_t n)
{
    r->module->parts[part] = (struct lam_part){.tensor = r->source.tensor, .dtype = dtype, .n_dims = 1, .rows = 1, .cols = n, .data = data,
                                               .shared = part != LAM_PART_VALUES || r->source.shared};
}

static lam_code make_delta(struct rows *r, lam_error *err)
{
    const struct lam_slm_entry *e = lam_adapter_base_entry(r->import, r->module);
    struct lam_residual residual;
    uint32_t n_vocab = r->import->config.n_vocab, at = 0;
    size_t n = r->n * r->width, row_bytes = 0;
    if (!e) return LAM_RAISE(err, LAM_E_MISSING_TENSOR, "%s is not in the base", r->module->name);
    LAM_TRY(lam_slm_residual(r->import->base, e, &residual, err));
    lam_dtype_row_bytes(e->dtype, e->dims[0], &row_bytes);
    uint8_t *starts = keep(r->import, (size_t)n_vocab + 1), *columns = keep(r->import, n), *values = keep(r->import, n);
    r->block = lam_alloc(row_bytes, 1);
    r->row = lam_alloc(r->width, sizeof *r->row);
    if (!starts || !columns || !values || !r->block || !r->row) return no_memory(r, err);
    for (uint32_t token = 0; token < n_vocab; token++) {
        if (r->place[token]) {
            fill_row(r, e, &residual, token, columns + 4 * (size_t)at, values + 4 * (size_t)at);
            at += r->width;
        }
        lam_store_u32(starts + 4 * ((size_t)token + 1), at);
    }
    set_part(r, LAM_PART_STARTS, LAM_I32, starts, (size_t)n_vocab + 1);
    set_part(r, LAM_PART_COLUMNS, LAM_I32, columns, n);
    set_part(r, LAM_PART_VALUES, LAM_F32, values, n);
    return LAM_OK;
}

static lam_code take_rows(struct lam_adapter_import *import, struct lam_import_module *m, const struct lam_part *source,
                          const json_t *tokens, lam_error *err)
{
    struct rows r = {.import = import, .module = m, .source = *source, .tokens = tokens, .n = json_array_size(tokens),
                     .width = import->config.d_model};
    size_t before = import->faults.n;
    m->parts[LAM_PART_VALUES] = *source; /* until it is made */
    if (r.n > UINT32_MAX / r.width / 4)
        return lam_faults_add(&import->faults, err, LAM_E_LIMIT, source->tensor, "%zu tokens of %u values", r.n, r.width);
    r.place = lam_alloc(import->config.n_vocab, sizeof *r.place);
    lam_code code = r.place ? check_tokens(&r, err) : no_memory(&r, err);
    if (code == LAM_OK && import->faults.n == before) code = make_delta(&r, err);
    lam_free(r.place);
    lam_free(r.block);
    lam_free(r.row);
    return code;
}

/* The list of a module: of all for the embedding, or the one whose name the module's ends with, as PEFT compares them. */
static const json_t *list_of(const json_t *indices, const struct lam_import_module *m)
{
    const char *name;
    json_t *list;
    size_t n = strlen(m->hf_name);
    if (json_is_array(indices)) return m->kind == LAM_MODULE_EMBEDDING ? indices : NULL;
    json_object_foreach((json_t *)indices, name, list) {
        size_t len = strlen(name);
        if (len <= n && strcmp(m->hf_name + n - len, name) == 0) return list;
    }
    return NULL;
}

/* Names of the configuration that are neither of the two. */
static lam_code check_names(struct lam_adapter_import *import, const json_t *indices, const struct lam_import_module *const modules[2],
                            lam_error *err)
{
    const char *name;
    json_t *list;
    if (!json_is_object(indices)) return LAM_OK;
    json_object_foreach((json_t *)indices, name, list) {
        bool known = false;
        for (int i = 0; i < 2; i++) known = known || (modules[i] && list_of(indices, modules[i]) == list);
        if (!known) LAM_TRY(lam_faults_add(&import->faults, err, LAM_E_METHOD, name, "trainable_token_indices of a module that is neither the "
                                           "embedding nor the head"));
    }
    return LAM_OK;
}

static lam_code refuse_rows(struct lam_adapter_import *import, const struct lam_import_module *m, lam_error *err)
{
    if (!m || !m->parts[LAM_PART_VALUES].tensor) return LAM_OK;
    return lam_faults_add(&import->faults, err, LAM_E_METHOD, m->parts[LAM_PART_VALUES].tensor,
                          "belongs to trainable_token_indices, which adapter_config.json does not set for it");
}

/* Another change of the same matrix: a module has one method. */
static bool is_taken(const struct lam_import_module *m)
{
    return lam_adapter_has_factor(m) || m->parts[LAM_PART_WEIGHT].tensor || m->parts[LAM_PART_IA3_OUTPUT].tensor ||
           m->parts[LAM_PART_IA3_INPUT].tensor;
}

static lam_code take_module(struct lam_adapter_import *import, struct lam_import_module *m, const struct lam_part *source,
                            const json_t *tokens, lam_error *err)
{
    if (!source->tensor)
        return lam_faults_add(&import->faults, err, LAM_E_UNMATCHED, m->hf_name, "trainable_token_indices means it, and it has no tensors");
    if (is_taken(m))
        return lam_faults_add(&import->faults, err, LAM_E_METHOD, m->hf_name, "trainable_token_indices together with another change of it; "
                              "Lamina does not support that");
    return take_rows(import, m, source, tokens, err);
}

/* The embedding's rows in a tied base's head, too: PEFT ties the two unless the configuration lists other tokens for the head. */
static bool ties_head(const struct lam_adapter_import *import, const struct lam_import_module *head, const json_t *of_embedding,
                      const json_t *of_head)
{
    return import->config.tied && of_embedding && !head->parts[LAM_PART_VALUES].tensor &&
           (!of_head || json_equal((json_t *)of_head, (json_t *)of_embedding));
}

lam_code lam_adapter_take_tokens(struct lam_adapter_import *import, const json_t *indices, lam_error *err)
{
    struct lam_import_module *embedding = lam_adapter_find_kind(import, LAM_MODULE_EMBEDDING);
    struct lam_import_module *head = lam_adapter_find_kind(import, LAM_MODULE_HEAD);
    if (!embedding || !head) return LAM_OK; /* every architecture has both */
    const struct lam_import_module *both[2] = {embedding, head};
    const json_t *of_embedding = indices ? list_of(indices, embedding) : NULL, *of_head = indices ? list_of(indices, head) : NULL;
    if (indices) LAM_TRY(check_names(import, indices, both, err));
    struct lam_part rows = embedding->parts[LAM_PART_VALUES], own = head->parts[LAM_PART_VALUES], tied = rows;
    bool ties = rows.tensor && ties_head(import, head, of_embedding, of_head);
    tied.shared = true;
    LAM_TRY(of_embedding ? take_module(import, embedding, &rows, of_embedding, err) : refuse_rows(import, embedding, err));
    if (ties) return take_module(import, head, &tied, of_embedding, err);
    return of_head ? take_module(import, head, &own, of_head, err) : refuse_rows(import, head, err);
}
