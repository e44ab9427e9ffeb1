#include "alloc_meter.h"
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/json.h"
#include "base/os.h"
#include "format/gguf.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DIR "tests/data/format/"

/* The bound of format/gguf.h. */
static size_t memory_bound(size_t file_bytes) { return 8 * file_bytes + 4096; }

static void assert_digest_of(const uint8_t *bytes, size_t len, const char *hex)
{
    uint8_t digest[32];
    char text[LAM_DIGEST_TEXT];
    lam_sha256(bytes, len, digest);
    lam_digest_text(digest, text);
    assert_string_equal(text + 7, hex);
}

/* ---- what the gguf Python package wrote ---- */

static void check_tensors(const struct lam_gguf *g)
{
    size_t len;
    lam_error err;
    json_t *golden, *told;
    size_t i;
    uint8_t *text = test_read_file(DIR "python.gguf.json", &len);
    assert_ok(lam_json_parse((const char *)text, len, "python.gguf.json", &golden, &err), err);
    json_t *list = json_object_get(golden, "tensors");
    assert_int_equal(g->n_tensors, json_array_size(list));
    json_array_foreach(list, i, told) {
        const struct lam_gguf_tensor *t = lam_gguf_find_tensor(g, json_string_value(json_object_get(told, "name")));
        assert_non_null(t);
        assert_ptr_equal(t, &g->tensors[i]);
        assert_string_equal(lam_dtype_info(t->dtype)->name, json_string_value(json_object_get(told, "dtype")));
        json_t *dims = json_object_get(told, "dims");
        assert_int_equal(t->n_dims, json_array_size(dims));
        for (size_t d = 0; d < 4; d++) assert_int_equal(t->dims[d], d < t->n_dims ? json_integer_value(json_array_get(dims, d)) : 1);
        assert_digest_of(t->data, t->bytes, json_string_value(json_object_get(told, "sha256")));
    }
    json_decref(golden);
    free(text);
}

static struct lam_gguf *open_golden(const char *path)
{
    struct lam_gguf *g;
    lam_error err;
    assert_ok(lam_gguf_open(path, &g, &err), err);
    return g;
}

static void test_python_tensors(void **state)
{
    (void)state;
    static const char *const files[] = {DIR "python.gguf", DIR "aligned.gguf", DIR "split-00001-of-00003.gguf"};
    for (size_t i = 0; i < 3; i++) {
        struct lam_gguf *g = open_golden(files[i]);
        check_tensors(g);
        assert_int_equal(g->n_files, i == 2 ? 3 : 1);
        assert_int_equal(g->alignment, i == 1 ? 128 : 32);
        assert_null(lam_gguf_find_tensor(g, "absent"));
        lam_gguf_close(g);
    }
}

static void assert_item(const struct lam_gguf *g, const char *key, uint64_t i, double value)
{
    double got = 0;
    lam_error err;
    const struct lam_gguf_kv *kv = lam_gguf_find(g, key);
    assert_non_null(kv);
    assert_ok(lam_gguf_item_f64(kv, i, &got, &err), err);
    assert_true(got == value);
}

static void test_python_keys(void **state)
{
    (void)state;
    struct lam_gguf *g = open_golden(DIR "python.gguf");
    assert_item(g, "t.u8", 0, 200);
    assert_item(g, "t.i8", 0, -100);
    assert_item(g, "t.u16", 0, 60000);
    assert_item(g, "t.i16", 0, -30000);
    assert_item(g, "t.u32", 0, 4000000000.0);
    assert_item(g, "t.i32", 0, -2000000000.0);
    assert_item(g, "t.u64", 0, 0x1p63);
    assert_item(g, "t.i64", 0, -0x1p62);
    assert_item(g, "t.f32", 0, (double)0.1f);
    assert_item(g, "t.f64", 0, 0.1);
    assert_item(g, "t.ints", 1, -2);
    assert_item(g, "t.floats", 1, -0.25);
    assert_item(g, "t.bools", 0, 1);
    assert_item(g, "t.bools", 1, 0);
    const struct lam_gguf_kv *strings = lam_gguf_find(g, "t.strings");
    static const char *const expected[] = {"a", "", "h\xc3\xa9llo"};
    const uint8_t *at = strings->value;
    const char *text;
    size_t len, n = 0;
    while (lam_gguf_next_string(strings, &at, &text, &len)) {
        assert_int_equal(len, strlen(expected[n]));
        assert_memory_equal(text, expected[n], len);
        n++;
    }
    assert_int_equal(n, 3);
    assert_int_equal(strings->count, 3);
    lam_gguf_close(g);
}

