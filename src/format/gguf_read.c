#include "base/alloc.h"
#include "base/cursor.h"
#include "base/str.h"
#include "format/gguf.h"
#include "format/name.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 65535        /* bytes; the specification's bound */
#define TENSOR_NAME_MAX 1023 /* bytes; the specification says 64, converters of adapters write longer ones */
#define KV_MIN 14            /* bytes of the shortest key and value: length, one letter, type, u8 */
#define TENSOR_MIN 33        /* bytes of the shortest tensor info: length, one letter, 1 dimension, type, offset */
#define DEFAULT_ALIGNMENT 32
#define IMPLAUSIBLE ((uint64_t)1 << 48) /* a size that no file reaches was never meant as one */

/* One file's content before it becomes part of a model. */
struct part {
    const uint8_t *bytes;
    size_t len;
    uint32_t version;
    size_t alignment;
    struct lam_gguf_kv *kvs;
    const struct lam_gguf_kv **kvs_by_key;
    size_t n_kvs;
    struct lam_gguf_tensor *tensors;
    uint64_t *offsets; /* n_tensors, from the start of the data section */
    size_t n_tensors;
};

/* A declared size went past the end of the file. */
static lam_code raise_size(lam_error *err, const struct lam_cursor *c, const char *what, uint64_t declared)
{
    return LAM_RAISE(err, declared >= IMPLAUSIBLE ? LAM_E_OVERFLOW : LAM_E_TRUNCATED,
                     "gguf: %s of %" PRIu64 " at byte %zu, %zu bytes are left", what, declared, lam_cursor_offset(c), lam_cursor_left(c));
}

static lam_code raise_end(lam_error *err, const struct lam_cursor *c, const char *what)
{
    return LAM_RAISE(err, LAM_E_TRUNCATED, "gguf: ends at byte %zu within %s", lam_cursor_offset(c) + lam_cursor_left(c), what);
}

static lam_code read_string(struct lam_cursor *c, const char *what, const char **out, size_t *len, lam_error *err)
{
    uint64_t n;
    const uint8_t *bytes;
    if (!lam_cursor_u64(c, &n)) return raise_end(err, c, what);
    if (!lam_cursor_bytes(c, n, &bytes)) return raise_size(err, c, what, n);
    *out = (const char *)bytes;
    *len = (size_t)n;
    return LAM_OK;
}

/* Bytes of one value; 0 for strings and arrays, whose size varies, and for numbers that are no type. */
static size_t type_bytes(uint32_t type)
{
    switch (type) {
    case LAM_GGUF_U8: case LAM_GGUF_I8: case LAM_GGUF_BOOL: return 1;
    case LAM_GGUF_U16: case LAM_GGUF_I16: return 2;
    case LAM_GGUF_U32: case LAM_GGUF_I32: case LAM_GGUF_F32: return 4;
    case LAM_GGUF_U64: case LAM_GGUF_I64: case LAM_GGUF_F64: return 8;
    default: return 0;
    }
}

static int short_length(size_t len) { return (int)(len < 128 ? len : 128); }

static lam_code read_items(struct lam_cursor *c, struct lam_gguf_kv *kv, lam_error *err)
{
    int len = short_length(kv->key_len);
    size_t size = type_bytes(kv->item_type);
    kv->value = c->at;
    if (kv->item_type == LAM_GGUF_STRING) {
        if (kv->count > lam_cursor_left(c) / 8) return raise_size(err, c, "string array", kv->count);
        for (uint64_t i = 0; i < kv->count; i++) {
            const char *text;
            size_t text_len;
            LAM_TRY(read_string(c, "string", &text, &text_len, err));
        }
    } else if (kv->item_type == LAM_GGUF_ARRAY) {
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "gguf: key %.*s: an array of arrays", len, kv->key);
    } else if (size == 0) {
        return LAM_RAISE(err, LAM_E_FORMAT, "gguf: key %.*s: unknown value type %d", len, kv->key, (int)kv->item_type);
    } else {
        const uint8_t *items;
        if (kv->count > lam_cursor_left(c) / size) return raise_size(err, c, "array", kv->count);
        lam_cursor_bytes(c, kv->count * size, &items);
        for (uint64_t i = 0; kv->item_type == LAM_GGUF_BOOL && i < kv->count; i++)
            if (items[i] > 1) return LAM_RAISE(err, LAM_E_FORMAT, "gguf: key %.*s: bool of value %u", len, kv->key, items[i]);
    }
    kv->value_bytes = (size_t)(c->at - kv->value);
    return LAM_OK;
}

