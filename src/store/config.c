#include "store/config.h"
#include "base/utf8.h"
#include "compose/manifest.h"

#include <string.h>

static lam_code check_no_file(const struct lam_artifact *a, const json_t *item, lam_error *err)
{
    const json_t *file = json_object_get(item, "file");
    if (!file) return LAM_OK;
    return LAM_RAISE(err, LAM_E_STORE_PATH, "composition %s names a file, %.100s; in a store digests alone name things", a->config.digest,
                     json_string_value(file) ? json_string_value(file) : "?");
}

/* item, a base or an adapter, gets the blob of its layer as its file. */
static lam_code set_file(const struct lam_artifact *a, json_t *item, const char *media_type, lam_error *err)
{
    const char *digest = json_string_value(json_object_get(item, "digest"));
    const struct lam_descriptor *layer = digest ? lam_artifact_layer(a, media_type, digest) : NULL;
    if (!layer) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s: no layer is %.80s", a->digest, digest ? digest : "what its composition names");
    json_t *path = json_sprintf(LAM_STORE_BLOBS "/%s", layer->digest + 7);
    return json_object_set_new(item, "file", path) == 0 ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
}

/* ---- contents ---- */

static const struct {
    const char *type, *title;
} contents[LAM_N_CONTENTS] = {
    [LAM_CONTENT_TEMPLATE] = {LAM_TYPE_TEMPLATE, "template.jinja"}, [LAM_CONTENT_PROMPT] = {LAM_TYPE_PROMPT, "prompt.txt"},
    [LAM_CONTENT_SAMPLING] = {LAM_TYPE_SAMPLING, "sampling.json"},
};

const char *lam_content_type(enum lam_content which) { return contents[which].type; }
const char *lam_content_title(enum lam_content which) { return contents[which].title; }

void lam_contents_release(struct lam_contents *c)
{
    for (size_t i = 0; i < LAM_N_CONTENTS; i++) lam_str_release(&c->texts[i]);
}

/* A text as it is; anything else as canonical JSON. */
static lam_code take_out(json_t *object, const char *key, struct lam_str *out, lam_error *err)
{
    json_t *value = json_object_get(object, key);
    lam_code code = LAM_OK;
    if (!value) return LAM_OK;
    if (!json_is_string(value)) code = lam_json_canonical(value, out, err);
    else if (!lam_str_append(out, json_string_value(value), json_string_length(value))) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    json_object_del(object, key);
    return code;
}

lam_code lam_config_split(const char *json, struct lam_str *config, struct lam_contents *c, lam_error *err)
{
    json_t *root = NULL;
    lam_code code = lam_json_parse(json, strlen(json), "manifest", &root, err);
    if (code == LAM_OK) code = take_out(json_object_get(root, "template"), "text", &c->texts[LAM_CONTENT_TEMPLATE], err);
    if (code == LAM_OK) code = take_out(root, "prompt", &c->texts[LAM_CONTENT_PROMPT], err);
    if (code == LAM_OK) code = take_out(root, "sampling", &c->texts[LAM_CONTENT_SAMPLING], err);
    if (code == LAM_OK) code = lam_json_canonical(root, config, err);
    json_decref(root);
    return code;
}

static lam_code refuse(const struct lam_artifact *a, const struct lam_descriptor *layer, const char *why, lam_error *err)
{
    return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s: its layer %s %s", a->digest, layer->digest, why);
}

/* The text of a template is told beside its digest, which the manifest's reader compares. */
static lam_code put_content(const struct lam_store *s, const struct lam_artifact *a, enum lam_content which, const struct lam_descriptor *layer,
                            json_t *root, lam_error *err)
{
    static const char *const keys[LAM_N_CONTENTS] = {[LAM_CONTENT_TEMPLATE] = "text", [LAM_CONTENT_PROMPT] = "prompt", [LAM_CONTENT_SAMPLING] = "sampling"};
    json_t *into = which == LAM_CONTENT_TEMPLATE ? json_object_get(root, "template") : root, *value = NULL;
    struct lam_str text = {0};
    if (!json_is_object(into)) return refuse(a, layer, "is a template that its composition does not name", err);
    lam_code code = lam_blob_read(s, layer->digest, layer->size, &text, err);
    if (code == LAM_OK && which == LAM_CONTENT_SAMPLING) code = lam_json_parse(text.data, text.len, layer->digest, &value, err);
    else if (code == LAM_OK && lam_utf8_valid_prefix((const uint8_t *)text.data, text.len) != text.len) code = refuse(a, layer, "is no UTF-8", err);
    else if (code == LAM_OK) value = json_stringn(text.data, text.len);
    if (code == LAM_OK && json_object_set_new(into, keys[which], value) != 0) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    lam_str_release(&text);
    return code;
}

static lam_code put_contents(const struct lam_store *s, const struct lam_artifact *a, json_t *root, lam_error *err)
{
    for (enum lam_content i = 0; i < LAM_N_CONTENTS; i++) {
        const struct lam_descriptor *layer = lam_artifact_layer(a, contents[i].type, NULL);
        if (layer) LAM_TRY(put_content(s, a, i, layer, root, err));
    }
    return LAM_OK;
}

/* ---- base and adapters ---- */

static lam_code set_files(const struct lam_artifact *a, json_t *root, lam_error *err)
{
    size_t i;
    json_t *item;
    LAM_TRY(check_no_file(a, json_object_get(root, "base"), err));
    LAM_TRY(check_no_file(a, json_object_get(root, "template"), err));
    json_array_foreach(json_object_get(root, "adapters"), i, item) LAM_TRY(check_no_file(a, item, err));
    LAM_TRY(set_file(a, json_object_get(root, "base"), LAM_TYPE_BASE_SLM, err));
    json_array_foreach(json_object_get(root, "adapters"), i, item) LAM_TRY(set_file(a, item, LAM_TYPE_ADAPTER_SLM, err));
    return LAM_OK;
}

lam_code lam_config_open(const struct lam_store *s, const struct lam_artifact *a, lam_manifest **out, lam_error *err)
{
    struct lam_str text = {0};
    json_t *root = NULL;
    lam_fault_list faults = {0};
    *out = NULL;
    lam_code code = lam_blob_read(s, a->config.digest, a->config.size, &text, err);
    if (code == LAM_OK) code = lam_json_parse(text.data, text.len, a->config.digest, &root, err);
    if (code == LAM_OK) code = set_files(a, root, err);
    if (code == LAM_OK) code = put_contents(s, a, root, err);
    lam_str_clear(&text);
    if (code == LAM_OK) code = lam_json_canonical(root, &text, err);
    if (code == LAM_OK) code = lam_manifest_parse(text.data, text.len, s->folder, a->config.digest, out, &faults, err);
    lam_fault_list_release(&faults);
    json_decref(root);
    lam_str_release(&text);
    if (code == LAM_OK && (!(*out)->id || strcmp((*out)->id, a->id) != 0)) {
        lam_manifest_free(*out);
        *out = NULL;
        code = LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s says that it is %s, its composition says otherwise", a->digest, a->id);
    }
    return code;
}
