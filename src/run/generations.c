#include "run/generations.h"

#include <string.h>

#define STATE_BITS 3
#define COUNT_MASK (((uint64_t)1 << LAM_GENERATION_COUNT_BITS) - 1)

static uint64_t tag_of(uint64_t generation, enum lam_slot_state state) { return generation << STATE_BITS | state; }
static uint32_t slot_of(uint64_t word) { return (uint32_t)(word >> LAM_GENERATION_COUNT_BITS); }
static uint64_t word_of(uint32_t slot) { return (uint64_t)slot << LAM_GENERATION_COUNT_BITS; }

enum lam_slot_state lam_slot_state(const struct lam_slot *s)
{
    return (enum lam_slot_state)(atomic_load(&s->tag) & (((uint64_t)1 << STATE_BITS) - 1));
}

uint32_t lam_generations_visible(const struct lam_generations *g) { return slot_of(atomic_load(&g->word)); }

uint64_t lam_slot_generation(const struct lam_slot *s) { return atomic_load(&s->tag) >> STATE_BITS; }

bool lam_handle_same(const struct lam_handle *a, const struct lam_handle *b)
{
    return a->slot == b->slot && a->slot_generation == b->slot_generation && a->pointer_generation == b->pointer_generation &&
           strcmp(a->digest, b->digest) == 0;
}

lam_code lam_generations_init(struct lam_generations *g, lam_error *err)
{
    memset(g, 0, sizeof *g);
    g->current.slot = LAM_NO_SLOT;
    atomic_init(&g->word, word_of(LAM_NO_SLOT));
    return lam_mutex_new(&g->lock, err);
}

/* ---- reclaiming ---- */

lam_code lam_reclaim_check(const struct lam_reclaim *r, lam_error *err)
{
    if (r->leases != 0 || r->state != LAM_SLOT_RETIRING)
        return LAM_RAISE(err, LAM_E_GEN_RECLAIM_LEASED, "generation %llu is still held: leases %lld, state %d",
                         (unsigned long long)r->slot_generation, (long long)r->leases, (int)r->state);
    if (r->uses != 0)
        return LAM_RAISE(err, LAM_E_GEN_RECLAIM_USED, "generation %llu is still at work in %lld passes", (unsigned long long)r->slot_generation,
                         (long long)r->uses);
    if (r->slot_generation_after <= r->slot_generation)
        return LAM_RAISE(err, LAM_E_GEN_RECLAIM_GENERATION, "a slot to be used again keeps its generation %llu",
                         (unsigned long long)r->slot_generation_after);
    if (r->pointer_generation_after <= r->pointer_generation)
        return LAM_RAISE(err, LAM_E_GEN_RECLAIM_POINTER, "a slot to be used again keeps its pointer generation %llu",
                         (unsigned long long)r->pointer_generation_after);
    return LAM_OK;
}

/* Frees the slot's generation if nothing holds it any more. Whoever takes away the last lease or ends the last use comes here; the exchange
 * of the tag lets one of them through, and none that means an earlier generation. */
static void reclaim(struct lam_generations *g, uint32_t slot, uint64_t generation)
{
    struct lam_slot *s = &g->slots[slot];
    uint_fast64_t tag = tag_of(generation, LAM_SLOT_RETIRING);
    struct lam_reclaim r = {.state = LAM_SLOT_RETIRING, .slot_generation = generation, .slot_generation_after = generation + 1};
    r.leases = atomic_load(&s->leases); /* before uses: once no lease is left, no use begins */
    r.uses = atomic_load(&s->uses);
    r.pointer_generation = atomic_load(&s->pointer_generation);
    r.pointer_generation_after = r.pointer_generation + 1;
    if (lam_reclaim_check(&r, NULL) != LAM_OK) return;
    if (!atomic_compare_exchange_strong(&s->tag, &tag, tag_of(generation, LAM_SLOT_RECLAIMING))) return;
    if (s->free_payload) s->free_payload(s->payload);
    s->payload = NULL;
    s->digest[0] = 0;
    atomic_store(&s->pointer_generation, r.pointer_generation_after);
    atomic_store(&s->tag, tag_of(r.slot_generation_after, LAM_SLOT_FREE));
}

