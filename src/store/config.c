#include "store/config.h"
#include "compose/manifest.h"

#include <string.h>

/* item, a base or an adapter, gets the blob of its layer as its file. */
static lam_code set_file(const struct lam_artifact *a, json_t *item, const char *media_type, lam_error *err)
{
    const char *digest = json_string_value(json_object_get(item, "digest"));
    const json_t *file = json_object_get(item, "file");
    if (file)
        return LAM_RAISE(err, LAM_E_STORE_PATH, "composition %s names a file, %.100s; in a store digests alone name things", a->config.digest,
                         json_string_value(file) ? json_string_value(file) : "?");
    const struct lam_descriptor *layer = digest ? lam_artifact_layer(a, media_type, digest) : NULL;
    if (!layer) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s: no layer is %.80s", a->digest, digest ? digest : "what its composition names");
    json_t *path = json_sprintf(LAM_STORE_BLOBS "/%s", layer->digest + 7);
    return json_object_set_new(item, "file", path) == 0 ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
}

static lam_code set_files(const struct lam_artifact *a, json_t *root, lam_error *err)
{
    size_t i;
    json_t *item;
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
