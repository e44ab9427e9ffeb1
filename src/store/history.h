/* What the journal says of the store, next to what the audit and active.json say. Each line follows from the one before it, so a file is
 * well by itself also where its last lines were cut, or where it is not there at all: the other file then knows of more. */
#ifndef LAM_STORE_HISTORY_H
#define LAM_STORE_HISTORY_H

#include "store/store.h"

/* LAM_E_STORE_AUDIT or LAM_E_STORE_JOURNAL for the file that lacks a change that the other one tells of; what lam_record_walk says of
 * lines that are broken. A change that is not ended is no fault. */
lam_code lam_history_check_records(const struct lam_store *s, lam_error *err);

/* LAM_E_STORE_ACTIVE if active.json is not what the journal's last switch made it, nor what one not yet ended would. A journal that was
 * begun anew and has no switch says nothing. */
lam_code lam_history_check_active(const struct lam_store *s, lam_error *err);

#endif