/* ---- readers ---- */

static void fill_handle(const struct lam_slot *s, uint32_t slot, struct lam_handle *out)
{
    out->slot = slot;
    out->slot_generation = lam_slot_generation(s);
    out->pointer_generation = atomic_load(&s->pointer_generation);
    memcpy(out->digest, s->digest, sizeof out->digest);
}

lam_code lam_generations_acquire(struct lam_generations *g, struct lam_handle *out, lam_error *err)
{
    if ((atomic_load(&g->word) & COUNT_MASK) >= LAM_GENERATION_MOST_LEASES)
        return LAM_RAISE(err, LAM_E_GEN_COUNTS, "2^%d leases were taken of one generation", LAM_GENERATION_COUNT_BITS - 1);
    uint32_t slot = slot_of(atomic_fetch_add(&g->word, 1));
    if (slot == LAM_NO_SLOT) return LAM_RAISE(err, LAM_E_GEN_NONE, "nothing is published");
    fill_handle(&g->slots[slot], slot, out);
    return LAM_OK;
}

/* Whether somebody may hold a lease of the slot's generation. Never false for somebody who does: what the word counts is read last. */
static bool is_leased(const struct lam_generations *g, uint32_t slot)
{
    int64_t in_slot = atomic_load(&g->slots[slot].leases);
    uint64_t word = atomic_load(&g->word);
    if (slot_of(word) == slot) in_slot += (int64_t)(word & COUNT_MASK) - LAM_GENERATION_OWNER;
    return in_slot > 0;
}

lam_code lam_generations_check(struct lam_generations *g, const struct lam_handle *h, lam_error *err)
{
    const struct lam_slot *s = h->slot < LAM_GENERATION_SLOTS ? &g->slots[h->slot] : NULL;
    enum lam_slot_state state = s ? lam_slot_state(s) : LAM_SLOT_FREE;
    if (state != LAM_SLOT_PUBLISHED && state != LAM_SLOT_RETIRING)
        return LAM_RAISE(err, LAM_E_GEN_LEASE_SLOT, "a lease of slot %u, which holds nothing", h->slot);
    if (h->slot_generation != lam_slot_generation(s))
        return LAM_RAISE(err, LAM_E_GEN_LEASE_GENERATION, "a lease of generation %llu of slot %u, which is at %llu",
                         (unsigned long long)h->slot_generation, h->slot, (unsigned long long)lam_slot_generation(s));
    if (h->pointer_generation != atomic_load(&s->pointer_generation))
        return LAM_RAISE(err, LAM_E_GEN_LEASE_POINTER, "a lease of slot %u with pointer generation %llu instead of %llu", h->slot,
                         (unsigned long long)h->pointer_generation, (unsigned long long)atomic_load(&s->pointer_generation));
    if (!is_leased(g, h->slot))
        return LAM_RAISE(err, LAM_E_GEN_LEASE_UNCOUNTED, "a lease of slot %u, of which none is counted", h->slot);
    if (strcmp(h->digest, s->digest) != 0)
        return LAM_RAISE(err, LAM_E_GEN_LEASE_DIGEST, "a lease of %s in slot %u, which holds %s", h->digest, h->slot, s->digest);
    return LAM_OK;
}

lam_code lam_generations_give_back(struct lam_generations *g, const struct lam_handle *h, lam_error *err)
{
    LAM_TRY(lam_generations_check(g, h, err));
    if (atomic_fetch_sub(&g->slots[h->slot].leases, 1) == 1) reclaim(g, h->slot, h->slot_generation);
    return LAM_OK;
}

void *lam_generations_payload(struct lam_generations *g, const struct lam_handle *h) { return g->slots[h->slot].payload; }

lam_code lam_generations_use_begin(struct lam_generations *g, const struct lam_handle *h, lam_error *err)
{
    LAM_TRY(lam_generations_check(g, h, err));
    atomic_fetch_add(&g->slots[h->slot].uses, 1);
    return LAM_OK;
}

void lam_generations_use_end(struct lam_generations *g, const struct lam_handle *h)
{
    if (atomic_fetch_sub(&g->slots[h->slot].uses, 1) == 1) reclaim(g, h->slot, h->slot_generation);
}

