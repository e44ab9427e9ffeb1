/* What a WebAssembly program has instead: memory for a file's bytes, and no processes, processors or disks to ask for. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1 /* getentropy */

#include "base/os_common.h"
#include "base/alloc.h"

#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES ((size_t)1 << 30) /* at a time; Node's limit is 2^31 - 1 */

void *lam_large_alloc(size_t bytes) { return lam_alloc_aligned(bytes); }

void lam_large_free(void *block, size_t bytes)
{
    (void)bytes;
    lam_free_aligned(block);
}

/* A kernel keeps a mapped file's pages once for all who map it. So does this list, or whoever imports an adapter for an open base, or plans
 * for one, would have the whole base in memory twice. Files are mapped by one thread. */
struct mapped {
    struct mapped *next;
    uint8_t *data;
    size_t size, holders;
    dev_t device;
    ino_t inode;
    struct timespec modified;
};

static struct mapped *all_mapped;

static struct mapped *find_mapped(const struct stat *st)
{
    struct mapped *m = all_mapped;
    while (m && !(m->device == st->st_dev && m->inode == st->st_ino && m->size == (size_t)st->st_size &&
                  m->modified.tv_sec == st->st_mtim.tv_sec && m->modified.tv_nsec == st->st_mtim.tv_nsec))
        m = m->next;
    return m;
}

static lam_code read_all(int fd, const char *path, uint8_t *bytes, size_t size, lam_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, bytes + done, size - done < READ_BYTES ? size - done : READ_BYTES);
        if (n < 0) return lam_raise_errno(err, "read", path);
        if (n == 0) return LAM_RAISE(err, LAM_E_CHANGED, "%s: truncated while it was read", path);
        done += (size_t)n;
    }
    return LAM_OK;
}

lam_code lam_os_map(int fd, const char *path, size_t size, const uint8_t **data, lam_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return lam_raise_errno(err, "stat", path);
    struct mapped *m = find_mapped(&st);
    if (m) {
        m->holders++;
        *data = m->data;
        return LAM_OK;
    }
    m = lam_alloc(1, sizeof *m);
    uint8_t *bytes = m ? lam_alloc_aligned(size) : NULL;
    lam_code code = bytes ? read_all(fd, path, bytes, size, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: no memory for its %zu bytes", path, size);
    if (code != LAM_OK) {
        lam_free_aligned(bytes);
        lam_free(m);
        return code;
    }
    *m = (struct mapped){all_mapped, bytes, size, 1, st.st_dev, st.st_ino, st.st_mtim};
    all_mapped = m;
    *data = bytes;
    return LAM_OK;
}

void lam_os_unmap(const uint8_t *data, size_t size)
{
    struct mapped **at = &all_mapped, *m;
    (void)size;
    while ((*at)->data != data) at = &(*at)->next;
    m = *at;
    if (--m->holders) return;
    *at = m->next;
    lam_free_aligned(m->data);
    lam_free(m);
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
