/* Who has which page of one pool, and what must hold before somebody else gets it: adapters and the keys and values of requests share one
 * ledger. Numbers and states only; what is in a page is its owner's matter, and the memory of all arrays the caller's.
 *
 * Admission takes the missing pages of an adapter, the pages of a prompt and a reserve for its growth together, or refuses with what is
 * lacking. Victims are chosen among residents that nobody holds, needs or uses, and that can be had back. The ledger is checked before
 * and after each change. */
#ifndef LAM_RUN_RESIDENCY_H
#define LAM_RUN_RESIDENCY_H

#include "base/error.h"
#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAM_NO_OWNER UINT32_MAX
#define LAM_ADMISSION_PAGES 256 /* of one admission */
#define LAM_ADMISSION_VICTIMS 32

enum lam_page_state { LAM_PAGE_FREE, LAM_PAGE_RESERVED, LAM_PAGE_OWNED };
enum lam_page_class { LAM_PAGE_NONE, LAM_PAGE_KV, LAM_PAGE_ADAPTER };

struct lam_page {
    uint32_t number;
    enum lam_page_state state;
    enum lam_page_class class;
    uint32_t owner;               /* index of a resident, or LAM_NO_OWNER */
    uint64_t generation;          /* of the owner */
};

enum lam_residency {
    LAM_ABSENT, LAM_HOST_READY, LAM_RESERVED, LAM_LOADING, LAM_VALIDATED, LAM_PUBLISHED, LAM_ACTIVE, LAM_IDLE, LAM_RETIRING, LAM_RESIDENCIES
};
const char *lam_residency_name(enum lam_residency r);
bool lam_residency_has_pages(enum lam_residency r);
bool lam_residency_visible(enum lam_residency r);

/* An adapter, or a request's keys and values. */
struct lam_resident {
    const char *name;             /* borrowed */
    enum lam_page_class class;
    enum lam_residency state;
    uint32_t leases, pins, queued, uses; /* held; held fast; requests that wait for it; passes under way */
    uint64_t generation;
    uint64_t planned;             /* the generation that a live plan names; 0: none does */
    bool source_verified;         /* it can be had back */
    uint64_t last_use;
    uint32_t pages[LAM_ADMISSION_PAGES]; /* [n_pages] page numbers: what kernels go by */
    size_t n_pages;
};

struct lam_ledger {
    size_t hidden, layers, element_bytes, buffers; /* a page: so many buffers of one row of each layer */
    size_t page_bytes, pool_bytes, total;          /* total: pages of the pool */
    struct lam_page *pages;       /* [n_pages] */
    size_t n_pages;
    struct lam_resident *residents; /* [n_residents] */
    size_t n_residents;
};

/* Every page once, whose owner agrees. LAM_E_RES_GEOMETRY, …_TOTAL, …_POOL, …_CONSERVATION, …_PAGES_FREE, …_PAGES_OTHER, …_OWNER, …_ORPHAN, …_CLASS,
 * …_PAGES, …_GENERATION. */
lam_code lam_ledger_check(const struct lam_ledger *l, lam_error *err);
size_t lam_ledger_free_pages(const struct lam_ledger *l);
size_t lam_ledger_reclaimable(const struct lam_ledger *l);

/* Pages of factors [rank, d_in] and [d_out, rank] in rows of `hidden` elements, and their bytes. */
size_t lam_factor_pages(size_t hidden, size_t rank, size_t d_in, size_t d_out);
size_t lam_pair_bytes(size_t rank, size_t d_in, size_t d_out, size_t element_bytes);

/* LAM_OK for a resident that may be a victim. LAM_E_RES_VICTIM_KV, …_ACTIVE, …_LEASED, …_PINNED, …_QUEUED, …_USED, …_STATE, …_PLANNED, …_SOURCE. */
lam_code lam_victim_check(const struct lam_ledger *l, uint32_t resident, lam_error *err);
/* The fewest in order of ranking that give `need` pages: least recently used first, then the larger, then by name. *n of victims
 * [LAM_ADMISSION_VICTIMS]; LAM_E_RES_SHORT if all together do not. */
lam_code lam_victims_choose(const struct lam_ledger *l, size_t need, uint32_t *victims, size_t *n, lam_error *err);

struct lam_worker_limits {
    uint32_t dtype, layout;       /* what its kernels read */
    uint32_t max_rank, n_targets;
    size_t layers, hidden, element_bytes; /* of its model, and of what the kernels read */
};

