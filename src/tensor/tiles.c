#include "tensor/tiles.h"
#include "base/alloc.h"

#include <string.h>

bool lam_tile_stride(enum lam_dtype dtype, uint64_t cols, size_t *bytes)
{
    size_t row;
    return lam_dtype_row_bytes(dtype, cols, &row) && lam_mul_size(row, LAM_TILE_ROWS, &row) && lam_round_up(row, 64, bytes);
}

bool lam_tiled_bytes(enum lam_dtype dtype, uint64_t rows, uint64_t cols, size_t *bytes)
{
    size_t stride, n_tiles;
    if (rows > SIZE_MAX - LAM_TILE_ROWS || !lam_tile_stride(dtype, cols, &stride)) return false;
    n_tiles = ((size_t)rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS;
    return lam_mul_size(stride, n_tiles, bytes);
}

void lam_tile_rows(enum lam_dtype dtype, uint64_t cols, const uint8_t *rows, size_t n_rows, uint8_t *tile)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    size_t n_blocks = (size_t)(cols / info->block_elements), row_bytes = n_blocks * info->block_bytes, stride = 0;
    lam_tile_stride(dtype, cols, &stride);
    memset(tile, 0, stride);
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t *out = tile + b * info->block_bytes * LAM_TILE_ROWS;
        const uint8_t *block = rows + b * info->block_bytes;
        for (size_t f = 0; f < info->n_fields; f++) {
            const struct lam_field *field = &info->fields[f];
            for (size_t at = 0; at < field->size; at += field->unit, out += (size_t)field->unit * LAM_TILE_ROWS)
                for (size_t r = 0; r < n_rows; r++)
                    memcpy(out + r * field->unit, block + r * row_bytes + field->offset + at, field->unit);
        }
    }
}

void lam_untile_row(enum lam_dtype dtype, uint64_t cols, const uint8_t *tile, size_t r, uint8_t *row)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    size_t n_blocks = (size_t)(cols / info->block_elements);
    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *in = tile + b * info->block_bytes * LAM_TILE_ROWS;
        uint8_t *block = row + b * info->block_bytes;
        for (size_t f = 0; f < info->n_fields; f++) {
            const struct lam_field *field = &info->fields[f];
            for (size_t at = 0; at < field->size; at += field->unit, in += (size_t)field->unit * LAM_TILE_ROWS)
                memcpy(block + field->offset + at, in + r * field->unit, field->unit);
        }
    }
}