static void test_scalar_getters(void **state)
{
    (void)state;
    struct lam_gguf *g = open_golden(DIR "python.gguf");
    lam_error err;
    uint32_t u = 7;
    float f = 7;
    bool b = false;
    const char *text = NULL;
    size_t len = 0;
    assert_ok(lam_gguf_u32(g, "t.u8", true, &u, &err), err);
    assert_int_equal(u, 200);
    assert_ok(lam_gguf_u32(g, "t.u32", true, &u, &err), err);
    assert_int_equal(u, 4000000000u);
    assert_ok(lam_gguf_u32(g, "absent", false, &u, &err), err);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(lam_gguf_u32(g, "absent", true, &u, &err), LAM_E_NOT_FOUND);
    assert_int_equal(lam_gguf_u32(g, "t.i8", true, &u, &err), LAM_E_FORMAT);
    assert_non_null(strstr(err.message, "-100"));
    assert_int_equal(lam_gguf_u32(g, "t.u64", true, &u, &err), LAM_E_FORMAT);
    assert_int_equal(lam_gguf_u32(g, "t.yes", true, &u, &err), LAM_E_FORMAT);
    assert_int_equal(lam_gguf_u32(g, "t.f32", true, &u, &err), LAM_E_FORMAT);
    assert_int_equal(lam_gguf_u32(g, "t.ints", true, &u, &err), LAM_E_FORMAT);
    assert_ok(lam_gguf_f32(g, "t.f32", true, &f, &err), err);
    assert_true(f == 0.1f);
    assert_ok(lam_gguf_f32(g, "t.f64", true, &f, &err), err);
    assert_true(f == 0.1f);
    assert_int_equal(lam_gguf_f32(g, "t.u8", true, &f, &err), LAM_E_FORMAT);
    assert_ok(lam_gguf_bool(g, "t.yes", true, &b, &err), err);
    assert_true(b);
    assert_ok(lam_gguf_bool(g, "t.no", true, &b, &err), err);
    assert_false(b);
    assert_int_equal(lam_gguf_bool(g, "t.u8", true, &b, &err), LAM_E_FORMAT);
    assert_ok(lam_gguf_string(g, "t.text", true, &text, &len, &err), err);
    assert_int_equal(len, 15);
    assert_memory_equal(text, "Gr\xc3\xbc\xc3\x9f" "e, \xe4\xb8\x96\xe7\x95\x8c", 15);
    assert_int_equal(lam_gguf_string(g, "t.strings", true, &text, &len, &err), LAM_E_FORMAT);
    lam_gguf_close(g);
}

static lam_code fill_from(void *context, size_t index, uint8_t *buffer, size_t bytes, lam_error *err)
{
    const struct lam_gguf *g = context;
    (void)err;
    assert_int_equal(bytes, g->tensors[index].bytes);
    memcpy(buffer, g->tensors[index].data, bytes);
    return LAM_OK;
}

/* Our writer, given what the reader found, must give the Python package's bytes again. */
static void test_write_equals_python(void **state)
{
    (void)state;
    static const char *const files[] = {DIR "python.gguf", DIR "aligned.gguf"};
    char *folder = test_make_folder(), *path = lam_path_join(folder, "out.gguf");
    for (size_t f = 0; f < 2; f++) {
        struct lam_gguf *g = open_golden(files[f]);
        struct lam_gguf_out *o;
        lam_error err;
        assert_ok(lam_gguf_out_new(&o, &err), err);
        for (size_t i = 0; i < g->n_kvs; i++) {
            const struct lam_gguf_kv *kv = &g->kvs[i];
            assert_ok(lam_gguf_out_kv(o, kv->key, kv->key_len, kv->type, kv->item_type, kv->count, kv->value, kv->value_bytes, &err), err);
        }
        for (size_t i = 0; i < g->n_tensors; i++) {
            const struct lam_gguf_tensor *t = &g->tensors[i];
            assert_ok(lam_gguf_out_tensor(o, t->name, t->dtype, t->n_dims, t->dims, &err), err);
        }
        assert_ok(lam_gguf_out_write(o, path, fill_from, g, &err), err);
        lam_gguf_out_free(o);
        lam_gguf_close(g);
        size_t written, expected;
        uint8_t *a = test_read_file(path, &written), *b = test_read_file(files[f], &expected);
        assert_int_equal(written, expected);
        assert_memory_equal(a, b, expected);
        free(a);
        free(b);
    }
    lam_free(path);
    test_remove_folder(folder);
}

