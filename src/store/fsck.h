/* The parts of lam_store_fsck: looking, and putting right. */
#ifndef LAM_STORE_FSCK_H
#define LAM_STORE_FSCK_H

#include "store/pieces.h"
#include "store/work.h"


/* Everything that is wrong, into *found; subjects are paths in the store, or "index.json: NAME". The store must be locked. */
lam_code lam_fsck_look(struct lam_store *s, lam_fault_list *found, lam_error *err);

/* Where the bytes of a damaged or missing blob can be had again. It stages the whole blob in the work folder, and may take the good pieces from
 * the blob that is there. bad is NULL if nothing of it is good. */
struct lam_reached;
struct lam_repair_source {
    lam_code (*fetch)(void *context, struct lam_store *s, const struct lam_reached *blob, const struct lam_bad_pieces *bad, struct lam_work *w,
                      char **path, lam_error *err);
    void *context;
};
/* Puts right what can be; source may be NULL. The store must be locked. */
lam_code lam_fsck_repair(struct lam_store *s, const lam_fault_list *found, const struct lam_repair_source *source, lam_error *err);

/* lam_store_fsck with a source. */
lam_code lam_store_fsck_from(struct lam_store *s, bool repair, const struct lam_repair_source *source, lam_fault_list *found,
                             lam_fault_list *left, lam_error *err);

#endif
