/* 16-bit floats. */
#ifndef LAM_TENSOR_HALF_H
#define LAM_TENSOR_HALF_H

#include <stdint.h>

/* float16 and bfloat16 bits. From f32 they round half to even; out of range gives infinity. */
float lam_f16_to_f32(uint16_t bits);
uint16_t lam_f32_to_f16(float value);
float lam_bf16_to_f32(uint16_t bits);
uint16_t lam_f32_to_bf16(float value);

#endif