static lam_code read_kv(struct lam_cursor *c, struct lam_gguf_kv *kv, lam_error *err)
{
    uint32_t type, item_type;
    LAM_TRY(read_string(c, "key", &kv->key, &kv->key_len, err));
    if (kv->key_len > KEY_MAX) return LAM_RAISE(err, LAM_E_LIMIT, "gguf: a key of %zu bytes, %d are allowed", kv->key_len, KEY_MAX);
    if (!lam_name_is_clean(kv->key, kv->key_len))
        return LAM_RAISE(err, LAM_E_FORMAT, "gguf: the key that ends at byte %zu is empty or not clean UTF-8", lam_cursor_offset(c));
    if (!lam_cursor_u32(c, &type)) return raise_end(err, c, "a value type");
    item_type = type;
    kv->count = 1;
    if (type == LAM_GGUF_ARRAY && (!lam_cursor_u32(c, &item_type) || !lam_cursor_u64(c, &kv->count)))
        return raise_end(err, c, "an array header");
    if (type > LAM_GGUF_F64 || item_type > LAM_GGUF_F64)
        return LAM_RAISE(err, LAM_E_FORMAT, "gguf: key %.*s: unknown value type %" PRIu32, short_length(kv->key_len), kv->key,
                         type > LAM_GGUF_F64 ? type : item_type);
    kv->type = type;
    kv->item_type = item_type;
    return read_items(c, kv, err);
}

static int compare_kvs(const void *a, const void *b)
{
    const struct lam_gguf_kv *l = *(const struct lam_gguf_kv *const *)a, *r = *(const struct lam_gguf_kv *const *)b;
    return lam_name_compare(l->key, l->key_len, r->key, r->key_len);
}

static lam_code read_kvs(struct part *p, struct lam_cursor *c, lam_error *err)
{
    p->kvs = lam_alloc(p->n_kvs, sizeof *p->kvs);
    p->kvs_by_key = lam_alloc(p->n_kvs, sizeof *p->kvs_by_key);
    if (!p->kvs || !p->kvs_by_key) return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: %zu keys", p->n_kvs);
    for (size_t i = 0; i < p->n_kvs; i++) {
        LAM_TRY(read_kv(c, &p->kvs[i], err));
        p->kvs_by_key[i] = &p->kvs[i];
    }
    qsort(p->kvs_by_key, p->n_kvs, sizeof *p->kvs_by_key, compare_kvs);
    for (size_t i = 1; i < p->n_kvs; i++)
        if (compare_kvs(&p->kvs_by_key[i - 1], &p->kvs_by_key[i]) == 0)
            return LAM_RAISE(err, LAM_E_DUPLICATE, "gguf: key %.*s occurs twice", short_length(p->kvs_by_key[i]->key_len),
                             p->kvs_by_key[i]->key);
    return LAM_OK;
}

