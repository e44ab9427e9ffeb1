/* Publish, lease, retire (src/run/generations.h): who sees what, when a slot may be used again, and that many threads at once never see
 * something that was freed, and leave nothing behind. tests/models.sh explores the same protocol's interleavings exhaustively. */
#define _POSIX_C_SOURCE 200809L

#include "generation_case.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* A payload that tells when it is freed. */
struct thing {
    atomic_int alive;      /* 1, then 0 */
    unsigned number;
};
static atomic_int n_alive;

static void free_thing(void *payload)
{
    struct thing *t = payload;
    if (atomic_exchange(&t->alive, 0) != 1) abort(); /* freed twice */
    atomic_fetch_sub(&n_alive, 1);
}

/* Never given back to the allocator before the test's end, so that a late reader sees `alive` as 0 and not something else's bytes. */
static struct thing *new_thing(struct thing *room, unsigned number)
{
    atomic_store(&room->alive, 1);
    room->number = number;
    atomic_fetch_add(&n_alive, 1);
    return room;
}

static struct lam_generations table;

static int begin(void **state)
{
    (void)state;
    lam_error err;
    atomic_store(&n_alive, 0);
    assert_ok(lam_generations_init(&table, &err), err);
    return 0;
}

static int end(void **state)
{
    (void)state;
    lam_generations_release(&table);
    return atomic_load(&n_alive) != 0; /* nothing is left */
}

static void publish(struct thing *t, const char *digest)
{
    lam_error err;
    assert_ok(generation_publish(&table, digest, t, free_thing, &err), err);
}

static void test_one_after_the_other(void **state)
{
    (void)state;
    static struct thing rooms[2];
    struct lam_handle a, b;
    lam_error err;
    assert_int_equal(lam_generations_acquire(&table, &a, &err), LAM_E_GEN_NONE);
    publish(new_thing(&rooms[0], 0), "a");
    assert_int_equal(table.catalogue, 1);
    assert_ok(lam_generations_acquire(&table, &a, &err), err);
    publish(new_thing(&rooms[1], 1), "b");
    assert_int_equal(table.catalogue, 2);
    assert_ok(lam_generations_acquire(&table, &b, &err), err);
    assert_string_equal(a.digest, "a");
    assert_string_equal(b.digest, "b");
    assert_ptr_equal(lam_generations_payload(&table, &a), &rooms[0]); /* what was leased stays */
    assert_ptr_equal(lam_generations_payload(&table, &b), &rooms[1]);
    assert_int_equal(atomic_load(&n_alive), 2);
    assert_int_equal(lam_slot_state(&table.slots[a.slot]), LAM_SLOT_RETIRING);
    assert_ok(lam_generations_give_back(&table, &a, &err), err);
    assert_int_equal(atomic_load(&n_alive), 1);
    assert_int_equal(lam_slot_state(&table.slots[a.slot]), LAM_SLOT_FREE);
    assert_int_equal(lam_slot_generation(&table.slots[a.slot]), a.slot_generation + 1);
    assert_int_equal(atomic_load(&table.slots[a.slot].pointer_generation), a.pointer_generation + 1);
    assert_int_equal(lam_generations_give_back(&table, &a, &err), LAM_E_GEN_LEASE_SLOT); /* not twice */
    assert_ok(lam_generations_give_back(&table, &b, &err), err);
    assert_int_equal(lam_generations_give_back(&table, &b, &err), LAM_E_GEN_LEASE_UNCOUNTED);
    assert_int_equal(atomic_load(&n_alive), 1); /* the current one needs no lease */
}

