/* A bounds-checked little-endian reader over bytes that it does not own. Every getter either moves past the
 * value and returns true, or leaves the cursor where it was and returns false. */
#ifndef LAM_BASE_CURSOR_H
#define LAM_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lam_cursor {
    const uint8_t *begin, *at, *end;
};

struct lam_cursor lam_cursor_init(const void *bytes, size_t len);
size_t lam_cursor_left(const struct lam_cursor *c);
size_t lam_cursor_offset(const struct lam_cursor *c);
bool lam_cursor_u8(struct lam_cursor *c, uint8_t *out);
bool lam_cursor_u16(struct lam_cursor *c, uint16_t *out);
bool lam_cursor_u32(struct lam_cursor *c, uint32_t *out);
bool lam_cursor_u64(struct lam_cursor *c, uint64_t *out);

/* *out points into the underlying bytes. */
bool lam_cursor_bytes(struct lam_cursor *c, uint64_t len, const uint8_t **out);

/* Unaligned little-endian access. */
uint16_t lam_load_u16(const uint8_t *p);
uint32_t lam_load_u32(const uint8_t *p);
uint64_t lam_load_u64(const uint8_t *p);
void lam_store_u16(uint8_t *p, uint16_t v);
void lam_store_u32(uint8_t *p, uint32_t v);
void lam_store_u64(uint8_t *p, uint64_t v);

#endif