/* ggml's names of tensor types, for messages about those that lam_dtype has not. */
static const char *ggml_type_name(uint32_t type)
{
    static const char *const names[] = {
        [4] = "Q4_2", [5] = "Q4_3", [9] = "Q8_1", [15] = "Q8_K", [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",
        [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S", [23] = "IQ4_XS", [24] = "I8", [25] = "I16",
        [26] = "I32", [27] = "I64", [28] = "F64", [29] = "IQ1_M", [31] = "Q4_0_4_4", [32] = "Q4_0_4_8", [33] = "Q4_0_8_8",
        [34] = "TQ1_0", [35] = "TQ2_0", [39] = "MXFP4",
    };
    const char *name = type < sizeof names / sizeof *names ? names[type] : NULL;
    return name ? name : "unknown";
}

static lam_code measure_tensor(struct lam_gguf_tensor *t, uint32_t type, lam_error *err)
{
    const struct lam_dtype_info *info = lam_dtype_info(type);
    if (!info || !lam_dtype_in_gguf(info->dtype))
        return LAM_RAISE(err, LAM_E_DTYPE, "tensor %.128s: type %s (%" PRIu32 ") is not supported", t->name, ggml_type_name(type), type);
    t->dtype = info->dtype;
    if (t->dims[0] % info->block_elements)
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.128s: rows of %" PRIu64 " do not divide into %s blocks of %u", t->name,
                         t->dims[0], info->name, info->block_elements);
    bool fits = lam_dtype_row_bytes(t->dtype, t->dims[0], &t->bytes);
    for (int i = 1; fits && i < 4; i++) fits = t->dims[i] <= SIZE_MAX && lam_mul_size(t->bytes, (size_t)t->dims[i], &t->bytes);
    if (!fits || (uint64_t)t->bytes >= IMPLAUSIBLE)
        return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.128s: its size (%" PRIu64 " × %" PRIu64 " × %" PRIu64 " × %" PRIu64 ") does not fit",
                         t->name, t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
    return LAM_OK;
}

static lam_code read_tensor(struct lam_cursor *c, struct lam_gguf_tensor *t, uint64_t *offset, lam_error *err)
{
    const char *name;
    size_t len;
    uint32_t n_dims, type;
    LAM_TRY(read_string(c, "tensor name", &name, &len, err));
    if (len > TENSOR_NAME_MAX)
        return LAM_RAISE(err, LAM_E_LIMIT, "gguf: a tensor name of %zu bytes, %d are allowed", len, TENSOR_NAME_MAX);
    if (!lam_name_is_clean(name, len))
        return LAM_RAISE(err, LAM_E_FORMAT, "gguf: the tensor name that ends at byte %zu is empty or not clean UTF-8", lam_cursor_offset(c));
    t->name = lam_strndup(name, len);
    if (!t->name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: tensor names");
    if (!lam_cursor_u32(c, &n_dims)) return raise_end(err, c, "a tensor info");
    if (n_dims < 1 || n_dims > 4)
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.128s: %" PRIu32 " dimensions, 1 to 4 are supported", t->name, n_dims);
    t->n_dims = (uint8_t)n_dims;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < n_dims && !lam_cursor_u64(c, &t->dims[i])) return raise_end(err, c, "a tensor info");
        if (t->dims[i] == 0) return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.128s: dimension %" PRIu32 " is 0", t->name, i);
    }
    if (!lam_cursor_u32(c, &type) || !lam_cursor_u64(c, offset)) return raise_end(err, c, "a tensor info");
    return measure_tensor(t, type, err);
}

struct extent {
    uint64_t offset;
    const struct lam_gguf_tensor *tensor;
};

static int compare_extents(const void *a, const void *b)
{
    const struct extent *l = a, *r = b;
    return (l->offset > r->offset) - (l->offset < r->offset);
}

