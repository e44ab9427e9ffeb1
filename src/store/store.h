/* The store on disk, from inside (docs/store.md): an OCI image layout 1.1 with a pointer to the active composition.
 *
 *   oci-layout, index.json, blobs/sha256/HEX    what any OCI tool reads
 *   active.json                                 which composition is active
 *   used.json                                   which base or composition ran last (store/used.c)
 *   journal, audit.jsonl                        what is being changed; who changed what (store/records.h)
 *   lock                                        held by whoever writes
 *   tmp/NAME/                                   a writer's unfinished files (store/work.h)
 *   lost/                                       what fsck set aside
 *   partial/                                    interrupted downloads; whoever goes on with one holds it (LAM_LOCK_EXCLUSIVE)
 *
 * Blobs, index.json and active.json come into being by rename alone. Readers take no lock: a file that they have opened stays what it
 * was. Writers exclude one another. Who needs a blob for longer holds it, which keeps gc from removing it. */
#ifndef LAM_STORE_STORE_H
#define LAM_STORE_STORE_H

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "lamina/store.h"

#define LAM_STORE_INDEX "index.json"
#define LAM_STORE_ACTIVE "active.json"
#define LAM_STORE_USED "used.json"
#define LAM_STORE_JOURNAL "journal"
#define LAM_STORE_AUDIT "audit.jsonl"
#define LAM_STORE_LOCK "lock"
#define LAM_STORE_LAYOUT "oci-layout"
#define LAM_STORE_BLOBS "blobs/sha256"
#define LAM_STORE_TMP "tmp"
#define LAM_STORE_PARTIAL "partial"
#define LAM_STORE_LOST "lost" /* what was set aside: nothing is thrown away that might be wanted */
#define LAM_STORE_SMALL_MAX ((uint64_t)16 << 20) /* bytes of a JSON file: index, manifest, configuration */

struct lam_store {
    char *folder;            /* owned */
    char *reason;            /* owned, or NULL: stands in the audit */
    lam_progress_fn progress;/* may be NULL */
    void *progress_context;
    struct lam_lock *writer; /* held while this process changes the store */
    unsigned depth;          /* how often */
};

/* folder/name, freed with lam_free. */
lam_code lam_store_path(const struct lam_store *s, const char *name, char **out, lam_error *err);

/* Excludes other writers, and puts right what a dead one left undone (store/recover.h). Waits, with the progress stage "wait". Nests. */
lam_code lam_store_lock(struct lam_store *s, lam_error *err);
/* The same without a look at what is left undone: for those who put it right themselves. Does not nest. */
lam_code lam_store_lock_as_is(struct lam_store *s, lam_error *err);
void lam_store_unlock(struct lam_store *s);

/* LAM_E_STORE_LINK if one of the store's folders is a link, or no folder: what is written or removed there would be elsewhere. Those that
 * are not there are well. lam_store_lock and lam_work_open ask it; who locks as is asks it before changing anything. */
lam_code lam_store_check_folders(const struct lam_store *s, lam_error *err);
extern const char *const lam_store_folders[5];

/* Whether oci-layout is there (LAM_E_NOT_FOUND) and as it must be (LAM_E_STORE_LAYOUT); and writing it. */
lam_code lam_store_check_layout(const struct lam_store *s, lam_error *err);
lam_code lam_store_write_layout(const struct lam_store *s, lam_error *err);

/* Whether a name in the store's folder is one that a writer gives to what is not yet oci-layout, index.json, active.json, used.json or
 * known_roots. */
bool lam_store_is_leftover(const char *name);

/* Tells the progress function; LAM_E_CANCELLED if it wants no more. */
lam_code lam_store_progress(const struct lam_store *s, const char *stage, uint64_t done, uint64_t total, lam_error *err);

/* folder/name as JSON: a plain file of at most LAM_STORE_SMALL_MAX bytes, no link. LAM_E_NOT_FOUND if there is none; `damaged` for what is
 * there and cannot be read as JSON; LAM_E_STORE_LINK, LAM_E_IO, LAM_E_NO_MEMORY. */
lam_code lam_store_read_json(const struct lam_store *s, const char *name, lam_code damaged, json_t **out, lam_error *err);
/* Writes the canonical form of value and a line end beside folder/name; lam_writer_commit (base/os.h) puts it there. */
struct lam_writer;
lam_code lam_store_stage_json(const struct lam_store *s, const char *name, const json_t *value, struct lam_writer **out, lam_error *err);
/* Replaces folder/name by the canonical form of value and a line end: whole, and on the disk, or not at all. */
lam_code lam_store_write_json(const struct lam_store *s, const char *name, const json_t *value, lam_error *err);

#endif
