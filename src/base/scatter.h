/* A file that is written at any place, in any order, and lies under its own name while it is not whole: what an interrupted process leaves
 * is found again. While it is open no other process can open it so. */
#ifndef LAM_BASE_SCATTER_H
#define LAM_BASE_SCATTER_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct lam_scatter;
/* Opens or makes the file, with `bytes` bytes; what was not written is zero. LAM_E_CONFLICT if another process has it open,
 * LAM_E_STORE_LINK if a link is there: it is not followed. */
lam_code lam_scatter_open(const char *path, uint64_t bytes, struct lam_scatter **out, lam_error *err);
lam_code lam_scatter_write(struct lam_scatter *s, uint64_t at, const void *bytes, size_t len, lam_error *err);
/* All of bytes[len], which must be within the file. */
lam_code lam_scatter_read(struct lam_scatter *s, uint64_t at, void *bytes, size_t len, lam_error *err);
/* Everything written is on the disk. */
lam_code lam_scatter_sync(struct lam_scatter *s, lam_error *err);
void lam_scatter_close(struct lam_scatter *s); /* NULL is allowed */

#endif
