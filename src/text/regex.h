/* The regular expressions of pre-tokenizers, run by PCRE2.
 *
 * They are written in Oniguruma's Ruby syntax (Hugging Face tokenizers) and mean Unicode classes. A small translator
 * accepts exactly the constructs whose meaning is the same in both or can be spelled out (\s, \w, \d, scripts, $), and
 * refuses everything else by name: no back-reference, recursion, callout or option reaches PCRE2 from a file. */
#ifndef LAM_TEXT_REGEX_H
#define LAM_TEXT_REGEX_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

/* Append PCRE2's form of pattern[0..len) (UTF-8). LAM_E_PRETOKENIZER names what is not supported and where. */
lam_code lam_regex_translate(const char *pattern, size_t len, struct lam_str *out, lam_error *err);

struct lam_regex;    /* compiled, immutable, shared by threads */
struct lam_matcher;  /* scratch of one thread, for any number of expressions */

/* Refuses (LAM_E_PRETOKENIZER) expressions that match the empty text too. */
lam_code lam_regex_compile(const char *pattern, size_t len, struct lam_regex **out, lam_error *err);
void lam_regex_free(struct lam_regex *r);

lam_code lam_matcher_new(struct lam_matcher **out, lam_error *err);
void lam_matcher_free(struct lam_matcher *m);

/* The first match in text[from..len), text being valid UTF-8 and from a character boundary. *found = false if none.
 * LAM_E_LIMIT if the expression backtracks beyond the limit. */
lam_code lam_regex_find(const struct lam_regex *r, struct lam_matcher *m, const char *text, size_t len, size_t from,
                        bool *found, size_t *start, size_t *end, lam_error *err);

#endif
