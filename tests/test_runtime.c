/* lamina/runtime.h: activating, leasing and rolling back, alone and by many threads; what a session computes while others publish; what a
 * failed activation leaves as it was. */
#define _POSIX_C_SOURCE 200809L

#include "no_memory.h"

#include "lamina/runtime.h"
#include "lamina/reuse.h"
#include "run/objects.h"

#include <math.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <unistd.h>

#define BASE "tests/golden/llama-gqa/llama-gqa-q4_0.gguf"
#define ADAPTERS "tests/golden/adapters/llama-gqa/"
#define N 24 /* tokens */

enum { ALL, HEAD, SEVEN, N_ADAPTERS };
static const char *const sources[N_ADAPTERS] = {ADAPTERS "all-r4", ADAPTERS "head", ADAPTERS "rank-7"};

struct setup {
    struct fixture f;
    lam_engine *engine;
    lam_runtime *runtime;
    lam_base *base;               /* the runtime's */
    lam_adapter *adapters[N_ADAPTERS];
    uint32_t tokens[N];
};

static void set_up(struct setup *s)
{
    lam_error err;
    memset(s, 0, sizeof *s);
    fixture_import(&s->f, BASE, sources, N_ADAPTERS);
    assert_ok(lam_engine_new(&(lam_engine_options){.threads = 2}, &s->engine, &err), err);
    assert_ok(lam_runtime_new(s->engine, &s->runtime, &err), err);
    lam_generation none;
    lam_lease *lease;
    lam_composition *c;
    assert_int_equal(lam_runtime_current(s->runtime, &none, &err), LAM_E_GEN_NONE);
    assert_int_equal(lam_runtime_lease(s->runtime, &lease, &err), LAM_E_GEN_NONE);
    assert_int_equal(lam_runtime_compose(s->runtime, NULL, NULL, 0, NULL, &c, &err), LAM_E_CONFLICT);
    assert_int_equal(lam_runtime_rollback(s->runtime, NULL, &err), LAM_E_NOT_FOUND);
    assert_int_equal(lam_runtime_load(s->runtime, "tests/golden/no-such-file", LAM_VERIFY_LAZY, &err), LAM_E_NOT_FOUND);
    assert_null(lam_runtime_base(s->runtime));
    assert_ok(lam_runtime_load(s->runtime, s->f.base_path, LAM_VERIFY_FULL, &err), err);
    assert_int_equal(lam_runtime_load(s->runtime, s->f.base_path, LAM_VERIFY_FULL, &err), LAM_E_CONFLICT);
    s->base = lam_runtime_base(s->runtime);
    for (size_t i = 0; i < N_ADAPTERS; i++) assert_ok(lam_adapter_load(s->base, s->f.adapter_paths[i], false, &s->adapters[i], &err), err);
    fixture_tokens(7, s->base->model->config.n_vocab, s->tokens, N);
}

static void tear_down(struct setup *s)
{
    for (size_t i = 0; i < N_ADAPTERS; i++) {
        lam_runtime_settle(s->runtime);
        if (s->adapters[i]) lam_adapter_unload(s->adapters[i]);
    }
    lam_runtime_free(s->runtime);
    assert_int_equal(atomic_load(&s->engine->holders), 1); /* nothing is left */
    lam_engine_free(s->engine);
    fixture_remove(&s->f);
}

static lam_composition *composed(struct setup *s, const double weights[N_ADAPTERS])
{
    lam_adapter *list[N_ADAPTERS];
    double w[N_ADAPTERS];
    size_t n = 0;
    lam_error err;
    lam_composition *c;
    for (size_t i = 0; i < N_ADAPTERS; i++)
        if (weights[i] != 0.0) {
            list[n] = s->adapters[i];
            w[n++] = weights[i];
        }
    assert_ok(lam_runtime_compose(s->runtime, list, w, n, NULL, &c, &err), err);
    return c;
}

static lam_generation activate(struct setup *s, lam_composition *c)
{
    lam_error err;
    lam_generation g;
    assert_ok(lam_runtime_activate(s->runtime, c, NULL, &g, &err), err);
    assert_string_equal(g.composition_id, lam_composition_id(c));
    return g;
}

