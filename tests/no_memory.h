/* Memory that ends at every possible moment: each request of a piece of work fails once, Jansson's too. A program that includes this is
 * linked with -Wl,--wrap=malloc and its like (Makefile). */
#ifndef LAM_TESTS_NO_MEMORY_H
#define LAM_TESTS_NO_MEMORY_H

#include "fixture.h"
#include "wrapped_alloc.h"

#include "base/json.h"

static struct {
    bool on;
    long count, fail_at; /* requests so far; the one that gets nothing */
} memory;

static inline bool refused(void) { return memory.on && ++memory.count == memory.fail_at; }

void *__wrap_malloc(size_t size) { return refused() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return refused() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *block, size_t size) { return refused() ? NULL : __real_realloc(block, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) { return refused() ? NULL : __real_aligned_alloc(alignment, size); }
void __wrap_free(void *block) { __real_free(block); }

/* What a stage gives, as text to compare: LAM_OK with another text than without a failure is a fault. */
struct stage {
    const char *name;
    lam_code (*run)(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err);
};

static inline long count_requests(const struct stage *s, const struct fixture *f, char want[LAM_DIGEST_TEXT])
{
    lam_error err;
    memory.count = memory.fail_at = 0;
    memory.on = true;
    lam_code code = s->run(f, want, &err);
    memory.on = false;
    if (code != LAM_OK) fail_msg("%s: %s", s->name, err.message);
    return memory.count;
}

static inline void fail_one(const struct stage *s, const struct fixture *f, long n, const char *want)
{
    char got[LAM_DIGEST_TEXT] = "";
    lam_error err;
    memory.count = 0;
    memory.fail_at = n;
    memory.on = true;
    lam_code code = s->run(f, got, &err);
    memory.on = false;
    if (code == LAM_OK && strcmp(got, want) != 0) fail_msg("%s, request %ld failing: another result", s->name, n);
    if (code != LAM_OK && code != LAM_E_NO_MEMORY) fail_msg("%s, request %ld failing: %s: %s", s->name, n, lam_code_name(code), err.message);
}

/* LAM_E_NO_MEMORY and nothing half done, for each request of s or, of many, for some 600. What is left behind, the address sanitizer tells. */
static inline void fail_each(const struct stage *s, const struct fixture *f)
{
    char want[LAM_DIGEST_TEXT] = "";
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    count_requests(s, f, want); /* what is kept for the process is made now */
    long n = count_requests(s, f, want), step = n / 600 + 1;
    assert_in_range(n, 50, 100000);
    for (long k = 1; k <= n; k += k < 100 || k + 60 > n ? 1 : step) fail_one(s, f, k, want);
    json_set_alloc_funcs(malloc, free);
}

#endif
