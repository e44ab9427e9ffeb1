/* The store's file known_roots: what was pulled from where. A line is "sha256:… URL": the file_root of an .slm, or the digest of a
 * manifest. It is what trust on first use rests on, and where a repair finds sources. */
#ifndef LAM_STORE_KNOWN_H
#define LAM_STORE_KNOWN_H

#include "base/str.h"
#include "store/store.h"

#define LAM_STORE_KNOWN "known_roots"

/* root[LAM_DIGEST_TEXT] becomes "" if the URL is not known. LAM_E_IO, LAM_E_NO_MEMORY. */
lam_code lam_known_find(const struct lam_store *s, const char *url, char root[LAM_DIGEST_TEXT], lam_error *err);
/* url is known for this root from now on, and for no other. The store must be locked. */
lam_code lam_known_set(struct lam_store *s, const char *url, const char *root, lam_error *err);
/* The URLs of a root, one a line → *out (empty at the call). */
lam_code lam_known_urls(const struct lam_store *s, const char *root, struct lam_str *out, lam_error *err);

#endif
