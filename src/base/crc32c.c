#include "base/crc32c.h"

/* Bit by bit: it only ever covers a header of 128 bytes. */
uint32_t lam_crc32c(const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1)));
    }
    return ~crc;
}
