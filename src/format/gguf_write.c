#include "base/alloc.h"
#include "base/cursor.h"
#include "base/str.h"
#include "format/gguf.h"
#include "format/name.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ALIGNMENT 32

struct declared {
    char *name;      /* owned */
    enum lam_dtype dtype;
    uint8_t n_dims;
    uint64_t dims[4];
    size_t bytes;
};

/* A key added before; its value lies in lam_gguf_out.kvs. */
struct written {
    char *key;               /* owned */
    enum lam_gguf_type type, item_type;
    uint64_t count;
    size_t at, bytes;
};

struct lam_gguf_out {
    struct lam_str kvs;      /* in the file's encoding */
    struct written *keys;    /* n_kvs, owned */
    size_t n_kvs;
    struct declared *tensors;
    size_t n_tensors;
    size_t alignment;
};

lam_code lam_gguf_out_new(struct lam_gguf_out **out, lam_error *err)
{
    *out = lam_alloc(1, sizeof **out);
    if (!*out) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    (*out)->alignment = DEFAULT_ALIGNMENT;
    return LAM_OK;
}

void lam_gguf_out_free(struct lam_gguf_out *o)
{
    if (!o) return;
    for (size_t i = 0; i < o->n_kvs; i++) lam_free(o->keys[i].key);
    for (size_t i = 0; i < o->n_tensors; i++) lam_free(o->tensors[i].name);
    lam_free(o->keys);
    lam_free(o->tensors);
    lam_str_release(&o->kvs);
    lam_free(o);
}

static bool put_u32(struct lam_str *s, uint32_t v)
{
    uint8_t bytes[4];
    lam_store_u32(bytes, v);
    return lam_str_append(s, bytes, sizeof bytes);
}

static bool put_u64(struct lam_str *s, uint64_t v)
{
    uint8_t bytes[8];
    lam_store_u64(bytes, v);
    return lam_str_append(s, bytes, sizeof bytes);
}

/* Room for one more at the end of an array that grows at powers of two. */
static void *grow(void *array, size_t n, size_t size)
{
    return n & (n - 1) ? array : lam_realloc(array, n ? n * 2 : 1, size);
}

static lam_code note_alignment(struct lam_gguf_out *o, enum lam_gguf_type type, const uint8_t *value, lam_error *err)
{
    uint32_t alignment = type == LAM_GGUF_U32 ? lam_load_u32(value) : 0;
    if (alignment < 8 || (alignment & (alignment - 1))) return LAM_RAISE(err, LAM_E_ALIGNMENT, "general.alignment is %" PRIu32, alignment);
    o->alignment = alignment;
    return LAM_OK;
}

lam_code lam_gguf_out_kv(struct lam_gguf_out *o, const char *key, size_t key_len, enum lam_gguf_type type,
                         enum lam_gguf_type item_type, uint64_t count, const void *value, size_t bytes, lam_error *err)
{
    if (key_len > 65535 || !lam_name_is_clean(key, key_len))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "gguf: a key is empty, too long or not clean UTF-8");
    if (key_len == 17 && memcmp(key, "general.alignment", 17) == 0) LAM_TRY(note_alignment(o, type, value, err));
    struct written *keys = grow(o->keys, o->n_kvs, sizeof *keys);
    char *copy = keys ? lam_strndup(key, key_len) : NULL;
    if (keys) o->keys = keys;
    size_t before = o->kvs.len;
    bool ok = copy && put_u64(&o->kvs, key_len) && lam_str_append(&o->kvs, key, key_len) && put_u32(&o->kvs, type);
    if (ok && type == LAM_GGUF_ARRAY) ok = put_u32(&o->kvs, item_type) && put_u64(&o->kvs, count);
    if (!ok || !lam_str_append(&o->kvs, value, bytes)) {
        o->kvs.len = before;
        lam_free(copy);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: key %.*s", (int)(key_len < 128 ? key_len : 128), key);
    }
    o->keys[o->n_kvs++] = (struct written){copy, type, item_type, count, o->kvs.len - bytes, bytes};
    return LAM_OK;
}

