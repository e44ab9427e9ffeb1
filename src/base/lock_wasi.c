/* WASI: one process and one thread, so locks are always free; no links are resolved. */
#include "base/files.h"
#include "base/alloc.h"
#include "base/os.h"
#include "base/str.h"

lam_code lam_real_path(const char *path, char **out, lam_error *err)
{
    if (!lam_path_exists(path)) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: no such file", path);
    *out = lam_strdup(path);
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
}

struct lam_lock {
    char unused; /* nothing is held */
};

lam_code lam_lock_try(const char *path, enum lam_lock_kind kind, struct lam_lock **out, lam_error *err)
{
    *out = NULL;
    if (kind != LAM_LOCK_CREATE && !lam_path_exists(path)) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: no such file", path);
    struct lam_lock *lock = lam_alloc(1, sizeof *lock);
    if (!lock) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    *out = lock;
    return LAM_OK;
}

void lam_unlock(struct lam_lock *lock) { lam_free(lock); }