static lam_generation current(struct setup *s)
{
    lam_error err;
    lam_generation g;
    memset(&g, 0, sizeof g);
    assert_ok(lam_runtime_current(s->runtime, &g, &err), err);
    return g;
}

static bool same(const lam_generation *a, const lam_generation *b)
{
    return a->catalogue == b->catalogue && a->slot == b->slot && a->slot_generation == b->slot_generation &&
           a->pointer_generation == b->pointer_generation && strcmp(a->composition_id, b->composition_id) == 0;
}

static lam_lease *leased(struct setup *s)
{
    lam_error err;
    lam_lease *l;
    assert_ok(lam_runtime_lease(s->runtime, &l, &err), err);
    return l;
}

/* A session on the active generation; the lease is its own. */
static lam_session *session(struct setup *s)
{
    lam_error err;
    lam_session *out;
    lam_lease *l = leased(s);
    assert_ok(lam_lease_session(l, 4 * N, &out, &err), err);
    lam_lease_release(l);
    return out;
}

/* SHA-256 over all logits: half of the tokens fed, the others step by step, and between(argument) before each step. */
static bool run(lam_session *session, const uint32_t *tokens, void (*between)(void *), void *argument, char out[LAM_DIGEST_TEXT])
{
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256_init(&hash);
    bool ok = lam_session_feed(session, tokens, N / 2, fixture_hash, &hash, NULL) == LAM_OK;
    for (size_t i = N / 2; i < N && ok; i++) {
        if (between) between(argument);
        ok = lam_session_step(&session, &tokens[i], 1, NULL) == LAM_OK;
        if (ok) fixture_hash(&hash, i, lam_session_logits(session), session->composition->base->model->config.n_vocab);
    }
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    return ok;
}

/* What c gives on its own, without a runtime. */
static void run_apart(struct setup *s, lam_composition *c, char out[LAM_DIGEST_TEXT])
{
    lam_session *apart = fixture_session(c, 4 * N);
    assert_true(run(apart, s->tokens, NULL, NULL, out));
    lam_session_free(apart);
}

static void run_active(struct setup *s, char out[LAM_DIGEST_TEXT])
{
    lam_session *now = session(s);
    assert_true(run(now, s->tokens, NULL, NULL, out));
    lam_session_free(now);
}

/* ---- one thread ---- */

/* A thread that holds what a pass holds while it computes: whoever waited for it would wait for ever. */
struct endless_pass {
    struct lam_pool *pool;
    pthread_barrier_t both;
};

static void *compute_for_ever(void *context)
{
    struct endless_pass *pass = context;
    lam_pool_lock(pass->pool);
    pthread_barrier_wait(&pass->both); /* it is under way */
    pthread_barrier_wait(&pass->both); /* the test is over */
    lam_pool_unlock(pass->pool);
    return NULL;
}

static void test_waits_for_no_pass(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    set_up(&s);
    lam_composition *a = composed(&s, (double[N_ADAPTERS]){1.0, 0.0, 0.0}), *b = composed(&s, (double[N_ADAPTERS]){0.0, 1.0, 0.5});
    struct endless_pass pass = {.pool = s.engine->pool};
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&pass.both, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, compute_for_ever, &pass), 0);
    pthread_barrier_wait(&pass.both);
    alarm(60); /* ends the program */
    activate(&s, a);
    lam_lease *lease = leased(&s);
    activate(&s, b);
    assert_string_equal(current(&s).composition_id, lam_composition_id(b));
    assert_ok(lam_runtime_rollback(s.runtime, NULL, &err), err);
    assert_string_equal(current(&s).composition_id, lam_composition_id(a));
    lam_lease_release(lease);
    alarm(0);
    pthread_barrier_wait(&pass.both);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&pass.both);
    lam_composition_free(a);
    lam_composition_free(b);
    tear_down(&s);
}

