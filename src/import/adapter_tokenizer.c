/* A tokenizer and a chat template in an adapter's folder, as transformers' Trainer leaves them there.
 *
 * Rule. It is the base's if tokenizer_digest is equal. Where it is not (the two sources may say different things: SentencePiece
 * models are scores in one and merges in the other, and GGUF knows less of added tokens; format/vocab.h), it is taken for the
 * base's if every id stands for the same bytes in both and merges, where both have them, are the same list: the adapter's training
 * then saw the ids that the base's tokenizer gives. Ids that only fill up the embedding (unused ones) do not count.
 * added_tokens.json and tokenizer_config.json must name no token that the base lacks or has at another id. special_tokens_map.json
 * gives roles to tokens, and does not count. Everything else is LAM_E_TOKENIZER, also a tokenizer that cannot be compared.
 * A chat template (chat_template.jinja, else the one of tokenizer_config.json) must be the base's but for a newline at its end, which
 * Jinja drops; else LAM_E_TEMPLATE. */
#include "base/alloc.h"
#include "format/vocab.h"
#include "import/adapter_import.h"
#include "import/base_write.h"
#include "text/vocab_import.h"

#include <stdlib.h>
#include <string.h>

static lam_code check_added(const struct lam_vocab *base, const char *text, size_t len, json_int_t id, lam_error *err)
{
    size_t n = 0;
    const uint8_t *there = id >= 0 && id < base->n_tokens ? lam_vocab_token(base, (uint32_t)id, &n) : NULL;
    if (there && n == len && memcmp(there, text, len) == 0) return LAM_OK;
    /* A token whose bytes are not its text, such as "<0x0A>". */
    if (there && lam_vocab_find_text(base, text, len) == (uint32_t)id) return LAM_OK;
    return LAM_RAISE(err, LAM_E_TOKENIZER, "token \"%.100s\" (%lld) is not the base's", text, (long long)id);
}

/* {"<token>": id, …} */
static lam_code check_added_tokens(const json_t *root, const struct lam_vocab *base, lam_error *err)
{
    const char *token;
    json_t *id;
    if (!json_is_object(root)) return LAM_RAISE(err, LAM_E_TOKENIZER, "not an object");
    json_object_foreach((json_t *)root, token, id)
        LAM_TRY(check_added(base, token, strlen(token), json_is_integer(id) ? json_integer_value(id) : -1, err));
    return LAM_OK;
}

/* {"added_tokens_decoder": {"<id>": {"content": "<token>", …}, …}, …} */
static lam_code check_tokenizer_config(const json_t *root, const struct lam_vocab *base, lam_error *err)
{
    const char *key;
    json_t *token;
    json_object_foreach(json_object_get(root, "added_tokens_decoder"), key, token) {
        const json_t *content = json_object_get(token, "content");
        char *end;
        long id = strtol(key, &end, 10);
        if (!json_is_string(content) || *end || end == key)
            return LAM_RAISE(err, LAM_E_TOKENIZER, "added token \"%.100s\" cannot be read", key);
        LAM_TRY(check_added(base, json_string_value(content), json_string_length(content), id, err));
    }
    return LAM_OK;
}

/* The folder and the base, and where differences go. */
struct checker {
    struct lam_adapter_import *import;
    const char *folder;
    struct lam_vocab base;
};

static bool record(struct lam_adapter_import *import, const char *file, const char *what)
{
    json_t *list = json_object_get(import->source, "accepted");
    if (!list && json_object_set_new(import->source, "accepted", json_array()) == 0) list = json_object_get(import->source, "accepted");
    return list && json_array_append_new(list, json_sprintf("%s: %s", file, what)) == 0;
}

/* What one file differs in: a fault, or where the caller accepts it a warning and part of the provenance. */
static lam_code take(struct checker *c, const char *file, const lam_error *difference, lam_error *err)
{
    bool accepted = c->import->accept_tokenizer && (difference->code == LAM_E_TOKENIZER || difference->code == LAM_E_TEMPLATE);
    if (!accepted) return lam_faults_take(&c->import->faults, file, difference, err);
    lam_adapter_warn(c->import, "accepted: %s: %s", file, difference->message);
    return record(c->import, file, difference->message) ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's provenance");
}

