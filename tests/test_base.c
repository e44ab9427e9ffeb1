/* The ground layer: SHA-256, checked allocation, the cursor, the thread pool, the writer and the mapping. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE

#include "support.h"

#include "base/alloc.h"
#include "base/cursor.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/sha256.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- SHA-256 ---- */

static void check_sha256(const void *bytes, size_t n, const char *hex)
{
    uint8_t digest[LAM_SHA256_BYTES];
    char text[LAM_DIGEST_TEXT];
    lam_sha256(bytes, n, digest);
    lam_digest_text(digest, text);
    assert_memory_equal(text, "sha256:", 7);
    assert_string_equal(text + 7, hex);
}

/* FIPS 180-4's examples as NIST publishes them (SHA256.pdf), and SHA256ShortMsg's empty message. */
static void test_sha256_vectors(void **state)
{
    (void)state;
    check_sha256("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_sha256("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    check_sha256(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

/* In pieces of any length: the same as at once, for every length around the block's ends. */
static void test_sha256_pieces(void **state)
{
    (void)state;
    uint8_t bytes[300], whole[LAM_SHA256_BYTES], pieces[LAM_SHA256_BYTES];
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)test_random(&random);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        struct lam_sha256 s;
        lam_sha256_init(&s);
        for (size_t at = 0, take; at < n; at += take) {
            take = test_random(&random) % 80;
            if (take > n - at) take = n - at;
            lam_sha256_update(&s, bytes + at, take);
        }
        lam_sha256_final(&s, pieces);
        lam_sha256(bytes, n, whole);
        assert_memory_equal(pieces, whole, sizeof whole);
    }
}

/* ---- allocation and cursor ---- */

static void test_alloc(void **state)
{
    (void)state;
    size_t out = 1;
    /* volatile: the compiler may not see that these cannot fit */
    volatile size_t half = SIZE_MAX / 2 + 1, all = SIZE_MAX;
    assert_null(lam_alloc(half, 2));
    assert_null(lam_alloc_aligned(all));
    assert_false(lam_mul_size(half, 2, &out));
    assert_false(lam_add_size(all, 1, &out));
    assert_false(lam_round_up(SIZE_MAX - 2, 64, &out));
    assert_true(lam_mul_size(SIZE_MAX / 3, 3, &out) && out == SIZE_MAX / 3 * 3);
    assert_true(lam_round_up(65, 64, &out) && out == 128);
    assert_true(lam_round_up(0, 64, &out) && out == 0);
    uint8_t *nothing = lam_alloc(0, 8), *block = lam_alloc(7, 3), *aligned = lam_alloc_aligned(100);
    assert_non_null(nothing);
    assert_non_null(block);
    assert_non_null(aligned);
    assert_int_equal((uintptr_t)aligned % 64, 0);
    for (size_t i = 0; i < 21; i++) assert_int_equal(block[i], 0);
    for (size_t i = 0; i < 100; i++) assert_int_equal(aligned[i], 0);
    block[20] = 5;
    assert_null(lam_realloc(block, half, 2)); /* and the block is still ours */
    block = lam_realloc(block, 1000, 1);
    assert_non_null(block);
    assert_int_equal(block[20], 5);
    lam_free(nothing);
    lam_free(block);
    lam_free_aligned(aligned);
}

static void test_cursor(void **state)
{
    (void)state;
    const uint8_t bytes[] = {1, 0x34, 0x12, 0x78, 0x56, 0x34, 0x92, 8, 7, 6, 5, 4, 3, 2, 0xF1, 9};
    struct lam_cursor c = lam_cursor_init(bytes, sizeof bytes), empty = lam_cursor_init(NULL, 0);
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    const uint8_t *p = NULL;
    assert_true(lam_cursor_u8(&c, &u8) && u8 == 1);
    assert_true(lam_cursor_u16(&c, &u16) && u16 == 0x1234);
    assert_true(lam_cursor_u32(&c, &u32) && u32 == 0x92345678);
    assert_true(lam_cursor_u64(&c, &u64) && u64 == 0xF102030405060708);
    assert_int_equal(lam_cursor_offset(&c), 15);
    assert_false(lam_cursor_u16(&c, &u16) || lam_cursor_u32(&c, &u32) || lam_cursor_u64(&c, &u64));
    assert_false(lam_cursor_bytes(&c, 2, &p) || lam_cursor_bytes(&c, UINT64_MAX, &p));
    assert_int_equal(lam_cursor_left(&c), 1); /* where it was */
    assert_null(p);
    assert_true(lam_cursor_bytes(&c, 1, &p) && p == bytes + 15);
    assert_true(lam_cursor_bytes(&c, 0, &p) && lam_cursor_left(&c) == 0);
    assert_false(lam_cursor_u8(&c, &u8) || lam_cursor_u8(&empty, &u8));
    assert_int_equal(lam_cursor_left(&empty), 0);
    uint8_t out[8];
    lam_store_u64(out, 0xF102030405060708);
    assert_memory_equal(out, bytes + 7, 8);
}

/* ---- pool ---- */

#define ITEMS 1000

struct shared {
    unsigned threads;
    atomic_uint count[ITEMS];
    uint32_t plain[ITEMS]; /* written without atomics: each item has one owner, and run returns after all of them */
    atomic_uint out_of_range;
};

static void touch(void *context, size_t item, unsigned thread)
{
    struct shared *s = context;
    if (item >= ITEMS || thread >= s->threads) atomic_fetch_add(&s->out_of_range, 1);
    else {
        atomic_fetch_add(&s->count[item], 1);
        s->plain[item] += (uint32_t)item;
    }
}

static void test_pool(void **state)
{
    (void)state;
    static const unsigned counts[] = {1, 2, 3, 8};
    lam_error err;
    for (size_t k = 0; k < 4; k++) {
        struct shared *s = calloc(1, sizeof *s);
        struct lam_pool *p;
        assert_non_null(s);
        s->threads = counts[k];
        assert_ok(lam_pool_new(counts[k], &p, &err), err);
        assert_int_equal(lam_pool_threads(p), counts[k]);
        const size_t sizes[] = {0, 1, 2, 7, ITEMS};
        for (int round = 0; round < 300; round++) {
            if (round % 100 == 99) usleep(2000); /* let the workers park */
            lam_pool_run(p, sizes[round % 5], touch, s);
        }
        for (uint32_t i = 0; i < ITEMS; i++) {
            unsigned want = 60 * ((i < 1) + (i < 2) + (i < 7) + 1);
            assert_int_equal(atomic_load(&s->count[i]), want);
            assert_int_equal(s->plain[i], want * i);
        }
        assert_int_equal(atomic_load(&s->out_of_range), 0);
        lam_pool_free(p);
        free(s);
    }
    struct lam_pool *none;
    assert_int_equal(lam_pool_new(0, &none, &err), LAM_E_ARGUMENT);
    assert_null(none);
    assert_int_equal(lam_pool_new(1025, &none, &err), LAM_E_ARGUMENT);
    lam_pool_free(NULL);
}

/* ---- writer and mapping ---- */

static void join(char out[512], const char *folder, const char *name) { snprintf(out, 512, "%s/%s", folder, name); }

static size_t files_in(const char *folder)
{
    char command[600];
    unsigned n = 0;
    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%u", &n), 1);
    pclose(f);
    return n;
}

static void assert_content(const char *path, const char *want)
{
    size_t size;
    uint8_t *bytes = test_read_file(path, &size);
    assert_int_equal(size, strlen(want));
    assert_memory_equal(bytes, want, size);
    free(bytes);
}

static void write_all(const char *path, const char *text)
{
    struct lam_writer *w;
    lam_error err;
    assert_ok(lam_writer_open(path, &w, &err), err);
    assert_ok(lam_writer_write(w, text, strlen(text), &err), err);
    assert_ok(lam_writer_commit(w, &err), err);
}

/* Until the commit the old file stands; an abort leaves nothing behind. */
/* Portions of any size beside blocks of any size, and patches between them: the file is what was written. */
static void test_writer_portions(void **state)
{
    (void)state;
    const size_t size = (size_t)9 << 20;
    char *folder = test_make_folder(), path[512];
    uint8_t *want = malloc(size);
    uint64_t random = 5;
    lam_error err;
    struct lam_writer *w;
    assert_non_null(want);
    for (size_t i = 0; i < size; i++) want[i] = (uint8_t)test_random(&random);
    snprintf(path, sizeof path, "%s/portions", folder);
    assert_ok(lam_writer_open(path, &w, &err), err);
    for (size_t at = 0, n, part = 0; at < size; at += n, part++) {
        n = test_random(&random) % (part % 4 == 0 ? (size_t)3 << 20 : 100000);
        if (n > size - at) n = size - at;
        assert_ok(lam_writer_write(w, want + at, n, &err), err);
        assert_int_equal(lam_writer_offset(w), at + n);
        if (part % 8 != 5) continue;
        size_t end = at + n, from = test_random(&random) % end, len = end - from < 5000 ? end - from : 5000;
        for (size_t i = from; i < from + len; i++) want[i] ^= 0x55;
        assert_ok(lam_writer_patch(w, from, want + from, len, &err), err);
    }
    assert_ok(lam_writer_commit(w, &err), err);
    size_t got_size;
    uint8_t *got = test_read_file(path, &got_size);
    assert_int_equal(got_size, size);
    assert_memory_equal(got, want, size);
    free(got);
    free(want);
    test_remove_folder(folder);
}

static void test_writer(void **state)
{
    (void)state;
    char *folder = test_make_folder(), path[512];
    struct lam_writer *w;
    lam_error err;
    join(path, folder, "file");
    write_all(path, "old");
    assert_content(path, "old");
    assert_ok(lam_writer_open(path, &w, &err), err);
    assert_ok(lam_writer_write(w, "new file", 8, &err), err);
    assert_ok(lam_writer_patch(w, 4, "FI", 2, &err), err);
    assert_int_equal(lam_writer_offset(w), 8);
    assert_content(path, "old");
    lam_writer_abort(w);
    assert_content(path, "old");
    assert_int_equal(files_in(folder), 1);
    assert_ok(lam_writer_open(path, &w, &err), err);
    assert_ok(lam_writer_write(w, "new file", 8, &err), err);
    assert_ok(lam_writer_patch(w, 4, "FI", 2, &err), err);
    assert_ok(lam_writer_commit(w, &err), err);
    assert_content(path, "new FIle");
    assert_int_equal(files_in(folder), 1);
    lam_writer_abort(NULL);

    join(path, folder, "missing/file");
    assert_int_equal(lam_writer_open(path, &w, &err), LAM_E_NOT_FOUND);
    join(path, folder, "a/b/c");
    assert_ok(lam_make_dirs(path, &err), err);
    assert_ok(lam_make_dirs(path, &err), err);
    assert_true(lam_path_is_dir(path));
    assert_ok(lam_writer_open(path, &w, &err), err); /* the target is a folder: the rename fails and tidies up */
    assert_int_not_equal(lam_writer_commit(w, &err), LAM_OK);
    join(path, folder, "a/b");
    assert_int_equal(files_in(path), 1);
    test_remove_folder(folder);
}

static void map(const char *path, struct lam_mapping *m)
{
    lam_error err;
    write_all(path, "sixteen bytes ..");
    assert_ok(lam_map_file(path, m, &err), err);
    assert_ok(lam_mapping_check(m, &err), err);
    assert_int_equal(m->size, 16);
    assert_memory_equal(m->data, "sixteen bytes ..", 16);
}

static void assert_changed(struct lam_mapping *m, const char *word)
{
    lam_error err;
    assert_int_equal(lam_mapping_check(m, &err), LAM_E_CHANGED);
    assert_non_null(strstr(err.message, word));
    lam_unmap_file(m);
}

static void set_times(const char *path, const struct lam_mapping *m)
{
    struct timespec times[2];
    times[0].tv_sec = times[1].tv_sec = (time_t)(m->mtime_ns / 1000000000u);
    times[0].tv_nsec = times[1].tv_nsec = (long)(m->mtime_ns % 1000000000u);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_mapping_changes(void **state)
{
    (void)state;
    char *folder = test_make_folder(), path[512], other[512];
    struct lam_mapping m;
    lam_error err;
    join(path, folder, "file");
    join(other, folder, "other");
    map(path, &m);
    assert_int_equal(truncate(path, 0), 0);
    set_times(path, &m); /* the length alone tells */
    assert_changed(&m, "16 bytes");
    map(path, &m);
    assert_int_equal(truncate(path, 20), 0);
    assert_changed(&m, "20");
    map(path, &m);
    write_all(path, "sixteen bytes ,,"); /* by rename, same length */
    set_times(path, &m);
    assert_changed(&m, "replaced");
    map(path, &m);
    assert_int_equal(unlink(path), 0);
    assert_changed(&m, "gone");
    map(path, &m);
    usleep(20000); /* the clock of file times is coarse */
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fputc('S', f), 'S');
    fclose(f);
    assert_changed(&m, "written");
    map(path, &m);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(rename(other, path), 0); /* moved away and back: the same file */
    assert_ok(lam_mapping_check(&m, &err), err);
    lam_unmap_file(&m);
    lam_unmap_file(&m); /* twice does no harm */
    test_remove_folder(folder);
}

static void test_mapping_refusals(void **state)
{
    (void)state;
    char *folder = test_make_folder(), path[512];
    struct lam_mapping m;
    lam_error err;
    join(path, folder, "nothing");
    assert_int_equal(lam_map_file(path, &m, &err), LAM_E_NOT_FOUND);
    assert_null(m.data);
    assert_int_equal(lam_map_file(folder, &m, &err), LAM_E_IO);
    write_all(path, "");
    assert_ok(lam_map_file(path, &m, &err), err);
    assert_true(m.size == 0 && m.data == NULL);
    assert_ok(lam_mapping_check(&m, &err), err);
    lam_unmap_file(&m);
    test_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_vectors), cmocka_unit_test(test_sha256_pieces), cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_cursor), cmocka_unit_test(test_pool), cmocka_unit_test(test_writer), cmocka_unit_test(test_writer_portions),
        cmocka_unit_test(test_mapping_changes), cmocka_unit_test(test_mapping_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
