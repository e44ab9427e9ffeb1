#include "import/delta.h"
#include "base/alloc.h"
#include "base/random.h"
#include "tensor/decode.h"
#include "tensor/half.h"
#include "tensor/tiles.h"

#include <math.h>
#include <string.h>

lam_code lam_delta_reader_init(struct lam_delta_reader *r, struct lam_pool *pool, uint32_t cols, size_t row_bytes, size_t n_row_floats,
                               lam_error *err)
{
    size_t n_threads = lam_pool_threads(pool), n_tuned = 0;
    *r = (struct lam_delta_reader){.pool = pool, .cols = cols, .row_bytes = row_bytes, .n_row_floats = n_row_floats};
    r->blocks = lam_alloc(n_threads, row_bytes);
    r->tuned = lam_mul_size(n_threads, cols, &n_tuned) ? lam_alloc(n_tuned, sizeof *r->tuned) : NULL;
    r->rows = lam_alloc(n_row_floats, sizeof *r->rows);
    return r->blocks && r->tuned && r->rows ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "rows of %u", cols);
}

void lam_delta_reader_release(struct lam_delta_reader *r)
{
    lam_free(r->blocks);
    lam_free(r->tuned);
    lam_free(r->rows);
    *r = (struct lam_delta_reader){0};
}

void lam_delta_side_row(const struct lam_delta_side *side, uint32_t row, uint8_t *blocks, float *out)
{
    const struct lam_slm_entry *e = side->entry;
    const uint8_t *data = lam_slm_tensor_data(side->file, e);
    size_t size = 0;
    if (e->layout == LAM_LAYOUT_TILE16) {
        lam_tile_stride(e->dtype, e->dims[0], &size);
        lam_untile_row(e->dtype, e->dims[0], data + row / LAM_TILE_ROWS * size, row % LAM_TILE_ROWS, blocks);
    } else {
        lam_dtype_row_bytes(e->dtype, e->dims[0], &size);
        memcpy(blocks, data + row * size, size);
    }
    lam_decode_row(e->dtype, blocks, e->dims[0], out);
    if (side->residual.n) lam_residual_add_row(&side->residual, row, out);
}

float lam_delta_round(enum lam_dtype dtype, float value)
{
    if (dtype == LAM_F16) return lam_f16_to_f32(lam_f32_to_f16(value));
    return dtype == LAM_BF16 ? lam_bf16_to_f32(lam_f32_to_bf16(value)) : value;
}

static uint32_t tuned_row(const struct lam_delta *d, uint32_t row)
{
    if (!d->head_dim) return row;
    uint32_t half = d->head_dim / 2, at = row % d->head_dim, first = row - at;
    return first + (d->to_pairs ? at % 2 * half + at / 2 : at % half * 2 + at / half);
}

static uint32_t magnitude(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffff;
}

void lam_delta_change_row(const struct lam_delta *d, uint32_t row, float *values)
{
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    uint64_t index = (uint64_t)row * d->cols, drawn = UINT64_MAX;
    uint32_t bits[4] = {0};
    for (uint32_t k = 0; k < d->cols; k++, index++) {
        uint32_t size = magnitude(values[k]);
        bool kept = size > d->cut || (size == d->cut && index <= d->last_tie);
        if (kept && d->drop_below) {
            if (drawn != index / 4) {
                const uint32_t counter[4] = {(uint32_t)(index / 4), (uint32_t)(index / 4 >> 32), (uint32_t)d->key, (uint32_t)(d->key >> 32)};
                lam_philox(counter, key, bits);
                drawn = index / 4;
            }
            kept = bits[index % 4] >= d->drop_below;
            if (kept) values[k] = (float)((double)values[k] / d->divisor);
        }
        values[k] = kept ? lam_delta_round(d->dtype, values[k]) : 0.0f;
    }
}

/* Rows of one call of lam_delta_read. */
struct reading {
    struct lam_delta_reader *reader;
    const struct lam_delta *delta;
    bool change;
    uint32_t first;
    float *out;
};

