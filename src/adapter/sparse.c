#include "adapter/sparse.h"
#include "adapter/opening.h"
#include "base/alloc.h"
#include "tensor/tiles.h"

#include <string.h>

static lam_code read_indices(struct lam_opening *o, const struct lam_slm_entry *e, uint32_t **out, lam_error *err)
{
    size_t n = e->dims[0];
    LAM_TRY(lam_budget_alloc(o->budget, n, sizeof **out, o->path, out, err));
    memcpy(*out, lam_slm_tensor_data(o->file, e), n * sizeof **out);
    o->bytes += n * sizeof **out;
    return LAM_OK;
}

/* Starts rise from 0 to n; in a row columns rise strictly and are below cols. */
static lam_code check_order(const struct lam_opening *o, const struct lam_module *m, uint32_t n, lam_error *err)
{
    const struct lam_target *t = m->target;
    const struct lam_sparse *s = &m->sparse;
    if (s->starts[0] != 0 || s->starts[t->rows] != n)
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: %s: rows from %u to %u of %u values", o->path, t->name, s->starts[0], s->starts[t->rows], n);
    for (uint32_t r = 0; r < t->rows; r++) {
        uint32_t from = s->starts[r], to = s->starts[r + 1];
        if (to < from || to > n) return LAM_RAISE(err, LAM_E_FORMAT, "%s: %s: row %u goes from %u to %u", o->path, t->name, r, from, to);
        for (uint32_t i = from; i < to; i++) {
            if (s->columns[i] >= t->cols)
                return LAM_RAISE(err, LAM_E_OVERFLOW, "%s: %s: column %u of %u in row %u", o->path, t->name, s->columns[i], t->cols, r);
            if (i > from && s->columns[i] <= s->columns[i - 1])
                return LAM_RAISE(err, s->columns[i] == s->columns[i - 1] ? LAM_E_DUPLICATE : LAM_E_FORMAT,
                                 "%s: %s: the columns of row %u don't rise: %u after %u", o->path, t->name, r, s->columns[i],
                                 s->columns[i - 1]);
        }
    }
    return LAM_OK;
}

lam_code lam_sparse_open(struct lam_opening *o, struct lam_module *m, lam_error *err)
{
    const struct lam_target *t = m->target;
    const struct lam_slm_entry *starts, *columns, *values;
    char name[96];
    LAM_TRY(lam_opening_part(o, t, LAM_PART_STARTS, 1, t->rows + 1, &starts, err));
    lam_part_tensor(t->name, LAM_PART_VALUES, name);
    const struct lam_slm_entry *e = lam_slm_find(o->file, name);
    uint32_t n = e ? e->dims[0] : 0;
    LAM_TRY(lam_opening_part(o, t, LAM_PART_COLUMNS, 1, n, &columns, err));
    LAM_TRY(lam_opening_part(o, t, LAM_PART_VALUES, 1, n, &values, err));
    if (!starts && !columns && !values) return LAM_OK;
    if (!starts || !columns || !values)
        return LAM_RAISE(err, LAM_E_MISSING_PAIR, "%s: %s has no %s", o->path, t->name,
                         lam_part_name(!starts ? LAM_PART_STARTS : !columns ? LAM_PART_COLUMNS : LAM_PART_VALUES));
    if (!t->matrix) return LAM_RAISE(err, LAM_E_METHOD, "%s: a sparse delta of %s, which is no matrix", o->path, t->name);
    m->method = LAM_METHOD_SPARSE;
    m->no_effect = true;
    LAM_TRY(read_indices(o, starts, &m->sparse.starts, err));
    LAM_TRY(read_indices(o, columns, &m->sparse.columns, err));
    LAM_TRY(lam_opening_floats(o, values, &m->sparse.values, err));
    o->bytes += (size_t)n * sizeof(float);
    for (uint32_t i = 0; i < n; i++) m->no_effect &= m->sparse.values[i] == 0.0f;
    return check_order(o, m, n, err);
}

void lam_sparse_release(struct lam_sparse *s)
{
    lam_budget_free(s->starts);
    lam_budget_free(s->columns);
    lam_budget_free(s->values);
}

void lam_sparse_product(const struct lam_module *m, size_t tile, float weight, const float *x, size_t x_stride, size_t n, float *y,
                        size_t y_stride)
{
    const struct lam_sparse *s = &m->sparse;
    size_t first = tile * LAM_TILE_ROWS, end = first + LAM_TILE_ROWS < m->target->rows ? first + LAM_TILE_ROWS : m->target->rows;
    for (size_t r = first; r < end; r++)
        for (size_t i = 0; i < n && s->starts[r] < s->starts[r + 1]; i++) {
            float sum = 0.0f, *out = y + i * y_stride + (r - first);
            for (uint32_t k = s->starts[r]; k < s->starts[r + 1]; k++) sum = sum + s->values[k] * x[i * x_stride + s->columns[k]];
            *out = *out + weight * sum;
        }
}

void lam_sparse_add_row(const struct lam_module *m, size_t row, float weight, float *w, size_t stride)
{
    const struct lam_sparse *s = &m->sparse;
    for (uint32_t k = s->starts[row]; k < s->starts[row + 1]; k++) {
        float *at = w + s->columns[k] * stride;
        *at = *at + weight * s->values[k];
    }
}
