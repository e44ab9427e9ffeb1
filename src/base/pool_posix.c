#define _POSIX_C_SOURCE 200809L

#include "base/pool.h"
#include "base/alloc.h"
#include "base/os.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A worker waits this long for the next call before it parks: longer than the gap between two calls of one token,
 * short enough to leave a shared core soon. */
#define SPIN_SECONDS 50e-6

struct worker {
    struct lam_pool *pool;
    pthread_t thread;
    unsigned index;
};

struct lam_pool {
    unsigned n_threads;
    struct worker *workers;      /* n_threads - 1 */
    lam_pool_fn fn;
    void *context;
    size_t n_items;
    _Alignas(64) atomic_size_t next_item;
    _Alignas(64) atomic_uint generation; /* counts calls; a change is the start signal */
    _Alignas(64) atomic_uint running;    /* workers that have not finished the current call */
    atomic_bool stop;
    atomic_uint parked;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_mutex_t turn; /* lam_pool_lock */
};

static void work(struct lam_pool *p, unsigned thread)
{
    for (;;) {
        size_t item = atomic_fetch_add_explicit(&p->next_item, 1, memory_order_relaxed);
        if (item >= p->n_items) return;
        p->fn(p->context, item, thread);
    }
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Returns the new generation once it differs from seen. */
static unsigned wait_for_call(struct lam_pool *p, unsigned seen)
{
    double until = lam_now() + SPIN_SECONDS;
    do {
        for (int i = 0; i < 64; i++) {
            unsigned g = atomic_load_explicit(&p->generation, memory_order_acquire);
            if (g != seen) return g;
            pause_cpu();
        }
    } while (lam_now() < until);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->parked, 1);
    unsigned g;
    while ((g = atomic_load(&p->generation)) == seen) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->parked, 1);
    pthread_mutex_unlock(&p->lock);
    return g;
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct lam_pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        seen = wait_for_call(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        work(p, w->index);
        atomic_fetch_sub_explicit(&p->running, 1, memory_order_release);
    }
}

static void start_call(struct lam_pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->parked) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void lam_pool_run(struct lam_pool *p, size_t n_items, lam_pool_fn fn, void *context)
{
    if (p->n_threads == 1 || n_items < 2) {
        for (size_t i = 0; i < n_items; i++) fn(context, i, 0);
        return;
    }
    p->fn = fn;
    p->context = context;
    p->n_items = n_items;
    atomic_store_explicit(&p->next_item, 0, memory_order_relaxed);
    atomic_store_explicit(&p->running, p->n_threads - 1, memory_order_relaxed);
    start_call(p);
    work(p, 0);
    double until = lam_now() + SPIN_SECONDS;
    for (unsigned spins = 1; atomic_load_explicit(&p->running, memory_order_acquire) != 0; spins++) {
        pause_cpu();
        if (spins % 64 == 0 && lam_now() > until) lam_yield(); /* the last worker may want this very core */
    }
}

static void stop_workers(struct lam_pool *p, unsigned n)
{
    atomic_store(&p->stop, true);
    start_call(p);
    for (unsigned i = 0; i < n; i++) pthread_join(p->workers[i].thread, NULL);
}

lam_code lam_pool_new(unsigned n_threads, struct lam_pool **out, lam_error *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > 1024)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%u threads: 1 to 1024 are possible", n_threads);
    struct lam_pool *p = lam_alloc_aligned(sizeof *p);
    struct worker *workers = lam_alloc(n_threads, sizeof *workers);
    if (!p || !workers) {
        lam_free_aligned(p);
        lam_free(workers);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "a pool of %u threads", n_threads);
    }
    p->n_threads = n_threads;
    p->workers = workers;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_mutex_init(&p->turn, NULL);
    for (unsigned i = 0; i + 1 < n_threads; i++) {
        workers[i] = (struct worker){.pool = p, .index = i + 1};
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0) {
            stop_workers(p, i);
            p->n_threads = 1;
            lam_pool_free(p);
            return LAM_RAISE(err, LAM_E_NO_MEMORY, "thread %u of %u could not be started", i + 2, n_threads);
        }
    }
    *out = p;
    return LAM_OK;
}

void lam_pool_free(struct lam_pool *p)
{
    if (!p) return;
    stop_workers(p, p->n_threads - 1);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->turn);
    lam_free(p->workers);
    lam_free_aligned(p);
}

unsigned lam_pool_threads(const struct lam_pool *p) { return p->n_threads; }

void lam_pool_lock(struct lam_pool *p) { pthread_mutex_lock(&p->turn); }
void lam_pool_unlock(struct lam_pool *p) { pthread_mutex_unlock(&p->turn); }
