/* The products of nc1, one lane (output row) at a time: the definition that every other variant equals bit for bit. */
#include "kernels/scalar.h"
#include "base/cursor.h"
#include "tensor/half.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#include <string.h>

/* Exact integer sums of one group: over codes 0..15 and 16..31. */
static void group_sums(const int8_t *w, const int8_t *q, int32_t sums[2])
{
    sums[0] = sums[1] = 0;
    for (int i = 0; i < LAM_GROUP; i++) sums[i / 16] += (int32_t)w[i] * q[i];
}

/* acc plus one group's product: the float operations of docs/numeric.md "Blocks", in their order. */
static float add_group(enum lam_form form, const struct lam_group *g, const int8_t *q, float xs, const int32_t half[2], float acc)
{
    int32_t s[2];
    group_sums(g->w, q, s);
    int32_t codes = half[0] + half[1];
    switch (form) {
    case LAM_FORM_SCALE:
        return acc + (float)(s[0] + s[1]) * (g->d * xs);
    case LAM_FORM_SCALE_MIN:
        acc = acc + (float)(s[0] + s[1]) * (g->d * xs);
        return acc + g->m * (xs * (float)codes);
    case LAM_FORM_K32:
        acc = acc + (float)(s[0] + s[1]) * (g->d * (float)g->sc[0] * xs);
        return acc - (g->m * (float)g->mn[0]) * (xs * (float)codes);
    case LAM_FORM_K16:
        return acc + (float)(g->sc[0] * s[0] + g->sc[1] * s[1]) * (g->d * xs);
    case LAM_FORM_K16_MIN:
        acc = acc + (float)(g->sc[0] * s[0] + g->sc[1] * s[1]) * (g->d * xs);
        return acc - (g->m * xs) * (float)(g->mn[0] * half[0] + g->mn[1] * half[1]);
    }
    return acc;
}

/* Block b of row r of a tile, gathered into block[block_bytes]. */
static void gather_block(const struct lam_dtype_info *info, const uint8_t *tile, size_t b, size_t r, uint8_t *block)
{
    const uint8_t *in = tile + b * info->block_bytes * LAM_TILE_ROWS;
    for (size_t f = 0; f < info->n_fields; f++) {
        const struct lam_field *field = &info->fields[f];
        for (size_t at = 0; at < field->size; at += field->unit, in += (size_t)field->unit * LAM_TILE_ROWS)
            memcpy(block + field->offset + at, in + r * field->unit, field->unit);
    }
}

void lam_gemm_quant_scalar(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    enum lam_form form = lam_dtype_form(dtype);
    size_t block_groups = info->block_elements / LAM_GROUP;
    for (size_t n = 0; n < x->n_rows; n++)
        for (size_t r = 0; r < LAM_TILE_ROWS; r++) y[n * y_stride + r] = 0.0f;
    for (size_t r = 0; r < LAM_TILE_ROWS; r++) {
        uint8_t block[256];
        struct lam_group group;
        for (size_t g = 0; g < x->groups; g++) {
            if (g % block_groups == 0) gather_block(info, tile, g / block_groups, r, block);
            lam_group_load(dtype, block, g % block_groups, &group);
            for (size_t n = 0; n < x->n_rows; n++) {
                size_t at = n * x->groups + g;
                float *acc = &y[n * y_stride + r];
                *acc = add_group(form, &group, x->q + at * LAM_GROUP, x->scale[at], x->half + at * 2, *acc);
            }
        }
    }
}

static float float_weight(enum lam_dtype dtype, const uint8_t *tile, size_t k, size_t r)
{
    size_t i = k * LAM_TILE_ROWS + r;
    float value;
    if (dtype == LAM_F16) return lam_f16_to_f32(lam_load_u16(tile + 2 * i));
    if (dtype == LAM_BF16) return lam_bf16_to_f32(lam_load_u16(tile + 2 * i));
    memcpy(&value, tile + 4 * i, sizeof value);
    return value;
}

void lam_gemm_float_scalar(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride,
                           size_t n_rows, float *y, size_t y_stride)
{
    for (size_t n = 0; n < n_rows; n++) {
        for (size_t r = 0; r < LAM_TILE_ROWS; r++) {
            float total = 0.0f;
            for (size_t g = 0; g < cols; g += LAM_GROUP) {
                float sum = 0.0f;
                for (size_t k = g; k < cols && k < g + LAM_GROUP; k++)
                    sum = sum + float_weight(dtype, tile, k, r) * x[n * x_stride + k];
                total = total + sum;
            }
            y[n * y_stride + r] = total;
        }
    }
}

/* One row x of 14-bit codes times row r of a tile. */
static float q14_product(const uint8_t *tile, size_t cols, size_t r, const int16_t *q, const float *xs)
{
    float acc = 0.0f;
    for (size_t g = 0; g * LAM_GROUP < cols; g++, tile += lam_q14_tile_bytes(LAM_GROUP)) {
        float scale;
        int32_t sum = 0;
        memcpy(&scale, tile + 4 * r, sizeof scale);
        for (size_t k = 0; k < LAM_GROUP && g * LAM_GROUP + k < cols; k++) {
            int16_t w;
            memcpy(&w, tile + 64 + (k / 2 * LAM_TILE_ROWS + r) * 4 + k % 2 * 2, sizeof w);
            sum += (int32_t)w * q[g * LAM_GROUP + k];
        }
        acc = acc + (float)sum * (scale * xs[g]);
    }
    return acc;
}

void lam_add_q14_scalar(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                        size_t y_stride)
{
    for (size_t t = 0; t < tiles->n; t++)
        for (size_t n = 0; n < n_rows; n++)
            for (size_t r = 0; r < LAM_TILE_ROWS; r++) {
                size_t at = (first + n) * x->groups;
                float *out = &y[n * y_stride + t * LAM_TILE_ROWS + r];
                *out = *out + q14_product(tiles->bytes + t * lam_q14_tile_bytes(tiles->cols), tiles->cols, r, x->q + at * LAM_GROUP,
                                          x->scale + at);
            }
}
