#include "base/budget.h"
#include "base/alloc.h"

#include <stdint.h>
#include <string.h>

#define ALIGNMENT 64

/* In front of a block: whom it is counted for, and where its memory begins. The allocator's own aligned blocks would leave gaps that nobody
 * counts. */
struct head {
    struct lam_budget *budget;
    size_t bytes;
    void *memory;
};

static void note_peak(struct lam_budget *b, size_t used)
{
    size_t peak = atomic_load(&b->peak);
    while (used > peak && !atomic_compare_exchange_weak(&b->peak, &peak, used)) {}
}

lam_code lam_budget_reserve(struct lam_budget *b, size_t bytes, const char *what, lam_error *err)
{
    if (!b) return LAM_OK;
    size_t used = atomic_load(&b->used), most = b->limit ? b->limit : SIZE_MAX;
    do {
        if (bytes > most || used > most - bytes)
            return LAM_RAISE(err, LAM_E_BUDGET, "%s: %zu bytes asked for, %zu of %zu in use: %zu too many", what, bytes, used, most,
                             bytes - (used < most ? most - used : 0));
    } while (!atomic_compare_exchange_weak(&b->used, &used, used + bytes));
    note_peak(b, used + bytes);
    return LAM_OK;
}

void lam_budget_release(struct lam_budget *b, size_t bytes)
{
    if (b) atomic_fetch_sub(&b->used, bytes);
}

lam_code lam_budget_alloc(struct lam_budget *b, size_t count, size_t size, const char *what, void *out, lam_error *err)
{
    size_t bytes;
    memset(out, 0, sizeof(void *));
    if (!lam_mul_size(count, size, &bytes) || !lam_add_size(bytes, LAM_BUDGET_HEAD, &bytes))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: %zu times %zu bytes", what, count, size);
    LAM_TRY(lam_budget_reserve(b, bytes, what, err));
    uint8_t *memory = lam_alloc(bytes, 1);
    if (!memory) {
        lam_budget_release(b, bytes);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: %zu bytes", what, bytes);
    }
    size_t start = (size_t)((uintptr_t)(memory + LAM_BUDGET_HEAD) % ALIGNMENT);
    void *block = memory + LAM_BUDGET_HEAD - start;
    ((struct head *)block)[-1] = (struct head){b, bytes, memory};
    memcpy(out, &block, sizeof block);
    return LAM_OK;
}

void lam_budget_free(void *block)
{
    if (!block) return;
    struct head *h = (struct head *)block - 1;
    lam_budget_release(h->budget, h->bytes);
    lam_free(h->memory);
}