/* The four cases of the truth table: only without a lease and without a use is a retired slot free. */
static void test_lease_and_use(void **state)
{
    (void)state;
    static struct thing rooms[3];
    struct lam_handle h, other;
    lam_error err;
    for (int lease_first = 0; lease_first < 2; lease_first++) {
        publish(new_thing(&rooms[0], 0), "a");
        assert_ok(lam_generations_acquire(&table, &h, &err), err);
        assert_ok(lam_generations_use_begin(&table, &h, &err), err);
        publish(new_thing(&rooms[1], 1), "b");
        assert_int_equal(atomic_load(&rooms[0].alive), 1); /* leased, in use */
        if (lease_first) assert_ok(lam_generations_give_back(&table, &h, &err), err);
        else lam_generations_use_end(&table, &h);
        assert_int_equal(atomic_load(&rooms[0].alive), 1); /* one of the two */
        assert_int_equal(lam_slot_state(&table.slots[h.slot]), LAM_SLOT_RETIRING);
        if (lease_first) lam_generations_use_end(&table, &h);
        else assert_ok(lam_generations_give_back(&table, &h, &err), err);
        assert_int_equal(atomic_load(&rooms[0].alive), 0); /* neither */
    }
    /* A use that ends while its slot is current frees nothing. */
    assert_ok(lam_generations_acquire(&table, &other, &err), err);
    assert_ok(lam_generations_use_begin(&table, &other, &err), err);
    lam_generations_use_end(&table, &other);
    assert_ok(lam_generations_give_back(&table, &other, &err), err);
    assert_int_equal(atomic_load(&rooms[1].alive), 1);
}

static void test_stale_and_given_up(void **state)
{
    (void)state;
    static struct thing rooms[3];
    struct lam_publication late;
    struct lam_handle current;
    lam_error err;
    publish(new_thing(&rooms[0], 0), "a");
    assert_ok(generation_stage(&table, "late", new_thing(&rooms[2], 2), free_thing, &late, &err), err);
    publish(new_thing(&rooms[1], 1), "b");
    assert_int_equal(lam_publication_publish(&late, &err), LAM_E_GEN_STALE);
    uint32_t slot = late.shadow;
    uint64_t generation = lam_slot_generation(&table.slots[slot]), pointer = atomic_load(&table.slots[slot].pointer_generation);
    assert_int_equal(lam_slot_state(&table.slots[slot]), LAM_SLOT_STAGED);
    lam_publication_abort(&late);
    assert_int_equal(lam_slot_state(&table.slots[slot]), LAM_SLOT_FREE);
    assert_int_equal(lam_slot_generation(&table.slots[slot]), generation + 1);
    assert_int_equal(atomic_load(&table.slots[slot].pointer_generation), pointer + 1);
    assert_int_equal(atomic_load(&rooms[2].alive), 1); /* the caller's still */
    free_thing(&rooms[2]);
    assert_ok(lam_generations_acquire(&table, &current, &err), err);
    assert_string_equal(current.digest, "b");
    assert_int_equal(table.catalogue, 2);
    assert_ok(lam_generations_give_back(&table, &current, &err), err);
}

static void test_no_slot_left(void **state)
{
    (void)state;
    static struct thing rooms[LAM_GENERATION_SLOTS + 1];
    static struct lam_handle held[LAM_GENERATION_SLOTS];
    char digest[16];
    lam_error err;
    for (unsigned i = 0; i < LAM_GENERATION_SLOTS; i++) {
        snprintf(digest, sizeof digest, "d%u", i);
        publish(new_thing(&rooms[i], i), digest);
        assert_ok(lam_generations_acquire(&table, &held[i], &err), err);
    }
    assert_int_equal(generation_publish(&table, "more", &rooms[LAM_GENERATION_SLOTS], free_thing, &err), LAM_E_GEN_SLOTS);
    assert_int_equal(table.catalogue, LAM_GENERATION_SLOTS);
    assert_ok(lam_generations_give_back(&table, &held[17], &err), err);
    publish(new_thing(&rooms[LAM_GENERATION_SLOTS], 0), "more");
    assert_int_equal(table.current.slot, held[17].slot);
    assert_true(table.current.slot_generation > held[17].slot_generation && table.current.pointer_generation > held[17].pointer_generation);
    for (unsigned i = 0; i < LAM_GENERATION_SLOTS; i++)
        if (i != 17) assert_ok(lam_generations_give_back(&table, &held[i], &err), err);
    assert_int_equal(atomic_load(&n_alive), 1);
}

