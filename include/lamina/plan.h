/* How much memory a composition will take, before any of it is taken. */
#ifndef LAMINA_PLAN_H
#define LAMINA_PLAN_H

#include "lamina/reuse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A stack of adapters as files (.slm), and how it is computed. */
typedef struct lam_plan_stack {
    const char *const *adapters;  /* [n] */
    size_t n;
    lam_policy policy;
    const lam_module_policy *module_policies; /* [n_module_policies]; as in lam_compose_options */
    size_t n_module_policies;
} lam_plan_stack;

typedef struct lam_plan_options {
    size_t context;               /* positions of a session, all of them used; 0: as lam_session_new */
    size_t sessions;              /* at the same time; 0: 1 */
    bool all_logits;              /* a callback is told of every position's */
    unsigned threads;             /* 0: as lam_engine_new */
    size_t max_rows;              /* 0: as lam_engine_new */
    size_t prefix_cache;          /* as lam_engine_new */
    lam_generate_options drafts;  /* as lam_generate_with, of one session */
    lam_kv kv;
    const lam_plan_stack *from;   /* NULL, or what the session is switched from (lam_session_rebase), no row of which serves:
                                   * both are held while all rows are computed again. An adapter file in both is loaded once */
    uint64_t budget;              /* bytes of `peak`; 0: none */
} lam_plan_options;

/* Bytes of anonymous memory, but for `mapped`. In WebAssembly, where files are read into memory, mapped is part of peak. */
typedef struct lam_plan_bytes {
    uint64_t mapped;              /* the base's file, mapped read-only: the system may drop and read it again */
    uint64_t process;             /* the program, its libraries, its threads: those of lamina; another program has its own */
    uint64_t base;                /* norms and biases decoded, metadata, tokenizer, template */
    uint64_t adapters;            /* staged */
    uint64_t overlay;             /* operators; under materialize the factors in float32, too */
    uint64_t kv, session;         /* keys and values; tokens and logits */
    uint64_t scratch;             /* buffers of the forward pass */
    uint64_t prefix;              /* the prefix cache, full */
    uint64_t drafts;              /* logits of the tokens guessed, and the session of the bare base that guesses them */
    uint64_t from, from_kv;       /* of a switch: adapters and overlay of the composition before; its keys and values */
    uint64_t sampling;            /* while a token is drawn */
    uint64_t staging;             /* at most, while files are opened, and gone again before the first token */
    uint64_t peak;                /* the most at one time */
    size_t context;               /* as it was planned for */
    unsigned threads;
} lam_plan_bytes;

/* Reads what the files say of themselves, and no weight. options may be NULL. LAM_E_BUDGET if the peak is above the budget: the
 * message names by how much and the parts, and *out is filled in. Else errors are those of opening base and adapters; nothing is verified but structure. */
LAM_API lam_code lam_plan(const char *base_path, const lam_plan_stack *stack, const lam_plan_options *options, lam_plan_bytes *out,
                          lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
