/* One attempt to make something the current generation. It is a record that the publisher fills as it goes; what is published is what
 * lam_publication_check finds nothing wrong with, by that record and by the table. Nothing of it is visible before, and an attempt that
 * is given up leaves the table as it was, but for the generations of the slot that it had. */
#ifndef LAM_RUN_PUBLICATION_H
#define LAM_RUN_PUBLICATION_H

#include "adapter/staged.h"
#include "run/generations.h"

/* In this order, each once. */
enum lam_publication_step {
    LAM_PUBLICATION_RESOLVE,  /* what is current is noted */
    LAM_PUBLICATION_ARTEFACT, /* what is asked for is valid */
    LAM_PUBLICATION_RESERVE,  /* a slot that nobody sees is set aside */
    LAM_PUBLICATION_CLEAR,    /* the memory of the copies is zero */
    LAM_PUBLICATION_COPY,     /* every module is in it */
    LAM_PUBLICATION_VERIFY,   /* and is what it should be */
    LAM_PUBLICATION_RECORD,   /* the copies that were begun are counted */
    LAM_PUBLICATION_WAIT,     /* and have ended */
    LAM_PUBLICATION_FREEZE,   /* the handle is made; it does not change again */
    LAM_PUBLICATION_PUBLISH,
    LAM_PUBLICATION_ACTIVE,
    LAM_PUBLICATION_RETIRE,
    LAM_PUBLICATION_STEPS
};
const char *lam_publication_step_name(enum lam_publication_step step);

/* What verifying found in staged memory. */
struct lam_staged {
    bool previous;                   /* it is what was active before, the way back */
    uint32_t wrong;                  /* bits of enum lam_staged_fault */
    size_t n_modules, n_copied;      /* declared, and staged */
    size_t n_missing;                /* tensors that a module needs and does not have */
    char missing[64];                /* the first of them */
    uint64_t n_begun, n_ended;       /* copies */
};

struct lam_publication {
    struct lam_generations *table;
    int n_steps;                     /* done */
    struct lam_handle expected;      /* what was current when it began */
    uint64_t catalogue;              /* what the catalogue's generation will be */
    uint32_t shadow;                 /* the slot set aside; LAM_NO_SLOT before and after */
    enum lam_slot_state shadow_state; /* as it was found … */
    uint64_t shadow_slot_generation, shadow_pointer_generation; /* … before it was reserved */
    struct lam_staged staged;
    struct lam_handle handle;        /* frozen */
};

/* Notes what is current. LAM_E_GEN_CATALOGUE_… if the catalogue has drifted from its slot. */
lam_code lam_publication_begin(struct lam_generations *g, struct lam_publication *p, lam_error *err);
/* The step is done. One that comes before its turn is refused by the step that it leaves out: LAM_E_GEN_STEP_ARTEFACT, …_TAIL, …_COPY,
 * …_VERIFY, …_WAIT, else LAM_E_GEN_STEP_ORDER. */
lam_code lam_publication_step(struct lam_publication *p, enum lam_publication_step step, lam_error *err);
/* LAM_E_GEN_SLOTS. */
lam_code lam_publication_reserve(struct lam_publication *p, lam_error *err);
/* Puts payload, which is still the caller's, into the slot and makes the handle. */
lam_code lam_publication_freeze(struct lam_publication *p, const char *digest, void *payload, void (*free_payload)(void *), lam_error *err);
/* What verifying found is as it must be. In this order: LAM_E_GEN_PENDING, LAM_E_GEN_STAGED_RANK, …_RANK_ABOVE, …_EXTENT, …_LAYOUT, …_MISSING,
 * …_MODULES, …_TARGETS, …_SCALE, …_TAIL_A, …_TAIL_B, …_TAIL, …_FINITE, …_A, …_B, …_DIGEST; of the way back LAM_E_GEN_PREVIOUS_SCALE, …_A and
 * …_B in place of theirs. */
lam_code lam_staged_check(const struct lam_staged *s, lam_error *err);
/* All that must hold before the store, by the table as it is. In this order: LAM_E_GEN_SHADOW_EXPOSED, those of
 * lam_generations_check_current, LAM_E_GEN_STALE, …_REWIND, …_CATALOGUE, …_SHADOW_LIVE, …_USED, …_GENERATION, …_POINTER, those of
 * lam_staged_check, LAM_E_GEN_ALIAS. Under the table's lock. */
lam_code lam_publication_check(const struct lam_publication *p, lam_error *err);
/* Compares with what was expected and publishes: the payload is then the table's. On failure nothing has changed.
 * LAM_E_GEN_PUBLISHED the second time, and what lam_publication_check says. */
lam_code lam_publication_publish(struct lam_publication *p, lam_error *err);
/* Frees the slot of an attempt that did not publish. */
void lam_publication_abort(struct lam_publication *p);

#endif
