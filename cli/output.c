#define _POSIX_C_SOURCE 200809L

#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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

static lam_code fail_errno(const struct output *out, int number, lam_error *err)
{
    return fail(err, number == ENOSPC ? LAM_E_NO_SPACE : LAM_E_IO, "%s: %s", out->path, strerror(number));
}

lam_code output_open(const char *path, struct output *out, lam_error *err)
{
    struct stat there;
    size_t room = strlen(path) + 64;
    bool in_place = stat(path, &there) == 0 && !S_ISREG(there.st_mode);
    *out = (struct output){.path = path, .temporary = in_place ? NULL : malloc(room)};
    if (!in_place && !out->temporary) return fail_memory(err);
    /* As the library names its own, which removes what a killed writer left. */
    if (!in_place) snprintf(out->temporary, room, "%s.%lld-%" PRIxPTR ".part", path, (long long)time(NULL), (uintptr_t)out->temporary);
    out->file = in_place ? fopen(path, "wb") : fopen(out->temporary, "wbx");
    if (out->file) return LAM_OK;
    int number = errno;
    free(out->temporary);
    out->temporary = NULL;
    return fail_errno(out, number, err);
}

lam_code output_close(struct output *out, lam_code code, lam_error *err)
{
    if (!out->file) return code;
    int number = 0;
    errno = 0;
    if (fflush(out->file) != 0 || ferror(out->file)) number = errno ? errno : EIO;
    if (!number && code == LAM_OK && out->temporary && fsync(fileno(out->file)) != 0) number = errno;
    if (fclose(out->file) != 0 && !number) number = errno;
    out->file = NULL;
    if (!number && code == LAM_OK && out->temporary && rename(out->temporary, out->path) != 0) number = errno;
    if (code == LAM_OK && number) code = fail_errno(out, number, err);
    if (code != LAM_OK && out->temporary) unlink(out->temporary);
    free(out->temporary);
    out->temporary = NULL;
    return code;
}

double file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (double)st.st_size : 0.0;
}
