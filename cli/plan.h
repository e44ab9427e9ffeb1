/* Files of the options as .slm, and what they will take. */
#ifndef LAM_CLI_PLAN_H
#define LAM_CLI_PLAN_H

#include "stack.h"

#include "lamina/cache.h"
#include "lamina/plan.h"

struct plan {
    const struct options *o;
    struct stack stack;
    struct lam_cached base, adapters[MAX_ADAPTERS], from[MAX_ADAPTERS];
    size_t n_adapters, n_from;
    struct stack *from_stack; /* of --from MANIFEST, owned */
    uint64_t budget;     /* the smaller of the options' and the manifest's; 0: none */
};

/* Imports what is no .slm. plan_close is due in any case. */
lam_code plan_open(const struct options *o, struct plan *p, lam_error *err);
/* policy: NULL, that of the options; else of every matrix that they do not name. LAM_E_BUDGET: *out is filled in. */
lam_code plan_make(const struct plan *p, const lam_policy *policy, lam_plan_options *options, lam_plan_bytes *out, lam_error *err);
/* The composition under the policy: its id, and how it stands by the manifest's receipts. */
lam_code plan_name(const struct plan *p, lam_policy policy, char id[LAM_DIGEST_TEXT], char standing[256], lam_error *err);
void plan_close(struct plan *p);

/* The budget in bytes that the options state, or else the manifest; 0: none. */
lam_code budget_of(const struct options *o, const lam_manifest *m, uint64_t *out, lam_error *err);
/* LAM_E_BUDGET if what the options name would take more than their budget, or the manifest's: before anything of it is allocated. */
lam_code check_budget(const struct options *o, lam_error *err);

#endif
