/* Folders and file facts (base/files.h), alike on every system; locks and real paths are lock_<system>.c. */
#define _POSIX_C_SOURCE 200809L

#include "base/files.h"
#include "base/alloc.h"
#include "base/os_common.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct lam_file_info info_of(const struct stat *st)
{
    return (struct lam_file_info){.size = (uint64_t)st->st_size,
                                  .mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec,
                                  .device = st->st_dev, .inode = st->st_ino, .mode = st->st_mode & 0777,
                                  .is_dir = S_ISDIR(st->st_mode), .is_plain = S_ISREG(st->st_mode)};
}

lam_code lam_file_info(const char *path, struct lam_file_info *out, lam_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0) return lam_raise_errno(err, "stat", path);
    *out = info_of(&st);
    return LAM_OK;
}

lam_code lam_link_info(const char *path, struct lam_file_info *out, lam_error *err)
{
    struct stat st;
    if (lstat(path, &st) != 0) return lam_raise_errno(err, "stat", path);
    *out = info_of(&st);
    return LAM_OK;
}

lam_code lam_read_head(const char *path, uint8_t *bytes, size_t size, size_t *len, lam_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
    lam_code code = LAM_OK;
    *len = 0;
    if (fd < 0) return lam_raise_errno(err, "open", path);
    if (fstat(fd, &st) != 0) code = lam_raise_errno(err, "stat", path);
    else if (!S_ISREG(st.st_mode)) code = LAM_RAISE(err, LAM_E_IO, "%s: not a regular file", path);
    while (code == LAM_OK && *len < size) {
        ssize_t n = read(fd, bytes + *len, size - *len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) code = lam_raise_errno(err, "read", path);
        if (n <= 0) break;
        *len += (size_t)n;
    }
    close(fd);
    return code;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool add_name(char ***names, size_t *n, size_t *cap, const char *name)
{
    if (*n == *cap) {
        size_t grown_cap = *cap ? *cap * 2 : 16;
        char **grown = lam_realloc(*names, grown_cap, sizeof *grown);
        if (!grown) return false;
        *names = grown;
        *cap = grown_cap;
    }
    char *copy = lam_strdup(name);
    if (copy) (*names)[(*n)++] = copy;
    return copy != NULL;
}

lam_code lam_list_dir(const char *path, char ***names, size_t *n, lam_error *err)
{
    size_t cap = 0;
    lam_code code = LAM_OK;
    *names = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    if (!dir) return lam_raise_errno(err, "open folder", path);
    for (struct dirent *entry; code == LAM_OK && (errno = 0, entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!add_name(names, n, &cap, entry->d_name)) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: %zu names", path, *n);
    }
    if (code == LAM_OK && errno != 0) code = lam_raise_errno(err, "read folder", path);
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
    return unlink(path) == 0 || errno == ENOENT ? LAM_OK : lam_raise_errno(err, "remove", path);
}

lam_code lam_remove_dir(const char *path, lam_error *err)
{
    return rmdir(path) == 0 || errno == ENOENT ? LAM_OK : lam_raise_errno(err, "remove folder", path);
}

lam_code lam_touch(const char *path, lam_error *err)
{
    struct timespec now[2]; /* given, since Debian 12's wasi-libc takes no times for the year 1970 */
    clock_gettime(CLOCK_REALTIME, &now[0]);
    now[1] = now[0];
    return utimensat(AT_FDCWD, path, now, 0) == 0 ? LAM_OK : lam_raise_errno(err, "touch", path);
}

void lam_sleep(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}
