/* What is composed, from a manifest or from the options: the same structure for both. */
#ifndef LAM_CLI_STACK_H
#define LAM_CLI_STACK_H

#include "options.h"

#include "lamina/cache.h"
#include "lamina/manifest.h"

struct held;

struct stack {
    const lam_manifest *m;   /* what is composed; files are paths to open */
    lam_manifest made;       /* m: of the options, or what was read with the options that may go with a manifest */
    lam_manifest *read;      /* owned; NULL if the model is no manifest */
    lam_manifest_adapter adapters[MAX_ADAPTERS];
    lam_owner *owners;       /* owned; NULL: not made of the options, or not yet */
    lam_contest *contests;   /* owned: the texts of owners that a pattern named */
    lam_module_policy policies[MAX_LIST];
    char *texts[2 * MAX_LIST + 1]; /* owned */
    size_t n_texts;
    struct held *model, *held[MAX_ADAPTERS]; /* owned: what stands in the store */
    lam_fault_list missing;  /* owned: the parts that are nowhere */
    bool no_base, no_adapter[MAX_ADAPTERS]; /* which those are */
    char advice[256];        /* how a contest of adapters is ended; "": there is none */
};

/* The model of the options, if it is a manifest, or the options themselves. A manifest's files are found where they are (search.h); those that are
 * nowhere are in out->missing, too. What is wrong with a manifest is listed for the next report. stack_release is due in any case. */
lam_code stack_open(const struct options *o, struct stack *out, lam_error *err);
void stack_release(struct stack *s);
/* Whether a manifest, or a composition of the store, says what is composed. */
bool stack_is_said(const struct stack *s);

/* A copy of text[len] that lives as long as the stack; NULL without memory. */
char *stack_keep(struct stack *s, const char *text, size_t len);

/* The base as a .slm, and its base_digest, which is the one that a manifest names. */
lam_code stack_open_base(const struct options *o, const struct stack *s, struct lam_cached *out, char digest[LAM_DIGEST_TEXT], lam_error *err);

/* --owner: who has what, which takes a look at the adapters. base is the .slm of the stack's base. */
lam_code stack_name_owners(const struct options *o, struct stack *s, const char *base, const char *base_digest, lam_error *err);

/* Opens the stack of the options for this alone and finds everything that is wrong with it → *faults, from its manifest and parts that are
 * nowhere to what adapters do to one another; what to do about contests stands in *err. Base and adapters are imported into the cache
 * where they must be. */
lam_code stack_check(const struct options *o, lam_fault_list *faults, lam_error *err);
/* Opening failed with code, *err: where one thing is wrong there may be more, so all of it is listed for the next report, and the first of
 * it is *err. Returns its code. */
lam_code stack_list_faults(const struct options *o, lam_code code, lam_error *err);

#endif