/* Tensors must follow each other, parted by padding alone, up to the file's end. data_bytes: what lies behind the header. */
static lam_code check_extents(const struct part *p, const struct extent *extents, size_t data_bytes, lam_error *err)
{
    size_t end = 0, place;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct lam_gguf_tensor *t = extents[i].tensor;
        uint64_t offset = extents[i].offset;
        if (offset % p->alignment)
            return LAM_RAISE(err, LAM_E_ALIGNMENT, "tensor %.128s: offset %" PRIu64 " is not a multiple of %zu", t->name, offset, p->alignment);
        if (offset < end)
            return LAM_RAISE(err, LAM_E_OVERLAP, "tensor %.128s: offset %" PRIu64 " overlaps what ends at %zu", t->name, offset, end);
        if (offset >= IMPLAUSIBLE) return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.128s: offset %" PRIu64, t->name, offset);
        if (!lam_round_up(end, p->alignment, &place)) return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.128s: its place", t->name);
        if (offset > place)
            return LAM_RAISE(err, LAM_E_GAP, "tensor %.128s: offset %" PRIu64 " leaves a gap from %zu", t->name, offset, place);
        if (offset > data_bytes || t->bytes > data_bytes - offset)
            return LAM_RAISE(err, LAM_E_TRUNCATED, "tensor %.128s: %zu bytes at %" PRIu64 " of %zu data bytes", t->name, t->bytes,
                             offset, data_bytes);
        end = (size_t)offset + t->bytes;
    }
    if (lam_round_up(end, p->alignment, &place) && data_bytes > place)
        return LAM_RAISE(err, LAM_E_GAP, "gguf: %zu bytes follow the last tensor", data_bytes - end);
    return LAM_OK;
}

static lam_code place_tensors(struct part *p, size_t header_bytes, lam_error *err)
{
    size_t data_at;
    if (!lam_round_up(header_bytes, p->alignment, &data_at)) return LAM_RAISE(err, LAM_E_OVERFLOW, "gguf: header of %zu bytes", header_bytes);
    if (p->len < data_at) { /* files without tensors may lack the padding too */
        if (p->n_tensors == 0) return LAM_OK;
        return LAM_RAISE(err, LAM_E_TRUNCATED, "gguf: %zu bytes, the data starts at %zu", p->len, data_at);
    }
    struct extent *extents = lam_alloc(p->n_tensors, sizeof *extents);
    if (!extents) return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: %zu tensors", p->n_tensors);
    for (size_t i = 0; i < p->n_tensors; i++) extents[i] = (struct extent){p->offsets[i], &p->tensors[i]};
    qsort(extents, p->n_tensors, sizeof *extents, compare_extents);
    lam_code code = check_extents(p, extents, p->len - data_at, err);
    lam_free(extents);
    for (size_t i = 0; code == LAM_OK && i < p->n_tensors; i++) p->tensors[i].data = p->bytes + data_at + p->offsets[i];
    return code;
}

static lam_code read_identity(struct part *p, struct lam_cursor *c, lam_error *err)
{
    static const char *const legacy[] = {"lmgg", "fmgg", "tjgg", "algg"}; /* GGML, GGMF, GGJT, GGLA as stored */
    const uint8_t *magic;
    if (!lam_cursor_bytes(c, 4, &magic)) return raise_end(err, c, "the magic");
    for (size_t i = 0; i < sizeof legacy / sizeof *legacy; i++)
        if (memcmp(magic, legacy[i], 4) == 0) return LAM_RAISE(err, LAM_E_LEGACY, "a GGML file of before GGUF");
    if (memcmp(magic, "GGUF", 4) != 0) return LAM_RAISE(err, LAM_E_MAGIC, "not a GGUF file");
    if (!lam_cursor_u32(c, &p->version)) return raise_end(err, c, "the version");
    if (p->version != 0 && (p->version & 0xFFFF) == 0)
        return LAM_RAISE(err, LAM_E_BYTE_ORDER, "gguf: a big-endian file (version %#" PRIx32 ")", p->version);
    if (p->version != 2 && p->version != 3)
        return LAM_RAISE(err, LAM_E_VERSION, "gguf: version %" PRIu32 ", 2 and 3 are read", p->version);
    return LAM_OK;
}

