/* A base from a Hugging Face folder: config.json, safetensors, tokenizer. Names become GGUF's, bytes stay. */
#include "import/base_write.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/str.h"
#include "format/safetensors.h"
#include "text/vocab_import.h"

#include <string.h>

#define JSON_MAX ((size_t)16 << 20) /* bytes of config.json and the other small files */

struct folder {
    const char *path;
    json_t *config, *tokenizer_config, *generation; /* owned; NULL where the file is absent, except config */
    struct lam_safetensors *weights;
};

/* *file is mapped if dir/name exists, else left empty. */
static lam_code map_optional(const char *dir, const char *name, struct lam_mapping *file, lam_error *err)
{
    *file = (struct lam_mapping){0};
    char *path = lam_path_join(dir, name);
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", dir);
    lam_code code = lam_path_exists(path) ? lam_map_file(path, file, err) : LAM_OK;
    lam_free(path);
    if (code == LAM_OK && file->size > JSON_MAX) {
        code = LAM_RAISE(err, LAM_E_LIMIT, "%s has %zu bytes, %zu are read", name, file->size, JSON_MAX);
        lam_unmap_file(file);
    }
    return code;
}

static lam_code read_json(const char *dir, const char *name, json_t **out, lam_error *err)
{
    struct lam_mapping file;
    LAM_TRY(map_optional(dir, name, &file, err));
    if (!file.path) return LAM_OK;
    lam_code code = lam_json_parse(file.data ? (const char *)file.data : "", file.size, name, out, err);
    lam_unmap_file(&file);
    if (code == LAM_OK && !json_is_object(*out)) code = LAM_RAISE(err, LAM_E_FORMAT, "%s is not a JSON object", name);
    return code;
}

/* The same file is chosen as in transformers: the single one first. */
static lam_code open_weights(struct folder *f, lam_error *err)
{
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    bool has_single, has_index, has_pickle, has_pickles;
    LAM_TRY(lam_folder_has(f->path, single, &has_single, err));
    LAM_TRY(lam_folder_has(f->path, index, &has_index, err));
    LAM_TRY(lam_folder_has(f->path, "pytorch_model.bin", &has_pickle, err));
    LAM_TRY(lam_folder_has(f->path, "pytorch_model.bin.index.json", &has_pickles, err));
    const char *name = has_single ? single : has_index ? index : NULL;
    if (!name && (has_pickle || has_pickles))
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "%s: pytorch_model.bin is a pickle, which can run code; safetensors are read", f->path);
    if (!name) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: neither %s nor %s", f->path, single, index);
    char *path = lam_path_join(f->path, name);
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", f->path);
    lam_code code = lam_st_open(path, &f->weights, err);
    lam_free(path);
    return code;
}

static lam_code open_folder(struct folder *f, lam_error *err)
{
    LAM_TRY(read_json(f->path, "config.json", &f->config, err));
    if (!f->config) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: no config.json", f->path);
    LAM_TRY(read_json(f->path, "tokenizer_config.json", &f->tokenizer_config, err));
    LAM_TRY(read_json(f->path, "generation_config.json", &f->generation, err));
    return open_weights(f, err);
}

static void close_folder(struct folder *f)
{
    json_decref(f->config);
    json_decref(f->tokenizer_config);
    json_decref(f->generation);
    lam_st_close(f->weights);
}

/* Old llama checkpoints keep the rotary frequencies, which the configuration gives anyway. */
static bool is_rotary_buffer(const char *name)
{
    static const char suffix[] = "rotary_emb.inv_freq";
    size_t len = strlen(name);
    return len >= sizeof suffix - 1 && strcmp(name + len - (sizeof suffix - 1), suffix) == 0;
}

/* A tied head that is stored too must be the embedding's bytes; then it is left out. */
static lam_code check_tied_head(const struct folder *f, const struct lam_config *c, const struct lam_st_tensor *head, lam_error *err)
{
    for (size_t i = 0; i < f->weights->n_tensors; i++) {
        const struct lam_st_tensor *t = &f->weights->tensors[i];
        uint32_t layer;
        const struct lam_tensor_spec *spec = lam_arch_match_hf(c->arch, t->name, &layer);
        if (!spec || spec->role != LAM_ROLE_EMBEDDING) continue;
        if (t->dtype == head->dtype && t->n_dims == head->n_dims && memcmp(t->dims, head->dims, sizeof t->dims) == 0 &&
            t->bytes == head->bytes && memcmp(t->data, head->data, t->bytes) == 0)
            return LAM_OK;
    }
    return LAM_RAISE(err, LAM_E_CONFLICT, "tensor %.128s differs from the embedding, to which config.json ties it", head->name);
}