static void test_write_typed(void **state)
{
    (void)state;
    char *folder = test_make_folder(), *path = lam_path_join(folder, "out.gguf");
    struct lam_gguf_out *o;
    lam_error err;
    const uint64_t dims[4] = {2, 1, 1, 1}, odd[4] = {33, 1, 1, 1};
    assert_ok(lam_gguf_out_new(&o, &err), err);
    assert_ok(lam_gguf_out_u32(o, "u", 5, &err), err);
    assert_ok(lam_gguf_out_f32(o, "f", 1.5f, &err), err);
    assert_ok(lam_gguf_out_bool(o, "b", true, &err), err);
    assert_ok(lam_gguf_out_string(o, "s", "hi", 2, &err), err);
    assert_int_equal(lam_gguf_out_tensor(o, "q", LAM_Q8_0, 1, odd, &err), LAM_E_SHAPE);
    assert_ok(lam_gguf_out_write(o, path, fill_from, NULL, &err), err);
    struct lam_gguf *g = open_golden(path);
    assert_item(g, "u", 0, 5);
    assert_item(g, "f", 0, 1.5);
    assert_item(g, "b", 0, 1);
    lam_gguf_close(g);
    assert_ok(lam_gguf_out_u32(o, "u", 6, &err), err);
    assert_int_equal(lam_gguf_out_write(o, path, fill_from, NULL, &err), LAM_E_DUPLICATE);
    lam_gguf_out_free(o);
    assert_ok(lam_gguf_out_new(&o, &err), err);
    assert_ok(lam_gguf_out_tensor(o, "x", LAM_F32, 1, dims, &err), err);
    assert_ok(lam_gguf_out_tensor(o, "x", LAM_F32, 1, dims, &err), err);
    assert_int_equal(lam_gguf_out_write(o, path, fill_from, NULL, &err), LAM_E_DUPLICATE);
    lam_gguf_out_free(o);
    lam_free(path);
    test_remove_folder(folder);
}

/* ---- hostile files, put together by hand ---- */

static void put_u32(struct lam_str *f, uint32_t v)
{
    uint8_t b[4];
    lam_store_u32(b, v);
    lam_str_append(f, b, 4);
}

static void put_u64(struct lam_str *f, uint64_t v)
{
    uint8_t b[8];
    lam_store_u64(b, v);
    lam_str_append(f, b, 8);
}

static void put_text(struct lam_str *f, const char *text)
{
    put_u64(f, strlen(text));
    lam_str_puts(f, text);
}

static void begin(struct lam_str *f, uint32_t version, uint64_t n_tensors, uint64_t n_kvs)
{
    lam_str_clear(f);
    lam_str_puts(f, "GGUF");
    put_u32(f, version);
    put_u64(f, n_tensors);
    put_u64(f, n_kvs);
}

static void put_kv(struct lam_str *f, const char *key, uint32_t type)
{
    put_text(f, key);
    put_u32(f, type);
}

static void put_kv_u32(struct lam_str *f, const char *key, uint32_t value)
{
    put_kv(f, key, LAM_GGUF_U32);
    put_u32(f, value);
}

static void put_tensor(struct lam_str *f, const char *name, uint32_t n_dims, uint64_t dim0, uint64_t dim1, uint32_t type, uint64_t offset)
{
    put_text(f, name);
    put_u32(f, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++) put_u64(f, i == 0 ? dim0 : i == 1 ? dim1 : 1);
    put_u32(f, type);
    put_u64(f, offset);
}

static void put_data(struct lam_str *f, size_t alignment, size_t bytes)
{
    while (f->len % alignment) lam_str_putc(f, 0);
    for (size_t i = 0; i < bytes; i++) lam_str_putc(f, 0x55);
}

