/* The store under faults: every call that touches files, and every allocation, fails once, or is the last that the process makes. Afterwards
 * exactly the old composition or the new one is active, nothing else is damaged than what a dead writer may leave, gc removes all of
 * that, and the next command works.
 *     FAULTS=order | files | memory  build/tests/test_store_faults    one part alone */
#define _XOPEN_SOURCE 700

#include "faults/shim.h"
#include "support.h"

#include "base/files.h"
#include "base/os.h"
#include "lamina/pull.h"
#include "store/reach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "data/stories260K-Q8_0.gguf"

/* ---- a server to pull from ---- */

/* Ranges of one file, a request a connection. It calls nothing that fails on purpose. */
static struct {
    int listener;
    uint8_t *file;
    size_t size;
    pthread_t thread;
    char url[80];
} server;

static void send_all(int to, const void *bytes, size_t n)
{
    for (const char *at = bytes; n;) {
        ssize_t sent = send(to, at, n, MSG_NOSIGNAL);
        if (sent <= 0) return; /* the other side has ended: that is what is tested */
        at += sent;
        n -= (size_t)sent;
    }
}

static void answer(int client)
{
    char request[4096] = "", head[300];
    size_t n = 0, from, last;
    while (!strstr(request, "\r\n\r\n")) {
        ssize_t got = recv(client, request + n, sizeof request - 1 - n, 0);
        if (got <= 0) return;
        n += (size_t)got;
        request[n] = 0;
    }
    const char *range = strstr(request, "Range: bytes=");
    if (!range || sscanf(range, "Range: bytes=%zu-%zu", &from, &last) != 2 || from > last || last >= server.size) return;
    int len = snprintf(head, sizeof head, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %zu-%zu/%zu\r\nContent-Length: %zu\r\n"
                       "Connection: close\r\n\r\n", from, last, server.size, last - from + 1);
    send_all(client, head, (size_t)len);
    send_all(client, server.file + from, last - from + 1);
}

static void *serve(void *unused)
{
    (void)unused;
    for (int client; (client = accept(server.listener, NULL, NULL)) >= 0; close(client)) answer(client);
    return NULL;
}

static void start_server(const char *path)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    server.file = test_read_file(path, &server.size);
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(server.listener >= 0 && bind(server.listener, (struct sockaddr *)&at, len) == 0 && listen(server.listener, 16) == 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&at, &len), 0);
    snprintf(server.url, sizeof server.url, "http://127.0.0.1:%u/shakespeare.slm", ntohs(at.sin_port));
    assert_int_equal(setenv("no_proxy", "127.0.0.1", 1), 0);
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void stop_server(void)
{
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    free(server.file);
}

/* ---- stores to begin with ---- */

static char *folder;                       /* of everything */
static char first[512], now[512];          /* the store as it is at first, and the one at hand */
static char base[512], oz[512], shakespeare[512]; /* as .slm */
static char composition_old[LAM_DIGEST_TEXT];

static lam_store *open_store(const char *path)
{
    lam_store_options options = {.folder = path};
    lam_store *store;
    lam_error err;
    assert_ok(lam_store_open(&options, true, &store, &err), err);
    return store;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static int copy_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    char to[1200], bytes[65536];
    (void)type, (void)at;
    snprintf(to, sizeof to, "%s%s", now, path + strlen(first));
    if (S_ISDIR(st->st_mode)) return mkdir(to, 0755);
    if (strstr(path, "/blobs/")) return link(path, to); /* a blob is never written to */
    FILE *from = fopen(path, "rb"), *out = fopen(to, "wb");
    size_t n = from && out ? fread(bytes, 1, sizeof bytes, from) : 0;
    int bad = !from || !out || n == sizeof bytes || fwrite(bytes, 1, n, out) != n;
    if (from) fclose(from);
    if (out && fclose(out) != 0) bad = 1;
    return bad;
}

