/* Makes sources for import tests out of golden ones: GGUF and safetensors files with one thing changed. */
#ifndef LAM_TESTS_SOURCE_EDIT_H
#define LAM_TESTS_SOURCE_EDIT_H

#include "base/alloc.h"
#include "base/cursor.h"
#include "base/files.h"
#include "base/json.h"
#include "base/os.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What to change; NULL or 0 leaves it. Tensors are named as in the source. */
struct source_edit {
    const char *drop;                    /* this tensor is left out */
    const char *rename, *rename_to;
    const char *copy, *copy_to;          /* and once more under this name */
    const char *reshape;                 /* gets shape[2], with the bytes that it needs from the start of its own */
    uint64_t shape[2];                   /* GGUF's order */
    const char *retype;                  /* gets dtype; its bytes are zero then */
    enum lam_dtype dtype;
    const char *poison;                  /* these bytes are put at poison_at of its data */
    size_t poison_at, poison_len;
    uint8_t poison_bytes[4];
    const char *drop_key;                /* GGUF only, from here */
    const char *set_key;                 /* a u32 */
    uint32_t set_value;
    const char *set_text_key, *set_text; /* a string */
    unsigned part, n_parts;              /* writes part 1 … n_parts of a split model */
};

struct edited_tensor {
    char name[128];
    enum lam_dtype dtype;
    uint8_t n_dims;
    uint64_t dims[4]; /* GGUF's order */
    const uint8_t *data; /* NULL: zeros */
    size_t bytes;
};

struct edited_source {
    const struct source_edit *edit;
    struct edited_tensor *tensors;
    size_t n;
};

static inline bool same_name(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

static inline void edited_add(struct edited_source *s, struct edited_tensor t)
{
    const struct source_edit *e = s->edit;
    size_t row = 0;
    if (same_name(e->drop, t.name)) return;
    if (same_name(e->copy, t.name)) {
        assert_true(lam_dtype_row_bytes(t.dtype, t.dims[0], &row));
        s->tensors[s->n] = t;
        s->tensors[s->n].bytes = row * (size_t)(t.dims[1] * t.dims[2] * t.dims[3]);
        snprintf(s->tensors[s->n++].name, sizeof t.name, "%s", e->copy_to);
    }
    if (same_name(e->reshape, t.name)) t.dims[0] = e->shape[0], t.dims[1] = e->shape[1];
    if (same_name(e->retype, t.name)) t.dtype = e->dtype, t.data = NULL;
    if (same_name(e->rename, t.name)) snprintf(t.name, sizeof t.name, "%s", e->rename_to);
    assert_true(lam_dtype_row_bytes(t.dtype, t.dims[0], &row));
    t.bytes = row * (size_t)(t.dims[1] * t.dims[2] * t.dims[3]);
    s->tensors[s->n++] = t;
}

static inline void edited_bytes(const struct edited_source *s, const struct edited_tensor *t, uint8_t *out)
{
    if (t->data) memcpy(out, t->data, t->bytes);
    else memset(out, 0, t->bytes);
    if (same_name(s->edit->poison, t->name)) memcpy(out + s->edit->poison_at, s->edit->poison_bytes, s->edit->poison_len);
}

/* ---- GGUF ---- */

struct gguf_slice {
    const struct edited_source *source;
    size_t first;
};

static inline lam_code edited_fill(void *context, size_t index, uint8_t *buffer, size_t bytes, lam_error *err)
{
    const struct gguf_slice *slice = context;
    (void)bytes, (void)err;
    edited_bytes(slice->source, &slice->source->tensors[slice->first + index], buffer);
    return LAM_OK;
}

static inline void edited_keys(struct lam_gguf_out *o, const struct lam_gguf *g, const struct source_edit *e)
{
    lam_error err;
    for (size_t i = 0; i < g->n_kvs && e->part <= 1; i++) {
        const struct lam_gguf_kv *kv = &g->kvs[i];
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)kv->key_len, kv->key);
        if (same_name(e->drop_key, key) || same_name(e->set_key, key) || same_name(e->set_text_key, key)) continue;
        assert_ok(lam_gguf_out_kv(o, kv->key, kv->key_len, kv->type, kv->item_type, kv->count, kv->value, kv->value_bytes, &err), err);
    }
    if (e->set_key) assert_ok(lam_gguf_out_u32(o, e->set_key, e->set_value, &err), err);
    if (e->set_text_key) assert_ok(lam_gguf_out_string(o, e->set_text_key, e->set_text, strlen(e->set_text), &err), err);
    if (e->n_parts) {
        assert_ok(lam_gguf_out_u32(o, "split.no", e->part - 1, &err), err);
        assert_ok(lam_gguf_out_u32(o, "split.count", e->n_parts, &err), err);
        assert_ok(lam_gguf_out_u32(o, "split.tensors.count", (uint32_t)g->n_tensors, &err), err);
    }
}

