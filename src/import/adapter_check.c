/* What an adapter's tensors must be to one another and to the base. */
#include "import/adapter_import.h"
#include "tensor/decode.h"

#include <inttypes.h>
#include <string.h>

#define SHAPE "[%" PRIu64 ", %" PRIu64 "]"

static bool has_factor(const struct lam_import_module *m) { return m->a.tensor || m->b.tensor; }

/* Pairs without their other half, all of them in one message. */
static lam_code check_pairs(const struct lam_adapter_import *import, lam_error *err)
{
    struct lam_names lonely = {0};
    lam_code code = LAM_OK;
    for (size_t i = 0; i < import->n_modules && code == LAM_OK; i++) {
        const struct lam_import_module *m = &import->modules[i];
        if (!m->a.tensor != !m->b.tensor) code = lam_names_add(&lonely, m->a.tensor ? m->a.tensor : m->b.tensor, err);
    }
    if (code == LAM_OK && lonely.n)
        code = lam_names_raise(import, &lonely, LAM_E_MISSING_PAIR, "tensors whose other factor is missing", err);
    lam_names_release(&lonely);
    return code;
}

/* A factor's shape when it is read as it should be, or the other way round. */
struct reading {
    uint64_t a_rank, a_in, b_out, b_rank;
};

static struct reading read_shapes(const struct lam_import_module *m, bool a_turned, bool b_turned)
{
    if (m->a.by_column) a_turned = !a_turned;
    struct reading r = {m->a.rows, m->a.cols, m->b.rows, m->b.cols};
    if (a_turned) r.a_rank = m->a.cols, r.a_in = m->a.rows;
    if (b_turned) r.b_out = m->b.cols, r.b_rank = m->b.rows;
    return r;
}

static bool fits(const struct lam_import_module *m, struct reading r)
{
    return r.a_in == m->d_in && r.b_out == m->d_out && r.a_rank == r.b_rank;
}

/* Factors of other widths than the module's, however they are read. */
static bool has_other_shape(const struct lam_import_module *m)
{
    if (m->a.n_dims != 2 || m->b.n_dims != 2) return false;
    for (int turned = 0; turned < 4; turned++) {
        struct reading r = read_shapes(m, turned & 1, turned & 2);
        if (fits(m, r) || (turned == 0 && r.a_in == m->d_in && r.b_out == m->d_out)) return false;
    }
    return true;
}

/* Says for how many modules this is so, and shows m. */
static lam_code raise_other_shape(const struct lam_adapter_import *import, const struct lam_import_module *m, struct reading r, lam_error *err)
{
    size_t n = 0, n_modules = 0;
    for (size_t i = 0; i < import->n_modules; i++) {
        n_modules += has_factor(&import->modules[i]);
        n += has_factor(&import->modules[i]) && has_other_shape(&import->modules[i]);
    }
    return LAM_RAISE(err, LAM_E_SHAPE, "made for another model: %zu of its %zu modules have other shapes than the base's. %.150s: "
                     "factors A " SHAPE " and B " SHAPE "; %s takes A [rank, %u] and B [%u, rank]", n, n_modules, m->a.tensor, r.a_rank,
                     r.a_in, r.b_out, r.b_rank, m->name, m->d_in, m->d_out);
}

/* The shapes do not fit as they should: says why. */
static lam_code raise_shape(const struct lam_adapter_import *import, const struct lam_import_module *m, struct reading r, lam_error *err)
{
    for (int turned = 1; turned < 4; turned++)
        if (fits(m, read_shapes(m, turned & 1, turned & 2)))
            return LAM_RAISE(err, LAM_E_TRANSPOSED, "%.150s: factors A " SHAPE " and B " SHAPE " are transposed; %s takes "
                             "A [rank, %u] and B [%u, rank]", m->a.tensor, r.a_rank, r.a_in, r.b_out, r.b_rank, m->name, m->d_in, m->d_out);
    bool other_vocabulary = (m->kind == LAM_MODULE_EMBEDDING && r.a_in != m->d_in && r.b_out == m->d_out) ||
                            (m->kind == LAM_MODULE_HEAD && r.b_out != m->d_out && r.a_in == m->d_in);
    if (other_vocabulary && r.a_rank == r.b_rank)
        return LAM_RAISE(err, LAM_E_TOKENIZER, "%.150s: made for a vocabulary of %" PRIu64 " tokens, the base has %u", m->a.tensor,
                         m->kind == LAM_MODULE_EMBEDDING ? r.a_in : r.b_out, m->kind == LAM_MODULE_EMBEDDING ? m->d_in : m->d_out);
    if (r.a_in == m->d_in && r.b_out == m->d_out)
        return LAM_RAISE(err, LAM_E_RANK, "%.150s: A has rank %" PRIu64 ", B has rank %" PRIu64, m->a.tensor, r.a_rank, r.b_rank);
    return raise_other_shape(import, m, r, err);
}

