/* One change of the store, recorded: a journal line before it; an audit line and a journal line after it. A journal whose last line is a
 * beginning tells the next writer that the change's process died. */
#ifndef LAM_STORE_CHANGE_H
#define LAM_STORE_CHANGE_H

#include "store/store.h"

/* What changes. Texts are borrowed; NULL: there is none. */
struct lam_change {
    const char *op;            /* "activate", "add", …: as the command is called */
    const char *name;          /* the alias that moves */
    uint64_t generation;       /* that active.json will have; 0: it stays */
    const char *from, *to;     /* manifest digests */
    uint64_t seq;              /* of its first journal line; 0: not begun */
};

lam_code lam_change_begin(const struct lam_store *s, struct lam_change *c, lam_error *err);
/* Whether the rename that makes the change took place. */
lam_code lam_change_is_done(const struct lam_store *s, const struct lam_change *c, bool *done, lam_error *err);
/* outcome "done", "failed", "undone" or "recovered"; why: of a failure, may be NULL. Without a beginning only the audit gets a line. */
lam_code lam_change_end(const struct lam_store *s, const struct lam_change *c, const char *outcome, const lam_error *why, lam_error *err);
/* The journal line of it alone. */
lam_code lam_change_close(const struct lam_store *s, const struct lam_change *c, const char *outcome, lam_error *err);
/* Ends a change that was stopped by *why, whose code is returned: that this cannot be recorded is not the error, the next writer does
 * it. Locks the store, if that is not done. */
lam_code lam_change_failed(struct lam_store *s, const struct lam_change *c, const lam_error *why);

#endif
