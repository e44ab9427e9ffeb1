/* What a file or folder holds, as JSON, without running it. */
#include "import/import.h"
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/cpus.h"
#include "base/files.h"
#include "base/json.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/utf8.h"
#include "cache/saved.h"
#include "format/gguf.h"
#include "format/merkle.h"
#include "format/safetensors.h"
#include "format/slm.h"
#include "format/vocab.h"
#include "import/progress.h"
#include "model/identity.h"

#include <math.h>
#include <string.h>

/* What is being written; lacking tells at the end that some value found no memory. */
struct description {
    json_t *out, *types, *tensors; /* tensors is NULL where only the types are counted */
    bool lacking;
};

/* Takes value over. */
static void put(struct description *d, json_t *object, const char *key, json_t *value)
{
    d->lacking |= json_object_set_new(object, key, value) != 0;
}

static void put_integer(struct description *d, const char *key, uint64_t value)
{
    put(d, d->out, key, json_integer((json_int_t)value));
}

/* out[key] = from[key], if from has it. */
static void copy(struct description *d, const json_t *from, const char *key)
{
    json_t *value = json_object_get(from, key);
    if (value) put(d, d->out, key, json_incref(value));
}

static json_t *dims_json(struct description *d, const uint64_t *dims, unsigned n)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < n; i++) d->lacking |= json_array_append_new(list, json_integer((json_int_t)dims[i])) != 0;
    return list;
}

static void add_tensor(struct description *d, const char *name, size_t len, enum lam_dtype dtype, const uint64_t *dims,
                       unsigned n_dims, uint64_t bytes)
{
    const char *type = lam_dtype_info(dtype)->name;
    put(d, d->types, type, json_integer(json_integer_value(json_object_get(d->types, type)) + 1));
    if (!d->tensors) return;
    json_t *tensor = json_pack("{s:s%,s:s,s:o,s:I}", "name", name, len, "dtype", type, "dims", dims_json(d, dims, n_dims), "bytes",
                               (json_int_t)bytes);
    d->lacking |= json_array_append_new(d->tensors, tensor) != 0;
}

struct residual_sums {
    uint64_t values, bytes;
};

/* Counts a tensor's residual, and tells it with the tensor that was added last. */
static void add_residual(struct description *d, const struct lam_slm *s, const struct lam_slm_entry *e, struct residual_sums *sums)
{
    uint32_t values = lam_slm_residual_values(s, e);
    size_t bytes = 0;
    if (values == 0) return;
    lam_residual_bytes(e->dims[1], e->dims[0], values, &bytes);
    sums->values += values;
    sums->bytes += bytes;
    if (!d->tensors) return;
    json_t *tensor = json_array_get(d->tensors, json_array_size(d->tensors) - 1);
    put(d, tensor, "residual_values", json_integer(values));
    put(d, tensor, "residual_bytes", json_integer((json_int_t)bytes));
}

static void put_digest(struct description *d, const char *key, const uint8_t digest[LAM_SHA256_BYTES])
{
    char text[LAM_DIGEST_TEXT];
    lam_digest_text(digest, text);
    put(d, d->out, key, json_string(text));
}

static lam_code describe_vocab(struct description *d, const struct lam_slm *s, lam_error *err)
{
    static const char *const kinds[] = {"?", "byte-level BPE", "SentencePiece BPE", "BPE"};
    struct lam_vocab v;
    uint8_t digest[LAM_SHA256_BYTES];
    if (!s->vocab) return LAM_OK;
    LAM_TRY(lam_vocab_open(s->vocab, s->vocab_bytes, &v, err));
    LAM_TRY(lam_vocab_digest(&v, digest, err));
    put_digest(d, "tokenizer_digest", digest);
    size_t len = v.pre_name && lam_utf8_valid_prefix((const uint8_t *)v.pre_name, v.pre_name_len) == v.pre_name_len ? v.pre_name_len : 0;
    put(d, d->out, "vocabulary", json_pack("{s:I,s:I,s:s,s:s%}", "tokens", (json_int_t)v.n_tokens, "merges", (json_int_t)v.n_merges,
                                           "kind", kinds[v.kind], "pre_tokenizer", v.pre_name ? v.pre_name : "", len));
    return LAM_OK;
}