/* from, changed as edit says, to path. extra (may be NULL) adds keys. */
static inline void edit_gguf(const char *from, const char *path, const struct source_edit *edit, void (*extra)(struct lam_gguf_out *))
{
    lam_error err;
    struct lam_gguf *g;
    struct lam_gguf_out *o;
    assert_ok(lam_gguf_open(from, &g, &err), err);
    struct edited_source s = {.edit = edit, .tensors = calloc(g->n_tensors + 1, sizeof *s.tensors)};
    assert_non_null(s.tensors);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct lam_gguf_tensor *t = &g->tensors[i];
        struct edited_tensor e = {.dtype = t->dtype, .n_dims = t->n_dims, .data = t->data};
        memcpy(e.dims, t->dims, sizeof e.dims);
        snprintf(e.name, sizeof e.name, "%s", t->name);
        edited_add(&s, e);
    }
    assert_ok(lam_gguf_out_new(&o, &err), err);
    edited_keys(o, g, edit);
    if (extra) extra(o);
    size_t n_parts = edit->n_parts ? edit->n_parts : 1, part = edit->part ? edit->part - 1 : 0;
    struct gguf_slice slice = {&s, s.n * part / n_parts};
    for (size_t i = slice.first; i < s.n * (part + 1) / n_parts; i++)
        assert_ok(lam_gguf_out_tensor(o, s.tensors[i].name, s.tensors[i].dtype, s.tensors[i].n_dims, s.tensors[i].dims, &err), err);
    assert_ok(lam_gguf_out_write(o, path, edited_fill, &slice, &err), err);
    lam_gguf_out_free(o);
    free(s.tensors);
    lam_gguf_close(g);
}

/* ---- Hugging Face folders ---- */

static inline char *path_in(const char *folder, const char *name)
{
    char *path = malloc(strlen(folder) + strlen(name) + 2);
    assert_non_null(path);
    sprintf(path, "%s/%s", folder, name);
    return path;
}

