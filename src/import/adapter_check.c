/* What an adapter's tensors must be to one another and to the base. All of it is looked at: one fault a tensor or pair. */
#include "import/adapter_import.h"
#include "tensor/decode.h"

#include <inttypes.h>
#include <string.h>

#define SHAPE "[%" PRIu64 ", %" PRIu64 "]"

/* Pairs without their other half. */
static lam_code check_pairs(struct lam_adapter_import *import, lam_error *err)
{
    struct lam_names lonely = {0};
    lam_code code = LAM_OK;
    for (size_t i = 0; i < import->n_modules && code == LAM_OK; i++) {
        const struct lam_part *a = &import->modules[i].parts[LAM_PART_A], *b = &import->modules[i].parts[LAM_PART_B];
        if (!a->tensor != !b->tensor) code = lam_names_add(&lonely, a->tensor ? a->tensor : b->tensor, err);
    }
    if (code == LAM_OK)
        code = lam_names_fault(&lonely, &import->faults, LAM_E_MISSING_PAIR, "tensors whose other factor is missing",
                               "its other factor is missing", err);
    lam_names_release(&lonely);
    return code;
}

/* A factor's shape when it is read as it should be, or the other way round. */
struct reading {
    uint64_t a_rank, a_in, b_out, b_rank;
};

static struct reading read_shapes(const struct lam_import_module *m, bool a_turned, bool b_turned)
{
    const struct lam_part *a = &m->parts[LAM_PART_A], *b = &m->parts[LAM_PART_B];
    if (a->by_column) a_turned = !a_turned;
    struct reading r = {a->rows, a->cols, b->rows, b->cols};
    if (a_turned) r.a_rank = a->cols, r.a_in = a->rows;
    if (b_turned) r.b_out = b->cols, r.b_rank = b->rows;
    return r;
}

static bool fits(const struct lam_import_module *m, struct reading r)
{
    return r.a_in == m->d_in && r.b_out == m->d_out && r.a_rank == r.b_rank;
}

/* Factors of other widths than the module's, however they are read. */
static bool has_other_shape(const struct lam_import_module *m)
{
    const struct lam_part *a = &m->parts[LAM_PART_A], *b = &m->parts[LAM_PART_B];
    if (!a->tensor || !b->tensor || a->n_dims != 2 || b->n_dims != 2) return false;
    for (int turned = 0; turned < 4; turned++) {
        struct reading r = read_shapes(m, turned & 1, turned & 2);
        if (fits(m, r) || (turned == 0 && r.a_in == m->d_in && r.b_out == m->d_out)) return false;
    }
    return true;
}

/* How many of the modules with factors these are, for the error that the first one raises. */
static lam_code fault_other_shape(struct lam_adapter_import *import, const struct lam_import_module *m, struct reading r, lam_error *err)
{
    const char *tensor = m->parts[LAM_PART_A].tensor;
    size_t n = 0, n_modules = 0;
    bool first = import->faults.n == 0;
    LAM_TRY(lam_faults_add(&import->faults, err, LAM_E_SHAPE, tensor, "factors A " SHAPE " and B " SHAPE "; %s takes A [rank, %u] and "
                           "B [%u, rank]", r.a_rank, r.a_in, r.b_out, r.b_rank, m->name, m->d_in, m->d_out));
    if (!first) return LAM_OK;
    for (size_t i = 0; i < import->n_modules; i++) {
        n_modules += lam_adapter_has_factor(&import->modules[i]);
        n += has_other_shape(&import->modules[i]);
    }
    LAM_RAISE(&import->faults.first, LAM_E_SHAPE, "made for another model: %zu of its %zu modules have other shapes than the base's. "
              "%.150s: factors A " SHAPE " and B " SHAPE "; %s takes A [rank, %u] and B [%u, rank]", n, n_modules, tensor, r.a_rank, r.a_in,
              r.b_out, r.b_rank, m->name, m->d_in, m->d_out);
    return LAM_OK;
}

/* The shapes do not fit as they should: says why. */
static lam_code fault_shape(struct lam_adapter_import *import, const struct lam_import_module *m, struct reading r, lam_error *err)
{
    struct lam_faults *f = &import->faults;
    const char *tensor = m->parts[LAM_PART_A].tensor;
    static const char *const which[] = {NULL, ", of which A is", ", of which B is", " are"};
    for (int turned = 1; turned < 4; turned++)
        if (fits(m, read_shapes(m, turned & 1, turned & 2)))
            return lam_faults_add(f, err, turned == 2 ? LAM_E_TRANSPOSED_B : LAM_E_TRANSPOSED, tensor, "factors A " SHAPE " and B " SHAPE "%s "
                                  "transposed; %s takes A [rank, %u] and B [%u, rank]", r.a_rank, r.a_in, r.b_out, r.b_rank, which[turned],
                                  m->name, m->d_in, m->d_out);
    bool other_vocabulary = (m->kind == LAM_MODULE_EMBEDDING && r.a_in != m->d_in && r.b_out == m->d_out) ||
                            (m->kind == LAM_MODULE_HEAD && r.b_out != m->d_out && r.a_in == m->d_in);
    if (other_vocabulary && r.a_rank == r.b_rank)
        return lam_faults_add(f, err, LAM_E_TOKENIZER, tensor, "made for a vocabulary of %" PRIu64 " tokens, the base has %u",
                              m->kind == LAM_MODULE_EMBEDDING ? r.a_in : r.b_out, m->kind == LAM_MODULE_EMBEDDING ? m->d_in : m->d_out);
    if (r.a_in == m->d_in && r.b_out == m->d_out)
        return lam_faults_add(f, err, LAM_E_RANK, tensor, "A has rank %" PRIu64 ", B has rank %" PRIu64, r.a_rank, r.b_rank);
    return fault_other_shape(import, m, r, err);
}

