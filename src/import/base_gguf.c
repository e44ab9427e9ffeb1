/* A base from GGUF: the tensors as they are, in tiles; every key kept for the way back. */
#include "import/base_write.h"
#include "base/alloc.h"
#include "import/gguf_keys.h"
#include "text/vocab_import.h"

#include <string.h>

/* Arrays that the vocabulary section holds. They stand in the metadata only if the section would not give them back. */
static const char *const vocabulary_keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type",
                                              "tokenizer.ggml.merges"};

static bool key_is(const struct lam_gguf_kv *kv, const char *key)
{
    return kv->key_len == strlen(key) && memcmp(kv->key, key, kv->key_len) == 0;
}

static bool same_value(const struct lam_gguf_kv *a, const struct lam_gguf_kv *b)
{
    return a->type == b->type && a->item_type == b->item_type && a->count == b->count && a->value_bytes == b->value_bytes &&
           memcmp(a->value, b->value, a->value_bytes) == 0;
}

/* True if the vocabulary's own export gives this key with these bytes. exported may be NULL. */
static bool vocabulary_has(const struct lam_gguf_kv *kv, const struct lam_gguf_out *exported)
{
    struct lam_gguf_kv again;
    for (size_t i = 0; exported && i < sizeof vocabulary_keys / sizeof *vocabulary_keys; i++)
        if (key_is(kv, vocabulary_keys[i])) return lam_gguf_out_find(exported, vocabulary_keys[i], &again) && same_value(kv, &again);
    return false;
}

static json_t *key_from(const struct lam_gguf_kv *kv, const char *where)
{
    return json_pack("{s:s%,s:s}", "key", kv->key, kv->key_len, "from", where);
}

static lam_code key_to_json(const struct lam_gguf_kv *kv, const struct lam_gguf_out *exported, json_t **out, lam_error *err)
{
    *out = NULL;
    if (kv->key_len > 6 && memcmp(kv->key, "split.", 6) == 0) return LAM_OK; /* an export is one file */
    if (vocabulary_has(kv, exported)) *out = key_from(kv, "vocabulary");
    else if (key_is(kv, "tokenizer.chat_template") && kv->type == LAM_GGUF_STRING) *out = key_from(kv, "chat_template");
    else return lam_gguf_key_to_json(kv, out, err);
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
}

/* The "gguf" member of the metadata. */
static lam_code add_keys(const struct lam_gguf *g, const struct lam_gguf_out *exported, json_t *metadata, lam_error *err)
{
    json_t *keys = json_array(), *tensors = json_array(), *both = json_pack("{s:o,s:o}", "keys", keys, "tensors", tensors);
    if (json_object_set_new(metadata, "gguf", both) != 0) return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    for (size_t i = 0; i < g->n_kvs; i++) {
        json_t *key;
        LAM_TRY(key_to_json(&g->kvs[i], exported, &key, err));
        if (key && json_array_append_new(keys, key) != 0) return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    }
    for (size_t i = 0; i < g->n_tensors; i++)
        if (json_array_append_new(tensors, json_string(g->tensors[i].name)) != 0) return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    return LAM_OK;
}

