#include "store/work.h"
#include "base/alloc.h"
#include "base/os.h"
#include "base/process.h"
#include "base/str.h"

#include <string.h>

#define HOLD "hold"

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

/* A name that no other living process and no other work of this one has: the work's own address is in it. */
static lam_code name_folder(const struct lam_store *s, struct lam_work *w, lam_error *err)
{
    struct lam_str path = {0};
    if (!lam_str_printf(&path, "%s/" LAM_STORE_TMP "/%ld-%llx", s->folder, lam_process_number(), (unsigned long long)(uintptr_t)w))
        return no_memory(err);
    w->folder = path.data;
    return LAM_OK;
}

lam_code lam_work_open(const struct lam_store *s, struct lam_work *w, lam_error *err)
{
    *w = (struct lam_work){0};
    LAM_TRY(lam_store_check_folders(s, err));
    LAM_TRY(name_folder(s, w, err));
    char *hold = lam_path_join(w->folder, HOLD);
    lam_code code = hold ? LAM_OK : no_memory(err);
    while (code == LAM_OK && !w->hold) {
        code = lam_make_dirs(w->folder, err);
        if (code == LAM_OK) code = lam_lock_try(hold, LAM_LOCK_CREATE, &w->hold, err);
        if (code == LAM_E_NOT_FOUND) code = LAM_OK; /* taken for a leftover in this very moment: once more */
    }
    lam_free(hold);
    if (code != LAM_OK) lam_work_close(w);
    return code;
}

lam_code lam_work_file(struct lam_work *w, char **path, lam_error *err)
{
    struct lam_str s = {0};
    if (!lam_str_printf(&s, "%s/%u", w->folder, w->n)) {
        lam_str_release(&s);
        return no_memory(err);
    }
    w->n++;
    *path = s.data;
    return LAM_OK;
}

lam_code lam_work_remove(const char *path, lam_error *err)
{
    struct lam_file_info info;
    char **names = NULL;
    size_t n = 0;
    lam_code code = lam_link_info(path, &info, err);
    if (code == LAM_OK && !info.is_dir) return lam_remove_file(path, err);
    if (code == LAM_OK) code = lam_list_dir(path, &names, &n, err);
    if (code != LAM_OK) return code == LAM_E_NOT_FOUND ? LAM_OK : code;
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        char *inner = lam_path_join(path, names[i]);
        code = inner ? lam_work_remove(inner, err) : no_memory(err);
        lam_free(inner);
    }
    lam_free_names(names, n);
    return code == LAM_OK ? lam_remove_dir(path, err) : code;
}

void lam_work_close(struct lam_work *w)
{
    if (w->hold) lam_work_remove(w->folder, NULL);
    lam_unlock(w->hold);
    lam_free(w->folder);
    *w = (struct lam_work){0};
}

/* Whether no living process holds the work folder. */
static lam_code is_left(const char *folder, bool *left, lam_error *err)
{
    struct lam_lock *lock = NULL;
    char *hold = lam_path_join(folder, HOLD);
    lam_code code = hold ? lam_lock_try(hold, LAM_LOCK_EXCLUSIVE, &lock, err) : no_memory(err);
    *left = code == LAM_E_NOT_FOUND || lock;
    lam_unlock(lock);
    lam_free(hold);
    return code == LAM_E_NOT_FOUND ? LAM_OK : code;
}

lam_code lam_work_leftovers(const struct lam_store *s, lam_code (*each)(void *context, const char *path, lam_error *err), void *context,
                            lam_error *err)
{
    char *tmp, **names = NULL;
    size_t n = 0;
    LAM_TRY(lam_store_path(s, LAM_STORE_TMP, &tmp, err));
    lam_code code = lam_list_dir(tmp, &names, &n, err);
    if (code == LAM_E_NOT_FOUND) code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        bool left = true;
        struct lam_file_info info;
        char *path = lam_path_join(tmp, names[i]);
        code = path ? lam_link_info(path, &info, err) : no_memory(err);
        if (code == LAM_OK && info.is_dir) code = is_left(path, &left, err);
        if (code == LAM_OK && left) code = each(context, path, err);
        if (code == LAM_E_NOT_FOUND) code = LAM_OK; /* ended meanwhile */
        lam_free(path);
    }
    lam_free_names(names, n);
    lam_free(tmp);
    return code;
}
