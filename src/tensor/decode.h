/* Block decoding, bit-equal to the `gguf` Python package's dequantiser (gguf.quants). */
#ifndef LAM_TENSOR_DECODE_H
#define LAM_TENSOR_DECODE_H

#include "tensor/dtype.h"

/* out[elements] from one row in GGUF's form. elements is a multiple of the block. */
void lam_decode_row(enum lam_dtype dtype, const uint8_t *row, size_t elements, float *out);

/* True if every number that the row's decoding uses as a scale (and every element of a float type) is finite. */
bool lam_row_is_finite(enum lam_dtype dtype, const uint8_t *row, size_t elements);

#endif
