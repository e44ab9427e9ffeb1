/* Rules for names that come from files: tensors, keys, shards. */
#ifndef LAM_FORMAT_NAME_H
#define LAM_FORMAT_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* True if bytes[len] is not empty, is well-formed UTF-8 (RFC 3629), and would stand in one line of text as it reads (lam_utf8_is_line). */
bool lam_name_is_clean(const char *bytes, size_t len);

/* Order by unsigned bytes, a prefix before what it begins: <0, 0, >0. */
int lam_name_compare(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
