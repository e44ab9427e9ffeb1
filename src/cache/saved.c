#include "cache/saved.h"
#include "base/alloc.h"
#include "base/cursor.h"

#include <string.h>

static const char magic[4] = "SLS0";

/* Bytes before the digest. */
static bool total(size_t description_len, size_t n_tokens, size_t kv_bytes, size_t logits_bytes, size_t *out)
{
    size_t tokens;
    return lam_mul_size(n_tokens, 4, &tokens) && lam_add_size(LAM_SAVED_HEADER, description_len, out) && lam_add_size(*out, tokens, out) &&
           lam_add_size(*out, kv_bytes, out) && lam_add_size(*out, logits_bytes, out);
}

lam_code lam_saved_header(size_t description_len, size_t n_tokens, size_t kv_bytes, size_t logits_bytes, uint8_t out[LAM_SAVED_HEADER],
                          lam_error *err)
{
    size_t end;
    if (description_len > LAM_SAVED_MAX_DESCRIPTION || n_tokens > UINT32_MAX || !total(description_len, n_tokens, kv_bytes, logits_bytes, &end))
        return LAM_RAISE(err, LAM_E_LIMIT, "a session with a description of %zu bytes and %zu tokens", description_len, n_tokens);
    memset(out, 0, LAM_SAVED_HEADER);
    memcpy(out, magic, sizeof magic);
    lam_store_u32(out + 8, (uint32_t)description_len);
    lam_store_u32(out + 12, (uint32_t)n_tokens);
    lam_store_u64(out + 16, kv_bytes);
    lam_store_u64(out + 24, logits_bytes);
    lam_store_u64(out + 32, (uint64_t)end + LAM_SHA256_BYTES);
    return LAM_OK;
}

bool lam_saved_detect(const uint8_t head[4]) { return memcmp(head, magic, sizeof magic) == 0; }

static lam_code check_header(const uint8_t *h, size_t size, lam_error *err)
{
    if (size < sizeof magic || !lam_saved_detect(h)) return LAM_RAISE(err, LAM_E_MAGIC, "not a saved session");
    if (size < LAM_SAVED_HEADER + LAM_SHA256_BYTES) return LAM_RAISE(err, LAM_E_TRUNCATED, "a saved session of %zu bytes", size);
    if (lam_load_u16(h + 4) != 0) return LAM_RAISE(err, LAM_E_VERSION, "a saved session of version %u", lam_load_u16(h + 4));
    if (lam_load_u16(h + 6) != 0) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "reserved bytes of a saved session are in use");
    for (size_t i = 40; i < LAM_SAVED_HEADER; i++)
        if (h[i]) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "reserved bytes of a saved session are in use");
    if (lam_load_u32(h + 8) > LAM_SAVED_MAX_DESCRIPTION)
        return LAM_RAISE(err, LAM_E_LIMIT, "a saved session's description of %u bytes", lam_load_u32(h + 8));
    return LAM_OK;
}

lam_code lam_saved_parse(const uint8_t *bytes, size_t size, struct lam_saved *out, lam_error *err)
{
    LAM_TRY(check_header(bytes, size, err));
    size_t end;
    uint64_t kv = lam_load_u64(bytes + 16), logits = lam_load_u64(bytes + 24), length = lam_load_u64(bytes + 32);
    *out = (struct lam_saved){.description_len = lam_load_u32(bytes + 8), .n_tokens = lam_load_u32(bytes + 12), .kv_bytes = (size_t)kv,
                              .logits_bytes = (size_t)logits};
    if (kv > SIZE_MAX || logits > SIZE_MAX || !total(out->description_len, out->n_tokens, out->kv_bytes, out->logits_bytes, &end) ||
        !lam_add_size(end, LAM_SHA256_BYTES, &end) || end != length)
        return LAM_RAISE(err, LAM_E_OVERFLOW, "a saved session's sections do not come to its length");
    if (size < end) return LAM_RAISE(err, LAM_E_TRUNCATED, "a saved session has %zu of %zu bytes", size, end);
    if (size > end) return LAM_RAISE(err, LAM_E_GAP, "%zu bytes behind the end of a saved session", size - end);
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256(bytes, end - LAM_SHA256_BYTES, digest);
    if (memcmp(digest, bytes + end - LAM_SHA256_BYTES, sizeof digest) != 0)
        return LAM_RAISE(err, LAM_E_DIGEST, "a saved session's bytes are not those that were written");
    out->description = bytes + LAM_SAVED_HEADER;
    out->tokens = out->description + out->description_len;
    out->kv = out->tokens + out->n_tokens * 4;
    out->logits = out->kv + out->kv_bytes;
    return LAM_OK;
}
