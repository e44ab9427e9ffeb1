/* Changes of files that survive a crash: what a store on disk needs beyond the writer of base/os.h. Of POSIX systems only. */
#ifndef LAM_BASE_DURABLE_H
#define LAM_BASE_DURABLE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Puts the finished file `from` in the place of `to`, on the same file system, with these permissions: bytes and permissions reach the disk,
 * then the name. An error after the rename is one of the folder's sync: `to` is then the new file. */
lam_code lam_place_file(const char *from, const char *to, unsigned mode, lam_error *err);

/* Renames within one file system, and waits until the new name is on the disk. */
lam_code lam_move(const char *from, const char *to, lam_error *err);

/* to becomes another name of the file from, or a copy of it where the file system has no such names. There must be nothing at to. */
lam_code lam_link_or_copy(const char *from, const char *to, lam_error *err);

/* Sets the permissions of the plain file at path. */
lam_code lam_set_mode(const char *path, unsigned mode, lam_error *err);

/* Adds bytes[len] to the end of a file, which is made if need be, and waits until they are on the disk. After a failure the file is as long
 * as before, unless that fails, too. */
lam_code lam_append_file(const char *path, const void *bytes, size_t len, lam_error *err);
/* Cuts a file to size bytes. */
lam_code lam_cut_file(const char *path, uint64_t size, lam_error *err);

#endif
