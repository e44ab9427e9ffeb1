#include "store/recover.h"

lam_code lam_store_recover(struct lam_store *s, lam_error *err)
{
    (void)s, (void)err;
    return LAM_OK;
}
