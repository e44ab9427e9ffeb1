#include "run/residency.h"

#include <string.h>

static const char *const names[LAM_RESIDENCIES] = {"absent", "host_ready", "reserved", "loading", "validated", "published", "active", "idle",
                                                   "retiring"};

const char *lam_residency_name(enum lam_residency r) { return (unsigned)r < LAM_RESIDENCIES ? names[r] : "?"; }
bool lam_residency_has_pages(enum lam_residency r) { return r >= LAM_RESERVED && r <= LAM_RETIRING; }
bool lam_residency_visible(enum lam_residency r) { return r == LAM_PUBLISHED || r == LAM_ACTIVE || r == LAM_IDLE; }

static size_t divide_up(size_t n, size_t by) { return (n + by - 1) / by; }

size_t lam_factor_pages(size_t hidden, size_t rank, size_t d_in, size_t d_out)
{
    return divide_up(rank * d_in, hidden) + divide_up(d_out * rank, hidden);
}

size_t lam_pair_bytes(size_t rank, size_t d_in, size_t d_out, size_t element_bytes) { return rank * (d_in + d_out) * element_bytes; }

/* ---- the ledger ---- */

static struct lam_page *page_of(const struct lam_ledger *l, uint32_t number)
{
    for (size_t i = 0; i < l->n_pages; i++)
        if (l->pages[i].number == number) return &l->pages[i];
    return NULL;
}

static bool has(const uint32_t *list, size_t n, uint32_t number)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == number) return true;
    return false;
}

static lam_code check_page(const struct lam_ledger *l, const struct lam_page *p, lam_error *err)
{
    if ((p->state == LAM_PAGE_FREE) != (p->owner == LAM_NO_OWNER && p->class == LAM_PAGE_NONE)) {
        if (p->state == LAM_PAGE_RESERVED) return LAM_RAISE(err, LAM_E_RES_ORPHAN, "page %u is reserved for nobody", p->number);
        return LAM_RAISE(err, LAM_E_RES_OWNER, "page %u is %s an owner", p->number, p->state == LAM_PAGE_FREE ? "free and has" : "owned and has not");
    }
    if (p->state == LAM_PAGE_FREE) return LAM_OK;
    const struct lam_resident *r = p->owner < l->n_residents ? &l->residents[p->owner] : NULL;
    if (!r) return LAM_RAISE(err, LAM_E_RES_OWNER, "page %u has an unknown owner", p->number);
    if (p->state == LAM_PAGE_RESERVED)
        return r->state == LAM_RESERVED ? LAM_OK : LAM_RAISE(err, LAM_E_RES_ORPHAN, "page %u is reserved for %s, which is %s", p->number, r->name,
                                                             lam_residency_name(r->state));
    if (p->class != r->class) return LAM_RAISE(err, LAM_E_RES_CLASS, "page %u is of another class than its owner %s", p->number, r->name);
    if (!has(r->pages, r->n_pages, p->number)) return LAM_RAISE(err, LAM_E_RES_PAGES, "page %u is not among those of its owner %s", p->number, r->name);
    if (p->generation != r->generation)
        return LAM_RAISE(err, LAM_E_RES_GENERATION, "page %u is of generation %llu, its owner %s of %llu", p->number,
                         (unsigned long long)p->generation, r->name, (unsigned long long)r->generation);
    return LAM_OK;
}

/* What owners say that they have; one that retires may see its pages reserved. */
static lam_code check_lists(const struct lam_ledger *l, lam_error *err)
{
    for (uint32_t r = 0; r < l->n_residents; r++)
        for (size_t i = 0; i < l->residents[r].n_pages; i++) {
            const struct lam_page *p = page_of(l, l->residents[r].pages[i]);
            if (l->residents[r].state == LAM_RETIRING || (p && p->owner == r)) continue;
            if (!p || p->owner == LAM_NO_OWNER)
                return LAM_RAISE(err, LAM_E_RES_PAGES_FREE, "%s names page %u, which nobody has", l->residents[r].name, l->residents[r].pages[i]);
            return LAM_RAISE(err, LAM_E_RES_PAGES_OTHER, "%s names page %u, which is another's", l->residents[r].name, l->residents[r].pages[i]);
        }
    return LAM_OK;
}