/* What a person asks about a file; the rest stands in "gguf". */
static lam_code add_source(const struct lam_gguf *g, const char *path, json_t *metadata, lam_error *err)
{
    static const char *const names[][2] = {{"name", "general.name"}, {"licence", "general.license"}, {"author", "general.author"},
                                           {"organization", "general.organization"}, {"url", "general.source.url"}};
    const char *file = lam_path_base(path);
    json_t *source = json_pack("{s:s}", "format", "gguf");
    if (json_object_set_new(metadata, "source", source) != 0) return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    LAM_TRY(lam_set_text(source, "file", file, strlen(file), "the file's name", err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct lam_gguf_kv *kv = lam_gguf_find(g, names[i][1]);
        const char *text;
        size_t len;
        if (!kv || kv->type != LAM_GGUF_STRING) continue;
        LAM_TRY(lam_gguf_string(g, names[i][1], true, &text, &len, err));
        LAM_TRY(lam_set_text(source, names[i][0], text, len, names[i][1], err));
    }
    return LAM_OK;
}

static lam_code add_sampling(const struct lam_gguf *g, json_t *metadata, lam_error *err)
{
    static const char *const names[][2] = {{"temperature", "general.sampling.temp"}, {"top_k", "general.sampling.top_k"},
                                           {"top_p", "general.sampling.top_p"}, {"min_p", "general.sampling.min_p"},
                                           {"repeat_penalty", "general.sampling.penalty_repeat"}};
    json_t *sampling = json_object();
    lam_code code = sampling ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    for (size_t i = 0; code == LAM_OK && i < sizeof names / sizeof *names; i++) {
        const struct lam_gguf_kv *kv = lam_gguf_find(g, names[i][1]);
        double value;
        if (!kv || kv->type == LAM_GGUF_ARRAY) continue;
        code = lam_gguf_item_f64(kv, 0, &value, err);
        if (code == LAM_OK && json_object_set_new(sampling, names[i][0], json_real(value)) != 0)
            code = LAM_RAISE(err, LAM_E_FORMAT, "%s is not a finite number", names[i][1]);
    }
    if (code == LAM_OK && json_object_size(sampling) && json_object_set(metadata, "sampling", sampling) != 0)
        code = LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    json_decref(sampling);
    return code;
}

static lam_code add_template(const struct lam_gguf *g, json_t *metadata, lam_error *err)
{
    const char *text = NULL;
    size_t len;
    LAM_TRY(lam_gguf_string(g, "tokenizer.chat_template", false, &text, &len, err));
    return text ? lam_set_text(metadata, "chat_template", text, len, "tokenizer.chat_template", err) : LAM_OK;
}

/* What the vocabulary section would be in a GGUF; *out is NULL where GGUF cannot say it. */
static lam_code export_vocabulary(const struct lam_base_source *s, struct lam_gguf_out **out, lam_error *err)
{
    struct lam_vocab vocab;
    LAM_TRY(lam_vocab_open(s->vocab, s->vocab_bytes, &vocab, err));
    LAM_TRY(lam_gguf_out_new(out, err));
    lam_code code = lam_vocab_export_gguf(&vocab, *out, err);
    if (code == LAM_OK) return LAM_OK;
    lam_gguf_out_free(*out);
    *out = NULL;
    return code == LAM_E_NO_MEMORY ? code : LAM_OK;
}

static lam_code make_metadata(const struct lam_gguf *g, const char *path, struct lam_base_source *s, lam_error *err)
{
    struct lam_gguf_out *exported = NULL;
    s->metadata = json_object();
    if (!s->metadata) return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    LAM_TRY(add_source(g, path, s->metadata, err));
    LAM_TRY(add_template(g, s->metadata, err));
    LAM_TRY(add_sampling(g, s->metadata, err));
    LAM_TRY(export_vocabulary(s, &exported, err));
    lam_code code = add_keys(g, exported, s->metadata, err);
    lam_gguf_out_free(exported);
    return code;
}

static lam_code match_tensors(const struct lam_gguf *g, struct lam_base_source *s, lam_error *err)
{
    s->tensors = lam_alloc(g->n_tensors, sizeof *s->tensors);
    if (!s->tensors) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", g->n_tensors);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct lam_gguf_tensor *from = &g->tensors[i];
        struct lam_base_tensor t = {.name = from->name, .dtype = from->dtype, .n_dims = from->n_dims, .data = from->data};
        t.spec = lam_arch_match_gguf(s->config.arch, from->name, &t.layer);
        if (!t.spec)
            return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "tensor %.128s: architecture %s has no use for it", from->name, s->config.arch->name);
        memcpy(t.dims, from->dims, sizeof t.dims);
        s->tensors[s->n_tensors++] = t;
    }
    return LAM_OK;
}

/* A file that says general.type is something else than a model is not one with tensors missing. */
static lam_code refuse_other_types(const struct lam_gguf *g, lam_error *err)
{
    const char *type = "model";
    size_t len = 5;
    LAM_TRY(lam_gguf_string(g, "general.type", false, &type, &len, err));
    if (len == 5 && memcmp(type, "model", 5) == 0) return LAM_OK;
    return LAM_RAISE(err, LAM_E_UNSUPPORTED, "general.type is %.*s, not model", (int)(len < 64 ? len : 64), type);
}

static lam_code read_and_write(const struct lam_gguf *g, const char *path, struct lam_base_source *s, const char *out_path,
                               const struct lam_import_options *options, lam_error *err)
{
    LAM_TRY(refuse_other_types(g, err));
    LAM_TRY(lam_config_from_gguf(g, &s->config, err));
    LAM_TRY(match_tensors(g, s, err));
    LAM_TRY(lam_vocab_import_gguf(g, &s->vocab, &s->vocab_bytes, err));
    LAM_TRY(make_metadata(g, path, s, err));
    s->files = g->files;
    s->n_files = g->n_files;
    return lam_base_write(s, out_path, options, err);
}

lam_code lam_import_gguf(const char *path, const char *out_path, const struct lam_import_options *options, lam_error *err)
{
    struct lam_gguf *g = NULL;
    struct lam_base_source s = {0};
    lam_code code = lam_gguf_open(path, &g, err);
    if (code == LAM_OK) code = read_and_write(g, path, &s, out_path, options, err);
    lam_base_source_release(&s);
    lam_gguf_close(g);
    return code;
}
