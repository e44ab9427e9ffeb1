/* What a file or folder holds, as JSON, without running it. */
#include "import/import.h"
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/json.h"
#include "format/gguf.h"
#include "format/merkle.h"
#include "format/safetensors.h"
#include "format/slm.h"
#include "format/vocab.h"
#include "import/progress.h"
#include "model/identity.h"

#include <string.h>

/* object[dtype name] += 1 */
static void count_type(json_t *types, enum lam_dtype dtype)
{
    const char *name = lam_dtype_info(dtype)->name;
    json_object_set_new(types, name, json_integer(json_integer_value(json_object_get(types, name)) + 1));
}

static json_t *dims_json(const uint64_t *dims, unsigned n)
{
    json_t *list = json_array();
    for (unsigned i = 0; list && i < n; i++) json_array_append_new(list, json_integer((json_int_t)dims[i]));
    return list;
}

/* tensors may be NULL: only the types are counted then. */
static void add_tensor(json_t *tensors, json_t *types, const char *name, size_t len, enum lam_dtype dtype, const uint64_t *dims,
                       unsigned n_dims, uint64_t bytes)
{
    count_type(types, dtype);
    if (tensors)
        json_array_append_new(tensors, json_pack("{s:s%,s:s,s:o,s:I}", "name", name, len, "dtype", lam_dtype_info(dtype)->name,
                                                 "dims", dims_json(dims, n_dims), "bytes", (json_int_t)bytes));
}

static void set_digest(json_t *out, const char *key, const uint8_t digest[LAM_SHA256_BYTES])
{
    char text[LAM_DIGEST_TEXT];
    lam_digest_text(digest, text);
    json_object_set_new(out, key, json_string(text));
}

static lam_code describe_vocab(const struct lam_slm *s, json_t *out, lam_error *err)
{
    static const char *const kinds[] = {"?", "byte-level BPE", "SentencePiece BPE", "BPE"};
    struct lam_vocab v;
    uint8_t digest[LAM_SHA256_BYTES];
    if (!s->vocab) return LAM_OK;
    LAM_TRY(lam_vocab_open(s->vocab, s->vocab_bytes, &v, err));
    LAM_TRY(lam_vocab_digest(&v, digest, err));
    set_digest(out, "tokenizer_digest", digest);
    json_object_set_new(out, "vocabulary", json_pack("{s:I,s:I,s:s,s:s%}", "tokens", (json_int_t)v.n_tokens, "merges",
                                                     (json_int_t)v.n_merges, "kind", kinds[v.kind], "pre_tokenizer",
                                                     v.pre_name ? v.pre_name : "", v.pre_name_len));
    return LAM_OK;
}

static lam_code describe_base(const struct lam_slm *s, json_t *out, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    uint8_t hash[LAM_SHA256_BYTES];
    LAM_TRY(lam_base_digest(s, digest, err));
    json_object_set_new(out, "base_digest", json_string(digest));
    LAM_TRY(describe_vocab(s, out, err));
    const json_t *text = json_object_get(s->metadata, "chat_template");
    if (json_is_string(text)) {
        lam_sha256(json_string_value(text), json_string_length(text), hash);
        set_digest(out, "template_digest", hash);
    }
    json_object_set(out, "config", json_object_get(s->metadata, "config"));
    json_object_set(out, "source", json_object_get(s->metadata, "source"));
    return LAM_OK;
}

static lam_code describe_adapter(const struct lam_slm *s, json_t *out, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    LAM_TRY(lam_adapter_digest(s, digest, err));
    json_object_set_new(out, "adapter_digest", json_string(digest));
    static const char *const keys[] = {"name", "method", "bases", "modules", "source"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) json_object_set(out, keys[i], json_object_get(s->metadata, keys[i]));
    return LAM_OK;
}

static lam_code inspect_slm(const char *path, json_t *out, json_t *tensors, json_t *types, lam_error *err)
{
    struct lam_slm *s;
    LAM_TRY(lam_slm_open(path, &s, err));
    json_object_set_new(out, "bytes", json_integer((json_int_t)s->file.size));
    json_object_set_new(out, "pieces", json_integer((json_int_t)s->n_pieces));
    set_digest(out, "weights_root", s->weights_root);
    set_digest(out, "file_root", s->file_root);
    lam_code code = s->kind == LAM_SLM_BASE ? describe_base(s, out, err) : describe_adapter(s, out, err);
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct lam_slm_entry *e = &s->entries[i];
        uint64_t dims[4] = {e->dims[0], e->dims[1], e->dims[2], e->dims[3]};
        add_tensor(tensors, types, s->names + e->name_offset, e->name_len, e->dtype, dims, e->n_dims, e->bytes);
    }
    lam_slm_close(s);
    return code;
}