static lam_code describe_base(struct description *d, const struct lam_slm *s, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    uint8_t hash[LAM_SHA256_BYTES];
    LAM_TRY(lam_base_digest(s, digest, err));
    put(d, d->out, "base_digest", json_string(digest));
    LAM_TRY(describe_vocab(d, s, err));
    const json_t *text = json_object_get(s->metadata, "chat_template");
    if (json_is_string(text)) {
        lam_sha256(json_string_value(text), json_string_length(text), hash);
        put_digest(d, "template_digest", hash);
    }
    copy(d, s->metadata, "config");
    copy(d, s->metadata, "source");
    return LAM_OK;
}

static lam_code describe_adapter(struct description *d, const struct lam_slm *s, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    LAM_TRY(lam_adapter_digest(s, digest, err));
    put(d, d->out, "adapter_digest", json_string(digest));
    static const char *const keys[] = {"name", "method", "bases", "modules", "source"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) copy(d, s->metadata, keys[i]);
    return LAM_OK;
}

static lam_code inspect_slm(struct description *d, const char *path, lam_error *err)
{
    struct lam_slm *s;
    struct residual_sums residuals = {0};
    LAM_TRY(lam_slm_open(path, &s, err));
    put_integer(d, "bytes", s->file.size);
    put_integer(d, "pieces", s->n_pieces);
    put_digest(d, "weights_root", s->weights_root);
    put_digest(d, "file_root", s->file_root);
    lam_code code = s->kind == LAM_SLM_BASE ? describe_base(d, s, err) : describe_adapter(d, s, err);
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct lam_slm_entry *e = &s->entries[i];
        uint64_t dims[4] = {e->dims[0], e->dims[1], e->dims[2], e->dims[3]};
        add_tensor(d, s->names + e->name_offset, e->name_len, e->dtype, dims, e->n_dims, e->bytes);
        add_residual(d, s, e, &residuals);
    }
    if (s->n_residuals)
        put(d, d->out, "residuals", json_pack("{s:I,s:I,s:I}", "tensors", (json_int_t)s->n_residuals, "values",
                                              (json_int_t)residuals.values, "bytes", (json_int_t)residuals.bytes));
    lam_slm_close(s);
    return code;
}

/* Scalars and strings by value, arrays by their length; what JSON cannot hold is null. */
static json_t *kv_json(const struct lam_gguf_kv *kv)
{
    if (kv->type == LAM_GGUF_ARRAY) return json_sprintf("[%llu items]", (unsigned long long)kv->count);
    if (kv->type == LAM_GGUF_STRING) {
        const char *text = NULL;
        size_t len = 0;
        const uint8_t *at = kv->value;
        lam_gguf_next_string(kv, &at, &text, &len);
        return lam_utf8_valid_prefix((const uint8_t *)text, len) == len ? json_stringn(text, len) : json_null();
    }
    double value = 0.0;
    lam_gguf_item_f64(kv, 0, &value, NULL);
    if (kv->type == LAM_GGUF_BOOL) return json_boolean(value != 0.0);
    if (!isfinite(value)) return json_null();
    bool real = kv->type == LAM_GGUF_F32 || kv->type == LAM_GGUF_F64 || fabs(value) >= 0x1p63;
    return real ? json_real(value) : json_integer((json_int_t)value);
}

static lam_code inspect_gguf(struct description *d, const char *path, lam_error *err)
{
    struct lam_gguf *g;
    LAM_TRY(lam_gguf_open(path, &g, err));
    json_t *keys = json_object();
    uint64_t bytes = 0;
    for (size_t i = 0; i < g->n_files; i++) bytes += g->files[i].size;
    put_integer(d, "bytes", bytes);
    put_integer(d, "version", g->version);
    put_integer(d, "files", g->n_files);
    for (size_t i = 0; i < g->n_kvs; i++)
        d->lacking |= json_object_setn_new(keys, g->kvs[i].key, g->kvs[i].key_len, kv_json(&g->kvs[i])) != 0;
    put(d, d->out, "keys", keys);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct lam_gguf_tensor *t = &g->tensors[i];
        add_tensor(d, t->name, strlen(t->name), t->dtype, t->dims, t->n_dims, t->bytes);
    }
    lam_gguf_close(g);
    return LAM_OK;
}

