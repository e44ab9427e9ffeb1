/* The cache of imported models: once imported, found again; changed, damaged, crowded out, or fought over by two processes. */
#define _DEFAULT_SOURCE 1 /* fork, kill, setenv, usleep */

#include "format/slm.h"
#include "import/cache.h"
#include "model/model.h"
#include "source_edit.h"

#include <signal.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GOLDEN "tests/golden/"
#define COUNT(array) (sizeof(array) / sizeof *(array))

static char *work, *folder; /* a fresh folder for each test; the cache in it */
static struct lam_cache_options options;

static int set_up(void **state)
{
    (void)state;
    work = test_make_folder();
    folder = path_in(work, "cache");
    options = (struct lam_cache_options){.folder = folder};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_folder(work);
    free(folder);
    return 0;
}

static struct lam_cached open_base(const char *source, bool was_cached)
{
    lam_error err;
    struct lam_cached c;
    assert_ok(lam_cache_open_base(source, &options, &c, &err), err);
    if (c.was_cached != was_cached) fail_msg("%s: %s", source, was_cached ? "imported again" : "found already");
    return c;
}

static void touch_base(const char *source, bool was_cached)
{
    struct lam_cached c = open_base(source, was_cached);
    lam_cache_release(&c);
}

/* A copy of a golden GGUF under another name in work. */
static char *copy_model(const char *golden, const char *name)
{
    char *path = path_in(work, name);
    copy_file(golden, path);
    return path;
}

static size_t count_entries(void)
{
    lam_error err;
    struct lam_cache_entry *entries;
    size_t n;
    assert_ok(lam_cache_list(&options, &entries, &n, &err), err);
    lam_cache_free_list(entries, n);
    return n;
}

static void test_once(void **state)
{
    (void)state;
    static const char *const sources[] = {GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", GOLDEN "llama-bias"};
    char *direct = path_in(work, "direct.slm");
    lam_error err;
    for (size_t i = 0; i < COUNT(sources); i++) {
        struct lam_cached first = open_base(sources[i], false), second = open_base(sources[i], true);
        assert_string_equal(first.path, second.path);
        assert_ok(lam_import_base(sources[i], direct, NULL, &err), err);
        assert_same_files(first.path, direct);
        lam_cache_release(&first);
        lam_cache_release(&second);
    }
    assert_int_equal(count_files(folder), 4); /* two .slm, two .json; no lock is left */
    struct lam_cached own = open_base(direct, true); /* a .slm needs no cache */
    assert_string_equal(own.path, direct);
    lam_cache_release(&own);
    assert_int_equal(count_entries(), 2);
    free(direct);
}

static void test_changed_source(void **state)
{
    (void)state;
    char *model = copy_model(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", "m.gguf");
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000, .tv_nsec = 5}};
    touch_base(model, false);
    touch_base(model, true);
    assert_int_equal(utimensat(AT_FDCWD, model, times, 0), 0); /* same size and inode */
    touch_base(model, false);
    touch_base(model, true);
    free(model);
    char *source = path_in(work, "hf"), *template = path_in(source, "chat_template.jinja");
    const struct source_edit none = {0};
    lam_error err;
    assert_ok(lam_make_dirs(source, &err), err);
    edit_folder(GOLDEN "qwen2-tied", source, &none, NULL);
    touch_base(source, false);
    touch_base(source, true);
    write_file(template, "{{ 1 }}", 7); /* a file more */
    touch_base(source, false);
    touch_base(source, true);
    free(source);
    free(template);
}

static void test_split_parts_count(void **state)
{
    (void)state;
    char *second = path_in(work, "m-00002-of-00002.gguf"), *first = path_in(work, "m-00001-of-00002.gguf");
    for (unsigned part = 1; part <= 2; part++) {
        const struct source_edit split = {.part = part, .n_parts = 2};
        edit_gguf(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", part == 1 ? first : second, &split, NULL);
    }
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000, .tv_nsec = 5}};
    touch_base(first, false);
    touch_base(first, true);
    assert_int_equal(utimensat(AT_FDCWD, second, times, 0), 0);
    touch_base(first, false);
    free(first);
    free(second);
}

