/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as in RFC 3720 appendix B.4. */
#ifndef LAM_BASE_CRC32C_H
#define LAM_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t lam_crc32c(const void *bytes, size_t len);

#endif
