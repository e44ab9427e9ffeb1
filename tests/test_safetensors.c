#include "alloc_meter.h"
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/json.h"
#include "base/os.h"
#include "format/safetensors.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

#define DIR "tests/data/format/"

/* The bound of format/safetensors.h. */
static size_t memory_bound(size_t header_bytes) { return 8 * header_bytes + 262144; }

static struct lam_safetensors *open_golden(const char *path)
{
    struct lam_safetensors *s;
    lam_error err;
    assert_ok(lam_st_open(path, &s, &err), err);
    return s;
}

static void test_python_single(void **state)
{
    (void)state;
    size_t len, i;
    lam_error err;
    json_t *golden, *told;
    uint8_t *text = test_read_file(DIR "single.safetensors.json", &len);
    assert_ok(lam_json_parse((const char *)text, len, "golden", &golden, &err), err);
    struct lam_safetensors *s = open_golden(DIR "single.safetensors");
    json_t *list = json_object_get(golden, "tensors");
    assert_int_equal(s->n_tensors, json_array_size(list));
    assert_int_equal(s->n_tensors, 6);
    json_array_foreach(list, i, told) {
        const struct lam_st_tensor *t = lam_st_find(s, json_string_value(json_object_get(told, "name")));
        assert_non_null(t);
        assert_string_equal(lam_dtype_info(t->dtype)->name, json_string_value(json_object_get(told, "dtype")));
        json_t *dims = json_object_get(told, "dims");
        assert_int_equal(t->n_dims, json_array_size(dims));
        for (size_t d = 0; d < 4; d++) assert_int_equal(t->dims[d], d < t->n_dims ? json_integer_value(json_array_get(dims, d)) : 1);
        uint8_t digest[32];
        char hex[LAM_DIGEST_TEXT];
        lam_sha256(t->data, t->bytes, digest);
        lam_digest_text(digest, hex);
        assert_string_equal(hex + 7, json_string_value(json_object_get(told, "sha256")));
    }
    assert_int_equal(lam_st_find(s, "scalar")->n_dims, 0);
    assert_int_equal(lam_st_find(s, "scalar")->bytes, 4);
    assert_int_equal(lam_st_find(s, "empty")->bytes, 0);
    assert_null(lam_st_find(s, "absent"));
    lam_st_close(s);
    json_decref(golden);
    free(text);
}

static void test_python_sharded(void **state)
{
    (void)state;
    struct lam_safetensors *s = open_golden(DIR "model.safetensors.index.json");
    assert_int_equal(s->n_files, 2);
    assert_int_equal(s->n_tensors, 3);
    static const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) assert_string_equal(s->tensors[i].name, names[i]);
    assert_int_equal(lam_st_find(s, "b")->dims[1], 8);
    lam_st_close(s);
}

static void test_unsupported_type(void **state)
{
    (void)state;
    struct lam_safetensors *s;
    lam_error err;
    assert_int_equal(lam_st_open(DIR "float64.safetensors", &s, &err), LAM_E_DTYPE);
    assert_non_null(strstr(err.message, "tensor x"));
    assert_non_null(strstr(err.message, "F64"));
}

/* ---- hostile headers ---- */

static void expect_bytes(const uint8_t *bytes, size_t len, size_t header_bytes, lam_code code)
{
    struct lam_safetensors *s;
    lam_error err = {.message = ""};
    uint8_t *exact = malloc(len ? len : 1);
    if (len) memcpy(exact, bytes, len);
    meter_start();
    double start = lam_now();
    lam_code got = lam_st_open_memory(exact, len, &s, &err);
    if (got != code)
        fail_msg("%.*s: %s (%s), expected %s", (int)(header_bytes < 200 ? header_bytes : 200), (const char *)bytes + 8,
                 lam_code_name(got), err.message, lam_code_name(code));
    assert_true(lam_now() - start < 1);
    assert_true(meter_bytes() <= memory_bound(header_bytes));
    if (got == LAM_OK) lam_st_close(s);
    free(exact);
}

/* A file with this header and so many data bytes. */
static void expect(const char *header, size_t data_bytes, lam_code code)
{
    size_t n = strlen(header);
    uint8_t *bytes = calloc(8 + n + data_bytes, 1);
    lam_store_u64(bytes, n);
    memcpy(bytes + 8, header, n);
    expect_bytes(bytes, 8 + n + data_bytes, n, code);
    free(bytes);
}

