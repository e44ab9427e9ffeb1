/* A lease as sessions hold it. */
#ifndef LAM_RUN_LEASE_H
#define LAM_RUN_LEASE_H

#include "lamina/runtime.h"
#include "run/objects.h"

/* One more holder. */
lam_lease *lam_lease_hold(lam_lease *lease);

/* Around a pass of sessions[n], whose leases (those that have one) are used by it. Refused, with nothing begun, if one of them is not what
 * its slot holds. */
lam_code lam_lease_begin(lam_session *const sessions[], size_t n, lam_error *err);
void lam_lease_end(lam_session *const sessions[], size_t n);

#endif
