/* Encoding of float rows. Every operation is written out, so that another program gives the same bytes (docs/format.md, "Encoding"). */
#ifndef LAM_TENSOR_ENCODE_H
#define LAM_TENSOR_ENCODE_H

#include "tensor/dtype.h"

/* x[elements] → Q4_64 blocks; elements is a multiple of 64. False if an element is not finite. */
bool lam_encode_q4_64_row(const float *x, size_t elements, uint8_t *row);

/* x[elements] → row in GGUF's form, as the `gguf` Python package quantises; elements is a multiple of the block. F32, F16, BF16, Q4_64,
 * Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. False for another type, or if an element (or what becomes of it as a float or a scale) is not finite. */
bool lam_encode_row(enum lam_dtype dtype, const float *x, size_t elements, uint8_t *row);

/* True for the types that lam_encode_row knows. */
bool lam_dtype_is_encoded(enum lam_dtype dtype);

#endif
