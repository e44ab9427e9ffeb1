/* adapter_digest: the adapter's meaning, whatever float type or container its factors came in. */
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "tensor/decode.h"

#include <string.h>

/* SHA-256 of a tensor's values as little-endian float32; indices as they are. */
static lam_code tensor_digest(const struct lam_slm *s, const struct lam_slm_entry *e, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    size_t row_bytes = 0;
    lam_dtype_row_bytes(e->dtype, e->dims[0], &row_bytes);
    float *row = lam_alloc(e->dims[0], sizeof *row);
    if (!row) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a row of %u", e->dims[0]);
    struct lam_sha256 hash;
    lam_sha256_init(&hash);
    for (size_t r = 0; r < e->dims[1]; r++) {
        const uint8_t *stored = lam_slm_tensor_data(s, e) + r * row_bytes;
        if (e->dtype != LAM_I32) lam_decode_row(e->dtype, stored, e->dims[0], row);
        lam_sha256_update(&hash, e->dtype == LAM_I32 ? (const void *)stored : row, e->dims[0] * sizeof *row);
    }
    lam_free(row);
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    return LAM_OK;
}

static lam_code factors_json(const struct lam_slm *s, json_t *factors, lam_error *err)
{
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct lam_slm_entry *e = &s->entries[i];
        char text[LAM_DIGEST_TEXT];
        LAM_TRY(tensor_digest(s, e, text, err));
        json_t *item = json_pack("{s:s%,s:[II],s:s}", "name", s->names + e->name_offset, (size_t)e->name_len, "shape",
                                 (json_int_t)e->dims[1], (json_int_t)e->dims[0], "sha256", text);
        if (json_array_append_new(factors, item) != 0) return LAM_RAISE(err, LAM_E_NO_MEMORY, "adapter digest");
    }
    return LAM_OK;
}

lam_code lam_adapter_digest(const struct lam_slm *s, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    static const char *const needed[] = {"method", "bases", "modules"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!json_object_get(s->metadata, needed[i]))
            return LAM_RAISE(err, LAM_E_FORMAT, "%s: metadata lacks %s", s->file.path ? s->file.path : "adapter", needed[i]);
    json_t *factors = json_array();
    if (!factors) return LAM_RAISE(err, LAM_E_NO_MEMORY, "adapter digest");
    lam_code code = factors_json(s, factors, err);
    json_t *whole = json_pack("{s:s,s:O,s:O,s:O,s:o}", "type", "lamina.adapter.v0", "method",
                              json_object_get(s->metadata, "method"), "bases", json_object_get(s->metadata, "bases"), "modules",
                              json_object_get(s->metadata, "modules"), "factors", factors);
    json_t *activation = json_object_get(s->metadata, "activation");
    if (whole && activation && json_object_set(whole, "activation", activation) != 0) {
        json_decref(whole);
        whole = NULL;
    }
    if (!whole && code == LAM_OK) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "adapter digest");
    uint8_t digest[LAM_SHA256_BYTES];
    if (code == LAM_OK) code = lam_json_digest(whole, digest, err);
    json_decref(whole);
    if (code == LAM_OK) lam_digest_text(digest, out);
    return code;
}

lam_code lam_adapter_factors_digest(const struct lam_slm *s, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    uint8_t digest[LAM_SHA256_BYTES];
    json_t *factors = json_array();
    if (!factors) return LAM_RAISE(err, LAM_E_NO_MEMORY, "adapter digest");
    lam_code code = factors_json(s, factors, err);
    if (code == LAM_OK) code = lam_json_digest(factors, digest, err);
    json_decref(factors);
    if (code == LAM_OK) lam_digest_text(digest, out);
    return code;
}
