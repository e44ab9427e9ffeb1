#include "format/safetensors.h"
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/json.h"
#include "base/str.h"
#include "format/json_members.h"
#include "format/name.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX ((uint64_t)100000000) /* bytes; the reference implementation's bound */
#define TENSOR_INFO_MAX 4096             /* bytes of JSON that describe one tensor */
#define NAME_MAX_BYTES 1023

/* One file while it is read; tensors go to the end of the set's array. */
struct reading {
    struct lam_safetensors *set;
    size_t cap;               /* of set->tensors */
    const uint8_t *data;      /* data section */
    size_t data_bytes;
    bool has_metadata;
};

struct key_list {
    char **keys; /* each owned */
    size_t n, cap;
};

static int compare_strings(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static lam_code metadata_member(void *context, const char *name, size_t name_len, const char *value, size_t value_len, lam_error *err)
{
    struct key_list *list = context;
    json_t *text;
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap + list->cap / 2 : 8;
        char **grown = lam_realloc(list->keys, cap, sizeof *grown);
        if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "safetensors: %zu keys", cap);
        list->keys = grown;
        list->cap = cap;
    }
    if (!(list->keys[list->n] = lam_strndup(name, name_len))) return LAM_RAISE(err, LAM_E_NO_MEMORY, "safetensors: keys");
    list->n++;
    LAM_TRY(lam_json_parse(value, value_len, "safetensors __metadata__", &text, err));
    bool ok = json_is_string(text);
    json_decref(text);
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_FORMAT, "safetensors: __metadata__ %.*s is not a string",
                                   (int)(name_len < 128 ? name_len : 128), name);
}

/* What __metadata__ says is not used; that it is well-formed is checked. */
static lam_code check_metadata(const char *text, size_t len, lam_error *err)
{
    struct key_list list = {0};
    lam_code code = lam_json_each_member(text, len, "safetensors __metadata__", metadata_member, &list, err);
    if (code == LAM_OK && list.n) qsort(list.keys, list.n, sizeof *list.keys, compare_strings);
    for (size_t i = 1; code == LAM_OK && i < list.n; i++)
        if (strcmp(list.keys[i - 1], list.keys[i]) == 0)
            code = LAM_RAISE(err, LAM_E_DUPLICATE, "safetensors: __metadata__ %.128s occurs twice", list.keys[i]);
    for (size_t i = 0; i < list.n; i++) lam_free(list.keys[i]);
    lam_free(list.keys);
    return code;
}

static lam_code read_shape(const json_t *shape, struct lam_st_tensor *t, lam_error *err)
{
    size_t n = json_array_size(shape);
    if (!json_is_array(shape)) return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.128s: shape is not an array", t->name);
    if (n > 4) return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.128s: %zu dimensions, up to 4 are supported", t->name, n);
    t->n_dims = (uint8_t)n;
    for (size_t i = 0; i < 4; i++) {
        const json_t *dim = json_array_get(shape, i);
        t->dims[i] = 1;
        if (i >= n) continue;
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.128s: dimension %zu is not a size", t->name, i);
        t->dims[i] = (uint64_t)json_integer_value(dim);
    }
    return LAM_OK;
}

static lam_code read_dtype(const json_t *dtype, struct lam_st_tensor *t, lam_error *err)
{
    if (!json_is_string(dtype)) return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.128s: dtype is not a string", t->name);
    const struct lam_dtype_info *info = lam_dtype_by_name(json_string_value(dtype));
    if (!info || !lam_dtype_is_float(info->dtype))
        return LAM_RAISE(err, LAM_E_DTYPE, "tensor %.128s: type %.32s is not supported", t->name, json_string_value(dtype));
    t->dtype = info->dtype;
    return LAM_OK;
}

static lam_code read_offsets(const json_t *offsets, const struct reading *r, struct lam_st_tensor *t, lam_error *err)
{
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.128s: data_offsets are not two integers", t->name);
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin)
        return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.128s: data_offsets %lld to %lld", t->name, (long long)begin, (long long)end);
    if ((uint64_t)end > r->data_bytes)
        return LAM_RAISE(err, LAM_E_TRUNCATED, "tensor %.128s: ends at %lld of %zu data bytes", t->name, (long long)end, r->data_bytes);
    t->data = r->data + begin;
    t->bytes = (size_t)(end - begin);
    return LAM_OK;
}

