#include "tensor/half.h"

#include <string.h>

static float bits_to_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t f32_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float lam_bf16_to_f32(uint16_t bits) { return bits_to_f32((uint32_t)bits << 16); }

uint16_t lam_f32_to_bf16(float value)
{
    uint32_t bits = f32_to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* a NaN stays one */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float lam_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return bits_to_f32(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    /* Shifted into place the exponent is 112 too small; the product is exact, subnormals included. */
    return bits_to_f32(sign | f32_to_bits(bits_to_f32(rest << 13) * 0x1p112f));
}

uint16_t lam_f32_to_f16(float value)
{
    uint32_t bits = f32_to_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
    if (rest < 0x38800000) {
        /* Subnormal result: adding 0.5 puts the last f16 bit at the last bit of the sum, rounded to nearest even. */
        return (uint16_t)(sign | (f32_to_bits(bits_to_f32(rest) + 0.5f) - 0x3f000000));
    }
    uint32_t odd = rest >> 13 & 1;
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + odd) >> 13);
}
