/* Typed access to the values of a GGUF file's keys. */
#include "base/cursor.h"
#include "format/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* *kv is NULL if the key is absent and need not be there. */
static lam_code find_scalar(const struct lam_gguf *g, const char *key, bool required, const struct lam_gguf_kv **kv, lam_error *err)
{
    *kv = lam_gguf_find(g, key);
    if (!*kv) return required ? LAM_RAISE(err, LAM_E_NOT_FOUND, "gguf: key %s is missing", key) : LAM_OK;
    if ((*kv)->type == LAM_GGUF_ARRAY) return LAM_RAISE(err, LAM_E_FORMAT, "gguf: key %s is an array", key);
    return LAM_OK;
}

static lam_code raise_type(lam_error *err, const char *key, const struct lam_gguf_kv *kv, const char *wanted)
{
    return LAM_RAISE(err, LAM_E_FORMAT, "gguf: key %s has value type %d, not %s", key, (int)kv->type, wanted);
}

/* The value of an integer type as sign and magnitude's two's complement; false for other types. */
static bool load_integer(enum lam_gguf_type type, const uint8_t *p, bool *negative, uint64_t *value)
{
    int64_t v;
    *negative = false;
    switch (type) {
    case LAM_GGUF_U8: *value = *p; return true;
    case LAM_GGUF_U16: *value = lam_load_u16(p); return true;
    case LAM_GGUF_U32: *value = lam_load_u32(p); return true;
    case LAM_GGUF_U64: *value = lam_load_u64(p); return true;
    case LAM_GGUF_I8: v = (int8_t)*p; break;
    case LAM_GGUF_I16: v = (int16_t)lam_load_u16(p); break;
    case LAM_GGUF_I32: v = (int32_t)lam_load_u32(p); break;
    case LAM_GGUF_I64: v = (int64_t)lam_load_u64(p); break;
    default: return false;
    }
    *negative = v < 0;
    *value = (uint64_t)v;
    return true;
}

static float load_f32(const uint8_t *p)
{
    uint32_t bits = lam_load_u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double load_f64(const uint8_t *p)
{
    uint64_t bits = lam_load_u64(p);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

lam_code lam_gguf_u32(const struct lam_gguf *g, const char *key, bool required, uint32_t *out, lam_error *err)
{
    const struct lam_gguf_kv *kv;
    bool negative;
    uint64_t value;
    LAM_TRY(find_scalar(g, key, required, &kv, err));
    if (!kv) return LAM_OK;
    if (!load_integer(kv->type, kv->value, &negative, &value)) return raise_type(err, key, kv, "an integer");
    if (negative || value > UINT32_MAX)
        return LAM_RAISE(err, LAM_E_FORMAT, "gguf: key %s is %s%" PRIu64 ", outside 0 … 2^32 - 1", key, negative ? "-" : "",
                         negative ? 0 - value : value);
    *out = (uint32_t)value;
    return LAM_OK;
}

lam_code lam_gguf_f32(const struct lam_gguf *g, const char *key, bool required, float *out, lam_error *err)
{
    const struct lam_gguf_kv *kv;
    LAM_TRY(find_scalar(g, key, required, &kv, err));
    if (!kv) return LAM_OK;
    if (kv->type != LAM_GGUF_F32 && kv->type != LAM_GGUF_F64) return raise_type(err, key, kv, "a float");
    double value = kv->type == LAM_GGUF_F32 ? (double)load_f32(kv->value) : load_f64(kv->value);
    if (isfinite(value) && !isfinite((float)value)) return LAM_RAISE(err, LAM_E_FORMAT, "gguf: key %s is %g, no float32", key, value);
    *out = (float)value;
    return LAM_OK;
}

lam_code lam_gguf_bool(const struct lam_gguf *g, const char *key, bool required, bool *out, lam_error *err)
{
    const struct lam_gguf_kv *kv;
    LAM_TRY(find_scalar(g, key, required, &kv, err));
    if (!kv) return LAM_OK;
    if (kv->type != LAM_GGUF_BOOL) return raise_type(err, key, kv, "a bool");
    *out = *kv->value != 0;
    return LAM_OK;
}

lam_code lam_gguf_string(const struct lam_gguf *g, const char *key, bool required, const char **out, size_t *len,
                         lam_error *err)
{
    const struct lam_gguf_kv *kv;
    LAM_TRY(find_scalar(g, key, required, &kv, err));
    if (!kv) return LAM_OK;
    if (kv->type != LAM_GGUF_STRING) return raise_type(err, key, kv, "a string");
    *out = (const char *)kv->value + 8;
    *len = kv->value_bytes - 8;
    return LAM_OK;
}

bool lam_gguf_next_string(const struct lam_gguf_kv *kv, const uint8_t **at, const char **out, size_t *len)
{
    const uint8_t *end = kv->value + kv->value_bytes;
    if (kv->item_type != LAM_GGUF_STRING || *at >= end) return false;
    *len = (size_t)lam_load_u64(*at); /* the open checked that it stays within the value */
    *out = (const char *)*at + 8;
    *at += 8 + *len;
    return true;
}

lam_code lam_gguf_item_f64(const struct lam_gguf_kv *kv, uint64_t i, double *out, lam_error *err)
{
    bool negative;
    uint64_t value;
    if (i >= kv->count) return LAM_RAISE(err, LAM_E_ARGUMENT, "gguf: item %" PRIu64 " of %" PRIu64, i, kv->count);
    const uint8_t *p = kv->item_type == LAM_GGUF_STRING ? kv->value : kv->value + kv->value_bytes / kv->count * i;
    if (kv->item_type == LAM_GGUF_F32) *out = load_f32(p);
    else if (kv->item_type == LAM_GGUF_F64) *out = load_f64(p);
    else if (kv->item_type == LAM_GGUF_BOOL) *out = *p;
    else if (load_integer(kv->item_type, p, &negative, &value)) *out = negative ? (double)(int64_t)value : (double)value;
    else
        return LAM_RAISE(err, LAM_E_FORMAT, "gguf: key %.*s holds strings, not numbers", (int)(kv->key_len < 128 ? kv->key_len : 128),
                         kv->key);
    return LAM_OK;
}