/* Pages are those of the worker's model. */
static lam_code check_geometry(const struct lam_ledger *l, const struct lam_worker_limits *w, lam_error *err)
{
    if (l->layers != w->layers) return LAM_RAISE(err, LAM_E_RES_LAYERS, "a page spans %zu layers, the model has %zu", l->layers, w->layers);
    if (l->hidden != w->hidden) return LAM_RAISE(err, LAM_E_RES_WIDTH, "a page has rows of %zu elements, the model of %zu", l->hidden, w->hidden);
    if (l->element_bytes != w->element_bytes)
        return LAM_RAISE(err, LAM_E_RES_ELEMENT, "a page has elements of %zu bytes, the kernels read %zu", l->element_bytes, w->element_bytes);
    return LAM_OK;
}

lam_code lam_ledger_check(const struct lam_ledger *l, lam_error *err)
{
    if (l->page_bytes != l->buffers * l->layers * l->hidden * l->element_bytes)
        return LAM_RAISE(err, LAM_E_RES_GEOMETRY, "a page of %zu bytes for %zu buffers of %zu layers of %zu elements of %zu bytes", l->page_bytes,
                         l->buffers, l->layers, l->hidden, l->element_bytes);
    if (l->n_pages != l->total) return LAM_RAISE(err, LAM_E_RES_TOTAL, "%zu pages are listed of %zu", l->n_pages, l->total);
    if (l->pool_bytes != l->page_bytes * l->total)
        return LAM_RAISE(err, LAM_E_RES_POOL, "a pool of %zu bytes for %zu pages of %zu", l->pool_bytes, l->total, l->page_bytes);
    for (size_t i = 0; i < l->n_pages; i++)
        if (l->pages[i].number >= l->total || page_of(l, l->pages[i].number) != &l->pages[i])
            return LAM_RAISE(err, LAM_E_RES_CONSERVATION, "page %u is listed twice, or is none", l->pages[i].number);
    LAM_TRY(check_lists(l, err));
    for (size_t i = 0; i < l->n_pages; i++) LAM_TRY(check_page(l, &l->pages[i], err));
    return LAM_OK;
}

size_t lam_ledger_free_pages(const struct lam_ledger *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_pages; i++) n += l->pages[i].state == LAM_PAGE_FREE;
    return n;
}

size_t lam_ledger_reclaimable(const struct lam_ledger *l)
{
    size_t n = 0;
    for (uint32_t r = 0; r < l->n_residents; r++)
        if (lam_victim_check(l, r, NULL) == LAM_OK) n += l->residents[r].n_pages;
    return n;
}

/* ---- victims ---- */

lam_code lam_victim_check(const struct lam_ledger *l, uint32_t resident, lam_error *err)
{
    const struct lam_resident *r = resident < l->n_residents ? &l->residents[resident] : NULL;
    if (!r || r->class != LAM_PAGE_ADAPTER) return LAM_RAISE(err, LAM_E_RES_VICTIM_KV, "%s is no adapter: a request's history is not taken", r ? r->name : "?");
    if (r->state == LAM_ACTIVE) return LAM_RAISE(err, LAM_E_RES_VICTIM_ACTIVE, "%s is at work for %u leases", r->name, r->leases);
    if (r->leases) return LAM_RAISE(err, LAM_E_RES_VICTIM_LEASED, "%s is held by %u leases", r->name, r->leases);
    if (r->pins) return LAM_RAISE(err, LAM_E_RES_VICTIM_PINNED, "%s is pinned", r->name);
    if (r->queued) return LAM_RAISE(err, LAM_E_RES_VICTIM_QUEUED, "%u waiting requests count on %s", r->queued, r->name);
    if (r->uses) return LAM_RAISE(err, LAM_E_RES_VICTIM_USED, "%u passes over %s are under way", r->uses, r->name);
    if (r->state != LAM_PUBLISHED && r->state != LAM_IDLE)
        return LAM_RAISE(err, LAM_E_RES_VICTIM_STATE, "%s is %s, not idle", r->name, lam_residency_name(r->state));
    if (r->planned && r->planned == r->generation)
        return LAM_RAISE(err, LAM_E_RES_VICTIM_PLANNED, "a live plan names generation %llu of %s", (unsigned long long)r->generation, r->name);
    if (!r->source_verified) return LAM_RAISE(err, LAM_E_RES_VICTIM_SOURCE, "%s could not be had back", r->name);
    return LAM_OK;
}

