/* What POSIX and Linux have beyond os_file.c: mappings, processes. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */

#include "base/os_common.h"
#include "base/alloc.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

lam_code lam_os_map(int fd, const char *path, size_t size, const uint8_t **data, lam_error *err)
{
    void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return lam_raise_errno(err, "mmap", path);
    *data = p;
    return LAM_OK;
}

/* A heap keeps what it is given back, and puts smaller blocks there: up to a quarter more than is in use. */
void *lam_large_alloc(size_t bytes)
{
    if (bytes < LAM_LARGE) return lam_alloc_aligned(bytes);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    memset(p, 0, bytes); /* taken now, as it is planned, and not when it is first written */
    return p;
}

void lam_large_free(void *block, size_t bytes)
{
    if (bytes < LAM_LARGE) lam_free_aligned(block);
    else munmap(block, bytes);
}

void lam_os_unmap(const uint8_t *data, size_t size) { munmap((void *)data, size); }

unsigned long lam_os_process_number(void) { return (unsigned long)getpid(); }

uint64_t lam_disk_free(const char *path)
{
    struct statvfs st;
    return statvfs(path, &st) == 0 ? (uint64_t)st.f_bavail * st.f_frsize : UINT64_MAX;
}

void lam_yield(void) { sched_yield(); }
