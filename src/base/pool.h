/* A pool of threads that share out the items of one call at a time. Which thread computes an item never affects a result:
 * items write disjoint outputs (docs/numeric.md). */
#ifndef LAM_BASE_POOL_H
#define LAM_BASE_POOL_H

#include "base/error.h"

#include <stdatomic.h>
#include <stddef.h>

struct lam_pool;

/* n_threads >= 1 counts the caller; 1 makes no thread. */
lam_code lam_pool_new(unsigned n_threads, struct lam_pool **out, lam_error *err);
void lam_pool_free(struct lam_pool *p);
unsigned lam_pool_threads(const struct lam_pool *p);

/* Who calls lam_pool_run from several threads takes turns by these. */
void lam_pool_lock(struct lam_pool *p);
void lam_pool_unlock(struct lam_pool *p);

/* fn(context, item, thread) for every item in 0..n_items-1, thread in 0..n_threads-1; returns when all are done.
 * One call at a time; not from within fn. */
typedef void (*lam_pool_fn)(void *context, size_t item, unsigned thread);
void lam_pool_run(struct lam_pool *p, size_t n_items, lam_pool_fn fn, void *context);

/* Within fn: returns once another item has set *flag, which must be one that has begun. */
void lam_pool_wait(const atomic_bool *flag);

#endif
