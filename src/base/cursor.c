#include "base/cursor.h"

struct lam_cursor lam_cursor_init(const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    return (struct lam_cursor){p, p, len ? p + len : p}; /* no arithmetic on the NULL of an empty file */
}

size_t lam_cursor_left(const struct lam_cursor *c) { return (size_t)(c->end - c->at); }
size_t lam_cursor_offset(const struct lam_cursor *c) { return (size_t)(c->at - c->begin); }

bool lam_cursor_bytes(struct lam_cursor *c, uint64_t len, const uint8_t **out)
{
    if (len > lam_cursor_left(c)) return false;
    *out = c->at;
    c->at += len;
    return true;
}

bool lam_cursor_u8(struct lam_cursor *c, uint8_t *out)
{
    const uint8_t *p;
    if (!lam_cursor_bytes(c, 1, &p)) return false;
    *out = *p;
    return true;
}

bool lam_cursor_u16(struct lam_cursor *c, uint16_t *out)
{
    const uint8_t *p;
    if (!lam_cursor_bytes(c, 2, &p)) return false;
    *out = lam_load_u16(p);
    return true;
}

bool lam_cursor_u32(struct lam_cursor *c, uint32_t *out)
{
    const uint8_t *p;
    if (!lam_cursor_bytes(c, 4, &p)) return false;
    *out = lam_load_u32(p);
    return true;
}

bool lam_cursor_u64(struct lam_cursor *c, uint64_t *out)
{
    const uint8_t *p;
    if (!lam_cursor_bytes(c, 8, &p)) return false;
    *out = lam_load_u64(p);
    return true;
}

uint16_t lam_load_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

uint32_t lam_load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t lam_load_u64(const uint8_t *p) { return lam_load_u32(p) | (uint64_t)lam_load_u32(p + 4) << 32; }

void lam_store_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

void lam_store_u32(uint8_t *p, uint32_t v)
{
    lam_store_u16(p, (uint16_t)v);
    lam_store_u16(p + 2, (uint16_t)(v >> 16));
}

void lam_store_u64(uint8_t *p, uint64_t v)
{
    lam_store_u32(p, (uint32_t)v);
    lam_store_u32(p + 4, (uint32_t)(v >> 32));
}
