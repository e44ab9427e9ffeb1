/* 16-bit floats. */
#ifndef LAM_TENSOR_HALF_H
#define LAM_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

/* float16 and bfloat16 bits. From f32 they round half to even; out of range gives infinity. */
float lam_f16_to_f32(uint16_t bits);
uint16_t lam_f32_to_f16(float value);
float lam_bf16_to_f32(uint16_t bits);
uint16_t lam_f32_to_bf16(float value);

/* The value of a finite float16, exactly, without a branch: its bits as a float32 are 2^112 times too small, subnormal ones too. */
static inline float lam_finite_f16_to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    value = value * 0x1p112f;
    memcpy(&bits, &value, sizeof bits);
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
