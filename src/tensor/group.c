#include "tensor/group.h"
#include "base/cursor.h"
#include "tensor/half.h"

#include <string.h>

enum lam_form lam_dtype_form(enum lam_dtype dtype)
{
    switch (dtype) {
    case LAM_Q4_1: case LAM_Q5_1: return LAM_FORM_SCALE_MIN;
    case LAM_Q4_K: case LAM_Q5_K: return LAM_FORM_K32;
    case LAM_Q3_K: case LAM_Q6_K: return LAM_FORM_K16;
    case LAM_Q2_K: return LAM_FORM_K16_MIN;
    default: return LAM_FORM_SCALE;
    }
}

static float f16_at(const uint8_t *p) { return lam_f16_to_f32(lam_load_u16(p)); }

static float f32_at(const uint8_t *p)
{
    uint32_t bits = lam_load_u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 32 nibbles: element i < 16 in the low half of byte i, i + 16 in the high half. */
static void nibbles(const uint8_t *qs, int8_t w[32])
{
    for (int i = 0; i < 16; i++) {
        w[i] = (int8_t)(qs[i] & 15);
        w[i + 16] = (int8_t)(qs[i] >> 4);
    }
}

/* Bit i of qh is the fifth bit of element i. */
static void fifth_bits(const uint8_t *qh, int8_t w[32])
{
    uint32_t bits = lam_load_u32(qh);
    for (int i = 0; i < 32; i++) w[i] = (int8_t)(w[i] | (int)(bits >> i & 1) << 4);
}

static void subtract(int8_t w[32], int offset)
{
    for (int i = 0; i < 32; i++) w[i] = (int8_t)(w[i] - offset);
}

/* Q4_K and Q5_K: eight 6-bit scales and minima in 12 bytes. */
static void scale_min_k4(const uint8_t *packed, size_t g, struct lam_group *out)
{
    int sc, mn;
    if (g < 4) {
        sc = packed[g] & 63;
        mn = packed[g + 4] & 63;
    } else {
        sc = (packed[g + 4] & 15) | (packed[g - 4] >> 6) << 4;
        mn = packed[g + 4] >> 4 | (packed[g] >> 6) << 4;
    }
    out->sc[0] = out->sc[1] = sc;
    out->mn[0] = out->mn[1] = mn;
}

/* Q3_K: scale j of 16, six bits less 32: low nibbles in bytes 0..7, top pairs in bytes 8..11. */
static int scale_q3(const uint8_t *packed, size_t j)
{
    int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
    int high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
    return (low | high << 4) - 32;
}

static void load_q2_k(const uint8_t *block, size_t g, struct lam_group *out)
{
    const uint8_t *scales = block, *qs = block + 16 + 32 * (g / 4);
    out->d = f16_at(block + 80);
    out->m = f16_at(block + 82);
    for (size_t h = 0; h < 2; h++) {
        out->sc[h] = scales[2 * g + h] & 15;
        out->mn[h] = scales[2 * g + h] >> 4;
    }
    for (int i = 0; i < 32; i++) out->w[i] = (int8_t)(qs[i] >> (2 * (g % 4)) & 3);
}

static void load_q3_k(const uint8_t *block, size_t g, struct lam_group *out)
{
    const uint8_t *hmask = block, *qs = block + 32 + 32 * (g / 4), *scales = block + 96;
    out->d = f16_at(block + 108);
    for (size_t h = 0; h < 2; h++) out->sc[h] = scale_q3(scales, 2 * g + h);
    for (int i = 0; i < 32; i++)
        out->w[i] = (int8_t)((qs[i] >> (2 * (g % 4)) & 3) - (hmask[i] >> g & 1 ? 0 : 4));
}

static void load_q4_k(const uint8_t *block, size_t g, struct lam_group *out)
{
    const uint8_t *qs = block + 16 + 32 * (g / 2);
    out->d = f16_at(block);
    out->m = f16_at(block + 2);
    scale_min_k4(block + 4, g, out);
    for (int i = 0; i < 32; i++) out->w[i] = (int8_t)(g % 2 ? qs[i] >> 4 : qs[i] & 15);
}

static void load_q5_k(const uint8_t *block, size_t g, struct lam_group *out)
{
    const uint8_t *qh = block + 16, *qs = block + 48 + 32 * (g / 2);
    out->d = f16_at(block);
    out->m = f16_at(block + 2);
    scale_min_k4(block + 4, g, out);
    for (int i = 0; i < 32; i++)
        out->w[i] = (int8_t)((g % 2 ? qs[i] >> 4 : qs[i] & 15) | (qh[i] >> g & 1) << 4);
}

static void load_q6_k(const uint8_t *block, size_t g, struct lam_group *out)
{
    size_t part = g / 4, q = g % 4; /* 128 weights a part */
    const uint8_t *ql = block + 64 * part + 32 * (q % 2), *qh = block + 128 + 32 * part;
    out->d = f16_at(block + 208);
    for (size_t h = 0; h < 2; h++) out->sc[h] = (int8_t)block[192 + 2 * g + h];
    for (int i = 0; i < 32; i++) {
        int low = q < 2 ? ql[i] & 15 : ql[i] >> 4;
        out->w[i] = (int8_t)((low | (qh[i] >> (2 * q) & 3) << 4) - 32);
    }
}

void lam_group_load(enum lam_dtype dtype, const uint8_t *block, size_t g, struct lam_group *out)
{
    *out = (struct lam_group){.sc = {1, 1}};
    switch (dtype) {
    case LAM_Q4_0:
        out->d = f16_at(block);
        nibbles(block + 2, out->w);
        subtract(out->w, 8);
        break;
    case LAM_Q4_1:
        out->d = f16_at(block);
        out->m = f16_at(block + 2);
        nibbles(block + 4, out->w);
        break;
    case LAM_Q5_0:
        out->d = f16_at(block);
        nibbles(block + 6, out->w);
        fifth_bits(block + 2, out->w);
        subtract(out->w, 16);
        break;
    case LAM_Q5_1:
        out->d = f16_at(block);
        out->m = f16_at(block + 2);
        nibbles(block + 8, out->w);
        fifth_bits(block + 4, out->w);
        break;
    case LAM_Q8_0:
        out->d = f16_at(block);
        for (int i = 0; i < 32; i++) out->w[i] = (int8_t)block[2 + i];
        break;
    case LAM_Q4_64:
        out->d = f32_at(block);
        nibbles(block + 4 + 16 * g, out->w);
        subtract(out->w, 8);
        break;
    case LAM_Q2_K: load_q2_k(block, g, out); break;
    case LAM_Q3_K: load_q3_k(block, g, out); break;
    case LAM_Q4_K: load_q4_k(block, g, out); break;
    case LAM_Q5_K: load_q5_k(block, g, out); break;
    case LAM_Q6_K: load_q6_k(block, g, out); break;
    default: break; /* float types have no groups */
    }
}
