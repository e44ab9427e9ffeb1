#include "lamina/receipt.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/json.h"
#include "base/os.h"
#include "base/utf8.h"
#include "compose/manifest.h"
#include "compose/sealed.h"

#include <stdio.h>
#include <string.h>

#define RECEIPT_TYPE "lamina.receipt.v0"
#define MOST_BYTES ((size_t)1 << 20)
#define MOST_BY 120    /* bytes of a name */
#define MOST_DEPTH 8   /* of figures */

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

#define CHECK_MEMBERS(object, part, names, err) lam_check_members(object, "receipt", part, names, sizeof(names) / sizeof *(names), err)

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

/* Takes the statement over. */
static lam_code finish(json_t *statement, const char *key, struct lam_str *out, lam_error *err)
{
    lam_code code = check_statement(statement, err);
    if (code == LAM_OK) code = lam_sealed_make(statement, "receipt", key, out, err);
    json_decref(statement);
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
    lam_key_text(bytes, key);
    *private_pem = secret.data;
    *public_pem = open.data;
    return LAM_OK;
}

/* ---- checking ---- */

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
    struct lam_seal seal;
    LAM_TRY(CHECK_MEMBERS(whole, "the receipt", names, err));
    const json_t *statement = json_object_get(whole, "statement");
    const char *by = json_string_value(json_object_get(statement, "by"));
    LAM_TRY(check_statement(statement, err));
    LAM_TRY(lam_sealed_check(whole, "receipt", trust, &seal, err));
    *out = (lam_receipt_info){.state = seal.name ? LAM_RECEIPT_VERIFIED : LAM_RECEIPT_CLAIMED};
    strcpy(out->composition_id, json_string_value(json_object_get(statement, "composition_id")));
    strcpy(out->digest, seal.digest);
    strcpy(out->key, seal.key);
    for (size_t i = 0; by && by[i]; i++) out->by[i] = by[i] == '"' ? '\'' : by[i]; /* MOST_BY bytes */
    if (seal.name) snprintf(out->by, sizeof out->by, "%.150s", seal.name);
    if (id && strcmp(id, out->composition_id) != 0)
        return LAM_RAISE(err, LAM_E_WRONG_COMPOSITION, "receipt: it is about composition %s, this is %s", out->composition_id, id);
    put_standing(out, seal.unchecked);
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
