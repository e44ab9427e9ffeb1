#include "tensor/encode.h"
#include "base/cursor.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

#define BLOCK 64
#define BLOCK_BYTES 36
#define ROUND 12582912.0f    /* 1.5 · 2^23: adding and taking it off rounds to an integer, ties to even */
#define TINY 0x1p-100f       /* below it a block counts as zero */
#define FIT_LIMIT 0x1p+126f  /* from it on a fitted scale could take a product out of range */

/* What the largest element becomes, in units of the scale. The further ones cut it off to give the others a finer step. */
static const float reaches[] = {-8.0f, -8.5f, -7.5f, -9.0f, -7.0f, -6.5f, -6.0f};

/* The codes of one reach, and what they are worth. */
struct trial {
    int8_t w[BLOCK];
    double xw, ww; /* Σ x·w, Σ w² */
};

static void try_reach(const float *x, float extreme, float reach, struct trial *out)
{
    float inverse = reach / extreme;
    *out = (struct trial){.ww = 0.0};
    for (int i = 0; i < BLOCK; i++) {
        float w = (x[i] * inverse + ROUND) - ROUND;
        w = w < -8.0f ? -8.0f : w > 7.0f ? 7.0f : w;
        out->w[i] = (int8_t)w;
        out->xw = out->xw + (double)x[i] * (double)w;
        out->ww = out->ww + (double)w * (double)w;
    }
}

static void store_block(float d, const int8_t w[BLOCK], uint8_t *block)
{
    uint32_t bits;
    memcpy(&bits, &d, sizeof bits);
    lam_store_u32(block, bits);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 16; i++)
            block[4 + 16 * g + i] = (uint8_t)((w[32 * g + i] + 8) | (w[32 * g + 16 + i] + 8) << 4);
}

/* With the best scale for its codes, Σ x·w / Σ w², a trial's squared error is Σ x² − (Σ x·w)² / Σ w²: the trial with the largest
 * subtrahend wins. */
static void encode_block(const float *x, float extreme, uint8_t *block)
{
    struct trial best, trial;
    float magnitude = fabsf(extreme);
    if (magnitude < TINY) {
        store_block(0.0f, (int8_t[BLOCK]){0}, block);
        return;
    }
    try_reach(x, extreme, reaches[0], &best);
    if (magnitude >= FIT_LIMIT) {
        store_block(extreme / reaches[0], best.w, block);
        return;
    }
    for (size_t i = 1; i < sizeof reaches / sizeof *reaches; i++) {
        try_reach(x, extreme, reaches[i], &trial);
        if (trial.xw * trial.xw / trial.ww > best.xw * best.xw / best.ww) best = trial;
    }
    store_block((float)(best.xw / best.ww), best.w, block);
}

/* The element of the largest magnitude, the first of equals. False if one is not finite. */
static bool find_extreme(const float *x, float *extreme)
{
    float largest = 0.0f;
    *extreme = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        float magnitude = fabsf(x[i]);
        if (!isfinite(magnitude)) return false;
        if (magnitude > largest) {
            largest = magnitude;
            *extreme = x[i];
        }
    }
    return true;
}

bool lam_encode_q4_64_row(const float *x, size_t elements, uint8_t *row)
{
    for (size_t b = 0; b < elements / BLOCK; b++) {
        float extreme;
        if (!find_extreme(x + b * BLOCK, &extreme)) return false;
        encode_block(x + b * BLOCK, extreme, row + b * BLOCK_BYTES);
    }
    return true;
}
