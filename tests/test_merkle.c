#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/json.h"
#include "format/merkle.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* Inputs and roots of the Certificate Transparency reference implementation's tests
 * (google/certificate-transparency, cpp/merkletree/merkle_tree_test.cc). */
static const char *const inputs[] = {"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"};
static const char *const roots[] = {
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d", "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77", "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4", "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c", "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
};

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

static void assert_digest(const uint8_t digest[32], const char *hex)
{
    char text[LAM_DIGEST_TEXT];
    lam_digest_text(digest, text);
    assert_string_equal(text + 7, hex);
}

static void test_reference_roots(void **state)
{
    (void)state;
    uint8_t leaves[8 * 32], bytes[64], root[32];
    for (size_t i = 0; i < 8; i++) {
        lam_merkle_leaf(bytes, from_hex(inputs[i], bytes), leaves + 32 * i);
        lam_merkle_root(leaves, i + 1, root);
        assert_digest(root, roots[i]);
    }
}

/* RFC 9162 section 2.1.1: the hash of an empty list is the hash of an empty string (FIPS 180-4's value for it). */
static void test_empty_root(void **state)
{
    (void)state;
    uint8_t root[32];
    lam_merkle_root(NULL, 0, root);
    assert_digest(root, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* Roots of other sizes by tools/make_format_golden.py. */
static void test_other_sizes(void **state)
{
    (void)state;
    size_t len;
    uint8_t *text = test_read_file("tests/data/format/merkle.json", &len), root[32], number[4];
    lam_error err;
    json_t *golden, *value;
    const char *key;
    assert_ok(lam_json_parse((const char *)text, len, "merkle.json", &golden, &err), err);
    uint8_t *leaves = lam_alloc(1000, 32);
    for (uint32_t i = 0; i < 1000; i++) {
        lam_store_u32(number, i);
        lam_merkle_leaf(number, sizeof number, leaves + 32 * i);
    }
    assert_int_equal(json_object_size(json_object_get(golden, "u32_leaves")), 6);
    json_object_foreach(json_object_get(golden, "u32_leaves"), key, value) {
        lam_merkle_root(leaves, strtoul(key, NULL, 10), root);
        assert_digest(root, json_string_value(value));
    }
    lam_free(leaves);
    json_decref(golden);
    free(text);
}

/* RFC 3720 appendix B.4, and the check value of the CRC catalogue for "123456789". */
static void test_crc32c(void **state)
{
    (void)state;
    uint8_t bytes[32];
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(lam_crc32c(bytes, sizeof bytes), 0x8A9136AAu);
    memset(bytes, 0xFF, sizeof bytes);
    assert_int_equal(lam_crc32c(bytes, sizeof bytes), 0x62A8AB43u);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
    assert_int_equal(lam_crc32c(bytes, sizeof bytes), 0x46DD794Eu);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)(31 - i);
    assert_int_equal(lam_crc32c(bytes, sizeof bytes), 0x113FDB5Cu);
    assert_int_equal(lam_crc32c("123456789", 9), 0xE3069283u);
    assert_int_equal(lam_crc32c("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_roots), cmocka_unit_test(test_empty_root),
        cmocka_unit_test(test_other_sizes), cmocka_unit_test(test_crc32c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
