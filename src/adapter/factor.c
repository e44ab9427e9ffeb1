#include "adapter/factor.h"
#include "base/alloc.h"
#include "kernels/scalar.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

static size_t n_tiles(uint32_t rows) { return ((size_t)rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS; }
static size_t n_pairs(uint32_t cols) { return ((size_t)cols + 1) / 2; }
static size_t n_groups(uint32_t cols) { return ((size_t)cols + LAM_GROUP - 1) / LAM_GROUP; }

bool lam_factor_bytes(uint32_t rows, uint32_t cols, bool quantised, size_t *bytes)
{
    size_t per_tile = quantised ? n_pairs(cols) * 2 * sizeof(int16_t) + n_groups(cols) * sizeof(float) : (size_t)cols * sizeof(float);
    return lam_mul_size(per_tile, n_tiles(rows) * LAM_TILE_ROWS, bytes);
}

struct lam_q14_tile lam_factor_q14_tile(const struct lam_factor *f, size_t t)
{
    return (struct lam_q14_tile){.q = (const int16_t *)f->tiles + t * n_pairs(f->cols) * 2 * LAM_TILE_ROWS,
                                 .scale = f->scales + t * n_groups(f->cols) * LAM_TILE_ROWS,
                                 .cols = f->cols};
}

const uint8_t *lam_factor_float_tile(const struct lam_factor *f, size_t t)
{
    return (const uint8_t *)f->tiles + t * f->cols * LAM_TILE_ROWS * sizeof(float);
}

/* The same quantisation as an activation's, but the last group keeps its short length in memory. */
static lam_code stage_q14(const float *f, struct lam_factor *out, lam_error *err)
{
    size_t groups = n_groups(out->cols), pairs = n_pairs(out->cols);
    int16_t *row = lam_alloc(groups, LAM_GROUP * sizeof *row);
    float *scale = lam_alloc(groups, sizeof *scale);
    lam_code code = row && scale ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a factor of %u columns", out->cols);
    int16_t *tiles = out->tiles;
    for (size_t r = 0; code == LAM_OK && r < out->rows; r++) {
        size_t tile = r / LAM_TILE_ROWS, lane = r % LAM_TILE_ROWS;
        if (!lam_quantise14_scalar(f + r * out->cols, out->cols, row, scale))
            code = LAM_RAISE(err, LAM_E_NON_FINITE, "a factor's row %zu is not finite", r);
        for (size_t k = 0; k < out->cols; k++)
            tiles[((tile * pairs + k / 2) * LAM_TILE_ROWS + lane) * 2 + k % 2] = row[k];
        for (size_t g = 0; g < groups; g++) out->scales[(tile * groups + g) * LAM_TILE_ROWS + lane] = scale[g];
    }
    lam_free(row);
    lam_free(scale);
    return code;
}

static void stage_float(const float *f, struct lam_factor *out)
{
    float *tiles = out->tiles;
    for (size_t r = 0; r < out->rows; r++)
        for (size_t k = 0; k < out->cols; k++)
            tiles[(r / LAM_TILE_ROWS * out->cols + k) * LAM_TILE_ROWS + r % LAM_TILE_ROWS] = f[r * out->cols + k];
}

lam_code lam_factor_stage(const float *f, uint32_t rows, uint32_t cols, bool quantised, struct lam_factor *out, lam_error *err)
{
    size_t per_tile = quantised ? n_pairs(cols) * 2 * sizeof(int16_t) : (size_t)cols * sizeof(float), bytes = 0;
    bool fits = lam_mul_size(per_tile, n_tiles(rows) * LAM_TILE_ROWS, &bytes);
    *out = (struct lam_factor){.rows = rows, .cols = cols, .quantised = quantised};
    if (fits) out->tiles = lam_alloc_aligned(bytes);
    if (quantised) out->scales = lam_alloc_aligned(n_tiles(rows) * n_groups(cols) * LAM_TILE_ROWS * sizeof(float));
    if (!out->tiles || (quantised && !out->scales)) {
        lam_factor_release(out);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "a factor of %u by %u", rows, cols);
    }
    lam_code code = LAM_OK;
    if (quantised) code = stage_q14(f, out, err);
    else stage_float(f, out);
    if (code != LAM_OK) lam_factor_release(out);
    return code;
}

void lam_factor_release(struct lam_factor *f)
{
    lam_free_aligned(f->tiles);
    lam_free_aligned(f->scales);
    *f = (struct lam_factor){0};
}