/* Opens a copy of exactly f's bytes: the code, within 100 ms and the memory bound. */
static void expect(const struct lam_str *f, lam_code code)
{
    struct lam_gguf *g = NULL;
    lam_error err = {.message = ""};
    uint8_t *exact = malloc(f->len ? f->len : 1);
    if (f->len) memcpy(exact, f->data, f->len);
    meter_start();
    double start = lam_now();
    lam_code got = lam_gguf_open_memory(exact, f->len, &g, &err);
    double seconds = lam_now() - start;
    size_t used = meter_bytes();
    if (got != code) fail_msg("%s (%s), expected %s", lam_code_name(got), err.message, lam_code_name(code));
    if (code != LAM_OK) assert_true(err.message[0] != 0);
    assert_true(used <= memory_bound(f->len));
    assert_true(seconds < 0.1);
    if (got == LAM_OK) lam_gguf_close(g);
    free(exact);
}

static void test_identity(void **state)
{
    (void)state;
    struct lam_str f = {0};
    begin(&f, 3, 0, 0);
    expect(&f, LAM_OK);
    begin(&f, 2, 0, 0);
    expect(&f, LAM_OK);
    begin(&f, 1, 0, 0);
    expect(&f, LAM_E_VERSION);
    begin(&f, 0, 0, 0);
    expect(&f, LAM_E_VERSION);
    begin(&f, 4, 0, 0);
    expect(&f, LAM_E_VERSION);
    begin(&f, 0x03000000, 0, 0);
    expect(&f, LAM_E_BYTE_ORDER);
    lam_str_clear(&f);
    expect(&f, LAM_E_TRUNCATED);
    lam_str_puts(&f, "PK\3\4 and more text, long enough for a header");
    expect(&f, LAM_E_MAGIC);
    lam_str_clear(&f);
    lam_str_puts(&f, "tjgg and more text, long enough for a header");
    expect(&f, LAM_E_LEGACY);
    lam_str_release(&f);

    struct lam_gguf *g;
    lam_error err;
    assert_int_equal(lam_gguf_open(DIR "big-endian.gguf", &g, &err), LAM_E_BYTE_ORDER);
    assert_int_equal(lam_gguf_open(DIR "no-such.gguf", &g, &err), LAM_E_NOT_FOUND);
    assert_int_equal(lam_gguf_open_memory(NULL, 0, &g, &err), LAM_E_TRUNCATED);
}

static void test_hostile_counts(void **state)
{
    (void)state;
    struct lam_str f = {0};
    begin(&f, 3, 0, (uint64_t)1 << 60);
    put_kv_u32(&f, "a", 1);
    expect(&f, LAM_E_OVERFLOW);
    begin(&f, 3, (uint64_t)1 << 60, 0);
    put_kv_u32(&f, "a", 1);
    expect(&f, LAM_E_OVERFLOW);
    begin(&f, 3, 0, 1000);
    put_kv_u32(&f, "a", 1);
    expect(&f, LAM_E_TRUNCATED);
    begin(&f, 3, UINT64_MAX, UINT64_MAX);
    expect(&f, LAM_E_OVERFLOW);
    /* a key of 2^63 bytes; a string value of 2^63 bytes */
    begin(&f, 3, 0, 1);
    put_u64(&f, (uint64_t)1 << 63);
    lam_str_puts(&f, "some bytes that are there");
    expect(&f, LAM_E_OVERFLOW);
    begin(&f, 3, 0, 1);
    put_kv(&f, "s", LAM_GGUF_STRING);
    put_u64(&f, (uint64_t)1 << 63);
    expect(&f, LAM_E_OVERFLOW);
    begin(&f, 3, 0, 1);
    put_kv(&f, "s", LAM_GGUF_STRING);
    put_u64(&f, 100);
    expect(&f, LAM_E_TRUNCATED);
    /* arrays of 2^61 items: of 8 bytes each their bytes wrap to 0 */
    for (uint32_t type = LAM_GGUF_U8; type <= LAM_GGUF_F64; type++) {
        if (type == LAM_GGUF_ARRAY) continue;
        begin(&f, 3, 0, 1);
        put_kv(&f, "a", LAM_GGUF_ARRAY);
        put_u32(&f, type);
        put_u64(&f, (uint64_t)1 << 61);
        expect(&f, LAM_E_OVERFLOW);
    }
    lam_str_release(&f);
}

