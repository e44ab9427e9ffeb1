/* A publication of any payload, step by step, for tests of the protocol. */
#ifndef LAM_TESTS_GENERATION_CASE_H
#define LAM_TESTS_GENERATION_CASE_H

#include "support.h"

#include "run/publication.h"

#include <string.h>

/* All steps up to the store; nothing is wrong with what was staged. */
static inline lam_code generation_stage(struct lam_generations *g, const char *digest, void *payload, void (*free_payload)(void *),
                                        struct lam_publication *p, lam_error *err)
{
    lam_code code = lam_publication_begin(g, p, err);
    if (code == LAM_OK) code = lam_publication_step(p, LAM_PUBLICATION_ARTEFACT, err);
    if (code == LAM_OK) code = lam_publication_reserve(p, err);
    for (int step = LAM_PUBLICATION_CLEAR; code == LAM_OK && step < LAM_PUBLICATION_FREEZE; step++)
        code = lam_publication_step(p, (enum lam_publication_step)step, err);
    if (code == LAM_OK) code = lam_publication_freeze(p, digest, payload, free_payload, err);
    return code;
}

static inline lam_code generation_publish(struct lam_generations *g, const char *digest, void *payload, void (*free_payload)(void *),
                                          lam_error *err)
{
    struct lam_publication p;
    lam_code code = generation_stage(g, digest, payload, free_payload, &p, err);
    if (code == LAM_OK) code = lam_publication_publish(&p, err);
    if (code != LAM_OK) lam_publication_abort(&p);
    return code;
}

#endif