/* ---- publishers ---- */

lam_code lam_generations_check_current(const struct lam_generations *g, lam_error *err)
{
    const struct lam_handle *h = &g->current;
    uint32_t slot = slot_of(atomic_load(&g->word));
    if (h->slot != slot) return LAM_RAISE(err, LAM_E_GEN_CATALOGUE_SLOT, "the catalogue names slot %u, slot %u is current", h->slot, slot);
    if (slot == LAM_NO_SLOT) return LAM_OK;
    const struct lam_slot *s = &g->slots[slot];
    if (h->slot_generation != lam_slot_generation(s))
        return LAM_RAISE(err, LAM_E_GEN_CATALOGUE_GENERATION, "the catalogue names generation %llu of slot %u, which is at %llu",
                         (unsigned long long)h->slot_generation, slot, (unsigned long long)lam_slot_generation(s));
    if (h->pointer_generation != atomic_load(&s->pointer_generation))
        return LAM_RAISE(err, LAM_E_GEN_CATALOGUE_POINTER, "the catalogue names pointer generation %llu of slot %u, which is at %llu",
                         (unsigned long long)h->pointer_generation, slot, (unsigned long long)atomic_load(&s->pointer_generation));
    if (strcmp(h->digest, s->digest) != 0)
        return LAM_RAISE(err, LAM_E_GEN_CATALOGUE_DIGEST, "the catalogue names %s, slot %u holds %s", h->digest, slot, s->digest);
    return LAM_OK;
}

lam_code lam_generations_reserve(struct lam_generations *g, uint32_t *slot, lam_error *err)
{
    for (uint32_t i = 0; i < LAM_GENERATION_SLOTS; i++) {
        uint32_t at = (g->next + i) % LAM_GENERATION_SLOTS;
        struct lam_slot *s = &g->slots[at];
        if (lam_slot_state(s) != LAM_SLOT_FREE) continue;
        atomic_store(&s->leases, LAM_GENERATION_OWNER);
        atomic_store(&s->tag, tag_of(lam_slot_generation(s) + 1, LAM_SLOT_STAGED));
        g->next = at + 1;
        *slot = at;
        return LAM_OK;
    }
    return LAM_RAISE(err, LAM_E_GEN_SLOTS, "all %d slots hold generations that are still leased", LAM_GENERATION_SLOTS);
}

void lam_generations_abandon(struct lam_generations *g, uint32_t slot)
{
    struct lam_slot *s = &g->slots[slot];
    s->payload = NULL;
    s->digest[0] = 0;
    atomic_fetch_add(&s->pointer_generation, 1);
    atomic_store(&s->tag, tag_of(lam_slot_generation(s) + 1, LAM_SLOT_FREE));
}

/* The slot that `word` named, with the leases that it counted. */
static void retire(struct lam_generations *g, uint64_t word)
{
    uint32_t slot = slot_of(word);
    if (slot == LAM_NO_SLOT) return;
    struct lam_slot *s = &g->slots[slot];
    uint64_t generation = lam_slot_generation(s);
    int64_t taken = (int64_t)(word & COUNT_MASK);
    atomic_store(&s->tag, tag_of(generation, LAM_SLOT_RETIRING)); /* before the count can reach 0 */
    if (atomic_fetch_add(&s->leases, taken - LAM_GENERATION_OWNER) + taken == LAM_GENERATION_OWNER) reclaim(g, slot, generation);
}

void lam_generations_swap(struct lam_generations *g, const struct lam_handle *h, uint64_t catalogue)
{
    struct lam_slot *s = &g->slots[h->slot];
    atomic_store(&s->pointer_generation, h->pointer_generation);
    atomic_store(&s->tag, tag_of(h->slot_generation, LAM_SLOT_PUBLISHED));
    uint64_t old = atomic_exchange(&g->word, word_of(h->slot));
    g->catalogue = catalogue;
    g->current = *h;
    retire(g, old);
}

void lam_generations_release(struct lam_generations *g)
{
    if (!g->lock) return;
    retire(g, atomic_exchange(&g->word, word_of(LAM_NO_SLOT)));
    lam_mutex_free(g->lock);
    g->lock = NULL;
}