static struct lam_base_tensor convert_tensor(const struct lam_st_tensor *from)
{
    struct lam_base_tensor t = {.name = from->name, .dtype = from->dtype, .n_dims = from->n_dims, .data = from->data,
                                .dims = {1, 1, 1, 1}};
    for (unsigned d = 0; d < from->n_dims; d++) t.dims[d] = from->dims[from->n_dims - 1 - d];
    return t;
}

static lam_code match_tensors(const struct folder *f, struct lam_base_source *s, lam_error *err)
{
    const struct lam_safetensors *w = f->weights;
    s->tensors = lam_alloc(w->n_tensors, sizeof *s->tensors);
    if (!s->tensors) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", w->n_tensors);
    for (size_t i = 0; i < w->n_tensors; i++) {
        if (is_rotary_buffer(w->tensors[i].name)) continue;
        struct lam_base_tensor t = convert_tensor(&w->tensors[i]);
        t.spec = lam_arch_match_hf(s->config.arch, t.name, &t.layer);
        if (!t.spec)
            return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "tensor %.128s: architecture %s has no use for it", t.name, s->config.arch->name);
        if (t.spec->role == LAM_ROLE_OUTPUT && s->config.tied) LAM_TRY(check_tied_head(f, &s->config, &w->tensors[i], err));
        else s->tensors[s->n_tensors++] = t;
    }
    return LAM_OK;
}

/* The biases that config.json's flag says, and no others: transformers drops what it does not ask for. Architectures whose biases
 * are not optional have no such flag. */
static lam_code check_biases(const struct folder *f, const struct lam_base_source *s, const char *flag, const enum lam_role *roles,
                             size_t n, lam_error *err)
{
    bool wanted = json_is_true(json_object_get(f->config, flag));
    for (size_t r = 0; r < n; r++) {
        const struct lam_tensor_spec *spec = lam_arch_find(s->config.arch, roles[r]);
        if (!spec || spec->presence == LAM_REQUIRED) continue;
        const struct lam_base_tensor *found = NULL;
        for (size_t i = 0; i < s->n_tensors; i++)
            if (s->tensors[i].spec == spec) found = &s->tensors[i];
        if (wanted && !found)
            return LAM_RAISE(err, LAM_E_MISSING_TENSOR, "config.json: %s is true, but no layer has %s", flag, spec->hf);
        if (!wanted && found)
            return LAM_RAISE(err, LAM_E_EXTRA_TENSOR, "tensor %.128s: config.json: %s is not true", found->name, flag);
    }
    return LAM_OK;
}

static lam_code check_all_biases(const struct folder *f, const struct lam_base_source *s, lam_error *err)
{
    static const enum lam_role attention[] = {LAM_ROLE_Q_BIAS, LAM_ROLE_K_BIAS, LAM_ROLE_V_BIAS, LAM_ROLE_O_BIAS};
    static const enum lam_role mlp[] = {LAM_ROLE_GATE_BIAS, LAM_ROLE_UP_BIAS, LAM_ROLE_DOWN_BIAS};
    LAM_TRY(check_biases(f, s, "attention_bias", attention, 4, err));
    return check_biases(f, s, "mlp_bias", mlp, 3, err);
}

/* tokenizer_config.json has one template, or a list of named ones of which "default" is meant. NULL if neither. */
static const json_t *find_template(const json_t *tokenizer_config)
{
    const json_t *all = json_object_get(tokenizer_config, "chat_template");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0) return json_object_get(entry, "template");
    }
    return json_is_string(all) ? all : NULL;
}

/* chat_template.jinja comes before the one in tokenizer_config.json, as in transformers. */
static lam_code add_template(const struct folder *f, json_t *metadata, lam_error *err)
{
    struct lam_mapping file;
    LAM_TRY(map_optional(f->path, "chat_template.jinja", &file, err));
    if (file.path) {
        lam_code code = lam_set_text(metadata, "chat_template", file.data ? (const char *)file.data : "", file.size,
                                     "chat_template.jinja", err);
        lam_unmap_file(&file);
        return code;
    }
    const json_t *text = find_template(f->tokenizer_config);
    if (!json_is_string(text)) return LAM_OK;
    return lam_set_text(metadata, "chat_template", json_string_value(text), json_string_length(text), "chat_template", err);
}