static void begin_anew(void)
{
    nftw(now, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(nftw(first, copy_one, 16, FTW_PHYS), 0);
}

/* A base with one adapter active, another composition before it, blobs that nobody needs, and an adapter that is not in the store yet. */
static void make_store(const char *path)
{
    lam_error err;
    lam_store_result r;
    lam_store_adapter part = {.source = "oz", .weight = 0.25};
    lam_store *store = open_store(path);
    assert_ok(lam_store_add(store, base, NULL, &r, &err), err);
    assert_ok(lam_store_add(store, oz, NULL, &r, &err), err);
    assert_ok(lam_store_activate(store, "stories", &part, 1, &r, &err), err);
    assert_ok(lam_store_activate(store, "stories", NULL, 0, &r, &err), err);
    part.weight = 0.5;
    assert_ok(lam_store_activate(store, "stories", &part, 1, &r, &err), err);
    strcpy(composition_old, r.digest);
    lam_store_close(store);
}

static int set_up(void **state)
{
    (void)state;
    lam_error err;
    json_set_alloc_funcs(malloc, free); /* as this program has them: the library's allocations count, too */
    folder = test_make_folder();
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(now, sizeof now, "%s/now", folder);
    snprintf(base, sizeof base, "%s/stories.slm", folder);
    snprintf(oz, sizeof oz, "%s/oz.slm", folder);
    snprintf(shakespeare, sizeof shakespeare, "%s/shakespeare.slm", folder);
    assert_ok(lam_import_base(MODEL, base, NULL, &err), err);
    assert_ok(lam_import_adapter("data/adapters/oz", base, oz, NULL, NULL, &err), err);
    assert_ok(lam_import_adapter("data/adapters/shakespeare", base, shakespeare, NULL, NULL, &err), err);
    make_store(first);
    start_server(shakespeare);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    stop_server();
    test_remove_folder(folder);
    return 0;
}

/* ---- what is done ---- */

static lam_code do_add(lam_store *s, lam_error *err)
{
    lam_store_result r;
    return lam_store_add(s, shakespeare, NULL, &r, err);
}

static lam_code do_activate(lam_store *s, lam_error *err)
{
    lam_store_result r;
    lam_store_adapter full = {.source = "oz", .weight = 1.0};
    return lam_store_activate(s, "stories", &full, 1, &r, err);
}

static lam_code do_rollback(lam_store *s, lam_error *err)
{
    lam_store_result r;
    return lam_store_rollback(s, &r, err);
}

static lam_code do_deactivate(lam_store *s, lam_error *err)
{
    lam_store_result r;
    return lam_store_deactivate(s, "oz", &r, err);
}

static lam_code do_gc(lam_store *s, lam_error *err)
{
    lam_store_swept swept;
    return lam_store_gc(s, &swept, err);
}

static lam_code do_pull(lam_store *s, lam_error *err)
{
    lam_transfer_options one = {.connections = 1};
    lam_transfer_report pulled;
    return lam_pull(s, server.url, NULL, NULL, &one, &pulled, err);
}

struct operation {
    const char *name;
    lam_code (*run)(lam_store *s, lam_error *err);
    bool switches;   /* it changes what is active */
    long stride;     /* of the allocations, one in so many fails */
    char result[LAM_DIGEST_TEXT]; /* what is active when it is done */
    long calls, allocations;
};
static struct operation operations[] = {
    {.name = "add", .run = do_add, .stride = 13},
    {.name = "activate", .run = do_activate, .switches = true, .stride = 41},
    {.name = "rollback", .run = do_rollback, .switches = true, .stride = 13},
    {.name = "deactivate", .run = do_deactivate, .switches = true, .stride = 41},
    {.name = "gc", .run = do_gc, .stride = 3},
    {.name = "pull", .run = do_pull, .stride = 13},
};
#define N_OPERATIONS (sizeof operations / sizeof *operations)

/* Runs it undisturbed, and counts its calls. */
static void measure(struct operation *op)
{
    lam_error err;
    lam_store_state state;
    for (int memory = 0; memory < 2; memory++) {
        begin_anew();
        lam_store *s = open_store(now);
        faults_begin(FAULT_COUNT, memory, 0, 0);
        lam_code code = op->run(s, &err);
        faults_end();
        assert_ok(code, err);
        *(memory ? &op->allocations : &op->calls) = faults.counted;
        assert_ok(lam_store_active(s, &state, &err), err);
        strcpy(op->result, state.manifest);
        lam_store_close(s);
    }
    assert_true(op->switches == (strcmp(op->result, composition_old) != 0));
}

/* ---- one fault ---- */

/* In a process of its own: 0 done, 1 refused with an error that has a code and a message, FAULT_EXIT killed; anything else is a defect. */
static int run_child(const struct operation *op, enum fault_mode mode, bool memory, long at, int error)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lam_error err = {0};
        lam_store_options options = {.folder = now};
        lam_store *s;
        if (lam_store_open(&options, false, &s, &err) != LAM_OK) _exit(50);
        faults_begin(mode, memory, at, error);
        lam_code code = op->run(s, &err);
        faults_end();
        lam_store_close(s);
        bool said = err.code == code && err.message[0];
        _exit(code == LAM_OK ? 0 : said ? 1 : 51);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static size_t count_files(const char *path)
{
    char full[700], **names;
    size_t n;
    lam_error err;
    snprintf(full, sizeof full, "%s/%s", now, path);
    lam_code code = lam_list_dir(full, &names, &n, &err);
    if (code == LAM_E_NOT_FOUND) return 0;
    assert_ok(code, err);
    lam_free_names(names, n);
    return n;
}

/* What a dead or failing writer may leave is half-written files and an open journal, and repair leaves nothing of it. */
static void check_fsck(lam_store *s, const char *what)
{
    lam_fault_list found = {0}, left = {0};
    lam_error err;
    lam_code code = lam_store_fsck(s, true, &found, &left, &err);
    for (size_t i = 0; i < found.n; i++)
        if (found.items[i].code != LAM_E_STORE_TEMPORARY && found.items[i].code != LAM_E_STORE_UNFINISHED)
            fail_msg("%s: fsck finds %s, %s: %s", what, lam_code_name(found.items[i].code), found.items[i].subject, found.items[i].what);
    if (code != LAM_OK) fail_msg("%s: fsck does not repair: %s", what, err.message);
    lam_fault_list_release(&found);
    lam_fault_list_release(&left);
}

static void check_active(lam_store *s, const struct operation *op, int status, const char *what)
{
    lam_store_state state;
    lam_store_item item;
    lam_error err;
    if (lam_store_active(s, &state, &err) != LAM_OK) fail_msg("%s: %s", what, err.message);
    bool old = strcmp(state.manifest, composition_old) == 0, new = strcmp(state.manifest, op->result) == 0;
    if (!old && !new) fail_msg("%s: neither the old composition nor the new one is active", what);
    if (status == 0 && !new) fail_msg("%s: it says that it is done, and is not", what);
    if (state.generation != (old ? 3u : 4u)) fail_msg("%s: generation %llu", what, (unsigned long long)state.generation);
    if (lam_store_open_item(s, NULL, &item, &err) != LAM_OK) fail_msg("%s: the active composition cannot be opened: %s", what, err.message);
    lam_store_release_item(&item);
}

/* After gc each file is one that something needs. */
static void check_no_orphans(lam_store *s, const char *what)
{
    lam_store_swept swept;
    struct lam_reach reach;
    lam_error err;
    if (lam_store_gc(s, &swept, &err) != LAM_OK) fail_msg("%s: gc: %s", what, err.message);
    if (lam_reach_read(s, NULL, NULL, &reach, &err) != LAM_OK) fail_msg("%s: %s", what, err.message);
    size_t files = count_files("blobs/sha256"), work = count_files("tmp") + count_files("partial");
    if (files != reach.n || work) fail_msg("%s: %zu blobs of which %zu are needed, %zu temporaries after gc", what, files, reach.n, work);
    lam_reach_release(&reach);
}

static void check_names(lam_store *s, const char *what)
{
    char digest[LAM_DIGEST_TEXT];
    lam_error err;
    if (lam_store_resolve(s, "stories", digest, &err) != LAM_OK || lam_store_resolve(s, "oz", digest, &err) != LAM_OK)
        fail_msg("%s: a name is lost: %s", what, err.message);
}

static void check_next(lam_store *s, const struct operation *op, const char *what)
{
    char *log;
    lam_error err;
    lam_store_state state;
    lam_store_result r;
    if (lam_store_active(s, &state, &err) == LAM_OK && strcmp(state.manifest, composition_old) != 0 && lam_store_rollback(s, &r, &err) != LAM_OK)
        fail_msg("%s: the way back: %s", what, err.message);
    if (op->run(s, &err) != LAM_OK) fail_msg("%s: the next command: %s", what, err.message);
    if (lam_store_log(s, &log, &err) != LAM_OK) fail_msg("%s: %s", what, err.message);
    lam_memory_free(log);
}

static void check_point(const struct operation *op, enum fault_mode mode, bool memory, long at, int error)
{
    static const char *const modes[] = {"", "fails", "kills", "tears", "power goes"};
    char what[100];
    snprintf(what, sizeof what, "%s, %s %ld %s (%s)", op->name, memory ? "allocation" : "call", at, modes[mode], error ? strerror(error) : "-");
    begin_anew();
    int status = run_child(op, mode, memory, at, error);
    bool expected = status == 0 || (mode == FAULT_FAIL ? status == 1 : status == FAULT_EXIT);
    if (!expected) fail_msg("%s: the process ended with %d", what, status);
    lam_store *s = open_store(now);
    check_fsck(s, what);
    check_active(s, op, status, what);
    check_no_orphans(s, what);
    check_names(s, what);
    check_next(s, op, what);
    check_fsck(s, what);
    lam_store_close(s);
}

/* ---- tests ---- */

static const char *part(void) { return getenv("FAULTS"); }
static bool wanted(const char *name) { return !part() || strcmp(part(), name) == 0; }

/* No file takes its place before its bytes are on the disk, and no change is done before its name is. */
static void test_order(void **state)
{
    (void)state;
    lam_error err;
    if (!wanted("order")) skip();
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        begin_anew();
        lam_store *s = open_store(now);
        faults_begin(FAULT_COUNT, false, 0, 0);
        lam_code code = operations[i].run(s, &err);
        long late = faults.late_renames;
        size_t unsynced = faults.unsynced;
        faults_end();
        assert_ok(code, err);
        if (late) fail_msg("%s: %ld files took their place before an fsync", operations[i].name, late);
        if (unsynced) fail_msg("%s: names in %zu folders are not on the disk", operations[i].name, unsynced);
        lam_store_close(s);
    }
}