static lam_code check_size(const struct lam_st_tensor *t, lam_error *err)
{
    uint64_t bytes = lam_dtype_info(t->dtype)->block_bytes;
    bool empty = false, fits = true;
    for (int i = 0; i < 4; i++) empty = empty || t->dims[i] == 0;
    for (int i = 0; i < 4 && !empty && fits; i++) fits = !__builtin_mul_overflow(bytes, t->dims[i], &bytes);
    if (!fits) return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.128s: its size does not fit", t->name);
    if (empty) bytes = 0;
    if (bytes != t->bytes)
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.128s: data_offsets span %zu bytes, its shape needs %" PRIu64, t->name, t->bytes, bytes);
    return LAM_OK;
}

static lam_code read_info(const json_t *info, const struct reading *r, struct lam_st_tensor *t, lam_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(info)) return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.128s: not described by a JSON object", t->name);
    json_object_foreach((json_t *)info, key, value)
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "data_offsets") != 0)
            return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "tensor %.128s: unknown field %.64s", t->name, key);
    LAM_TRY(read_dtype(json_object_get(info, "dtype"), t, err));
    LAM_TRY(read_shape(json_object_get(info, "shape"), t, err));
    LAM_TRY(read_offsets(json_object_get(info, "data_offsets"), r, t, err));
    return check_size(t, err);
}

/* A zeroed tensor with its name, counted in the set so that lam_st_close frees it. */
static lam_code add_tensor(struct reading *r, const char *name, size_t len, struct lam_st_tensor **out, lam_error *err)
{
    struct lam_safetensors *set = r->set;
    if (set->n_tensors == r->cap) {
        size_t cap = r->cap ? r->cap + r->cap / 2 : 32;
        struct lam_st_tensor *grown = lam_realloc(set->tensors, cap, sizeof *grown);
        if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "safetensors: %zu tensors", cap);
        set->tensors = grown;
        r->cap = cap;
    }
    struct lam_st_tensor *t = &set->tensors[set->n_tensors];
    *t = (struct lam_st_tensor){.name = lam_strndup(name, len)};
    if (!t->name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "safetensors: tensor names");
    set->n_tensors++;
    *out = t;
    return LAM_OK;
}

static lam_code header_member(void *context, const char *name, size_t name_len, const char *value, size_t value_len, lam_error *err)
{
    struct reading *r = context;
    struct lam_st_tensor *t = NULL;
    json_t *info;
    if (strcmp(name, "__metadata__") == 0) {
        if (r->has_metadata) return LAM_RAISE(err, LAM_E_DUPLICATE, "safetensors: __metadata__ occurs twice");
        r->has_metadata = true;
        bool null = value_len == 4 && memcmp(value, "null", 4) == 0; /* as MLX writes it */
        return null ? LAM_OK : check_metadata(value, value_len, err);
    }
    if (name_len > NAME_MAX_BYTES || !lam_name_is_clean(name, name_len))
        return LAM_RAISE(err, LAM_E_FORMAT, "safetensors: a tensor name of %zu bytes is empty, too long or has control characters", name_len);
    if (value_len > TENSOR_INFO_MAX)
        return LAM_RAISE(err, LAM_E_LIMIT, "tensor %.128s: described by %zu bytes, %d are allowed", name, value_len, TENSOR_INFO_MAX);
    LAM_TRY(add_tensor(r, name, name_len, &t, err));
    LAM_TRY(lam_json_parse(value, value_len, t->name, &info, err));
    lam_code code = read_info(info, r, t, err);
    json_decref(info);
    return code;
}

static int compare_places(const void *a, const void *b)
{
    const struct lam_st_tensor *l = a, *r = b;
    if (l->data != r->data) return l->data < r->data ? -1 : 1;
    return (l->bytes > r->bytes) - (l->bytes < r->bytes);
}

