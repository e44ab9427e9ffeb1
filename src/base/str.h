/* A growing byte string, always zero-terminated after the first append. */
#ifndef LAM_BASE_STR_H
#define LAM_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

struct lam_str {
    char *data;      /* NULL while empty; owned */
    size_t len, cap; /* bytes */
};

/* Each returns false when memory is lacking; the string then keeps its old content. */
bool lam_str_append(struct lam_str *s, const void *bytes, size_t len);
bool lam_str_puts(struct lam_str *s, const char *text);
bool lam_str_putc(struct lam_str *s, char c);
bool lam_str_printf(struct lam_str *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Keep the memory, drop the content. */
void lam_str_clear(struct lam_str *s);
void lam_str_release(struct lam_str *s);

/* A zero-terminated copy; freed with lam_free. NULL when memory is lacking. */
char *lam_strdup(const char *text);
char *lam_strndup(const char *text, size_t len);

/* Makes text one line of UTF-8, whatever a hostile file put into it: what lam_utf8_control tells of and bytes that are no UTF-8 become '?'. */
void lam_clean_line(char *text);

#endif