static const struct lam_gguf_kv *find_kv(const struct lam_gguf_kv *const *sorted, size_t n, const char *key, size_t len)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = lam_name_compare(key, len, sorted[middle]->key, sorted[middle]->key_len);
        if (order == 0) return sorted[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

static lam_code read_alignment(struct part *p, lam_error *err)
{
    static const char key[] = "general.alignment";
    const struct lam_gguf_kv *kv = find_kv(p->kvs_by_key, p->n_kvs, key, sizeof key - 1);
    p->alignment = DEFAULT_ALIGNMENT;
    if (!kv) return LAM_OK;
    if (kv->type != LAM_GGUF_U32) return LAM_RAISE(err, LAM_E_ALIGNMENT, "gguf: %s has value type %d, not u32", key, (int)kv->type);
    uint32_t value = lam_load_u32(kv->value);
    if (value < 8 || (value & (value - 1)))
        return LAM_RAISE(err, LAM_E_ALIGNMENT, "gguf: %s is %" PRIu32 ", a power of two from 8 is needed", key, value);
    p->alignment = value;
    return LAM_OK;
}

static void free_part(struct part *p)
{
    for (size_t i = 0; p->tensors && i < p->n_tensors; i++) lam_free((char *)p->tensors[i].name);
    lam_free(p->tensors);
    lam_free(p->offsets);
    lam_free(p->kvs);
    lam_free(p->kvs_by_key);
    *p = (struct part){0};
}

static lam_code read_part_content(struct part *p, lam_error *err)
{
    if (p->len == 0) return LAM_RAISE(err, LAM_E_TRUNCATED, "gguf: an empty file"); /* bytes may be NULL then */
    struct lam_cursor c = lam_cursor_init(p->bytes, p->len);
    uint64_t n_tensors, n_kvs;
    LAM_TRY(read_identity(p, &c, err));
    if (!lam_cursor_u64(&c, &n_tensors) || !lam_cursor_u64(&c, &n_kvs)) return raise_end(err, &c, "the counts");
    if (n_kvs > lam_cursor_left(&c) / KV_MIN) return raise_size(err, &c, "key count", n_kvs);
    if (n_tensors > lam_cursor_left(&c) / TENSOR_MIN) return raise_size(err, &c, "tensor count", n_tensors);
    p->n_kvs = (size_t)n_kvs;
    LAM_TRY(read_kvs(p, &c, err));
    LAM_TRY(read_alignment(p, err));
    if (n_tensors > lam_cursor_left(&c) / TENSOR_MIN) return raise_size(err, &c, "tensor count", n_tensors);
    p->tensors = lam_alloc((size_t)n_tensors, sizeof *p->tensors);
    p->offsets = lam_alloc((size_t)n_tensors, sizeof *p->offsets);
    p->n_tensors = (size_t)n_tensors;
    if (!p->tensors || !p->offsets) return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: %zu tensors", p->n_tensors);
    for (size_t i = 0; i < p->n_tensors; i++) LAM_TRY(read_tensor(&c, &p->tensors[i], &p->offsets[i], err));
    return place_tensors(p, lam_cursor_offset(&c), err);
}

/* *p is empty after a failure. */
static lam_code read_part(const uint8_t *bytes, size_t len, struct part *p, lam_error *err)
{
    *p = (struct part){.bytes = bytes, .len = len};
    lam_code code = read_part_content(p, err);
    if (code != LAM_OK) free_part(p);
    return code;
}

/* Takes over what p holds. */
static void adopt_first(struct lam_gguf *g, struct part *p)
{
    g->version = p->version;
    g->alignment = p->alignment;
    g->kvs = p->kvs;
    g->kvs_by_key = p->kvs_by_key;
    g->n_kvs = p->n_kvs;
    g->tensors = p->tensors;
    g->n_tensors = p->n_tensors;
    lam_free(p->offsets);
    *p = (struct part){0};
}

static bool same_value(const struct lam_gguf_kv *a, const struct lam_gguf_kv *b)
{
    return a->type == b->type && a->item_type == b->item_type && a->count == b->count && a->value_bytes == b->value_bytes &&
           memcmp(a->value, b->value, a->value_bytes) == 0;
}

/* A further part may say where it belongs, its alignment, and what the first part says too. */
static lam_code check_further_keys(const struct lam_gguf *g, const struct part *p, lam_error *err)
{
    for (size_t i = 0; i < p->n_kvs; i++) {
        const struct lam_gguf_kv *kv = &p->kvs[i], *first;
        if (kv->key_len > 6 && memcmp(kv->key, "split.", 6) == 0) continue;
        if (kv->key_len == 17 && memcmp(kv->key, "general.alignment", 17) == 0) continue;
        first = find_kv(g->kvs_by_key, g->n_kvs, kv->key, kv->key_len);
        if (!first || !same_value(first, kv))
            return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "gguf: key %.*s stands in a further part and not (or otherwise) in the first",
                             short_length(kv->key_len), kv->key);
    }
    return LAM_OK;
}

