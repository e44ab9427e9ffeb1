#include "adapter/opening.h"
#include "base/alloc.h"
#include "tensor/decode.h"
#include "tensor/tiles.h"

static bool is_float(enum lam_dtype dtype) { return dtype == LAM_F32 || dtype == LAM_F16 || dtype == LAM_BF16; }

lam_code lam_opening_part(struct lam_opening *o, const struct lam_target *target, enum lam_adapter_part part, uint32_t rows,
                          uint32_t cols, const struct lam_slm_entry **out, lam_error *err)
{
    char name[96];
    lam_part_tensor(target->name, part, name);
    const struct lam_slm_entry *e = *out = lam_slm_find(o->file, name);
    if (!e) return LAM_OK;
    bool index = part == LAM_PART_STARTS || part == LAM_PART_COLUMNS;
    if (e->dims[0] != cols || e->dims[1] != rows || e->dims[2] != 1 || e->dims[3] != 1)
        return LAM_RAISE(err, LAM_E_SHAPE, "%s: %s has %u rows of %u, the base asks for %u of %u", o->path, name, e->dims[1],
                         e->dims[0], rows, cols);
    if (!(index ? e->dtype == LAM_I32 : is_float(e->dtype)) || e->layout != LAM_LAYOUT_PLAIN)
        return LAM_RAISE(err, LAM_E_DTYPE, "%s: %s has type %s", o->path, name, lam_dtype_info(e->dtype)->name);
    if (e->role != ((uint32_t)target->role | (uint32_t)part << 16) || e->layer != target->layer)
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: %s has role %u, layer %u", o->path, name, e->role, e->layer);
    o->n_used++;
    return LAM_OK;
}

static lam_code check_row(const struct lam_opening *o, const struct lam_slm_entry *e, const uint8_t *row, size_t r, lam_error *err)
{
    if (lam_row_is_finite(e->dtype, row, e->dims[0])) return LAM_OK;
    return LAM_RAISE(err, LAM_E_NON_FINITE, "%s: %.*s has a value that is not finite in row %zu", o->path, (int)e->name_len,
                     o->file->names + e->name_offset, r);
}

lam_code lam_opening_floats(const struct lam_opening *o, const struct lam_slm_entry *e, float **out, lam_error *err)
{
    size_t row_bytes = 0, n;
    *out = NULL;
    lam_dtype_row_bytes(e->dtype, e->dims[0], &row_bytes);
    float *f;
    if (!lam_mul_size(e->dims[0], e->dims[1], &n))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: a tensor of %u by %u", o->path, e->dims[1], e->dims[0]);
    LAM_TRY(lam_budget_alloc(o->budget, n, sizeof *f, o->path, &f, err));
    for (size_t r = 0; r < e->dims[1]; r++) {
        const uint8_t *row = lam_slm_tensor_data(o->file, e) + r * row_bytes;
        lam_code code = check_row(o, e, row, r, err);
        if (code != LAM_OK) {
            lam_budget_free(f);
            return code;
        }
        lam_decode_row(e->dtype, row, e->dims[0], f + r * e->dims[0]);
    }
    *out = f;
    return LAM_OK;
}

lam_code lam_opening_vector(struct lam_opening *o, const struct lam_target *target, enum lam_adapter_part part, uint32_t n, float **out,
                            lam_error *err)
{
    const struct lam_slm_entry *e;
    *out = NULL;
    LAM_TRY(lam_opening_part(o, target, part, 1, n, &e, err));
    if (!e) return LAM_OK;
    o->bytes += n * sizeof **out;
    return lam_opening_floats(o, e, out, err);
}

lam_code lam_opening_matrix(struct lam_opening *o, const struct lam_slm_entry *e, struct lam_matrix *out, lam_error *err)
{
    size_t bytes = 0, row_bytes = 0;
    uint8_t *tiles = NULL;
    *out = (struct lam_matrix){.dtype = e->dtype, .rows = e->dims[1], .cols = e->dims[0]};
    lam_dtype_row_bytes(e->dtype, out->cols, &row_bytes);
    if (!lam_tile_stride(e->dtype, out->cols, &out->stride) || !lam_tiled_bytes(e->dtype, out->rows, out->cols, &bytes))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: a tensor of %u by %u", o->path, out->rows, out->cols);
    LAM_TRY(lam_budget_alloc(o->budget, bytes, 1, o->path, &tiles, err));
    out->tiles = tiles;
    o->bytes += bytes;
    for (size_t r = 0; r < out->rows; r++) LAM_TRY(check_row(o, e, lam_slm_tensor_data(o->file, e) + r * row_bytes, r, err));
    for (size_t r = 0; r < out->rows; r += LAM_TILE_ROWS)
        lam_tile_rows(e->dtype, out->cols, lam_slm_tensor_data(o->file, e) + r * row_bytes,
                      out->rows - r < LAM_TILE_ROWS ? out->rows - r : LAM_TILE_ROWS, tiles + r / LAM_TILE_ROWS * out->stride);
    return LAM_OK;
}
