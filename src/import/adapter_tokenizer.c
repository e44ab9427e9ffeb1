/* A tokenizer in an adapter's folder, as transformers' Trainer leaves one there.
 *
 * Rule. It is the base's if tokenizer_digest is equal. Where it is not (the two sources may say different things: SentencePiece
 * models are scores in one and merges in the other, and GGUF knows less of added tokens; format/vocab.h), it is taken for the
 * base's if every id stands for the same bytes in both and merges, where both have them, are the same list: the adapter's training
 * then saw the ids that the base's tokenizer gives. Ids that only fill up the embedding (unused ones) do not count.
 * added_tokens.json and tokenizer_config.json must name no token that the base lacks or has at another id. special_tokens_map.json
 * and chat templates give roles to tokens, and do not count. Everything else is LAM_E_TOKENIZER, also a tokenizer that cannot be
 * compared. */
#include "base/alloc.h"
#include "format/vocab.h"
#include "import/adapter_import.h"
#include "import/base_write.h"
#include "text/vocab_import.h"

#include <stdlib.h>
#include <string.h>

static lam_code check_added(const struct lam_vocab *base, const char *file, const char *text, size_t len, json_int_t id,
                            lam_error *err)
{
    size_t n = 0;
    const uint8_t *there = id >= 0 && id < base->n_tokens ? lam_vocab_token(base, (uint32_t)id, &n) : NULL;
    if (there && n == len && memcmp(there, text, len) == 0) return LAM_OK;
    /* A token whose bytes are not its text, such as "<0x0A>". */
    if (there && lam_vocab_find_text(base, text, len) == (uint32_t)id) return LAM_OK;
    return LAM_RAISE(err, LAM_E_TOKENIZER, "%s: token \"%.100s\" (%lld) is not the base's", file, text, (long long)id);
}

/* {"<token>": id, …} */
static lam_code check_added_tokens(const json_t *root, const struct lam_vocab *base, const char *file, lam_error *err)
{
    const char *token;
    json_t *id;
    if (!json_is_object(root)) return LAM_RAISE(err, LAM_E_TOKENIZER, "%s: not an object", file);
    json_object_foreach((json_t *)root, token, id)
        LAM_TRY(check_added(base, file, token, strlen(token), json_is_integer(id) ? json_integer_value(id) : -1, err));
    return LAM_OK;
}

/* {"added_tokens_decoder": {"<id>": {"content": "<token>", …}, …}, …} */
static lam_code check_tokenizer_config(const json_t *root, const struct lam_vocab *base, const char *file, lam_error *err)
{
    const char *key;
    json_t *token;
    json_object_foreach(json_object_get(root, "added_tokens_decoder"), key, token) {
        const json_t *content = json_object_get(token, "content");
        char *end;
        long id = strtol(key, &end, 10);
        if (!json_is_string(content) || *end || end == key)
            return LAM_RAISE(err, LAM_E_TOKENIZER, "%s: added token \"%.100s\" cannot be read", file, key);
        LAM_TRY(check_added(base, file, json_string_value(content), json_string_length(content), id, err));
    }
    return LAM_OK;
}

typedef lam_code (*check_fn)(const json_t *root, const struct lam_vocab *base, const char *file, lam_error *err);

static lam_code check_json_file(const char *folder, const char *file, const struct lam_vocab *base, check_fn check, lam_error *err)
{
    char *path = lam_path_join(folder, file);
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "path of %s", file);
    lam_code code = LAM_OK;
    if (lam_path_exists(path)) {
        struct lam_mapping m;
        json_t *root = NULL;
        code = lam_map_file(path, &m, err);
        if (code == LAM_OK) {
            code = lam_json_parse(m.data ? (const char *)m.data : "", m.size, file, &root, err);
            if (code == LAM_OK) code = check(root, base, file, err);
            json_decref(root);
            lam_unmap_file(&m);
        }
    }
    lam_free(path);
    return code;
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

static lam_code compare_vocabularies(const uint8_t *bytes, size_t len, const struct lam_vocab *base, lam_error *err)
{
    struct lam_vocab ours;
    uint8_t a[LAM_SHA256_BYTES], b[LAM_SHA256_BYTES];
    LAM_TRY(lam_vocab_open(bytes, len, &ours, err));
    LAM_TRY(lam_vocab_digest(&ours, a, err));
    LAM_TRY(lam_vocab_digest(base, b, err));
    return memcmp(a, b, sizeof a) == 0 ? LAM_OK : compare_tables(&ours, base, err);
}

static lam_code check_tokenizer_files(const char *folder, const struct lam_vocab *base, lam_error *err)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    lam_error inner = {0};
    lam_code code = lam_vocab_import_folder(folder, &bytes, &len, &inner);
    if (code == LAM_E_NO_MEMORY) return LAM_RAISE(err, code, "%s", inner.message);
    if (code != LAM_OK)
        return LAM_RAISE(err, LAM_E_TOKENIZER, "%.200s has a tokenizer that cannot be compared with the base's: %.250s", folder,
                         inner.message);
    code = compare_vocabularies(bytes, len, base, err);
    lam_free_aligned(bytes);
    return code;
}

lam_code lam_adapter_check_tokenizer(const char *folder, const struct lam_slm *base, lam_error *err)
{
    static const char *const loose[] = {"vocab.json", "merges.txt", "vocab.txt", "spiece.model"};
    static const char *const whole[] = {"tokenizer.json", "tokenizer.model"}, *const parts[] = {"added_tokens.json", "tokenizer_config.json"};
    const char *readable, *part, *other;
    LAM_TRY(find_file(folder, whole, 2, &readable, err));
    LAM_TRY(find_file(folder, parts, 2, &part, err));
    LAM_TRY(find_file(folder, loose, sizeof loose / sizeof *loose, &other, err));
    if (other && !readable)
        return LAM_RAISE(err, LAM_E_TOKENIZER, "%s has a tokenizer of its own (%s), which cannot be compared with the base's", folder,
                         other);
    if (!readable && !part) return LAM_OK;
    if (!base->vocab) return LAM_RAISE(err, LAM_E_TOKENIZER, "%s has a tokenizer of its own, the base has none", folder);
    struct lam_vocab vocab;
    LAM_TRY(lam_vocab_open(base->vocab, base->vocab_bytes, &vocab, err));
    LAM_TRY(check_json_file(folder, "added_tokens.json", &vocab, check_added_tokens, err));
    LAM_TRY(check_json_file(folder, "tokenizer_config.json", &vocab, check_tokenizer_config, err));
    return readable ? check_tokenizer_files(folder, &vocab, err) : LAM_OK;
}
