#include "base/os.h"
#include "base/str.h"

#include <string.h>

char *lam_path_join(const char *dir, const char *name)
{
    struct lam_str s = {0};
    size_t len = strlen(dir);
    const char *slash = len && dir[len - 1] == '/' ? "" : "/";
    if (!lam_str_printf(&s, "%s%s%s", dir, slash, name)) lam_str_release(&s);
    return s.data;
}

const char *lam_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