bool lam_gguf_out_kv_at(const struct lam_gguf_out *o, size_t i, struct lam_gguf_kv *out)
{
    if (i >= o->n_kvs) return false;
    const struct written *w = &o->keys[i];
    *out = (struct lam_gguf_kv){.key = w->key, .key_len = strlen(w->key), .type = w->type, .item_type = w->item_type,
                                .count = w->count, .value = (const uint8_t *)o->kvs.data + w->at, .value_bytes = w->bytes};
    return true;
}

bool lam_gguf_out_find(const struct lam_gguf_out *o, const char *key, struct lam_gguf_kv *out)
{
    for (size_t i = 0; lam_gguf_out_kv_at(o, i, out); i++)
        if (strcmp(out->key, key) == 0) return true;
    return false;
}

static lam_code scalar(struct lam_gguf_out *o, const char *key, enum lam_gguf_type type, const void *value, size_t bytes, lam_error *err)
{
    return lam_gguf_out_kv(o, key, strlen(key), type, type, 1, value, bytes, err);
}

lam_code lam_gguf_out_u32(struct lam_gguf_out *o, const char *key, uint32_t value, lam_error *err)
{
    uint8_t bytes[4];
    lam_store_u32(bytes, value);
    return scalar(o, key, LAM_GGUF_U32, bytes, sizeof bytes, err);
}

lam_code lam_gguf_out_f32(struct lam_gguf_out *o, const char *key, float value, lam_error *err)
{
    uint32_t bits;
    uint8_t bytes[4];
    memcpy(&bits, &value, sizeof bits);
    lam_store_u32(bytes, bits);
    return scalar(o, key, LAM_GGUF_F32, bytes, sizeof bytes, err);
}

lam_code lam_gguf_out_bool(struct lam_gguf_out *o, const char *key, bool value, lam_error *err)
{
    uint8_t byte = value;
    return scalar(o, key, LAM_GGUF_BOOL, &byte, 1, err);
}