static void test_generations(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    char want[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT], base[LAM_DIGEST_TEXT];
    set_up(&s);
    lam_generation first = current(&s), second, third, back;
    assert_int_equal(first.catalogue, 1);
    lam_composition *a = composed(&s, (double[]){1, 0, 0}), *a_again = composed(&s, (double[]){1, 0, 0}), *b = composed(&s, (double[]){1, 0.5, 0});
    run_active(&s, base);
    second = activate(&s, a);
    assert_int_equal(second.catalogue, 2);
    assert_false(second.slot == first.slot);
    run_apart(&s, a, want);
    run_active(&s, got);
    assert_string_equal(got, want);
    assert_string_not_equal(got, base);
    /* the same once more is no change, from another object too */
    third = activate(&s, a);
    assert_true(same(&third, &second));
    third = activate(&s, a_again);
    assert_true(same(&third, &second));
    assert_int_equal(lam_runtime_activate(s.runtime, b, &first, NULL, &err), LAM_E_GEN_STALE);
    third = current(&s);
    assert_true(same(&third, &second));
    assert_ok(lam_runtime_activate(s.runtime, b, &second, &third, &err), err);
    assert_int_equal(third.catalogue, 3);
    /* back is another publication, and so is forth */
    assert_ok(lam_runtime_rollback(s.runtime, &back, &err), err);
    assert_int_equal(back.catalogue, 4);
    assert_string_equal(back.composition_id, lam_composition_id(a));
    assert_false(back.slot == second.slot && back.slot_generation == second.slot_generation);
    run_active(&s, got);
    assert_string_equal(got, want);
    assert_ok(lam_runtime_rollback(s.runtime, &back, &err), err);
    assert_string_equal(back.composition_id, lam_composition_id(b));
    lam_runtime_settle(s.runtime);
    assert_int_equal(lam_runtime_rollback(s.runtime, &back, &err), LAM_E_NOT_FOUND);
    lam_composition_free(a);
    lam_composition_free(a_again);
    lam_composition_free(b);
    tear_down(&s);
}

static void test_refused(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    set_up(&s);
    fixture_open(&s.f, &(lam_engine_options){.threads = 1}); /* the same file, opened apart: another base */
    lam_composition *foreign = fixture_compose(&s.f, (double[]){1, 1, 1}, 3), *c = composed(&s, (double[]){1, 0, 0});
    lam_generation before = current(&s), after;
    assert_int_equal(lam_runtime_activate(s.runtime, foreign, NULL, NULL, &err), LAM_E_WRONG_BASE);
    after = current(&s);
    assert_true(same(&before, &after));
    lam_composition *out;
    assert_int_equal(lam_runtime_compose(s.runtime, s.adapters, (double[]){1, INFINITY, 1}, 3, NULL, &out, &err), LAM_E_ARGUMENT);
    assert_null(out);
    lam_composition_free(foreign);
    fixture_close(&s.f);
    fixture_write(s.f.base_path, "", 0); /* truncated beneath us */
    assert_int_equal(lam_runtime_activate(s.runtime, c, NULL, NULL, &err), LAM_E_CHANGED);
    after = current(&s);
    assert_true(same(&before, &after));
    lam_composition_free(c);
    tear_down(&s);
}

/* Each request for memory of composing, activating and rolling back fails once: the active generation is then one of those that there
 * may be, and its bits are its own. */
