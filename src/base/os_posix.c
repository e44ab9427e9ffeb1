/* What POSIX and Linux have beyond os_file.c: mappings, processes. */
#define _POSIX_C_SOURCE 200809L

#include "base/os_common.h"

#include <sched.h>
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

void lam_os_unmap(const uint8_t *data, size_t size) { munmap((void *)data, size); }

unsigned long lam_os_process_number(void) { return (unsigned long)getpid(); }

uint64_t lam_disk_free(const char *path)
{
    struct statvfs st;
    return statvfs(path, &st) == 0 ? (uint64_t)st.f_bavail * st.f_frsize : UINT64_MAX;
}

void lam_yield(void) { sched_yield(); }
