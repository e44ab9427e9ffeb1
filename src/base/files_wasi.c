/* WASI: one process and one thread, so locks are always free; no links are resolved. */
#define _POSIX_C_SOURCE 200809L

#include "base/files.h"
#include "base/alloc.h"
#include "base/os.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static lam_code raise_errno(lam_error *err, const char *what, const char *path)
{
    lam_code code = errno == ENOENT || errno == ENOTDIR ? LAM_E_NOT_FOUND : errno == ENOSPC || errno == EDQUOT ? LAM_E_NO_SPACE
                  : errno == ENOMEM ? LAM_E_NO_MEMORY : LAM_E_IO;
    return LAM_RAISE(err, code, "%s: %s: %s", path, what, strerror(errno));
}

lam_code lam_file_info(const char *path, struct lam_file_info *out, lam_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0) return raise_errno(err, "stat", path);
    *out = (struct lam_file_info){.size = (uint64_t)st.st_size,
                                  .mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec,
                                  .device = st.st_dev, .inode = st.st_ino, .is_dir = S_ISDIR(st.st_mode)};
    return LAM_OK;
}

lam_code lam_read_head(const char *path, uint8_t *bytes, size_t size, size_t *len, lam_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    lam_code code = LAM_OK;
    *len = 0;
    if (fd < 0) return raise_errno(err, "open", path);
    while (code == LAM_OK && *len < size) {
        ssize_t n = read(fd, bytes + *len, size - *len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) code = raise_errno(err, "read", path);
        if (n <= 0) break;
        *len += (size_t)n;
    }
    close(fd);
    return code;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool add_name(char ***names, size_t *n, const char *name)
{
    char **grown = lam_realloc(*names, *n + 1, sizeof *grown);
    if (grown) *names = grown;
    char *copy = grown ? lam_strdup(name) : NULL;
    if (copy) (*names)[(*n)++] = copy;
    return copy != NULL;
}

lam_code lam_list_dir(const char *path, char ***names, size_t *n, lam_error *err)
{
    lam_code code = LAM_OK;
    *names = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    if (!dir) return raise_errno(err, "open folder", path);
    for (struct dirent *entry; code == LAM_OK && (errno = 0, entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!add_name(names, n, entry->d_name)) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: %zu names", path, *n);
    }
    if (code == LAM_OK && errno != 0) code = raise_errno(err, "read folder", path);
    closedir(dir);
    if (code == LAM_OK && *n) qsort(*names, *n, sizeof **names, compare_names);
    if (code != LAM_OK) {
        lam_free_names(*names, *n);
        *names = NULL;
        *n = 0;
    }
    return code;
}

void lam_free_names(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++) lam_free(names[i]);
    lam_free(names);
}

lam_code lam_remove_file(const char *path, lam_error *err)
{
    return unlink(path) == 0 || errno == ENOENT ? LAM_OK : raise_errno(err, "remove", path);
}

lam_code lam_real_path(const char *path, char **out, lam_error *err)
{
    if (!lam_path_exists(path)) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: no such file", path);
    *out = lam_strdup(path);
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
}

lam_code lam_touch(const char *path, lam_error *err)
{
    return utimensat(AT_FDCWD, path, NULL, 0) == 0 ? LAM_OK : raise_errno(err, "touch", path);
}

struct lam_lock {
    char unused; /* nothing is held */
};

lam_code lam_lock_try(const char *path, enum lam_lock_kind kind, struct lam_lock **out, lam_error *err)
{
    *out = NULL;
    if (kind != LAM_LOCK_CREATE && !lam_path_exists(path)) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: no such file", path);
    struct lam_lock *lock = lam_alloc(1, sizeof *lock);
    if (!lock) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    *out = lock;
    return LAM_OK;
}

void lam_unlock(struct lam_lock *lock) { lam_free(lock); }

void lam_sleep(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}