static void test_files(void **state)
{
    static const struct { enum fault_mode mode; int error; } ways[] = {{FAULT_FAIL, EIO}, {FAULT_FAIL, ENOSPC}, {FAULT_KILL, 0}, {FAULT_TORN, 0}, {FAULT_POWER, 0}};
    (void)state;
    long points = 0;
    if (!wanted("files")) skip();
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        struct operation *op = &operations[i];
        measure(op);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (long at = 1; at <= op->calls; at++, points++) check_point(op, ways[w].mode, false, at, ways[w].error);
        print_message("%s: %ld calls, each in %zu ways\n", op->name, op->calls, sizeof ways / sizeof *ways);
    }
    print_message("%ld points of failure\n", points);
    assert_true(points >= 2000);
}

static void test_memory(void **state)
{
    (void)state;
    long points = 0;
    if (!wanted("memory")) skip();
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        struct operation *op = &operations[i];
        measure(op);
        for (long at = 1; at <= op->allocations; at += op->stride, points++) check_point(op, FAULT_FAIL, true, at, ENOMEM);
        print_message("%s: %ld allocations, one in %ld\n", op->name, op->allocations, op->stride);
    }
    print_message("%ld allocations that failed\n", points);
}

/* The clock goes back by ten years: what came later stays later by its number, and the log can be checked as ever. */
static void test_clock_goes_back(void **state)
{
    (void)state;
    char *log, before[40] = "";
    lam_error err;
    size_t i, n_back = 0;
    for (size_t k = 0; k < N_OPERATIONS; k++) {
        measure(&operations[k]); /* what is active afterwards */
        begin_anew();
        lam_store *s = open_store(now);
        faults_clock = -10L * 365 * 24 * 3600;
        lam_code code = operations[k].run(s, &err);
        assert_ok(code, err);
        check_active(s, &operations[k], 0, operations[k].name);
        check_fsck(s, operations[k].name);
        check_next(s, &operations[k], operations[k].name);
        faults_clock = 0;
        assert_ok(lam_store_log(s, &log, &err), err);
        json_t *lines = json_loads(log, 0, NULL), *line;
        json_array_foreach(lines, i, line) {
            const char *at = json_string_value(json_object_get(line, "at"));
            assert_int_equal(json_integer_value(json_object_get(line, "seq")), i + 1);
            n_back += strcmp(at, before) < 0;
            snprintf(before, sizeof before, "%s", at);
        }
        json_decref(lines);
        lam_memory_free(log);
        lam_store_close(s);
    }
    assert_in_range(n_back, N_OPERATIONS, 2 * N_OPERATIONS); /* it did go back, and forth */
}

