#include "store/piece.h"
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/os.h"
#include "format/slm.h"
#include "model/identity.h"

#include <string.h>

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

void lam_piece_release(struct lam_piece *p)
{
    lam_staged_release(&p->staged);
    lam_free(p->path);
    lam_free(p->title);
    *p = (struct lam_piece){.kind = LAM_STORE_FOREIGN};
}

static lam_code meaning_of(const struct lam_slm *slm, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    return slm->kind == LAM_SLM_BASE ? lam_base_digest(slm, out, err) : lam_adapter_digest(slm, out, err);
}

/* The name that its metadata gives, else `otherwise`, with .slm behind it: what a file may be called anywhere. */
static char *make_title(const struct lam_slm *slm, const char *otherwise)
{
    const json_t *source = json_object_get(slm->metadata, "source");
    const char *name = json_string_value(json_object_get(slm->kind == LAM_SLM_BASE ? source : slm->metadata, "name"));
    struct lam_str s = {0};
    if (!name || !*name) name = otherwise;
    bool ok = true;
    for (const char *c = name; ok && *c && s.len < 100; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || (s.len && strchr("-_.", *c));
        ok = lam_str_putc(&s, plain ? *c : '-');
    }
    if (ok && s.len > 4 && strcmp(s.data + s.len - 4, ".slm") == 0) return s.data;
    if (ok && lam_str_puts(&s, s.len ? ".slm" : "model.slm")) return s.data;
    lam_str_release(&s);
    return NULL;
}

/* What the .slm at p->path says of itself. */
static lam_code describe(struct lam_piece *p, const char *otherwise, lam_error *err)
{
    struct lam_slm *slm;
    LAM_TRY(lam_slm_open(p->path, &slm, err));
    p->kind = slm->kind == LAM_SLM_BASE ? LAM_STORE_BASE : LAM_STORE_ADAPTER;
    lam_digest_text(slm->file_root, p->file_root);
    lam_code code = meaning_of(slm, p->meaning, err);
    if (code == LAM_OK && !(p->title = make_title(slm, otherwise))) code = no_memory(err);
    lam_slm_close(slm);
    return code;
}

static lam_code describe_staged(struct lam_piece *p, const char *otherwise, lam_error *err)
{
    p->path = lam_strdup(p->staged.path);
    if (!p->path) return no_memory(err);
    memcpy(p->digest, p->staged.digest, LAM_DIGEST_TEXT);
    p->size = p->staged.size;
    return describe(p, otherwise, err);
}

