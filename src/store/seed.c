#include "store/seed.h"
#include "base/alloc.h"
#include "base/durable.h"
#include "base/os.h"
#include "compose/manifest.h"
#include "lamina/pull.h"
#include "store/index.h"

#include <string.h>

#define SEED_TYPE "lamina.seed.v0"
#define SEED_FILE "seed.json"
#define MOST_MODELS 1000
#define CHECK_MEMBERS(object, part, names, err) lam_check_members(object, "seed", part, names, sizeof(names) / sizeof *(names), err)

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "seed: out of memory"); }

/* ---- reading ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

static lam_code check_file(const json_t *file, const char *model, lam_error *err)
{
    static const char *const names[] = {"path", "digest", "size", "?file_root"};
    LAM_TRY(CHECK_MEMBERS(file, "a file", names, err));
    const char *path = text_of(file, "path"), *digest = text_of(file, "digest"), *root = text_of(file, "file_root");
    const json_t *size = json_object_get(file, "size");
    if (!digest || !lam_is_digest(digest) || (json_object_get(file, "file_root") && (!root || !lam_is_digest(root))))
        return LAM_RAISE(err, LAM_E_FORMAT, "seed: %.100s: a file's digest or file_root is none", model);
    if (!path || strncmp(path, LAM_STORE_BLOBS "/", strlen(LAM_STORE_BLOBS) + 1) != 0 ||
        strcmp(path + strlen(LAM_STORE_BLOBS) + 1, digest + 7) != 0)
        return LAM_RAISE(err, LAM_E_FORMAT, "seed: %.100s: the path of %s is not that of its digest", model, digest);
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return LAM_RAISE(err, LAM_E_FORMAT, "seed: %.100s: %s has no size", model, digest);
    return LAM_OK;
}

static lam_code check_model(const char *name, const json_t *model, lam_error *err)
{
    static const char *const names[] = {"kind", "id", "manifest", "files"};
    const json_t *files = json_object_get(model, "files"), *file;
    size_t i;
    LAM_TRY(lam_name_check(name, err));
    LAM_TRY(CHECK_MEMBERS(model, name, names, err));
    if (!text_of(model, "kind") || !text_of(model, "id") || !lam_is_digest(text_of(model, "id")))
        return LAM_RAISE(err, LAM_E_FORMAT, "seed: %.100s: kind or id is none", name);
    LAM_TRY(check_file(json_object_get(model, "manifest"), name, err));
    if (!json_is_array(files) || json_array_size(files) > LAM_ARTIFACT_MAX_LAYERS + 1)
        return LAM_RAISE(err, LAM_E_FORMAT, "seed: %.100s: files is no list", name);
    json_array_foreach(files, i, file) LAM_TRY(check_file(file, name, err));
    return LAM_OK;
}

static lam_code check_statement(struct lam_seed *s, lam_error *err)
{
    static const char *const names[] = {"type", "default", "models"};
    const json_t *statement = json_object_get(s->root, "statement");
    const char *name;
    json_t *model;
    LAM_TRY(CHECK_MEMBERS(statement, "the statement", names, err));
    const char *type = text_of(statement, "type");
    if (!type || strncmp(type, "lamina.seed.", 12) != 0) return LAM_RAISE(err, LAM_E_FORMAT, "seed: the type must be " SEED_TYPE);
    if (strcmp(type, SEED_TYPE) != 0) return LAM_RAISE(err, LAM_E_VERSION, "seed: type %.100s; this reads " SEED_TYPE, type);
    s->models = json_object_get(statement, "models");
    s->first = text_of(statement, "default");
    if (!json_is_object(s->models) || json_object_size(s->models) > MOST_MODELS)
        return LAM_RAISE(err, LAM_E_FORMAT, "seed: models must be an object of at most %d", MOST_MODELS);
    json_object_foreach((json_t *)s->models, name, model) LAM_TRY(check_model(name, model, err));
    if (!s->first || !json_object_get(s->models, s->first))
        return LAM_RAISE(err, LAM_E_FORMAT, "seed: the default is none of the models");
    return LAM_OK;
}

lam_code lam_seed_parse(const char *text, size_t len, const lam_trust *trust, struct lam_seed *out, lam_error *err)
{
    *out = (struct lam_seed){0};
    LAM_TRY(lam_json_parse(text, len, "seed", &out->root, err));
    lam_code code = lam_sealed_check(out->root, "seed", trust, &out->seal, err);
    if (code == LAM_OK) code = check_statement(out, err);
    if (code != LAM_OK) lam_seed_release(out);
    return code;
}

void lam_seed_release(struct lam_seed *s)
{
    json_decref(s->root);
    *s = (struct lam_seed){0};
}

lam_code lam_seed_find(const struct lam_seed *s, const char *name, const char **digest, uint64_t *size, lam_error *err)
{
    const json_t *file = json_object_get(json_object_get(s->models, name), "manifest");
    struct lam_str all = {0};
    const char *other;
    json_t *model;
    if (file) {
        *digest = text_of(file, "digest");
        *size = (uint64_t)json_integer_value(json_object_get(file, "size"));
        return LAM_OK;
    }
    json_object_foreach((json_t *)s->models, other, model) lam_str_printf(&all, "%s%s", all.len ? ", " : "", other);
    lam_code code = LAM_RAISE(err, LAM_E_NOT_FOUND, "the seed has no %.100s; it has %.300s", name, all.data ? all.data : "nothing");
    lam_str_release(&all);
    return code;
}

/* ---- making ---- */

