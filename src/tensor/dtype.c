#include "tensor/dtype.h"

#include <string.h>

/* Block layouts as GGUF's files hold them (ggml's block_* structures), and Q4_64; fields listed scales first. */
static const struct lam_dtype_info infos[] = {
    {LAM_F32, "F32", 1, 4, 1, {{0, 4, 4}}},
    {LAM_F16, "F16", 1, 2, 1, {{0, 2, 2}}},
    {LAM_BF16, "BF16", 1, 2, 1, {{0, 2, 2}}},
    {LAM_I32, "I32", 1, 4, 1, {{0, 4, 4}}},
    {LAM_Q4_0, "Q4_0", 32, 18, 2, {{0, 2, 2}, {2, 16, 4}}},                          /* d, qs */
    {LAM_Q4_1, "Q4_1", 32, 20, 2, {{0, 4, 2}, {4, 16, 4}}},                          /* d m, qs */
    {LAM_Q5_0, "Q5_0", 32, 22, 3, {{0, 2, 2}, {2, 4, 4}, {6, 16, 4}}},               /* d, qh, qs */
    {LAM_Q5_1, "Q5_1", 32, 24, 3, {{0, 4, 2}, {4, 4, 4}, {8, 16, 4}}},               /* d m, qh, qs */
    {LAM_Q8_0, "Q8_0", 32, 34, 2, {{0, 2, 2}, {2, 32, 4}}},                          /* d, qs */
    {LAM_Q2_K, "Q2_K", 256, 84, 3, {{80, 4, 2}, {0, 16, 4}, {16, 64, 4}}},           /* d dmin, scales, qs */
    {LAM_Q3_K, "Q3_K", 256, 110, 4, {{108, 2, 2}, {96, 12, 4}, {0, 32, 4}, {32, 64, 4}}}, /* d, scales, hmask, qs */
    {LAM_Q4_K, "Q4_K", 256, 144, 3, {{0, 4, 2}, {4, 12, 4}, {16, 128, 4}}},          /* d dmin, scales, qs */
    {LAM_Q5_K, "Q5_K", 256, 176, 4, {{0, 4, 2}, {4, 12, 4}, {16, 32, 4}, {48, 128, 4}}}, /* d dmin, scales, qh, qs */
    {LAM_Q6_K, "Q6_K", 256, 210, 4, {{208, 2, 2}, {192, 16, 4}, {128, 64, 4}, {0, 128, 4}}}, /* d, scales, qh, ql */
    {LAM_Q4_64, "Q4_64", 64, 36, 2, {{0, 4, 4}, {4, 32, 4}}},                        /* d (float32), qs */
};

const struct lam_dtype_info *lam_dtype_info(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++)
        if (infos[i].dtype == dtype) return &infos[i];
    return NULL;
}

const struct lam_dtype_info *lam_dtype_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++)
        if (strcmp(infos[i].name, name) == 0) return &infos[i];
    return NULL;
}

bool lam_dtype_in_gguf(enum lam_dtype dtype) { return (uint32_t)dtype < 128 && dtype != LAM_I32; }

bool lam_dtype_is_float(enum lam_dtype dtype) { return dtype == LAM_F32 || dtype == LAM_F16 || dtype == LAM_BF16; }

bool lam_dtype_is_quantised(enum lam_dtype dtype) { return !lam_dtype_is_float(dtype) && dtype != LAM_I32; }

bool lam_dtype_row_bytes(enum lam_dtype dtype, uint64_t elements, size_t *bytes)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    if (!info || elements % info->block_elements != 0) return false;
    return !__builtin_mul_overflow(elements / info->block_elements, (uint64_t)info->block_bytes, bytes);
}
