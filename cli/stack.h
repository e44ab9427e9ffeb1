/* What is composed, from a manifest or from the options: the same structure for both. */
#ifndef LAM_CLI_STACK_H
#define LAM_CLI_STACK_H

#include "options.h"

#include "lamina/manifest.h"

struct stack {
    const lam_manifest *m;   /* read, or made of the options; files are paths to open */
    lam_manifest *read;      /* owned; NULL if the model is no manifest */
    lam_manifest made;
    lam_manifest_adapter adapters[MAX_ADAPTERS];
    lam_owner owners[MAX_LIST];
    lam_module_policy policies[MAX_LIST];
    char *texts[2 * MAX_LIST]; /* owned */
    size_t n_texts;
};

/* The model of the options, if it is a manifest, or the options themselves. What is wrong with a manifest is listed for the next report.
 * stack_release is due in any case. */
lam_code stack_open(const struct options *o, struct stack *out, lam_error *err);
void stack_release(struct stack *s);

/* Finds everything that is wrong with the stack, its base being the .slm at base with this digest. Adapters are imported into the cache where
 * they must be. */
lam_code stack_check(const struct options *o, const struct stack *s, const char *base, const char *base_digest, lam_fault_list *faults,
                     lam_error *err);

#endif