struct making {
    struct lam_store *store;
    const char *to;         /* a folder, or NULL */
    json_t *models;         /* owned */
};

static json_t *file_json(const struct lam_descriptor *d)
{
    json_t *file = json_pack("{s:s+,s:s,s:I}", "path", LAM_STORE_BLOBS "/", d->digest + 7, "digest", d->digest, "size",
                             (json_int_t)d->size);
    return lam_json_whole(file, file && d->file_root ? json_object_set_new(file, "file_root", json_string(d->file_root)) : !file);
}

/* The blob in the seed's own folder. */
static lam_code put_blob(const struct making *m, const struct lam_descriptor *d, lam_error *err)
{
    struct lam_str to = {0};
    char *from;
    if (!m->to) return lam_blob_check(m->store, d->digest, d->size, err);
    LAM_TRY(lam_blob_check(m->store, d->digest, d->size, err));
    LAM_TRY(lam_blob_path(m->store, d->digest, &from, err));
    lam_code code = lam_str_printf(&to, "%s/" LAM_STORE_BLOBS "/%s", m->to, d->digest + 7) ? LAM_OK : no_memory(err);
    if (code == LAM_OK && !lam_path_exists(to.data)) code = lam_link_or_copy(from, to.data, err);
    lam_str_release(&to);
    lam_free(from);
    return code;
}

static lam_code add_files(const struct making *m, const struct lam_artifact *a, json_t *files, lam_error *err)
{
    for (size_t i = 0; i <= a->n_layers; i++) {
        const struct lam_descriptor *d = i ? &a->layers[i - 1] : &a->config;
        LAM_TRY(put_blob(m, d, err));
        if (json_array_append_new(files, file_json(d)) != 0) return no_memory(err);
    }
    return LAM_OK;
}

static lam_code add_model(const struct making *m, const char *name, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    struct lam_artifact a;
    LAM_TRY(lam_name_check(name, err)); /* who pulls refuses it */
    LAM_TRY(lam_store_resolve(m->store, name, digest, err));
    LAM_TRY(lam_artifact_open(m->store, digest, UINT64_MAX, &a, err));
    struct lam_descriptor manifest = {.media_type = LAM_TYPE_MANIFEST, .digest = a.digest, .size = a.size};
    json_t *files = json_array();
    lam_code code = a.kind == LAM_STORE_FOREIGN ? LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%.100s is nothing that Lamina runs",
                                                            name) : LAM_OK;
    if (code == LAM_OK) code = put_blob(m, &manifest, err);
    if (code == LAM_OK) code = files ? add_files(m, &a, files, err) : no_memory(err);
    if (code == LAM_OK) {
        json_t *model = json_pack("{s:s,s:s,s:o,s:O}", "kind", lam_store_kind_name(a.kind), "id", a.id, "manifest",
                                  file_json(&manifest), "files", files);
        if (!model || json_object_set_new(m->models, name, model) != 0) code = no_memory(err);
    }
    json_decref(files);
    lam_artifact_release(&a);
    return code;
}

