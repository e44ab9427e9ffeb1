/* Receipts: against one that tools/make_receipt_golden.py made from the RFCs alone; what a change of anything does; the trust list; and
 * what is said of a composition. */
#define _XOPEN_SOURCE 700

#include "fixture.h"

#include "base/json.h"
#include "compose/signature.h"
#include "lamina/receipt.h"

#include <unistd.h>

#define DATA "tests/data/receipts/"
#define ID "sha256:abababababababababababababababababababababababababababababababab"
#define OTHER "sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"
#define FIGURES "{\"tokens\":4096,\"text\":\"wiki ü\",\"perplexity\":1.25e1}"

/* The golden receipt of this name, in canonical form; freed with lam_memory_free. */
static char *golden(const char *name)
{
    lam_error err;
    size_t size;
    json_t *all;
    struct lam_str text = {0};
    char *bytes = (char *)test_read_file(DATA "receipts.json", &size);
    assert_ok(lam_json_parse(bytes, size, "receipts", &all, &err), err);
    assert_ok(lam_json_canonical(json_object_get(all, name), &text, &err), err);
    json_decref(all);
    free(bytes);
    return text.data;
}

static lam_code check(const char *text, const char *id, const lam_trust *trust, lam_receipt_info *info, lam_error *err)
{
    return lam_receipt_check(text, strlen(text), id, trust, info, err);
}

static void test_made_as_the_rfcs_say(void **state)
{
    (void)state;
    lam_error err;
    char *expected = golden("hash"), *made;
    assert_ok(lam_receipt_make(ID, FIGURES, "Alice", NULL, &made, &err), err);
    assert_string_equal(made, expected);
    lam_memory_free(made);
    lam_memory_free(expected);
    expected = golden("signed");
    assert_ok(lam_receipt_make(ID, FIGURES, "Alice", DATA "alice-private.pem", &made, &err), err);
    assert_string_equal(made, expected);
    lam_memory_free(made);
    lam_memory_free(expected);
}

static void test_standing(void **state)
{
    (void)state;
    lam_error err;
    lam_trust *alice, *bob, *both, *nobody;
    lam_receipt_info info;
    char *hash = golden("hash"), *signed_ = golden("signed"), standing[256], *folder = test_make_folder(), *anonymous;
    assert_ok(lam_trust_open(DATA "alice.pem", &alice, &err), err);
    assert_ok(lam_trust_open(DATA "bob.pem", &bob, &err), err);
    assert_ok(lam_trust_open(folder, &nobody, &err), err);
    char command[2048];
    snprintf(command, sizeof command, "cp " DATA "alice.pem '%s/Alice A. of X.pem' && cp " DATA "bob.pem %s && touch %s/notes.txt", folder, folder, folder);
    assert_int_equal(system(command), 0);
    assert_ok(lam_trust_open(folder, &both, &err), err);
    assert_int_equal(lam_trust_size(both), 2);
    assert_int_equal(lam_trust_size(nobody), 0);

    assert_ok(check(signed_, ID, alice, &info, &err), err);
    assert_int_equal(info.state, LAM_RECEIPT_VERIFIED);
    assert_string_equal(info.standing, "verified by alice");
    assert_string_equal(info.composition_id, ID);
    assert_ok(check(signed_, NULL, both, &info, &err), err);
    assert_string_equal(info.standing, "verified by Alice A. of X");
    const lam_trust *strangers[] = {NULL, nobody, bob};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(check(signed_, ID, strangers[i], &info, &err), err);
        assert_int_equal(info.state, LAM_RECEIPT_CLAIMED);
        assert_string_equal(info.standing, "claimed by \"Alice\", key ed25519:d75a980182b10ab7…, which is not in the trust list");
    }
    assert_ok(check(hash, ID, alice, &info, &err), err);
    assert_string_equal(info.standing, "claimed by \"Alice\", a bare hash");
    assert_ok(lam_receipt_make(ID, "{\"x\":true}", "a\"b", NULL, &anonymous, &err), err);
    assert_ok(check(anonymous, ID, alice, &info, &err), err);
    assert_string_equal(info.standing, "claimed by \"a'b\", a bare hash"); /* nobody closes the quote */
    lam_memory_free(anonymous);
    assert_ok(lam_receipt_make(ID, "{\"x\":{\"y\":0}}", NULL, NULL, &anonymous, &err), err);
    assert_ok(check(anonymous, ID, alice, &info, &err), err);
    assert_string_equal(info.standing, "claimed by a bare hash");

    const char *all[] = {anonymous, signed_, hash};
    assert_ok(lam_standing(ID, 2, all, 3, alice, standing, &err), err);
    assert_string_equal(standing, "verified by alice");
    assert_ok(lam_standing(ID, 2, all, 1, alice, standing, &err), err);
    assert_string_equal(standing, "claimed by a bare hash");
    assert_ok(lam_standing(ID, 2, NULL, 0, alice, standing, &err), err);
    assert_string_equal(standing, "unverified mixture");
    assert_ok(lam_standing(ID, 0, NULL, 0, NULL, standing, &err), err);
    assert_string_equal(standing, "base");
    assert_int_equal(lam_standing(OTHER, 2, all, 3, alice, standing, &err), LAM_E_WRONG_COMPOSITION);
    assert_non_null(strstr(err.message, ID));
    assert_non_null(strstr(err.message, OTHER));
    lam_memory_free(anonymous);
    lam_memory_free(hash);
    lam_memory_free(signed_);
    lam_trust_free(alice);
    lam_trust_free(bob);
    lam_trust_free(both);
    lam_trust_free(nobody);
    lam_trust_free(NULL);
    test_remove_folder(folder);
}

