/* GGUF's block types by their reference formulas, as gguf.quants (llama.cpp's Python package) states them: one scale from the extreme
 * element, weights rounded to the nearest step. All in float32. */
#include "base/cursor.h"
#include "tensor/decode.h"
#include "tensor/encode.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

#define BLOCK 32

bool lam_dtype_is_encoded(enum lam_dtype dtype)
{
    switch (dtype) {
    case LAM_F32: case LAM_F16: case LAM_BF16: case LAM_Q4_64: case LAM_Q4_0: case LAM_Q4_1: case LAM_Q5_0: case LAM_Q5_1: case LAM_Q8_0:
        return true;
    default: return false;
    }
}

static void encode_floats(enum lam_dtype dtype, const float *x, size_t n, uint8_t *row)
{
    for (size_t i = 0; i < n; i++) {
        if (dtype == LAM_F32) memcpy(row + 4 * i, &x[i], 4);
        else lam_store_u16(row + 2 * i, dtype == LAM_F16 ? lam_f32_to_f16(x[i]) : lam_f32_to_bf16(x[i]));
    }
}

/* 4 or 5 bits: low nibbles of weights i and i + 16 side by side, then or before them the fifth bits, weight i's at bit i. */
static void store_codes(const uint8_t q[BLOCK], uint8_t *high, uint8_t *low)
{
    uint32_t fifth = 0;
    for (int i = 0; i < BLOCK; i++) fifth |= (uint32_t)(q[i] >> 4) << i;
    if (high) lam_store_u32(high, fifth);
    for (int i = 0; i < BLOCK / 2; i++) low[i] = (uint8_t)((q[i] & 15) | (q[i + BLOCK / 2] & 15) << 4);
}

/* 0 where a block is zero, or so small that its scale is zero in float16. */
static float inverse_of(float d) { return fabsf(d) < 0x1p-100f ? 0.0f : 1.0f / d; }

static uint8_t code(float value, float most)
{
    float whole = truncf(value);
    return (uint8_t)(whole > most ? most : whole);
}

/* Q4_0 (reach 8) and Q5_0 (reach 16): the element of the largest magnitude becomes −reach. */
static void encode_symmetric(const float *x, float reach, uint8_t *block)
{
    float extreme = x[0];
    uint8_t q[BLOCK];
    for (int i = 1; i < BLOCK; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    float d = extreme / -reach, inverse = inverse_of(d);
    for (int i = 0; i < BLOCK; i++) q[i] = code(x[i] * inverse + (reach + 0.5f), 2.0f * reach - 1.0f);
    lam_store_u16(block, lam_f32_to_f16(d));
    store_codes(q, reach > 8.0f ? block + 2 : NULL, block + (reach > 8.0f ? 6 : 2));
}

/* Q4_1 (15 steps) and Q5_1 (31) from the least to the largest element. */
static void encode_with_minimum(const float *x, float steps, uint8_t *block)
{
    float least = x[0], most = x[0];
    uint8_t q[BLOCK];
    for (int i = 1; i < BLOCK; i++) {
        if (x[i] < least) least = x[i];
        if (x[i] > most) most = x[i];
    }
    float d = (most - least) / steps, inverse = inverse_of(d);
    for (int i = 0; i < BLOCK; i++) q[i] = code((x[i] - least) * inverse + 0.5f, steps);
    lam_store_u16(block, lam_f32_to_f16(d));
    lam_store_u16(block + 2, lam_f32_to_f16(least));
    store_codes(q, steps > 15.0f ? block + 4 : NULL, block + (steps > 15.0f ? 8 : 4));
}

/* Q8_0: halves away from zero. */
static void encode_q8_0(const float *x, uint8_t *block)
{
    float largest = 0.0f;
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
    float d = largest / 127.0f, inverse = inverse_of(d);
    lam_store_u16(block, lam_f32_to_f16(d));
    for (int i = 0; i < BLOCK; i++) block[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

bool lam_encode_row(enum lam_dtype dtype, const float *x, size_t elements, uint8_t *row)
{
    if (!lam_dtype_is_encoded(dtype)) return false;
    for (size_t i = 0; i < elements; i++)
        if (!isfinite(x[i])) return false;
    if (dtype == LAM_Q4_64) return lam_encode_q4_64_row(x, elements, row);
    size_t block_bytes = lam_dtype_info(dtype)->block_bytes;
    if (lam_dtype_info(dtype)->block_elements == 1) encode_floats(dtype, x, elements, row);
    else for (size_t b = 0; b < elements / BLOCK; b++) {
        const float *from = x + b * BLOCK;
        uint8_t *block = row + b * block_bytes;
        switch (dtype) {
        case LAM_Q4_0: encode_symmetric(from, 8.0f, block); break;
        case LAM_Q5_0: encode_symmetric(from, 16.0f, block); break;
        case LAM_Q4_1: encode_with_minimum(from, 15.0f, block); break;
        case LAM_Q5_1: encode_with_minimum(from, 31.0f, block); break;
        default: encode_q8_0(from, block); break;
        }
    }
    return lam_row_is_finite(dtype, row, elements);
}
