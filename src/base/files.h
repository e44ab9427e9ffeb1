/* Folders, file facts and locks: what a cache on disk needs from the system. files.c, and
 * lock_posix.c or lock_wasi.c for what differs. */
#ifndef LAM_BASE_FILES_H
#define LAM_BASE_FILES_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lam_file_info {
    uint64_t size;     /* bytes */
    uint64_t mtime_ns; /* since 1970 */
    uint64_t device, inode;
    unsigned mode;     /* permissions, 0777 at most */
    bool is_dir, is_plain;
};

/* Follows links. LAM_E_NOT_FOUND, LAM_E_IO. */
lam_code lam_file_info(const char *path, struct lam_file_info *out, lam_error *err);

/* The same of a link itself, which is neither a folder nor plain. */
lam_code lam_link_info(const char *path, struct lam_file_info *out, lam_error *err);

/* The first bytes of a file: at most `size` into bytes, *len of them. LAM_E_IO for a folder. */
lam_code lam_read_head(const char *path, uint8_t *bytes, size_t size, size_t *len, lam_error *err);

/* The names in a folder without "." and "..", sorted by bytes; *names[*n] is freed with lam_free_names. */
lam_code lam_list_dir(const char *path, char ***names, size_t *n, lam_error *err);
void lam_free_names(char **names, size_t n);

/* A file that is gone already is no error. */
lam_code lam_remove_file(const char *path, lam_error *err);

/* A folder without anything in it; likewise. */
lam_code lam_remove_dir(const char *path, lam_error *err);

/* Absolute, links resolved; *out is freed with lam_free. On systems that cannot tell: path itself. */
lam_code lam_real_path(const char *path, char **out, lam_error *err);

/* Sets the modification time to now. */
lam_code lam_touch(const char *path, lam_error *err);

enum lam_lock_kind {
    LAM_LOCK_SHARED,    /* of a file that exists */
    LAM_LOCK_EXCLUSIVE, /* of a file that exists */
    LAM_LOCK_CREATE     /* exclusive; the file is made, and removed by lam_unlock */
};
struct lam_lock;
/* Tries once: *out is NULL if another holder, of this process or another, excludes it. The lock ends with lam_unlock or
 * with the process. Systems without locks (one process, one thread) always grant it. */
lam_code lam_lock_try(const char *path, enum lam_lock_kind kind, struct lam_lock **out, lam_error *err);
void lam_unlock(struct lam_lock *lock); /* NULL is allowed */

/* Waits at least about this long. */
void lam_sleep(double seconds);

#endif
