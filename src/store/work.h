/* A writer's own folder below tmp/ for files that have no place yet. It is held while its process lives; what is not held is a leftover. */
#ifndef LAM_STORE_WORK_H
#define LAM_STORE_WORK_H

#include "store/store.h"

struct lam_work {
    char *folder;          /* owned */
    struct lam_lock *hold;
    unsigned n;            /* files named so far */
};

lam_code lam_work_open(const struct lam_store *s, struct lam_work *out, lam_error *err);
/* A path for one more file, freed with lam_free. */
lam_code lam_work_file(struct lam_work *w, char **path, lam_error *err);
/* Removes the folder with what is left in it. Also for one that is all zero. */
void lam_work_close(struct lam_work *w);

/* Calls each with the path of every work folder whose process is gone. */
lam_code lam_work_leftovers(const struct lam_store *s, lam_code (*each)(void *context, const char *path, lam_error *err), void *context,
                            lam_error *err);
/* Removes a file, or a folder with all that is in it. A link is removed itself, not what it leads to. */
lam_code lam_work_remove(const char *path, lam_error *err);

#endif