static void test_memory_ends(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    char want[2][LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    set_up(&s);
    lam_composition *a = composed(&s, (double[]){1, 0, 0}), *b = composed(&s, (double[]){1, 1, 0});
    run_apart(&s, a, want[0]);
    run_apart(&s, b, want[1]);
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    long n = 0;
    for (long k = 1; k <= n + 1; k++) {
        activate(&s, a);
        lam_generation before = current(&s), after;
        lam_composition *c = NULL;
        memory.count = 0;
        memory.fail_at = k;
        memory.on = true;
        lam_code code = lam_runtime_compose(s.runtime, s.adapters, (double[]){1, 1}, 2, NULL, &c, &err);
        if (code == LAM_OK) code = lam_runtime_activate(s.runtime, c, NULL, NULL, &err);
        memory.on = false;
        if (code == LAM_OK) assert_true(memory.count < k); /* nothing was refused: the last round */
        else {
            assert_int_equal(code, LAM_E_NO_MEMORY);
            after = current(&s);
            assert_true(same(&before, &after));
            n = k;
        }
        if (k % 16 == 1 || code == LAM_OK) {
            run_active(&s, got);
            assert_string_equal(got, want[code == LAM_OK]);
        }
        lam_composition_free(c);
    }
    json_set_alloc_funcs(malloc, free);
    assert_in_range(n, 50, 10000);
    lam_composition_free(a);
    lam_composition_free(b);
    tear_down(&s);
}

/* Unloaded while three sessions hold it: they finish with its bits, and it is freed after the last. */
static void test_unload_waits(void **state)
{
    (void)state;
    struct setup s;
    char want[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    set_up(&s);
    lam_composition *a = composed(&s, (double[]){1, 0, 0}), *bare = composed(&s, (double[]){0, 0, 0});
    lam_adapter *watched = s.adapters[ALL];
    atomic_fetch_add(&watched->holders, 1); /* to see it go */
    run_apart(&s, a, want);
    activate(&s, a);
    lam_session *held[3] = {session(&s), session(&s), session(&s)};
    lam_lease *extra = leased(&s);
    activate(&s, bare);
    lam_adapter_unload(s.adapters[ALL]);
    s.adapters[ALL] = NULL;
    lam_composition_free(a);
    lam_runtime_settle(s.runtime);
    lam_lease_release(extra);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&watched->holders), 2); /* the generation's composition, and the test */
        assert_true(run(held[i], s.tokens, NULL, NULL, got));
        assert_string_equal(got, want);
        lam_session_free(held[i]);
    }
    assert_int_equal(atomic_load(&watched->holders), 1);
    lam_adapter_unload(watched);
    lam_composition_free(bare);
    tear_down(&s);
}