/* text with its first `from` in place of which stands `to`. */
static char *changed(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    if (!at) fail_msg("no %s in %s", from, text);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *word;
        lam_code code;
    } cases[] = {
        {"12.5", "12.25", "digest", LAM_E_DIGEST},                     /* figures */
        {"\"tokens\"", "\"tokenz\"", "digest", LAM_E_DIGEST},
        {"\"by\":\"Alice\"", "\"by\":\"Bob\"", "digest", LAM_E_DIGEST},
        {"abab", "cdab", "digest", LAM_E_DIGEST},                      /* the id */
        {"\"value\":\"", "\"value\":\"0", "128", LAM_E_FORMAT},
        {"\"key\":\"d7", "\"key\":\"d6", "ed25519:d65a98", LAM_E_SIGNATURE},
        {"\"key\":\"d7", "\"key\":\"D7", "64", LAM_E_FORMAT},
        {"\"ed25519\"", "\"rsa\"", "rsa", LAM_E_UNSUPPORTED},
        {"\"algorithm\"", "\"algo\"", "algo", LAM_E_UNKNOWN_FIELD},
        {"\"digest\"", "\"hash\"", "hash", LAM_E_UNKNOWN_FIELD},
        {"\"figures\":{", "\"made\":1,\"figures\":{", "made", LAM_E_UNKNOWN_FIELD},
        {"receipt.v0", "receipt.v1", "v1", LAM_E_VERSION},
        {"lamina.receipt.v0", "manifest", "type", LAM_E_FORMAT},
        {"\"by\":\"Alice\"", "\"by\":7", "by", LAM_E_FORMAT},
        {"\"by\":\"Alice\"", "\"by\":\"A\\u001b[1m\"", "by", LAM_E_FORMAT},
        {"\"by\":\"Alice\"", "\"by\":\"A\\u009b1m\"", "by", LAM_E_FORMAT},
        {"\"by\":\"Alice\"", "\"by\":\"A\\u202e\"", "by", LAM_E_FORMAT},
        {"4096", "[4096]", "figures", LAM_E_FORMAT},
        {"4096", "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}}}}}", "figures", LAM_E_FORMAT},
        {"4096", "null", "figures", LAM_E_FORMAT},
        {"{", "", "JSON", LAM_E_FORMAT},
    };
    char *text = golden("signed");
    lam_error err;
    lam_receipt_info info;
    lam_trust *alice;
    assert_ok(lam_trust_open(DATA "alice.pem", &alice, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *other = changed(text, cases[i].from, cases[i].to);
        lam_code code = check(other, NULL, alice, &info, &err);
        if (code != cases[i].code) fail_msg("case %zu: %s: %s", i, lam_code_name(code), code ? err.message : "");
        if (!strstr(err.message, cases[i].word)) fail_msg("case %zu: \"%s\" lacks %s", i, err.message, cases[i].word);
        free(other);
    }
    /* A signature with one bit changed, with the trusted key: an error that names it. */
    char *value = strstr(text, "\"value\":\"") + 9;
    value[70] = value[70] == '0' ? '1' : '0';
    assert_int_equal(check(text, ID, alice, &info, &err), LAM_E_SIGNATURE);
    assert_non_null(strstr(err.message, "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a (alice)"));
    lam_memory_free(text);
    lam_trust_free(alice);
    char *huge = malloc((1 << 20) + 2);
    memset(huge, ' ', (1 << 20) + 1);
    huge[(1 << 20) + 1] = 0;
    assert_int_equal(check(huge, NULL, NULL, &info, &err), LAM_E_LIMIT);
    free(huge);
}

