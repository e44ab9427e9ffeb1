#include "tensor/decode.h"
#include "base/cursor.h"
#include "tensor/group.h"
#include "tensor/half.h"

#include <string.h>

/* The order of float operations is the dequantiser's: scale product first, then the weight, then the minimum. */
static void decode_group(enum lam_form form, const struct lam_group *g, float out[LAM_GROUP])
{
    for (int i = 0; i < LAM_GROUP; i++) {
        int h = i / 16;
        float w = (float)g->w[i];
        switch (form) {
        case LAM_FORM_SCALE: out[i] = g->d * w; break;
        case LAM_FORM_SCALE_MIN: out[i] = g->d * w + g->m; break;
        case LAM_FORM_K32:
        case LAM_FORM_K16_MIN: out[i] = g->d * (float)g->sc[h] * w - g->m * (float)g->mn[h]; break;
        case LAM_FORM_K16: out[i] = g->d * (float)g->sc[h] * w; break;
        }
    }
}

void lam_decode_row(enum lam_dtype dtype, const uint8_t *row, size_t elements, float *out)
{
    if (dtype == LAM_F32) {
        for (size_t i = 0; i < elements; i++) memcpy(&out[i], row + 4 * i, sizeof *out);
    } else if (dtype == LAM_F16) {
        for (size_t i = 0; i < elements; i++) out[i] = lam_f16_to_f32(lam_load_u16(row + 2 * i));
    } else if (dtype == LAM_BF16) {
        for (size_t i = 0; i < elements; i++) out[i] = lam_bf16_to_f32(lam_load_u16(row + 2 * i));
    } else {
        const struct lam_dtype_info *info = lam_dtype_info(dtype);
        enum lam_form form = lam_dtype_form(dtype);
        size_t groups = info->block_elements / LAM_GROUP;
        for (size_t i = 0; i < elements / LAM_GROUP; i++) {
            struct lam_group group;
            lam_group_load(dtype, row + i / groups * info->block_bytes, i % groups, &group);
            decode_group(form, &group, out + i * LAM_GROUP);
        }
    }
}

static bool f16_finite(const uint8_t *p) { return (lam_load_u16(p) & 0x7c00) != 0x7c00; }

bool lam_row_is_finite(enum lam_dtype dtype, const uint8_t *row, size_t elements)
{
    const struct lam_dtype_info *info = lam_dtype_info(dtype);
    size_t n_blocks = elements / info->block_elements;
    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *block = row + b * info->block_bytes;
        /* Field 0 holds the floats of a block: its elements, or its scale and minimum. */
        const struct lam_field *field = &info->fields[0];
        for (size_t at = 0; at < field->size; at += field->unit) {
            const uint8_t *p = block + field->offset + at;
            bool finite = dtype == LAM_F32 || dtype == LAM_Q4_64 ? (lam_load_u32(p) & 0x7f800000) != 0x7f800000
                        : dtype == LAM_BF16 ? (lam_load_u16(p) & 0x7f80) != 0x7f80 : f16_finite(p);
            if (!finite) return false;
        }
    }
    return true;
}
