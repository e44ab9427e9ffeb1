#include "store/artifact.h"
#include "base/alloc.h"
#include "compose/manifest.h"

#include <string.h>

static const struct {
    lam_store_kind kind;
    const char *type, *id; /* artifactType, and the annotation with what it means */
} kinds[] = {{LAM_STORE_BASE, LAM_TYPE_BASE, LAM_NOTE_BASE}, {LAM_STORE_ADAPTER, LAM_TYPE_ADAPTER, LAM_NOTE_ADAPTER},
             {LAM_STORE_COMPOSITION, LAM_TYPE_COMPOSITION, LAM_NOTE_COMPOSITION}};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static const char *text_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

lam_code lam_descriptor_read(const json_t *value, const char *what, struct lam_descriptor *out, lam_error *err)
{
    const json_t *size = json_object_get(value, "size"), *notes = json_object_get(value, "annotations");
    const char *base = text_of(notes, LAM_NOTE_BASE), *adapter = text_of(notes, LAM_NOTE_ADAPTER);
    *out = (struct lam_descriptor){.media_type = text_of(value, "mediaType"), .digest = text_of(value, "digest"),
                                   .title = text_of(notes, LAM_NOTE_TITLE), .file_root = text_of(notes, LAM_NOTE_FILE_ROOT),
                                   .meaning = base ? base : adapter};
    if (!json_is_object(value)) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%s: no descriptor", what);
    if (!out->media_type) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%s: no mediaType", what);
    if (!out->digest || !lam_is_digest(out->digest))
        return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%s: its digest is %.80s, \"sha256:\" and 64 digits are needed", what, out->digest ? out->digest : "missing");
    if (!json_is_integer(size) || json_integer_value(size) < 0) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%s: no size in bytes", what);
    out->size = (uint64_t)json_integer_value(size);
    return LAM_OK;
}

/* A layer of a .slm says what it means and which root it must have: both are what a download is checked against. */
static lam_code check_layer(const struct lam_descriptor *l, const char *digest, lam_error *err)
{
    bool slm = strcmp(l->media_type, LAM_TYPE_BASE_SLM) == 0 || strcmp(l->media_type, LAM_TYPE_ADAPTER_SLM) == 0;
    if (!slm || (l->file_root && lam_is_digest(l->file_root) && l->meaning && lam_is_digest(l->meaning))) return LAM_OK;
    return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s: its layer %s lacks " LAM_NOTE_FILE_ROOT " or what it means", digest, l->digest);
}

static lam_code read_layers(struct lam_artifact *a, lam_error *err)
{
    const json_t *layers = json_object_get(a->root, "layers");
    size_t n = json_array_size(layers);
    if (!json_is_array(layers)) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s: no layers", a->digest);
    if (n > LAM_ARTIFACT_MAX_LAYERS)
        return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s: %zu layers, %d at most", a->digest, n, LAM_ARTIFACT_MAX_LAYERS);
    a->layers = lam_alloc(n, sizeof *a->layers);
    if (!a->layers) return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    for (a->n_layers = 0; a->n_layers < n; a->n_layers++) {
        LAM_TRY(lam_descriptor_read(json_array_get(layers, a->n_layers), a->digest, &a->layers[a->n_layers], err));
        if (a->kind != LAM_STORE_FOREIGN) LAM_TRY(check_layer(&a->layers[a->n_layers], a->digest, err));
    }
    return LAM_OK;
}

static size_t count_layers(const struct lam_artifact *a, const char *media_type)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_layers; i++) n += strcmp(a->layers[i].media_type, media_type) == 0;
    return n;
}

/* Of each kind the layers that it must have. */
static lam_code check_kind(const struct lam_artifact *a, lam_error *err)
{
    size_t bases = count_layers(a, LAM_TYPE_BASE_SLM), adapters = count_layers(a, LAM_TYPE_ADAPTER_SLM);
    if (a->kind == LAM_STORE_FOREIGN) return LAM_OK;
    if (!a->id || !lam_is_digest(a->id)) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s does not say what it means", a->digest);
    bool well = a->kind == LAM_STORE_BASE ? bases == 1 && adapters == 0 : a->kind == LAM_STORE_ADAPTER ? bases == 0 && adapters == 1
              : bases == 1 && adapters <= LAM_MANIFEST_MAX_ADAPTERS && strcmp(a->config.media_type, LAM_TYPE_CONFIG) == 0;
    if (well) return LAM_OK;
    return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s: %zu bases and %zu adapters are no %s", a->digest, bases, adapters,
                     lam_store_kind_name(a->kind));
}