/* Writes until nothing more goes onto path's disk. */
static void fill_disk(const char *path)
{
    static const char zeros[4096];
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    for (size_t n = sizeof zeros; n; n /= 2)
        while (write(fd, zeros, n) > 0) continue;
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

static void on_full_disk(const char *filler)
{
    lam_error err;
    lam_store_swept swept;
    make_store(now);
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        struct operation *op = &operations[i];
        lam_store *s = open_store(now);
        fill_disk(filler);
        lam_code code = op->run(s, &err);
        if (op->run != do_gc && code != LAM_E_NO_SPACE) fail_msg("%s on a full disk: %s", op->name, code ? err.message : "done");
        if (op->run == do_gc) assert_ok(code, err); /* it makes room */
        check_active(s, op, code == LAM_OK ? 0 : 1, op->name);
        assert_int_equal(unlink(filler), 0);
        check_fsck(s, op->name);
        check_names(s, op->name);
        assert_ok(lam_store_gc(s, &swept, &err), err);
        check_no_orphans(s, op->name);
        lam_store_close(s);
    }
    lam_store *s = open_store(now);
    for (size_t i = 0; i < N_OPERATIONS; i++) assert_ok(operations[i].run(s, &err), err); /* with room, all of it goes */
    lam_store_close(s);
}

/* A disk of four megabytes, in memory: who may not have one is told that this was not tested. */
static char small[600];

static int remove_disk(void **state)
{
    (void)state;
    umount2(small, MNT_DETACH); /* unless there is none */
    return 0;
}

static void test_full_disk(void **state)
{
    (void)state;
    char kept[sizeof now], filler[700];
    snprintf(small, sizeof small, "%s/small", folder);
    snprintf(filler, sizeof filler, "%s/filler", small);
    assert_int_equal(mkdir(small, 0755), 0);
    if (mount("none", small, "tmpfs", 0, "size=4m") != 0) skip();
    strcpy(kept, now);
    snprintf(now, sizeof now, "%.500s/store", small);
    on_full_disk(filler);
    strcpy(now, kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order),  cmocka_unit_test(test_files),           cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_clock_goes_back), cmocka_unit_test_teardown(test_full_disk, remove_disk)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
