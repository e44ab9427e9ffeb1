/* Files and clocks as POSIX has them: what the native program and the WebAssembly one have in common. */
#define _POSIX_C_SOURCE 200809L

#include "base/os_common.h"
#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

lam_code lam_raise_errno(lam_error *err, const char *what, const char *path)
{
    lam_code code = errno == ENOENT || errno == ENOTDIR ? LAM_E_NOT_FOUND : errno == ENOSPC || errno == EDQUOT ? LAM_E_NO_SPACE
                  : errno == ENOMEM ? LAM_E_NO_MEMORY : LAM_E_IO;
    return LAM_RAISE(err, code, "%s: %s: %s", path, what, strerror(errno));
}

static uint64_t mtime_ns(const struct stat *st)
{
    return (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

static lam_code map_descriptor(int fd, const char *path, struct lam_mapping *out, lam_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return lam_raise_errno(err, "stat", path);
    if (!S_ISREG(st.st_mode)) return LAM_RAISE(err, LAM_E_IO, "%s: not a regular file", path);
    if ((uint64_t)st.st_size > PTRDIFF_MAX)
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: its %lld bytes are more than one block of memory can have", path,
                         (long long)st.st_size);
    struct lam_mapping m = {.size = (size_t)st.st_size, .device = st.st_dev, .inode = st.st_ino, .mtime_ns = mtime_ns(&st)};
    if (m.size) LAM_TRY(lam_os_map(fd, path, m.size, &m.data, err));
    m.path = lam_strdup(path);
    if (!m.path) {
        lam_unmap_file(&m);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    }
    *out = m;
    return LAM_OK;
}

lam_code lam_map_file(const char *path, struct lam_mapping *out, lam_error *err)
{
    *out = (struct lam_mapping){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
    if (fd < 0) return lam_raise_errno(err, "open", path);
    lam_code code = map_descriptor(fd, path, out, err);
    close(fd);
    return code;
}

void lam_unmap_file(struct lam_mapping *m)
{
    if (m->data) lam_os_unmap(m->data, m->size);
    lam_free(m->path);
    *m = (struct lam_mapping){0};
}

lam_code lam_mapping_check(const struct lam_mapping *m, lam_error *err)
{
    struct stat st;
    if (stat(m->path, &st) != 0)
        return LAM_RAISE(err, LAM_E_CHANGED, "%s: gone since it was opened: %s", m->path, strerror(errno));
    if (st.st_dev != m->device || st.st_ino != m->inode)
        return LAM_RAISE(err, LAM_E_CHANGED, "%s: replaced by another file since it was opened", m->path);
    if ((uint64_t)st.st_size != m->size)
        return LAM_RAISE(err, LAM_E_CHANGED, "%s: had %zu bytes when opened, has %lld now", m->path, m->size,
                         (long long)st.st_size);
    if (mtime_ns(&st) != m->mtime_ns)
        return LAM_RAISE(err, LAM_E_CHANGED, "%s: written since it was opened", m->path);
    return LAM_OK;
}

/* Bytes reach the file in blocks of this size at multiples of it: a page cache that keeps large pages then holds the file in them, and
 * who maps it takes few faults and TLB entries (measured in docs/decisions/2026-11-30-start.md). */
#define BLOCK_BYTES ((size_t)4 << 20)

struct lam_writer {
    int fd;
    uint64_t offset;
    uint8_t *block; /* [BLOCK_BYTES]: the last `held` bytes before offset are not yet written */
    size_t held;
    char *path, *temporary, *folder;
};

static void writer_free(struct lam_writer *w)
{
    if (w->fd >= 0) close(w->fd);
    lam_free(w->block);
    lam_free(w->path);
    lam_free(w->temporary);
    lam_free(w->folder);
    lam_free(w);
}

/* Makes the temporary file and holds it. */
static lam_code create_temporary(const char *path, const char *temporary, int *fd, lam_error *err)
{
    for (;;) {
        *fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (*fd < 0 && errno == EEXIST) { /* left by a dead process that had our number */
            unlink(temporary);
            *fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        }
        if (*fd < 0) return lam_raise_errno(err, "create", path);
        if (lam_os_hold(*fd)) return LAM_OK;
        close(*fd); /* removed as a leftover in this very moment */
    }
}

/* A rename would put a file in the place of a device or a pipe. */
static lam_code check_target(const char *path, lam_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is a device or a pipe; only a regular file can be replaced when all is done", path);
}

/* Its name is of this file alone: no other one of this process can have the name's address. */
lam_code lam_temporary_create(const char *path, char **name, int *fd, lam_error *err)
{
    size_t room = strlen(path) + 64;
    *name = NULL;
    *fd = -1;
    LAM_TRY(check_target(path, err));
    char *temporary = lam_alloc(room, 1);
    if (!temporary) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    snprintf(temporary, room, "%s.%lu-%" PRIxPTR ".part", path, lam_os_process_number(), (uintptr_t)temporary);
    lam_os_remove_leftovers(path);
    lam_code code = create_temporary(path, temporary, fd, err);
    if (code == LAM_OK) *name = temporary;
    else lam_free(temporary);
    return code;
}

lam_code lam_writer_open(const char *path, struct lam_writer **out, lam_error *err)
{
    const char *base = lam_path_base(path);
    struct lam_writer *w = lam_alloc(1, sizeof *w);
    if (!w) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    w->fd = -1;
    w->block = lam_alloc(BLOCK_BYTES, 1);
    w->path = lam_strdup(path);
    w->folder = base == path ? lam_strdup(".") : lam_strndup(path, (size_t)(base - path));
    lam_code code = w->block && w->path && w->folder ? lam_temporary_create(path, &w->temporary, &w->fd, err)
                                                     : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    if (code == LAM_OK) *out = w;
    else writer_free(w);
    return code;
}

static lam_code write_at(struct lam_writer *w, uint64_t offset, const void *bytes, size_t len, lam_error *err)
{
    const uint8_t *p = bytes;
    while (len) {
        ssize_t n = pwrite(w->fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lam_raise_errno(err, "write", w->path);
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return LAM_OK;
}

static lam_code flush(struct lam_writer *w, lam_error *err)
{
    size_t n = w->held;
    w->held = 0;
    return write_at(w, w->offset - n, w->block, n, err);
}

lam_code lam_writer_write(struct lam_writer *w, const void *bytes, size_t len, lam_error *err)
{
    const uint8_t *p = bytes;
    while (len) {
        size_t room = BLOCK_BYTES - (size_t)(w->offset % BLOCK_BYTES), n = len < room ? len : room;
        memcpy(w->block + w->held, p, n);
        w->held += n;
        w->offset += n;
        p += n;
        len -= n;
        if (n == room) LAM_TRY(flush(w, err));
    }
    return LAM_OK;
}

lam_code lam_writer_patch(struct lam_writer *w, uint64_t offset, const void *bytes, size_t len, lam_error *err)
{
    LAM_TRY(flush(w, err));
    return write_at(w, offset, bytes, len, err);
}

uint64_t lam_writer_offset(const struct lam_writer *w) { return w->offset; }

/* Some file systems have no sync of folders: EINVAL. */
lam_code lam_sync_folder(const char *path, lam_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lam_code code = LAM_OK;
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) code = lam_raise_errno(err, "sync", path);
    if (fd >= 0) close(fd);
    return code;
}

lam_code lam_writer_commit(struct lam_writer *w, lam_error *err)
{
    lam_code code = flush(w, err);
    if (code == LAM_OK && fsync(w->fd) != 0) code = lam_raise_errno(err, "sync", w->path);
    if (code == LAM_OK && rename(w->temporary, w->path) != 0) code = lam_raise_errno(err, "rename", w->path);
    if (code == LAM_OK) code = lam_sync_folder(w->folder, err);
    else unlink(w->temporary);
    writer_free(w);
    return code;
}

void lam_writer_abort(struct lam_writer *w)
{
    if (!w) return;
    unlink(w->temporary);
    writer_free(w);
}

bool lam_path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

bool lam_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

lam_code lam_make_dirs(const char *path, lam_error *err)
{
    char *copy = lam_strdup(path);
    if (!copy) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_code code = LAM_OK;
    for (char *c = copy + 1; code == LAM_OK; c++) {
        char saved = *c;
        if (saved && saved != '/') continue;
        *c = 0;
        if (mkdir(copy, 0755) != 0 && !(errno == EEXIST && lam_path_is_dir(copy))) code = lam_raise_errno(err, "mkdir", copy);
        *c = saved;
        if (!saved) break;
    }
    lam_free(copy);
    return code;
}

double lam_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int64_t lam_unix_time(void) { return (int64_t)time(NULL); }
