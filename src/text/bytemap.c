#include "text/bytemap.h"

#include "base/utf8.h"

/* Bytes that print as themselves: '!'..'~', 0xA1..0xAC, 0xAE..0xFF. The other 68 follow from U+0100, in order. */
static bool prints_itself(uint32_t c) { return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD); }

uint32_t lam_bytemap_char(uint8_t byte)
{
    if (prints_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte == 0xAD) return 0x143;
    return 0x121u + byte - 0x7F;
}

int lam_bytemap_byte(uint32_t cp)
{
    if (cp < 0x100) return prints_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

bool lam_bytemap_decode(struct lam_str *out, const char *text, size_t len, bool *mapped)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t before = out->len;
    *mapped = true;
    while (len > 0) {
        uint32_t cp;
        bool valid;
        size_t n = lam_utf8_decode(p, len, &cp, &valid);
        int byte = valid ? lam_bytemap_byte(cp) : -1;
        if (byte < 0) {
            *mapped = false;
            out->len = before;
            return true;
        }
        if (!lam_str_putc(out, (char)byte)) return false;
        p += n;
        len -= n;
    }
    return true;
}

bool lam_bytemap_encode(struct lam_str *out, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t utf8[4];
        if (!lam_str_append(out, utf8, lam_utf8_encode(lam_bytemap_char(bytes[i]), utf8))) return false;
    }
    return true;
}
