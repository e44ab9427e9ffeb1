#include "adapter/factor.h"
#include "base/alloc.h"
#include "base/budget.h"
#include "kernels/scalar.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#include <string.h>

static size_t n_tiles(uint32_t rows) { return ((size_t)rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS; }
/* Bytes of a tile. */
static bool tile_bytes(uint32_t cols, bool quantised, size_t *bytes)
{
    *bytes = lam_q14_tile_bytes(cols); /* cols has 32 bits: at most 2^38 */
    return quantised || lam_mul_size(cols, LAM_TILE_ROWS * sizeof(float), bytes);
}

bool lam_factor_bytes(uint32_t rows, uint32_t cols, bool quantised, size_t *bytes)
{
    return tile_bytes(cols, quantised, bytes) && lam_mul_size(*bytes, n_tiles(rows), bytes);
}

struct lam_q14_tiles lam_factor_q14(const struct lam_factor *f, size_t first, size_t n)
{
    return (struct lam_q14_tiles){.bytes = f->tiles + first * lam_q14_tile_bytes(f->cols), .cols = f->cols, .n = n};
}

const float *lam_factor_float_tile(const struct lam_factor *f, size_t t)
{
    return (const float *)(const void *)f->tiles + t * f->cols * LAM_TILE_ROWS;
}

/* The same quantisation as an activation's, but the last group keeps its short length in memory. */
static lam_code stage_q14(const float *f, struct lam_factor *out, lam_error *err)
{
    size_t groups = ((size_t)out->cols + LAM_GROUP - 1) / LAM_GROUP;
    int16_t *row = lam_alloc(groups, LAM_GROUP * sizeof *row);
    float *scale = lam_alloc(groups, sizeof *scale);
    lam_code code = row && scale ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a factor of %u columns", out->cols);
    for (size_t r = 0; code == LAM_OK && r < out->rows; r++) {
        if (!lam_quantise14_scalar(f + r * out->cols, out->cols, row, scale)) {
            code = LAM_RAISE(err, LAM_E_NON_FINITE, "a factor's row %zu is not finite", r);
            break;
        }
        uint8_t *tile = out->tiles + r / LAM_TILE_ROWS * lam_q14_tile_bytes(out->cols);
        size_t lane = r % LAM_TILE_ROWS;
        for (size_t k = 0; k < out->cols; k++) {
            uint8_t *group = tile + k / LAM_GROUP * lam_q14_tile_bytes(LAM_GROUP);
            if (k % LAM_GROUP == 0) memcpy(group + 4 * lane, &scale[k / LAM_GROUP], sizeof *scale);
            memcpy(group + 64 + k % LAM_GROUP / 2 * 64 + 4 * lane + k % 2 * 2, &row[k], sizeof *row);
        }
    }
    lam_free(row);
    lam_free(scale);
    return code;
}

static void stage_float(const float *f, struct lam_factor *out)
{
    float *tiles = (float *)(void *)out->tiles;
    for (size_t r = 0; r < out->rows; r++)
        for (size_t k = 0; k < out->cols; k++)
            tiles[(r / LAM_TILE_ROWS * out->cols + k) * LAM_TILE_ROWS + r % LAM_TILE_ROWS] = f[r * out->cols + k];
}

lam_code lam_factor_stage(const float *f, uint32_t rows, uint32_t cols, bool quantised, struct lam_budget *budget, struct lam_factor *out,
                          lam_error *err)
{
    size_t bytes;
    *out = (struct lam_factor){.rows = rows, .cols = cols, .quantised = quantised};
    if (!lam_factor_bytes(rows, cols, quantised, &bytes)) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a factor of %u by %u", rows, cols);
    lam_code code = lam_budget_alloc(budget, bytes, 1, "a staged factor", &out->tiles, err);
    if (code != LAM_OK) return code;
    if (quantised) code = stage_q14(f, out, err);
    else stage_float(f, out);
    if (code != LAM_OK) lam_factor_release(out);
    return code;
}

void lam_factor_release(struct lam_factor *f)
{
    lam_budget_free(f->tiles);
    *f = (struct lam_factor){0};
}
