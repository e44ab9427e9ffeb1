#include "lamina/receipt.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/json.h"
#include "base/os.h"
#include "base/utf8.h"
#include "compose/manifest.h"
#include "compose/trust.h"

#include <stdio.h>
#include <string.h>

#define RECEIPT_TYPE "lamina.receipt.v0"
#define MOST_BYTES ((size_t)1 << 20)
#define MOST_BY 120    /* bytes of a name */
#define MOST_DEPTH 8   /* of figures */
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

static void key_name(const uint8_t key[LAM_ED25519_KEY], char out[LAM_KEY_TEXT])
{
    strcpy(out, KEY_PREFIX);
    put_hex(key, LAM_ED25519_KEY, out + strlen(KEY_PREFIX));
}

/* Numbers, texts and booleans, and objects of them. */
static bool are_figures(const json_t *value, int depth)
{
    const char *key;
    json_t *item;
    if (!json_is_object(value)) return json_is_number(value) || json_is_string(value) || json_is_boolean(value);
    if (depth == 0 || json_object_size(value) == 0) return false;
    json_object_foreach((json_t *)value, key, item) if (!are_figures(item, depth - 1)) return false;
    return true;
}

static bool is_line(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && *text && strlen(text) == json_string_length(value) && strlen(text) <= MOST_BY && lam_utf8_is_line(text, strlen(text));
}

/* Only these members, and all but those behind a '?'. */
static lam_code check_members(const json_t *object, const char *what, const char *const *names, size_t n, lam_error *err)
{
    const char *key;
    json_t *item;
    if (!json_is_object(object)) return LAM_RAISE(err, LAM_E_FORMAT, "receipt: %s is no object", what);
    json_object_foreach((json_t *)object, key, item) {
        size_t i = 0;
        while (i < n && strcmp(key, names[i] + (names[i][0] == '?')) != 0) i++;
        if (i == n) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "receipt: %s has an unknown field %.100s", what, key);
    }
    for (size_t i = 0; i < n; i++)
        if (names[i][0] != '?' && !json_object_get(object, names[i]))
            return LAM_RAISE(err, LAM_E_FORMAT, "receipt: %s has no %s", what, names[i]);
    return LAM_OK;
}
#define CHECK_MEMBERS(object, what, names, err) check_members(object, what, names, sizeof(names) / sizeof *(names), err)

static lam_code check_statement(const json_t *statement, lam_error *err)
{
    static const char *const names[] = {"type", "composition_id", "?by", "figures"};
    LAM_TRY(CHECK_MEMBERS(statement, "the statement", names, err));
    const char *type = json_string_value(json_object_get(statement, "type")), *id = json_string_value(json_object_get(statement, "composition_id"));
    const json_t *by = json_object_get(statement, "by"), *figures = json_object_get(statement, "figures");
    if (!type || strncmp(type, "lamina.receipt.", 15) != 0) return LAM_RAISE(err, LAM_E_FORMAT, "receipt: the type must be " RECEIPT_TYPE);
    if (strcmp(type, RECEIPT_TYPE) != 0) return LAM_RAISE(err, LAM_E_VERSION, "receipt: type %.100s; this reads " RECEIPT_TYPE, type);
    if (!id || !lam_is_digest(id)) return LAM_RAISE(err, LAM_E_FORMAT, "receipt: composition_id is no digest");
    if (by && !is_line(by)) return LAM_RAISE(err, LAM_E_FORMAT, "receipt: \"by\" must be a line of 1 to %d bytes", MOST_BY);
    if (!json_is_object(figures) || !are_figures(figures, MOST_DEPTH))
        return LAM_RAISE(err, LAM_E_FORMAT, "receipt: figures must be an object of numbers, texts, booleans, or objects of those, and not empty");
    return LAM_OK;
}

/* ---- making ---- */

/* Figures that say which composition they are of must say this one. */
static lam_code check_figures_of(const json_t *figures, const char *id, lam_error *err)
{
    const char *of = json_string_value(json_object_get(figures, "composition_id"));
    if (!of || strcmp(of, id) == 0) return LAM_OK;
    return LAM_RAISE(err, LAM_E_CONFLICT, "the figures are of %.71s, the composition is %s", of, id);
}

static lam_code sign(const char *key_path, const struct lam_str *text, json_t **out, lam_error *err)
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
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "receipt");
}

