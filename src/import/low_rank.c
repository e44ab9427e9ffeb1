#include "import/low_rank.h"
#include "base/alloc.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OVERSAMPLE 8          /* columns beyond the rank, at least; half the rank if that is more */
#define MOST_ITERATIONS 12
#define TOLERANCE 1e-4        /* an iteration that wins less of what is left is the last */
#define MOST_SWEEPS 40
#define BATCH_FLOATS ((size_t)1 << 20)
#define COLUMN_GROUP 8        /* columns of one item of a reflection */
#define ROW_GROUP 4           /* rows of one item of matrix · x */
#define TURN_GROUP 32         /* columns of one item of matrixᵀ · q */

struct ranked {
    double sigma;
    size_t column;
};

/* While one matrix is worked on. All arrays are owned; width = l. */
struct work {
    const struct lam_low_rank_source *source;
    uint32_t width, batch;
    double *q, *x;            /* [rows, l] and [cols, l] */
    double *r;                /* [l, l], of x's last QR */
    double *tau;              /* [l] */
    double *u, *v;            /* [l, l]: rᵀ = u vᵀ, u with orthogonal columns, v with orthonormal ones */
    struct ranked *ranked;    /* [l]: the lengths of u's columns, falling */
    float *values;            /* [batch, cols] */
    /* of the item at hand */
    uint32_t first, n;
    double *target;           /* what a QR works on */
    uint32_t target_rows, column;
};

