#define _POSIX_C_SOURCE 200809L

#include "base/scatter.h"
#include "base/alloc.h"
#include "base/os_common.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct lam_scatter {
    int fd;
    char *path; /* owned */
};

static lam_code open_held(struct lam_scatter *s, uint64_t bytes, lam_error *err)
{
    s->fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644); /* a link would have its target overwritten */
    if (s->fd < 0 && errno == ELOOP) return LAM_RAISE(err, LAM_E_STORE_LINK, "%s is a link, a plain file belongs there", s->path);
    if (s->fd < 0) return lam_raise_errno(err, "create", s->path);
    if (!lam_os_hold(s->fd)) return LAM_RAISE(err, LAM_E_CONFLICT, "%s: another process fetches the same", s->path);
    return ftruncate(s->fd, (off_t)bytes) == 0 ? LAM_OK : lam_raise_errno(err, "set length", s->path);
}

lam_code lam_scatter_open(const char *path, uint64_t bytes, struct lam_scatter **out, lam_error *err)
{
    *out = NULL;
    struct lam_scatter *s = lam_alloc(1, sizeof *s);
    if (!s) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    s->fd = -1;
    s->path = lam_strdup(path);
    lam_code code = s->path ? open_held(s, bytes, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    if (code == LAM_OK) *out = s;
    else lam_scatter_close(s);
    return code;
}

lam_code lam_scatter_write(struct lam_scatter *s, uint64_t at, const void *bytes, size_t len, lam_error *err)
{
    const uint8_t *p = bytes;
    while (len) {
        ssize_t n = pwrite(s->fd, p, len, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lam_raise_errno(err, "write", s->path);
        p += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return LAM_OK;
}

lam_code lam_scatter_read(struct lam_scatter *s, uint64_t at, void *bytes, size_t len, lam_error *err)
{
    uint8_t *p = bytes;
    while (len) {
        ssize_t n = pread(s->fd, p, len, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return lam_raise_errno(err, "read", s->path);
        if (n == 0) return LAM_RAISE(err, LAM_E_TRUNCATED, "%s: ends %zu bytes early", s->path, len);
        p += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return LAM_OK;
}

lam_code lam_scatter_sync(struct lam_scatter *s, lam_error *err)
{
    return fsync(s->fd) == 0 ? LAM_OK : lam_raise_errno(err, "sync", s->path);
}

void lam_scatter_close(struct lam_scatter *s)
{
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    lam_free(s->path);
    lam_free(s);
}