/* At its limit the count is not raised any more, so it can never reach the slot's bits; the next generation counts anew. */
static void test_count_is_refused_at_its_limit(void **state)
{
    (void)state;
    static struct thing rooms[2];
    struct lam_handle h;
    lam_error err;
    publish(new_thing(&rooms[0], 0), "a");
    uint64_t taken = LAM_GENERATION_MOST_LEASES - 1;
    atomic_fetch_add(&table.word, taken);
    assert_ok(lam_generations_acquire(&table, &h, &err), err);
    uint64_t word = atomic_load(&table.word);
    assert_int_equal(lam_generations_acquire(&table, &h, &err), LAM_E_GEN_COUNTS);
    assert_int_equal(atomic_load(&table.word), word);
    assert_int_equal(word >> LAM_GENERATION_COUNT_BITS, h.slot);
    publish(new_thing(&rooms[1], 1), "b");
    atomic_fetch_sub(&table.slots[h.slot].leases, (int64_t)taken);
    assert_int_equal(atomic_load(&rooms[0].alive), 1);
    assert_ok(lam_generations_give_back(&table, &h, &err), err);
    assert_int_equal(atomic_load(&rooms[0].alive), 0);
}

/* ---- threads ---- */

#define N_PUBLISHERS 2
#define N_READERS 6
#define N_EACH 30000

static struct thing things[N_PUBLISHERS][N_EACH];
static atomic_int publishers_left;

static void *publish_many(void *argument)
{
    size_t mine = (size_t)argument;
    char digest[32];
    for (unsigned i = 0; i < N_EACH; i++) {
        lam_error err;
        struct thing *t = new_thing(&things[mine][i], i);
        snprintf(digest, sizeof digest, "%zu.%u", mine, i);
        lam_code code;
        while ((code = generation_publish(&table, digest, t, free_thing, &err)) == LAM_E_GEN_STALE || code == LAM_E_GEN_SLOTS) sched_yield();
        if (code != LAM_OK) abort();
    }
    atomic_fetch_sub(&publishers_left, 1);
    return NULL;
}

/* The handle's digest names the thing that it leads to, and that is alive. */
static void look(const struct lam_handle *h, const struct thing *t)
{
    size_t publisher;
    unsigned number;
    if (sscanf(h->digest, "%zu.%u", &publisher, &number) != 2 || t != &things[publisher][number] || atomic_load(&t->alive) != 1) abort();
}

static void *read_many(void *argument)
{
    uint64_t seed = (uint64_t)(size_t)argument, n = 0;
    struct lam_handle h[3];
    while (atomic_load(&publishers_left) || n < 100) {
        lam_error err;
        size_t held = test_random(&seed) % 3 + 1, k = 0;
        const struct thing *t[3];
        while (k < held) { /* leases of perhaps different generations */
            if (lam_generations_acquire(&table, &h[k], &err) != LAM_OK) continue;
            t[k] = lam_generations_payload(&table, &h[k]);
            k++;
        }
        for (k = 0; k < held; k++) {
            if (lam_generations_use_begin(&table, &h[k], &err) != LAM_OK) abort();
            look(&h[k], t[k]);
            bool early = test_random(&seed) % 2; /* a pass may outlive its lease */
            if (early && lam_generations_give_back(&table, &h[k], &err) != LAM_OK) abort();
            if (test_random(&seed) % 8 == 0) sched_yield();
            look(&h[k], t[k]);
            lam_generations_use_end(&table, &h[k]);
            if (!early && lam_generations_give_back(&table, &h[k], &err) != LAM_OK) abort();
        }
        n++;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[N_PUBLISHERS + N_READERS];
    atomic_store(&publishers_left, N_PUBLISHERS);
    for (size_t i = 0; i < N_PUBLISHERS + N_READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < N_PUBLISHERS ? publish_many : read_many,
                                        (void *)(i < N_PUBLISHERS ? i : i + 100)), 0);
    for (size_t i = 0; i < N_PUBLISHERS + N_READERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(table.catalogue, N_PUBLISHERS * N_EACH);
    assert_int_equal(atomic_load(&n_alive), 1);
    for (unsigned i = 0; i < LAM_GENERATION_SLOTS; i++)
        if (i != table.current.slot) assert_int_equal(lam_slot_state(&table.slots[i]), LAM_SLOT_FREE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_after_the_other, begin, end),
        cmocka_unit_test_setup_teardown(test_lease_and_use, begin, end),
        cmocka_unit_test_setup_teardown(test_stale_and_given_up, begin, end),
        cmocka_unit_test_setup_teardown(test_no_slot_left, begin, end),
        cmocka_unit_test_setup_teardown(test_count_is_refused_at_its_limit, begin, end),
        cmocka_unit_test_setup_teardown(test_threads, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
