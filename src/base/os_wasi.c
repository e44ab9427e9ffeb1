/* What a WebAssembly program has instead: memory for a file's bytes, and no processes, processors or disks to ask for. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1 /* getentropy */

#include "base/os_common.h"
#include "base/alloc.h"

#include <unistd.h>

#define READ_BYTES ((size_t)1 << 30) /* at a time; Node's limit is 2^31 - 1 */

void *lam_large_alloc(size_t bytes) { return lam_alloc_aligned(bytes); }

void lam_large_free(void *block, size_t bytes)
{
    (void)bytes;
    lam_free_aligned(block);
}

lam_code lam_os_map(int fd, const char *path, size_t size, const uint8_t **data, lam_error *err)
{
    uint8_t *bytes = lam_alloc_aligned(size);
    if (!bytes) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: no memory for its %zu bytes", path, size);
    lam_code code = LAM_OK;
    for (size_t done = 0; code == LAM_OK && done < size;) {
        ssize_t n = read(fd, bytes + done, size - done < READ_BYTES ? size - done : READ_BYTES);
        if (n < 0) code = lam_raise_errno(err, "read", path);
        if (n == 0) code = LAM_RAISE(err, LAM_E_CHANGED, "%s: truncated while it was read", path);
        if (n > 0) done += (size_t)n;
    }
    if (code == LAM_OK)
        *data = bytes;
    else
        lam_free_aligned(bytes);
    return code;
}

void lam_os_unmap(const uint8_t *data, size_t size)
{
    (void)size;
    lam_free_aligned((void *)data);
}

unsigned long lam_os_process_number(void)
{
    unsigned long number = 0;
    getentropy(&number, sizeof number); /* without entropy writers take turns at number 0 */
    return number;
}

/* Who lives cannot be told here. */
bool lam_os_hold(int fd)
{
    (void)fd;
    return true;
}

void lam_os_remove_leftovers(const char *path) { (void)path; }

uint64_t lam_disk_free(const char *path)
{
    (void)path;
    return UINT64_MAX;
}

void lam_yield(void) {}
