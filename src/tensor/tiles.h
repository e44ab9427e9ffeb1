/* Row tiles: the order in which .slm keeps the bytes of a matrix and kernels read them.
 *
 * A matrix w[rows, cols] is cut into tiles of 16 rows. In a tile the blocks follow each other along the row; of each
 * block position the fields are stored one after the other (dtype.h), each field's units interleaved over the 16 rows:
 *   tile = for block b: for field f: for unit u: for row r in 0..15: bytes of unit u of field f of block b of row r
 * A tile's bytes are rounded up to 64; missing rows of the last tile and the padding are zero. */
#ifndef LAM_TENSOR_TILES_H
#define LAM_TENSOR_TILES_H

#include "tensor/dtype.h"

#define LAM_TILE_ROWS 16

/* Bytes from one tile to the next. False on overflow or if cols is not a multiple of the block. */
bool lam_tile_stride(enum lam_dtype dtype, uint64_t cols, size_t *bytes);

/* Bytes of a whole tiled matrix. */
bool lam_tiled_bytes(enum lam_dtype dtype, uint64_t rows, uint64_t cols, size_t *bytes);

/* tile[stride] from up to 16 plain rows (each row_bytes long, in GGUF's form, one after the other). */
void lam_tile_rows(enum lam_dtype dtype, uint64_t cols, const uint8_t *rows, size_t n_rows, uint8_t *tile);

/* The inverse: row r (0..15) of a tile into row[row_bytes], byte-equal to what was tiled. */
void lam_untile_row(enum lam_dtype dtype, uint64_t cols, const uint8_t *tile, size_t r, uint8_t *row);

#endif
