#define _POSIX_C_SOURCE 200809L

#include "base/pool.h"
#include "base/alloc.h"
#include "base/cpus.h"
#include "base/os.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Who waits spins this long before it parks: longer than the gap between two calls of one token, short enough to leave a shared
 * core soon. */
#define SPIN_SECONDS 50e-6

/* The system may put two threads on one processor although others are free to it (it shares processors out by groups of processes).
 * A worker that finds itself on the caller's parks at once, and workers are not woken for this long. */
#define CROWDED_SECONDS 2e-3

/* The door of a call: generation · open · threads inside. A worker takes part in a call if it enters while the door is open; the
 * caller closes it once no item is unclaimed and waits for those inside alone. So a worker that the system does not run (its core
 * is another program's at the moment) costs its share of the speed, and never a wait. */
#define INSIDE ((uint64_t)0x7fffffff)
#define OPEN ((uint64_t)1 << 31)
#define GENERATION ((uint64_t)1 << 32)

/* Who parks and who wakes both write one word and then read the other's. Those writes are exchanges: they cost what a store in that order
 * costs. With plain ordered stores caller and worker were once found asleep together, a 64-bit ARM program under qemu's user mode on x86. */

struct worker {
    struct lam_pool *pool;
    pthread_t thread;
    unsigned index;
};

/* Items of one call that a thread takes first; what is left of them when another has none, the other takes. */
struct range {
    _Alignas(64) atomic_size_t next;
    size_t end;
};

struct lam_pool {
    unsigned n_threads;
    struct worker *workers; /* n_threads - 1 */
    struct range *ranges;   /* n_threads */
    lam_pool_fn fn;
    void *context;
    _Alignas(64) _Atomic uint64_t door;
    atomic_bool stop;
    atomic_bool sleepers;       /* workers are parked and not yet woken */
    atomic_bool caller_sleeps;
    atomic_int caller_cpu;      /* where the caller was when it opened the door */
    _Atomic double crowded_until; /* a worker was on the caller's processor: none is woken before */
    pthread_mutex_t lock;
    pthread_cond_t wake, left;
    pthread_mutex_t turn; /* lam_pool_lock */
};

static void take(struct lam_pool *p, struct range *r, unsigned thread)
{
    if (atomic_load_explicit(&r->next, memory_order_relaxed) >= r->end) return;
    for (;;) {
        size_t item = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
        if (item >= r->end) return;
        p->fn(p->context, item, thread);
    }
}