static void test_hostile_keys(void **state)
{
    (void)state;
    struct lam_str f = {0};
    begin(&f, 3, 0, 2);
    put_kv_u32(&f, "a", 1);
    put_kv_u32(&f, "a", 1);
    expect(&f, LAM_E_DUPLICATE);
    begin(&f, 3, 0, 1);
    put_kv_u32(&f, "", 1);
    expect(&f, LAM_E_FORMAT);
    begin(&f, 3, 0, 1);
    put_kv_u32(&f, "a\xff", 1);
    expect(&f, LAM_E_FORMAT);
    begin(&f, 3, 0, 1);
    put_kv(&f, "a", 13);
    put_u32(&f, 1);
    expect(&f, LAM_E_FORMAT);
    begin(&f, 3, 0, 1);
    put_kv(&f, "a", LAM_GGUF_BOOL);
    lam_str_putc(&f, 2);
    expect(&f, LAM_E_FORMAT);
    begin(&f, 3, 0, 1);
    put_kv(&f, "a", LAM_GGUF_ARRAY);
    put_u32(&f, LAM_GGUF_ARRAY);
    put_u64(&f, 0);
    expect(&f, LAM_E_UNSUPPORTED);
    begin(&f, 3, 0, 1);
    put_kv(&f, "a", LAM_GGUF_ARRAY);
    put_u32(&f, 99);
    put_u64(&f, 0);
    expect(&f, LAM_E_FORMAT);
    begin(&f, 3, 0, 1);
    put_u64(&f, 70000);
    for (int i = 0; i < 70000; i++) lam_str_putc(&f, 'k');
    put_u32(&f, LAM_GGUF_U32);
    put_u32(&f, 1);
    expect(&f, LAM_E_LIMIT);
    begin(&f, 3, 0, 2);
    put_kv(&f, "split.count", LAM_GGUF_U16);
    lam_str_append(&f, "\2\0", 2);
    put_kv(&f, "split.no", LAM_GGUF_U16);
    lam_str_append(&f, "\0\0", 2);
    expect(&f, LAM_E_UNSUPPORTED);
    lam_str_release(&f);
}

static void test_alignment_key(void **state)
{
    (void)state;
    struct lam_str f = {0};
    static const uint32_t wrong[] = {0, 1, 3, 4, 24, 0xFFFFFFFF};
    for (size_t i = 0; i < 6; i++) {
        begin(&f, 3, 0, 1);
        put_kv_u32(&f, "general.alignment", wrong[i]);
        expect(&f, LAM_E_ALIGNMENT);
    }
    begin(&f, 3, 0, 1);
    put_kv(&f, "general.alignment", LAM_GGUF_U64);
    put_u64(&f, 32);
    expect(&f, LAM_E_ALIGNMENT);
    begin(&f, 3, 0, 1);
    put_kv(&f, "general.alignment", LAM_GGUF_STRING);
    put_text(&f, "32");
    expect(&f, LAM_E_ALIGNMENT);
    begin(&f, 3, 1, 1);
    put_kv_u32(&f, "general.alignment", 64);
    put_tensor(&f, "x", 1, 4, 1, LAM_F32, 0);
    put_data(&f, 64, 16);
    expect(&f, LAM_OK);
    begin(&f, 3, 1, 1);
    put_kv_u32(&f, "general.alignment", 0x80000000);
    put_tensor(&f, "x", 1, 4, 1, LAM_F32, 0);
    put_data(&f, 64, 16);
    expect(&f, LAM_E_TRUNCATED);
    lam_str_release(&f);
}

/* One tensor, with room for 64 data bytes. */
static void one_tensor(struct lam_str *f, uint32_t n_dims, uint64_t dim0, uint64_t dim1, uint32_t type, uint64_t offset, lam_code code)
{
    begin(f, 3, 1, 0);
    put_tensor(f, "x", n_dims, dim0, dim1, type, offset);
    put_data(f, 32, 64);
    expect(f, code);
}