/* tensors[n] of one file must cover its data section exactly. Reorders them. */
static lam_code check_places(const struct reading *r, struct lam_st_tensor *tensors, size_t n, lam_error *err)
{
    if (n) qsort(tensors, n, sizeof *tensors, compare_places);
    const uint8_t *end = r->data;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].data != end)
            return LAM_RAISE(err, tensors[i].data < end ? LAM_E_OVERLAP : LAM_E_GAP, "tensor %.128s: starts at %zu, the one before ends at %zu",
                             tensors[i].name, (size_t)(tensors[i].data - r->data), (size_t)(end - r->data));
        end += tensors[i].bytes;
    }
    if ((size_t)(end - r->data) != r->data_bytes)
        return LAM_RAISE(err, LAM_E_GAP, "safetensors: tensors end at %zu of %zu data bytes", (size_t)(end - r->data), r->data_bytes);
    return LAM_OK;
}

/* Adds the tensors of one file to the set. */
static lam_code read_file(struct reading *r, const uint8_t *bytes, size_t len, lam_error *err)
{
    if (len < 8) return LAM_RAISE(err, LAM_E_TRUNCATED, "safetensors: %zu bytes", len);
    uint64_t header_bytes = lam_load_u64(bytes);
    if (header_bytes > HEADER_MAX)
        return LAM_RAISE(err, LAM_E_LIMIT, "safetensors: header of %" PRIu64 " bytes, %" PRIu64 " are allowed", header_bytes, HEADER_MAX);
    if (header_bytes > len - 8)
        return LAM_RAISE(err, LAM_E_TRUNCATED, "safetensors: header of %" PRIu64 " bytes in a file of %zu", header_bytes, len);
    if (header_bytes == 0 || bytes[8] != '{') return LAM_RAISE(err, LAM_E_MAGIC, "not a safetensors file");
    r->data = bytes + 8 + header_bytes;
    r->data_bytes = len - 8 - (size_t)header_bytes;
    r->has_metadata = false;
    size_t first = r->set->n_tensors;
    LAM_TRY(lam_json_each_member((const char *)bytes + 8, (size_t)header_bytes, "safetensors header", header_member, r, err));
    return check_places(r, first ? r->set->tensors + first : r->set->tensors, r->set->n_tensors - first, err);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct lam_st_tensor *)a)->name, ((const struct lam_st_tensor *)b)->name);
}

static lam_code sort_tensors(struct lam_safetensors *s, lam_error *err)
{
    if (s->n_tensors) qsort(s->tensors, s->n_tensors, sizeof *s->tensors, compare_names);
    for (size_t i = 1; i < s->n_tensors; i++)
        if (compare_names(&s->tensors[i - 1], &s->tensors[i]) == 0)
            return LAM_RAISE(err, LAM_E_DUPLICATE, "safetensors: tensor %.128s occurs twice", s->tensors[i].name);
    return LAM_OK;
}

/* What the index says: one tensor and the file that holds it; both owned. */
struct placed {
    char *name, *shard;
};

struct weight_map {
    struct placed *items;
    size_t n, cap;
    bool present;
};

static void free_map(struct weight_map *m)
{
    for (size_t i = 0; i < m->n; i++) {
        lam_free(m->items[i].name);
        lam_free(m->items[i].shard);
    }
    lam_free(m->items);
}

/* A shard lies beside its index: its name must not lead elsewhere. */
static bool shard_name_ok(const char *name, size_t len)
{
    return len <= 255 && lam_name_is_clean(name, len) && !strpbrk(name, "/\\") && !strstr(name, "..") && strcmp(name, ".") != 0;
}