uint32_t lam_low_rank_batch(uint32_t rows, uint32_t cols)
{
    size_t n = BATCH_FLOATS / (cols ? cols : 1);
    n = n < 16 ? 16 : n / 16 * 16;
    return n < rows ? (uint32_t)n : rows;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static lam_code allocate(struct work *w, uint32_t rank, lam_error *err)
{
    const struct lam_low_rank_source *s = w->source;
    uint32_t more = rank / 2 > OVERSAMPLE ? rank / 2 : OVERSAMPLE;
    w->width = least(rank + more, least(s->rows, s->cols));
    w->batch = lam_low_rank_batch(s->rows, s->cols);
    size_t l = w->width, q, x, square, values;
    bool fits = lam_mul_size(s->rows, l, &q) && lam_mul_size(s->cols, l, &x) && lam_mul_size(l, l, &square) &&
                lam_mul_size(w->batch, s->cols, &values);
    w->q = fits ? lam_alloc(q, sizeof *w->q) : NULL;
    w->x = fits ? lam_alloc(x, sizeof *w->x) : NULL;
    w->r = fits ? lam_alloc(square, sizeof *w->r) : NULL;
    w->u = fits ? lam_alloc(square, sizeof *w->u) : NULL;
    w->v = fits ? lam_alloc(square, sizeof *w->v) : NULL;
    w->tau = lam_alloc(l, sizeof *w->tau);
    w->ranked = lam_alloc(l, sizeof *w->ranked);
    w->values = fits ? lam_alloc(values, sizeof *w->values) : NULL;
    if (w->q && w->x && w->r && w->u && w->v && w->tau && w->ranked && w->values) return LAM_OK;
    return LAM_RAISE(err, LAM_E_NO_MEMORY, "rank %u of [%u, %u]", rank, s->rows, s->cols);
}

static void release(struct work *w)
{
    lam_free(w->q);
    lam_free(w->x);
    lam_free(w->r);
    lam_free(w->u);
    lam_free(w->v);
    lam_free(w->tau);
    lam_free(w->ranked);
    lam_free(w->values);
}

/* ---- products with the matrix ---- */

/* lam_pool_fn: q rows of ROW_GROUP rows of the batch = matrix · x. */
static void multiply_item(void *context, size_t item, unsigned thread)
{
    struct work *w = context;
    (void)thread;
    size_t l = w->width, cols = w->source->cols, begin = item * ROW_GROUP, end = begin + ROW_GROUP < w->n ? begin + ROW_GROUP : w->n;
    for (size_t i = begin; i < end; i++) memset(w->q + (w->first + i) * l, 0, l * sizeof *w->q);
    for (size_t c = 0; c < cols; c++) {
        const double *x = w->x + c * l;
        for (size_t i = begin; i < end; i++) {
            double value = w->values[i * cols + c], *q = w->q + (w->first + i) * l;
            for (size_t k = 0; k < l; k++) q[k] = q[k] + value * x[k];
        }
    }
}

/* lam_pool_fn: x rows of TURN_GROUP columns += matrixᵀ · q over the batch. */
static void turn_item(void *context, size_t item, unsigned thread)
{
    struct work *w = context;
    (void)thread;
    size_t l = w->width, cols = w->source->cols, begin = item * TURN_GROUP, end = begin + TURN_GROUP < cols ? begin + TURN_GROUP : cols;
    for (size_t i = 0; i < w->n; i++) {
        const double *q = w->q + (w->first + i) * l;
        for (size_t c = begin; c < end; c++) {
            double value = w->values[i * cols + c], *x = w->x + c * l;
            for (size_t k = 0; k < l; k++) x[k] = x[k] + value * q[k];
        }
    }
}

/* Runs fn over all rows, batch by batch; squares (may be NULL) gets their sum. */
static lam_code each_batch(struct work *w, lam_pool_fn fn, size_t n_rows_an_item, double *squares, lam_error *err)
{
    const struct lam_low_rank_source *s = w->source;
    for (w->first = 0; w->first < s->rows; w->first += w->n) {
        w->n = least(w->batch, s->rows - w->first);
        LAM_TRY(s->read(s->context, w->first, w->n, w->values, err));
        for (size_t i = 0; squares && i < w->n; i++) {
            double sum = 0.0;
            for (size_t c = 0; c < s->cols; c++) sum = sum + (double)w->values[i * s->cols + c] * (double)w->values[i * s->cols + c];
            *squares = *squares + sum;
        }
        size_t n_items = n_rows_an_item ? (w->n + n_rows_an_item - 1) / n_rows_an_item : (s->cols + TURN_GROUP - 1) / TURN_GROUP;
        lam_pool_run(s->pool, n_items, fn, w);
    }
    return LAM_OK;
}

/* ---- QR ---- */

/* lam_pool_fn: applies reflection `column` to COLUMN_GROUP columns behind it. */
static void reflect_item(void *context, size_t item, unsigned thread)
{
    struct work *w = context;
    (void)thread;
    size_t l = w->width, j = w->column, begin = j + 1 + item * COLUMN_GROUP, n = begin + COLUMN_GROUP < l ? COLUMN_GROUP : l - begin;
    double sums[COLUMN_GROUP] = {0};
    for (size_t i = j; i < w->target_rows; i++) {
        const double *row = w->target + i * l;
        double v = i == j ? 1.0 : row[j];
        for (size_t k = 0; k < n; k++) sums[k] = sums[k] + v * row[begin + k];
    }
    for (size_t i = j; i < w->target_rows; i++) {
        double *row = w->target + i * l, v = i == j ? 1.0 : row[j];
        for (size_t k = 0; k < n; k++) row[begin + k] = row[begin + k] - (w->tau[j] * sums[k]) * v;
    }
}

static void reflect(struct work *w, uint32_t j)
{
    w->column = j;
    if (w->tau[j] != 0.0 && j + 1 < w->width)
        lam_pool_run(w->source->pool, (w->width - j - 1 + COLUMN_GROUP - 1) / COLUMN_GROUP, reflect_item, w);
}

/* a[rows, l], rows >= l, becomes Q with orthonormal columns; r (may be NULL) gets the upper triangle, a = Q r. Columns that depend on
 * those before them still get a direction of their own. */
static void orthonormalise(struct work *w, double *a, uint32_t rows, double *r)
{
    size_t l = w->width;
    w->target = a;
    w->target_rows = rows;
    for (uint32_t j = 0; j < l; j++) {
        double rest = 0.0, head = a[j * l + j];
        for (size_t i = j + 1; i < rows; i++) rest = rest + a[i * l + j] * a[i * l + j];
        double norm = sqrt(head * head + rest), pivot = head > 0.0 ? head + norm : head - norm;
        w->tau[j] = norm == 0.0 ? 0.0 : fabs(pivot) / norm;
        for (size_t i = j + 1; i < rows; i++) a[i * l + j] = norm == 0.0 ? 0.0 : a[i * l + j] / pivot;
        a[j * l + j] = head > 0.0 ? -norm : norm;
        reflect(w, j);
    }
    for (size_t i = 0; r && i < l; i++)
        for (size_t k = 0; k < l; k++) r[i * l + k] = k < i ? 0.0 : a[i * l + k];
    /* Q from its reflections, backwards in place: column j's own vector is overwritten last. */
    for (uint32_t j = (uint32_t)l; j-- > 0;) {
        for (size_t k = j + 1; k < l; k++) a[j * l + k] = 0.0;
        reflect(w, j);
        for (size_t i = j + 1; i < rows; i++) a[i * l + j] = -w->tau[j] * a[i * l + j];
        a[j * l + j] = 1.0 - w->tau[j];
    }
}

/* ---- the small triangle ---- */

/* Turns columns p and q of u, and of v, so that u's become orthogonal. False if they are already. */
static bool rotate(double *u, double *v, size_t l, size_t p, size_t q)
{
    double a = 0.0, b = 0.0, g = 0.0;
    for (size_t i = 0; i < l; i++) {
        a = a + u[i * l + p] * u[i * l + p];
        b = b + u[i * l + q] * u[i * l + q];
        g = g + u[i * l + p] * u[i * l + q];
    }
    if (fabs(g) <= 1e-15 * sqrt(a) * sqrt(b)) return false;
    double zeta = (b - a) / (2.0 * g), t = (zeta < 0.0 ? -1.0 : 1.0) / (fabs(zeta) + sqrt(1.0 + zeta * zeta));
    double c = 1.0 / sqrt(1.0 + t * t), s = c * t;
    for (size_t i = 0; i < l; i++) {
        double up = u[i * l + p], vp = v[i * l + p];
        u[i * l + p] = c * up - s * u[i * l + q];
        u[i * l + q] = s * up + c * u[i * l + q];
        v[i * l + p] = c * vp - s * v[i * l + q];
        v[i * l + q] = s * vp + c * v[i * l + q];
    }
    return true;
}

static int larger_first(const void *a, const void *b)
{
    const struct ranked *l = a, *r = b;
    if (l->sigma != r->sigma) return l->sigma < r->sigma ? 1 : -1;
    return (l->column > r->column) - (l->column < r->column);
}

/* u, v and ranked from r. */
static void decompose(struct work *w)
{
    size_t l = w->width;
    bool turned = true;
    for (size_t i = 0; i < l; i++)
        for (size_t k = 0; k < l; k++) {
            w->u[i * l + k] = w->r[k * l + i];
            w->v[i * l + k] = i == k ? 1.0 : 0.0;
        }
    for (int sweep = 0; turned && sweep < MOST_SWEEPS; sweep++) {
        turned = false;
        for (size_t p = 0; p + 1 < l; p++)
            for (size_t q = p + 1; q < l; q++) turned |= rotate(w->u, w->v, l, p, q);
    }
    for (size_t k = 0; k < l; k++) {
        double sum = 0.0;
        for (size_t i = 0; i < l; i++) sum = sum + w->u[i * l + k] * w->u[i * l + k];
        w->ranked[k] = (struct ranked){sqrt(sum), k};
    }
    qsort(w->ranked, l, sizeof *w->ranked, larger_first);
}

/* out[n, rank] = a[n, l] · b[l, chosen columns] · factor. */
static void combine(const double *a, size_t n, size_t l, const double *b, const struct ranked *chosen, size_t rank, bool divide, double *out)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < rank; k++) {
            double sum = 0.0, root = sqrt(chosen[k].sigma);
            for (size_t j = 0; j < l; j++) sum = sum + a[i * l + j] * b[j * l + chosen[k].column];
            out[i * rank + k] = root == 0.0 ? 0.0 : divide ? sum / root : sum * root;
        }
}

