#include "store/index.h"
#include "base/alloc.h"

#include <string.h>

#define NAME_MAX_BYTES 128

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

static bool is_plain(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/* How many characters of a separator are at `at`; 0 if there is none. */
static size_t separator(const char *at)
{
    if (at[0] == '-' && at[1] == '-') return 2;
    return *at && strchr("-._:@/+", *at) ? 1 : 0;
}

lam_code lam_name_check(const char *name, lam_error *err)
{
    size_t len = strlen(name), at = 0;
    if (len == 0 || len > NAME_MAX_BYTES) return LAM_RAISE(err, LAM_E_STORE_NAME, "\"%.140s\": a name has 1 to %d bytes", name, NAME_MAX_BYTES);
    if (strncmp(name, "sha256:", 7) == 0) return LAM_RAISE(err, LAM_E_STORE_NAME, "\"%s\" is a digest, not a name", name);
    while (at < len) {
        if (!is_plain(name[at]))
            return LAM_RAISE(err, LAM_E_STORE_NAME, "\"%s\": a name is of letters and digits, with one of - . _ : @ / + between them", name);
        while (at < len && is_plain(name[at])) at++;
        size_t n = separator(name + at);
        if (n == 0 && at < len) continue; /* said by the first check */
        at += n;
        if (n && at == len) return LAM_RAISE(err, LAM_E_STORE_NAME, "\"%s\" ends with '%c'; a letter or digit is needed", name, name[at - 1]);
    }
    return LAM_OK;
}

static lam_code read_entries(struct lam_index *index, const char *folder, lam_error *err)
{
    const json_t *list = json_object_get(index->root, "manifests");
    size_t n = json_array_size(list);
    if (json_integer_value(json_object_get(index->root, "schemaVersion")) != 2 || !json_is_array(list))
        return LAM_RAISE(err, LAM_E_STORE_INDEX, "%s/" LAM_STORE_INDEX ": no OCI index of version 2", folder);
    index->entries = lam_alloc(n, sizeof *index->entries);
    if (!index->entries) return no_memory(err);
    for (index->n = 0; index->n < n; index->n++) {
        struct lam_index_entry *e = &index->entries[index->n];
        const json_t *value = json_array_get(list, index->n);
        if (lam_descriptor_read(value, LAM_STORE_INDEX, &e->manifest, err) != LAM_OK) {
            if (err) err->code = LAM_E_STORE_INDEX;
            return LAM_E_STORE_INDEX;
        }
        e->name = json_string_value(json_object_get(json_object_get(value, "annotations"), LAM_NOTE_NAME));
        for (size_t i = 0; e->name && i < index->n; i++)
            if (index->entries[i].name && strcmp(index->entries[i].name, e->name) == 0)
                return LAM_RAISE(err, LAM_E_STORE_INDEX, "%s/" LAM_STORE_INDEX ": the name %.100s occurs twice", folder, e->name);
    }
    return LAM_OK;
}

lam_code lam_index_read(const struct lam_store *s, struct lam_index *out, lam_error *err)
{
    *out = (struct lam_index){0};
    lam_code code = lam_store_read_json(s, LAM_STORE_INDEX, LAM_E_STORE_INDEX, &out->root, err);
    if (code == LAM_E_NOT_FOUND) code = LAM_RAISE(err, LAM_E_STORE_INDEX, "%s/" LAM_STORE_INDEX " is not there", s->folder);
    if (code == LAM_OK) code = read_entries(out, s->folder, err);
    if (code != LAM_OK) lam_index_release(out);
    return code;
}

void lam_index_release(struct lam_index *index)
{
    json_decref(index->root);
    lam_free(index->entries);
    *index = (struct lam_index){0};
}

const struct lam_index_entry *lam_index_find(const struct lam_index *index, const char *name)
{
    for (size_t i = 0; i < index->n; i++)
        if (index->entries[i].name && strcmp(index->entries[i].name, name) == 0) return &index->entries[i];
    return NULL;
}

const char *lam_artifact_type(lam_store_kind kind)
{
    switch (kind) {
    case LAM_STORE_BASE: return LAM_TYPE_BASE;
    case LAM_STORE_ADAPTER: return LAM_TYPE_ADAPTER;
    case LAM_STORE_COMPOSITION: return LAM_TYPE_COMPOSITION;
    case LAM_STORE_FOREIGN: break;
    }
    return NULL;
}

/* index.json with the entry of this name replaced by value, taken over; NULL: taken away. */
static lam_code replace(struct lam_store *s, const char *name, json_t *value, lam_error *err)
{
    struct lam_index index;
    lam_code code = lam_index_read(s, &index, err);
    if (code == LAM_OK) {
        const struct lam_index_entry *e = lam_index_find(&index, name);
        json_t *list = json_object_get(index.root, "manifests");
        size_t at = e ? (size_t)(e - index.entries) : index.n;
        int failed = !value ? json_array_remove(list, at) : e ? json_array_set(list, at, value) : json_array_append(list, value);
        code = failed ? no_memory(err) : lam_store_write_json(s, LAM_STORE_INDEX, index.root, err);
        lam_index_release(&index);
    }
    json_decref(value);
    return code;
}

lam_code lam_index_set(struct lam_store *s, const char *name, const char *kind_type, const char *digest, uint64_t size, lam_error *err)
{
    LAM_TRY(lam_name_check(name, err));
    json_t *value = json_pack("{s:s,s:s,s:I,s:{s:s}}", "mediaType", LAM_TYPE_MANIFEST, "digest", digest, "size", (json_int_t)size, "annotations",
                              LAM_NOTE_NAME, name);
    value = lam_json_whole(value, value && kind_type ? json_object_set_new(value, "artifactType", json_string(kind_type)) : !value);
    return value ? replace(s, name, value, err) : no_memory(err);
}

lam_code lam_index_remove(struct lam_store *s, const char *name, lam_error *err)
{
    struct lam_index index;
    LAM_TRY(lam_index_read(s, &index, err));
    bool there = lam_index_find(&index, name) != NULL;
    lam_index_release(&index);
    return there ? replace(s, name, NULL, err) : LAM_RAISE(err, LAM_E_NOT_FOUND, "no name \"%.140s\" in the store", name);
}
