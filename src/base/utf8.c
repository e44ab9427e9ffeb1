#include "base/utf8.h"

/* The second byte's allowed range, by first byte (Unicode 15.0, table 3-7). Returns the sequence length, 0 if lead
 * cannot begin a character. */
static size_t lead_info(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) {
        if (lead == 0xE0) *low = 0xA0;
        if (lead == 0xED) *high = 0x9F;
        return 3;
    }
    if (lead > 0xF4) return 0;
    if (lead == 0xF0) *low = 0x90;
    if (lead == 0xF4) *high = 0x8F;
    return 4;
}

/* Bytes of text that continue the character begun by text[0]; *want is its full length (0: not a lead). */
static size_t matching_bytes(const uint8_t *text, size_t len, size_t *want)
{
    uint8_t low, high;
    *want = lead_info(text[0], &low, &high);
    size_t have = 1;
    while (have < *want && have < len && text[have] >= low && text[have] <= high) {
        have++;
        low = 0x80;
        high = 0xBF;
    }
    return have;
}

size_t lam_utf8_decode(const uint8_t *text, size_t len, uint32_t *cp, bool *valid)
{
    static const uint8_t lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    size_t want;
    size_t have = matching_bytes(text, len, &want);
    if (have != want) {
        *cp = LAM_UTF8_REPLACEMENT;
        *valid = false;
        return have;
    }
    uint32_t value = text[0] & lead_mask[want];
    for (size_t i = 1; i < want; i++) value = value << 6 | (text[i] & 0x3Fu);
    *cp = value;
    *valid = true;
    return want;
}

size_t lam_utf8_control(const uint8_t *text, size_t len)
{
    uint32_t cp;
    bool valid;
    size_t n = lam_utf8_decode(text, len, &cp, &valid);
    bool control = cp < 0x20 || (cp >= 0x7F && cp <= 0x9F) || (cp >= 0x2028 && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
    return control ? n : 0;
}

bool lam_utf8_is_line(const void *text, size_t len)
{
    const uint8_t *p = text;
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t cp;
        bool valid;
        n = lam_utf8_decode(p + i, len - i, &cp, &valid);
        if (!valid || lam_utf8_control(p + i, len - i)) return false;
    }
    return true;
}

size_t lam_utf8_encode(uint32_t cp, uint8_t out[4])
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (uint8_t)(0x80 | (cp & 0x3F));
    out[0] = (uint8_t)(lead[n] | cp);
    return n;
}

size_t lam_utf8_valid_prefix(const uint8_t *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        if (text[at] < 0x80) {
            at++;
            continue;
        }
        size_t want;
        size_t have = matching_bytes(text + at, len - at, &want);
        if (have != want) break;
        at += have;
    }
    return at;
}

bool lam_utf8_is_partial(const uint8_t *text, size_t len)
{
    if (len == 0) return false;
    size_t want;
    size_t have = matching_bytes(text, len, &want);
    return have == len && have < want;
}

bool lam_utf8_append_lossy(struct lam_str *out, const void *text, size_t len)
{
    const uint8_t *p = text;
    while (len > 0) {
        size_t good = lam_utf8_valid_prefix(p, len);
        if (good > 0 && !lam_str_append(out, p, good)) return false;
        p += good;
        len -= good;
        if (len == 0) break;
        size_t want;
        size_t bad = matching_bytes(p, len, &want);
        if (!lam_str_append(out, "\xEF\xBF\xBD", 3)) return false;
        p += bad;
        len -= bad;
    }
    return true;
}
