/* JSON in Jansson's values: strict parsing, canonical writing by RFC 8785 (JCS). */
#ifndef LAM_BASE_JSON_H
#define LAM_BASE_JSON_H

#include "base/error.h"
#include "base/sha256.h"
#include "base/str.h"

#include <jansson.h>

/* Strict parse: duplicates rejected, whole input consumed, nesting bounded (2048). Strings may hold U+0000, names not; integers
 * beyond 64 bits become reals. what names the input in errors.
 * LAM_E_FORMAT, LAM_E_DUPLICATE, LAM_E_NO_MEMORY. *out is a new reference. */
lam_code lam_json_parse(const char *text, size_t len, const char *what, json_t **out, lam_error *err);

/* What json_unpack_ex's failure means: LAM_E_NO_MEMORY or LAM_E_FORMAT. Its "!" must not be used, since it blames the text when
 * memory is lacking: compare json_object_size. */
lam_code lam_json_refuse(const json_error_t *problem, const char *what, lam_error *err);

/* value, or NULL and value released if any of the calls that filled it failed: what is not whole is none. failed: their results, or-ed. */
json_t *lam_json_whole(json_t *value, int failed);

/* Append the RFC 8785 form of value. LAM_E_FORMAT for what JCS cannot hold (integers beyond 2^53, NaN). */
lam_code lam_json_canonical(const json_t *value, struct lam_str *out, lam_error *err);

/* SHA-256 of the canonical form, as bytes. */
lam_code lam_json_digest(const json_t *value, uint8_t out[LAM_SHA256_BYTES], lam_error *err);

#define LAM_JSON_NUMBER 64
/* A number as ECMAScript prints it (RFC 8785 section 3.2.2.3), at most 25 characters. value must be finite. */
void lam_json_number(double value, char out[LAM_JSON_NUMBER]);

#endif
