/* A whole .slm from servers that give ranges: the head first, held to a root, then the data's pieces, each held to its leaf as it
 * arrives. What was fetched lies in FOLDER/<root>.slm and is found again there after any interruption. */
#ifndef LAM_STORE_FETCH_SLM_H
#define LAM_STORE_FETCH_SLM_H

#include "store/sources.h"

/* Whether a file with this root may be fetched, of which nothing was expected. LAM_OK, or LAM_E_ROOT with what speaks against it. */
typedef lam_code (*lam_root_fn)(void *context, const uint8_t root[32], lam_error *err);

/* expected[32]: the root that the file must have; NULL: decide (not NULL then) is asked once a root is known. *path (freed with
 * lam_free) is the whole file, whose every piece was found good by this process. LAM_E_NO_SPACE before anything is stored, if the disk
 * lacks the bytes; LAM_E_CONFLICT if another process fetches the same; the errors of lam_sources_fetch and of lam_slm_open. */
lam_code lam_fetch_slm(struct lam_sources *s, const char *folder, const uint8_t *expected, lam_root_fn decide, void *context,
                       char **path,
                       uint8_t root[32], lam_error *err);

/* The same for a damaged .slm, which is only read, or missing: its good pieces need not be fetched. expected[32] is its root. */
lam_code lam_fetch_repaired(struct lam_sources *s, const char *folder, const char *damaged, const uint8_t expected[32], char **path,
                            lam_error *err);

#endif
