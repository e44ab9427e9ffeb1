#include "cache/kv.h"
#include "base/alloc.h"

/* Bytes of K and V of one layer and head in a page. */
static size_t head_bytes(const struct lam_kv *kv) { return lam_kv_k_bytes(kv->type, kv->head_dim) + lam_kv_v_bytes(kv->type, kv->head_dim); }

size_t lam_kv_page_bytes(const struct lam_kv *kv) { return head_bytes(kv) * kv->n_layers * kv->n_heads; }

lam_code lam_kv_init(struct lam_kv *kv, enum lam_kv_type type, uint32_t n_layers, uint32_t n_heads, uint32_t head_dim,
                     size_t max_positions, lam_error *err)
{
    *kv = (struct lam_kv){.type = type, .n_layers = n_layers, .n_heads = n_heads, .head_dim = head_dim};
    size_t bytes = head_bytes(kv); /* at most 1 MiB */
    if (!lam_mul_size(bytes, n_layers, &bytes) || !lam_mul_size(bytes, n_heads, &bytes))
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
    return (char *)kv->pages[page] + head_bytes(kv) * ((size_t)layer * kv->n_heads + head);
}

void *lam_kv_v(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head)
{
    return (char *)lam_kv_k(kv, page, layer, head) + lam_kv_k_bytes(kv->type, kv->head_dim);
}
