/* Choosing a token: penalty, top-k, top-p, min-p, temperature, in this order, then one draw of a counter-based generator. */
#ifndef LAM_RUN_SAMPLER_H
#define LAM_RUN_SAMPLER_H

#include "lamina/lamina.h"

/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). */
void lam_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A uniform number in [0, 1) that depends on (seed, counter) alone. */
double lam_uniform(uint64_t seed, uint64_t counter);

/* LAM_E_ARGUMENT names the parameter. */
lam_code lam_sampling_check(const lam_sampling *p, lam_error *err);

/* history[n_history]: the tokens so far, for the penalty. uniform in [0, 1). LAM_E_NO_MEMORY. */
lam_code lam_sample(const float *logits, size_t n_vocab, const lam_sampling *p, const uint32_t *history, size_t n_history,
                    double uniform, uint32_t *token, lam_error *err);

#endif