static inline void write_file(const char *path, const void *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    if (!f) fail_msg("%s: cannot be written", path);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline void copy_file(const char *from, const char *to)
{
    size_t len;
    uint8_t *bytes = test_read_file(from, &len);
    write_file(to, bytes, len);
    free(bytes);
}

static inline void write_safetensors(const char *path, const struct edited_source *s)
{
    static const char *const types[] = {[LAM_F32] = "F32", [LAM_F16] = "F16", [LAM_BF16] = "BF16"};
    json_t *header = json_object();
    size_t total = 0, len;
    for (size_t i = 0; i < s->n; i++) {
        const struct edited_tensor *t = &s->tensors[i];
        json_t *shape = json_array();
        for (int d = t->n_dims - 1; d >= 0; d--) json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_t *info = json_pack("{s:s,s:o,s:[I,I]}", "dtype", types[t->dtype], "shape", shape, "data_offsets", (json_int_t)total,
                                 (json_int_t)(total + t->bytes));
        assert_int_equal(json_object_set_new(header, t->name, info), 0);
        total += t->bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    len = strlen(text);
    uint8_t *bytes = calloc(1, 8 + len + total), *at = bytes + 8 + len;
    assert_non_null(bytes);
    lam_store_u64(bytes, len);
    memcpy(bytes + 8, text, len);
    for (size_t i = 0; i < s->n; at += s->tensors[i++].bytes) edited_bytes(s, &s->tensors[i], at);
    write_file(path, bytes, 8 + len + total);
    free(bytes);
    free(text);
    json_decref(header);
}

/* All tensors of from (a .safetensors or an index), changed, into one file at path. */
static inline void edit_safetensors(const char *from, const char *path, const struct source_edit *edit)
{
    lam_error err;
    struct lam_safetensors *st;
    assert_ok(lam_st_open(from, &st, &err), err);
    struct edited_source s = {.edit = edit, .tensors = calloc(st->n_tensors + 1, sizeof *s.tensors)};
    assert_non_null(s.tensors);
    for (size_t i = 0; i < st->n_tensors; i++) {
        const struct lam_st_tensor *t = &st->tensors[i];
        struct edited_tensor e = {.dtype = t->dtype, .n_dims = t->n_dims, .dims = {1, 1, 1, 1}, .data = t->data};
        for (unsigned d = 0; d < t->n_dims; d++) e.dims[d] = t->dims[t->n_dims - 1 - d];
        snprintf(e.name, sizeof e.name, "%s", t->name);
        edited_add(&s, e);
    }
    write_safetensors(path, &s);
    free(s.tensors);
    lam_st_close(st);
}

/* A copy of a golden folder's small files in `to`; the weights changed. without: a file that is not copied, or NULL. */
static inline void edit_folder(const char *from, const char *to, const struct source_edit *edit, const char *without)
{
    char **names;
    size_t n;
    lam_error err;
    assert_ok(lam_list_dir(from, &names, &n, &err), err);
    bool sharded = false;
    for (size_t i = 0; i < n; i++) sharded |= strcmp(names[i], "model.safetensors.index.json") == 0;
    for (size_t i = 0; i < n; i++) {
        const char *end = strrchr(names[i], '.');
        if (!end || (strcmp(end, ".json") && strcmp(end, ".model") && strcmp(end, ".jinja")) || same_name(without, names[i]) ||
            strcmp(names[i], "model.safetensors.index.json") == 0)
            continue;
        char *a = path_in(from, names[i]), *b = path_in(to, names[i]);
        copy_file(a, b);
        free(a);
        free(b);
    }
    char *a = path_in(from, sharded ? "model.safetensors.index.json" : "model.safetensors"), *b = path_in(to, "model.safetensors");
    edit_safetensors(a, b, edit);
    free(a);
    free(b);
    lam_free_names(names, n);
}

/* config.json in folder with key set to value (a reference is taken over). */
static inline void set_config(const char *folder, const char *file, const char *key, json_t *value)
{
    char *path = path_in(folder, file);
    json_t *config = json_load_file(path, 0, NULL);
    if (!config) config = json_object();
    assert_int_equal(json_object_set_new(config, key, value), 0);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    free(path);
}

static inline size_t count_files(const char *folder)
{
    char **names;
    size_t n;
    lam_error err;
    assert_ok(lam_list_dir(folder, &names, &n, &err), err);
    lam_free_names(names, n);
    return n;
}

static inline void assert_same_files(const char *a, const char *b)
{
    size_t n, m;
    uint8_t *x = test_read_file(a, &n), *y = test_read_file(b, &m);
    if (n != m || memcmp(x, y, n) != 0) {
        size_t at = 0;
        while (at < n && at < m && x[at] == y[at]) at++;
        fail_msg("%s (%zu bytes) and %s (%zu bytes) differ from byte %zu on", a, n, b, m, at);
    }
    free(x);
    free(y);
}

#endif
