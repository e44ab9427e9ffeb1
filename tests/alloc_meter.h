/* Counts what the program allocates, so that tests can hold parsers to their memory bounds. For one translation unit of a
 * program linked with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free (the Makefile does so
 * for the tests that include it). Memory that shared libraries get by themselves is not seen: meter_start routes
 * Jansson's through here; zstd's decoder holds a fixed 160 KB. */
#ifndef LAM_TESTS_ALLOC_METER_H
#define LAM_TESTS_ALLOC_METER_H

#include "wrapped_alloc.h"

#include <jansson.h>
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>

static size_t meter_now, meter_peak;

static void *meter_add(void *block)
{
    if (block) meter_now += malloc_usable_size(block);
    if (meter_now > meter_peak) meter_peak = meter_now;
    return block;
}

void *__wrap_malloc(size_t size) { return meter_add(__real_malloc(size)); }
void *__wrap_calloc(size_t count, size_t size) { return meter_add(__real_calloc(count, size)); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) { return meter_add(__real_aligned_alloc(alignment, size)); }

/* Counts old and new block together for the moment in which both may exist. */
void *__wrap_realloc(void *block, size_t size)
{
    size_t old = block ? malloc_usable_size(block) : 0;
    void *grown = meter_add(__real_realloc(block, size));
    if (grown) meter_now -= old;
    return grown;
}

void __wrap_free(void *block)
{
    if (block) meter_now -= malloc_usable_size(block);
    __real_free(block);
}

/* Peak bytes since meter_start above what was in use then. */
static size_t meter_base;

static void meter_start(void)
{
    json_set_alloc_funcs(malloc, free);
    meter_base = meter_peak = meter_now;
}

static size_t meter_bytes(void) { return meter_peak - meter_base; }

#endif
