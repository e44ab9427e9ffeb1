/* 16-bit floats. */
#ifndef LAM_TENSOR_HALF_H
#define LAM_TENSOR_HALF_H

#include <stdint.h>

/* float16 and bfloat16 bits. f32 to f16 rounds half to even; out of range gives infinity. */
float lam_f16_to_f32(uint16_t bits);
uint16_t lam_f32_to_f16(float value);
float lam_bf16_to_f32(uint16_t bits);

#endif