/* lam_pool_fn: one row. */
static void read_item(void *context, size_t item, unsigned thread)
{
    const struct reading *c = context;
    const struct lam_delta *d = c->delta;
    uint32_t row = c->first + (uint32_t)item;
    float *out = c->out + item * d->cols, *tuned = c->reader->tuned + (size_t)thread * c->reader->cols;
    uint8_t *blocks = c->reader->blocks + thread * c->reader->row_bytes;
    lam_delta_side_row(&d->base, row, blocks, out);
    lam_delta_side_row(&d->tuned, tuned_row(d, row), blocks, tuned);
    for (uint32_t k = 0; k < d->cols; k++) out[k] = tuned[k] - out[k];
    if (c->change) lam_delta_change_row(d, row, out);
}

lam_code lam_delta_read(struct lam_delta_reader *r, const struct lam_delta *d, bool change, uint32_t first, uint32_t n, float *out,
                        lam_error *err)
{
    struct reading c = {r, d, change, first, out};
    const struct lam_slm_entry *e = d->base.entry;
    lam_pool_run(r->pool, n, read_item, &c);
    for (size_t i = 0; i < (size_t)n * d->cols; i++)
        if (!isfinite(out[i]))
            return LAM_RAISE(err, LAM_E_NON_FINITE, "tensor %.*s: row %zu of the difference holds NaN or infinity", (int)e->name_len,
                             d->base.file->names + e->name_offset, first + i / d->cols);
    return LAM_OK;
}

lam_code lam_delta_each(struct lam_delta_reader *r, const struct lam_delta *d, bool change, uint32_t first, uint32_t last, lam_delta_fn fn,
                        void *context, lam_error *err)
{
    uint32_t batch = (uint32_t)(r->n_row_floats / d->cols);
    for (uint32_t n; first < last; first += n) {
        n = batch < last - first ? batch : last - first;
        LAM_TRY(lam_delta_read(r, d, change, first, n, r->rows, err));
        for (uint32_t i = 0; i < n; i++) fn(context, first + i, r->rows + (size_t)i * d->cols);
    }
    return LAM_OK;
}

/* ---- the n-th largest magnitude ---- */

#define HALF 65536

/* Counts of magnitudes by 16 of their bits: the upper ones, or the lower ones of those with one upper half; or where ties end. */
struct counting {
    uint32_t cols, upper;
    uint64_t *counts;     /* [HALF] */
    uint32_t cut;
    uint64_t ties, last;  /* still wanted; the index of the last one */
};

static void count_upper(void *context, uint32_t row, const float *values)
{
    struct counting *c = context;
    (void)row;
    for (uint32_t k = 0; k < c->cols; k++) c->counts[magnitude(values[k]) >> 16]++;
}

static void count_lower(void *context, uint32_t row, const float *values)
{
    struct counting *c = context;
    (void)row;
    for (uint32_t k = 0; k < c->cols; k++)
        if (magnitude(values[k]) >> 16 == c->upper) c->counts[magnitude(values[k]) & 0xffff]++;
}

static void find_tie(void *context, uint32_t row, const float *values)
{
    struct counting *c = context;
    for (uint32_t k = 0; c->ties && k < c->cols; k++)
        if (magnitude(values[k]) == c->cut && --c->ties == 0) c->last = (uint64_t)row * c->cols + k;
}

/* The class in which the n-th largest lies; *n becomes its place there. */
static uint32_t place(const uint64_t *counts, uint64_t *n)
{
    uint32_t i = HALF - 1;
    for (; i > 0 && *n > counts[i]; i--) *n -= counts[i];
    return i;
}

lam_code lam_delta_prune(struct lam_delta_reader *r, struct lam_delta *d, uint64_t n, lam_error *err)
{
    struct counting c = {.cols = d->cols, .counts = lam_alloc(HALF, sizeof *c.counts)};
    d->cut = UINT32_MAX;
    d->last_tie = 0;
    if (!c.counts) return LAM_RAISE(err, LAM_E_NO_MEMORY, "counts");
    if (n == 0) {
        lam_free(c.counts);
        return LAM_OK;
    }
    lam_code code = lam_delta_each(r, d, false, 0, d->rows, count_upper, &c, err);
    c.upper = place(c.counts, &n);
    memset(c.counts, 0, HALF * sizeof *c.counts);
    if (code == LAM_OK) code = lam_delta_each(r, d, false, 0, d->rows, count_lower, &c, err);
    c.cut = c.upper << 16 | place(c.counts, &n);
    c.ties = n;
    if (code == LAM_OK) code = lam_delta_each(r, d, false, 0, d->rows, find_tie, &c, err);
    d->cut = c.cut;
    d->last_tie = c.last;
    lam_free(c.counts);
    return code;
}
