/* The KV cache of one token history: pages of 256 positions, every layer and KV head in each.
 * How K and V lie in a page is the kernels' matter (kernels.h, enum lam_kv_type), and so is storing into it. */
#ifndef LAM_CACHE_KV_H
#define LAM_CACHE_KV_H

#include "base/error.h"
#include "kernels/kernels.h"

struct lam_kv {
    enum lam_kv_type type;
    uint32_t n_layers, n_heads, head_dim;
    void **pages;               /* [n_pages], owned */
    size_t n_pages, max_pages;
};

/* max_positions bounds the history; nothing is allocated for it yet besides the page table. */
lam_code lam_kv_init(struct lam_kv *kv, enum lam_kv_type type, uint32_t n_layers, uint32_t n_heads, uint32_t head_dim,
                     size_t max_positions, lam_error *err);
void lam_kv_release(struct lam_kv *kv);

/* Makes positions 0 .. n_positions-1 addressable. LAM_E_CONTEXT beyond max_positions, LAM_E_NO_MEMORY. */
lam_code lam_kv_reserve(struct lam_kv *kv, size_t n_positions, lam_error *err);

size_t lam_kv_page_bytes(const struct lam_kv *kv);

/* The parts of page p of a layer and head: K and V. */
void *lam_kv_k(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head);
void *lam_kv_v(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head);

#endif
