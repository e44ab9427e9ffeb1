#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

bool lam_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
bool lam_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

bool lam_round_up(size_t value, size_t multiple, size_t *out)
{
    size_t sum;
    if (!lam_add_size(value, multiple - 1, &sum)) return false;
    *out = sum & ~(multiple - 1);
    return true;
}

void *lam_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (!lam_mul_size(count, size, &bytes)) return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *lam_realloc(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (!lam_mul_size(count, size, &bytes)) return NULL;
    return realloc(block, bytes ? bytes : 1);
}

void *lam_alloc_aligned(size_t bytes)
{
    size_t rounded;
    if (!lam_round_up(bytes ? bytes : 1, 64, &rounded)) return NULL;
    void *block = aligned_alloc(64, rounded);
    if (block) memset(block, 0, rounded);
    return block;
}

void lam_free_aligned(void *block) { free(block); }
void lam_free(void *block) { free(block); }
