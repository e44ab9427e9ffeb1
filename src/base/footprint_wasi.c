/* Measured in Node with wasi-libc: the linear memory's size, which never shrinks (tests/wasm_memory.sh holds the whole to it). The
 * program's share begins with its stack of 8 MiB (wasm/wasm.mk). */
#include "base/footprint.h"

const struct lam_footprint *lam_footprint_here(void)
{
    static const struct lam_footprint here = {
        .process = (size_t)(8192 + 620) << 10, .thread = 0, .tokenizer = (size_t)64 << 10, .opening = (size_t)200 << 10,
        .kept = (size_t)128 << 10, .large = SIZE_MAX, .page = 65536, .header = sizeof(size_t), .files_in_memory = true};
    return &here;
}
