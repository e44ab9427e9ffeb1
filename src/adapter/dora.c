/* DoRA: a LoRA whose sum with the base is brought to a learnt length, row by row. */
#include "adapter/dora.h"
#include "adapter/opening.h"
#include "base/alloc.h"
#include "tensor/rows.h"

#include <math.h>

#define MOST_RANK 4096 /* the work grows with its square */

/* The file's factors in float64: a[cols, rank], its transpose, and b[rows, rank]. */
struct factors {
    double *a, *b;
    double *gram;         /* [rank]: the row at work of A Aᵀ */
    double *products;     /* [rank]: A w of the row at work */
    float *row;           /* [cols]: of the base */
    uint8_t *bytes;       /* of the same row as stored */
};

static lam_code widen(const struct lam_opening *o, const struct lam_slm_entry *e, bool turn, double **out, lam_error *err)
{
    float *f;
    size_t rows = e->dims[1], cols = e->dims[0];
    LAM_TRY(lam_opening_floats(o, e, &f, err));
    lam_code code = lam_budget_alloc(o->budget, rows * cols, sizeof **out, o->path, out, err);
    double *d = *out;
    for (size_t r = 0; d && r < rows; r++)
        for (size_t k = 0; k < cols; k++) d[turn ? k * rows + r : r * cols + k] = (double)f[r * cols + k];
    lam_budget_free(f);
    return code;
}

/* Row i of A Aᵀ. */
static void gram_row(const struct factors *f, uint32_t cols, uint32_t rank, uint32_t i)
{
    for (uint32_t j = 0; j < rank; j++) f->gram[j] = 0.0;
    for (uint32_t k = 0; k < cols; k++) {
        const double *a = f->a + (size_t)k * rank;
        for (uint32_t j = 0; j < rank; j++) f->gram[j] += a[i] * a[j];
    }
}

/* ‖W‖² and W·BA = Σ_i b_i (A w)_i of one row. */
static void norm_parts(const struct factors *f, uint32_t cols, uint32_t rank, const double *b, double *w, double *mixed)
{
    for (uint32_t i = 0; i < rank; i++) f->products[i] = 0.0;
    *w = *mixed = 0.0;
    for (uint32_t k = 0; k < cols; k++) {
        const double x = (double)f->row[k], *a = f->a + (size_t)k * rank;
        *w += x * x;
        for (uint32_t i = 0; i < rank; i++) f->products[i] += a[i] * x;
    }
    for (uint32_t i = 0; i < rank; i++) *mixed += b[i] * f->products[i];
}

/* ‖BA‖² = Σ_i b_i Σ_j (A Aᵀ)_ij b_j of each row, for all rows at once: A Aᵀ is as large as the rank's square, a row of it is not. */
static void delta_parts(const struct factors *f, uint32_t rows, uint32_t cols, uint32_t rank, double *delta)
{
    for (uint32_t r = 0; r < rows; r++) delta[r] = 0.0;
    for (uint32_t i = 0; i < rank; i++) {
        gram_row(f, cols, rank, i);
        for (uint32_t r = 0; r < rows; r++) {
            const double *b = f->b + (size_t)r * rank;
            double sum = 0.0;
            for (uint32_t j = 0; j < rank; j++) sum += f->gram[j] * b[j];
            delta[r] += b[i] * sum;
        }
    }
}

static lam_code measure(struct lam_opening *o, struct lam_module *m, struct factors *f, lam_error *err)
{
    const struct lam_matrix *w = m->target->matrix;
    uint32_t rank = m->lora.rank;
    const struct lam_slm_entry *a, *b;
    LAM_TRY(lam_opening_part(o, m->target, LAM_PART_A, rank, w->cols, &a, err));
    LAM_TRY(lam_opening_part(o, m->target, LAM_PART_B, w->rows, rank, &b, err));
    o->n_used -= 2; /* the factors were counted with LoRA's */
    LAM_TRY(widen(o, a, true, &f->a, err));
    LAM_TRY(widen(o, b, false, &f->b, err));
    f->gram = lam_alloc(rank, sizeof *f->gram);
    f->products = lam_alloc(rank, sizeof *f->products);
    f->row = lam_alloc(w->cols, sizeof *f->row);
    f->bytes = lam_alloc(lam_matrix_row_bytes(w), 1);
    if (!f->gram || !f->products || !f->row || !f->bytes) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: rank %u", o->path, rank);
    for (uint32_t r = 0; r < w->rows; r++) {
        lam_matrix_row(w, r, f->bytes, f->row);
        norm_parts(f, w->cols, rank, f->b + (size_t)r * rank, &m->dora.w[r], &m->dora.mixed[r]);
    }
    delta_parts(f, w->rows, w->cols, rank, m->dora.delta);
    return LAM_OK;
}

lam_code lam_dora_open(struct lam_opening *o, struct lam_module *m, lam_error *err)
{
    const struct lam_target *t = m->target;
    struct factors f = {0};
    LAM_TRY(lam_opening_vector(o, t, LAM_PART_MAGNITUDE, t->rows, &m->dora.magnitude, err));
    if (!m->dora.magnitude) return LAM_OK;
    if (t->role == LAM_ROLE_EMBEDDING) return LAM_RAISE(err, LAM_E_METHOD, "%s: DoRA on the embedding", o->path);
    if (m->lora.rank > MOST_RANK)
        return LAM_RAISE(err, LAM_E_LIMIT, "%s: DoRA of rank %u on %s, %d at most", o->path, m->lora.rank, t->name, MOST_RANK);
    m->method = LAM_METHOD_DORA;
    m->no_effect = false;
    LAM_TRY(lam_budget_alloc(o->budget, t->rows, sizeof(double), o->path, &m->dora.w, err));
    LAM_TRY(lam_budget_alloc(o->budget, t->rows, sizeof(double), o->path, &m->dora.mixed, err));
    LAM_TRY(lam_budget_alloc(o->budget, t->rows, sizeof(double), o->path, &m->dora.delta, err));
    o->bytes += t->rows * 3 * sizeof(double);
    lam_code code = measure(o, m, &f, err);
    lam_budget_free(f.a);
    lam_budget_free(f.b);
    lam_free(f.gram);
    lam_free(f.products);
    lam_free(f.row);
    lam_free(f.bytes);
    return code;
}

void lam_dora_release(struct lam_dora *d)
{
    lam_budget_free(d->magnitude);
    lam_budget_free(d->w);
    lam_budget_free(d->mixed);
    lam_budget_free(d->delta);
}

void lam_dora_factors(const struct lam_module *m, double scale, float *out)
{
    const struct lam_dora *d = &m->dora;
    for (uint32_t r = 0; r < m->target->rows; r++)
        out[r] = (float)((double)d->magnitude[r] / sqrt(d->w[r] + 2.0 * scale * d->mixed[r] + scale * scale * d->delta[r]));
}