/* Takes the statement over. */
static lam_code finish(json_t *statement, const char *key, struct lam_str *out, lam_error *err)
{
    struct lam_str text = {0};
    uint8_t hash[LAM_SHA256_BYTES];
    char digest[LAM_DIGEST_TEXT];
    json_t *signature = NULL, *whole = NULL;
    lam_code code = check_statement(statement, err);
    if (code == LAM_OK) code = lam_json_canonical(statement, &text, err);
    if (code == LAM_OK && key) code = sign(key, &text, &signature, err);
    if (code == LAM_OK) {
        lam_sha256(text.data, text.len, hash);
        lam_digest_text(hash, digest);
        whole = json_pack("{s:O,s:s,s:o*}", "statement", statement, "digest", digest, "signature", signature);
        code = whole ? lam_json_canonical(whole, out, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "receipt");
    }
    json_decref(whole);
    json_decref(statement);
    lam_str_release(&text);
    return code;
}

lam_code lam_receipt_make(const char *id, const char *figures, const char *by, const char *key, char **json, lam_error *err)
{
    json_t *numbers;
    struct lam_str text = {0};
    *json = NULL;
    if (by && lam_utf8_valid_prefix((const uint8_t *)by, strlen(by)) != strlen(by))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "receipt: \"by\" is not UTF-8");
    LAM_TRY(lam_json_parse(figures, strlen(figures), "figures", &numbers, err));
    lam_code code = check_figures_of(numbers, id, err);
    if (code != LAM_OK) {
        json_decref(numbers);
        return code;
    }
    /* "s*" would leave out a text for which memory lacks. */
    json_t *statement = json_pack("{s:s,s:s,s:o}", "type", RECEIPT_TYPE, "composition_id", id, "figures", numbers);
    statement = lam_json_whole(statement, by ? json_object_set_new(statement, "by", json_string(by)) : 0);
    if (!statement) return LAM_RAISE(err, LAM_E_NO_MEMORY, "receipt");
    code = finish(statement, key, &text, err);
    if (code == LAM_OK) *json = text.data;
    else lam_str_release(&text);
    return code;
}

lam_code lam_receipt_keygen(char **private_pem, char **public_pem, char key[LAM_KEY_TEXT], lam_error *err)
{
    struct lam_str secret = {0}, open = {0};
    uint8_t bytes[LAM_ED25519_KEY];
    *private_pem = *public_pem = NULL;
    lam_code code = lam_ed25519_generate(&secret, &open, err);
    if (code == LAM_OK) code = lam_ed25519_public(open.data, open.len, bytes, err);
    if (code != LAM_OK) {
        lam_str_release(&secret);
        lam_str_release(&open);
        return code;
    }
    key_name(bytes, key);
    *private_pem = secret.data;
    *public_pem = open.data;
    return LAM_OK;
}

/* ---- checking ---- */

static lam_code check_signature(const json_t *signature, const struct lam_str *text, const lam_trust *trust, lam_receipt_info *out,
                                bool *unchecked, lam_error *err)
{
    static const char *const names[] = {"algorithm", "key", "value"};
    uint8_t key[LAM_ED25519_KEY], value[LAM_ED25519_SIGNATURE];
    LAM_TRY(CHECK_MEMBERS(signature, "the signature", names, err));
    const char *algorithm = json_string_value(json_object_get(signature, "algorithm"));
    if (!algorithm || strcmp(algorithm, "ed25519") != 0)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "receipt: signature algorithm %.60s; ed25519 is known", algorithm ? algorithm : "none");
    if (!read_hex(json_string_value(json_object_get(signature, "key")), key, sizeof key) ||
        !read_hex(json_string_value(json_object_get(signature, "value")), value, sizeof value))
        return LAM_RAISE(err, LAM_E_FORMAT, "receipt: the signature's key has 64 hexadecimal digits in small letters, its value 128");
    key_name(key, out->key);
    if (lam_ed25519_low_order(key)) return LAM_RAISE(err, LAM_E_WEAK_KEY, "receipt: key %s is a point of small order, for which anybody can sign", out->key);
    *unchecked = !lam_ed25519_present();
    if (*unchecked) return LAM_OK;
    bool good = false;
    const char *name = lam_trust_find(trust, key);
    LAM_TRY(lam_ed25519_verify(key, text->data, text->len, value, &good, err));
    if (!good)
        return LAM_RAISE(err, LAM_E_SIGNATURE, "receipt: the signature is not that of key %s%s%.100s%s", out->key, name ? " (" : "",
                         name ? name : "", name ? ")" : "");
    if (!name) return LAM_OK;
    out->state = LAM_RECEIPT_VERIFIED;
    snprintf(out->by, sizeof out->by, "%.150s", name);
    return LAM_OK;
}

