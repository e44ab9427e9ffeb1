#include "cache/kv.h"
#include "base/alloc.h"
#include "tensor/half.h"
#include "tensor/tiles.h"

#include <math.h>

static size_t element_bytes(const struct lam_kv *kv) { return kv->dtype == LAM_F32 ? 4 : 2; }

/* Bytes of K (or of V) of one layer and head in a page. */
static size_t part_bytes(const struct lam_kv *kv) { return (size_t)kv->head_dim * LAM_KV_PAGE * element_bytes(kv); }

size_t lam_kv_page_bytes(const struct lam_kv *kv) { return 2 * part_bytes(kv) * kv->n_layers * kv->n_heads; }

lam_code lam_kv_init(struct lam_kv *kv, enum lam_dtype dtype, uint32_t n_layers, uint32_t n_heads, uint32_t head_dim,
                     size_t max_positions, lam_error *err)
{
    *kv = (struct lam_kv){.dtype = dtype, .n_layers = n_layers, .n_heads = n_heads, .head_dim = head_dim};
    size_t bytes = part_bytes(kv); /* at most 512 KiB */
    if (!lam_mul_size(bytes, 2 * (size_t)n_layers, &bytes) || !lam_mul_size(bytes, n_heads, &bytes))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "a KV page of %u layers and %u heads", n_layers, n_heads);
    kv->max_pages = (max_positions + LAM_KV_PAGE - 1) / LAM_KV_PAGE;
    kv->pages = lam_alloc(kv->max_pages, sizeof *kv->pages);
    return kv->pages ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a context of %zu positions", max_positions);
}

void lam_kv_release(struct lam_kv *kv)
{
    for (size_t i = 0; i < kv->n_pages; i++) lam_free_aligned(kv->pages[i]);
    lam_free(kv->pages);
    *kv = (struct lam_kv){0};
}

lam_code lam_kv_reserve(struct lam_kv *kv, size_t n_positions, lam_error *err)
{
    size_t need = (n_positions + LAM_KV_PAGE - 1) / LAM_KV_PAGE;
    if (need > kv->max_pages)
        return LAM_RAISE(err, LAM_E_CONTEXT, "%zu positions do not fit a context of %zu", n_positions, kv->max_pages * LAM_KV_PAGE);
    while (kv->n_pages < need) {
        void *page = lam_alloc_aligned(lam_kv_page_bytes(kv));
        if (!page)
            return LAM_RAISE(err, LAM_E_NO_MEMORY, "a KV page of %zu bytes at position %zu", lam_kv_page_bytes(kv),
                             kv->n_pages * LAM_KV_PAGE);
        kv->pages[kv->n_pages++] = page;
    }
    return LAM_OK;
}

void *lam_kv_k(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head)
{
    return (char *)kv->pages[page] + 2 * part_bytes(kv) * ((size_t)layer * kv->n_heads + head);
}

void *lam_kv_v(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head)
{
    return (char *)lam_kv_k(kv, page, layer, head) + part_bytes(kv);
}

/* Element i of a part; false if value is not a finite number of the type. */
static bool put(const struct lam_kv *kv, void *part, size_t i, float value)
{
    if (kv->dtype == LAM_F32) {
        ((float *)part)[i] = value;
        return isfinite(value);
    }
    uint16_t bits = lam_f32_to_f16(value);
    ((uint16_t *)part)[i] = bits;
    return (bits & 0x7c00) != 0x7c00;
}

bool lam_kv_store(struct lam_kv *kv, uint32_t layer, uint32_t head, size_t position, const float *k, const float *v)
{
    size_t page = position / LAM_KV_PAGE, in_page = position % LAM_KV_PAGE, d = kv->head_dim;
    size_t tile = in_page / LAM_TILE_ROWS * LAM_TILE_ROWS * d, lane = in_page % LAM_TILE_ROWS;
    void *k_part = lam_kv_k(kv, page, layer, head), *v_part = lam_kv_v(kv, page, layer, head);
    bool ok = true;
    for (size_t i = 0; i < d; i++) {
        ok &= put(kv, k_part, tile + i * LAM_TILE_ROWS + lane, k[i]);
        ok &= put(kv, v_part, in_page * d + i, v[i]);
    }
    return ok;
}
