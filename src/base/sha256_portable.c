/* One-shot hashing where OpenSSL is not (wasm). */
#include "base/sha256.h"

void lam_sha256(const void *bytes, size_t len, uint8_t out[LAM_SHA256_BYTES])
{
    struct lam_sha256 s;
    lam_sha256_init(&s);
    lam_sha256_update(&s, bytes, len);
    lam_sha256_final(&s, out);
}
