/* A process's hard limit on the memory that grows with models, adapters and histories. Whoever wants such memory asks here, and is refused
 * before anything is allocated. Threads ask at once; there is no lock. */
#ifndef LAM_BASE_BUDGET_H
#define LAM_BASE_BUDGET_H

#include "base/error.h"

#include <stdatomic.h>
#include <stddef.h>

/* Bytes that lam_budget_alloc takes beside those that are asked for. */
#define LAM_BUDGET_HEAD ((size_t)63 + 3 * sizeof(void *))

struct lam_budget {
    size_t limit;         /* bytes; 0: none */
    atomic_size_t used, peak;
};

/* LAM_E_BUDGET, with what was asked for, what is used, the limit and what is lacking. b may be NULL: nothing is counted. */
lam_code lam_budget_reserve(struct lam_budget *b, size_t bytes, const char *what, lam_error *err);
void lam_budget_release(struct lam_budget *b, size_t bytes);

/* *out (a pointer of any type, whose address is given) gets count * size zeroed bytes, aligned to 64; NULL on failure. They are counted until
 * lam_budget_free: LAM_E_BUDGET, LAM_E_NO_MEMORY. The budget must outlive the block. */
lam_code lam_budget_alloc(struct lam_budget *b, size_t count, size_t size, const char *what, void *out, lam_error *err);
void lam_budget_free(void *block); /* NULL is allowed */

#endif