static lam_code check_kind(const struct lam_piece_source *source, lam_source_kind found, lam_error *err)
{
    bool base = found == LAM_SOURCE_SLM_BASE || found == LAM_SOURCE_GGUF_MODEL || found == LAM_SOURCE_HF_MODEL;
    if (source->want == LAM_STORE_FOREIGN || source->want == (base ? LAM_STORE_BASE : LAM_STORE_ADAPTER)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is %s, %s is needed", source->path, base ? "a base" : "an adapter", base ? "an adapter" : "a base");
}

static lam_code import(const struct lam_store *s, const struct lam_piece_source *source, lam_source_kind kind, const char *out, lam_error *err)
{
    lam_import_options options = {.progress = s->progress, .progress_context = s->progress_context,
                                  .accept_tokenizer = source->accept_tokenizer};
    if (kind == LAM_SOURCE_GGUF_MODEL || kind == LAM_SOURCE_HF_MODEL) return lam_import_base(source->path, out, &options, err);
    if (!source->base_path) return LAM_RAISE(err, LAM_E_ARGUMENT, "%s: an adapter is imported for a base; name one", source->path);
    return lam_import_adapter(source->path, source->base_path, out, &options, source->report, err);
}

/* The bytes of a .slm that came from elsewhere, against its own tree. */
static lam_code verify(const struct lam_store *s, const char *path, lam_error *err)
{
    lam_import_options options = {.progress = s->progress, .progress_context = s->progress_context};
    return lam_verify_file(path, &options, NULL, err);
}

lam_code lam_piece_stage(const struct lam_store *s, struct lam_work *w, const struct lam_piece_source *source, struct lam_piece *out,
                         lam_error *err)
{
    lam_source_kind kind;
    *out = (struct lam_piece){.kind = LAM_STORE_FOREIGN};
    LAM_TRY(lam_source_detect(source->path, &kind, err));
    LAM_TRY(check_kind(source, kind, err));
    lam_code code;
    if (kind == LAM_SOURCE_SLM_BASE || kind == LAM_SOURCE_SLM_ADAPTER) {
        code = lam_blob_stage_copy(s, w, source->path, &out->staged, err);
        if (code == LAM_OK) code = verify(s, out->staged.path, err);
    } else {
        char *made;
        LAM_TRY(lam_work_file(w, &made, err));
        code = import(s, source, kind, made, err);
        if (code == LAM_OK) code = lam_blob_stage_made(s, made, &out->staged, err);
        else lam_free(made);
    }
    if (code == LAM_OK) code = describe_staged(out, lam_path_base(source->path), err);
    if (code != LAM_OK) lam_piece_release(out);
    return code;
}

lam_code lam_piece_of_made(const struct lam_store *s, char *path, struct lam_piece *out, lam_error *err)
{
    *out = (struct lam_piece){.kind = LAM_STORE_FOREIGN};
    LAM_TRY(lam_blob_stage_made(s, path, &out->staged, err));
    lam_code code = describe_staged(out, "", err);
    if (code != LAM_OK) lam_piece_release(out);
    return code;
}

lam_code lam_piece_of_layer(const struct lam_store *s, const struct lam_descriptor *layer, struct lam_piece *out, lam_error *err)
{
    *out = (struct lam_piece){.kind = strcmp(layer->media_type, LAM_TYPE_BASE_SLM) == 0 ? LAM_STORE_BASE : LAM_STORE_ADAPTER, .size = layer->size};
    memcpy(out->digest, layer->digest, LAM_DIGEST_TEXT);
    memcpy(out->file_root, layer->file_root, LAM_DIGEST_TEXT); /* lam_artifact_parse saw to both */
    memcpy(out->meaning, layer->meaning, LAM_DIGEST_TEXT);
    LAM_TRY(lam_blob_check(s, layer->digest, layer->size, err));
    lam_code code = lam_blob_path(s, layer->digest, &out->path, err);
    if (code == LAM_OK && layer->title && !(out->title = lam_strdup(layer->title))) code = no_memory(err);
    if (code != LAM_OK) lam_piece_release(out);
    return code;
}

lam_code lam_piece_check(const char *path, lam_store_kind kind, const char *file_root, const char *meaning, lam_error *err)
{
    struct lam_slm *slm;
    char root[LAM_DIGEST_TEXT], means[LAM_DIGEST_TEXT];
    LAM_TRY(lam_slm_open(path, &slm, err));
    lam_code code = slm->kind == (kind == LAM_STORE_BASE ? LAM_SLM_BASE : LAM_SLM_ADAPTER) ? LAM_OK
                  : LAM_RAISE(err, LAM_E_MAGIC, "%s is no %s", path, lam_store_kind_name(kind));
    lam_digest_text(slm->file_root, root);
    if (code == LAM_OK && file_root && strcmp(root, file_root) != 0)
        code = LAM_RAISE(err, LAM_E_DIGEST, "%s has file_root %s, %s is expected", path, root, file_root);
    if (code == LAM_OK) code = meaning_of(slm, means, err);
    if (code == LAM_OK && meaning && strcmp(means, meaning) != 0)
        code = LAM_RAISE(err, kind == LAM_STORE_BASE ? LAM_E_WRONG_BASE : LAM_E_DIGEST, "%s is %s %s, %s is expected", path,
                         lam_store_kind_name(kind), means, meaning);
    lam_slm_close(slm);
    return code;
}

lam_code lam_layers_verify(const struct lam_store *s, const struct lam_artifact *a, lam_error *err)
{
    for (size_t i = 0; i < a->n_layers; i++) {
        const struct lam_descriptor *l = &a->layers[i];
        char *path;
        bool base = strcmp(l->media_type, LAM_TYPE_BASE_SLM) == 0;
        if (!base && strcmp(l->media_type, LAM_TYPE_ADAPTER_SLM) != 0) continue;
        LAM_TRY(lam_blob_path(s, l->digest, &path, err));
        lam_code code = lam_piece_check(path, base ? LAM_STORE_BASE : LAM_STORE_ADAPTER, l->file_root, l->meaning, err);
        lam_free(path);
        if (code != LAM_OK) return code;
        if (a->id && a->kind != LAM_STORE_COMPOSITION && strcmp(l->meaning, a->id) != 0)
            return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s says that it is %s, its layer is %s", a->digest, a->id, l->meaning);
    }
    return LAM_OK;
}

struct lam_descriptor lam_piece_layer(const struct lam_piece *p)
{
    return (struct lam_descriptor){.media_type = p->kind == LAM_STORE_BASE ? LAM_TYPE_BASE_SLM : LAM_TYPE_ADAPTER_SLM, .digest = p->digest,
                                   .size = p->size, .title = p->title, .file_root = p->file_root, .meaning = p->meaning};
}

lam_code lam_piece_place(struct lam_store *s, struct lam_piece *p, lam_error *err)
{
    return p->staged.path ? lam_blob_place(s, &p->staged, err) : LAM_OK;
}