static void test_hostile_tensors(void **state)
{
    (void)state;
    struct lam_str f = {0};
    one_tensor(&f, 2, 4, 4, LAM_F32, 0, LAM_OK);
    one_tensor(&f, 0, 4, 4, LAM_F32, 0, LAM_E_SHAPE);
    one_tensor(&f, 5, 4, 4, LAM_F32, 0, LAM_E_SHAPE);
    one_tensor(&f, 0xFFFFFFFF, 4, 4, LAM_F32, 0, LAM_E_SHAPE);
    one_tensor(&f, 2, 4, 0, LAM_F32, 0, LAM_E_SHAPE);
    one_tensor(&f, 2, 4, 5, LAM_F32, 0, LAM_E_TRUNCATED);
    one_tensor(&f, 2, 4, 1, LAM_F32, 0, LAM_E_GAP);
    one_tensor(&f, 2, 33, 1, LAM_Q8_0, 0, LAM_E_SHAPE);
    one_tensor(&f, 1, 16, 1, LAM_F32, 32, LAM_E_GAP);
    one_tensor(&f, 1, 16, 1, LAM_F32, 8, LAM_E_ALIGNMENT);
    one_tensor(&f, 1, 16, 1, LAM_F32, UINT64_MAX - 31, LAM_E_OVERFLOW);
    one_tensor(&f, 1, 16, 1, 16, 0, LAM_E_DTYPE);
    one_tensor(&f, 1, 16, 1, 4, 0, LAM_E_DTYPE);
    one_tensor(&f, 1, 16, 1, 0xFFFFFFFF, 0, LAM_E_DTYPE);
    for (int bits = 30; bits <= 42; bits++) {
        one_tensor(&f, 1, (uint64_t)1 << bits, 1, LAM_Q4_K, 0, LAM_E_TRUNCATED);
        one_tensor(&f, 2, (uint64_t)1 << bits, (uint64_t)1 << bits, LAM_F32, 0, LAM_E_OVERFLOW);
    }
    one_tensor(&f, 2, (uint64_t)1 << 32, (uint64_t)1 << 30, LAM_F32, 0, LAM_E_OVERFLOW);     /* product 2^64 bytes */
    one_tensor(&f, 2, 4, ((uint64_t)1 << 60) + 1, LAM_F32, 0, LAM_E_OVERFLOW);                 /* wraps to 16 bytes */

    begin(&f, 3, 2, 0); /* twice one name */
    put_tensor(&f, "x", 1, 8, 1, LAM_F32, 0);
    put_tensor(&f, "x", 1, 8, 1, LAM_F32, 32);
    put_data(&f, 32, 64);
    expect(&f, LAM_E_DUPLICATE);
    begin(&f, 3, 2, 0); /* shared bytes */
    put_tensor(&f, "x", 1, 16, 1, LAM_F32, 0);
    put_tensor(&f, "y", 1, 8, 1, LAM_F32, 32);
    put_data(&f, 32, 64);
    expect(&f, LAM_E_OVERLAP);
    begin(&f, 3, 2, 0); /* the same bytes */
    put_tensor(&f, "x", 1, 16, 1, LAM_F32, 0);
    put_tensor(&f, "y", 1, 16, 1, LAM_F32, 0);
    put_data(&f, 32, 64);
    expect(&f, LAM_E_OVERLAP);
    begin(&f, 3, 2, 0); /* a hole of 32 bytes */
    put_tensor(&f, "x", 1, 2, 1, LAM_F32, 0);
    put_tensor(&f, "y", 1, 2, 1, LAM_F32, 64);
    put_data(&f, 32, 96);
    expect(&f, LAM_E_GAP);
    begin(&f, 3, 2, 0); /* in another order: fine */
    put_tensor(&f, "x", 1, 8, 1, LAM_F32, 32);
    put_tensor(&f, "y", 1, 8, 1, LAM_F32, 0);
    put_data(&f, 32, 64);
    expect(&f, LAM_OK);
    begin(&f, 3, 1, 0);
    put_tensor(&f, "x\ny", 1, 8, 1, LAM_F32, 0);
    put_data(&f, 32, 32);
    expect(&f, LAM_E_FORMAT);
    lam_str_release(&f);
}

/* Many keys and tensors: the two lookups and the duplicate check must not be quadratic. */
static void test_many(void **state)
{
    (void)state;
    struct lam_str f = {0};
    char name[32];
    const uint32_t n = 100000;
    begin(&f, 3, n, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%x", i * 2654435761u);
        put_kv_u32(&f, name, i);
    }
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%x", i * 2654435761u);
        put_tensor(&f, name, 1, 8, 1, LAM_F32, (uint64_t)i * 32);
    }
    put_data(&f, 32, (size_t)n * 32);
    struct lam_gguf *g;
    lam_error err;
    meter_start();
    double start = lam_now();
    assert_ok(lam_gguf_open_memory((const uint8_t *)f.data, f.len, &g, &err), err);
    assert_true(meter_bytes() <= memory_bound(f.len));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t value;
        snprintf(name, sizeof name, "%x", i * 2654435761u);
        assert_ok(lam_gguf_u32(g, name, true, &value, &err), err);
        assert_int_equal(value, i);
        assert_ptr_equal(lam_gguf_find_tensor(g, name), &g->tensors[i]);
    }
    assert_true(lam_now() - start < 5);
    lam_gguf_close(g);
    lam_str_release(&f);
}

