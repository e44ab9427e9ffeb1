/* Canonical JSON (RFC 8785). */
#include "base/json.h"
#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAFE_INTEGER 9007199254740991LL /* 2^53 - 1, RFC 8785 section 3.2.2.3 by way of I-JSON */

/* The decimal point is the locale's, and whatever it is, it is no digit. */
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The next decimal of the same length above "d.ddde±x". All nines have no such: a power of ten is shorter. */
static void next_decimal(char *text)
{
    for (char *c = strchr(text, 'e') - 1; c >= text; c--) {
        if (!is_digit(*c)) continue;
        if (*c != '9') {
            ++*c;
            return;
        }
        *c = '0';
    }
}

/* Digits and exponent of the shortest decimal that reads back as value > 0, by trying 1 to 17 digits: the nearest of that length, and
 * the one above it, since a power of two stands closer to its lower neighbour than to its upper one. */
static int shortest_digits(double value, char digits[20])
{
    char text[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        double nearest = strtod(text, NULL);
        if (nearest == value) break;
        if (nearest > value) continue;
        next_decimal(text);
        if (strtod(text, NULL) == value) break;
    }
    char *exponent = strchr(text, 'e');
    int n = 0;
    for (char *c = text; c < exponent; c++)
        if (is_digit(*c)) digits[n++] = *c;
    while (n > 1 && digits[n - 1] == '0') n--;
    digits[n] = 0;
    return atoi(exponent + 1) + 1; /* position of the decimal point after digits[0..] */
}

void lam_json_number(double value, char out[LAM_JSON_NUMBER])
{
    if (value == 0) {
        strcpy(out, "0");
        return;
    }
    char digits[20];
    char *p = out;
    if (value < 0) *p++ = '-';
    size_t room = LAM_JSON_NUMBER - (size_t)(p - out);
    int point = shortest_digits(fabs(value), digits);
    int n = (int)strlen(digits);
    /* ECMA-262 Number::toString, with k = n digits and n = point. */
    if (n <= point && point <= 21)
        snprintf(p, room, "%s%.*s", digits, point - n, "000000000000000000000");
    else if (0 < point && point <= 21)
        snprintf(p, room, "%.*s.%s", point, digits, digits + point);
    else if (-6 < point && point <= 0)
        snprintf(p, room, "0.%.*s%s", -point, "000000", digits);
    else
        snprintf(p, room, "%c%s%se%+d", digits[0], n > 1 ? "." : "", digits + 1, point - 1);
}

static bool put_string(struct lam_str *out, const char *text, size_t len)
{
    bool ok = lam_str_putc(out, '"');
    for (size_t i = 0; ok && i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        switch (c) {
        case '"': ok = lam_str_puts(out, "\\\""); break;
        case '\\': ok = lam_str_puts(out, "\\\\"); break;
        case '\b': ok = lam_str_puts(out, "\\b"); break;
        case '\t': ok = lam_str_puts(out, "\\t"); break;
        case '\n': ok = lam_str_puts(out, "\\n"); break;
        case '\f': ok = lam_str_puts(out, "\\f"); break;
        case '\r': ok = lam_str_puts(out, "\\r"); break;
        default: ok = c < 0x20 ? lam_str_printf(out, "\\u%04x", c) : lam_str_putc(out, (char)c);
        }
    }
    return ok && lam_str_putc(out, '"');
}

/* RFC 8785 section 3.2.3: keys are ordered as arrays of UTF-16 code units. For UTF-8 bytes that differs from byte order
 * only between the surrogates' range (lead bytes F0..F4) and U+E000..U+FFFF (lead bytes EE, EF). */
static int utf16_weight(unsigned char c) { return c >= 0xF0 ? 0xED : c >= 0xEE ? c + 8 : c; }