/* A pair is ambiguous only if both factors are square: one that is not tells how both lie, having come from one program. */
static lam_code check_factors(struct lam_adapter_import *import, struct lam_import_module *m, lam_error *err)
{
    const struct lam_part *parts[] = {&m->parts[LAM_PART_A], &m->parts[LAM_PART_B]};
    struct lam_faults *f = &import->faults;
    const char *tensor = parts[0]->tensor;
    for (int i = 0; i < 2; i++) {
        if (!parts[i]->tensor) return LAM_OK; /* said by check_pairs */
        if (parts[i]->n_dims != 2)
            return lam_faults_add(f, err, LAM_E_SHAPE, parts[i]->tensor, "has %u dimensions, a factor has 2", parts[i]->n_dims);
        if (parts[i]->rows == 0 || parts[i]->cols == 0)
            return lam_faults_add(f, err, LAM_E_RANK, parts[i]->tensor, "is " SHAPE ": rank 0", parts[i]->rows, parts[i]->cols);
    }
    struct reading r = read_shapes(m, false, false);
    if (!fits(m, r)) return fault_shape(import, m, r, err);
    if (m->rank && m->rank != r.a_rank)
        return lam_faults_add(f, err, LAM_E_RANK, tensor, "rank %" PRIu64 ", the configuration says %u", r.a_rank, m->rank);
    if (r.a_rank == m->d_in && r.a_rank == m->d_out)
        return lam_faults_add(f, err, LAM_E_AMBIGUOUS, tensor, "both factors are square (%u), so nothing tells whether they are transposed",
                              m->d_in);
    if (r.a_rank > INT32_MAX) return lam_faults_add(f, err, LAM_E_LIMIT, tensor, "rank %" PRIu64, r.a_rank);
    m->rank = (uint32_t)r.a_rank;
    return LAM_OK;
}

/* A vector of n, stored with one dimension. */
static lam_code check_vector(struct lam_adapter_import *import, const struct lam_import_module *m, enum lam_adapter_part part, uint32_t n,
                             lam_error *err)
{
    const struct lam_part *p = &m->parts[part];
    if (!p->tensor || (p->n_dims == 1 && p->cols == n)) return LAM_OK;
    return lam_faults_add(&import->faults, err, LAM_E_SHAPE, p->tensor, "is %" PRIu64 " by %" PRIu64 "; the %s of %s takes %u", p->rows,
                          p->cols, part == LAM_PART_BIAS ? "bias" : part == LAM_PART_MAGNITUDE ? "magnitude" : "bias of B", m->name, n);
}

static lam_code check_bias(struct lam_adapter_import *import, const struct lam_import_module *m, lam_error *err)
{
    const struct lam_part *p = &m->parts[LAM_PART_BIAS];
    if (!p->tensor || m->has_bias) return check_vector(import, m, LAM_PART_BIAS, m->d_out, err);
    return lam_faults_add(&import->faults, err, LAM_E_UNMATCHED, p->tensor, "%s of the base has no bias", m->name);
}

/* PEFT's vector of a module is [d_out, 1], or [1, d_in] of one in feedforward_modules. */
static lam_code check_ia3(struct lam_adapter_import *import, const struct lam_import_module *m, enum lam_adapter_part part, lam_error *err)
{
    const struct lam_part *p = &m->parts[part];
    bool input = part == LAM_PART_IA3_INPUT;
    uint64_t rows = input ? 1 : m->d_out, cols = input ? m->d_in : 1;
    if (!p->tensor || (p->n_dims == 2 && p->rows == rows && p->cols == cols)) return LAM_OK;
    bool other = p->n_dims == 2 && (input ? p->cols == 1 && p->rows == m->d_out : p->rows == 1 && p->cols == m->d_in);
    if (other)
        return lam_faults_add(&import->faults, err, LAM_E_TRANSPOSED, p->tensor, "is " SHAPE " and scales what %s %s; feedforward_modules "
                              "says that it scales what %s", p->rows, p->cols, input ? "comes out of" : "goes into", m->name,
                              input ? "goes in" : "comes out");
    return lam_faults_add(&import->faults, err, LAM_E_SHAPE, p->tensor, "is " SHAPE "; %s takes " SHAPE, p->rows, p->cols, m->name, rows,
                          cols);
}

