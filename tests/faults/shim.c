#define _GNU_SOURCE 1

#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct faults faults;
long faults_clock;

/* ---- what is not on the disk yet ---- */

#define MOST 64
static struct dirty {
    dev_t device;
    ino_t inode;
    int fd;      /* one of our own: it outlives the writer's */
    off_t safe;  /* bytes that an fsync saw */
} files[MOST];
static struct { dev_t device; ino_t inode; } folders[MOST];
static size_t n_files;

static struct dirty *find_file(const struct stat *st)
{
    for (size_t i = 0; i < n_files; i++)
        if (files[i].device == st->st_dev && files[i].inode == st->st_ino) return &files[i];
    return NULL;
}

int __real_fstat(int fd, struct stat *st);
int __real_stat(const char *path, struct stat *st);
int __real_ftruncate(int fd, off_t size);

static void note_write(int fd)
{
    struct stat st;
    if (!faults.on || __real_fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || find_file(&st) || n_files == MOST) return;
    files[n_files++] = (struct dirty){st.st_dev, st.st_ino, dup(fd), st.st_size};
}

static void forget_file(struct dirty *d)
{
    close(d->fd);
    *d = files[--n_files];
}

static void note_sync(int fd)
{
    struct stat st;
    if (!faults.on || __real_fstat(fd, &st) != 0) return;
    struct dirty *d = find_file(&st);
    if (d) forget_file(d);
    for (size_t i = 0; i < faults.unsynced; i++)
        if (folders[i].device == st.st_dev && folders[i].inode == st.st_ino) folders[i--] = folders[--faults.unsynced];
}

/* A name in path's folder changed. */
static void note_name(const char *path)
{
    char folder[4096];
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (!faults.on || !slash || (size_t)(slash - path) >= sizeof folder - 1) return;
    memcpy(folder, path, (size_t)(slash - path) + 1);
    folder[slash - path + 1] = 0;
    if (__real_stat(folder, &st) != 0 || faults.unsynced == MOST) return;
    for (size_t i = 0; i < faults.unsynced; i++)
        if (folders[i].device == st.st_dev && folders[i].inode == st.st_ino) return;
    folders[faults.unsynced].device = st.st_dev;
    folders[faults.unsynced++].inode = st.st_ino;
}

void faults_begin(enum fault_mode mode, bool memory, long at, int error)
{
    faults_end();
    faults = (struct faults){.mode = mode, .memory = memory, .at = at, .error = error, .on = true};
}

void faults_end(void)
{
    faults.on = false;
    while (n_files) forget_file(&files[0]);
}

/* ---- the fault ---- */

static void end_process(void)
{
    if (faults.mode == FAULT_POWER)
        for (size_t i = 0; i < n_files; i++)
            if (__real_ftruncate(files[i].fd, files[i].safe) != 0) break;
    _exit(FAULT_EXIT);
}

/* Counts a call. True: it must fail; errno is set. *last: it is the process's last, of which half may be done. */
static bool strike(const char *name, bool memory, bool *last)
{
    *last = false;
    if (!faults.on || faults.memory != memory || ++faults.counted != faults.at) return false;
    faults.hit = name;
    if (faults.mode == FAULT_KILL || faults.mode == FAULT_POWER) end_process();
    *last = faults.mode == FAULT_TORN;
    errno = faults.error;
    return faults.mode == FAULT_FAIL;
}

#define WRAP(type, name, parameters, arguments, failed)                  \
    type __real_##name parameters;                                       \
    type __wrap_##name parameters;                                       \
    type __wrap_##name parameters                                        \
    {                                                                    \
        bool last;                                                       \
        if (strike(#name, false, &last)) return failed;                  \
        type result = __real_##name arguments;                           \
        if (last) end_process();                                         \
        return result;                                                   \
    }

WRAP(int, stat, (const char *path, struct stat *st), (path, st), -1)
WRAP(int, lstat, (const char *path, struct stat *st), (path, st), -1)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), -1)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1)
WRAP(int, unlink, (const char *path), (path), -1)
WRAP(int, rmdir, (const char *path), (path), -1)
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), -1)
WRAP(int, flock, (int fd, int how), (fd, how), -1)
WRAP(DIR *, opendir, (const char *path), (path), NULL)
WRAP(char *, realpath, (const char *path, char *out), (path, out), NULL)
WRAP(void *, mmap, (void *at, size_t size, int access, int flags, int fd, off_t offset), (at, size, access, flags, fd, offset), MAP_FAILED)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    bool last;
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (strike("open", false, &last)) return -1;
    int fd = __real_open(path, flags, mode);
    if (last) end_process();
    return fd;
}

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    bool last;
    note_write(fd);
    if (strike("write", false, &last)) return -1;
    ssize_t done = __real_write(fd, bytes, last ? n / 2 : n);
    if (last) end_process();
    return done;
}

ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    bool last;
    note_write(fd);
    if (strike("pwrite", false, &last)) return -1;
    ssize_t done = __real_pwrite(fd, bytes, last ? n / 2 : n, at);
    if (last) end_process();
    return done;
}

int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size)
{
    bool last;
    if (strike("ftruncate", false, &last)) return -1;
    int result = __real_ftruncate(fd, size);
    if (last) end_process();
    return result;
}

/* Nothing is sent to the disk: that takes long, and no test here takes the power away. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    bool last;
    if (strike("fsync", false, &last)) return -1;
    note_sync(fd);
    if (last) end_process();
    return 0;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    bool last;
    struct stat st;
    if (strike("rename", false, &last)) return -1;
    if (faults.on && __real_stat(from, &st) == 0 && find_file(&st)) faults.late_renames++;
    int result = __real_rename(from, to);
    if (result == 0) note_name(to);
    if (last) end_process();
    return result;
}

/* ---- memory ---- */

#define WRAP_MEMORY(name, parameters, arguments)                         \
    void *__real_##name parameters;                                      \
    void *__wrap_##name parameters;                                      \
    void *__wrap_##name parameters                                       \
    {                                                                    \
        bool last;                                                       \
        return strike(#name, true, &last) ? NULL : __real_##name arguments; \
    }

WRAP_MEMORY(malloc, (size_t n), (n))
WRAP_MEMORY(calloc, (size_t n, size_t size), (n, size))
WRAP_MEMORY(realloc, (void *block, size_t n), (block, n))
WRAP_MEMORY(aligned_alloc, (size_t alignment, size_t n), (alignment, n))

/* ---- the clock ---- */

time_t __real_time(time_t *out);
time_t __wrap_time(time_t *out);
time_t __wrap_time(time_t *out)
{
    time_t now = __real_time(NULL) + faults_clock;
    if (out) *out = now;
    return now;
}