/* Scalars and strings by value, arrays by their length. */
static json_t *kv_json(const struct lam_gguf *g, const struct lam_gguf_kv *kv)
{
    if (kv->type == LAM_GGUF_ARRAY) return json_sprintf("[%llu items]", (unsigned long long)kv->count);
    if (kv->type == LAM_GGUF_STRING) {
        const char *text = NULL;
        size_t len = 0;
        const uint8_t *at = kv->value;
        (void)g;
        lam_gguf_next_string(kv, &at, &text, &len);
        return json_stringn(text, len);
    }
    double value = 0.0;
    lam_gguf_item_f64(kv, 0, &value, NULL);
    if (kv->type == LAM_GGUF_BOOL) return json_boolean(value != 0.0);
    return kv->type == LAM_GGUF_F32 || kv->type == LAM_GGUF_F64 ? json_real(value) : json_integer((json_int_t)value);
}

static lam_code inspect_gguf(const char *path, json_t *out, json_t *tensors, json_t *types, lam_error *err)
{
    struct lam_gguf *g;
    LAM_TRY(lam_gguf_open(path, &g, err));
    json_t *keys = json_object();
    uint64_t bytes = 0;
    for (size_t i = 0; i < g->n_files; i++) bytes += g->files[i].size;
    json_object_set_new(out, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(out, "version", json_integer(g->version));
    json_object_set_new(out, "files", json_integer((json_int_t)g->n_files));
    for (size_t i = 0; i < g->n_kvs; i++) json_object_setn_new(keys, g->kvs[i].key, g->kvs[i].key_len, kv_json(g, &g->kvs[i]));
    json_object_set_new(out, "keys", keys);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct lam_gguf_tensor *t = &g->tensors[i];
        add_tensor(tensors, types, t->name, strlen(t->name), t->dtype, t->dims, t->n_dims, t->bytes);
    }
    lam_gguf_close(g);
    return LAM_OK;
}

static lam_code inspect_kind(const char *path, lam_source_kind kind, json_t *out, json_t *tensors, json_t *types, lam_error *err)
{
    switch (kind) {
    case LAM_SOURCE_SLM_BASE: case LAM_SOURCE_SLM_ADAPTER: return inspect_slm(path, out, tensors, types, err);
    case LAM_SOURCE_GGUF_MODEL: case LAM_SOURCE_GGUF_ADAPTER: return inspect_gguf(path, out, tensors, types, err);
    default: return LAM_OK; /* folders: their kind; what they hold shows on import */
    }
}

lam_code lam_inspect(const char *path, bool with_tensors, char **json, lam_error *err)
{
    static const char *const names[] = {"slm base", "slm adapter", "gguf model", "gguf adapter", "hugging face model", "peft adapter"};
    lam_source_kind kind;
    *json = NULL;
    LAM_TRY(lam_source_detect(path, &kind, err));
    json_t *out = json_pack("{s:s,s:s}", "path", path, "kind", names[kind]);
    json_t *tensors = with_tensors ? json_array() : NULL, *types = json_object();
    if (!out) {
        json_decref(tensors);
        json_decref(types);
        return LAM_RAISE(err, LAM_E_UTF8, "the path is not UTF-8");
    }
    lam_code code = inspect_kind(path, kind, out, tensors, types, err);
    json_object_set_new(out, "tensor_types", types);
    if (tensors) json_object_set_new(out, "tensors", tensors);
    if (code == LAM_OK) {
        *json = json_dumps(out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        if (!*json) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    }
    json_decref(out);
    return code;
}

lam_code lam_verify_file(const char *path, const lam_import_options *options, char root[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_slm *s;
    LAM_TRY(lam_slm_open(path, &s, err));
    struct lam_progress progress = {.options = options, .stage = "verify", .total = s->data_bytes};
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < s->n_pieces; i++) {
        code = lam_slm_verify_piece(s, i, err);
        if (code == LAM_OK) code = lam_progress_add(&progress, LAM_PIECE_BYTES, err);
    }
    if (code == LAM_OK && root) lam_digest_text(s->file_root, root);
    lam_slm_close(s);
    return code;
}
