/* SHA-256's padding and state, FIPS 180-4 section 5; the blocks' compression is sha256_openssl.c or sha256_portable.c. */
#include "base/sha256.h"

#include <string.h>

static void store_be(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

void lam_sha256_init(struct lam_sha256 *s)
{
    *s = (struct lam_sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void lam_sha256_update(struct lam_sha256 *s, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    size_t used = s->length % 64;
    s->length += len;
    if (used) {
        size_t take = 64 - used < len ? 64 - used : len;
        if (take) memcpy(s->block + used, p, take);
        if (used + take < 64) return;
        lam_sha256_blocks(s->h, s->block, 1);
        p += take;
        len -= take;
    }
    lam_sha256_blocks(s->h, p, len / 64);
    if (len % 64) memcpy(s->block, p + len / 64 * 64, len % 64);
}

void lam_sha256_final(struct lam_sha256 *s, uint8_t out[LAM_SHA256_BYTES])
{
    uint64_t bits = s->length * 8;
    uint8_t tail[72] = {0x80};
    size_t pad = (119 - s->length % 64) % 64 + 1; /* to 56 modulo 64 */
    store_be(tail + pad, (uint32_t)(bits >> 32));
    store_be(tail + pad + 4, (uint32_t)bits);
    lam_sha256_update(s, tail, pad + 8);
    for (int i = 0; i < 8; i++) store_be(out + 4 * i, s->h[i]);
}

void lam_sha256(const void *bytes, size_t len, uint8_t out[LAM_SHA256_BYTES])
{
    struct lam_sha256 s;
    lam_sha256_init(&s);
    lam_sha256_update(&s, bytes, len);
    lam_sha256_final(&s, out);
}

void lam_digest_text(const uint8_t digest[LAM_SHA256_BYTES], char out[LAM_DIGEST_TEXT])
{
    static const char hex[] = "0123456789abcdef";
    memcpy(out, "sha256:", 7);
    for (int i = 0; i < LAM_SHA256_BYTES; i++) {
        out[7 + 2 * i] = hex[digest[i] >> 4];
        out[8 + 2 * i] = hex[digest[i] & 15];
    }
    out[71] = 0;
}

bool lam_digest_read(const char *text, uint8_t digest[LAM_SHA256_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    if (strncmp(text, "sha256:", 7) != 0 || strspn(text + 7, digits) != 2 * LAM_SHA256_BYTES || text[7 + 2 * LAM_SHA256_BYTES]) return false;
    for (size_t i = 0; i < LAM_SHA256_BYTES; i++)
        digest[i] = (uint8_t)((strchr(digits, text[7 + 2 * i]) - digits) << 4 | (strchr(digits, text[8 + 2 * i]) - digits));
    return true;
}
