/* Which generation of a thing is current, who holds which, and when one may be freed: publish, lease, retire. What a generation holds is a
 * pointer that this file never looks behind.
 *
 * A fixed table of slots. One 64-bit word names the current slot and counts the leases that were taken of it:
 *     acquire   one fetch-and-add on the word: whose slot it was is known, and that slot is held, in the same instant. Wait-free.
 *     release   one fetch-and-subtract on the slot.
 *     publish   exchanges the word, and adds the count that it had to the slot that it named (split reference counts; described by
 *               Williams, "C++ Concurrency in Action", 7.2.4).
 * A reader waits for nobody, and a publisher for no reader. Publishers take turns by a lock for their few stores.
 *
 *     free → staged → published → retiring → free
 *
 * A slot that retires is free again once its leases are gone AND the last use of it has ended. A use is a pass that is under way: it begins
 * under a lease and may outlive it. Then its slot generation and its pointer generation both advance, so that no handle of before fits it.
 * tests/models/generations.pml is this protocol for a model checker. */
#ifndef LAM_RUN_GENERATIONS_H
#define LAM_RUN_GENERATIONS_H

#include "base/error.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "lamina/lamina.h"

#include <stdatomic.h>

#define LAM_GENERATION_SLOTS 128
#define LAM_NO_SLOT 255u

/* The word: slot << 56 | leases taken. Acquiring is refused half-way to where the count would reach the slot's bits. */
#define LAM_GENERATION_COUNT_BITS 56
#define LAM_GENERATION_MOST_LEASES ((uint64_t)1 << (LAM_GENERATION_COUNT_BITS - 1))
/* In a slot's count until it retires, so that 0 means: retired, and every lease given back. */
#define LAM_GENERATION_OWNER ((int64_t)1 << 62)

/* What names a generation. None of the three numbers is ever compared with another of the three. */
struct lam_handle {
    uint32_t slot;                  /* LAM_NO_SLOT: none */
    uint64_t slot_generation;       /* rises when the slot is reserved, given up, or free again */
    uint64_t pointer_generation;    /* rises when what is in the slot is published, given up, or freed */
    char digest[LAM_DIGEST_TEXT];
};

enum lam_slot_state { LAM_SLOT_FREE, LAM_SLOT_STAGED, LAM_SLOT_PUBLISHED, LAM_SLOT_RETIRING, LAM_SLOT_RECLAIMING };

struct lam_slot {
    _Alignas(64) atomic_uint_fast64_t tag; /* slot_generation << 3 | state */
    atomic_uint_fast64_t pointer_generation;
    atomic_int_fast64_t leases;     /* see LAM_GENERATION_OWNER */
    atomic_int_fast64_t uses;       /* begun and not ended */
    char digest[LAM_DIGEST_TEXT];   /* written while staged, read under a lease */
    void *payload;
    void (*free_payload)(void *payload);
};

struct lam_generations {
    _Alignas(64) atomic_uint_fast64_t word;
    struct lam_slot slots[LAM_GENERATION_SLOTS];
    struct lam_mutex *lock;         /* of all below, and of publishing */
    uint64_t catalogue;             /* generation of the catalogue: how often something was published */
    struct lam_handle current;      /* what the word's slot must be */
    uint32_t next;                  /* where the search for a free slot begins */
};

bool lam_handle_same(const struct lam_handle *a, const struct lam_handle *b);

/* LAM_E_NO_MEMORY. */
lam_code lam_generations_init(struct lam_generations *g, lam_error *err);
/* Retires what is current. Nobody may hold a lease or be at work. */
void lam_generations_release(struct lam_generations *g);

/* A lease of the current generation: fills *out. LAM_E_GEN_NONE if nothing is published, LAM_E_GEN_COUNTS at the count's limit. */
lam_code lam_generations_acquire(struct lam_generations *g, struct lam_handle *out, lam_error *err);
/* Gives a lease back; the last one frees what has retired. Refused as lam_generations_check says. */
lam_code lam_generations_give_back(struct lam_generations *g, const struct lam_handle *h, lam_error *err);
/* What is leased; valid until the lease is given back, or the use ended. */
void *lam_generations_payload(struct lam_generations *g, const struct lam_handle *h);

/* A handle that is leased is what its slot holds. LAM_E_GEN_LEASE_SLOT, …_GENERATION, …_POINTER, …_DIGEST; LAM_E_GEN_LEASE_UNCOUNTED if
 * nobody holds one. */
lam_code lam_generations_check(struct lam_generations *g, const struct lam_handle *h, lam_error *err);
/* Around each pass over what h names. The first is refused as lam_generations_check says. */
lam_code lam_generations_use_begin(struct lam_generations *g, const struct lam_handle *h, lam_error *err);
void lam_generations_use_end(struct lam_generations *g, const struct lam_handle *h);

/* A slot that is about to be free again, as it is found. */
struct lam_reclaim {
    enum lam_slot_state state;
    int64_t leases, uses;
    uint64_t slot_generation, pointer_generation;
    uint64_t slot_generation_after, pointer_generation_after;
};
/* LAM_E_GEN_RECLAIM_LEASED, …_USED, …_GENERATION, …_POINTER: it may not be, or not so. */
lam_code lam_reclaim_check(const struct lam_reclaim *r, lam_error *err);

/* ---- for a publisher (run/publication.h), under the lock ---- */

/* LAM_E_GEN_CATALOGUE_SLOT, …_GENERATION, …_POINTER, …_DIGEST if what is current is not what its slot holds. */
lam_code lam_generations_check_current(const struct lam_generations *g, lam_error *err);
/* A free slot becomes staged, its slot generation one more. LAM_E_GEN_SLOTS if there is none. */
lam_code lam_generations_reserve(struct lam_generations *g, uint32_t *slot, lam_error *err);
/* A staged slot is free again, both generations advanced; what is in it is not freed. */
void lam_generations_abandon(struct lam_generations *g, uint32_t slot);
/* The one store: h, which is staged and has been checked, is current; what was current retires. */
void lam_generations_swap(struct lam_generations *g, const struct lam_handle *h, uint64_t catalogue);

/* The slot that acquiring would lease. */
uint32_t lam_generations_visible(const struct lam_generations *g);

enum lam_slot_state lam_slot_state(const struct lam_slot *s);
uint64_t lam_slot_generation(const struct lam_slot *s);

#endif