/* generation_config.json's numbers, if it samples at all. */
static lam_code add_sampling(const struct folder *f, json_t *metadata, lam_error *err)
{
    static const char *const names[][2] = {{"temperature", "temperature"}, {"top_k", "top_k"}, {"top_p", "top_p"},
                                           {"min_p", "min_p"}, {"repeat_penalty", "repetition_penalty"}};
    if (!json_is_true(json_object_get(f->generation, "do_sample"))) return LAM_OK;
    json_t *sampling = json_object();
    bool ok = sampling != NULL;
    for (size_t i = 0; ok && i < sizeof names / sizeof *names; i++) {
        const json_t *value = json_object_get(f->generation, names[i][1]);
        if (json_is_number(value)) ok = json_object_set_new(sampling, names[i][0], json_real(json_number_value(value))) == 0;
    }
    if (ok && json_object_size(sampling)) ok = json_object_set(metadata, "sampling", sampling) == 0;
    json_decref(sampling);
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
}

/* The model card's licence: "license: NAME" in the block between --- lines that README.md begins with. */
static lam_code add_licence(const struct folder *f, json_t *source, lam_error *err)
{
    static const char key[] = "\nlicense:";
    struct lam_mapping file;
    LAM_TRY(map_optional(f->path, "README.md", &file, err));
    struct lam_str text = {0};
    bool ok = !file.size || lam_str_append(&text, file.data, file.size);
    lam_unmap_file(&file);
    lam_code code = ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "README.md");
    char *end = text.data && strncmp(text.data, "---", 3) == 0 ? strstr(text.data + 3, "\n---") : NULL;
    if (end) *end = 0;
    const char *value = end ? strstr(text.data, key) : NULL;
    if (code == LAM_OK && value) {
        value += sizeof key - 1;
        value += strspn(value, " \"'");
        size_t len = strcspn(value, "\r\n\"' #");
        if (len) code = lam_set_text(source, "licence", value, len, "README.md's license", err);
    }
    lam_str_release(&text);
    return code;
}

static lam_code make_metadata(const struct folder *f, struct lam_base_source *s, lam_error *err)
{
    char *real = NULL;
    s->metadata = json_object();
    json_t *source = json_pack("{s:s}", "format", "safetensors");
    if (json_object_set_new(s->metadata, "source", source) != 0) return LAM_RAISE(err, LAM_E_NO_MEMORY, "metadata");
    LAM_TRY(lam_real_path(f->path, &real, err)); /* "." has no name */
    const char *name = lam_path_base(real);
    lam_code code = lam_set_text(source, "file", name, strlen(name), "the folder's name", err);
    if (code == LAM_OK) code = lam_set_text(source, "name", name, strlen(name), "the folder's name", err);
    lam_free(real);
    if (code == LAM_OK) code = add_licence(f, source, err);
    if (code == LAM_OK) code = add_template(f, s->metadata, err);
    return code == LAM_OK ? add_sampling(f, s->metadata, err) : code;
}

static lam_code read_and_write(struct folder *f, struct lam_base_source *s, const char *out_path,
                               const struct lam_import_options *options, lam_error *err)
{
    LAM_TRY(open_folder(f, err));
    LAM_TRY(lam_config_from_hf(f->config, &s->config, err));
    LAM_TRY(match_tensors(f, s, err));
    LAM_TRY(check_all_biases(f, s, err));
    LAM_TRY(lam_vocab_import_folder(f->path, &s->vocab, &s->vocab_bytes, err));
    LAM_TRY(make_metadata(f, s, err));
    s->files = f->weights->files;
    s->n_files = f->weights->n_files;
    return lam_base_write(s, out_path, options, err);
}

lam_code lam_import_hf(const char *path, const char *out_path, const struct lam_import_options *options, lam_error *err)
{
    struct folder f = {.path = path};
    struct lam_base_source s = {0};
    lam_code code = read_and_write(&f, &s, out_path, options, err);
    lam_base_source_release(&s);
    close_folder(&f);
    return code;
}
