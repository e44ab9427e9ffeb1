#include "text/template_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t lam_tpl_decode(const char *s, size_t len, size_t *size)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n > len) n = 1;
    *size = n;
    switch (n) {
    case 1: return p[0];
    case 2: return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3: return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    default: return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    }
}

size_t lam_tpl_encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

size_t lam_tpl_invalid_utf8(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    while (i < len) {
        size_t n = p[i] < 0x80 ? 1 : p[i] < 0xc2 ? 0 : p[i] < 0xe0 ? 2 : p[i] < 0xf0 ? 3 : p[i] < 0xf5 ? 4 : 0;
        if (n == 0 || n > len - i) return i;
        for (size_t k = 1; k < n; k++)
            if ((p[i + k] & 0xc0) != 0x80) return i;
        size_t size;
        uint32_t c = lam_tpl_decode(s + i, len - i, &size);
        if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) || (n == 4 && (c < 0x10000 || c > 0x10ffff)))
            return i;
        i += n;
    }
    return len;
}

size_t lam_tpl_count(struct lam_tpl_text t)
{
    size_t n = 0;
    for (size_t i = 0; i < t.len; i++) n += ((unsigned char)t.s[i] & 0xc0) != 0x80;
    return n;
}

size_t lam_tpl_offset(struct lam_tpl_text t, size_t character)
{
    for (size_t i = 0; i < t.len; i++)
        if (((unsigned char)t.s[i] & 0xc0) != 0x80 && character-- == 0) return i;
    return t.len;
}

