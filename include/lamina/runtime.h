/* Lamina: one base, and which composition of it is the active one. Activating another is one step: whoever begins before sees the old one to
 * its end, whoever begins after sees the new one, and nobody a mixture. A failed activation changes nothing.
 *
 *   runtime     a base and its generations. Counted: leases keep it alive. Any thread may call anything here.
 *   generation  one publication of a composition. Publishing the same composition again later is another generation.
 *   lease       a counted hold on one generation: taken without waiting for anybody, kept for a session's or a request's life. A generation
 *               that is no longer current is freed when its last lease has ended and no pass over it is under way. */
#ifndef LAMINA_RUNTIME_H
#define LAMINA_RUNTIME_H

#include "lamina/lamina.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lam_runtime lam_runtime;
typedef struct lam_lease lam_lease;

/* Which generation. The three numbers advance apart and are never compared with one another; all together never come back. */
typedef struct lam_generation {
    uint64_t catalogue;          /* the how manieth publication of this runtime, from 1; of a lease: 0 */
    uint32_t slot;
    uint64_t slot_generation, pointer_generation;
    char composition_id[LAM_DIGEST_TEXT];
} lam_generation;

/* A runtime without a base. The engine is held. LAM_E_NO_MEMORY. */
LAM_API lam_code lam_runtime_new(lam_engine *engine, lam_runtime **out, lam_error *err);
/* Lets go of the handle. The rest ends with the last lease and the last session that has one. NULL is allowed. */
LAM_API void lam_runtime_free(lam_runtime *runtime);

/* Opens the base .slm at path and publishes it alone, as the first generation. verify says when the base's bytes are hashed (lam_base_open),
 * and when the bytes that adapters have in memory are: LAM_VERIFY_LAZY before an adapter's first activation, LAM_VERIFY_FULL before each,
 * LAM_VERIFY_OFF never. LAM_E_CONFLICT if there is a base already; else errors of lam_base_open and lam_compose. */
LAM_API lam_code lam_runtime_load(lam_runtime *runtime, const char *path, lam_verify verify, lam_error *err);
/* Borrowed; NULL before lam_runtime_load. lam_adapter_load loads adapters for it. */
LAM_API lam_base *lam_runtime_base(const lam_runtime *runtime);

/* lam_compose on the runtime's base, and what was staged verified: ready to be activated. LAM_E_CONFLICT without a base, errors of
 * lam_compose, LAM_E_GEN_STAGED_… if memory that an adapter was staged in has changed. The caller frees *out at any time. */
LAM_API lam_code lam_runtime_compose(lam_runtime *runtime, lam_adapter *const adapters[], const double weights[], size_t n,
                                     const lam_compose_options *options, lam_composition **out, lam_error *err);

/* Makes composition (which stays the caller's) the active one: validate, reserve, stage, verify, commit. If it is active already (by its id)
 * nothing happens. out (may be NULL) gets the active generation. It waits for no pass that is under way, and no pass for it.
 * expected: NULL, or the generation that is to be replaced: LAM_E_GEN_STALE if it is not the active one (any more).
 * On failure the active generation is as before: LAM_E_WRONG_BASE, LAM_E_CHANGED if the base's file was truncated or replaced, LAM_E_GEN_SLOTS
 * if as many generations as there are slots are leased, LAM_E_GEN_STAGED_…, LAM_E_GEN_ALIAS for an id that is active as other bytes,
 * LAM_E_NO_MEMORY. */
LAM_API lam_code lam_runtime_activate(lam_runtime *runtime, lam_composition *composition, const lam_generation *expected, lam_generation *out,
                                      lam_error *err);
/* Publishes the composition that was active before the last change, as a new generation; the next call goes forth again. out may be NULL.
 * LAM_E_NOT_FOUND if there is none; else errors of lam_runtime_activate, and LAM_E_GEN_PREVIOUS_A, …_B, …_SCALE where what it would go back to has
 * changed in memory: load the adapter again. */
LAM_API lam_code lam_runtime_rollback(lam_runtime *runtime, lam_generation *out, lam_error *err);
/* Gives up the way back, so that what was active before is freed with its last lease. */
LAM_API void lam_runtime_settle(lam_runtime *runtime);

/* The active generation. LAM_E_GEN_NONE before lam_runtime_load. */
LAM_API lam_code lam_runtime_current(lam_runtime *runtime, lam_generation *out, lam_error *err);

/* A lease of the active generation, given back by lam_lease_release. LAM_E_GEN_NONE, LAM_E_GEN_COUNTS after 2^55 leases of one generation,
 * LAM_E_NO_MEMORY. */
LAM_API lam_code lam_runtime_lease(lam_runtime *runtime, lam_lease **out, lam_error *err);
LAM_API void lam_lease_release(lam_lease *lease);
/* Borrowed, as long as the lease. */
LAM_API lam_composition *lam_lease_composition(const lam_lease *lease);
LAM_API void lam_lease_generation(const lam_lease *lease, lam_generation *out);

/* lam_session_new on the lease's composition. The session holds the lease for its life (the caller may release it), or until
 * lam_session_rebase moves it to another composition. Each of its passes is a use of the generation, and is refused with LAM_E_GEN_LEASE_…
 * if the lease is not what its slot holds. Errors of lam_session_new. */
LAM_API lam_code lam_lease_session(lam_lease *lease, size_t context, lam_session **out, lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