/* A JSON file of the folder; *root is NULL if there is none. */
static lam_code load_json(const struct checker *c, const char *file, json_t **root, lam_error *err)
{
    *root = NULL;
    char *path = lam_path_join(c->folder, file);
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "path of %s", file);
    lam_code code = LAM_OK;
    if (lam_path_exists(path)) {
        struct lam_mapping m;
        code = lam_map_file(path, &m, err);
        if (code == LAM_OK) {
            code = lam_json_parse(m.data ? (const char *)m.data : "", m.size, file, root, err);
            lam_unmap_file(&m);
        }
    }
    lam_free(path);
    return code;
}

typedef lam_code (*check_fn)(const json_t *root, const struct lam_vocab *base, lam_error *err);

static lam_code check_json_file(struct checker *c, const char *file, check_fn check, lam_error *err)
{
    json_t *root;
    lam_error difference;
    lam_code code = load_json(c, file, &root, &difference);
    if (code == LAM_OK && root) code = check(root, &c->base, &difference);
    json_decref(root);
    return code == LAM_OK ? LAM_OK : take(c, file, &difference, err);
}

/* The first of names[n] that the folder has; NULL if it has none. */
static lam_code find_file(const char *folder, const char *const *names, size_t n, const char **out, lam_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < n && !*out; i++) {
        bool there;
        LAM_TRY(lam_folder_has(folder, names[i], &there, err));
        if (there) *out = names[i];
    }
    return LAM_OK;
}

static lam_code compare_token(const struct lam_vocab *ours, const struct lam_vocab *base, uint32_t id, lam_error *err)
{
    size_t a_len = 0, b_len = 0;
    const uint8_t *a = id < ours->n_tokens ? lam_vocab_token(ours, id, &a_len) : NULL;
    const uint8_t *b = id < base->n_tokens ? lam_vocab_token(base, id, &b_len) : NULL;
    if (a && b && a_len == b_len && memcmp(a, b, a_len) == 0) return LAM_OK;
    bool a_unused = !a || lam_vocab_type(ours, id) == LAM_TOKEN_UNUSED, b_unused = !b || lam_vocab_type(base, id) == LAM_TOKEN_UNUSED;
    if (a_unused && b_unused) return LAM_OK;
    if (!b)
        return LAM_RAISE(err, LAM_E_TOKENIZER, "the adapter's tokenizer adds token \"%.*s\" (%u); the base has %u tokens",
                         (int)(a_len < 100 ? a_len : 100), (const char *)a, id, base->n_tokens);
    return LAM_RAISE(err, LAM_E_TOKENIZER, "made for another tokenizer: token %u is \"%.*s\" in the adapter's, \"%.*s\" in the base's", id,
                     (int)(a_len < 100 ? a_len : 100), a ? (const char *)a : "", (int)(b_len < 100 ? b_len : 100), (const char *)b);
}

static lam_code compare_tables(const struct lam_vocab *ours, const struct lam_vocab *base, lam_error *err)
{
    uint32_t n = ours->n_tokens > base->n_tokens ? ours->n_tokens : base->n_tokens;
    for (uint32_t id = 0; id < n; id++) LAM_TRY(compare_token(ours, base, id, err));
    if (ours->kind != base->kind || ours->kind == LAM_VOCAB_SPM) return LAM_OK;
    if (ours->n_merges != base->n_merges || memcmp(ours->merges, base->merges, ours->n_merges * sizeof *ours->merges) != 0)
        return LAM_RAISE(err, LAM_E_TOKENIZER, "the adapter's tokenizer has other merges than the base's (%u and %u)", ours->n_merges,
                         base->n_merges);
    return LAM_OK;
}

lam_code lam_adapter_compare_vocabulary(const uint8_t *bytes, size_t len, const struct lam_vocab *base, lam_error *err)
{
    struct lam_vocab ours;
    uint8_t a[LAM_SHA256_BYTES], b[LAM_SHA256_BYTES];
    LAM_TRY(lam_vocab_open(bytes, len, &ours, err));
    LAM_TRY(lam_vocab_digest(&ours, a, err));
    LAM_TRY(lam_vocab_digest(base, b, err));
    return memcmp(a, b, sizeof a) == 0 ? LAM_OK : compare_tables(&ours, base, err);
}

static lam_code check_tokenizer_files(struct checker *c, const char *file, lam_error *err)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    lam_error inner = {0}, difference;
    lam_code code = lam_vocab_import_folder(c->folder, &bytes, &len, &inner);
    if (code == LAM_OK) code = lam_adapter_compare_vocabulary(bytes, len, &c->base, &difference);
    else if (code == LAM_E_NO_MEMORY) return LAM_RAISE(err, code, "%s", inner.message);
    else code = LAM_RAISE(&difference, LAM_E_TOKENIZER, "cannot be compared with the base's tokenizer: %.300s", inner.message);
    lam_free_aligned(bytes);
    return code == LAM_OK ? LAM_OK : take(c, file, &difference, err);
}

