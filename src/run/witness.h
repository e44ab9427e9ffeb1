/* Rows from a file are labelled with what they were computed with, and a label can be wrong. The last row is therefore computed once more,
 * of the others as they lie there: its keys, values and logits must come out bit by bit. */
#ifndef LAM_RUN_WITNESS_H
#define LAM_RUN_WITNESS_H

#include "run/objects.h"

/* The session's last row and, if it has them, its logits against what its composition computes of its earlier rows. The first layer that
 * differs tells what was another: LAM_E_KV_HIDDEN where both K and V do, LAM_E_KV_PROJECTION where one does; LAM_E_KV_HEAD where only
 * the logits do. And what a step raises. One pass of one row, under the lock of the engine's pool, which it takes. */
lam_code lam_witness_check(struct lam_session *s, lam_error *err);

#endif
