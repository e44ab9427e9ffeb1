/* Ed25519 (RFC 8032) with keys in PEM: signature_openssl.c, or signature_portable.c, which has none and says LAM_E_UNSUPPORTED. */
#ifndef LAM_COMPOSE_SIGNATURE_H
#define LAM_COMPOSE_SIGNATURE_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAM_ED25519_KEY 32
#define LAM_ED25519_SIGNATURE 64

/* The public key of pem[len]. LAM_E_PRIVATE_KEY if a private one is there, of whatever kind; LAM_E_WEAK_KEY; LAM_E_FORMAT. */
lam_code lam_ed25519_public(const char *pem, size_t len, uint8_t key[LAM_ED25519_KEY], lam_error *err);
/* LAM_E_FORMAT if pem[len] is no unencrypted private key. key gets the public one. */
lam_code lam_ed25519_sign(const char *pem, size_t len, const void *message, size_t message_len, uint8_t key[LAM_ED25519_KEY],
                          uint8_t signature[LAM_ED25519_SIGNATURE], lam_error *err);
lam_code lam_ed25519_verify(const uint8_t key[LAM_ED25519_KEY], const void *message, size_t message_len,
                            const uint8_t signature[LAM_ED25519_SIGNATURE], bool *good, lam_error *err);
/* Appends to both. */
lam_code lam_ed25519_generate(struct lam_str *private_pem, struct lam_str *public_pem, lam_error *err);

/* low_order.c: whether the key is a point of the small subgroup, for which a signature needs no secret (8·key is the neutral point). */
bool lam_ed25519_low_order(const uint8_t key[LAM_ED25519_KEY]);

/* Whether this build has signatures. */
bool lam_ed25519_present(void);

#endif
