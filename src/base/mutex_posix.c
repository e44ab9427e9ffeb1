#include "base/mutex.h"
#include "base/alloc.h"

#include <pthread.h>

struct lam_mutex {
    pthread_mutex_t lock;
};

lam_code lam_mutex_new(struct lam_mutex **out, lam_error *err)
{
    *out = lam_alloc(1, sizeof **out);
    if (*out && pthread_mutex_init(&(*out)->lock, NULL) != 0) {
        lam_free(*out);
        *out = NULL;
    }
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a lock");
}

void lam_mutex_free(struct lam_mutex *m)
{
    if (m) pthread_mutex_destroy(&m->lock);
    lam_free(m);
}

void lam_mutex_lock(struct lam_mutex *m) { pthread_mutex_lock(&m->lock); }
void lam_mutex_unlock(struct lam_mutex *m) { pthread_mutex_unlock(&m->lock); }
