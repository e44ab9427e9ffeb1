/* The threads that src/base/pool_posix.c asks for, over WebAssembly's wait and notify. A module cannot start a thread: the page's side
 * (web/package/src/thread.ts) brings workers, each of which enters lam_web_thread and waits there; pthread_create gives a function to
 * one that waits, or fails if none does. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "exports.h"

/* Sleeps while *word is value; wakes without cause are allowed. In memory that is not shared nobody could wake us: nobody waits either. */
static void wait_while(atomic_int *word, int value) { __builtin_wasm_memory_atomic_wait32((int *)word, value, -1); }
static void wake(atomic_int *word, int n) { __builtin_wasm_memory_atomic_notify((int *)word, (unsigned)n); }

/* ---- threads ---- */

#define MOST_WORKERS 64

enum state { ABSENT, WAITING, WORKING, LEAVING };

static struct worker {
    _Alignas(64) atomic_int state;
    void *(*start)(void *);
    void *argument;
} workers[MOST_WORKERS];

void lam_web_thread(unsigned index)
{
    struct worker *w = &workers[index];
    atomic_store(&w->state, WAITING);
    for (;;) {
        int state = atomic_load(&w->state);
        if (state == LEAVING) break;
        if (state == WAITING) {
            wait_while(&w->state, WAITING);
            continue;
        }
        w->start(w->argument);
        atomic_store(&w->state, WAITING);
        wake(&w->state, INT_MAX); /* pthread_join */
    }
    atomic_store(&w->state, ABSENT);
}

unsigned lam_web_threads_waiting(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MOST_WORKERS; i++) n += atomic_load(&workers[i].state) == WAITING;
    return n;
}

void lam_web_threads_leave(void)
{
    for (unsigned i = 0; i < MOST_WORKERS; i++) {
        int waiting = WAITING;
        if (atomic_compare_exchange_strong(&workers[i].state, &waiting, LEAVING)) wake(&workers[i].state, INT_MAX);
    }
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*start)(void *), void *restrict argument)
{
    (void)attributes;
    for (unsigned i = 0; i < MOST_WORKERS; i++) {
        if (atomic_load(&workers[i].state) != WAITING) continue; /* only the control worker makes threads */
        workers[i].start = start;
        workers[i].argument = argument;
        atomic_store(&workers[i].state, WORKING);
        wake(&workers[i].state, 1);
        *thread = (pthread_t)&workers[i];
        return 0;
    }
    return EAGAIN;
}

int pthread_join(pthread_t thread, void **value)
{
    struct worker *w = (struct worker *)thread;
    (void)value;
    while (atomic_load(&w->state) == WORKING) wait_while(&w->state, WORKING);
    return 0;
}

/* ---- locks: 0 free, 1 held, 2 held and somebody waits (Drepper 2004, "Futexes are tricky") ---- */

_Static_assert(sizeof(pthread_mutex_t) >= sizeof(atomic_int) && sizeof(pthread_cond_t) >= sizeof(atomic_int), "one word of each is used");

int pthread_mutex_init(pthread_mutex_t *restrict mutex, const pthread_mutexattr_t *restrict attributes)
{
    (void)attributes;
    atomic_init((atomic_int *)mutex, 0);
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    atomic_int *word = (atomic_int *)mutex;
    int seen = 0;
    if (atomic_compare_exchange_strong(word, &seen, 1)) return 0;
    if (seen != 2) seen = atomic_exchange(word, 2);
    while (seen != 0) {
        wait_while(word, 2);
        seen = atomic_exchange(word, 2);
    }
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    atomic_int *word = (atomic_int *)mutex;
    if (atomic_exchange(word, 0) == 2) wake(word, 1);
    return 0;
}

/* ---- conditions: a count of signals ---- */

int pthread_cond_init(pthread_cond_t *restrict condition, const pthread_condattr_t *restrict attributes)
{
    (void)attributes;
    atomic_init((atomic_int *)condition, 0);
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *condition)
{
    (void)condition;
    return 0;
}

int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex)
{
    atomic_int *word = (atomic_int *)condition;
    int seen = atomic_load(word);
    pthread_mutex_unlock(mutex);
    wait_while(word, seen);
    return pthread_mutex_lock(mutex);
}

static int signal_to(pthread_cond_t *condition, int n)
{
    atomic_int *word = (atomic_int *)condition;
    atomic_fetch_add(word, 1);
    wake(word, n);
    return 0;
}

int pthread_cond_signal(pthread_cond_t *condition) { return signal_to(condition, 1); }
int pthread_cond_broadcast(pthread_cond_t *condition) { return signal_to(condition, INT_MAX); }