static lam_code map_member(void *context, const char *name, size_t name_len, const char *value, size_t value_len, lam_error *err)
{
    struct weight_map *m = context;
    json_t *shard;
    if (name_len > NAME_MAX_BYTES || !lam_name_is_clean(name, name_len))
        return LAM_RAISE(err, LAM_E_FORMAT, "safetensors index: a tensor name is empty, too long or has control characters");
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap + m->cap / 2 : 32;
        struct placed *grown = lam_realloc(m->items, cap, sizeof *grown);
        if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "safetensors index: %zu tensors", cap);
        m->items = grown;
        m->cap = cap;
    }
    if (value_len > TENSOR_INFO_MAX) return LAM_RAISE(err, LAM_E_LIMIT, "tensor %.128s: a file name of %zu bytes", name, value_len);
    LAM_TRY(lam_json_parse(value, value_len, "safetensors index", &shard, err));
    lam_code code = LAM_OK;
    if (!json_is_string(shard) || !shard_name_ok(json_string_value(shard), json_string_length(shard)))
        code = LAM_RAISE(err, LAM_E_FORMAT, "safetensors index: tensor %.128s: its file name is not a plain name", name);
    else {
        struct placed item = {lam_strndup(name, name_len), lam_strdup(json_string_value(shard))};
        m->items[m->n++] = item;
        if (!item.name || !item.shard) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "safetensors index");
    }
    json_decref(shard);
    return code;
}

static lam_code index_member(void *context, const char *name, size_t name_len, const char *value, size_t value_len, lam_error *err)
{
    struct weight_map *m = context;
    (void)name_len;
    if (strcmp(name, "weight_map") != 0) return LAM_OK; /* "metadata" holds totals that the files themselves tell */
    if (m->present) return LAM_RAISE(err, LAM_E_DUPLICATE, "safetensors index: weight_map occurs twice");
    m->present = true;
    return lam_json_each_member(value, value_len, "safetensors weight_map", map_member, m, err);
}

static int compare_placed(const void *a, const void *b) { return strcmp(((const struct placed *)a)->name, ((const struct placed *)b)->name); }

static lam_code read_index(const uint8_t *bytes, size_t len, struct weight_map *m, lam_error *err)
{
    if (len > HEADER_MAX) return LAM_RAISE(err, LAM_E_LIMIT, "safetensors index of %zu bytes", len);
    LAM_TRY(lam_json_each_member((const char *)bytes, len, "safetensors index", index_member, m, err));
    if (!m->present) return LAM_RAISE(err, LAM_E_FORMAT, "safetensors index: no weight_map");
    if (m->n) qsort(m->items, m->n, sizeof *m->items, compare_placed);
    for (size_t i = 1; i < m->n; i++)
        if (strcmp(m->items[i - 1].name, m->items[i].name) == 0)
            return LAM_RAISE(err, LAM_E_DUPLICATE, "safetensors index: tensor %.128s occurs twice", m->items[i].name);
    return LAM_OK;
}

/* The distinct shard names, sorted; the array is owned by the caller, the names by m. */
static lam_code list_shards(const struct weight_map *m, const char ***out, size_t *n_out, lam_error *err)
{
    const char **names = lam_alloc(m->n, sizeof *names);
    size_t n = 0;
    if (!names) return LAM_RAISE(err, LAM_E_NO_MEMORY, "safetensors index");
    for (size_t i = 0; i < m->n; i++) names[i] = m->items[i].shard;
    qsort(names, m->n, sizeof *names, compare_strings);
    for (size_t i = 0; i < m->n; i++)
        if (i == 0 || strcmp(names[i], names[n - 1]) != 0) names[n++] = names[i];
    *out = names;
    *n_out = n;
    return LAM_OK;
}

/* The tensors from `first` on came from shard: the index must say so of each. */
static lam_code check_against_map(const struct lam_safetensors *s, size_t first, const struct weight_map *m, const char *shard, lam_error *err)
{
    for (size_t i = first; i < s->n_tensors; i++) {
        const struct placed key = {.name = (char *)s->tensors[i].name};
        const struct placed *said = m->n ? bsearch(&key, m->items, m->n, sizeof key, compare_placed) : NULL;
        if (!said) return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "%s: tensor %.128s is not in the index", shard, key.name);
        if (strcmp(said->shard, shard) != 0)
            return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "%s: tensor %.128s, which the index puts into %s", shard, key.name, said->shard);
    }
    return LAM_OK;
}

