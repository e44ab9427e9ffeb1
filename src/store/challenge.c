#include "store/challenge.h"
#include "base/json.h"

#include <string.h>
#include <strings.h>

#define MOST_TOKEN 16384 /* bytes */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "login: out of memory"); }

static bool is_token(char c) { return c && (unsigned char)c > 0x20 && (unsigned char)c < 0x7f && !strchr("()<>@,;:\\\"/[]?={}", c); }

/* A token or a quoted text at *at, which moves behind it. */
static bool take_value(const char **at, struct lam_str *out)
{
    const char *c = *at;
    if (*c != '"') {
        while (is_token(*c)) c++;
        bool ok = c != *at && lam_str_append(out, *at, (size_t)(c - *at));
        *at = c;
        return ok;
    }
    for (c++; *c != '"'; c++) {
        if (*c == '\\') c++;
        if (!*c || !lam_str_putc(out, *c)) return false;
    }
    *at = c + 1;
    return true;
}

static const char *skip_blanks(const char *c) { return c + strspn(c, " \t"); }

/* name=value, and what stands behind it up to the next one. Parameters of other names are passed over. */
static bool take_parameter(const char **at, struct lam_challenge *out)
{
    struct lam_str value = {0}, *to = NULL;
    const char *name = *at;
    size_t n = 0;
    while (is_token(name[n])) n++;
    const char *c = skip_blanks(name + n);
    if (n == 0 || *c != '=') return false;
    c = skip_blanks(c + 1);
    bool ok = take_value(&c, &value);
    if (n == 5 && strncasecmp(name, "realm", n) == 0) to = &out->realm;
    if (n == 7 && strncasecmp(name, "service", n) == 0) to = &out->service;
    if (n == 5 && strncasecmp(name, "scope", n) == 0) to = &out->scope;
    if (ok && to && !to->data) {
        *to = value;
        value = (struct lam_str){0};
    }
    lam_str_release(&value);
    c = skip_blanks(c);
    if (*c == ',') c = skip_blanks(c + 1);
    else if (*c) ok = false;
    *at = c;
    return ok;
}

lam_code lam_challenge_parse(const char *text, struct lam_challenge *out, lam_error *err)
{
    *out = (struct lam_challenge){.bearer = strncasecmp(text, "bearer ", 7) == 0};
    if (strncasecmp(text, "basic", 5) == 0 && (!text[5] || text[5] == ' ')) return LAM_OK; /* its realm is for people */
    if (!out->bearer) return LAM_RAISE(err, LAM_E_REGISTRY, "the server wants a login by \"%.100s\"; Basic and Bearer are known", text);
    const char *c = skip_blanks(text + 7);
    bool ok = *c != 0;
    while (ok && *c) ok = take_parameter(&c, out);
    if (ok && out->realm.len && (strncmp(out->realm.data, "https://", 8) == 0 || strncmp(out->realm.data, "http://", 7) == 0))
        return LAM_OK;
    lam_challenge_release(out);
    return LAM_RAISE(err, LAM_E_REGISTRY, "the server's challenge \"%.200s\" names no token server", text);
}

void lam_challenge_release(struct lam_challenge *c)
{
    lam_str_release(&c->realm);
    lam_str_release(&c->service);
    lam_str_release(&c->scope);
}

static bool put_query(struct lam_str *out, const char *name, const struct lam_str *value)
{
    if (!value->len) return true;
    bool ok = lam_str_printf(out, "%c%s=", strchr(out->data, '?') ? '&' : '?', name);
    for (size_t i = 0; ok && i < value->len; i++) {
        unsigned char c = (unsigned char)value->data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~:/,", c);
        ok = plain && c ? lam_str_putc(out, (char)c) : lam_str_printf(out, "%%%02X", c);
    }
    return ok;
}

lam_code lam_challenge_url(const struct lam_challenge *c, struct lam_str *out, lam_error *err)
{
    if (lam_str_append(out, c->realm.data, c->realm.len) && put_query(out, "service", &c->service) &&
        put_query(out, "scope", &c->scope)) return LAM_OK;
    return no_memory(err);
}

lam_code lam_token_parse(const char *text, size_t len, struct lam_str *out, lam_error *err)
{
    json_t *root;
    LAM_TRY(lam_json_parse(text, len, "the token server's answer", &root, err));
    const char *token = json_string_value(json_object_get(root, "token"));
    if (!token) token = json_string_value(json_object_get(root, "access_token"));
    size_t n = token ? strlen(token) : 0;
    bool good = n > 0 && n <= MOST_TOKEN;
    for (size_t i = 0; good && i < n; i++) good = (unsigned char)token[i] > 0x20 && (unsigned char)token[i] < 0x7f;
    lam_code code = LAM_OK;
    if (!good) code = LAM_RAISE(err, LAM_E_REGISTRY, "the token server's answer holds no token");
    else if (!lam_str_append(out, token, n)) code = no_memory(err);
    json_decref(root);
    return code;
}

bool lam_base64(const char *bytes, size_t len, struct lam_str *out)
{
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)(unsigned char)bytes[i] << 16;
        if (i + 1 < len) v |= (uint32_t)(unsigned char)bytes[i + 1] << 8;
        if (i + 2 < len) v |= (uint32_t)(unsigned char)bytes[i + 2];
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < len ? digits[v >> 6 & 63] : '=',
                        i + 2 < len ? digits[v & 63] : '='};
        if (!lam_str_append(out, four, 4)) return false;
    }
    return true;
}

/* False if text is no base64. */
static bool from_base64(const char *text, struct lam_str *out)
{
    uint32_t v = 0;
    unsigned bits = 0;
    for (; *text && *text != '='; text++) {
        const char *at = strchr(digits, *text);
        if (!at) return false;
        v = v << 6 | (uint32_t)(at - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            if (!lam_str_putc(out, (char)(v >> bits & 255))) return false;
        }
    }
    return strspn(text, "=") == strlen(text);
}

lam_code lam_docker_login(const char *text, size_t len, const char *host, struct lam_str *out, lam_error *err)
{
    json_t *root;
    LAM_TRY(lam_json_parse(text, len, "docker's config.json", &root, err));
    const json_t *entry = json_object_get(json_object_get(root, "auths"), host);
    const char *both = json_string_value(json_object_get(entry, "auth"));
    const char *user = json_string_value(json_object_get(entry, "username")),
        *password = json_string_value(json_object_get(entry, "password"));
    bool ok = true;
    if (both) ok = from_base64(both, out) && out->len && memchr(out->data, ':', out->len) && !memchr(out->data, 0, out->len);
    else if (user && password) ok = lam_str_printf(out, "%s:%s", user, password);
    json_decref(root);
    if (ok) return LAM_OK;
    lam_str_release(out);
    return LAM_RAISE(err, LAM_E_FORMAT, "docker's config.json: the entry of %.200s cannot be read", host);
}
