/* A lock for short sections that several threads may enter. Where there are no threads it does nothing. */
#ifndef LAM_BASE_MUTEX_H
#define LAM_BASE_MUTEX_H

#include "base/error.h"

struct lam_mutex;

/* LAM_E_NO_MEMORY. */
lam_code lam_mutex_new(struct lam_mutex **out, lam_error *err);
void lam_mutex_free(struct lam_mutex *m); /* NULL is allowed */
void lam_mutex_lock(struct lam_mutex *m);
void lam_mutex_unlock(struct lam_mutex *m);

#endif