static void test_not_made(void **state)
{
    (void)state;
    lam_error err;
    char *json;
    static const struct {
        const char *figures, *by, *key;
        lam_code code;
    } cases[] = {
        {"{}", NULL, NULL, LAM_E_FORMAT}, {"[]", NULL, NULL, LAM_E_FORMAT}, {"3", NULL, NULL, LAM_E_FORMAT}, {"{", NULL, NULL, LAM_E_FORMAT},
        {"{\"a\":9007199254740993}", NULL, NULL, LAM_E_FORMAT}, {"{\"a\":1}", "", NULL, LAM_E_FORMAT}, {"{\"a\":1}", "a\nb", NULL, LAM_E_FORMAT},
        {"{\"a\":1}", NULL, "nothing.pem", LAM_E_NOT_FOUND}, {"{\"a\":1}", NULL, DATA "alice.pem", LAM_E_FORMAT},
        {"{\"a\":1}", NULL, DATA "receipts.json", LAM_E_FORMAT}, {"{\"composition_id\":\"" OTHER "\"}", NULL, NULL, LAM_E_CONFLICT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_code code = lam_receipt_make(ID, cases[i].figures, cases[i].by, cases[i].key, &json, &err);
        if (code != cases[i].code) fail_msg("case %zu: %s", i, lam_code_name(code));
        assert_null(json);
    }
    assert_int_equal(lam_receipt_make("sha256:12", "{\"a\":1}", NULL, NULL, &json, &err), LAM_E_FORMAT);
    assert_ok(lam_receipt_make(ID, "{\"composition_id\":\"" ID "\",\"a\":1}", NULL, NULL, &json, &err), err);
    lam_memory_free(json);
}

static void test_keys(void **state)
{
    (void)state;
    lam_error err;
    char *secret, *open, key[LAM_KEY_TEXT], *folder = test_make_folder(), path[600], *json;
    lam_trust *trust;
    lam_receipt_info info;
    assert_ok(lam_receipt_keygen(&secret, &open, key, &err), err);
    snprintf(path, sizeof path, "%s/new.pem", folder);
    fixture_write(path, open, strlen(open));
    assert_ok(lam_trust_open(folder, &trust, &err), err);
    snprintf(path, sizeof path, "%s/secret", folder);
    fixture_write(path, secret, strlen(secret));
    assert_ok(lam_receipt_make(ID, FIGURES, NULL, path, &json, &err), err);
    assert_ok(check(json, ID, trust, &info, &err), err);
    assert_string_equal(info.standing, "verified by new");
    assert_string_equal(info.key, key);
    lam_trust_free(trust);
    snprintf(path, sizeof path, "%s/new-private.pem", folder);
    fixture_write(path, secret, strlen(secret));
    assert_int_equal(lam_trust_open(folder, &trust, &err), LAM_E_PRIVATE_KEY); /* in the folder, and given by itself */
    assert_non_null(strstr(err.message, "new-private.pem is a private key"));
    assert_int_equal(lam_trust_open(path, &trust, &err), LAM_E_PRIVATE_KEY);
    static const char *const labels[] = {"ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY"};
    for (size_t i = 0; i < 3; i++) { /* of whatever kind, and also beside a public one */
        char both[2000];
        snprintf(both, sizeof both, "%s-----BEGIN %s-----\nAA==\n-----END %s-----\n", open, labels[i], labels[i]);
        fixture_write(path, both, strlen(both));
        assert_int_equal(lam_trust_open(path, &trust, &err), LAM_E_PRIVATE_KEY);
        assert_null(trust);
    }
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/bad.pem", folder);
    fixture_write(path, "no key", 6);
    assert_int_equal(lam_trust_open(folder, &trust, &err), LAM_E_FORMAT); /* a list that cannot be read is not passed over */
    assert_non_null(strstr(err.message, "bad.pem"));
    assert_null(trust);
    assert_int_equal(lam_trust_open("nothing", &trust, &err), LAM_E_NOT_FOUND);

    /* where the list is by default */
    setenv("XDG_CONFIG_HOME", folder, 1);
    unsetenv("LAMINA_TRUST");
    assert_ok(lam_trust_open(NULL, &trust, &err), err);
    assert_int_equal(lam_trust_size(trust), 0);
    lam_trust_free(trust);
    snprintf(path, sizeof path, "mkdir -p %s/lamina/trust && cp " DATA "bob.pem %s/lamina/trust", folder, folder);
    assert_int_equal(system(path), 0);
    assert_ok(lam_trust_open(NULL, &trust, &err), err);
    assert_int_equal(lam_trust_size(trust), 1);
    lam_trust_free(trust);
    setenv("LAMINA_TRUST", "nothing", 1);
    assert_int_equal(lam_trust_open(NULL, &trust, &err), LAM_E_NOT_FOUND);
    unsetenv("LAMINA_TRUST");
    lam_memory_free(secret);
    lam_memory_free(open);
    lam_memory_free(json);
    test_remove_folder(folder);
}

static void bytes_of(const char *hex, uint8_t *out)
{
    for (size_t i = 0; hex[2 * i]; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
}

/* Keys for which anybody can sign: all of them, from exact arithmetic, and no other. */
static void test_weak_keys(void **state)
{
    (void)state;
    lam_error err;
    lam_trust *trust;
    lam_receipt_info info;
    size_t size, i;
    json_t *keys, *all, *key;
    uint8_t bytes[LAM_ED25519_KEY], signature[LAM_ED25519_SIGNATURE];
    bool good = false;
    char *text = (char *)test_read_file(DATA "low-order.json", &size);
    assert_ok(lam_json_parse(text, size, "keys", &keys, &err), err);
    free(text);
    assert_int_equal(json_array_size(keys), 14);
    json_array_foreach(keys, i, key) {
        bytes_of(json_string_value(key), bytes);
        assert_true(lam_ed25519_low_order(bytes));
        for (size_t bit = 0; bit < 255; bit += 7) { /* 255 is the sign, which every one of them has both ways */
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            bool other = lam_ed25519_low_order(bytes);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (bit) assert_false(other);
        }
    }
    json_decref(keys);
    assert_int_equal(lam_trust_open(DATA "weak.pem", &trust, &err), LAM_E_WEAK_KEY);
    assert_non_null(strstr(err.message, "weak.pem"));

    /* The forged signature does hold by RFC 8032's equation; the receipt is refused for its key. */
    char *forged = golden("forged");
    assert_ok(lam_json_parse(forged, strlen(forged), "forged", &all, &err), err);
    struct lam_str statement = {0};
    const json_t *part = json_object_get(all, "signature");
    assert_ok(lam_json_canonical(json_object_get(all, "statement"), &statement, &err), err);
    bytes_of(json_string_value(json_object_get(part, "key")), bytes);
    bytes_of(json_string_value(json_object_get(part, "value")), signature);
    assert_ok(lam_ed25519_verify(bytes, statement.data, statement.len, signature, &good, &err), err);
    assert_true(good);
    assert_int_equal(check(forged, ID, NULL, &info, &err), LAM_E_WEAK_KEY);
    assert_non_null(strstr(err.message, "ed25519:0100000000"));
    lam_str_release(&statement);
    json_decref(all);
    lam_memory_free(forged);
}

/* RFC 8032, section 7.1, TEST 2 and TEST 3. */
static void test_rfc_8032(void **state)
{
    (void)state;
    static const struct {
        const char *key, *message, *signature;
    } cases[] = {
        {"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
        {"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
         "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
    };
    for (size_t i = 0; i < 2; i++) {
        uint8_t key[32], message[4], signature[64];
        bool good;
        lam_error err;
        bytes_of(cases[i].key, key);
        bytes_of(cases[i].message, message);
        bytes_of(cases[i].signature, signature);
        assert_ok(lam_ed25519_verify(key, message, strlen(cases[i].message) / 2, signature, &good, &err), err);
        assert_true(good);
        message[0] ^= 1;
        assert_ok(lam_ed25519_verify(key, message, strlen(cases[i].message) / 2, signature, &good, &err), err);
        assert_false(good);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_as_the_rfcs_say), cmocka_unit_test(test_standing), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_made), cmocka_unit_test(test_keys), cmocka_unit_test(test_weak_keys), cmocka_unit_test(test_rfc_8032),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
