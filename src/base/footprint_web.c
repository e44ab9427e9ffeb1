/* As footprint_wasi.c, with threads: each has a stack of 1 MiB in the linear memory (web/package/src/threads.ts). */
#include "base/footprint.h"

const struct lam_footprint *lam_footprint_here(void)
{
    static const struct lam_footprint here = {
        .process = (size_t)(8192 + 620) << 10, .thread = (size_t)1 << 20, .tokenizer = (size_t)64 << 10, .opening = (size_t)200 << 10,
        .kept = (size_t)128 << 10, .large = SIZE_MAX, .page = 65536, .header = sizeof(size_t), .files_in_memory = true};
    return &here;
}
