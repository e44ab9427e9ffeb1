/* Choosing a token: penalty, top-k, top-p, min-p, temperature, in this order, then one draw of a counter-based generator. */
#ifndef LAM_RUN_SAMPLER_H
#define LAM_RUN_SAMPLER_H

#include "base/random.h"
#include "lamina/lamina.h"

/* LAM_E_ARGUMENT names the parameter. */
lam_code lam_sampling_check(const lam_sampling *p, lam_error *err);

/* history[n_history]: the tokens so far, for the penalty. uniform in [0, 1). LAM_E_NO_MEMORY. */
lam_code lam_sample(const float *logits, size_t n_vocab, const lam_sampling *p, const uint32_t *history, size_t n_history,
                    double uniform, uint32_t *token, lam_error *err);

#endif
