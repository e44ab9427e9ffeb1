/* Random numbers that depend on their place alone. */
#ifndef LAM_BASE_RANDOM_H
#define LAM_BASE_RANDOM_H

#include <stdint.h>

/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). */
void lam_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A uniform number in [0, 1) that depends on (seed, counter) alone. */
double lam_uniform(uint64_t seed, uint64_t counter);

#endif
