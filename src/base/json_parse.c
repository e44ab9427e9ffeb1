/* The JSON parser (RFC 8259). Jansson's own drops bytes of a string and blames the text when memory is lacking, so only its values
 * are used: each allocation is checked here. */
#include "base/json.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 2048

struct parser {
    const char *text, *what; /* what names the text in errors */
    size_t len, at;
    unsigned depth;
    struct lam_str scratch;  /* the string or number just read */
    lam_error *err;
};

static lam_code no_memory(const struct parser *p) { return LAM_RAISE(p->err, LAM_E_NO_MEMORY, "%s: out of memory", p->what); }

static lam_code refuse(const struct parser *p, lam_code code, const char *why)
{
    size_t line = 1, start = 0;
    for (size_t i = 0; i < p->at; i++)
        if (p->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    return LAM_RAISE(p->err, code, "%s: JSON line %zu column %zu: %s", p->what, line, p->at - start + 1, why);
}

/* The byte at hand; 0 at the end, which is no JSON either. */
static char peek(const struct parser *p) { return p->at < p->len ? p->text[p->at] : 0; }

static void skip_space(struct parser *p)
{
    while (p->at < p->len && (p->text[p->at] == ' ' || p->text[p->at] == '\t' || p->text[p->at] == '\n' || p->text[p->at] == '\r'))
        p->at++;
}

/* The next byte that is not white space, which is then passed if it is c. */
static bool take(struct parser *p, char c)
{
    skip_space(p);
    if (peek(p) != c) return false;
    p->at++;
    return true;
}

static bool read_hex4(struct parser *p, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        char c = peek(p);
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/* After "\u": one character, of one or two escapes. */
static lam_code read_unicode(struct parser *p)
{
    uint32_t cp, low = 0;
    uint8_t bytes[4];
    if (!read_hex4(p, &cp)) return refuse(p, LAM_E_FORMAT, "four hexadecimal digits are needed");
    if (cp >= 0xD800 && cp < 0xDC00) {
        bool pair = peek(p) == '\\' && p->at + 1 < p->len && p->text[p->at + 1] == 'u';
        if (pair) p->at += 2;
        if (!pair || !read_hex4(p, &low) || low < 0xDC00 || low > 0xDFFF) return refuse(p, LAM_E_FORMAT, "half a surrogate pair");
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    } else if (cp >= 0xDC00 && cp <= 0xDFFF) {
        return refuse(p, LAM_E_FORMAT, "half a surrogate pair");
    }
    return lam_str_append(&p->scratch, bytes, lam_utf8_encode(cp, bytes)) ? LAM_OK : no_memory(p);
}

static lam_code read_escape(struct parser *p)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = peek(p);
    const char *found = c ? strchr(from, c) : NULL;
    if (c != 'u' && !found) return refuse(p, LAM_E_FORMAT, "an unknown escape");
    p->at++;
    if (c == 'u') return read_unicode(p);
    return lam_str_putc(&p->scratch, to[found - from]) ? LAM_OK : no_memory(p);
}

/* After the opening quote: the string, decoded, into scratch. */
static lam_code read_string(struct parser *p)
{
    lam_str_clear(&p->scratch);
    if (!lam_str_puts(&p->scratch, "")) return no_memory(p);
    for (;;) {
        size_t start = p->at;
        while (p->at < p->len && p->text[p->at] != '"' && p->text[p->at] != '\\' && (unsigned char)p->text[p->at] >= 0x20) p->at++;
        if (!lam_str_append(&p->scratch, p->text + start, p->at - start)) return no_memory(p);
        if (p->at == p->len) return refuse(p, LAM_E_FORMAT, "the text ends within a string");
        char c = p->text[p->at];
        if (c != '"' && c != '\\') return refuse(p, LAM_E_FORMAT, "a control character in a string");
        p->at++;
        if (c == '"') break;
        LAM_TRY(read_escape(p));
    }
    if (lam_utf8_valid_prefix((const uint8_t *)p->scratch.data, p->scratch.len) != p->scratch.len)
        return refuse(p, LAM_E_FORMAT, "a string that is not UTF-8");
    return LAM_OK;
}

static size_t skip_digits(struct parser *p)
{
    size_t start = p->at;
    while (peek(p) >= '0' && peek(p) <= '9') p->at++;
    return p->at - start;
}

/* digits[n] as an integer of 64 bits; false if it is beyond. */
static bool read_integer(const char *digits, size_t n, bool negative, json_int_t *out)
{
    json_int_t value = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = digits[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, negative ? -digit : digit, &value)) return false;
    }
    *out = value;
    return true;
}