bool lam_tpl_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Unicode 15: categories Cc, Cf, Cs, Co, Zl, Zp, and Zs but for the space itself. */
static const uint32_t unprintable[][2] = {
    {0x0, 0x1f},       {0x7f, 0xa0},      {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
    {0x6dd, 0x6dd},    {0x70f, 0x70f},    {0x890, 0x891},     {0x8e2, 0x8e2},     {0x1680, 0x1680},
    {0x180e, 0x180e},  {0x2000, 0x200f},  {0x2028, 0x202f},   {0x205f, 0x2064},   {0x2066, 0x206f},
    {0x3000, 0x3000},  {0xd800, 0xf8ff},  {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd},
    {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0001, 0xe0001},
    {0xe0020, 0xe007f}, {0xf0000, 0xffffd}, {0x100000, 0x10fffd},
};

bool lam_tpl_is_printable(uint32_t c)
{
    for (size_t i = 0; i < sizeof unprintable / sizeof *unprintable; i++)
        if (c >= unprintable[i][0] && c <= unprintable[i][1]) return false;
    return true;
}

size_t lam_tpl_leading_space(struct lam_tpl_text t)
{
    size_t i = 0, size;
    while (i < t.len && lam_tpl_is_space(lam_tpl_decode(t.s + i, t.len - i, &size))) i += size;
    return i;
}

size_t lam_tpl_trailing_space(struct lam_tpl_text t)
{
    size_t end = t.len;
    while (end > 0) {
        size_t at = end - 1, size;
        while (at > 0 && ((unsigned char)t.s[at] & 0xc0) == 0x80) at--;
        if (!lam_tpl_is_space(lam_tpl_decode(t.s + at, end - at, &size))) break;
        end = at;
    }
    return t.len - end;
}

size_t lam_tpl_find(struct lam_tpl_text t, struct lam_tpl_text needle, size_t from)
{
    if (needle.len == 0 && from <= t.len) return from;
    while (from + needle.len <= t.len) {
        const char *hit = memchr(t.s + from, needle.s[0], t.len - needle.len + 1 - from);
        if (!hit) break;
        if (memcmp(hit, needle.s, needle.len) == 0) return (size_t)(hit - t.s);
        from = (size_t)(hit - t.s) + 1;
    }
    return t.len + 1;
}

/* ---- case ---- */

int lam_tpl_case_of(uint32_t code)
{
    uint32_t mapped[3];
    if (lam_tpl_map_lower(code, mapped) != 1 || mapped[0] != code) return 1;
    if (lam_tpl_map_upper(code, mapped) != 1 || mapped[0] != code) return -1;
    return 0;
}

/* Characters that don't end a word for the sake of a final sigma. */
static bool case_ignorable(uint32_t c)
{
    return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xad || c == 0xb7 || c == 0x2019 ||
           (c >= 0x300 && c <= 0x36f);
}

/* Whether the sigma that ends before byte `after` and begins at `at` ends a word. */
static bool final_sigma(struct lam_tpl_text t, size_t at, size_t after)
{
    size_t size;
    uint32_t c = 0;
    bool cased_before = false;
    while (at > 0 && !cased_before) {
        size_t start = at - 1;
        while (start > 0 && ((unsigned char)t.s[start] & 0xc0) == 0x80) start--;
        c = lam_tpl_decode(t.s + start, at - start, &size);
        if (!case_ignorable(c)) {
            cased_before = lam_tpl_case_of(c) != 0;
            break;
        }
        at = start;
    }
    if (!cased_before) return false;
    for (; after < t.len; after += size) {
        c = lam_tpl_decode(t.s + after, t.len - after, &size);
        if (!case_ignorable(c)) return lam_tpl_case_of(c) == 0;
    }
    return true;
}

lam_code lam_tpl_put_case(struct lam_tpl_run *run, struct lam_tpl_text t, enum lam_tpl_case to, struct lam_str *s)
{
    LAM_TRY(lam_tpl_tick(run, t.len / 4));
    bool in_word = false;
    size_t size;
    for (size_t i = 0; i < t.len; i += size) {
        uint32_t c = lam_tpl_decode(t.s + i, t.len - i, &size), mapped[3];
        size_t n;
        if (to == LAM_TPL_UPPER) n = lam_tpl_map_upper(c, mapped);
        else if ((to == LAM_TPL_TITLE && !in_word) || (to == LAM_TPL_CAPITALIZE && i == 0)) n = lam_tpl_map_title(c, mapped);
        else if (c == 0x3a3 && final_sigma(t, i, i + size)) n = 1, mapped[0] = 0x3c2;
        else n = lam_tpl_map_lower(c, mapped);
        in_word = lam_tpl_case_of(c) != 0;
        for (size_t k = 0; k < n; k++) {
            char bytes[4];
            LAM_TRY(lam_tpl_put(run, s, bytes, lam_tpl_encode(mapped[k], bytes)));
        }
    }
    return LAM_OK;
}

/* ---- numbers ---- */

/* Shortest decimal digits that read back as f: digits[18] and the exponent of the first digit. */
static int shortest_digits(double f, char *digits)
{
    char buffer[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(buffer, sizeof buffer, "%.*e", precision, f);
        if (strtod(buffer, NULL) == f) break;
    }
    size_t n = 0;
    const char *c = buffer;
    for (; *c && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    digits[n] = 0;
    return *c ? atoi(c + 1) : 0;
}

void lam_tpl_float_repr(double f, char *out)
{
    if (isnan(f) || isinf(f)) {
        strcpy(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    char digits[24];
    int exponent = shortest_digits(fabs(f), digits), n = (int)strlen(digits);
    char *o = out;
    if (signbit(f)) *o++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *o++ = digits[0];
        if (n > 1) *o++ = '.';
        memcpy(o, digits + 1, (size_t)n - 1);
        sprintf(o + n - 1, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        *o++ = '0';
        *o++ = '.';
        for (int i = -1; i > exponent; i--) *o++ = '0';
        memcpy(o, digits, (size_t)n + 1);
        return;
    }
    for (int i = 0; i <= exponent; i++) *o++ = i < n ? digits[i] : '0';
    *o++ = '.';
    if (n <= exponent + 1) *o++ = '0';
    for (int i = exponent + 1; i < n; i++) *o++ = digits[i];
    *o = 0;
}

static struct lam_tpl_text stripped(struct lam_tpl_text t)
{
    size_t lead = lam_tpl_leading_space(t);
    t.s += lead;
    t.len -= lead;
    t.len -= lam_tpl_trailing_space(t);
    return t;
}

bool lam_tpl_parse_int(struct lam_tpl_text t, int64_t *out)
{
    t = stripped(t);
    size_t i = 0;
    bool negative = t.len && t.s[0] == '-';
    if (t.len && (t.s[0] == '-' || t.s[0] == '+')) i = 1;
    if (i == t.len) return false;
    int64_t value = 0;
    for (; i < t.len; i++) {
        if (t.s[i] < '0' || t.s[i] > '9') return false;
        int digit = t.s[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, negative ? -digit : digit, &value))
            return false;
    }
    *out = value;
    return true;
}

bool lam_tpl_parse_float(struct lam_tpl_text t, double *out)
{
    /* strtod gets the digits without a point and the exponent moved, so that the locale's point doesn't matter. */
    char digits[400];
    size_t n = 0, i = 0;
    long shift = 0, exponent = 0;
    bool any = false, point = false;
    t = stripped(t);
    if (i < t.len && (t.s[i] == '-' || t.s[i] == '+')) digits[n++] = t.s[i++];
    for (; i < t.len && n < 340; i++) {
        if (t.s[i] == '.' && !point) {
            point = true;
        } else if (t.s[i] >= '0' && t.s[i] <= '9') {
            digits[n++] = t.s[i];
            any = true;
            shift -= point;
        } else {
            break;
        }
    }
    if (!any) return false;
    if (i < t.len) {
        if (t.s[i] != 'e' && t.s[i] != 'E') return false;
        int64_t e;
        struct lam_tpl_text rest = {t.s + i + 1, t.len - i - 1};
        if (rest.len == 0 || lam_tpl_leading_space(rest) || !lam_tpl_parse_int(rest, &e) || e > 100000 || e < -100000) return false;
        exponent = (long)e;
    }
    snprintf(digits + n, sizeof digits - n, "e%ld", exponent + shift);
    *out = strtod(digits, NULL);
    return true;
}