static void work(struct lam_pool *p, unsigned thread)
{
    for (unsigned i = 0; i < p->n_threads; i++) take(p, &p->ranges[(thread + i) % p->n_threads], thread);
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool on_callers_cpu(struct lam_pool *p)
{
    int cpu = lam_cpu_now();
    return cpu >= 0 && cpu == atomic_load_explicit(&p->caller_cpu, memory_order_relaxed);
}

/* Spins until the door is no longer as it was (mask picks the bits), or for SPIN_SECONDS; a worker no longer than it has a processor
 * to itself. */
static uint64_t watch_door(struct lam_pool *p, uint64_t mask, uint64_t was, bool worker)
{
    double until = lam_now() + SPIN_SECONDS;
    uint64_t door;
    do {
        for (int i = 0; i < 32; i++) {
            door = atomic_load_explicit(&p->door, memory_order_acquire);
            if ((door & mask) != was) return door;
            pause_cpu();
        }
    } while (lam_now() < until && !(worker && on_callers_cpu(p)));
    return door;
}

/* The door once its generation is another than seen. */
static uint64_t wait_for_call(struct lam_pool *p, uint64_t seen)
{
    const uint64_t mask = ~(OPEN | INSIDE);
    uint64_t door = watch_door(p, mask, seen, true);
    if ((door & mask) != seen) return door;
    if (on_callers_cpu(p)) atomic_store(&p->crowded_until, lam_now() + CROWDED_SECONDS);
    pthread_mutex_lock(&p->lock);
    for (;;) {
        atomic_exchange(&p->sleepers, true); /* before the look at the door: the caller opens it before it looks at this */
        door = atomic_load(&p->door);
        if ((door & mask) != seen) break;
        pthread_cond_wait(&p->wake, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return door;
}

/* True once this thread counts as inside; false if the call that door tells of is over. */
static bool enter(struct lam_pool *p, uint64_t door)
{
    const uint64_t call = door & ~(OPEN | INSIDE);
    while ((door & OPEN) && (door & ~(OPEN | INSIDE)) == call)
        if (atomic_compare_exchange_weak(&p->door, &door, door + 1)) return true;
    return false;
}

static void leave(struct lam_pool *p)
{
    atomic_fetch_sub(&p->door, 1);
    if (!atomic_load(&p->caller_sleeps)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->left);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct lam_pool *p = w->pool;
    uint64_t seen = 0;
    for (;;) {
        uint64_t door = wait_for_call(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        seen = door & ~(OPEN | INSIDE);
        if (!enter(p, door)) continue;
        work(p, w->index);
        leave(p);
    }
}

static void wake_workers(struct lam_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->sleepers, false);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void open_door(struct lam_pool *p)
{
    uint64_t door = atomic_load_explicit(&p->door, memory_order_relaxed);
    atomic_store_explicit(&p->caller_cpu, lam_cpu_now(), memory_order_relaxed);
    atomic_exchange(&p->door, (door & ~(OPEN | INSIDE)) + GENERATION + OPEN);
    if (atomic_load(&p->sleepers) && lam_now() >= atomic_load(&p->crowded_until)) wake_workers(p);
}

/* A caller that waits long parks: a worker inside may be waiting for this very processor. */
static void close_door(struct lam_pool *p)
{
    if ((atomic_fetch_and(&p->door, ~OPEN) & INSIDE) == 0) return;
    uint64_t inside = atomic_load(&p->door) & INSIDE;
    for (uint64_t before = 0; inside != 0 && inside != before;) {
        before = inside;
        inside = watch_door(p, INSIDE, before, false) & INSIDE;
    }
    if (inside == 0) return;
    pthread_mutex_lock(&p->lock);
    atomic_exchange(&p->caller_sleeps, true);
    while ((atomic_load(&p->door) & INSIDE) != 0) pthread_cond_wait(&p->left, &p->lock);
    atomic_store(&p->caller_sleeps, false);
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
    for (size_t t = 0, from = 0; t < p->n_threads; t++) {
        size_t to = from + n_items / p->n_threads + (t < n_items % p->n_threads);
        atomic_store_explicit(&p->ranges[t].next, from, memory_order_relaxed);
        p->ranges[t].end = to;
        from = to;
    }
    open_door(p);
    work(p, 0);
    close_door(p);
}

void lam_pool_wait(const atomic_bool *flag)
{
    if (atomic_load_explicit(flag, memory_order_acquire)) return;
    double until = lam_now() + SPIN_SECONDS;
    for (unsigned spins = 1; !atomic_load_explicit(flag, memory_order_acquire); spins++) {
        pause_cpu();
        if (spins % 32 == 0 && lam_now() > until) lam_yield();
    }
}

static void stop_workers(struct lam_pool *p, unsigned n)
{
    atomic_store(&p->stop, true);
    open_door(p);
    wake_workers(p);
    for (unsigned i = 0; i < n; i++) pthread_join(p->workers[i].thread, NULL);
}

lam_code lam_pool_new(unsigned n_threads, struct lam_pool **out, lam_error *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > 1024)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%u threads: 1 to 1024 are possible", n_threads);
    struct lam_pool *p = lam_alloc_aligned(sizeof *p);
    struct worker *workers = lam_alloc(n_threads, sizeof *workers);
    struct range *ranges = lam_alloc_aligned(n_threads * sizeof *ranges);
    if (!p || !workers || !ranges) {
        lam_free_aligned(p);
        lam_free_aligned(ranges);
        lam_free(workers);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "a pool of %u threads", n_threads);
    }
    p->n_threads = n_threads;
    p->workers = workers;
    p->ranges = ranges;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->left, NULL);
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
    pthread_cond_destroy(&p->left);
    pthread_mutex_destroy(&p->turn);
    lam_free(p->workers);
    lam_free_aligned(p->ranges);
    lam_free_aligned(p);
}

unsigned lam_pool_threads(const struct lam_pool *p) { return p->n_threads; }

void lam_pool_lock(struct lam_pool *p) { pthread_mutex_lock(&p->turn); }
void lam_pool_unlock(struct lam_pool *p) { pthread_mutex_unlock(&p->turn); }
