/* UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef LAM_BASE_UTF8_H
#define LAM_BASE_UTF8_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAM_UTF8_REPLACEMENT 0xFFFDu

/* Decode the character at text[0..len), len >= 1. Returns its bytes (1..4) and sets *cp. If the bytes are no
 * character, sets *cp = LAM_UTF8_REPLACEMENT, *valid = false and returns the length of the maximal subpart (Unicode
 * 15.0, section 3.9, "U+FFFD Substitution of Maximal Subparts"), at least 1. */
size_t lam_utf8_decode(const uint8_t *text, size_t len, uint32_t *cp, bool *valid);

/* Bytes written (1..4); cp must be a scalar value. */
size_t lam_utf8_encode(uint32_t cp, uint8_t out[4]);

/* Bytes of the longest valid prefix. */
size_t lam_utf8_valid_prefix(const uint8_t *text, size_t len);

/* Bytes of the character that text[0..len) begins with if no line of text may have it: a control character, a separator of lines, or an
 * override or isolate of the direction of writing, by which a line shows otherwise than it reads. Else 0. */
size_t lam_utf8_control(const uint8_t *text, size_t len);

/* Valid UTF-8 without such characters. */
bool lam_utf8_is_line(const void *text, size_t len);

/* True if text[0..len) is the beginning of a character, valid so far, that lacks bytes (len 1..3). */
bool lam_utf8_is_partial(const uint8_t *text, size_t len);

/* Append text with every maximal subpart of an ill-formed sequence replaced by U+FFFD, as Python's
 * bytes.decode("utf-8", "replace") and Rust's String::from_utf8_lossy do. False when memory is lacking. */
bool lam_utf8_append_lossy(struct lam_str *out, const void *text, size_t len);

#endif