/* What others say of themselves stands in quotes. */
static void put_standing(lam_receipt_info *info, bool unchecked)
{
    if (info->state == LAM_RECEIPT_VERIFIED) {
        snprintf(info->standing, sizeof info->standing, "verified by %s", info->by);
        return;
    }
    const char *quote = info->by[0] ? "\"" : "", *why = unchecked ? ", which this build cannot check" : ", which is not in the trust list";
    if (info->key[0])
        snprintf(info->standing, sizeof info->standing, "claimed by %s%.120s%s%skey %.24s…%s", quote, info->by, quote, *quote ? ", " : "",
                 info->key, why);
    else snprintf(info->standing, sizeof info->standing, "claimed by %s%.120s%s%s", quote, info->by, quote, *quote ? ", a bare hash" : "a bare hash");
}

static lam_code check_whole(const json_t *whole, const char *id, const lam_trust *trust, lam_receipt_info *out, lam_error *err)
{
    static const char *const names[] = {"statement", "digest", "?signature"};
    struct lam_str text = {0};
    uint8_t hash[LAM_SHA256_BYTES];
    bool unchecked = false;
    LAM_TRY(CHECK_MEMBERS(whole, "the receipt", names, err));
    const json_t *statement = json_object_get(whole, "statement"), *signature = json_object_get(whole, "signature");
    const char *digest = json_string_value(json_object_get(whole, "digest")), *by = json_string_value(json_object_get(statement, "by"));
    LAM_TRY(check_statement(statement, err));
    lam_code code = lam_json_canonical(statement, &text, err);
    if (code != LAM_OK) {
        lam_str_release(&text);
        return code;
    }
    *out = (lam_receipt_info){.state = LAM_RECEIPT_CLAIMED};
    strcpy(out->composition_id, json_string_value(json_object_get(statement, "composition_id")));
    lam_sha256(text.data, text.len, hash);
    lam_digest_text(hash, out->digest);
    for (size_t i = 0; by && by[i]; i++) out->by[i] = by[i] == '"' ? '\'' : by[i]; /* MOST_BY bytes */
    if (!digest || strcmp(digest, out->digest) != 0)
        code = LAM_RAISE(err, LAM_E_DIGEST, "receipt: the statement's digest is %s, the receipt says %.80s", out->digest, digest ? digest : "none");
    if (code == LAM_OK && signature) code = check_signature(signature, &text, trust, out, &unchecked, err);
    lam_str_release(&text);
    if (code != LAM_OK) return code;
    if (id && strcmp(id, out->composition_id) != 0)
        return LAM_RAISE(err, LAM_E_WRONG_COMPOSITION, "receipt: it is about composition %s, this is %s", out->composition_id, id);
    put_standing(out, unchecked);
    return LAM_OK;
}

lam_code lam_receipt_check(const char *text, size_t len, const char *id, const lam_trust *trust, lam_receipt_info *out, lam_error *err)
{
    json_t *whole;
    *out = (lam_receipt_info){0};
    if (len > MOST_BYTES) return LAM_RAISE(err, LAM_E_LIMIT, "receipt: %zu bytes, %zu at most", len, MOST_BYTES);
    LAM_TRY(lam_json_parse(text, len, "receipt", &whole, err));
    lam_code code = check_whole(whole, id, trust, out, err);
    json_decref(whole);
    return code;
}

lam_code lam_standing(const char *id, size_t n_adapters, const char *const receipts[], size_t n, const lam_trust *trust, char out[256],
                      lam_error *err)
{
    int best = 0;
    strcpy(out, n_adapters ? "unverified mixture" : "base");
    for (size_t i = 0; i < n; i++) {
        lam_receipt_info info;
        LAM_TRY(lam_receipt_check(receipts[i], strlen(receipts[i]), id, trust, &info, err));
        if ((int)info.state <= best) continue;
        best = (int)info.state;
        strcpy(out, info.standing);
    }
    return LAM_OK;
}