#define F32(name, shape, from, to) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

static void test_headers(void **state)
{
    (void)state;
    expect("{}", 0, LAM_OK);
    expect("{}   ", 0, LAM_OK);
    expect("{" F32("x", "2", "0", "8") "}", 8, LAM_OK);
    expect("{ " F32("x", "2", "0", "8") " , " F32("y", "1", "8", "12") " }  ", 12, LAM_OK);
    expect("{" F32("y", "1", "8", "12") "," F32("x", "2", "0", "8") "}", 12, LAM_OK);
    expect("{" F32("x", "", "0", "4") "}", 4, LAM_OK);
    expect("{" F32("x", "0,7", "0", "0") "}", 0, LAM_OK);
    expect("{" F32("x", "2", "0", "8") "," F32("e", "0", "8", "8") "," F32("y", "1", "8", "12") "}", 12, LAM_OK);
    expect("{\"__metadata__\":{\"a\":\"b\"}," F32("x", "2", "0", "8") "}", 8, LAM_OK);
    expect("{\"__metadata__\":null}", 0, LAM_OK);
    expect("{\"__metadata__\":{}," F32("\\u0078", "2", "0", "8") "}", 8, LAM_OK);

    expect("{" F32("x", "2", "0", "8") "}", 7, LAM_E_TRUNCATED);
    expect("{" F32("x", "2", "0", "8") "}", 9, LAM_E_GAP);
    expect("{}", 1, LAM_E_GAP);
    expect("{" F32("x", "2", "0", "8") "," F32("y", "1", "12", "16") "}", 16, LAM_E_GAP);
    expect("{" F32("x", "2", "4", "12") "}", 12, LAM_E_GAP);
    expect("{" F32("x", "2", "0", "8") "," F32("y", "1", "4", "8") "}", 8, LAM_E_OVERLAP);
    expect("{" F32("x", "2", "0", "8") "," F32("y", "2", "0", "8") "}", 8, LAM_E_OVERLAP);
    expect("{" F32("x", "2", "0", "8") "," F32("e", "0", "4", "4") "}", 8, LAM_E_OVERLAP);
    expect("{" F32("x", "2", "0", "8") "," F32("x", "1", "8", "12") "}", 12, LAM_E_DUPLICATE);
    expect("{" F32("x", "2", "0", "8") "," F32("\\u0078", "1", "8", "12") "}", 12, LAM_E_DUPLICATE);
    expect("{" F32("x", "3", "0", "8") "}", 8, LAM_E_SHAPE);
    expect("{" F32("x", "1,1,1,1,2", "0", "8") "}", 8, LAM_E_SHAPE);
    expect("{" F32("x", "-2", "0", "8") "}", 8, LAM_E_SHAPE);
    expect("{" F32("x", "2.0", "0", "8") "}", 8, LAM_E_SHAPE);
    expect("{" F32("x", "4611686018427387904,4611686018427387904", "0", "8") "}", 8, LAM_E_OVERFLOW);
    expect("{" F32("x", "4611686018427387905,4", "0", "8") "}", 8, LAM_E_OVERFLOW);
    expect("{" F32("x", "99999999999999999999", "0", "8") "}", 8, LAM_E_SHAPE);
    expect("{" F32("x", "2", "8", "0") "}", 8, LAM_E_FORMAT);
    expect("{" F32("x", "2", "-8", "0") "}", 8, LAM_E_FORMAT);
    expect("{" F32("x", "2", "0", "8,8") "}", 8, LAM_E_FORMAT);
    expect("{" F32("x", "2", "0", "9223372036854775807") "}", 8, LAM_E_TRUNCATED);
    expect("{" F32("", "2", "0", "8") "}", 8, LAM_E_FORMAT);
    expect("{" F32("a\\u0000b", "2", "0", "8") "}", 8, LAM_E_FORMAT);
    expect("{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8, LAM_E_DTYPE);
    expect("{\"x\":{\"dtype\":\"Q8_0\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8, LAM_E_DTYPE);
    expect("{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"strides\":[1]}}", 8, LAM_E_UNKNOWN_FIELD);
    expect("{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, LAM_E_DUPLICATE);
    expect("{\"x\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, LAM_E_FORMAT);
    expect("{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, LAM_E_FORMAT);
    expect("{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, LAM_E_FORMAT);
    expect("{\"x\":7}", 0, LAM_E_FORMAT);
    expect("{\"__metadata__\":{\"a\":1}}", 0, LAM_E_FORMAT);
    expect("{\"__metadata__\":[]}", 0, LAM_E_FORMAT);
    expect("{\"__metadata__\":{},\"__metadata__\":{}}", 0, LAM_E_DUPLICATE);
    expect("{\"__metadata__\":{\"a\":\"\",\"\\u0061\":\"\"}}", 0, LAM_E_DUPLICATE);
    expect("{", 0, LAM_E_FORMAT);
    expect("{}x", 0, LAM_E_FORMAT);
    expect("{,}", 0, LAM_E_FORMAT);
    expect("{" F32("x", "2", "0", "8") ",}", 8, LAM_E_FORMAT);
    expect("{\"x", 0, LAM_E_FORMAT);
    expect("{\"x\\", 0, LAM_E_FORMAT);
    expect("{\"x\":{", 0, LAM_E_FORMAT);
    expect("[]", 0, LAM_E_MAGIC);
    expect("", 0, LAM_E_MAGIC);
}

static void test_header_length(void **state)
{
    (void)state;
    uint8_t bytes[16] = {0};
    for (size_t n = 0; n < 8; n++) expect_bytes(bytes, n, 0, LAM_E_TRUNCATED);
    bytes[8] = '{';
    lam_store_u64(bytes, 100);
    expect_bytes(bytes, 16, 0, LAM_E_TRUNCATED);
    lam_store_u64(bytes, 100000001);
    expect_bytes(bytes, 16, 0, LAM_E_LIMIT);
    lam_store_u64(bytes, UINT64_MAX);
    expect_bytes(bytes, 16, 0, LAM_E_LIMIT);
}

/* Texts that would cost a JSON tree many times their size. */
static void test_expanding_headers(void **state)
{
    (void)state;
    struct lam_str h = {0};
    static const char *const repeated[] = {"{},", "[],", "[", "{\"\":", "\"\":\"\",", "1,"};
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++)
        for (int metadata = 0; metadata < 2; metadata++) {
            lam_str_clear(&h);
            lam_str_puts(&h, metadata ? "{\"__metadata__\":{" : "{\"x\":[");
            while (h.len < 1000000) lam_str_puts(&h, repeated[i]);
            lam_str_puts(&h, metadata ? "\"z\":\"\"}}" : "1]}");
            bool duplicate = metadata && i == 4; /* the only one that is well-formed */
            expect(h.data, 0, duplicate ? LAM_E_DUPLICATE : metadata || strchr("[{", repeated[i][strlen(repeated[i]) - 1]) || i == 3
                                  ? LAM_E_FORMAT : LAM_E_LIMIT);
        }
    lam_str_clear(&h);
    lam_str_putc(&h, '{');
    for (int i = 0; i < 20000; i++) lam_str_printf(&h, "%s\"%x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", i);
    lam_str_putc(&h, '}');
    expect(h.data, 0, LAM_OK);
    lam_str_release(&h);
}

/* ---- sharded sets ---- */

static void write_text(const char *folder, const char *name, const void *bytes, size_t len)
{
    char *path = lam_path_join(folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
    lam_free(path);
}

static void expect_index(const char *folder, const char *text, lam_code code)
{
    struct lam_safetensors *s;
    lam_error err = {.message = ""};
    write_text(folder, "t.index.json", text, strlen(text));
    char *path = lam_path_join(folder, "t.index.json");
    lam_code got = lam_st_open(path, &s, &err);
    if (got != code) fail_msg("%s: %s (%s), expected %s", text, lam_code_name(got), err.message, lam_code_name(code));
    if (got == LAM_OK) lam_st_close(s);
    lam_free(path);
}

static void test_index(void **state)
{
    (void)state;
    char *folder = test_make_folder();
    static const char *const shards[] = {"1.safetensors", "2.safetensors"};
    for (int i = 0; i < 2; i++) {
        size_t len;
        char from[128];
        snprintf(from, sizeof from, DIR "model-%05d-of-00002.safetensors", i + 1);
        uint8_t *bytes = test_read_file(from, &len);
        write_text(folder, shards[i], bytes, len);
        free(bytes);
    }
#define MAP(items) "{\"metadata\":{\"total_size\":72},\"weight_map\":{" items "}}"
#define A "\"a\":\"1.safetensors\""
#define C "\"c\":\"1.safetensors\""
#define B "\"b\":\"2.safetensors\""
    expect_index(folder, MAP(A "," B "," C), LAM_OK);
    expect_index(folder, MAP(A "," B "," C ",\"d\":\"2.safetensors\""), LAM_E_MISSING_TENSOR);
    expect_index(folder, MAP(A "," B), LAM_E_EXTRA_TENSOR);
    expect_index(folder, MAP(A "," B ",\"c\":\"2.safetensors\""), LAM_E_EXTRA_TENSOR);
    expect_index(folder, MAP(A "," C), LAM_OK);
    expect_index(folder, MAP(A "," B "," C "," A), LAM_E_DUPLICATE);
    expect_index(folder, MAP(A "," C ",\"b\":\"3.safetensors\""), LAM_E_NOT_FOUND);
    expect_index(folder, MAP("\"a\":\"../1.safetensors\""), LAM_E_FORMAT);
    expect_index(folder, MAP("\"a\":\"x/1.safetensors\""), LAM_E_FORMAT);
    expect_index(folder, MAP("\"a\":\"/1.safetensors\""), LAM_E_FORMAT);
    expect_index(folder, MAP("\"a\":\"..\""), LAM_E_FORMAT);
    expect_index(folder, MAP("\"a\":\"\""), LAM_E_FORMAT);
    expect_index(folder, MAP("\"a\":7"), LAM_E_FORMAT);
    expect_index(folder, "{\"metadata\":{}}", LAM_E_FORMAT);
    expect_index(folder, "{\"weight_map\":[]}", LAM_E_FORMAT);
    expect_index(folder, "{\"weight_map\":{},\"weight_map\":{}}", LAM_E_DUPLICATE);
    expect_index(folder, "", LAM_E_FORMAT);
    /* one tensor in two shards */
    size_t len;
    uint8_t *bytes = test_read_file(DIR "model-00001-of-00002.safetensors", &len);
    write_text(folder, "2.safetensors", bytes, len);
    free(bytes);
    expect_index(folder, MAP(A "," B "," C), LAM_E_EXTRA_TENSOR);
    test_remove_folder(folder);
}

/* ---- damage ---- */

static void test_every_truncation(void **state)
{
    (void)state;
    size_t len;
    uint8_t *bytes = test_read_file(DIR "single.safetensors", &len);
    for (size_t n = 0; n < len; n++) expect_bytes(bytes, n, 0, LAM_E_TRUNCATED);
    free(bytes);
}

static void test_mutations(void **state)
{
    (void)state;
    size_t len, opened = 0;
    uint8_t *bytes = test_read_file(DIR "single.safetensors", &len);
    size_t header = (size_t)lam_load_u64(bytes);
    uint64_t seed = 977;
    static const char odd[] = "{}[]\",:\\09-eE.u \n";
    for (int round = 0; round < 20000; round++) {
        size_t n = test_random(&seed) % 8 ? len : test_random(&seed) % (len + 1);
        uint8_t *copy = malloc(n ? n : 1);
        memcpy(copy, bytes, n);
        for (uint64_t k = test_random(&seed) % 3 + 1; k > 0 && n > 8; k--) {
            size_t at = test_random(&seed) % (test_random(&seed) % 2 || n < 8 + header ? n : 8 + header);
            copy[at] = test_random(&seed) % 2 ? (uint8_t)test_random(&seed) : (uint8_t)odd[test_random(&seed) % (sizeof odd - 1)];
        }
        struct lam_safetensors *s;
        meter_start();
        lam_code code = lam_st_open_memory(copy, n, &s, NULL);
        assert_true(meter_bytes() <= memory_bound(n));
        if (code == LAM_OK) {
            volatile unsigned sum = 0;
            for (size_t i = 0; i < s->n_tensors; i++)
                if (s->tensors[i].bytes) sum += s->tensors[i].data[0] + s->tensors[i].data[s->tensors[i].bytes - 1];
            opened++;
            lam_st_close(s);
        }
        free(copy);
    }
    assert_in_range(opened, 500, 19000);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_python_single), cmocka_unit_test(test_python_sharded), cmocka_unit_test(test_unsupported_type),
        cmocka_unit_test(test_headers), cmocka_unit_test(test_header_length), cmocka_unit_test(test_expanding_headers),
        cmocka_unit_test(test_index), cmocka_unit_test(test_every_truncation), cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
