#define _POSIX_C_SOURCE 200809L

#include "base/durable.h"
#include "base/alloc.h"
#include "base/os_common.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static lam_code sync_folder_of(const char *path, lam_error *err)
{
    const char *base = lam_path_base(path);
    char *folder = base == path ? lam_strdup(".") : lam_strndup(path, (size_t)(base - path));
    lam_code code = folder ? lam_sync_folder(folder, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_free(folder);
    return code;
}

lam_code lam_place_file(const char *from, const char *to, unsigned mode, lam_error *err)
{
    int fd = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return lam_raise_errno(err, "open", from);
    lam_code code = LAM_OK;
    if (fchmod(fd, mode) != 0) code = lam_raise_errno(err, "set permissions", from);
    if (code == LAM_OK && fsync(fd) != 0) code = lam_raise_errno(err, "sync", from);
    if (code == LAM_OK && rename(from, to) != 0) code = lam_raise_errno(err, "rename", to);
    close(fd);
    return code == LAM_OK ? sync_folder_of(to, err) : code;
}

lam_code lam_move(const char *from, const char *to, lam_error *err)
{
    return rename(from, to) == 0 ? sync_folder_of(to, err) : lam_raise_errno(err, "rename", from);
}

lam_code lam_link_or_copy(const char *from, const char *to, lam_error *err)
{
    struct lam_mapping file;
    struct lam_writer *w;
    if (link(from, to) == 0) return LAM_OK;
    if (errno != EXDEV && errno != EPERM && errno != EMLINK && errno != ENOTSUP) return lam_raise_errno(err, "link", to);
    LAM_TRY(lam_map_file(from, &file, err));
    lam_code code = lam_writer_open(to, &w, err);
    if (code == LAM_OK) {
        code = lam_writer_write(w, file.data, file.size, err);
        if (code == LAM_OK) code = lam_writer_commit(w, err);
        else lam_writer_abort(w);
    }
    lam_unmap_file(&file);
    return code;
}

lam_code lam_set_mode(const char *path, unsigned mode, lam_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return lam_raise_errno(err, "open", path);
    lam_code code = fchmod(fd, mode) == 0 ? LAM_OK : lam_raise_errno(err, "set permissions", path);
    close(fd);
    return code;
}

/* fd is at the end of a file of `size` bytes. */
static lam_code append(int fd, const char *path, const uint8_t *bytes, size_t len, off_t size, lam_error *err)
{
    lam_code code = LAM_OK;
    for (size_t done = 0; code == LAM_OK && done < len;) {
        ssize_t n = write(fd, bytes + done, len - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) code = lam_raise_errno(err, "write", path);
        else done += (size_t)n;
    }
    if (code == LAM_OK && fsync(fd) != 0) code = lam_raise_errno(err, "sync", path);
    if (code != LAM_OK && ftruncate(fd, size) != 0) return code; /* half a line is left: whoever reads on cuts it */
    return code;
}

lam_code lam_append_file(const char *path, const void *bytes, size_t len, lam_error *err)
{
    struct stat st;
    bool fresh = !lam_path_exists(path);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return lam_raise_errno(err, "open", path);
    lam_code code = fstat(fd, &st) == 0 ? append(fd, path, bytes, len, st.st_size, err) : lam_raise_errno(err, "stat", path);
    close(fd);
    return code == LAM_OK && fresh ? sync_folder_of(path, err) : code;
}

lam_code lam_cut_file(const char *path, uint64_t size, lam_error *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return lam_raise_errno(err, "open", path);
    lam_code code = ftruncate(fd, (off_t)size) == 0 && fsync(fd) == 0 ? LAM_OK : lam_raise_errno(err, "cut", path);
    close(fd);
    return code;
}