lam_code lam_gguf_out_string(struct lam_gguf_out *o, const char *key, const char *value, size_t len, lam_error *err)
{
    struct lam_str text = {0};
    bool ok = put_u64(&text, len) && lam_str_append(&text, value, len);
    lam_code code = ok ? scalar(o, key, LAM_GGUF_STRING, text.data, text.len, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    lam_str_release(&text);
    return code;
}

lam_code lam_gguf_out_tensor(struct lam_gguf_out *o, const char *name, enum lam_dtype dtype, uint8_t n_dims,
                             const uint64_t dims[4], lam_error *err)
{
    struct declared t = {.dtype = dtype, .n_dims = n_dims, .dims = {1, 1, 1, 1}};
    if (!lam_name_is_clean(name, strlen(name))) return LAM_RAISE(err, LAM_E_ARGUMENT, "gguf: a tensor name is empty or not clean UTF-8");
    if (!lam_dtype_info(dtype)) return LAM_RAISE(err, LAM_E_DTYPE, "tensor %s: type %d", name, (int)dtype);
    if (!lam_dtype_in_gguf(dtype))
        return LAM_RAISE(err, LAM_E_DTYPE, "tensor %s: GGUF has no type %s", name, lam_dtype_info(dtype)->name);
    if (n_dims < 1 || n_dims > 4) return LAM_RAISE(err, LAM_E_SHAPE, "tensor %s: %u dimensions", name, n_dims);
    for (int i = 0; i < n_dims; i++) t.dims[i] = dims[i];
    if (t.dims[0] % lam_dtype_info(dtype)->block_elements)
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %s: rows of %" PRIu64 " do not divide into blocks", name, t.dims[0]);
    bool fits = lam_dtype_row_bytes(dtype, t.dims[0], &t.bytes);
    for (int i = 1; fits && i < 4; i++) fits = t.dims[i] <= SIZE_MAX && lam_mul_size(t.bytes, (size_t)t.dims[i], &t.bytes);
    if (!fits) return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %s: its size does not fit", name);
    if (t.bytes == 0) return LAM_RAISE(err, LAM_E_SHAPE, "tensor %s: a dimension is 0", name);
    struct declared *tensors = grow(o->tensors, o->n_tensors, sizeof *tensors);
    if (tensors) o->tensors = tensors;
    t.name = tensors ? lam_strdup(name) : NULL;
    if (!t.name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "tensor %s", name);
    o->tensors[o->n_tensors++] = t;
    return LAM_OK;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static lam_code refuse_twice(const char **names, size_t n, const char *what, lam_error *err)
{
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0) return LAM_RAISE(err, LAM_E_DUPLICATE, "gguf: %s %.128s is written twice", what, names[i]);
    return LAM_OK;
}

static lam_code check_names(const struct lam_gguf_out *o, lam_error *err)
{
    size_t n = o->n_kvs > o->n_tensors ? o->n_kvs : o->n_tensors;
    const char **names = lam_alloc(n, sizeof *names);
    if (!names) return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: %zu names", n);
    for (size_t i = 0; i < o->n_kvs; i++) names[i] = o->keys[i].key;
    lam_code code = refuse_twice(names, o->n_kvs, "key", err);
    for (size_t i = 0; i < o->n_tensors; i++) names[i] = o->tensors[i].name;
    if (code == LAM_OK) code = refuse_twice(names, o->n_tensors, "tensor", err);
    lam_free(names);
    return code;
}

/* Everything before the padding in front of the data. */
static lam_code make_header(const struct lam_gguf_out *o, struct lam_str *h, lam_error *err)
{
    bool ok = lam_str_puts(h, "GGUF") && put_u32(h, 3) && put_u64(h, o->n_tensors) && put_u64(h, o->n_kvs) &&
              lam_str_append(h, o->kvs.data, o->kvs.len);
    size_t end = 0;
    for (size_t i = 0; ok && i < o->n_tensors; i++) {
        const struct declared *t = &o->tensors[i];
        size_t len = strlen(t->name), place;
        if (!lam_round_up(end, o->alignment, &place) || !lam_add_size(place, t->bytes, &end))
            return LAM_RAISE(err, LAM_E_OVERFLOW, "gguf: the file's size does not fit");
        ok = put_u64(h, len) && lam_str_append(h, t->name, len) && put_u32(h, t->n_dims);
        for (int d = 0; ok && d < t->n_dims; d++) ok = put_u64(h, t->dims[d]);
        ok = ok && put_u32(h, t->dtype) && put_u64(h, place);
    }
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: header");
}

/* Zeros up to the next multiple of the alignment. */
static lam_code pad(struct lam_writer *w, size_t alignment, lam_error *err)
{
    static const uint8_t zeros[4096];
    size_t left = (alignment - (size_t)(lam_writer_offset(w) % alignment)) % alignment;
    for (; left > sizeof zeros; left -= sizeof zeros) LAM_TRY(lam_writer_write(w, zeros, sizeof zeros, err));
    return lam_writer_write(w, zeros, left, err);
}

static lam_code write_tensors(const struct lam_gguf_out *o, struct lam_writer *w, lam_gguf_fill_fn fill, void *context, lam_error *err)
{
    size_t largest = 0;
    for (size_t i = 0; i < o->n_tensors; i++)
        if (o->tensors[i].bytes > largest) largest = o->tensors[i].bytes;
    uint8_t *buffer = lam_alloc_aligned(largest);
    if (!buffer) return LAM_RAISE(err, LAM_E_NO_MEMORY, "gguf: a tensor of %zu bytes", largest);
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < o->n_tensors; i++) {
        code = fill(context, i, buffer, o->tensors[i].bytes, err);
        if (code == LAM_OK) code = lam_writer_write(w, buffer, o->tensors[i].bytes, err);
        if (code == LAM_OK) code = pad(w, o->alignment, err);
    }
    lam_free_aligned(buffer);
    return code;
}

lam_code lam_gguf_out_write(struct lam_gguf_out *o, const char *path, lam_gguf_fill_fn fill, void *context,
                            lam_error *err)
{
    struct lam_str header = {0};
    struct lam_writer *w = NULL;
    lam_code code = check_names(o, err);
    if (code == LAM_OK) code = make_header(o, &header, err);
    if (code == LAM_OK) code = lam_writer_open(path, &w, err);
    if (code == LAM_OK) {
        code = lam_writer_write(w, header.data, header.len, err);
        if (code == LAM_OK) code = pad(w, o->alignment, err);
        if (code == LAM_OK) code = write_tensors(o, w, fill, context, err);
        if (code == LAM_OK) code = lam_writer_commit(w, err);
        else lam_writer_abort(w);
    }
    lam_str_release(&header);
    return code;
}
