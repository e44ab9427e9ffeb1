/* SHA-256's compression by OpenSSL. Its one-shot and EVP calls cannot continue from a state that lies in a plain struct, so this is
 * the older interface, asked for by OPENSSL_API_COMPAT. */
#define OPENSSL_API_COMPAT 0x10100000L

#include "base/sha256.h"

#include <openssl/sha.h>

void lam_sha256_blocks(uint32_t h[8], const uint8_t *blocks, size_t n)
{
    SHA256_CTX state = {.md_len = SHA256_DIGEST_LENGTH};
    for (int i = 0; i < 8; i++) state.h[i] = h[i];
    SHA256_Update(&state, blocks, 64 * n);
    for (int i = 0; i < 8; i++) h[i] = state.h[i];
}
