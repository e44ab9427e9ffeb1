#include "compose/sealed.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

#define KEY_PREFIX "ed25519:"

static void put_hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* text as n bytes of hexadecimal digits in small letters. */
static bool read_hex(const char *text, uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    if (!text || strlen(text) != 2 * n || strspn(text, digits) != 2 * n) return false;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)((strchr(digits, text[2 * i]) - digits) << 4 | (strchr(digits, text[2 * i + 1]) - digits));
    return true;
}

void lam_key_text(const uint8_t key[LAM_ED25519_KEY], char out[LAM_KEY_TEXT])
{
    strcpy(out, KEY_PREFIX);
    put_hex(key, LAM_ED25519_KEY, out + strlen(KEY_PREFIX));
}

lam_code lam_check_members(const json_t *object, const char *what, const char *part, const char *const *names, size_t n, lam_error *err)
{
    const char *key;
    json_t *item;
    if (!json_is_object(object)) return LAM_RAISE(err, LAM_E_FORMAT, "%s: %s is no object", what, part);
    json_object_foreach((json_t *)object, key, item) {
        size_t i = 0;
        while (i < n && strcmp(key, names[i] + (names[i][0] == '?')) != 0) i++;
        if (i == n) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "%s: %s has an unknown field %.100s", what, part, key);
    }
    for (size_t i = 0; i < n; i++)
        if (names[i][0] != '?' && !json_object_get(object, names[i]))
            return LAM_RAISE(err, LAM_E_FORMAT, "%s: %s has no %s", what, part, names[i]);
    return LAM_OK;
}

/* ---- making ---- */

static lam_code sign(const char *key_path, const char *what, const struct lam_str *text, json_t **out, lam_error *err)
{
    struct lam_mapping file;
    uint8_t key[LAM_ED25519_KEY], signature[LAM_ED25519_SIGNATURE];
    char key_hex[2 * LAM_ED25519_KEY + 1], hex[2 * LAM_ED25519_SIGNATURE + 1];
    lam_error why;
    *out = NULL;
    LAM_TRY(lam_map_file(key_path, &file, err));
    lam_code code = lam_ed25519_sign(file.data ? (const char *)file.data : "", file.size, text->data, text->len, key, signature, &why);
    lam_unmap_file(&file);
    if (code != LAM_OK) return LAM_RAISE(err, code, "%s: %s", key_path, why.message);
    put_hex(key, sizeof key, key_hex);
    put_hex(signature, sizeof signature, hex);
    *out = json_pack("{s:s,s:s,s:s}", "algorithm", "ed25519", "key", key_hex, "value", hex);
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s", what);
}

lam_code lam_sealed_make(const json_t *statement, const char *what, const char *key, struct lam_str *out, lam_error *err)
{
    struct lam_str text = {0};
    uint8_t hash[LAM_SHA256_BYTES];
    char digest[LAM_DIGEST_TEXT];
    json_t *signature = NULL, *whole = NULL;
    lam_code code = lam_json_canonical(statement, &text, err);
    if (code == LAM_OK && key) code = sign(key, what, &text, &signature, err);
    if (code == LAM_OK) {
        lam_sha256(text.data, text.len, hash);
        lam_digest_text(hash, digest);
        whole = json_pack("{s:O,s:s,s:o*}", "statement", statement, "digest", digest, "signature", signature);
        code = whole ? lam_json_canonical(whole, out, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s", what);
    }
    json_decref(whole);
    lam_str_release(&text);
    return code;
}

/* ---- checking ---- */

static lam_code check_signature(const json_t *signature, const char *what, const struct lam_str *text, const lam_trust *trust,
                                struct lam_seal *out,
                                lam_error *err)
{
    static const char *const names[] = {"algorithm", "key", "value"};
    uint8_t key[LAM_ED25519_KEY], value[LAM_ED25519_SIGNATURE];
    LAM_TRY(lam_check_members(signature, what, "the signature", names, sizeof names / sizeof *names, err));
    const char *algorithm = json_string_value(json_object_get(signature, "algorithm"));
    if (!algorithm || strcmp(algorithm, "ed25519") != 0)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "%s: signature algorithm %.60s; ed25519 is known", what,
                         algorithm ? algorithm : "none");
    if (!read_hex(json_string_value(json_object_get(signature, "key")), key, sizeof key) ||
        !read_hex(json_string_value(json_object_get(signature, "value")), value, sizeof value))
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: the signature's key has 64 hexadecimal digits in small letters, its value 128", what);
    lam_key_text(key, out->key);
    if (lam_ed25519_low_order(key))
        return LAM_RAISE(err, LAM_E_WEAK_KEY, "%s: key %s is a point of small order, for which anybody can sign", what, out->key);
    out->unchecked = !lam_ed25519_present();
    if (out->unchecked) return LAM_OK;
    bool good = false;
    const char *name = lam_trust_find(trust, key);
    LAM_TRY(lam_ed25519_verify(key, text->data, text->len, value, &good, err));
    if (!good)
        return LAM_RAISE(err, LAM_E_SIGNATURE, "%s: the signature is not that of key %s%s%.100s%s", what, out->key, name ? " (" : "",
                         name ? name : "", name ? ")" : "");
    out->name = name;
    return LAM_OK;
}

lam_code lam_sealed_check(const json_t *whole, const char *what, const lam_trust *trust, struct lam_seal *out, lam_error *err)
{
    static const char *const names[] = {"statement", "digest", "?signature"};
    struct lam_str text = {0};
    uint8_t hash[LAM_SHA256_BYTES];
    *out = (struct lam_seal){0};
    LAM_TRY(lam_check_members(whole, what, "the whole", names, sizeof names / sizeof *names, err));
    const json_t *signature = json_object_get(whole, "signature");
    const char *digest = json_string_value(json_object_get(whole, "digest"));
    lam_code code = lam_json_canonical(json_object_get(whole, "statement"), &text, err);
    if (code == LAM_OK) {
        lam_sha256(text.data, text.len, hash);
        lam_digest_text(hash, out->digest);
        if (!digest || strcmp(digest, out->digest) != 0)
            code = LAM_RAISE(err, LAM_E_DIGEST, "%s: the statement's digest is %s, the %s says %.80s", what, out->digest, what,
                             digest ? digest : "none");
    }
    if (code == LAM_OK && signature) code = check_signature(signature, what, &text, trust, out, err);
    lam_str_release(&text);
    return code;
}