static lam_code check_tokenizer(struct checker *c, lam_error *err)
{
    static const char *const loose[] = {"vocab.json", "merges.txt", "vocab.txt", "spiece.model"};
    static const char *const whole[] = {"tokenizer.json", "tokenizer.model"};
    static const char *const parts[] = {"added_tokens.json", "tokenizer_config.json"};
    const struct lam_slm *base = c->import->base;
    const char *readable, *part, *other;
    lam_error difference;
    LAM_TRY(find_file(c->folder, whole, 2, &readable, err));
    LAM_TRY(find_file(c->folder, parts, 2, &part, err));
    LAM_TRY(find_file(c->folder, loose, sizeof loose / sizeof *loose, &other, err));
    if (other && !readable) {
        LAM_RAISE(&difference, LAM_E_TOKENIZER, "a tokenizer of its own, which cannot be compared with the base's");
        LAM_TRY(take(c, other, &difference, err));
    }
    if (!readable && !part) return LAM_OK;
    if (!base->vocab) {
        LAM_RAISE(&difference, LAM_E_TOKENIZER, "a tokenizer of its own, the base has none");
        return take(c, readable ? readable : part, &difference, err);
    }
    LAM_TRY(lam_vocab_open(base->vocab, base->vocab_bytes, &c->base, err));
    LAM_TRY(check_json_file(c, "added_tokens.json", check_added_tokens, err));
    LAM_TRY(check_json_file(c, "tokenizer_config.json", check_tokenizer_config, err));
    return readable ? check_tokenizer_files(c, readable, err) : LAM_OK;
}

static lam_code compare_templates(const struct checker *c, const char *text, size_t len, lam_error *err)
{
    const json_t *own = json_object_get(c->import->base->metadata, "chat_template");
    const char *base = json_string_value(own);
    size_t n = base ? json_string_length(own) : 0;
    if (len && text[len - 1] == '\n') len--;
    if (n && base[n - 1] == '\n') n--;
    if (!base) return LAM_RAISE(err, LAM_E_TEMPLATE, "the adapter was trained with a chat template of %zu bytes, the base has none", len);
    if (len == n && memcmp(text, base, n) == 0) return LAM_OK;
    size_t at = 0;
    while (at < len && at < n && text[at] == base[at]) at++;
    return LAM_RAISE(err, LAM_E_TEMPLATE, "the adapter was trained with another chat template than the base's (%zu and %zu bytes, other from "
                     "byte %zu on)", len, n, at);
}

/* tokenizer_config.json has one template, or a list of named ones of which "default" is meant. NULL if neither. */
static const json_t *find_template(const json_t *tokenizer_config)
{
    const json_t *all = json_object_get(tokenizer_config, "chat_template");
    if (json_is_string(all)) return all;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0) return json_object_get(one, "template");
    }
    return NULL;
}

static lam_code check_template_file(struct checker *c, const char *path, lam_error *err)
{
    struct lam_mapping m;
    lam_error difference;
    LAM_TRY(lam_map_file(path, &m, err));
    lam_code code = compare_templates(c, m.data ? (const char *)m.data : "", m.size, &difference);
    lam_unmap_file(&m);
    return code == LAM_OK ? LAM_OK : take(c, "chat_template.jinja", &difference, err);
}

static lam_code check_template(struct checker *c, lam_error *err)
{
    json_t *root;
    lam_error difference;
    char *path = lam_path_join(c->folder, "chat_template.jinja");
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "path of chat_template.jinja");
    bool there = lam_path_exists(path);
    lam_code code = there ? check_template_file(c, path, err) : LAM_OK;
    lam_free(path);
    if (there || load_json(c, "tokenizer_config.json", &root, &difference) != LAM_OK) return code; /* said by check_tokenizer */
    const json_t *text = find_template(root);
    if (json_is_string(text)) code = compare_templates(c, json_string_value(text), json_string_length(text), &difference);
    json_decref(root);
    return code == LAM_OK ? LAM_OK : take(c, "tokenizer_config.json", &difference, err);
}

lam_code lam_adapter_check_tokenizer(struct lam_adapter_import *import, const char *folder, lam_error *err)
{
    struct checker c = {.import = import, .folder = folder};
    LAM_TRY(check_tokenizer(&c, err));
    return check_template(&c, err);
}