/* A session that moves to a composition of no generation lets go of its lease. */
static void test_rebase_lets_go(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    char want[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    set_up(&s);
    lam_composition *a = composed(&s, (double[]){1, 0, 0}), *b = composed(&s, (double[]){0, 1, 0});
    lam_generation g = activate(&s, a);
    lam_session *moving = session(&s);
    activate(&s, b);
    lam_runtime_settle(s.runtime);
    assert_ok(lam_session_rebase(moving, b, NULL, &err), err);
    lam_lease *l = leased(&s);
    lam_generation after;
    lam_lease_generation(l, &after);
    assert_false(after.slot == g.slot);
    assert_ptr_equal(lam_lease_composition(l), b);
    assert_int_equal(atomic_load(&a->holders), 1); /* the test's: no generation has it any more */
    run_apart(&s, b, want);
    assert_true(run(moving, s.tokens, NULL, NULL, got));
    assert_string_equal(got, want);
    lam_session_free(moving);
    lam_lease_release(l);
    lam_composition_free(a);
    lam_composition_free(b);
    tear_down(&s);
}

/* Weights there and back again. */
static void test_weights_a_hundred_times(void **state)
{
    (void)state;
    static const double weights[] = {1, 0.25, 2};
    struct setup s;
    char want[3][LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT], ids[3][LAM_DIGEST_TEXT];
    set_up(&s);
    for (size_t i = 0; i < 3; i++) {
        lam_composition *c = composed(&s, (double[]){weights[i], 0, 0});
        run_apart(&s, c, want[i]);
        strcpy(ids[i], lam_composition_id(c));
        lam_composition_free(c);
    }
    for (size_t round = 0; round < 300; round++) {
        lam_composition *c = composed(&s, (double[]){weights[round % 3], 0, 0});
        activate(&s, c);
        lam_composition_free(c); /* the generation has it */
        run_active(&s, got);
        assert_string_equal(got, want[round % 3]);
        assert_string_equal(current(&s).composition_id, ids[round % 3]);
    }
    assert_int_equal(current(&s).catalogue, 301);
    tear_down(&s);
}

/* ---- many threads ---- */

struct two {
    lam_runtime *runtime;
    lam_composition *first, *second;
};

static void publish_two(void *argument)
{
    const struct two *t = argument;
    (void)lam_runtime_activate(t->runtime, t->first, NULL, NULL, NULL); /* a failure is seen by how often something was published */
    (void)lam_runtime_activate(t->runtime, t->second, NULL, NULL, NULL);
}

/* A session under way stays on its generation's bits while hundreds of others are published around it, by its own thread too. */
struct streamer {
    struct setup *s;
    struct two two;
    char want[2][LAM_DIGEST_TEXT];
    const char *failure; /* cmocka's assertions belong to the main thread */
};

static void *stream(void *argument)
{
    struct streamer *w = argument;
    char got[LAM_DIGEST_TEXT];
    for (int round = 0; round < 8 && !w->failure; round++) {
        lam_lease *l;
        lam_session *session;
        if (lam_runtime_lease(w->s->runtime, &l, NULL) != LAM_OK) return w->failure = "lease", NULL;
        const char *id = lam_composition_id(lam_lease_composition(l));
        bool first = strcmp(id, lam_composition_id(w->two.first)) == 0;
        if (lam_lease_session(l, 4 * N, &session, NULL) != LAM_OK) w->failure = "session";
        lam_lease_release(l);
        if (w->failure) return NULL;
        if (!run(session, w->s->tokens, publish_two, &w->two, got)) w->failure = "run";
        else if (strcmp(got, w->want[!first]) != 0) w->failure = "bits";
        lam_session_free(session);
    }
    return NULL;
}

static void test_streams(void **state)
{
    (void)state;
    struct setup s;
    struct streamer workers[3];
    pthread_t threads[3];
    set_up(&s);
    lam_composition *a = composed(&s, (double[]){1, 0, 0}), *b = composed(&s, (double[]){1, 1, 0.5});
    activate(&s, a);
    for (size_t i = 0; i < 3; i++) {
        workers[i] = (struct streamer){.s = &s, .two = {s.runtime, a, b}};
        run_apart(&s, a, workers[i].want[0]);
        run_apart(&s, b, workers[i].want[1]);
    }
    uint64_t before = current(&s).catalogue;
    for (size_t i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, stream, &workers[i]), 0);
    for (size_t i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < 3; i++)
        if (workers[i].failure) fail_msg("stream %zu: %s", i, workers[i].failure);
    assert_true(current(&s).catalogue > before + 100);
    lam_composition_free(a);
    lam_composition_free(b);
    tear_down(&s);
}

/* 16 threads load an adapter, activate it, activate the base, unload it. Each publication that a call reports is one place in one order, and
 * the last of it is what is active at the end. */
#define LOADERS 16
#define LOADS 12

struct loader {
    struct setup *s;
    lam_generation seen[2 * LOADS];
    const char *failure;
};

static void *load_and_unload(void *argument)
{
    struct loader *w = argument;
    for (size_t i = 0; i < LOADS && !w->failure; i++) {
        lam_adapter *a = NULL;
        lam_composition *with = NULL, *bare = NULL;
        if (lam_adapter_load(w->s->base, w->s->f.adapter_paths[HEAD], false, &a, NULL) != LAM_OK) w->failure = "load";
        else if (lam_runtime_compose(w->s->runtime, &a, (double[]){1}, 1, NULL, &with, NULL) != LAM_OK) w->failure = "compose";
        else if (lam_runtime_compose(w->s->runtime, NULL, NULL, 0, NULL, &bare, NULL) != LAM_OK) w->failure = "compose the base";
        else if (lam_runtime_activate(w->s->runtime, with, NULL, &w->seen[2 * i], NULL) != LAM_OK) w->failure = "activate";
        else if (lam_runtime_activate(w->s->runtime, bare, NULL, &w->seen[2 * i + 1], NULL) != LAM_OK) w->failure = "activate the base";
        lam_composition_free(with);
        lam_composition_free(bare);
        lam_adapter_unload(a);
    }
    return NULL;
}

