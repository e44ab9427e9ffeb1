/* The pool of a system without threads. */
#include "base/pool.h"
#include "base/alloc.h"

struct lam_pool {
    char unused; /* C has no empty struct */
};

lam_code lam_pool_new(unsigned n_threads, struct lam_pool **out, lam_error *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > 1024)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%u threads: 1 to 1024 are possible", n_threads);
    *out = lam_alloc(1, sizeof **out);
    if (!*out) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a thread pool");
    return LAM_OK;
}

void lam_pool_free(struct lam_pool *p) { lam_free(p); }

unsigned lam_pool_threads(const struct lam_pool *p)
{
    (void)p;
    return 1;
}

void lam_pool_run(struct lam_pool *p, size_t n_items, lam_pool_fn fn, void *context)
{
    (void)p;
    for (size_t i = 0; i < n_items; i++) fn(context, i, 0);
}

void lam_pool_wait(const atomic_bool *flag) { (void)flag; }

void lam_pool_lock(struct lam_pool *p) { (void)p; }
void lam_pool_unlock(struct lam_pool *p) { (void)p; }