static lam_code read_manifest(struct lam_artifact *a, lam_error *err)
{
    const char *media = text_of(a->root, "mediaType"), *type = text_of(a->root, "artifactType");
    if (!json_is_object(a->root) || json_integer_value(json_object_get(a->root, "schemaVersion")) != 2 ||
        (media && strcmp(media, LAM_TYPE_MANIFEST) != 0))
        return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%s is no OCI manifest", a->digest);
    LAM_TRY(lam_descriptor_read(json_object_get(a->root, "config"), a->digest, &a->config, err));
    for (size_t i = 0; type && i < N_KINDS; i++) {
        if (strcmp(type, kinds[i].type) != 0) continue;
        a->kind = kinds[i].kind;
        a->id = text_of(json_object_get(a->root, "annotations"), kinds[i].id);
    }
    LAM_TRY(read_layers(a, err));
    return check_kind(a, err);
}

lam_code lam_artifact_parse(const char *text, size_t len, const char *digest, struct lam_artifact *out, lam_error *err)
{
    *out = (struct lam_artifact){.kind = LAM_STORE_FOREIGN, .size = len};
    memcpy(out->digest, digest, LAM_DIGEST_TEXT);
    lam_code code = lam_json_parse(text, len, digest, &out->root, err);
    if (code == LAM_E_FORMAT || code == LAM_E_DUPLICATE) code = LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%s is no JSON, hence no manifest", digest);
    if (code == LAM_OK) code = read_manifest(out, err);
    if (code != LAM_OK) lam_artifact_release(out);
    return code;
}

lam_code lam_artifact_open(const struct lam_store *s, const char *digest, uint64_t size, struct lam_artifact *out, lam_error *err)
{
    struct lam_str text = {0};
    *out = (struct lam_artifact){.kind = LAM_STORE_FOREIGN};
    lam_code code = lam_blob_read(s, digest, size, &text, err);
    if (code == LAM_E_STORE_BLOB_MISSING) code = LAM_RAISE(err, LAM_E_STORE_DANGLING, "manifest %s is not there", digest);
    if (code == LAM_OK) code = lam_artifact_parse(text.data, text.len, digest, out, err);
    lam_str_release(&text);
    return code;
}

void lam_artifact_release(struct lam_artifact *a)
{
    json_decref(a->root);
    lam_free(a->layers);
    *a = (struct lam_artifact){.kind = LAM_STORE_FOREIGN};
}

const struct lam_descriptor *lam_artifact_layer(const struct lam_artifact *a, const char *media_type, const char *meaning)
{
    for (size_t i = 0; i < a->n_layers; i++)
        if (strcmp(a->layers[i].media_type, media_type) == 0 && (!meaning || (a->layers[i].meaning && strcmp(a->layers[i].meaning, meaning) == 0)))
            return &a->layers[i];
    return NULL;
}

/* ---- writing ---- */

static json_t *descriptor_json(const struct lam_descriptor *d)
{
    json_t *notes = json_object(), *out = json_pack("{s:s,s:s,s:I}", "mediaType", d->media_type, "digest", d->digest, "size", (json_int_t)d->size);
    const char *meaning = strcmp(d->media_type, LAM_TYPE_ADAPTER_SLM) == 0 ? LAM_NOTE_ADAPTER : LAM_NOTE_BASE;
    int failed = !notes || !out;
    if (d->title) failed |= json_object_set_new(notes, LAM_NOTE_TITLE, json_string(d->title));
    if (d->file_root) failed |= json_object_set_new(notes, LAM_NOTE_FILE_ROOT, json_string(d->file_root));
    if (d->meaning) failed |= json_object_set_new(notes, meaning, json_string(d->meaning));
    if (json_object_size(notes)) failed |= json_object_set(out, "annotations", notes);
    json_decref(notes);
    return lam_json_whole(out, failed);
}

lam_code lam_artifact_write(lam_store_kind kind, const char *id, const struct lam_descriptor *config, const struct lam_descriptor *layers,
                            size_t n_layers, struct lam_str *text, lam_error *err)
{
    static const struct lam_descriptor empty = {.media_type = LAM_TYPE_EMPTY, .digest = LAM_EMPTY_DIGEST, .size = sizeof LAM_EMPTY_CONFIG - 1};
    size_t k = 0;
    while (k < N_KINDS && kinds[k].kind != kind) k++;
    if (k == N_KINDS) return LAM_RAISE(err, LAM_E_ARGUMENT, "no artefact of kind %d", (int)kind);
    json_t *list = json_array();
    int failed = !list;
    for (size_t i = 0; i < n_layers; i++) failed |= json_array_append_new(list, descriptor_json(&layers[i]));
    json_t *root = json_pack("{s:i,s:s,s:s,s:o,s:o,s:{s:s}}", "schemaVersion", 2, "mediaType", LAM_TYPE_MANIFEST, "artifactType", kinds[k].type,
                             "config", descriptor_json(config ? config : &empty), "layers", list, "annotations", kinds[k].id, id);
    lam_code code = root && !failed ? lam_json_canonical(root, text, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    json_decref(root);
    return code;
}

const char *lam_store_kind_name(lam_store_kind kind)
{
    static const char *const names[] = {[LAM_STORE_BASE] = "base", [LAM_STORE_ADAPTER] = "adapter", [LAM_STORE_COMPOSITION] = "composition",
                                        [LAM_STORE_FOREIGN] = "foreign"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "?";
}