static void test_loaders(void **state)
{
    (void)state;
    struct setup s;
    static struct loader workers[LOADERS];
    pthread_t threads[LOADERS];
    set_up(&s);
    lam_generation last = current(&s);
    for (size_t i = 0; i < LOADERS; i++) {
        workers[i] = (struct loader){.s = &s};
        assert_int_equal(pthread_create(&threads[i], NULL, load_and_unload, &workers[i]), 0);
    }
    for (size_t i = 0; i < LOADERS; i++) pthread_join(threads[i], NULL);
    size_t n = LOADERS * 2 * LOADS;
    const lam_generation **by_place = calloc(n + 2, sizeof *by_place);
    for (size_t i = 0; i < LOADERS; i++) {
        if (workers[i].failure) fail_msg("thread %zu: %s", i, workers[i].failure);
        for (size_t k = 0; k < 2 * LOADS; k++) {
            const lam_generation *g = &workers[i].seen[k];
            assert_in_range(g->catalogue, 1, n + 1);
            if (k) assert_true(g->catalogue >= workers[i].seen[k - 1].catalogue); /* its own order is kept */
            if (by_place[g->catalogue]) assert_true(same(by_place[g->catalogue], g));
            by_place[g->catalogue] = g;
            if (g->catalogue > last.catalogue) last = *g;
        }
    }
    for (size_t i = 2; i <= last.catalogue; i++) {
        assert_non_null(by_place[i]); /* no publication that nobody made */
        if (i > 2) assert_string_not_equal(by_place[i]->composition_id, by_place[i - 1]->composition_id);
    }
    lam_generation now = current(&s);
    assert_true(same(&now, &last));
    free(by_place);
    lam_composition *bare = composed(&s, (double[]){0, 0, 0});
    activate(&s, bare);
    lam_composition_free(bare);
    tear_down(&s);
}

/* 16 threads load under one name a file that is damaged: all are refused alike, and nothing of it is left. With the sound file in its
 * place the next attempt looks again. */
struct refused_loader {
    struct setup *s;
    const char *path;
    lam_code code;
    lam_adapter *out;
};

static void *load_damaged(void *argument)
{
    struct refused_loader *w = argument;
    w->code = lam_adapter_load(w->s->base, w->path, false, &w->out, NULL);
    return NULL;
}

static void write_damaged(const char *source, const char *path)
{
    size_t size;
    uint8_t *bytes = test_read_file(source, &size);
    bytes[size - 1] ^= 0x40; /* in the last piece of the data */
    fixture_write(path, bytes, size);
    free(bytes);
}

static void test_failed_load_and_retry(void **state)
{
    (void)state;
    struct setup s;
    struct refused_loader workers[LOADERS];
    pthread_t threads[LOADERS];
    char path[600], want[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    lam_error err;
    set_up(&s);
    snprintf(path, sizeof path, "%s/same-name.slm", s.f.folder);
    write_damaged(s.f.adapter_paths[ALL], path);
    lam_composition *a = composed(&s, (double[]){1, 0, 0});
    run_apart(&s, a, want);
    lam_generation before = current(&s), after;
    size_t holders = atomic_load(&s.base->holders);
    for (size_t i = 0; i < LOADERS; i++) {
        workers[i] = (struct refused_loader){.s = &s, .path = path};
        assert_int_equal(pthread_create(&threads[i], NULL, load_damaged, &workers[i]), 0);
    }
    for (size_t i = 0; i < LOADERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].code, LAM_E_DIGEST);
        assert_null(workers[i].out);
    }
    after = current(&s);
    assert_true(same(&before, &after));
    assert_int_equal(atomic_load(&s.base->holders), holders);
    assert_int_equal(rename(s.f.adapter_paths[ALL], path), 0);
    lam_adapter_unload(s.adapters[ALL]);
    assert_ok(lam_adapter_load(s.base, path, false, &s.adapters[ALL], &err), err);
    lam_composition *again = composed(&s, (double[]){1, 0, 0});
    activate(&s, again);
    run_active(&s, got);
    assert_string_equal(got, want);
    lam_composition_free(a);
    lam_composition_free(again);
    tear_down(&s);
}

