/* Checked allocation. Everything returned is freed with lam_free. */
#ifndef LAM_BASE_ALLOC_H
#define LAM_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* count * size bytes, zeroed; NULL on overflow or lack of memory. count or size 0 gives a valid pointer. */
void *lam_alloc(size_t count, size_t size);

/* Grow or shrink to count * size bytes; the old block stays valid on NULL. New bytes are not zeroed. */
void *lam_realloc(void *block, size_t count, size_t size);

/* Zeroed, aligned to 64 bytes; freed with lam_free_aligned. */
void *lam_alloc_aligned(size_t bytes);
void lam_free_aligned(void *block);

void lam_free(void *block);

/* *out = a + b, *out = a * b; false on overflow. */
bool lam_add_size(size_t a, size_t b, size_t *out);
bool lam_mul_size(size_t a, size_t b, size_t *out);

/* value rounded up to a multiple of a power of two; false on overflow. */
bool lam_round_up(size_t value, size_t multiple, size_t *out);

#endif
