/* One-shot hashing by OpenSSL, which uses the CPU's SHA instructions; pieces of weights go through here. */
#include "base/sha256.h"

#include <openssl/sha.h>

void lam_sha256(const void *bytes, size_t len, uint8_t out[LAM_SHA256_BYTES]) { SHA256(bytes, len, out); }