/* ---- split models ---- */

static void copy_file(const char *folder, const char *from, const char *name)
{
    size_t len;
    char *to = lam_path_join(folder, name);
    uint8_t *bytes = test_read_file(from, &len);
    FILE *f = fopen(to, "wb");
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
    free(bytes);
    lam_free(to);
}

static lam_code open_in(const char *folder, const char *name, lam_error *err)
{
    struct lam_gguf *g;
    char *path = lam_path_join(folder, name);
    lam_code code = lam_gguf_open(path, &g, err);
    if (code == LAM_OK) lam_gguf_close(g);
    lam_free(path);
    return code;
}

static void test_split_faults(void **state)
{
    (void)state;
    lam_error err;
    char *folder = test_make_folder();
    assert_int_equal(open_in(DIR, "split-00002-of-00003.gguf", &err), LAM_E_ARGUMENT);
    copy_file(folder, DIR "split-00001-of-00003.gguf", "m.gguf");
    assert_int_equal(open_in(folder, "m.gguf", &err), LAM_E_ARGUMENT);
    copy_file(folder, DIR "split-00001-of-00003.gguf", "m-00001-of-00003.gguf");
    copy_file(folder, DIR "split-00002-of-00003.gguf", "m-00002-of-00003.gguf");
    assert_int_equal(open_in(folder, "m-00001-of-00003.gguf", &err), LAM_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "m-00003-of-00003.gguf"));
    copy_file(folder, DIR "split-00002-of-00003.gguf", "m-00003-of-00003.gguf");
    assert_int_equal(open_in(folder, "m-00001-of-00003.gguf", &err), LAM_E_FORMAT);
    copy_file(folder, DIR "python.gguf", "m-00003-of-00003.gguf");
    assert_int_equal(open_in(folder, "m-00001-of-00003.gguf", &err), LAM_E_NOT_FOUND); /* no split.no in it */
    copy_file(folder, DIR "split-00003-of-00003.gguf", "m-00003-of-00003.gguf");
    assert_ok(open_in(folder, "m-00001-of-00003.gguf", &err), err);
    test_remove_folder(folder);
}

/* Part `no` of two by hand: extra is a key of the value given, 0 for none; total is split.tensors.count. */
static void write_part(const char *folder, uint32_t no, const char *extra, uint32_t value, uint32_t total)
{
    struct lam_str f = {0};
    char name[32];
    begin(&f, 3, 1, extra ? 4 : 3);
    put_kv_u32(&f, "split.no", no);
    put_kv_u32(&f, "split.count", 2);
    put_kv_u32(&f, "split.tensors.count", total);
    if (extra) put_kv_u32(&f, extra, value);
    put_tensor(&f, no ? "y" : "x", 1, 8, 1, LAM_F32, 0);
    put_data(&f, 32, 32);
    snprintf(name, sizeof name, "p-%05u-of-00002.gguf", no + 1);
    char *path = lam_path_join(folder, name);
    FILE *out = fopen(path, "wb");
    assert_int_equal(fwrite(f.data, 1, f.len, out), f.len);
    fclose(out);
    lam_free(path);
    lam_str_release(&f);
}

static void test_split_keys(void **state)
{
    (void)state;
    lam_error err;
    char *folder = test_make_folder();
    write_part(folder, 0, "a", 1, 2);
    write_part(folder, 1, NULL, 0, 2);
    assert_ok(open_in(folder, "p-00001-of-00002.gguf", &err), err);
    write_part(folder, 1, "a", 1, 2); /* as in the first */
    assert_ok(open_in(folder, "p-00001-of-00002.gguf", &err), err);
    write_part(folder, 1, "general.alignment", 32, 2);
    assert_ok(open_in(folder, "p-00001-of-00002.gguf", &err), err);
    write_part(folder, 1, "a", 2, 2);
    assert_int_equal(open_in(folder, "p-00001-of-00002.gguf", &err), LAM_E_UNKNOWN_FIELD);
    write_part(folder, 1, "b", 1, 2);
    assert_int_equal(open_in(folder, "p-00001-of-00002.gguf", &err), LAM_E_UNKNOWN_FIELD);
    write_part(folder, 1, NULL, 0, 2);
    write_part(folder, 0, NULL, 0, 3);
    assert_int_equal(open_in(folder, "p-00001-of-00002.gguf", &err), LAM_E_FORMAT);
    test_remove_folder(folder);
}