static void test_damaged_entry(void **state)
{
    (void)state;
    const char *source = GOLDEN "llama-gqa/llama-gqa-q4_0.gguf";
    struct lam_file_info info;
    lam_error err;
    struct lam_cached c = open_base(source, false);
    char *path = strdup(c.path);
    lam_cache_release(&c);
    assert_ok(lam_file_info(path, &info, &err), err);
    assert_int_equal(truncate(path, (off_t)info.size - 1), 0);
    touch_base(source, false);
    touch_base(source, true);
    write_file(path, "", 0);
    touch_base(source, false);
    struct lam_slm *slm;
    assert_ok(lam_slm_open(path, &slm, &err), err);
    lam_slm_close(slm);
    free(path);
}

static void test_refused_source(void **state)
{
    (void)state;
    const struct source_edit edit = {.drop = "output_norm.weight"};
    char *path = path_in(work, "bad.gguf");
    lam_error err;
    struct lam_cached c = {0};
    edit_gguf(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", path, &edit, NULL);
    assert_int_equal(lam_cache_open_base(path, &options, &c, &err), LAM_E_MISSING_TENSOR);
    assert_null(c.path);
    assert_int_equal(lam_cache_open_base(GOLDEN "nobody.gguf", &options, &c, &err), LAM_E_NOT_FOUND);
    assert_int_equal(lam_cache_open_base(GOLDEN "adapters/llama-gqa/all-r4", &options, &c, &err), LAM_E_ARGUMENT);
    assert_int_equal(count_files(folder), 0);
    free(path);
}

/* ---- limit ---- */

/* Sets the entry's last use. */
static void set_use(const struct lam_cached *c, time_t seconds)
{
    char path[512];
    snprintf(path, sizeof path, "%.*s.json", (int)strlen(c->path) - 4, c->path);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_least_recently_used(void **state)
{
    (void)state;
    char *models[4];
    lam_error err;
    struct lam_file_info info;
    for (int i = 0; i < 4; i++) {
        char name[24];
        snprintf(name, sizeof name, "m%d.gguf", i);
        models[i] = copy_model(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", name);
    }
    for (int i = 0; i < 3; i++) {
        struct lam_cached c = open_base(models[i], false);
        set_use(&c, 2000 - i); /* the last one was used longest ago */
        assert_ok(lam_file_info(c.path, &info, &err), err);
        lam_cache_release(&c);
    }
    struct lam_cached held = open_base(models[2], true); /* a use; and it is held */
    set_use(&held, 1);
    options.max_bytes = info.size * 3 + info.size / 2;
    touch_base(models[3], false); /* room for three: models[1] goes, since models[2] is held */
    assert_int_equal(count_entries(), 3);
    assert_true(lam_path_exists(held.path));
    touch_base(models[0], true);
    touch_base(models[3], true);
    touch_base(models[2], true);
    lam_cache_release(&held);
    struct lam_cache_entry *entries;
    size_t n;
    assert_ok(lam_cache_list(&options, &entries, &n, &err), err);
    for (size_t i = 0; i < n; i++) {
        assert_null(strstr(entries[i].source, "m1.gguf"));
        assert_true(entries[i].last_use > 1000000000); /* found again is used again */
    }
    lam_cache_free_list(entries, n);
    for (int i = 0; i < 4; i++) free(models[i]);
}

static void test_entry_beyond_limit(void **state)
{
    (void)state;
    lam_error err;
    struct lam_cached c;
    touch_base(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", false);
    options.max_bytes = 1000;
    assert_int_equal(lam_cache_open_base(GOLDEN "llama-k/llama-k-kmix.gguf", &options, &c, &err), LAM_E_LIMIT);
    assert_non_null(strstr(err.message, "1000"));
}

static void test_environment(void **state)
{
    (void)state;
    lam_error err;
    struct lam_cached c;
    char *path, *xdg = path_in(work, "xdg"), *home = path_in(work, "home"), *in_xdg = path_in(xdg, "lamina"),
         *in_home = path_in(home, ".cache/lamina");
    setenv("LAMINA_CACHE", folder, 1);
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("HOME", home, 1);
    assert_ok(lam_cache_folder(NULL, &path, &err), err);
    assert_string_equal(path, folder);
    lam_free(path);
    assert_ok(lam_cache_open_base(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", NULL, &c, &err), err);
    assert_memory_equal(c.path, folder, strlen(folder));
    lam_cache_release(&c);
    unsetenv("LAMINA_CACHE");
    assert_ok(lam_cache_folder(NULL, &path, &err), err);
    assert_string_equal(path, in_xdg);
    lam_free(path);
    unsetenv("XDG_CACHE_HOME");
    assert_ok(lam_cache_folder(NULL, &path, &err), err);
    assert_string_equal(path, in_home);
    lam_free(path);
    unsetenv("HOME");
    assert_int_equal(lam_cache_folder(NULL, &path, &err), LAM_E_ARGUMENT);
    static const struct {
        const char *text;
        lam_code code;
    } limits[] = {{"20G", LAM_OK}, {"3000k", LAM_OK}, {"5000000", LAM_OK}, {"1T", LAM_OK}, {"10k", LAM_E_LIMIT}, {"2000", LAM_E_LIMIT},
                  {"many", LAM_E_ARGUMENT}, {"20GB", LAM_E_ARGUMENT}, {"-1", LAM_E_ARGUMENT}, {"0", LAM_E_ARGUMENT},
                  {"99999999999999999999999", LAM_E_ARGUMENT}, {"G", LAM_E_ARGUMENT}, {"99999999T", LAM_E_ARGUMENT}};
    for (size_t i = 0; i < COUNT(limits); i++) {
        struct lam_cache_cleared cleared;
        setenv("LAMINA_CACHE_MAX", limits[i].text, 1);
        lam_code code = lam_cache_open_base(GOLDEN "llama-gqa/llama-gqa-q8_0.gguf", &options, &c, &err);
        if (code != limits[i].code) fail_msg("LAMINA_CACHE_MAX=%s: %s", limits[i].text, lam_code_name(code));
        lam_cache_release(&c);
        assert_ok(lam_cache_clear(&options, NULL, &cleared, &err), err);
    }
    unsetenv("LAMINA_CACHE_MAX");
    free(xdg);
    free(home);
    free(in_xdg);
    free(in_home);
}

/* ---- list and clear ---- */

static void test_list_and_clear(void **state)
{
    (void)state;
    lam_error err;
    struct lam_cache_entry *entries;
    struct lam_cache_cleared cleared;
    size_t n;
    assert_ok(lam_cache_list(&options, &entries, &n, &err), err); /* no folder yet */
    assert_int_equal(n, 0);
    lam_cache_free_list(entries, n);
    assert_ok(lam_cache_clear(&options, NULL, &cleared, &err), err);
    struct lam_cached a = open_base(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", false), b = open_base(GOLDEN "llama-bias", false);
    set_use(&a, 1000);
    set_use(&b, 2000);
    assert_ok(lam_cache_list(&options, &entries, &n, &err), err);
    assert_int_equal(n, 2);
    assert_int_equal(entries[0].last_use, 1000);
    assert_int_equal(entries[1].last_use, 2000);
    assert_non_null(strstr(entries[0].source, "/" GOLDEN "llama-gqa/llama-gqa-q4_0.gguf"));
    assert_non_null(strstr(entries[1].source, "/" GOLDEN "llama-bias"));
    assert_false(entries[0].is_adapter);
    struct lam_file_info info;
    assert_ok(lam_file_info(a.path, &info, &err), err);
    assert_int_equal(entries[0].bytes, info.size);
    char key[16];
    snprintf(key, sizeof key, "%.10s", entries[1].key);
    lam_cache_free_list(entries, n);

    lam_cache_release(&a);
    assert_ok(lam_cache_clear(&options, NULL, &cleared, &err), err); /* b is in use */
    assert_int_equal(cleared.n_removed, 1);
    assert_int_equal(cleared.n_in_use, 1);
    assert_int_equal(cleared.bytes, info.size);
    lam_cache_release(&b);
    assert_int_equal(lam_cache_clear(&options, "nobody", &cleared, &err), LAM_E_NOT_FOUND);
    touch_base(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", false);
    assert_ok(lam_cache_clear(&options, GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", &cleared, &err), err);
    assert_int_equal(cleared.n_removed, 1);
    touch_base(GOLDEN "llama-bias", true);
    assert_ok(lam_cache_clear(&options, key, &cleared, &err), err);
    assert_int_equal(cleared.n_removed, 1);
    assert_int_equal(count_files(folder), 0);
}

/* ---- several processes ---- */

static bool slow(void *context, const char *stage, uint64_t done, uint64_t total)
{
    (void)context, (void)stage, (void)done, (void)total;
    usleep(200000);
    return true;
}

static void test_two_processes(void **state)
{
    (void)state;
    const char *source = GOLDEN "llama-gqa/llama-gqa-q4_0.gguf";
    pid_t children[3];
    int imported = 0;
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct lam_cached c;
            options.progress = slow;
            lam_code code = lam_cache_open_base(source, &options, &c, NULL);
            _exit(code != LAM_OK ? 100 : c.was_cached ? 1 : 2);
        }
    }
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 2));
        imported += WEXITSTATUS(status) == 2;
    }
    assert_int_equal(imported, 1);
    touch_base(source, true);
    assert_int_equal(count_files(folder), 2);
}

static bool die(void *context, const char *stage, uint64_t done, uint64_t total)
{
    (void)context, (void)stage;
    if (done > 0 && done <= total) kill(getpid(), SIGKILL);
    return true;
}

/* A process killed in mid-import leaves its unfinished file and the lock file, but holds nothing. */
static void test_killed(void **state)
{
    (void)state;
    const char *source = GOLDEN "llama-gqa/llama-gqa-q4_0.gguf";
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct lam_cached c;
        options.progress = die;
        lam_cache_open_base(source, &options, &c, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count_entries(), 0);
    assert_true(count_files(folder) > 0);
    touch_base(source, false);
    touch_base(source, true);
    assert_int_equal(count_files(folder), 2);
}

/* ---- adapters ---- */

static void test_adapters(void **state)
{
    (void)state;
    lam_error err;
    struct lam_cached base = open_base(GOLDEN "llama-gqa", false), other = open_base(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", false), a, b;
    struct lam_model *m, *n;
    struct lam_adapter_report report;
    const char *source = GOLDEN "adapters/llama-gqa/all-r4";
    assert_ok(lam_model_open(base.path, NULL, &m, &err), err);
    assert_ok(lam_model_open(other.path, NULL, &n, &err), err);
    assert_ok(lam_cache_open_adapter(source, base.path, m->base_digest, &options, &a, &report, &err), err);
    assert_false(a.was_cached);
    assert_true(report.n_tensors > 0);
    assert_int_equal(report.n_applied, report.n_tensors);
    assert_ok(lam_cache_open_adapter(source, base.path, m->base_digest, &options, &b, NULL, &err), err);
    assert_true(b.was_cached);
    assert_string_equal(a.path, b.path);
    lam_cache_release(&b);
    assert_ok(lam_cache_open_adapter(source, other.path, n->base_digest, &options, &b, NULL, &err), err); /* another base */
    assert_false(b.was_cached);
    assert_string_not_equal(a.path, b.path);
    struct lam_cache_entry *entries;
    size_t count, adapters = 0;
    assert_ok(lam_cache_list(&options, &entries, &count, &err), err);
    for (size_t i = 0; i < count; i++) adapters += entries[i].is_adapter;
    assert_int_equal(count, 4);
    assert_int_equal(adapters, 2);
    lam_cache_free_list(entries, count);
    lam_cache_release(&a);
    lam_cache_release(&b);
    lam_cache_release(&base);
    lam_cache_release(&other);
    lam_model_close(m);
    lam_model_close(n);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_once), TEST(test_changed_source), TEST(test_split_parts_count), TEST(test_damaged_entry), TEST(test_refused_source),
        TEST(test_least_recently_used), TEST(test_entry_beyond_limit), TEST(test_environment), TEST(test_list_and_clear),
        TEST(test_two_processes), TEST(test_killed), TEST(test_adapters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