static lam_code open_shard(struct reading *r, const char *index_path, const char *shard, const struct weight_map *m, lam_error *err)
{
    struct lam_safetensors *s = r->set;
    struct lam_str path = {0};
    if (!lam_str_append(&path, index_path, (size_t)(lam_path_base(index_path) - index_path)) || !lam_str_puts(&path, shard)) {
        lam_str_release(&path);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    }
    lam_code code = lam_map_file(path.data, &s->files[s->n_files], err);
    lam_str_release(&path);
    if (code != LAM_OK) return code;
    const struct lam_mapping *file = &s->files[s->n_files++];
    size_t first = s->n_tensors;
    LAM_TRY(read_file(r, file->data, file->size, err));
    return check_against_map(s, first, m, shard, err);
}

static lam_code open_shards(struct lam_safetensors *s, const char *index_path, const struct weight_map *m, lam_error *err)
{
    const char **shards = NULL;
    size_t n = 0;
    struct reading r = {.set = s};
    LAM_TRY(list_shards(m, &shards, &n, err));
    s->files = lam_alloc(n, sizeof *s->files);
    lam_code code = s->files ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "safetensors: %zu files", n);
    for (size_t i = 0; code == LAM_OK && i < n; i++) code = open_shard(&r, index_path, shards[i], m, err);
    lam_free(shards);
    if (code == LAM_OK) code = sort_tensors(s, err);
    for (size_t i = 0; code == LAM_OK && i < m->n; i++)
        if (!lam_st_find(s, m->items[i].name))
            code = LAM_RAISE(err, LAM_E_MISSING_TENSOR, "tensor %.128s is not in %s, where the index puts it", m->items[i].name, m->items[i].shard);
    return code;
}

static lam_code open_index(struct lam_safetensors *s, const char *path, lam_error *err)
{
    struct lam_mapping file;
    struct weight_map map = {0};
    LAM_TRY(lam_map_file(path, &file, err));
    lam_code code = read_index(file.data, file.size, &map, err);
    lam_unmap_file(&file);
    if (code == LAM_OK) code = open_shards(s, path, &map, err);
    free_map(&map);
    return code;
}

static lam_code open_single(struct lam_safetensors *s, const char *path, lam_error *err)
{
    struct reading r = {.set = s};
    s->files = lam_alloc(1, sizeof *s->files);
    if (!s->files) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    LAM_TRY(lam_map_file(path, &s->files[0], err));
    s->n_files = 1;
    LAM_TRY(read_file(&r, s->files[0].data, s->files[0].size, err));
    return sort_tensors(s, err);
}

lam_code lam_st_open(const char *path, struct lam_safetensors **out, lam_error *err)
{
    size_t len = strlen(path);
    struct lam_safetensors *s = lam_alloc(1, sizeof *s);
    if (!s) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    bool is_index = len >= 5 && strcmp(path + len - 5, ".json") == 0;
    lam_code code = is_index ? open_index(s, path, err) : open_single(s, path, err);
    if (code == LAM_OK) *out = s;
    else lam_st_close(s);
    return code;
}

lam_code lam_st_open_memory(const uint8_t *bytes, size_t len, struct lam_safetensors **out, lam_error *err)
{
    struct lam_safetensors *s = lam_alloc(1, sizeof *s);
    if (!s) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    struct reading r = {.set = s};
    lam_code code = read_file(&r, bytes, len, err);
    if (code == LAM_OK) code = sort_tensors(s, err);
    if (code == LAM_OK) *out = s;
    else lam_st_close(s);
    return code;
}

void lam_st_close(struct lam_safetensors *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_tensors; i++) lam_free((char *)s->tensors[i].name);
    for (size_t i = 0; i < s->n_files; i++) lam_unmap_file(&s->files[i]);
    lam_free(s->tensors);
    lam_free(s->files);
    lam_free(s);
}

const struct lam_st_tensor *lam_st_find(const struct lam_safetensors *s, const char *name)
{
    const struct lam_st_tensor key = {.name = name};
    return s->n_tensors ? bsearch(&key, s->tensors, s->n_tensors, sizeof key, compare_names) : NULL;
}
