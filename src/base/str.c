#include "base/str.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool str_reserve(struct lam_str *s, size_t extra)
{
    size_t need;
    if (!lam_add_size(s->len, extra, &need) || !lam_add_size(need, 1, &need)) return false;
    if (need <= s->cap) return true;
    size_t cap = s->cap ? s->cap : 64;
    while (cap < need)
        if (!lam_mul_size(cap, 2, &cap)) return false;
    char *data = lam_realloc(s->data, cap, 1);
    if (!data) return false;
    s->data = data;
    s->cap = cap;
    return true;
}

bool lam_str_append(struct lam_str *s, const void *bytes, size_t len)
{
    if (!str_reserve(s, len)) return false;
    if (len) memcpy(s->data + s->len, bytes, len);
    s->len += len;
    s->data[s->len] = 0;
    return true;
}

bool lam_str_puts(struct lam_str *s, const char *text) { return lam_str_append(s, text, strlen(text)); }
bool lam_str_putc(struct lam_str *s, char c) { return lam_str_append(s, &c, 1); }

bool lam_str_printf(struct lam_str *s, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && str_reserve(s, (size_t)n);
    if (ok) {
        vsnprintf(s->data + s->len, (size_t)n + 1, format, again);
        s->len += (size_t)n;
    }
    va_end(again);
    return ok;
}

void lam_str_clear(struct lam_str *s)
{
    s->len = 0;
    if (s->data) s->data[0] = 0;
}

void lam_str_release(struct lam_str *s)
{
    lam_free(s->data);
    *s = (struct lam_str){0};
}

char *lam_strndup(const char *text, size_t len)
{
    char *copy = lam_alloc(len + 1, 1);
    if (copy && len) memcpy(copy, text, len);
    return copy;
}

char *lam_strdup(const char *text) { return lam_strndup(text, strlen(text)); }

void lam_clean_line(char *text)
{
    size_t left = strlen(text), n;
    for (char *c = text; (n = lam_utf8_valid_prefix((const uint8_t *)c, left)) < left; c += n + 1, left -= n + 1) c[n] = '?';
    left = strlen(text);
    for (char *c = text; left; c += n, left -= n) {
        n = lam_utf8_control((const uint8_t *)c, left);
        if (n) memset(c, '?', n);
        else n = 1; /* a byte within a character is no control either */
    }
}
