/* Encoding of float rows. Every operation is written out, so that another program gives the same bytes (docs/format.md, "Encoding"). */
#ifndef LAM_TENSOR_ENCODE_H
#define LAM_TENSOR_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* x[elements] → Q4_64 blocks; elements is a multiple of 64. False if an element is not finite. */
bool lam_encode_q4_64_row(const float *x, size_t elements, uint8_t *row);

#endif