/* Everything that has a name. *first: the first of them. */
static lam_code add_all(const struct making *m, struct lam_str *first, lam_error *err)
{
    struct lam_index index;
    LAM_TRY(lam_index_read(m->store, &index, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < index.n; i++) {
        if (!index.entries[i].name) continue;
        if (!first->len && !lam_str_puts(first, index.entries[i].name)) code = no_memory(err);
        if (code == LAM_OK) code = add_model(m, index.entries[i].name, err);
    }
    lam_index_release(&index);
    return code;
}

static lam_code write_text(const char *folder, const char *name, const char *text, size_t len, lam_error *err)
{
    struct lam_writer *w;
    char *path = lam_path_join(folder, name);
    lam_code code = path ? lam_writer_open(path, &w, err) : no_memory(err);
    if (code == LAM_OK) {
        code = lam_writer_write(w, text, len, err);
        if (code == LAM_OK) code = lam_writer_commit(w, err);
        else lam_writer_abort(w);
    }
    lam_free(path);
    return code;
}

/* What makes the folder an OCI layout, too: any tool of that kind can read it. */
static lam_code write_layout(const struct making *m, lam_error *err)
{
    static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}\n";
    struct lam_str text = {0};
    const char *name;
    json_t *model, *list = json_array();
    int failed = !list;
    json_object_foreach(m->models, name, model) {
        const json_t *manifest = json_object_get(model, "manifest");
        failed |= json_array_append_new(list, json_pack("{s:s,s:O,s:O,s:{s:s}}", "mediaType", LAM_TYPE_MANIFEST, "digest",
                                                        json_object_get(manifest, "digest"),
                                                        "size", json_object_get(manifest, "size"), "annotations", LAM_NOTE_NAME, name));
    }
    json_t *index = json_pack("{s:i,s:s,s:o}", "schemaVersion", 2, "mediaType", LAM_TYPE_INDEX, "manifests", list);
    lam_code code = index && !failed ? lam_json_canonical(index, &text, err) : no_memory(err);
    if (code == LAM_OK) code = write_text(m->to, LAM_STORE_INDEX, text.data, text.len, err);
    if (code == LAM_OK) code = write_text(m->to, LAM_STORE_LAYOUT, layout, sizeof layout - 1, err);
    json_decref(index);
    lam_str_release(&text);
    return code;
}

/* The index comes last: what it names is there by then. */
static lam_code finish(const struct making *m, const char *first, const char *key, struct lam_str *text, lam_error *err)
{
    json_t *statement = json_pack("{s:s,s:s,s:O}", "type", SEED_TYPE, "default", first, "models", m->models);
    lam_code code = statement ? LAM_OK : no_memory(err);
    if (code == LAM_OK && !json_object_get(m->models, first))
        code = LAM_RAISE(err, LAM_E_NOT_FOUND, "the default, %.100s, is not among the seed's models", first);
    if (code == LAM_OK) code = lam_sealed_make(statement, "seed", key, text, err);
    if (code == LAM_OK && m->to) code = write_layout(m, err);
    if (code == LAM_OK && m->to) code = write_text(m->to, SEED_FILE, text->data, text->len, err);
    json_decref(statement);
    return code;
}

static lam_code make_folder(const char *to, lam_error *err)
{
    char *blobs = lam_path_join(to, LAM_STORE_BLOBS);
    lam_code code = blobs ? lam_make_dirs(blobs, err) : no_memory(err);
    lam_free(blobs);
    return code;
}

lam_code lam_seed_make(lam_store *store, const char *const names[], size_t n, const char *first, const char *key, const char *to,
                       char **json,
                       lam_error *err)
{
    struct making m = {.store = store, .to = to, .models = json_object()};
    struct lam_str text = {0}, own_first = {0};
    *json = NULL;
    lam_code code = m.models ? LAM_OK : no_memory(err);
    if (code == LAM_OK && to) code = make_folder(to, err);
    for (size_t i = 0; code == LAM_OK && i < n; i++) code = add_model(&m, names[i], err);
    if (code == LAM_OK && n == 0) code = add_all(&m, &own_first, err);
    if (!first) first = n ? names[0] : own_first.data;
    if (code == LAM_OK && !first) code = LAM_RAISE(err, LAM_E_NOT_FOUND, "%s holds nothing that has a name", store->folder);
    if (code == LAM_OK) code = finish(&m, first, key, &text, err);
    if (code == LAM_OK) *json = text.data;
    else lam_str_release(&text);
    lam_str_release(&own_first);
    json_decref(m.models);
    return code;
}