static lam_code finish(struct work *w, struct lam_low_rank *out, lam_error *err)
{
    size_t l = w->width, rows = w->source->rows, cols = w->source->cols;
    out->left = lam_alloc(rows * out->rank, sizeof *out->left);
    out->right = lam_alloc(cols * out->rank, sizeof *out->right);
    out->sigma = lam_alloc(out->rank, sizeof *out->sigma);
    if (!out->left || !out->right || !out->sigma) return LAM_RAISE(err, LAM_E_NO_MEMORY, "factors of rank %u", out->rank);
    for (size_t k = 0; k < out->rank; k++) out->sigma[k] = w->ranked[k].sigma;
    combine(w->q, rows, l, w->u, w->ranked, out->rank, true, out->left);
    combine(w->x, cols, l, w->v, w->ranked, out->rank, false, out->right);
    return LAM_OK;
}

/* Until q and x span what the largest singular vectors do. */
static lam_code iterate(struct work *w, struct lam_low_rank *out, lam_error *err)
{
    size_t l = w->width, n = (size_t)w->source->cols * l;
    double before = 0.0;
    for (size_t i = 0; i < n; i++) w->x[i] = 2.0 * lam_uniform(0, i) - 1.0;
    for (out->n_iterations = 1;; out->n_iterations++) {
        LAM_TRY(each_batch(w, multiply_item, ROW_GROUP, out->n_iterations == 1 ? &out->squares : NULL, err));
        orthonormalise(w, w->q, w->source->rows, NULL);
        memset(w->x, 0, n * sizeof *w->x);
        LAM_TRY(each_batch(w, turn_item, 0, NULL, err));
        orthonormalise(w, w->x, w->source->cols, w->r);
        decompose(w);
        double held = 0.0;
        for (size_t k = 0; k < out->rank; k++) held = held + w->ranked[k].sigma * w->ranked[k].sigma;
        double left = out->squares - held;
        bool all = left <= 1e-13 * out->squares || l == least(w->source->rows, w->source->cols);
        if (all || held - before <= TOLERANCE * left || out->n_iterations == MOST_ITERATIONS) return LAM_OK;
        before = held;
    }
}

lam_code lam_low_rank_find(const struct lam_low_rank_source *source, uint32_t rank, struct lam_low_rank *out, lam_error *err)
{
    struct work w = {.source = source};
    *out = (struct lam_low_rank){.rank = rank};
    lam_code code = allocate(&w, rank, err);
    if (code == LAM_OK) code = iterate(&w, out, err);
    if (code == LAM_OK) code = finish(&w, out, err);
    release(&w);
    if (code != LAM_OK) lam_low_rank_release(out);
    return code;
}

void lam_low_rank_release(struct lam_low_rank *l)
{
    lam_free(l->left);
    lam_free(l->right);
    lam_free(l->sigma);
    *l = (struct lam_low_rank){0};
}
