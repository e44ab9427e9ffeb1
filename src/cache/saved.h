/* The bytes of a saved session (docs/format.md, "Saved sessions"): sections and their digest. What they mean is run/state.c's matter. */
#ifndef LAM_CACHE_SAVED_H
#define LAM_CACHE_SAVED_H

#include "base/error.h"
#include "base/json.h"

#define LAM_SAVED_HEADER 64
#define LAM_SAVED_MAX_DESCRIPTION ((uint32_t)1 << 20)

/* Sections of a file in memory, borrowed from it. */
struct lam_saved {
    const uint8_t *description; /* JSON, description_len bytes */
    size_t description_len;
    const uint8_t *tokens;      /* [n_tokens] u32, unaligned */
    size_t n_tokens;
    const uint8_t *kv, *logits;
    size_t kv_bytes, logits_bytes;
};

/* Whether a file that begins so is one. */
bool lam_saved_detect(const uint8_t head[4]);

/* LAM_E_MAGIC, LAM_E_VERSION, LAM_E_UNKNOWN_FIELD, LAM_E_LIMIT, LAM_E_OVERFLOW, LAM_E_TRUNCATED, LAM_E_GAP (bytes behind the end), LAM_E_DIGEST. */
lam_code lam_saved_parse(const uint8_t *bytes, size_t size, struct lam_saved *out, lam_error *err);

/* The first bytes of a file with these sections. LAM_E_LIMIT. */
lam_code lam_saved_header(size_t description_len, size_t n_tokens, size_t kv_bytes, size_t logits_bytes, uint8_t out[LAM_SAVED_HEADER],
                          lam_error *err);

#endif