static bool before(const struct lam_resident *a, const struct lam_resident *b)
{
    if (a->last_use != b->last_use) return a->last_use < b->last_use;
    if (a->n_pages != b->n_pages) return a->n_pages > b->n_pages;
    return strcmp(a->name, b->name) < 0;
}

lam_code lam_victims_choose(const struct lam_ledger *l, size_t need, uint32_t *victims, size_t *n, lam_error *err)
{
    size_t got = 0;
    for (*n = 0; got < need; ++*n) {
        uint32_t best = LAM_NO_OWNER;
        for (uint32_t r = 0; r < l->n_residents; r++)
            if (!has(victims, *n, r) && lam_victim_check(l, r, NULL) == LAM_OK && (best == LAM_NO_OWNER || before(&l->residents[r], &l->residents[best])))
                best = r;
        if (best == LAM_NO_OWNER || *n == LAM_ADMISSION_VICTIMS)
            return LAM_RAISE(err, LAM_E_RES_SHORT, "%zu pages are to be had from victims, %zu are needed: %zu too few", got, need, need - got);
        victims[*n] = best;
        got += l->residents[best].n_pages;
    }
    return LAM_OK;
}

/* ---- admission ---- */

lam_code lam_admission_step(struct lam_admission *a, enum lam_admission_step step, lam_error *err)
{
    int first = 0; /* the first step that is not done */
    while (first < LAM_ADMIT_STEPS && a->done >> first & 1) first++;
    bool swapped = first == LAM_ADMIT_RETIRE && step == LAM_ADMIT_RESERVE;
    if ((unsigned)step < LAM_ADMIT_STEPS && !(a->done >> step & 1) && ((int)step == first || swapped)) {
        a->done |= 1u << step;
        return LAM_OK;
    }
    if (step == LAM_ADMIT_FINAL && first < LAM_ADMIT_PUBLISH) return LAM_RAISE(err, LAM_E_RES_STEP_FINAL, "victims are forgotten before publishing");
    if (first == LAM_ADMIT_WAIT) return LAM_RAISE(err, LAM_E_RES_STEP_WAIT, "step %d before the copies have ended", (int)step);
    if (first == LAM_ADMIT_VALIDATE) return LAM_RAISE(err, LAM_E_RES_STEP_VALIDATE, "step %d before what was copied is validated", (int)step);
    return LAM_RAISE(err, LAM_E_RES_STEP_ORDER, "step %d of an admission where step %d is next", (int)step, first);
}

static size_t sum_of(const struct lam_arrival *r) { return r->adapter_pages + r->kv_initial + r->kv_growth + r->guard; }

lam_code lam_arrival_check(const struct lam_ledger *l, const struct lam_worker_limits *w, const struct lam_arrival *r, lam_error *err)
{
    size_t supply = lam_ledger_free_pages(l) + lam_ledger_reclaimable(l), need = sum_of(r);
    if (r->rank == 0 || r->rank > w->max_rank) return LAM_RAISE(err, LAM_E_RES_RANK, "rank %u, %u at most", r->rank, w->max_rank);
    if (r->dtype != w->dtype) return LAM_RAISE(err, LAM_E_RES_DTYPE, "element type %u, the kernels read %u", r->dtype, w->dtype);
    if (r->layout != w->layout) return LAM_RAISE(err, LAM_E_RES_LAYOUT, "layout %u, the kernels read %u", r->layout, w->layout);
    if (r->n_targets != w->n_targets) return LAM_RAISE(err, LAM_E_RES_TARGETS, "%u targets of %u", r->n_targets, w->n_targets);
    if (r->kv_growth == 0) return LAM_RAISE(err, LAM_E_RES_GROWTH, "no page is asked for what will be generated");
    if (need - r->guard > r->demand)
        return LAM_RAISE(err, LAM_E_RES_DEMAND_SUM, "%zu pages for the adapter and the request where %zu were derived", need - r->guard, r->demand);
    if (need > supply)
        return LAM_RAISE(err, LAM_E_RES_SHORT, "%zu pages are needed, %zu can be had: %zu too few", need, supply, need - supply);
    if (r->adapter_pages != (size_t)r->n_targets * r->rank)
        return LAM_RAISE(err, r->adapter_pages == r->rank ? LAM_E_RES_DEMAND_RANK : LAM_E_RES_DEMAND, "%zu pages for rank %u on %u targets",
                         r->adapter_pages, r->rank, r->n_targets);
    return need == r->demand ? LAM_OK : LAM_RAISE(err, LAM_E_RES_DEMAND_SUM, "%zu pages in all where %zu were derived", need, r->demand);
}

