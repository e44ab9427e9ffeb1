/* SHA-256 (FIPS 180-4). The blocks go through OpenSSL natively, which uses the CPU's SHA instructions, and through portable C on
 * wasm. */
#ifndef LAM_BASE_SHA256_H
#define LAM_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAM_SHA256_BYTES 32
/* "sha256:" + 64 hex digits + zero */
#define LAM_DIGEST_TEXT 72

struct lam_sha256 {
    uint32_t h[8];
    uint64_t length; /* bytes so far */
    uint8_t block[64];
};

void lam_sha256_init(struct lam_sha256 *s);
void lam_sha256_update(struct lam_sha256 *s, const void *bytes, size_t len);
void lam_sha256_final(struct lam_sha256 *s, uint8_t out[LAM_SHA256_BYTES]);
void lam_sha256(const void *bytes, size_t len, uint8_t out[LAM_SHA256_BYTES]);

/* The compression function over n blocks of 64 bytes (section 6.2.2): what the implementations differ in. */
void lam_sha256_blocks(uint32_t h[8], const uint8_t *blocks, size_t n);

/* "sha256:<64 lower-case hex digits>" */
void lam_digest_text(const uint8_t digest[LAM_SHA256_BYTES], char out[LAM_DIGEST_TEXT]);
/* The reverse; false if text is none. */
bool lam_digest_read(const char *text, uint8_t digest[LAM_SHA256_BYTES]);

#endif