/* out["config"] = folder/name. */
static lam_code put_config(struct description *d, const char *folder, const char *name, lam_error *err)
{
    struct lam_mapping file;
    json_t *value = NULL;
    char *path = lam_path_join(folder, name);
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", folder);
    lam_code code = lam_map_file(path, &file, err);
    if (code == LAM_OK) {
        code = lam_json_parse(file.data ? (const char *)file.data : "", file.size, path, &value, err);
        lam_unmap_file(&file);
    }
    if (code == LAM_OK) put(d, d->out, "config", value);
    lam_free(path);
    return code;
}

/* A .safetensors file, or an index and its shards. The dimensions are told as in the other formats, row length first. */
static lam_code inspect_safetensors(struct description *d, const char *path, lam_error *err)
{
    struct lam_safetensors *s;
    uint64_t bytes = 0;
    LAM_TRY(lam_st_open(path, &s, err));
    for (size_t i = 0; i < s->n_files; i++) bytes += s->files[i].size;
    put_integer(d, "bytes", bytes);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct lam_st_tensor *t = &s->tensors[i];
        uint64_t dims[4] = {0};
        for (unsigned k = 0; k < t->n_dims; k++) dims[k] = t->dims[t->n_dims - 1 - k];
        add_tensor(d, t->name, strlen(t->name), t->dtype, dims, t->n_dims, t->bytes);
    }
    lam_st_close(s);
    return LAM_OK;
}

/* A Hugging Face or PEFT folder: its configuration, and its weights where they are safetensors. */
static lam_code inspect_folder(struct description *d, const char *folder, bool adapter, lam_error *err)
{
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"};
    LAM_TRY(put_config(d, folder, adapter ? "adapter_config.json" : "config.json", err));
    for (size_t i = adapter ? 2 : 0; i < (adapter ? 3 : 2); i++) {
        char *path = lam_path_join(folder, weights[i]);
        if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", folder);
        bool there = lam_path_exists(path);
        lam_code code = there ? inspect_safetensors(d, path, err) : LAM_OK;
        lam_free(path);
        if (there) return code;
    }
    return LAM_OK;
}

/* A saved session: its sections, and what its description says, which is checked against a composition only when it is restored. */
static lam_code inspect_session(struct description *d, const char *path, lam_error *err)
{
    static const char *const keys[] = {"composition_id", "adapters", "interval_digest", "tokens_digest", "draws", "key"};
    struct lam_mapping file;
    struct lam_saved saved;
    lam_error why;
    json_t *said = NULL;
    LAM_TRY(lam_map_file(path, &file, err));
    lam_code code = lam_saved_parse(file.data, file.size, &saved, &why);
    if (code == LAM_OK) code = lam_json_parse((const char *)saved.description, saved.description_len, "a saved session's description", &said, &why);
    if (code == LAM_OK) {
        put_integer(d, "bytes", file.size);
        put_digest(d, "file_digest", file.data + file.size - LAM_SHA256_BYTES);
        put_integer(d, "n_tokens", saved.n_tokens);
        put_integer(d, "kv_bytes", saved.kv_bytes);
        put_integer(d, "logits_bytes", saved.logits_bytes);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) copy(d, said, keys[i]);
    }
    json_decref(said);
    lam_unmap_file(&file);
    return code == LAM_OK ? LAM_OK : LAM_RAISE(err, code, "%s: %s", path, why.message);
}

static bool is_session(const char *path)
{
    uint8_t head[4];
    size_t len = 0;
    return !lam_path_is_dir(path) && lam_read_head(path, head, sizeof head, &len, NULL) == LAM_OK && len == sizeof head && lam_saved_detect(head);
}

