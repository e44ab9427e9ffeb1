/* What the parts of a session's code share (session.c, feed.c, rebase.c, state.c, draft.c). */
#ifndef LAM_RUN_SESSION_H
#define LAM_RUN_SESSION_H

#include "cache/operators.h"
#include "cache/rows.h"
#include "run/objects.h"

/* A cache of the session's shape under c, without pages. */
lam_code lam_session_new_kv(const struct lam_session *s, const struct lam_composition *c, struct lam_kv *out, lam_error *err);

/* The computed next_logits become those of the last token. */
void lam_session_take_logits(struct lam_session *s);
void lam_session_drop_ahead(struct lam_session *s);

/* What the session's rows 0 .. length-1 are a function of, as computed: fills out, with runs that are freed with lam_free and a
 * contract that *contract holds. Under the lock of the engine's pool. */
lam_code lam_session_rows(const struct lam_session *s, struct lam_row_contract *contract, struct lam_run **runs, struct lam_rows *out,
                          lam_error *err);

/* LAM_E_INVOCATION if no submission says where activated adapters act on the next token. */
lam_code lam_session_check_generated(const struct lam_session *s, lam_error *err);

/* Offers the history to the prefix cache, if there is one. Under the lock; lack of memory is no failure of the session's. */
void lam_session_publish(struct lam_session *s);

#endif