/* A pair is ambiguous only if both factors are square: one that is not tells how both lie, having come from one program. */
static lam_code check_factors(const struct lam_adapter_import *import, struct lam_import_module *m, lam_error *err)
{
    const struct lam_part *parts[] = {&m->a, &m->b};
    for (int i = 0; i < 2; i++) {
        if (parts[i]->n_dims != 2)
            return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.200s has %u dimensions, a factor has 2", parts[i]->tensor, parts[i]->n_dims);
        if (parts[i]->rows == 0 || parts[i]->cols == 0)
            return LAM_RAISE(err, LAM_E_RANK, "tensor %.200s is " SHAPE ": rank 0", parts[i]->tensor, parts[i]->rows, parts[i]->cols);
    }
    struct reading r = read_shapes(m, false, false);
    if (!fits(m, r)) return raise_shape(import, m, r, err);
    if (m->rank && m->rank != r.a_rank)
        return LAM_RAISE(err, LAM_E_RANK, "%.150s: rank %" PRIu64 ", the configuration says %u", m->a.tensor, r.a_rank, m->rank);
    if (r.a_rank == m->d_in && r.a_rank == m->d_out)
        return LAM_RAISE(err, LAM_E_AMBIGUOUS, "%.150s: both factors are square (%u), so nothing tells whether they are transposed",
                         m->a.tensor, m->d_in);
    if (r.a_rank > INT32_MAX) return LAM_RAISE(err, LAM_E_LIMIT, "%.150s: rank %" PRIu64, m->a.tensor, r.a_rank);
    m->rank = (uint32_t)r.a_rank;
    return LAM_OK;
}

/* Shows m, whose bias the base lacks, and reports all of them. */
static lam_code raise_no_bias(const struct lam_adapter_import *import, const struct lam_import_module *m, lam_error *err)
{
    struct lam_names tensors = {0};
    lam_code code = LAM_OK;
    for (size_t i = 0; i < import->n_modules && code == LAM_OK; i++)
        if (import->modules[i].bias.tensor && !import->modules[i].has_bias)
            code = lam_names_add(&tensors, import->modules[i].bias.tensor, err);
    if (code == LAM_OK) {
        lam_names_report(&tensors, import->report);
        code = LAM_RAISE(err, LAM_E_UNMATCHED, "tensor %.200s: %s of the base has no bias", m->bias.tensor, m->name);
    }
    lam_names_release(&tensors);
    return code;
}

static lam_code check_bias(const struct lam_adapter_import *import, const struct lam_import_module *m, lam_error *err)
{
    if (!m->has_bias) return raise_no_bias(import, m, err);
    if (m->bias.n_dims != 1 || m->bias.cols != m->d_out)
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.200s is a bias of %" PRIu64 " by %" PRIu64 ", %s takes %u", m->bias.tensor,
                         m->bias.rows, m->bias.cols, m->name, m->d_out);
    return LAM_OK;
}

static lam_code check_finite(const struct lam_part *p, lam_error *err)
{
    if (!p->tensor) return LAM_OK;
    size_t row_bytes = 0;
    lam_dtype_row_bytes(p->dtype, p->cols, &row_bytes);
    size_t item = row_bytes / (size_t)p->cols;
    for (uint64_t row = 0; row < p->rows; row++) {
        const uint8_t *at = p->data + row * row_bytes;
        if (lam_row_is_finite(p->dtype, at, (size_t)p->cols)) continue;
        size_t i = 0;
        while (i + 1 < p->cols && lam_row_is_finite(p->dtype, at + i * item, 1)) i++;
        return LAM_RAISE(err, LAM_E_NON_FINITE, "tensor %.200s: element %" PRIu64 " (row %" PRIu64 ", column %zu) is NaN or infinite",
                         p->tensor, row * p->cols + i, row, i);
    }
    return LAM_OK;
}

lam_code lam_adapter_check(struct lam_adapter_import *import, lam_error *err)
{
    size_t n_changed = 0;
    LAM_TRY(check_pairs(import, err));
    for (size_t i = 0; i < import->n_modules; i++) {
        struct lam_import_module *m = &import->modules[i];
        if (has_factor(m)) LAM_TRY(check_factors(import, m, err));
        if (m->bias.tensor) LAM_TRY(check_bias(import, m, err));
        n_changed += has_factor(m) || m->bias.tensor;
    }
    if (n_changed == 0) return LAM_RAISE(err, LAM_E_UNMATCHED, "the adapter changes no module of the base");
    for (size_t i = 0; i < import->n_modules; i++) {
        LAM_TRY(check_finite(&import->modules[i].a, err));
        LAM_TRY(check_finite(&import->modules[i].b, err));
        LAM_TRY(check_finite(&import->modules[i].bias, err));
    }
    return LAM_OK;
}