lam_code lam_admission_choose(const struct lam_ledger *l, const struct lam_arrival *r, struct lam_admission *a, lam_error *err)
{
    size_t free_pages = lam_ledger_free_pages(l), need = sum_of(r);
    *a = (struct lam_admission){0};
    if (need > LAM_ADMISSION_PAGES) return LAM_RAISE(err, LAM_E_RES_SHORT, "%zu pages at once, %d at most", need, LAM_ADMISSION_PAGES);
    LAM_TRY(lam_victims_choose(l, need > free_pages ? need - free_pages : 0, a->victims, &a->n_victims, err));
    for (uint32_t number = 0; number < l->total && a->n_reserved < need; number++) {
        const struct lam_page *p = page_of(l, number);
        if (!p || (p->state != LAM_PAGE_FREE && !has(a->victims, a->n_victims, p->owner))) continue;
        a->reserved[a->n_reserved++] = number;
        if (a->n_adapter < r->adapter_pages) a->adapter_pages[a->n_adapter++] = number;
        else a->kv_pages[a->n_kv++] = number;
    }
    return LAM_OK;
}

static lam_code check_victims(const struct lam_ledger *l, const struct lam_admission *a, lam_error *err)
{
    for (size_t i = 0; i < a->n_victims; i++) {
        if (has(a->victims, i, a->victims[i])) return LAM_RAISE(err, LAM_E_RES_VICTIM_TWICE, "a victim is counted twice");
        LAM_TRY(lam_victim_check(l, a->victims[i], err));
    }
    return LAM_OK;
}

static lam_code check_yield(const struct lam_ledger *l, const struct lam_arrival *r, const struct lam_admission *a, lam_error *err)
{
    size_t got = lam_ledger_free_pages(l);
    for (size_t i = 0; i < a->n_victims; i++) got += l->residents[a->victims[i]].n_pages;
    return got >= sum_of(r) ? LAM_OK : LAM_RAISE(err, LAM_E_RES_VICTIMS_FEW, "%zu victims make %zu pages of %zu", a->n_victims, got, sum_of(r));
}

static lam_code check_reserved(const struct lam_ledger *l, const struct lam_arrival *r, const struct lam_admission *a, lam_error *err)
{
    if (a->n_reserved != sum_of(r)) return LAM_RAISE(err, LAM_E_RES_RESERVED, "%zu pages are reserved of %zu", a->n_reserved, sum_of(r));
    for (size_t i = 0; i < a->n_reserved; i++) {
        const struct lam_page *p = page_of(l, a->reserved[i]);
        if (!p || has(a->reserved, i, a->reserved[i]) || (p->state != LAM_PAGE_FREE && !has(a->victims, a->n_victims, p->owner)))
            return LAM_RAISE(err, LAM_E_RES_RESERVED_LIVE, "page %u is reserved, which is neither free nor a victim's", a->reserved[i]);
    }
    if (a->n_kv != r->kv_initial + r->kv_growth) return LAM_RAISE(err, LAM_E_RES_KV, "%zu pages for keys and values of %zu", a->n_kv, r->kv_initial + r->kv_growth);
    for (size_t i = 0; i < a->n_adapter + a->n_kv; i++) {
        uint32_t number = i < a->n_adapter ? a->adapter_pages[i] : a->kv_pages[i - a->n_adapter];
        bool twice = i < a->n_adapter ? has(a->kv_pages, a->n_kv, number) || has(a->adapter_pages, i, number) : has(a->kv_pages, i - a->n_adapter, number);
        if (twice || a->n_adapter != r->adapter_pages || !has(a->reserved, a->n_reserved, number))
            return LAM_RAISE(err, LAM_E_RES_SPLIT, "page %u is both the adapter's and the request's, or not reserved", number);
    }
    return LAM_OK;
}

