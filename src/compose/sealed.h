/* A statement with its digest and, perhaps, who signed it: { "statement": {…}, "digest": "sha256:…", "signature": { "algorithm",
 * "key", "value" } }, digest and signature over the statement's canonical form. Receipts and the indexes of seeds are of this form. */
#ifndef LAM_COMPOSE_SEALED_H
#define LAM_COMPOSE_SEALED_H

#include "base/json.h"
#include "compose/trust.h"

/* what names the thing in errors: "receipt". */

/* Only the members in names[n], and all of them but those behind a '?'. LAM_E_FORMAT, LAM_E_UNKNOWN_FIELD. part: of the thing. */
lam_code lam_check_members(const json_t *object, const char *what, const char *part, const char *const *names, size_t n,
                           lam_error *err);

/* The whole of it, in canonical form → *out (empty at the call). key: a private key in PEM, a file; NULL: no signature. */
lam_code lam_sealed_make(const json_t *statement, const char *what, const char *key, struct lam_str *out, lam_error *err);

struct lam_seal {
    char digest[LAM_DIGEST_TEXT];
    char key[LAM_KEY_TEXT];  /* "" without a signature */
    const char *name;        /* of the key in the trust list, borrowed from it; NULL: it is not there, or there is none */
    bool unchecked;          /* this build has no signatures */
};
/* Digest and signature of whole against its statement. LAM_E_DIGEST, LAM_E_SIGNATURE, LAM_E_WEAK_KEY, LAM_E_UNSUPPORTED, LAM_E_FORMAT,
 * LAM_E_UNKNOWN_FIELD. */
lam_code lam_sealed_check(const json_t *whole, const char *what, const lam_trust *trust, struct lam_seal *out, lam_error *err);

/* "ed25519:" and the key in hexadecimal digits. */
void lam_key_text(const uint8_t key[LAM_ED25519_KEY], char out[LAM_KEY_TEXT]);

#endif
