#define _POSIX_C_SOURCE 200809L

#include "output.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool same(const struct stat *a, const struct stat *b) { return a->st_dev == b->st_dev && a->st_ino == b->st_ino; }

/* The folder that path lies in. */
static bool parent(const char *path, struct stat *out)
{
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    if (len + 2 > sizeof folder) return false;
    if (slash) {
        memcpy(folder, path, len + 1); /* with the slash: "/" stays "/" */
        folder[len + 1] = 0;
    }
    return stat(folder, out) == 0;
}

lam_code check_not_source(const char *path, const char *source, lam_error *err)
{
    struct stat out, in, folder;
    if (stat(path, &out) != 0 || stat(source, &in) != 0) return LAM_OK;
    if (same(&out, &in)) return fail(err, LAM_E_CONFLICT, "%s is read from and cannot be written to", path);
    if (S_ISDIR(in.st_mode) && parent(path, &folder) && same(&folder, &in))
        return fail(err, LAM_E_CONFLICT, "%s is a file of %s, which is read from", path, source);
    return LAM_OK;
}

lam_code check_replaceable(const char *path, lam_error *err)
{
    struct stat out;
    if (stat(path, &out) != 0 || S_ISREG(out.st_mode)) return LAM_OK;
    return fail(err, LAM_E_ARGUMENT, "%s is %s, not a file to replace", path, S_ISDIR(out.st_mode) ? "a folder" : "a device or pipe");
}

void remove_partial(const char *path)
{
    struct stat out;
    if (stat(path, &out) == 0 && S_ISREG(out.st_mode)) unlink(path);
}

double file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (double)st.st_size : 0.0;
}