static void set_page(const struct lam_ledger *l, uint32_t number, enum lam_page_state state, uint32_t owner)
{
    struct lam_page *p = page_of(l, number);
    bool owned = owner != LAM_NO_OWNER;
    *p = (struct lam_page){.number = number, .state = state, .owner = owner, .class = owned ? l->residents[owner].class : LAM_PAGE_NONE,
                           .generation = owned ? l->residents[owner].generation : 0};
}

lam_code lam_admission_reserve(struct lam_ledger *l, const struct lam_worker_limits *w, const struct lam_arrival *r, struct lam_admission *a,
                               lam_error *err)
{
    LAM_TRY(check_geometry(l, w, err));
    LAM_TRY(lam_ledger_check(l, err));
    LAM_TRY(check_victims(l, a, err));
    LAM_TRY(lam_arrival_check(l, w, r, err));
    LAM_TRY(check_yield(l, r, a, err));
    LAM_TRY(check_reserved(l, r, a, err));
    for (int step = LAM_ADMIT_IDENTITY; step <= LAM_ADMIT_RESERVE; step++) LAM_TRY(lam_admission_step(a, (enum lam_admission_step)step, err));
    for (size_t i = 0; i < a->n_victims; i++) l->residents[a->victims[i]].state = LAM_RETIRING;
    l->residents[r->adapter].state = l->residents[r->kv].state = LAM_RESERVED;
    for (size_t i = 0; i < a->n_adapter; i++) set_page(l, a->adapter_pages[i], LAM_PAGE_RESERVED, r->adapter);
    for (size_t i = 0; i < a->n_kv; i++) set_page(l, a->kv_pages[i], LAM_PAGE_RESERVED, r->kv);
    return lam_ledger_check(l, err);
}

static lam_code check_loaded(const struct lam_worker_limits *w, const struct lam_arrival *r, const struct lam_admission *a, lam_error *err)
{
    if (a->n_begun != a->n_ended)
        return LAM_RAISE(err, LAM_E_RES_PENDING, "%llu copies were begun, %llu have ended", (unsigned long long)a->n_begun, (unsigned long long)a->n_ended);
    if (strcmp(a->staged_digest, r->digest) != 0) return LAM_RAISE(err, LAM_E_RES_STAGED_DIGEST, "loaded bytes are %s, not %s", a->staged_digest, r->digest);
    if (a->staged_layout != w->layout) return LAM_RAISE(err, LAM_E_RES_STAGED_LAYOUT, "loaded as layout %u, the kernels read %u", a->staged_layout, w->layout);
    if (a->n_table != a->n_adapter) return LAM_RAISE(err, LAM_E_RES_PAGE_TABLE, "a page table of %zu pages, the adapter has %zu", a->n_table, a->n_adapter);
    for (size_t i = 0; i < a->n_table; i++)
        if (a->table[i] != a->adapter_pages[i])
            return LAM_RAISE(err, LAM_E_RES_PAGE_TABLE_OTHER, "the page table names page %u in place of %u", a->table[i], a->adapter_pages[i]);
    if (a->pointer_generation != a->generation)
        return LAM_RAISE(err, LAM_E_RES_POINTER, "pointers of generation %llu, the adapter of %llu", (unsigned long long)a->pointer_generation,
                         (unsigned long long)a->generation);
    if (a->pinned != r->attempt) return LAM_RAISE(err, LAM_E_RES_PIN, "pinned for attempt %u, not %u", a->pinned, r->attempt);
    return LAM_OK;
}

