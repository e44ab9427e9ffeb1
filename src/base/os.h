/* What the operating system gives: mappings, durable files, clock. os_file.c holds what
 * systems share, os_posix.c and os_wasi.c the rest. */
#ifndef LAM_BASE_OS_H
#define LAM_BASE_OS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file mapped read-only. On systems without mmap the bytes are read into memory. */
struct lam_mapping {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;         /* bytes */
    /* What the file was when it was mapped, for lam_mapping_check. */
    uint64_t device, inode, mtime_ns;
    char *path;          /* owned */
};

/* Fails with LAM_E_NOT_FOUND, LAM_E_IO or LAM_E_NO_MEMORY; directories are LAM_E_IO. */
lam_code lam_map_file(const char *path, struct lam_mapping *out, lam_error *err);
void lam_unmap_file(struct lam_mapping *m);

/* LAM_E_CHANGED if the path or the open inode no longer is what was mapped (length, inode, device or times). */
lam_code lam_mapping_check(const struct lam_mapping *m, lam_error *err);

/* An empty file beside path, open for writing as *fd, that is to be renamed to it: *name, freed with lam_free. While it is open it is held:
 * what nobody holds of the same path, as a killed program leaves it, is removed here. LAM_E_ARGUMENT if path is a device or a pipe. */
lam_code lam_temporary_create(const char *path, char **name, int *fd, lam_error *err);

/* A file being written beside its final name; published by rename, so readers see the old file or the whole new one. */
struct lam_writer;
/* LAM_E_ARGUMENT if path is a device or a pipe. */
lam_code lam_writer_open(const char *path, struct lam_writer **out, lam_error *err);
lam_code lam_writer_write(struct lam_writer *w, const void *bytes, size_t len, lam_error *err);
/* Overwrite len bytes at offset, all of which were written before. */
lam_code lam_writer_patch(struct lam_writer *w, uint64_t offset, const void *bytes, size_t len, lam_error *err);
uint64_t lam_writer_offset(const struct lam_writer *w);
/* fsync, rename over path, fsync the folder; frees w whatever the outcome. */
lam_code lam_writer_commit(struct lam_writer *w, lam_error *err);
/* Remove the temporary file; frees w. NULL is allowed. */
void lam_writer_abort(struct lam_writer *w);

/* Waits until a folder's names are on the disk. */
lam_code lam_sync_folder(const char *path, lam_error *err);

/* True too for a link to nothing: whoever opens it says what is wrong, instead of going on without the file. */
bool lam_path_exists(const char *path);
bool lam_path_is_dir(const char *path);
/* Create a folder and its parents (mode 0755). */
lam_code lam_make_dirs(const char *path, lam_error *err);
/* Free bytes for an unprivileged user on the file system that holds path; UINT64_MAX where the system cannot tell. */
uint64_t lam_disk_free(const char *path);

/* Zeroed memory, aligned to 64 bytes, for what comes and goes in equal large blocks: from LAM_LARGE bytes on it is the system's, and goes
 * back to it at once. NULL when memory is lacking; freed with the same number of bytes. */
#define LAM_LARGE ((size_t)128 << 10)
void *lam_large_alloc(size_t bytes);
void lam_large_free(void *block, size_t bytes);

/* Monotonic seconds. */
double lam_now(void);
/* Seconds since 1970, for timestamps that stand in no digest. */
int64_t lam_unix_time(void);
/* Let another thread have this processor. */
void lam_yield(void);

/* dir "/" name, freed with lam_free; NULL when memory is lacking. */
char *lam_path_join(const char *dir, const char *name);
/* The part after the last '/', within path. */
const char *lam_path_base(const char *path);

#endif