static int compare_keys(const void *left, const void *right)
{
    const unsigned char *a = *(const unsigned char *const *)left, *b = *(const unsigned char *const *)right;
    while (*a && *a == *b) a++, b++;
    int wa = utf16_weight(*a), wb = utf16_weight(*b);
    return wa != wb ? wa - wb : *a - *b;
}

static lam_code put_value(const json_t *value, struct lam_str *out, lam_error *err);

static lam_code put_object(const json_t *object, struct lam_str *out, lam_error *err)
{
    size_t n = json_object_size(object), i = 0;
    const char **keys = lam_alloc(n, sizeof *keys);
    if (!keys) return LAM_RAISE(err, LAM_E_NO_MEMORY, "canonical JSON: %zu keys", n);
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)object, key, item) keys[i++] = key;
    qsort(keys, n, sizeof *keys, compare_keys);
    bool ok = lam_str_putc(out, '{');
    lam_code code = LAM_OK;
    for (i = 0; ok && code == LAM_OK && i < n; i++) {
        ok = (i == 0 || lam_str_putc(out, ',')) && put_string(out, keys[i], strlen(keys[i])) && lam_str_putc(out, ':');
        if (ok) code = put_value(json_object_get(object, keys[i]), out, err);
    }
    lam_free(keys);
    if (code != LAM_OK) return code;
    return ok && lam_str_putc(out, '}') ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "canonical JSON");
}

static lam_code put_array(const json_t *array, struct lam_str *out, lam_error *err)
{
    bool ok = lam_str_putc(out, '[');
    for (size_t i = 0; ok && i < json_array_size(array); i++) {
        ok = i == 0 || lam_str_putc(out, ',');
        if (ok) LAM_TRY(put_value(json_array_get(array, i), out, err));
    }
    return ok && lam_str_putc(out, ']') ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "canonical JSON");
}

static lam_code put_value(const json_t *value, struct lam_str *out, lam_error *err)
{
    bool ok = true;
    char number[LAM_JSON_NUMBER];
    switch (json_typeof(value)) {
    case JSON_OBJECT: return put_object(value, out, err);
    case JSON_ARRAY: return put_array(value, out, err);
    case JSON_STRING: ok = put_string(out, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER: {
        json_int_t v = json_integer_value(value);
        if (v > MAX_SAFE_INTEGER || v < -MAX_SAFE_INTEGER)
            return LAM_RAISE(err, LAM_E_FORMAT, "canonical JSON: integer %lld is beyond 2^53", (long long)v);
        ok = lam_str_printf(out, "%lld", (long long)v);
        break;
    }
    case JSON_REAL:
        if (!isfinite(json_real_value(value)))
            return LAM_RAISE(err, LAM_E_FORMAT, "canonical JSON: a number that is not finite");
        lam_json_number(json_real_value(value), number);
        ok = lam_str_puts(out, number);
        break;
    case JSON_TRUE: ok = lam_str_puts(out, "true"); break;
    case JSON_FALSE: ok = lam_str_puts(out, "false"); break;
    case JSON_NULL: ok = lam_str_puts(out, "null"); break;
    }
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "canonical JSON");
}

lam_code lam_json_refuse(const json_error_t *problem, const char *what, lam_error *err)
{
    bool lacking = json_error_code(problem) == json_error_out_of_memory;
    return LAM_RAISE(err, lacking ? LAM_E_NO_MEMORY : LAM_E_FORMAT, "%s: %s", what, problem->text);
}

json_t *lam_json_whole(json_t *value, int failed)
{
    if (!failed) return value;
    json_decref(value);
    return NULL;
}

lam_code lam_json_canonical(const json_t *value, struct lam_str *out, lam_error *err)
{
    return put_value(value, out, err);
}

lam_code lam_json_digest(const json_t *value, uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    struct lam_str text = {0};
    lam_code code = lam_json_canonical(value, &text, err);
    if (code == LAM_OK) lam_sha256(text.data, text.len, out);
    lam_str_release(&text);
    return code;
}