/* The resident is there with these pages. */
static void settle(struct lam_ledger *l, uint32_t resident, enum lam_residency state, uint64_t generation, const uint32_t *pages, size_t n)
{
    struct lam_resident *r = &l->residents[resident];
    r->state = state;
    r->generation = generation;
    r->n_pages = n;
    memmove(r->pages, pages, n * sizeof *pages);
    for (size_t i = 0; i < n; i++) set_page(l, r->pages[i], LAM_PAGE_OWNED, resident);
}

static bool is_done(const struct lam_admission *a, enum lam_admission_step step) { return a->done >> step & 1; }

lam_code lam_admission_commit(struct lam_ledger *l, const struct lam_worker_limits *w, const struct lam_arrival *r, struct lam_admission *a,
                              lam_error *err)
{
    struct lam_admission next = *a; /* a refused commit is as before */
    if (!is_done(a, LAM_ADMIT_RESERVE)) return LAM_RAISE(err, LAM_E_RES_STEP_ORDER, "nothing is reserved");
    LAM_TRY(check_loaded(w, r, a, err));
    for (int step = LAM_ADMIT_COPY; step < LAM_ADMIT_STEPS; step++)
        if (step >= LAM_ADMIT_PUBLISH || !is_done(a, (enum lam_admission_step)step)) LAM_TRY(lam_admission_step(&next, (enum lam_admission_step)step, err));
    for (size_t i = 0; i < a->n_victims; i++) {
        struct lam_resident *v = &l->residents[a->victims[i]];
        for (size_t k = 0; k < v->n_pages; k++)
            if (!has(a->reserved, a->n_reserved, v->pages[k])) set_page(l, v->pages[k], LAM_PAGE_FREE, LAM_NO_OWNER);
        v->state = LAM_HOST_READY;
        v->n_pages = 0;
    }
    settle(l, r->adapter, LAM_ACTIVE, a->generation, a->adapter_pages, a->n_adapter);
    settle(l, r->kv, LAM_ACTIVE, 1, a->kv_pages, a->n_kv);
    l->residents[r->adapter].leases++;
    *a = next;
    return lam_ledger_check(l, err);
}

/* Pages that are still set aside for resident. */
static void free_reserved(struct lam_ledger *l, uint32_t resident)
{
    for (size_t i = 0; i < l->n_pages; i++)
        if (l->pages[i].state == LAM_PAGE_RESERVED && l->pages[i].owner == resident) set_page(l, l->pages[i].number, LAM_PAGE_FREE, LAM_NO_OWNER);
    l->residents[resident].state = LAM_ABSENT;
}

static void set_victims(struct lam_ledger *l, const struct lam_admission *a, enum lam_residency state)
{
    for (size_t i = 0; i < a->n_victims; i++) {
        struct lam_resident *v = &l->residents[a->victims[i]];
        if (state == LAM_LOADING) settle(l, a->victims[i], state, v->generation + a->overwritten, v->pages, v->n_pages);
        else v->state = state;
    }
}

lam_code lam_admission_undo(struct lam_ledger *l, const struct lam_arrival *r, struct lam_admission *a, enum lam_undo_step step, lam_error *err)
{
    if ((int)step != a->n_undone || !is_done(a, LAM_ADMIT_RESERVE) || is_done(a, LAM_ADMIT_PUBLISH))
        return LAM_RAISE(err, LAM_E_RES_STEP_ORDER, "step %d of going back where step %d is next", (int)step, a->n_undone);
    if (step == LAM_UNDO_COPIES && a->n_begun != a->n_ended)
        return LAM_RAISE(err, LAM_E_RES_PENDING, "a copy into pages that are to go back has not ended");
    switch (step) {
    case LAM_UNDO_PUBLICATION: a->generation = a->pointer_generation = a->pinned = 0; break;
    case LAM_UNDO_KV: free_reserved(l, r->kv); break;
    case LAM_UNDO_RELOAD: set_victims(l, a, LAM_LOADING); break;
    case LAM_UNDO_VALIDATE: set_victims(l, a, LAM_VALIDATED); break;
    case LAM_UNDO_PUBLISH: set_victims(l, a, LAM_IDLE); break;
    case LAM_UNDO_REST: free_reserved(l, r->adapter); break;
    case LAM_UNDO_COPIES: case LAM_UNDO_STEPS: break;
    }
    a->n_undone++;
    return lam_ledger_check(l, err);
}
