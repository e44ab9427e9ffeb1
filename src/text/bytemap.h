/* GPT-2's printable form of bytes: every byte is one visible character (openai/gpt-2, bytes_to_unicode). */
#ifndef LAM_TEXT_BYTEMAP_H
#define LAM_TEXT_BYTEMAP_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t lam_bytemap_char(uint8_t byte);
/* -1 if cp stands for no byte. */
int lam_bytemap_byte(uint32_t cp);

/* Append the bytes that printable text stands for. *mapped = false (and nothing appended) if a character of it stands
 * for no byte. False when memory is lacking. */
bool lam_bytemap_decode(struct lam_str *out, const char *text, size_t len, bool *mapped);
/* Append the printable form of bytes. False when memory is lacking. */
bool lam_bytemap_encode(struct lam_str *out, const uint8_t *bytes, size_t len);

#endif
