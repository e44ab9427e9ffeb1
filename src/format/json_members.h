/* Walking the members of one JSON object without building a tree, so that memory does not grow with a hostile text. */
#ifndef LAM_FORMAT_JSON_MEMBERS_H
#define LAM_FORMAT_JSON_MEMBERS_H

#include "base/error.h"
#include "base/json.h"

#include <stddef.h>

/* One member. name: decoded, zero-terminated, valid during the call. value[value_len]: the raw text, trimmed; only its
 * brackets and quotes were matched, so a callback that does not parse it has not checked it. */
typedef lam_code (*lam_json_member_fn)(void *context, const char *name, size_t name_len, const char *value,
                                       size_t value_len, lam_error *err);

/* text[len]: one object, white space around it allowed; what names it in errors. Calls fn for each member in order; stops
 * at the first failure. LAM_E_FORMAT if it is no object. Names that occur twice are for fn to find. */
lam_code lam_json_each_member(const char *text, size_t len, const char *what, lam_json_member_fn fn, void *context,
                              lam_error *err);

#endif
