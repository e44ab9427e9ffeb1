/* A build without OpenSSL makes and verifies no signatures. */
#include "compose/signature.h"

bool lam_ed25519_present(void) { return false; }

static lam_code absent(lam_error *err) { return LAM_RAISE(err, LAM_E_UNSUPPORTED, "this build has no signatures"); }

lam_code lam_ed25519_public(const char *pem, size_t len, uint8_t key[LAM_ED25519_KEY], lam_error *err)
{
    (void)pem, (void)len, (void)key;
    return absent(err);
}

lam_code lam_ed25519_sign(const char *pem, size_t len, const void *message, size_t message_len, uint8_t key[LAM_ED25519_KEY],
                          uint8_t signature[LAM_ED25519_SIGNATURE], lam_error *err)
{
    (void)pem, (void)len, (void)message, (void)message_len, (void)key, (void)signature;
    return absent(err);
}

lam_code lam_ed25519_verify(const uint8_t key[LAM_ED25519_KEY], const void *message, size_t message_len,
                            const uint8_t signature[LAM_ED25519_SIGNATURE], bool *good, lam_error *err)
{
    (void)key, (void)message, (void)message_len, (void)signature;
    *good = false;
    return absent(err);
}

lam_code lam_ed25519_generate(struct lam_str *private_pem, struct lam_str *public_pem, lam_error *err)
{
    (void)private_pem, (void)public_pem;
    return absent(err);
}