static lam_code check_part_number(const struct part *p, uint32_t number, uint32_t count, lam_error *err)
{
    const struct lam_gguf view = {.kvs_by_key = p->kvs_by_key, .n_kvs = p->n_kvs};
    uint32_t no = 0, n = 0;
    LAM_TRY(lam_gguf_u32(&view, "split.no", true, &no, err));
    LAM_TRY(lam_gguf_u32(&view, "split.count", true, &n, err));
    if (no != number || n != count)
        return LAM_RAISE(err, LAM_E_FORMAT, "gguf: part %" PRIu32 " of %" PRIu32 " says that it is part %" PRIu32 " of %" PRIu32,
                         number + 1, count, no + 1, n);
    return LAM_OK;
}

static lam_code append_part(struct lam_gguf *g, struct part *p, uint32_t number, uint32_t count, lam_error *err)
{
    LAM_TRY(check_part_number(p, number, count, err));
    LAM_TRY(check_further_keys(g, p, err));
    struct lam_gguf_tensor *grown = lam_realloc(g->tensors, g->n_tensors + p->n_tensors, sizeof *grown);
    if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: %zu tensors", g->n_tensors + p->n_tensors);
    g->tensors = grown;
    if (p->n_tensors) memcpy(grown + g->n_tensors, p->tensors, p->n_tensors * sizeof *grown);
    g->n_tensors += p->n_tensors;
    p->n_tensors = 0; /* the names moved */
    return LAM_OK;
}

