#define _POSIX_C_SOURCE 200809L

#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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
    char *name;
    int fd;
    if (stat(path, &out) == 0 && !S_ISREG(out.st_mode))
        return fail(err, LAM_E_ARGUMENT, "%s is %s, not a file to replace", path, S_ISDIR(out.st_mode) ? "a folder" : "a device or pipe");
    lam_code code = lam_output_create(path, &name, &fd, err); /* no other question is answered for every kind of folder */
    if (code != LAM_OK) return code;
    unlink(name);
    close(fd);
    lam_memory_free(name);
    return LAM_OK;
}

/* The ending of path, with its dot; "" without one. */
static const char *ending_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return dot && dot != name ? dot : "";
}

lam_code check_ending(const char *path, const char *written, lam_error *err)
{
    static const char *const others[] = {".slm", ".gguf", ".safetensors", ".json"};
    const char *ending = ending_of(path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcasecmp(ending, others[i]) == 0 && strcasecmp(ending, written) != 0)
            return fail(err, LAM_E_ARGUMENT, "%s: its name ends in %s, and a %s file is what is written", path, ending, written);
    return LAM_OK;
}

lam_code check_slm_or_gguf(const char *path, lam_error *err)
{
    const char *ending = ending_of(path);
    if (strcmp(ending, ".slm") == 0 || strcmp(ending, ".gguf") == 0) return LAM_OK;
    return fail(err, LAM_E_ARGUMENT, "%s: a name that ends in .slm or .gguf is needed, which says what is written", path);
}

static lam_code fail_errno(const struct output *out, int number, lam_error *err)
{
    return fail(err, number == ENOSPC ? LAM_E_NO_SPACE : LAM_E_IO, "%s: %s", out->path, strerror(number));
}

lam_code output_open(const char *path, struct output *out, lam_error *err)
{
    struct stat there;
    int fd;
    *out = (struct output){.path = path};
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        out->file = fopen(path, "wb");
        return out->file ? LAM_OK : fail_errno(out, errno, err);
    }
    lam_code code = lam_output_create(path, &out->temporary, &fd, err);
    if (code != LAM_OK) return code;
    out->file = fdopen(fd, "wb");
    if (out->file) return LAM_OK;
    close(fd);
    unlink(out->temporary);
    lam_memory_free(out->temporary);
    out->temporary = NULL;
    return fail_memory(err);
}

lam_code output_close(struct output *out, lam_code code, lam_error *err)
{
    if (!out->file) return code;
    int number = 0;
    errno = 0;
    if (fflush(out->file) != 0 || ferror(out->file)) number = errno ? errno : EIO;
    if (!number && code == LAM_OK && out->temporary && fsync(fileno(out->file)) != 0) number = errno;
    if (!number && code == LAM_OK && out->temporary && rename(out->temporary, out->path) != 0) number = errno;
    if ((number || code != LAM_OK) && out->temporary) unlink(out->temporary);
    if (fclose(out->file) != 0 && !number) number = errno; /* the last: nobody takes the file for a leftover before */
    out->file = NULL;
    if (code == LAM_OK && number) code = fail_errno(out, number, err);
    lam_memory_free(out->temporary);
    out->temporary = NULL;
    return code;
}

double file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (double)st.st_size : 0.0;
}