/* What asks to be admitted. */
struct lam_arrival {
    uint32_t adapter, kv;         /* residents: the adapter, ready on the host; the request's own, absent */
    uint32_t attempt;
    uint32_t rank, n_targets, dtype, layout;
    char digest[LAM_DIGEST_TEXT];
    size_t adapter_pages, kv_initial, kv_growth, guard;
    size_t demand;                /* their sum, as it was derived */
};

enum lam_admission_step {
    LAM_ADMIT_IDENTITY, LAM_ADMIT_DEMAND, LAM_ADMIT_VICTIMS, LAM_ADMIT_RETIRE, LAM_ADMIT_RESERVE, LAM_ADMIT_COPY, LAM_ADMIT_WAIT,
    LAM_ADMIT_VALIDATE, LAM_ADMIT_PUBLISH, LAM_ADMIT_PIN, LAM_ADMIT_KV, LAM_ADMIT_FINAL, LAM_ADMIT_STEPS
};
enum lam_undo_step {
    LAM_UNDO_COPIES, LAM_UNDO_PUBLICATION, LAM_UNDO_KV, LAM_UNDO_RELOAD, LAM_UNDO_VALIDATE, LAM_UNDO_PUBLISH, LAM_UNDO_REST, LAM_UNDO_STEPS
};

struct lam_admission {
    uint32_t done;                /* bits of steps */
    uint32_t victims[LAM_ADMISSION_VICTIMS];
    size_t n_victims;
    uint32_t reserved[LAM_ADMISSION_PAGES], adapter_pages[LAM_ADMISSION_PAGES], kv_pages[LAM_ADMISSION_PAGES];
    size_t n_reserved, n_adapter, n_kv;
    bool overwritten;             /* a victim's bytes are gone */
    /* as the load went */
    uint64_t n_begun, n_ended;    /* copies */
    char staged_digest[LAM_DIGEST_TEXT];
    uint32_t staged_layout;
    uint32_t table[LAM_ADMISSION_PAGES]; /* [n_table]: the page table that kernels will go by */
    size_t n_table;
    uint64_t generation, pointer_generation;
    uint32_t pinned;              /* the attempt */
    int n_undone;                 /* steps of going back */
};

/* The step is done. Each once and in order, but retiring and reserving may change places: LAM_E_RES_STEP_WAIT, …_VALIDATE, …_FINAL, …_ORDER. */
lam_code lam_admission_step(struct lam_admission *a, enum lam_admission_step step, lam_error *err);
/* Whether it may come in at all: LAM_E_RES_RANK, …_DTYPE, …_LAYOUT, …_TARGETS, …_GROWTH, …_SHORT (with the shortfall), …_DEMAND,
 * …_DEMAND_RANK, …_DEMAND_SUM. */
lam_code lam_arrival_check(const struct lam_ledger *l, const struct lam_worker_limits *w, const struct lam_arrival *r, lam_error *err);
/* Chooses victims and pages; changes nothing. */
lam_code lam_admission_choose(const struct lam_ledger *l, const struct lam_arrival *r, struct lam_admission *a, lam_error *err);
/* Checks ledger, arrival, victims and pages; then the victims retire and the pages are reserved. LAM_E_RES_LAYERS, …_WIDTH, …_ELEMENT: the ledger's
 * pages are not the worker's; LAM_E_RES_VICTIM_TWICE, …_VICTIMS_FEW, …_RESERVED, …_RESERVED_LIVE, …_SPLIT, …_KV, and those of the checks above; nothing has changed then. */
lam_code lam_admission_reserve(struct lam_ledger *l, const struct lam_worker_limits *w, const struct lam_arrival *r, struct lam_admission *a,
                               lam_error *err);
/* Publishes the adapter, pins it for the attempt, gives the request its pages and forgets the victims. LAM_E_RES_PENDING, …_STAGED_DIGEST,
 * …_STAGED_LAYOUT, …_PAGE_TABLE, …_PAGE_TABLE_OTHER, …_POINTER, …_PIN; nothing has changed then. */
lam_code lam_admission_commit(struct lam_ledger *l, const struct lam_worker_limits *w, const struct lam_arrival *r, struct lam_admission *a,
                              lam_error *err);
/* The load failed: each step of going back, in order, after what the caller does of it (ending copies, reading the victims' bytes again). Victims
 * come back into their pages, under a new generation if their bytes had been overwritten; of what was to come in no trace is left.
 * LAM_E_RES_PENDING while a copy has not ended, LAM_E_RES_STEP_ORDER out of turn, before reserving and after publishing. */
lam_code lam_admission_undo(struct lam_ledger *l, const struct lam_arrival *r, struct lam_admission *a, enum lam_undo_step step, lam_error *err);

#endif