/* path of a part from that of the first: PREFIX-00001-of-0000N.gguf. */
static lam_code part_path(const char *first, uint32_t number, uint32_t count, struct lam_str *out, lam_error *err)
{
    char suffix[40];
    int n = snprintf(suffix, sizeof suffix, "-00001-of-%05" PRIu32 ".gguf", count);
    size_t len = strlen(first);
    if (len < (size_t)n || strcmp(first + len - n, suffix) != 0)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%s: the first of %" PRIu32 " parts must be named …%s", lam_path_base(first), count, suffix);
    lam_str_clear(out);
    if (!lam_str_append(out, first, len - (size_t)n) || !lam_str_printf(out, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", number + 1, count))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    return LAM_OK;
}

static lam_code open_further_part(struct lam_gguf *g, const char *path, uint32_t number, uint32_t count, lam_error *err)
{
    struct part p;
    struct lam_mapping *file = &g->files[g->n_files];
    LAM_TRY(lam_map_file(path, file, err));
    g->n_files++;
    LAM_TRY(read_part(file->data, file->size, &p, err));
    lam_code code = append_part(g, &p, number, count, err);
    free_part(&p);
    return code;
}

/* path is NULL for bytes in memory. */
static lam_code open_splits(struct lam_gguf *g, const char *path, lam_error *err)
{
    uint32_t count = 1, no = 0, total = 0;
    LAM_TRY(lam_gguf_u32(g, "split.count", false, &count, err));
    if (count <= 1) return LAM_OK;
    LAM_TRY(lam_gguf_u32(g, "split.no", true, &no, err));
    if (no != 0) return LAM_RAISE(err, LAM_E_ARGUMENT, "gguf: this is part %" PRIu32 " of %" PRIu32 "; give the first", no + 1, count);
    if (!path) return LAM_RAISE(err, LAM_E_UNSUPPORTED, "gguf: the first of %" PRIu32 " parts, without the others", count);
    if (count > 65535) return LAM_RAISE(err, LAM_E_LIMIT, "gguf: %" PRIu32 " parts", count);
    struct lam_str name = {0};
    lam_code code = part_path(path, 1, count, &name, err); /* before memory is spent on count */
    if (code == LAM_OK && !lam_path_exists(name.data)) code = LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: not there", name.data);
    struct lam_mapping *files = code == LAM_OK ? lam_realloc(g->files, count, sizeof *files) : NULL;
    if (files) g->files = files;
    else if (code == LAM_OK) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: %" PRIu32 " parts", count);
    for (uint32_t i = 1; code == LAM_OK && i < count; i++) {
        code = part_path(path, i, count, &name, err);
        if (code == LAM_OK) code = open_further_part(g, name.data, i, count, err);
    }
    lam_str_release(&name);
    if (code != LAM_OK) return code;
    LAM_TRY(lam_gguf_u32(g, "split.tensors.count", true, &total, err));
    if (total != g->n_tensors)
        return LAM_RAISE(err, LAM_E_FORMAT, "gguf: %zu tensors in %" PRIu32 " parts, %" PRIu32 " declared", g->n_tensors, count, total);
    return LAM_OK;
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp((*(const struct lam_gguf_tensor *const *)a)->name, (*(const struct lam_gguf_tensor *const *)b)->name);
}

static lam_code sort_tensors(struct lam_gguf *g, lam_error *err)
{
    g->tensors_by_name = lam_alloc(g->n_tensors, sizeof *g->tensors_by_name);
    if (!g->tensors_by_name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: %zu tensors", g->n_tensors);
    for (size_t i = 0; i < g->n_tensors; i++) g->tensors_by_name[i] = &g->tensors[i];
    qsort(g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, compare_tensors);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (compare_tensors(&g->tensors_by_name[i - 1], &g->tensors_by_name[i]) == 0)
            return LAM_RAISE(err, LAM_E_DUPLICATE, "gguf: tensor %.128s occurs twice", g->tensors_by_name[i]->name);
    return LAM_OK;
}

static lam_code open_bytes(struct lam_gguf *g, const char *path, const uint8_t *bytes, size_t len, lam_error *err)
{
    struct part first;
    LAM_TRY(read_part(bytes, len, &first, err));
    adopt_first(g, &first);
    LAM_TRY(open_splits(g, path, err));
    return sort_tensors(g, err);
}

lam_code lam_gguf_open(const char *path, struct lam_gguf **out, lam_error *err)
{
    struct lam_gguf *g = lam_alloc(1, sizeof *g);
    if (!g || !(g->files = lam_alloc(1, sizeof *g->files))) {
        lam_free(g);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    }
    lam_code code = lam_map_file(path, &g->files[0], err);
    if (code == LAM_OK) {
        g->n_files = 1;
        code = open_bytes(g, path, g->files[0].data, g->files[0].size, err);
    }
    if (code == LAM_OK) *out = g;
    else lam_gguf_close(g);
    return code;
}

lam_code lam_gguf_open_memory(const uint8_t *bytes, size_t len, struct lam_gguf **out, lam_error *err)
{
    struct lam_gguf *g = lam_alloc(1, sizeof *g);
    if (!g) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    lam_code code = open_bytes(g, NULL, bytes, len, err);
    if (code == LAM_OK) *out = g;
    else lam_gguf_close(g);
    return code;
}

void lam_gguf_close(struct lam_gguf *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_tensors; i++) lam_free((char *)g->tensors[i].name);
    for (size_t i = 0; i < g->n_files; i++) lam_unmap_file(&g->files[i]);
    lam_free(g->files);
    lam_free(g->kvs);
    lam_free(g->kvs_by_key);
    lam_free(g->tensors);
    lam_free(g->tensors_by_name);
    lam_free(g);
}

const struct lam_gguf_kv *lam_gguf_find(const struct lam_gguf *g, const char *key)
{
    return find_kv(g->kvs_by_key, g->n_kvs, key, strlen(key));
}

const struct lam_gguf_tensor *lam_gguf_find_tensor(const struct lam_gguf *g, const char *name)
{
    size_t low = 0, high = g->n_tensors;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, g->tensors_by_name[middle]->name);
        if (order == 0) return g->tensors_by_name[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}
