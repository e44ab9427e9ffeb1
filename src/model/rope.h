/* Rotary position embedding: frequencies once per model, angles once per row. The rotation itself is a kernel. */
#ifndef LAM_MODEL_ROPE_H
#define LAM_MODEL_ROPE_H

#include "model/config.h"

/* inv_freq[head_dim/2], rounded once to float32. factors (head_dim/2 divisors, GGUF's rope_freqs) may be NULL. */
void lam_rope_frequencies(const struct lam_rope *r, uint32_t head_dim, const float *factors, float *inv_freq);

/* cos[n], sin[n] of position · inv_freq, times the attention factor; float64, rounded once. */
void lam_rope_angles(const struct lam_rope *r, const float *inv_freq, size_t n, size_t position, float *cosine, float *sine);

#endif
