/* Text as Python's str sees it: white space, case, printable characters, numbers. Bytes are valid UTF-8 throughout. */
#ifndef LAM_TEXT_TEMPLATE_TEXT_H
#define LAM_TEXT_TEMPLATE_TEXT_H

#include "base/str.h"
#include "text/template_value.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code point at s[0..len), len > 0; *size is its length in bytes. */
uint32_t lam_tpl_decode(const char *s, size_t len, size_t *size);
/* The bytes of a code point in out[4]; returns their number. */
size_t lam_tpl_encode(uint32_t code, char *out);
/* Offset of the first byte that is not valid UTF-8, or len. */
size_t lam_tpl_invalid_utf8(const char *s, size_t len);
size_t lam_tpl_count(struct lam_tpl_text t); /* characters */
/* Offset in bytes of a character; t.len when there are fewer. */
size_t lam_tpl_offset(struct lam_tpl_text t, size_t character);

bool lam_tpl_is_space(uint32_t code);     /* str.isspace */
bool lam_tpl_is_printable(uint32_t code); /* str.isprintable, unassigned code points included */
/* How many white space bytes t begins or ends with. */
size_t lam_tpl_leading_space(struct lam_tpl_text t);
size_t lam_tpl_trailing_space(struct lam_tpl_text t);
/* Where needle begins in t at or after byte `from`, or t.len + 1. An empty needle is found at once. */
size_t lam_tpl_find(struct lam_tpl_text t, struct lam_tpl_text needle, size_t from);

/* str.upper, lower, title, capitalize: appended to s. */
enum lam_tpl_case { LAM_TPL_UPPER, LAM_TPL_LOWER, LAM_TPL_TITLE, LAM_TPL_CAPITALIZE };
lam_code lam_tpl_put_case(struct lam_tpl_run *run, struct lam_tpl_text t, enum lam_tpl_case to, struct lam_str *s);
/* 1 for an upper-case or title-case character, -1 for a lower-case one, 0 for one without case. */
int lam_tpl_case_of(uint32_t code);
/* The code points of the case mapping in out[3]; returns their number. */
size_t lam_tpl_map_upper(uint32_t code, uint32_t *out);
size_t lam_tpl_map_title(uint32_t code, uint32_t *out);
size_t lam_tpl_map_lower(uint32_t code, uint32_t *out);

/* repr(float) in out[32], zero-terminated; independent of the locale. */
void lam_tpl_float_repr(double f, char *out);
/* Python's int(t) and float(t) for decimal notation; false when t is none or doesn't fit. */
bool lam_tpl_parse_int(struct lam_tpl_text t, int64_t *out);
bool lam_tpl_parse_float(struct lam_tpl_text t, double *out);

#endif
