/* Where things lie in the parts of an I8 KV page (kernels.h, enum lam_kv_type). */
#ifndef LAM_KERNELS_KV_PAGE_H
#define LAM_KERNELS_KV_PAGE_H

#include "kernels/kernels.h"
#include "tensor/group.h"

#define LAM_KV_TILE 16 /* positions in a K tile */

static inline size_t lam_kv_i8_d4(size_t d) { return (d + 3) / 4 * 4; }
static inline size_t lam_kv_groups(size_t d) { return (d + LAM_GROUP - 1) / LAM_GROUP; }

/* Codes [d4/4][16][4] and scales [groups][16] of a tile of a K part. */
static inline int8_t *lam_kv_i8_k(const void *k_part, size_t d, size_t tile)
{
    return (int8_t *)(uintptr_t)k_part + tile * LAM_KV_TILE * lam_kv_i8_d4(d);
}

static inline float *lam_kv_i8_k_scale(const void *k_part, size_t d, size_t tile)
{
    return (float *)(void *)lam_kv_i8_k(k_part, d, LAM_KV_PAGE / LAM_KV_TILE) + tile * LAM_KV_TILE * lam_kv_groups(d);
}

/* Scales [256] of a V part; its codes [128][d][2] come first. */
static inline float *lam_kv_i8_v_scale(const void *v_part, size_t d)
{
    return (float *)(void *)((int8_t *)(uintptr_t)v_part + LAM_KV_PAGE * d);
}

#endif
