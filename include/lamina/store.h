/* The store on disk: an OCI image layout of bases, adapters and compositions, with one active composition (docs/store.md).
 *
 * A store is a folder. What it holds is named by digests; a name is an alias for one and may be moved. Readers take no lock. Writers, of this
 * process or others, exclude one another and wait for their turn. Every change happens wholly or not at all, also if the process or the machine
 * dies in the middle of it: the next writer finds the old state or the new one.
 * A store handle is used by one thread at a time. */
#ifndef LAMINA_STORE_H
#define LAMINA_STORE_H

#include "lamina/manifest.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lam_store lam_store;

typedef enum lam_store_kind { LAM_STORE_BASE, LAM_STORE_ADAPTER, LAM_STORE_COMPOSITION, LAM_STORE_FOREIGN } lam_store_kind;
/* "base", "adapter", "composition", "foreign": what another OCI tool has put there. */
LAM_API const char *lam_store_kind_name(lam_store_kind kind);

typedef struct lam_store_options {
    const char *folder;       /* NULL: $LAMINA_STORE, else $XDG_DATA_HOME/lamina, else $HOME/.local/share/lamina */
    const char *reason;       /* why; stands in the audit. NULL: not said */
    lam_progress_fn progress; /* may be NULL; the stage "wait" (0 of 0) while another process writes */
    void *progress_context;
} lam_store_options;

/* The folder that is meant, NULL as above; *out is freed with lam_memory_free. LAM_E_ARGUMENT if no variable tells one. */
LAM_API lam_code lam_store_folder(const char *folder, char **out, lam_error *err);

/* Opens the store, or makes one with create. LAM_E_NOT_FOUND if there is none, LAM_E_STORE_LAYOUT if the folder is something else,
 * LAM_E_IO, LAM_E_NO_SPACE, LAM_E_NO_MEMORY. options may be NULL. */
LAM_API lam_code lam_store_open(const lam_store_options *options, bool create, lam_store **out, lam_error *err);
LAM_API void lam_store_close(lam_store *store);
/* Its folder, borrowed. */
LAM_API const char *lam_store_where(const lam_store *store);

#ifdef __cplusplus
}
#endif
#endif
