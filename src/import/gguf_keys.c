#include "import/gguf_keys.h"
#include "base/cursor.h"
#include "base/str.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_EXACT ((int64_t)1 << 53) /* integers below it stand exactly in JSON */

static const char *const type_names[] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
#define N_TYPES (sizeof type_names / sizeof *type_names)

static size_t type_bytes(enum lam_gguf_type type)
{
    static const uint8_t sizes[N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return sizes[type];
}

static int type_by_name(const char *name)
{
    for (size_t i = 0; name && i < N_TYPES; i++)
        if (strcmp(name, type_names[i]) == 0) return (int)i;
    return -1;
}

static double load_float(enum lam_gguf_type type, const uint8_t *p)
{
    if (type == LAM_GGUF_F32) {
        uint32_t bits = lam_load_u32(p);
        float f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    uint64_t bits = lam_load_u64(p);
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static int64_t load_integer(enum lam_gguf_type type, const uint8_t *p)
{
    switch (type) {
    case LAM_GGUF_U8: return *p;
    case LAM_GGUF_I8: return (int8_t)*p;
    case LAM_GGUF_U16: return lam_load_u16(p);
    case LAM_GGUF_I16: return (int16_t)lam_load_u16(p);
    case LAM_GGUF_U32: return lam_load_u32(p);
    case LAM_GGUF_I32: return (int32_t)lam_load_u32(p);
    default: return (int64_t)lam_load_u64(p);
    }
}

/* The value at *at, which moves behind it. exact turns false where JSON cannot hold it; NULL then, or without memory. */
static json_t *item_to_json(enum lam_gguf_type type, const uint8_t **at, bool *exact)
{
    const uint8_t *p = *at;
    if (type == LAM_GGUF_STRING) {
        size_t len = (size_t)lam_load_u64(p);
        *at = p + 8 + len;
        *exact = lam_utf8_valid_prefix(p + 8, len) == len;
        return *exact ? json_stringn((const char *)p + 8, len) : NULL;
    }
    *at = p + type_bytes(type);
    if (type == LAM_GGUF_BOOL) return json_boolean(*p);
    if (type == LAM_GGUF_F32 || type == LAM_GGUF_F64) {
        double value = load_float(type, p);
        *exact = isfinite(value) && !(value == 0.0 && signbit(value));
        return *exact ? json_real(value) : NULL;
    }
    int64_t value = load_integer(type, p);
    *exact = value > -MAX_EXACT && value < MAX_EXACT && !(type == LAM_GGUF_U64 && value < 0);
    return *exact ? json_integer(value) : NULL;
}

/* The value as JSON, or NULL with *exact false. */
static json_t *value_to_json(const struct lam_gguf_kv *kv, bool *exact)
{
    const uint8_t *at = kv->value;
    if (kv->type != LAM_GGUF_ARRAY) return item_to_json(kv->type, &at, exact);
    json_t *items = json_array();
    for (uint64_t i = 0; items && i < kv->count; i++) {
        if (json_array_append_new(items, item_to_json(kv->item_type, &at, exact)) == 0) continue;
        json_decref(items);
        items = NULL;
    }
    return items;
}

static json_t *to_hex(const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    struct lam_str text = {0};
    bool ok = lam_str_puts(&text, "");
    for (size_t i = 0; ok && i < n; i++) ok = lam_str_putc(&text, digits[bytes[i] >> 4]) && lam_str_putc(&text, digits[bytes[i] & 15]);
    json_t *hex = ok ? json_stringn(text.data ? text.data : "", text.len) : NULL;
    lam_str_release(&text);
    return hex;
}

lam_code lam_gguf_key_to_json(const struct lam_gguf_kv *kv, json_t **out, lam_error *err)
{
    bool exact = true, array = kv->type == LAM_GGUF_ARRAY;
    json_t *value = value_to_json(kv, &exact), *object = json_object();
    bool ok = object && json_object_set_new(object, "key", json_stringn(kv->key, kv->key_len)) == 0 &&
              json_object_set_new(object, "type", json_string(type_names[kv->type])) == 0;
    if (ok && array) ok = json_object_set_new(object, "items", json_string(type_names[kv->item_type])) == 0;
    if (ok && exact) ok = json_object_set(object, "value", value) == 0;
    if (ok && !exact) ok = json_object_set_new(object, "hex", to_hex(kv->value, kv->value_bytes)) == 0;
    if (ok && !exact && array) ok = json_object_set_new(object, "count", json_integer((json_int_t)kv->count)) == 0;
    json_decref(value);
    if (!ok) {
        json_decref(object);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata: key %.*s", (int)(kv->key_len < 128 ? kv->key_len : 128), kv->key);
    }
    *out = object;
    return LAM_OK;
}

static bool put_integer(struct lam_str *out, enum lam_gguf_type type, json_int_t value)
{
    uint8_t bytes[8];
    lam_store_u64(bytes, (uint64_t)value);
    return lam_str_append(out, bytes, type_bytes(type));
}

static bool put_float(struct lam_str *out, enum lam_gguf_type type, double value)
{
    uint8_t bytes[8];
    if (type == LAM_GGUF_F32) {
        float f = (float)value;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        lam_store_u32(bytes, bits);
    } else {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        lam_store_u64(bytes, bits);
    }
    return lam_str_append(out, bytes, type_bytes(type));
}

static lam_code item_from_json(const json_t *value, enum lam_gguf_type type, struct lam_str *out, const char *key, lam_error *err)
{
    bool fits = true, ok = true;
    if (type == LAM_GGUF_STRING) {
        fits = json_is_string(value);
        uint8_t len[8];
        lam_store_u64(len, json_string_length(value));
        ok = fits && lam_str_append(out, len, sizeof len) && lam_str_append(out, json_string_value(value), json_string_length(value));
    } else if (type == LAM_GGUF_BOOL) {
        fits = json_is_boolean(value);
        ok = fits && lam_str_putc(out, (char)json_is_true(value));
    } else if (type == LAM_GGUF_F32 || type == LAM_GGUF_F64) {
        fits = json_is_number(value); /* canonical JSON writes 1.0 as 1 */
        ok = fits && put_float(out, type, json_number_value(value));
    } else {
        fits = json_is_integer(value);
        ok = fits && put_integer(out, type, json_integer_value(value));
    }
    if (!fits) return LAM_RAISE(err, LAM_E_FORMAT, "metadata: key %.128s: a value that is no %s", key, type_names[type]);
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata: key %.128s", key);
}

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* True if bytes[len] are count values of the type, no more and no less. */
static bool bytes_match(enum lam_gguf_type type, uint64_t count, const uint8_t *bytes, size_t len)
{
    if (type != LAM_GGUF_STRING) return count <= len / type_bytes(type) && count * type_bytes(type) == len;
    size_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (len - at < 8 || lam_load_u64(bytes + at) > len - at - 8) return false;
        at += 8 + (size_t)lam_load_u64(bytes + at);
    }
    return at == len;
}

static lam_code value_from_hex(const json_t *hex, enum lam_gguf_type type, uint64_t count, struct lam_str *out, const char *key,
                               lam_error *err)
{
    const char *text = json_string_value(hex);
    size_t len = json_string_length(hex);
    for (size_t i = 0; i + 1 < len; i += 2) {
        int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0) return LAM_RAISE(err, LAM_E_FORMAT, "metadata: key %.128s: not hexadecimal", key);
        if (!lam_str_putc(out, (char)(high << 4 | low))) return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata: key %.128s", key);
    }
    if (len % 2 || !bytes_match(type, count, (const uint8_t *)out->data, out->len))
        return LAM_RAISE(err, LAM_E_FORMAT, "metadata: key %.128s: the bytes are not %" PRIu64 " of type %s", key, count, type_names[type]);
    return LAM_OK;
}

/* Encodes the value of object into out; *count counts array items. */
static lam_code encode_value(const json_t *object, enum lam_gguf_type type, enum lam_gguf_type item, uint64_t *count,
                             struct lam_str *out, const char *key, lam_error *err)
{
    const json_t *value = json_object_get(object, "value"), *hex = json_object_get(object, "hex");
    bool array = type == LAM_GGUF_ARRAY;
    *count = 1;
    if (json_is_string(hex)) {
        json_int_t n = array ? json_integer_value(json_object_get(object, "count")) : 1;
        if (n < 0) return LAM_RAISE(err, LAM_E_FORMAT, "metadata: key %.128s: count", key);
        *count = (uint64_t)n;
        return value_from_hex(hex, item, *count, out, key, err);
    }
    if (!array) return item_from_json(value, type, out, key, err);
    if (!json_is_array(value)) return LAM_RAISE(err, LAM_E_FORMAT, "metadata: key %.128s has no array", key);
    *count = json_array_size(value);
    for (size_t i = 0; i < json_array_size(value); i++) LAM_TRY(item_from_json(json_array_get(value, i), item, out, key, err));
    return LAM_OK;
}

lam_code lam_gguf_key_from_json(const json_t *object, struct lam_gguf_out *o, lam_error *err)
{
    const json_t *name = json_object_get(object, "key");
    const char *key = json_string_value(name);
    int type = type_by_name(json_string_value(json_object_get(object, "type"))), item = type;
    if (type == LAM_GGUF_ARRAY) item = type_by_name(json_string_value(json_object_get(object, "items")));
    if (!key || type < 0 || item < 0 || item == LAM_GGUF_ARRAY)
        return LAM_RAISE(err, LAM_E_FORMAT, "metadata: a GGUF key without name or type");
    struct lam_str bytes = {0};
    uint64_t count = 1;
    lam_code code = encode_value(object, (enum lam_gguf_type)type, (enum lam_gguf_type)item, &count, &bytes, key, err);
    if (code == LAM_OK)
        code = lam_gguf_out_kv(o, key, json_string_length(name), (enum lam_gguf_type)type, (enum lam_gguf_type)item, count,
                               bytes.data ? bytes.data : "", bytes.len, err);
    lam_str_release(&bytes);
    return code;
}