/* ---- files ---- */

/* How often files of the watched folder were opened or read since the last look. */
static size_t count_reads(int watch)
{
    char events[4096] __attribute__((aligned(8)));
    size_t n = 0;
    for (ssize_t got; (got = read(watch, events, sizeof events)) > 0;)
        for (char *at = events; at < events + got; n++) at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len;
    return n;
}

/* An adapter is loaded anew in the place of itself; then 100 tokens open and read no file. */
static void test_no_file_after_reload(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    lam_adapter *again;
    lam_session *stream;
    uint32_t token = 3;
    set_up(&s);
    lam_composition *old = composed(&s, (double[]){1, 0, 0});
    activate(&s, old);
    int watch = inotify_init1(IN_NONBLOCK);
    assert_true(watch >= 0 && inotify_add_watch(watch, s.f.folder, IN_OPEN | IN_ACCESS) >= 0);
    assert_ok(lam_adapter_load(s.base, s.f.adapter_paths[ALL], false, &again, &err), err);
    lam_adapter_unload(s.adapters[ALL]);
    s.adapters[ALL] = again;
    lam_composition *reloaded = composed(&s, (double[]){1, 0, 0});
    activate(&s, reloaded);
    assert_true(count_reads(watch) > 0); /* the watch sees what a load does */
    lam_lease *l = leased(&s);
    assert_ok(lam_lease_session(l, 128, &stream, &err), err);
    for (size_t i = 0; i < 100; i++) assert_ok(lam_session_step(&stream, &token, 1, &err), err);
    assert_int_equal(count_reads(watch), 0);
    close(watch);
    lam_session_free(stream);
    lam_lease_release(l);
    lam_composition_free(old);
    lam_composition_free(reloaded);
    tear_down(&s);
}

/* SHA-256 over the logits of 100 tokens; before each, all further sessions get another weight. A session that begins then has it. */
static void stream_hundred(struct setup *s, lam_composition *const weights[], size_t n_weights, char out[LAM_DIGEST_TEXT])
{
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_error err;
    lam_session *stream;
    lam_lease *l = leased(s);
    lam_sha256_init(&hash);
    assert_ok(lam_lease_session(l, 128, &stream, &err), err);
    lam_lease_release(l);
    for (size_t i = 0; i < 100; i++) {
        if (n_weights) {
            activate(s, weights[i % n_weights]);
            l = leased(s);
            assert_string_equal(lam_composition_id(lam_lease_composition(l)), lam_composition_id(weights[i % n_weights]));
            lam_lease_release(l);
        }
        assert_ok(lam_session_step(&stream, &s->tokens[i % N], 1, &err), err);
        fixture_hash(&hash, i, lam_session_logits(stream), s->base->model->config.n_vocab);
    }
    lam_session_free(stream);
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
}

static void test_weights_beside_a_stream(void **state)
{
    (void)state;
    struct setup s;
    char want[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    set_up(&s);
    lam_composition *c[] = {composed(&s, (double[]){0.25, 0, 0}), composed(&s, (double[]){2, 0, 0}), composed(&s, (double[]){1, 0, 0})};
    activate(&s, c[2]);
    stream_hundred(&s, c, 0, want);
    stream_hundred(&s, c, 3, got);
    assert_string_equal(got, want);
    for (size_t i = 0; i < 3; i++) lam_composition_free(c[i]);
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generations),    cmocka_unit_test(test_refused), cmocka_unit_test(test_memory_ends), cmocka_unit_test(test_waits_for_no_pass),
        cmocka_unit_test(test_unload_waits),   cmocka_unit_test(test_rebase_lets_go), cmocka_unit_test(test_weights_a_hundred_times),
        cmocka_unit_test(test_streams),        cmocka_unit_test(test_loaders),
        cmocka_unit_test(test_failed_load_and_retry), cmocka_unit_test(test_no_file_after_reload), cmocka_unit_test(test_weights_beside_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
