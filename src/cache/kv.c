#include "cache/kv.h"
#include "base/alloc.h"
#include "base/budget.h"
#include "base/os.h"

#include <stdatomic.h>
#include <string.h>

struct lam_kv_page {
    atomic_size_t holders;
    size_t bytes; /* with its head */
    struct lam_budget *budget; /* that they are counted for, or NULL */
};

#define PAGE_HEAD 64 /* bytes before a page's content, which is aligned like the page */

/* Bytes of K and V of one layer and head in a page. */
static size_t head_bytes(const struct lam_kv *kv) { return lam_kv_k_bytes(kv->type, kv->head_dim) + lam_kv_v_bytes(kv->type, kv->head_dim); }

size_t lam_kv_page_bytes(const struct lam_kv *kv) { return head_bytes(kv) * kv->n_layers * kv->n_heads; }

void *lam_kv_bytes(struct lam_kv_page *page) { return (char *)page + PAGE_HEAD; }

static lam_code new_page(const struct lam_kv *kv, struct lam_kv_page **out, lam_error *err)
{
    size_t bytes = PAGE_HEAD + lam_kv_page_bytes(kv);
    *out = NULL;
    LAM_TRY(lam_budget_reserve(kv->budget, bytes, "a KV page", err));
    struct lam_kv_page *page = *out = lam_large_alloc(bytes);
    if (!page) {
        lam_budget_release(kv->budget, bytes);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "a KV page of %zu bytes", bytes);
    }
    atomic_init(&page->holders, 1);
    page->bytes = bytes;
    page->budget = kv->budget;
    return LAM_OK;
}

struct lam_kv_page *lam_kv_hold(struct lam_kv_page *page)
{
    atomic_fetch_add(&page->holders, 1);
    return page;
}

void lam_kv_drop(struct lam_kv_page *page)
{
    if (!page || atomic_fetch_sub(&page->holders, 1) != 1) return;
    lam_budget_release(page->budget, page->bytes);
    lam_large_free(page, page->bytes);
}

lam_code lam_kv_clone(const struct lam_kv *kv, const struct lam_kv_page *page, struct lam_kv_page **out, lam_error *err)
{
    LAM_TRY(new_page(kv, out, err));
    memcpy(lam_kv_bytes(*out), (const char *)page + PAGE_HEAD, lam_kv_page_bytes(kv));
    return LAM_OK;
}

lam_code lam_kv_init(struct lam_kv *kv, enum lam_kv_type type, uint32_t n_layers, uint32_t n_heads, uint32_t head_dim,
                     size_t max_positions, lam_error *err)
{
    *kv = (struct lam_kv){.type = type, .n_layers = n_layers, .n_heads = n_heads, .head_dim = head_dim};
    size_t bytes = head_bytes(kv); /* at most 1 MiB */
    if (!lam_mul_size(bytes, n_layers, &bytes) || !lam_mul_size(bytes, n_heads, &bytes) || !lam_add_size(bytes, PAGE_HEAD, &bytes))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "a KV page of %u layers and %u heads", n_layers, n_heads);
    kv->max_pages = (max_positions + LAM_KV_PAGE - 1) / LAM_KV_PAGE;
    kv->pages = lam_alloc(kv->max_pages, sizeof *kv->pages);
    return kv->pages ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a context of %zu positions", max_positions);
}

void lam_kv_release(struct lam_kv *kv)
{
    for (size_t i = 0; i < kv->n_pages; i++) lam_kv_drop(kv->pages[i]);
    lam_free(kv->pages);
    *kv = (struct lam_kv){0};
}

/* Puts page, which the caller held, at the end. */
static lam_code append(struct lam_kv *kv, struct lam_kv_page *page, lam_error *err)
{
    if (kv->n_pages == kv->max_pages) {
        lam_kv_drop(page);
        return LAM_RAISE(err, LAM_E_CONTEXT, "a KV cache of %zu pages is full", kv->max_pages);
    }
    kv->pages[kv->n_pages++] = page;
    return LAM_OK;
}

lam_code lam_kv_reserve(struct lam_kv *kv, size_t n_positions, lam_error *err)
{
    size_t need = (n_positions + LAM_KV_PAGE - 1) / LAM_KV_PAGE;
    if (need > kv->max_pages)
        return LAM_RAISE(err, LAM_E_CONTEXT, "%zu positions do not fit a context of %zu", n_positions, kv->max_pages * LAM_KV_PAGE);
    while (kv->n_pages < need) {
        struct lam_kv_page *page;
        LAM_TRY(new_page(kv, &page, err));
        LAM_TRY(append(kv, page, err));
    }
    return LAM_OK;
}

lam_code lam_kv_write(struct lam_kv *kv, size_t first, size_t n_positions, lam_error *err)
{
    LAM_TRY(lam_kv_reserve(kv, n_positions, err));
    for (size_t p = first / LAM_KV_PAGE; p * LAM_KV_PAGE < n_positions; p++) {
        if (atomic_load(&kv->pages[p]->holders) == 1) continue; /* nobody else can come to hold it meanwhile */
        struct lam_kv_page *own;
        LAM_TRY(lam_kv_clone(kv, kv->pages[p], &own, err));
        lam_kv_drop(kv->pages[p]);
        kv->pages[p] = own;
    }
    return LAM_OK;
}

lam_code lam_kv_share(struct lam_kv *kv, struct lam_kv_page *page, lam_error *err) { return append(kv, lam_kv_hold(page), err); }

lam_code lam_kv_copy(struct lam_kv *kv, const struct lam_kv_page *page, lam_error *err)
{
    struct lam_kv_page *copy;
    LAM_TRY(lam_kv_clone(kv, page, &copy, err));
    return append(kv, copy, err);
}

lam_code lam_kv_fork(const struct lam_kv *from, size_t n_positions, struct lam_kv *to, lam_error *err)
{
    size_t whole = n_positions / LAM_KV_PAGE;
    for (size_t p = 0; p < whole; p++) LAM_TRY(lam_kv_share(to, from->pages[p], err));
    return n_positions % LAM_KV_PAGE ? lam_kv_copy(to, from->pages[whole], err) : LAM_OK;
}

void *lam_kv_k(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head)
{
    return (char *)lam_kv_bytes(kv->pages[page]) + head_bytes(kv) * ((size_t)layer * kv->n_heads + head);
}

void *lam_kv_v(const struct lam_kv *kv, size_t page, uint32_t layer, uint32_t head)
{
    return (char *)lam_kv_k(kv, page, layer, head) + lam_kv_k_bytes(kv->type, kv->head_dim);
}