/* text[len] as a float64; strtod wants the locale's decimal point. */
static lam_code read_real(struct parser *p, const char *text, size_t len, json_t **out)
{
    const char *point = memchr(text, '.', len);
    size_t whole = point ? (size_t)(point - text) : len;
    lam_str_clear(&p->scratch);
    bool ok = lam_str_append(&p->scratch, text, whole);
    if (point) ok = ok && lam_str_puts(&p->scratch, localeconv()->decimal_point) && lam_str_append(&p->scratch, point + 1, len - whole - 1);
    if (!ok) return no_memory(p);
    double value = strtod(p->scratch.data, NULL);
    if (!isfinite(value)) return refuse(p, LAM_E_FORMAT, "a number beyond float64");
    *out = json_real(value);
    return *out ? LAM_OK : no_memory(p);
}

/* Integers beyond 64 bits (model_max_length 10^30 of many tokenizer_config.json) become reals. */
static lam_code read_number(struct parser *p, json_t **out)
{
    size_t start = p->at;
    bool negative = peek(p) == '-', real = false;
    p->at += negative;
    size_t first = p->at, n = skip_digits(p);
    if (n == 0 || (n > 1 && p->text[first] == '0')) return refuse(p, LAM_E_FORMAT, "a value is needed");
    if (peek(p) == '.') {
        real = true;
        p->at++;
        if (skip_digits(p) == 0) return refuse(p, LAM_E_FORMAT, "digits are needed after the point");
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        real = true;
        p->at++;
        p->at += peek(p) == '+' || peek(p) == '-';
        if (skip_digits(p) == 0) return refuse(p, LAM_E_FORMAT, "digits are needed in the exponent");
    }
    json_int_t value;
    if (real || !read_integer(p->text + first, n, negative, &value)) return read_real(p, p->text + start, p->at - start, out);
    *out = json_integer(value);
    return *out ? LAM_OK : no_memory(p);
}

static lam_code read_value(struct parser *p, json_t **out);

static lam_code read_member(struct parser *p, json_t *object)
{
    if (!take(p, '"')) return refuse(p, LAM_E_FORMAT, "a name is needed");
    LAM_TRY(read_string(p));
    size_t len = p->scratch.len;
    if (memchr(p->scratch.data, 0, len)) return refuse(p, LAM_E_FORMAT, "a name with a zero");
    if (json_object_getn(object, p->scratch.data, len)) return refuse(p, LAM_E_DUPLICATE, "a name that occurs twice");
    if (!take(p, ':')) return refuse(p, LAM_E_FORMAT, "a colon is needed");
    char *name = lam_strndup(p->scratch.data, len);
    json_t *value = NULL;
    lam_code code = name ? read_value(p, &value) : no_memory(p);
    if (code == LAM_OK && json_object_setn_new_nocheck(object, name, len, value) != 0) code = no_memory(p);
    lam_free(name);
    return code;
}

static lam_code read_item(struct parser *p, json_t *array)
{
    json_t *value;
    LAM_TRY(read_value(p, &value));
    return json_array_append_new(array, value) == 0 ? LAM_OK : no_memory(p);
}

/* After the opening bracket: the members of *out up to the closing one. */
static lam_code read_members(struct parser *p, char close, lam_code (*read_one)(struct parser *, json_t *), json_t *out)
{
    if (take(p, close)) return LAM_OK;
    if (++p->depth > MAX_DEPTH) return refuse(p, LAM_E_FORMAT, "nested too deep");
    do LAM_TRY(read_one(p, out));
    while (take(p, ','));
    p->depth--;
    return take(p, close) ? LAM_OK : refuse(p, LAM_E_FORMAT, close == '}' ? "a comma or } is needed" : "a comma or ] is needed");
}

static lam_code read_literal(struct parser *p, json_t **out)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++) {
        size_t len = strlen(words[i]);
        if (p->len - p->at < len || memcmp(p->text + p->at, words[i], len) != 0) continue;
        p->at += len;
        *out = i == 0 ? json_true() : i == 1 ? json_false() : json_null();
        return LAM_OK;
    }
    return read_number(p, out);
}

static lam_code read_value(struct parser *p, json_t **out)
{
    lam_code code;
    *out = NULL;
    if (take(p, '"')) {
        LAM_TRY(read_string(p));
        *out = json_stringn_nocheck(p->scratch.data, p->scratch.len);
        return *out ? LAM_OK : no_memory(p);
    }
    bool object = take(p, '{');
    if (!object && !take(p, '[')) return read_literal(p, out);
    json_t *value = object ? json_object() : json_array();
    if (!value) return no_memory(p);
    code = object ? read_members(p, '}', read_member, value) : read_members(p, ']', read_item, value);
    if (code == LAM_OK) *out = value;
    else json_decref(value);
    return code;
}

lam_code lam_json_parse(const char *text, size_t len, const char *what, json_t **out, lam_error *err)
{
    struct parser p = {.text = text, .what = what, .len = len, .err = err};
    lam_code code = read_value(&p, out);
    skip_space(&p);
    if (code == LAM_OK && p.at < len) code = refuse(&p, LAM_E_FORMAT, "more text after the value");
    lam_str_release(&p.scratch);
    if (code != LAM_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return code;
}
