/* What -Wl,--wrap=malloc and its like (Makefile) leave a test: the allocators as they are, and those that the test puts in their place. */
#ifndef LAM_TESTS_WRAPPED_ALLOC_H
#define LAM_TESTS_WRAPPED_ALLOC_H

#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *block);

#endif
