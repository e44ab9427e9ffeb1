/* What a writer that died has left is put right by the next one. */
#ifndef LAM_STORE_RECOVER_H
#define LAM_STORE_RECOVER_H

#include "store/store.h"

/* Called with the lock held, before anything else is done. Afterwards exactly the old state or the new one is there, and the records say
 * which. */
lam_code lam_store_recover(struct lam_store *s, lam_error *err);

#endif