/* A whole matrix or norm. */
static lam_code check_weight(struct lam_adapter_import *import, const struct lam_import_module *m, lam_error *err)
{
    const struct lam_part *p = &m->parts[LAM_PART_WEIGHT];
    struct lam_faults *f = &import->faults;
    bool vocabulary = m->kind == LAM_MODULE_EMBEDDING || m->kind == LAM_MODULE_HEAD;
    uint32_t rows, cols;
    lam_part_size(m, LAM_PART_WEIGHT, &rows, &cols);
    if (!p->tensor || p->shared) return LAM_OK;
    if (p->n_dims == (m->kind == LAM_MODULE_NORM ? 1 : 2) && p->rows == rows && p->cols == cols) return LAM_OK;
    if (vocabulary && p->n_dims == 2 && p->cols == cols)
        return lam_faults_add(f, err, LAM_E_TOKENIZER, p->tensor, "has %" PRIu64 " rows, the base has %u tokens", p->rows, rows);
    if (m->kind != LAM_MODULE_NORM && p->n_dims == 2 && p->rows == cols && p->cols == rows)
        return lam_faults_add(f, err, LAM_E_TRANSPOSED, p->tensor, "is " SHAPE "; %s takes [%u, %u]", p->rows, p->cols, m->name, rows,
                              cols);
    if (p->n_dims > 2) return lam_faults_add(f, err, LAM_E_SHAPE, p->tensor, "has %u dimensions", p->n_dims);
    return lam_faults_add(f, err, LAM_E_SHAPE, p->tensor, "is " SHAPE "; %s takes [%u, %u]", p->rows, p->cols, m->name, rows, cols);
}

static lam_code check_finite(struct lam_adapter_import *import, const struct lam_part *p, lam_error *err)
{
    size_t row_bytes = 0;
    if (!p->tensor || p->dtype == LAM_I32 || p->shared || p->cols == 0) return LAM_OK;
    lam_dtype_row_bytes(p->dtype, p->cols, &row_bytes);
    size_t item = row_bytes / (size_t)p->cols;
    for (uint64_t row = 0; row < p->rows; row++) {
        const uint8_t *at = p->data + row * row_bytes;
        if (lam_row_is_finite(p->dtype, at, (size_t)p->cols)) continue;
        size_t i = 0;
        while (i + 1 < p->cols && lam_row_is_finite(p->dtype, at + i * item, 1)) i++;
        return lam_faults_add(&import->faults, err, LAM_E_NON_FINITE, p->tensor,
                              "element %" PRIu64 " (row %" PRIu64 ", column %zu) is NaN or infinite", row * p->cols + i, row, i);
    }
    return LAM_OK;
}

static lam_code check_module(struct lam_adapter_import *import, struct lam_import_module *m, lam_error *err)
{
    LAM_TRY(check_factors(import, m, err));
    LAM_TRY(check_bias(import, m, err));
    LAM_TRY(check_vector(import, m, LAM_PART_MAGNITUDE, m->d_out, err));
    LAM_TRY(check_vector(import, m, LAM_PART_B_BIAS, m->d_out, err));
    LAM_TRY(check_ia3(import, m, LAM_PART_IA3_OUTPUT, err));
    LAM_TRY(check_ia3(import, m, LAM_PART_IA3_INPUT, err));
    return check_weight(import, m, err);
}

static lam_code check_invocation(struct lam_adapter_import *import, lam_error *err)
{
    for (size_t i = 0; i < import->n_invocation; i++)
        if (import->invocation[i] >= import->config.n_vocab)
            return lam_faults_add(&import->faults, err, LAM_E_TOKENIZER, "the invocation", "token %u (number %zu); the base has %u tokens",
                                  import->invocation[i], i, import->config.n_vocab);
    return LAM_OK;
}

lam_code lam_adapter_check(struct lam_adapter_import *import, lam_error *err)
{
    size_t n_changed = 0;
    LAM_TRY(check_invocation(import, err));
    LAM_TRY(check_pairs(import, err));
    for (size_t i = 0; i < import->n_modules; i++) {
        LAM_TRY(check_module(import, &import->modules[i], err));
        n_changed += lam_adapter_is_changed(&import->modules[i]);
    }
    if (n_changed == 0 && import->faults.n == 0)
        LAM_TRY(lam_faults_add(&import->faults, err, LAM_E_UNMATCHED, "the adapter", "changes no module of the base"));
    for (size_t i = 0; i < import->n_modules; i++)
        for (int part = 0; part < LAM_N_PARTS; part++) LAM_TRY(check_finite(import, &import->modules[i].parts[part], err));
    return LAM_OK;
}
