/* Receipts: statements that one exact composition_id was evaluated with certain figures. A receipt is a JSON object
 *   { "statement": { "type": "lamina.receipt.v0", "composition_id": "sha256:…", "by": text, "figures": { … } },
 *     "digest": "sha256:…",                                          over the statement's canonical form (RFC 8785)
 *     "signature": { "algorithm": "ed25519", "key": 64 hexadecimal digits, "value": 128 } }     over the same bytes; optional
 * and is verified only by a signature of a key in the user's trust list (docs/manifest.md). */
#ifndef LAMINA_RECEIPT_H
#define LAMINA_RECEIPT_H

#include "lamina/lamina.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The public keys whose signatures count. */
typedef struct lam_trust lam_trust;
/* path: a folder of *.pem files, or one such file; NULL: $LAMINA_TRUST, else $XDG_CONFIG_HOME/lamina/trust, else $HOME/.config/lamina/trust,
 * and no key at all if there is no such folder. A key is called as its file, without ".pem". LAM_E_NOT_FOUND, LAM_E_PRIVATE_KEY for
 * a private key, LAM_E_WEAK_KEY for one for which anybody can sign, LAM_E_FORMAT for what is no Ed25519 key, LAM_E_LIMIT, LAM_E_IO,
 * LAM_E_NO_MEMORY. A build without signatures has none. */
LAM_API lam_code lam_trust_open(const char *path, lam_trust **out, lam_error *err);
LAM_API void lam_trust_free(lam_trust *trust);
LAM_API size_t lam_trust_size(const lam_trust *trust);

typedef enum lam_receipt_state {
    LAM_RECEIPT_CLAIMED = 1, /* a bare hash, or a good signature of a key that the trust list does not have */
    LAM_RECEIPT_VERIFIED = 2
} lam_receipt_state;

/* "ed25519:" + 64 hex digits + zero */
#define LAM_KEY_TEXT 73

typedef struct lam_receipt_info {
    lam_receipt_state state;
    char by[160];                         /* who: of the trust list if verified, else as the receipt says; "" if it does not */
    char key[LAM_KEY_TEXT];               /* "" without a signature */
    char composition_id[LAM_DIGEST_TEXT];
    char digest[LAM_DIGEST_TEXT];
    char standing[256];                   /* "verified by NAME" or "claimed by …", for every output */
} lam_receipt_info;

/* figures: a JSON object as text; by: a line, may be NULL; key: a private key in PEM, a file, or NULL for a bare hash. *json is freed with
 * lam_memory_free. A member "composition_id" of figures that names another composition is LAM_E_CONFLICT. LAM_E_FORMAT, LAM_E_ARGUMENT,
 * LAM_E_UNSUPPORTED in a build without signatures, and those of the key's file. */
LAM_API lam_code lam_receipt_make(const char *composition_id, const char *figures, const char *by, const char *key, char **json,
                                  lam_error *err);

/* text[len] against a composition (NULL: any) and a trust list (NULL: empty). LAM_E_SIGNATURE for a signature that is not its key's, which is
 * named; LAM_E_WEAK_KEY for a key for which anybody can sign; LAM_E_DIGEST for a wrong hash; LAM_E_WRONG_COMPOSITION, naming both ids;
 * LAM_E_UNSUPPORTED for an algorithm that is not ed25519; LAM_E_UNKNOWN_FIELD, LAM_E_VERSION, LAM_E_FORMAT, LAM_E_LIMIT,
 * LAM_E_NO_MEMORY. */
LAM_API lam_code lam_receipt_check(const char *text, size_t len, const char *composition_id, const lam_trust *trust, lam_receipt_info *out,
                                   lam_error *err);

/* How a composition of n_adapters with receipts[n] stands: "verified by NAME" or "claimed by …", the best of them; "unverified mixture"
 * without any; "base" for a base alone. Every receipt is checked, and one that fails is an error. */
LAM_API lam_code lam_standing(const char *composition_id, size_t n_adapters, const char *const receipts[], size_t n, const lam_trust *trust,
                              char out[256], lam_error *err);

/* A new key pair in PEM, both freed with lam_memory_free; key gets the public key's name. LAM_E_UNSUPPORTED, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_receipt_keygen(char **private_pem, char **public_pem, char key[LAM_KEY_TEXT], lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