/* ---- damage ---- */

static void touch_everything(const struct lam_gguf *g)
{
    volatile double sum = 0;
    for (size_t i = 0; i < g->n_kvs; i++) {
        const struct lam_gguf_kv *kv = &g->kvs[i];
        const uint8_t *at = kv->value;
        const char *text;
        size_t len;
        double item;
        while (lam_gguf_next_string(kv, &at, &text, &len))
            if (len) sum += text[0] + text[len - 1];
        for (uint64_t k = 0; k < kv->count; k++)
            if (lam_gguf_item_f64(kv, k, &item, NULL) == LAM_OK) sum += item != 0;
    }
    for (size_t i = 0; i < g->n_tensors; i++) sum += g->tensors[i].data[0] + g->tensors[i].data[g->tensors[i].bytes - 1];
}

static void test_every_truncation(void **state)
{
    (void)state;
    size_t len;
    uint8_t *bytes = test_read_file(DIR "python.gguf", &len);
    for (size_t n = 0; n < len; n++) {
        struct lam_gguf *g;
        lam_error err;
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, bytes, n);
        meter_start();
        lam_code code = lam_gguf_open_memory(exact, n, &g, &err);
        if (code != LAM_E_TRUNCATED) fail_msg("cut to %zu: %s", n, lam_code_name(code));
        assert_true(meter_bytes() <= memory_bound(n));
        free(exact);
    }
    struct lam_str longer = {0};
    lam_str_append(&longer, bytes, len);
    lam_str_putc(&longer, 0);
    expect(&longer, LAM_E_GAP);
    lam_str_release(&longer);
    free(bytes);
}

static void test_mutations(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 31, 255, 65536, 0x7FFFFFFF, 0xFFFFFFFF, (uint64_t)1 << 32, (uint64_t)1 << 60,
                                     (uint64_t)1 << 61, (uint64_t)1 << 63, UINT64_MAX};
    size_t len, opened = 0;
    uint8_t *bytes = test_read_file(DIR "python.gguf", &len);
    uint64_t seed = 20240607;
    for (int round = 0; round < 20000; round++) {
        size_t n = test_random(&seed) % 8 ? len : test_random(&seed) % (len + 1);
        uint8_t *copy = malloc(n ? n : 1);
        memcpy(copy, bytes, n);
        for (uint64_t k = test_random(&seed) % 4 + 1; k > 0 && n >= 8; k--) {
            size_t at = test_random(&seed) % (test_random(&seed) % 2 ? n - 7 : n < 1200 ? n - 7 : 1200); /* often the header */
            if (test_random(&seed) % 3) copy[at] = (uint8_t)test_random(&seed);
            else lam_store_u64(copy + at, sizes[test_random(&seed) % (sizeof sizes / sizeof *sizes)]);
        }
        struct lam_gguf *g;
        meter_start();
        lam_code code = lam_gguf_open_memory(copy, n, &g, NULL);
        assert_true(meter_bytes() <= memory_bound(n));
        if (code == LAM_OK) {
            opened++;
            touch_everything(g);
            lam_gguf_close(g);
        }
        free(copy);
    }
    assert_in_range(opened, 1000, 19000); /* the damage neither misses the header nor always breaks it */
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_python_tensors), cmocka_unit_test(test_python_keys), cmocka_unit_test(test_scalar_getters),
        cmocka_unit_test(test_write_equals_python), cmocka_unit_test(test_write_typed), cmocka_unit_test(test_identity),
        cmocka_unit_test(test_hostile_counts), cmocka_unit_test(test_hostile_keys), cmocka_unit_test(test_alignment_key),
        cmocka_unit_test(test_hostile_tensors), cmocka_unit_test(test_many), cmocka_unit_test(test_split_faults), cmocka_unit_test(test_split_keys),
        cmocka_unit_test(test_every_truncation), cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
