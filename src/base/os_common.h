/* What the implementations of base/os.h share (os_file.c) and what each gives to it; no other file includes this. */
#ifndef LAM_BASE_OS_COMMON_H
#define LAM_BASE_OS_COMMON_H

#include "base/os.h"

/* Raise errno's error: what was tried (a verb) on path. */
lam_code lam_raise_errno(lam_error *err, const char *what, const char *path);

/* *data = the size > 0 bytes of the open file fd, for lam_os_unmap; path stands in errors. */
lam_code lam_os_map(int fd, const char *path, size_t size, const uint8_t **data, lam_error *err);
void lam_os_unmap(const uint8_t *data, size_t size);

/* A number that no other process that may write the same file has now. */
unsigned long lam_os_process_number(void);
/* Marks the open file as one that a living process writes, until it is closed. False if it is gone from its folder, or marked. */
bool lam_os_hold(int fd);
/* Removes "<path>.<number>-<number>.part" files that no process holds: what a killed program left that was writing path. Failure is no error. */
void lam_os_remove_leftovers(const char *path);

#endif
