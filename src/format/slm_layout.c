#include "format/slm_layout.h"
#include "base/alloc.h"
#include "base/crc32c.h"
#include "tensor/tiles.h"

#include <string.h>

lam_code lam_slm_tensor_size(const char *name, size_t name_len, enum lam_dtype dtype, enum lam_slm_layout layout,
                             uint8_t n_dims, const uint32_t dims[4], size_t *unit_bytes, size_t *bytes, lam_error *err)
{
    int len = (int)(name_len < 128 ? name_len : 128);
    if (n_dims < 1 || n_dims > 4) return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.*s: %u dimensions, 1 to 4 are allowed", len, name, n_dims);
    size_t rows = 1;
    for (int i = 0; i < 4; i++) {
        if (dims[i] == 0 || (i >= n_dims && dims[i] != 1))
            return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.*s: dimension %d of %u is %u", len, name, i, n_dims, dims[i]);
        if (i > 0 && !lam_mul_size(rows, dims[i], &rows))
            return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.*s: the number of rows does not fit", len, name);
    }
    if (dims[0] % lam_dtype_info(dtype)->block_elements != 0)
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.*s: rows of %u do not divide into %s blocks of %u", len, name, dims[0],
                         lam_dtype_info(dtype)->name, lam_dtype_info(dtype)->block_elements);
    if (layout == LAM_LAYOUT_TILE16 && dtype == LAM_I32)
        return LAM_RAISE(err, LAM_E_DTYPE, "tensor %.*s: row tiles of type I32", len, name);
    if (layout == LAM_LAYOUT_TILE16 && n_dims != 2)
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.*s: row tiles need 2 dimensions, not %u", len, name, n_dims);
    bool fits = layout == LAM_LAYOUT_TILE16
        ? lam_tile_stride(dtype, dims[0], unit_bytes) && lam_tiled_bytes(dtype, rows, dims[0], bytes)
        : lam_dtype_row_bytes(dtype, dims[0], unit_bytes) && lam_mul_size(*unit_bytes, rows, bytes);
    return fits ? LAM_OK : LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.*s: its size does not fit", len, name);
}

bool lam_slm_place(size_t end, bool same_layer, size_t *offset)
{
    return lam_round_up(end, same_layer ? LAM_SLM_TENSOR_ALIGN : LAM_SLM_LAYER_ALIGN, offset);
}

bool lam_slm_place_residuals(size_t end, size_t n, size_t *table, size_t *first)
{
    size_t bytes;
    return lam_round_up(end, LAM_SLM_TENSOR_ALIGN, table) && lam_mul_size(n, LAM_SLM_RECORD_BYTES, &bytes) &&
           lam_add_size(*table, bytes, first) && lam_round_up(*first, LAM_SLM_TENSOR_ALIGN, first);
}

void lam_slm_file_root(const struct lam_slm_parts *parts, const uint8_t weights_root[32], uint8_t out[32])
{
    uint8_t header[LAM_SLM_HEADER_BYTES], inner[32];
    memcpy(header, parts->header, sizeof header);
    memset(header + LAM_SLM_AT_FILE_ROOT, 0, 32);
    memset(header + LAM_SLM_AT_CRC, 0, 4);
    struct lam_sha256 s;
    lam_sha256_init(&s);
    lam_sha256_update(&s, "\x00", 1);
    lam_sha256_update(&s, header, sizeof header);
    lam_sha256_update(&s, parts->metadata, parts->metadata_bytes);
    lam_sha256_update(&s, parts->vocab, parts->vocab_bytes);
    lam_sha256_update(&s, parts->directory, parts->directory_bytes);
    lam_sha256_final(&s, inner);
    lam_sha256_init(&s);
    lam_sha256_update(&s, "\x01", 1);
    lam_sha256_update(&s, inner, 32);
    lam_sha256_update(&s, weights_root, 32);
    lam_sha256_final(&s, out);
}

uint32_t lam_slm_header_crc(const uint8_t header[LAM_SLM_HEADER_BYTES]) { return lam_crc32c(header, LAM_SLM_AT_CRC); }
