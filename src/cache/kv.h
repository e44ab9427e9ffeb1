/* The KV cache of one token history: pages of 256 positions, every layer and KV head in each.
 * How K and V lie in a page is the kernels' matter (kernels.h, enum lam_kv_type), and so is storing into it.
 * Pages are counted. One that several histories (or the prefix cache) hold is never written: lam_kv_write makes a copy first. */
#ifndef LAM_CACHE_KV_H
#define LAM_CACHE_KV_H

#include "base/error.h"
#include "kernels/kernels.h"

struct lam_budget;
struct lam_kv_page;

struct lam_kv {
    enum lam_kv_type type;
    uint32_t n_layers, n_heads, head_dim;
    struct lam_kv_page **pages; /* [n_pages], each held; the list is owned */
    size_t n_pages, max_pages;
    struct lam_budget *budget;  /* of the pages; borrowed; NULL: none */
};

/* max_positions bounds the history; nothing is allocated for it yet besides the page table. */
lam_code lam_kv_init(struct lam_kv *kv, enum lam_kv_type type, uint32_t n_layers, uint32_t n_heads, uint32_t head_dim,
                     size_t max_positions, lam_error *err);
void lam_kv_release(struct lam_kv *kv);

/* Makes positions 0 .. n_positions-1 addressable. LAM_E_CONTEXT beyond max_positions, LAM_E_BUDGET, LAM_E_NO_MEMORY. */
lam_code lam_kv_reserve(struct lam_kv *kv, size_t n_positions, lam_error *err);
/* The same, and makes first .. n_positions-1 writable. */
lam_code lam_kv_write(struct lam_kv *kv, size_t first, size_t n_positions, lam_error *err);

/* to (of the same shape, without pages) gets positions 0 .. n_positions-1 of from: whole pages are shared, the rest is copied. */
lam_code lam_kv_fork(const struct lam_kv *from, size_t n_positions, struct lam_kv *to, lam_error *err);
/* One more page at the end of kv: shared, or a copy of page. */
lam_code lam_kv_share(struct lam_kv *kv, struct lam_kv_page *page, lam_error *err);
lam_code lam_kv_copy(struct lam_kv *kv, const struct lam_kv_page *page, lam_error *err);

struct lam_kv_page *lam_kv_hold(struct lam_kv_page *page);
void lam_kv_drop(struct lam_kv_page *page); /* NULL is allowed */
/* *out: a copy of a page of kv's shape, held once. LAM_E_BUDGET, LAM_E_NO_MEMORY. */
lam_code lam_kv_clone(const struct lam_kv *kv, const struct lam_kv_page *page, struct lam_kv_page **out, lam_error *err);

size_t lam_kv_page_bytes(const struct lam_kv *kv);
/* [lam_kv_page_bytes] */
void *lam_kv_bytes(struct lam_kv_page *page);

/* The parts of page p of a layer and head: K and V. */
void *lam_kv_k(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head);
void *lam_kv_v(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head);

#endif
