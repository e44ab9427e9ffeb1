/* Locks by flock, real paths, and the files of killed writers. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1 /* flock; realpath without a limit */

#include "base/files.h"
#include "base/alloc.h"
#include "base/os_common.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

lam_code lam_real_path(const char *path, char **out, lam_error *err)
{
    char *real = realpath(path, NULL);
    if (!real) return lam_raise_errno(err, "real path", path);
    *out = lam_strdup(real);
    free(real);
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
}

struct lam_lock {
    int fd;
    char *remove; /* owned path of a lock file, or NULL */
};

/* The file may have been removed, or replaced, between open and lock: then the lock is one of nothing. */
static bool still_there(int fd, const char *path)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 && open_file.st_ino == named.st_ino &&
           open_file.st_dev == named.st_dev;
}

/* *fd is -1 if the lock is taken. */
static lam_code lock_descriptor(const char *path, enum lam_lock_kind kind, int *fd, lam_error *err)
{
    int flags = O_CLOEXEC | O_NONBLOCK | (kind == LAM_LOCK_SHARED ? O_RDONLY : O_RDWR) | (kind == LAM_LOCK_CREATE ? O_CREAT : 0);
    for (;;) {
        *fd = open(path, flags, 0644);
        if (*fd < 0 && errno == EACCES && kind == LAM_LOCK_EXCLUSIVE) *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of one that is 0444 */
        if (*fd < 0) return lam_raise_errno(err, "open to lock", path);
        if (flock(*fd, (kind == LAM_LOCK_SHARED ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
            lam_code code = errno == EWOULDBLOCK || errno == EINTR ? LAM_OK : lam_raise_errno(err, "lock", path);
            close(*fd);
            *fd = -1;
            return code;
        }
        if (still_there(*fd, path)) return LAM_OK;
        close(*fd);
    }
}

bool lam_os_hold(int fd)
{
    struct stat st;
    return flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0;
}

/* name is "<base>.<decimal>-<hexadecimal>.part", as lam_writer_open makes it. */
static bool is_leftover(const char *name, const char *base)
{
    size_t len = strlen(base);
    if (strncmp(name, base, len) != 0 || name[len] != '.') return false;
    const char *c = name + len + 1, *number = c;
    c += strspn(c, "0123456789");
    if (c == number || *c++ != '-') return false;
    number = c;
    c += strspn(c, "0123456789abcdef");
    return c != number && strcmp(c, ".part") == 0;
}

void lam_os_remove_leftovers(const char *path)
{
    const char *base = lam_path_base(path);
    char *folder = base == path ? lam_strdup(".") : lam_strndup(path, (size_t)(base - path)), **names = NULL;
    size_t n = 0;
    if (folder) lam_list_dir(folder, &names, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        char *leftover = is_leftover(names[i], base) ? lam_path_join(folder, names[i]) : NULL;
        struct lam_lock *lock = NULL;
        if (leftover) lam_lock_try(leftover, LAM_LOCK_EXCLUSIVE, &lock, NULL);
        if (lock) unlink(leftover);
        lam_unlock(lock);
        lam_free(leftover);
    }
    lam_free_names(names, n);
    lam_free(folder);
}

lam_code lam_lock_try(const char *path, enum lam_lock_kind kind, struct lam_lock **out, lam_error *err)
{
    *out = NULL;
    struct lam_lock *lock = lam_alloc(1, sizeof *lock);
    char *copy = kind == LAM_LOCK_CREATE ? lam_strdup(path) : NULL;
    lam_code code = LAM_OK;
    if (!lock || (kind == LAM_LOCK_CREATE && !copy)) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    if (code == LAM_OK) code = lock_descriptor(path, kind, &lock->fd, err);
    if (code != LAM_OK || lock->fd < 0) {
        lam_free(copy);
        lam_free(lock);
        return code;
    }
    lock->remove = copy;
    *out = lock;
    return LAM_OK;
}

void lam_unlock(struct lam_lock *lock)
{
    if (!lock) return;
    if (lock->remove) unlink(lock->remove);
    close(lock->fd);
    lam_free(lock->remove);
    lam_free(lock);
}