static lam_code inspect_kind(struct description *d, const char *path, lam_source_kind kind, lam_error *err)
{
    switch (kind) {
    case LAM_SOURCE_SLM_BASE: case LAM_SOURCE_SLM_ADAPTER: return inspect_slm(d, path, err);
    case LAM_SOURCE_GGUF_MODEL: case LAM_SOURCE_GGUF_ADAPTER: return inspect_gguf(d, path, err);
    default: return inspect_folder(d, path, kind == LAM_SOURCE_PEFT_ADAPTER, err);
    }
}

/* Not by json_dumps, which leaves strings out when memory is lacking. NULL then. */
static char *dump(const json_t *value)
{
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(9);
    size_t size = json_dumpb(value, NULL, 0, flags);
    char *text = size ? lam_alloc(size + 1, 1) : NULL;
    if (!text || json_dumpb(value, text, size, flags) == size) return text;
    lam_free(text);
    return NULL;
}

lam_code lam_inspect(const char *path, bool with_tensors, char **json, lam_error *err)
{
    static const char *const names[] = {"slm base", "slm adapter", "gguf model", "gguf adapter", "hugging face model", "peft adapter"};
    lam_source_kind kind = LAM_SOURCE_SLM_BASE;
    bool session = is_session(path);
    *json = NULL;
    if (!session) LAM_TRY(lam_source_detect(path, &kind, err));
    if (lam_utf8_valid_prefix((const uint8_t *)path, strlen(path)) != strlen(path)) return LAM_RAISE(err, LAM_E_UTF8, "the path is not UTF-8");
    struct description d = {.out = json_pack("{s:s,s:s}", "path", path, "kind", session ? "saved session" : names[kind]), .types = json_object(),
                            .tensors = with_tensors ? json_array() : NULL};
    d.lacking = with_tensors && !d.tensors;
    lam_code code = session ? inspect_session(&d, path, err) : inspect_kind(&d, path, kind, err);
    if (session) {
        json_decref(d.types);
        json_decref(d.tensors);
        d.tensors = NULL;
    } else {
        put(&d, d.out, "tensor_types", d.types);
    }
    if (d.tensors) put(&d, d.out, "tensors", d.tensors);
    if (code == LAM_OK && !d.lacking) *json = dump(d.out);
    if (code == LAM_OK && !*json) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    json_decref(d.out);
    return code;
}

/* A few pieces a thread at a time, so that the caller may cancel. */
static lam_code verify_all(const struct lam_slm *s, struct lam_pool *pool, const lam_import_options *options, lam_error *err)
{
    struct lam_progress progress = {.options = options, .stage = "verify", .total = s->data_bytes};
    size_t most = 4 * (size_t)lam_pool_threads(pool);
    size_t *list = lam_alloc(most, sizeof *list);
    bool *good = lam_alloc(s->n_pieces, sizeof *good);
    lam_code code = list && good ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu pieces", s->n_pieces);
    for (size_t done = 0, n; code == LAM_OK && done < s->n_pieces; done += n) {
        n = s->n_pieces - done < most ? s->n_pieces - done : most;
        for (size_t i = 0; i < n; i++) list[i] = done + i;
        code = lam_slm_verify_pieces(s, pool, list, n, good, err);
        if (code == LAM_OK) code = lam_progress_add(&progress, n * LAM_PIECE_BYTES, err);
    }
    lam_free(list);
    lam_free(good);
    return code;
}

lam_code lam_verify_file(const char *path, const lam_import_options *options, char root[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_slm *s;
    struct lam_pool *pool = NULL;
    struct lam_cpus cpus;
    LAM_TRY(lam_slm_open(path, &s, err));
    lam_cpus_here(&cpus);
    lam_code code = lam_pool_new(cpus.threads, &pool, err);
    if (code == LAM_OK) code = verify_all(s, pool, options, err);
    lam_pool_free(pool);
    if (code == LAM_OK && root) lam_digest_text(s->file_root, root);
    lam_slm_close(s);
    return code;
}
