/* Activation quantisation, docs/numeric.md "Activations". */
#include "kernels/scalar.h"
#include "tensor/group.h"

#include <string.h>

/* Largest magnitude of n floats as bits with the sign cleared; 0x7f800000 and above means not finite. */
static uint32_t largest_magnitude(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        if (bits > largest) largest = bits;
    }
    return largest;
}

/* The factor from float to code, or 0 for a group that counts as zero; *scale is the factor back. False if not finite. */
static bool group_scale(const float *x, size_t n, float top, float *inverse, float *scale)
{
    uint32_t bits = largest_magnitude(x, n);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    *inverse = *scale = 0.0f;
    if (bits >= 0x7f800000) return false;
    if (amax < 0x1p-100f) return true;
    *inverse = top / amax;
    *scale = amax / top;
    return true;
}

bool lam_quantise8_scalar(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        float inverse;
        finite &= group_scale(x + g * LAM_GROUP, n, 127.0f, &inverse, &scale[g]);
        half[2 * g] = half[2 * g + 1] = 0;
        for (size_t i = 0; i < LAM_GROUP; i++) {
            int32_t code = i < n && inverse != 0.0f ? lam_round_even(x[g * LAM_GROUP + i] * inverse) : 0;
            q[g * LAM_GROUP + i] = (int8_t)code;
            half[2 * g + i / 16] += code;
        }
    }
    return finite;
}

bool lam_quantise14_scalar(const float *x, size_t cols, int16_t *q, float *scale)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        float inverse;
        finite &= group_scale(x + g * LAM_GROUP, n, 8191.0f, &inverse, &scale[g]);
        for (size_t i = 0; i < LAM_GROUP; i++)
            q[g * LAM_GROUP + i] = (int16_t)(i < n && inverse != 0.0f ? lam_round_even(x[g * LAM_GROUP + i] * inverse) : 0);
    }
    return finite;
}
