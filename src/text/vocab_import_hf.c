#include "text/vocab_import.h"

#include "base/alloc.h"
#include "text/pretok.h"
#include "text/vocab_common.h"
#include "text/vocab_hf.h"

#include <stdio.h>
#include <string.h>

/* A token by its id while the two lists of tokenizer.json are brought together. */
struct entry {
    const char *text; /* borrowed from the JSON; NULL: no token has this id */
    size_t len;
    enum lam_token_type type;
    const json_t *added; /* its entry in added_tokens, or NULL */
};

static bool starts(const char *text, size_t len, const char *with) { return len >= strlen(with) && memcmp(text, with, strlen(with)) == 0; }
static bool ends(const char *text, size_t len, const char *with)
{
    size_t n = strlen(with);
    return len >= n && memcmp(text + len - n, with, n) == 0;
}

/* Added tokens that are control tokens by their look although the file calls them plain: what converters to GGUF do, so
 * that both imports agree, and users' text cannot forge them. */
static bool looks_special(const char *text, size_t len)
{
    return (starts(text, len, "<|") && ends(text, len, "|>")) || (starts(text, len, "<\xEF\xBD\x9C") && ends(text, len, "\xEF\xBD\x9C>")) ||
           (starts(text, len, "<unused") && ends(text, len, ">")) || (len == 5 && starts(text, len, "<pad>")) ||
           (len == 6 && starts(text, len, "<mask>")) || (len == 7 && starts(text, len, "<2mass>")) || (len == 7 && starts(text, len, "[@BOS@]"));
}

static lam_code token_id(const json_t *value, uint32_t n, uint32_t *out, lam_error *err)
{
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= n) return LAM_RAISE(err, LAM_E_TOKEN, "tokenizer.json: token id %lld", (long long)id);
    *out = (uint32_t)id;
    return LAM_OK;
}

/* Ids may have holes, but not so many that a small file fills memory. */
static lam_code count_ids(const json_t *vocab, const json_t *added, uint32_t *n, lam_error *err)
{
    size_t limit = 2 * (json_object_size(vocab) + json_array_size(added)) + 4096;
    if (limit > LAM_VOCAB_MAX_TOKENS) limit = LAM_VOCAB_MAX_TOKENS;
    uint32_t id = 0;
    const char *key;
    json_t *value;
    size_t i;
    *n = 0;
    json_object_foreach((json_t *)vocab, key, value) {
        LAM_TRY(token_id(value, (uint32_t)limit, &id, err));
        if (id >= *n) *n = id + 1;
    }
    json_array_foreach(added, i, value) {
        LAM_TRY(token_id(json_object_get(value, "id"), (uint32_t)limit, &id, err));
        if (id >= *n) *n = id + 1;
    }
    return LAM_OK;
}

static lam_code gather_vocab(const json_t *vocab, struct entry *entries, uint32_t n, lam_error *err)
{
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach((json_t *)vocab, key, len, value) {
        uint32_t id = 0;
        LAM_TRY(token_id(value, n, &id, err));
        if (entries[id].text)
            return LAM_RAISE(err, LAM_E_DUPLICATE, "tokenizer.json: token id %u is both \"%.64s\" and \"%.64s\"", id, entries[id].text, key);
        entries[id] = (struct entry){.text = key, .len = len, .type = LAM_TOKEN_NORMAL};
    }
    return LAM_OK;
}

static lam_code gather_added(const json_t *added, struct entry *entries, uint32_t n, lam_error *err)
{
    static const char *const fields[] = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", NULL};
    size_t i;
    json_t *item;
    json_array_foreach(added, i, item) {
        uint32_t id = 0;
        bool special = false;
        LAM_TRY(lam_hf_known_fields(item, "added token", fields, err));
        LAM_TRY(token_id(json_object_get(item, "id"), n, &id, err));
        LAM_TRY(lam_hf_bool(item, "special", &special, err));
        const json_t *content = json_object_get(item, "content");
        const char *text = json_string_value(content);
        size_t len = json_string_length(content);
        if (!text || len == 0) return LAM_RAISE(err, LAM_E_FORMAT, "tokenizer.json: added token %u without content", id);
        if (entries[id].added) return LAM_RAISE(err, LAM_E_DUPLICATE, "tokenizer.json: added token %u occurs twice", id);
        if (entries[id].text && (entries[id].len != len || memcmp(entries[id].text, text, len) != 0))
            return LAM_RAISE(err, LAM_E_DUPLICATE, "tokenizer.json: token id %u is both \"%.64s\" and \"%.64s\"", id, entries[id].text, text);
        entries[id] = (struct entry){.text = text, .len = len, .added = item,
                                     .type = special || looks_special(text, len) ? LAM_TOKEN_CONTROL : LAM_TOKEN_USER_DEFINED};
    }
    return LAM_OK;
}

static bool is_byte_name(const struct entry *e)
{
    return e->len == 6 && starts(e->text, e->len, "<0x") && e->text[5] == '>' && strspn(e->text + 3, "0123456789ABCDEF") == 2;
}

static lam_code add_token(struct lam_hf *hf, const struct entry *e, uint32_t id, const json_t *unk)
{
    if (!e->text) {
        char pad[32];
        int n = snprintf(pad, sizeof pad, "[PAD%u]", id);
        return lam_vocab_out_token(hf->out, pad, (size_t)n, LAM_TOKEN_UNUSED | LAM_TOKEN_LITERAL, 0, hf->err);
    }
    if (hf->kind == LAM_VOCAB_BPE_BYTES)
        return lam_vocab_add_printable(hf->out, e->text, e->len, e->type, e->added != NULL, &hf->scratch[0], hf->err);
    enum lam_token_type type = e->type;
    if ((hf->flags & LAM_VOCAB_BYTE_FALLBACK) && is_byte_name(e)) type = LAM_TOKEN_BYTE;
    if (unk && json_string_length(unk) == e->len && memcmp(json_string_value(unk), e->text, e->len) == 0) {
        type = LAM_TOKEN_UNKNOWN;
        lam_vocab_out_ids(hf->out)->unk = id;
    }
    return lam_vocab_out_token(hf->out, e->text, e->len, (uint8_t)type, 0, hf->err);
}

static lam_code add_tokens(struct lam_hf *hf, const struct entry *entries, uint32_t n, const json_t *unk)
{
    for (uint32_t id = 0; id < n; id++) LAM_TRY(add_token(hf, &entries[id], id, unk));
    bool all;
    lam_vocab_find_bytes(hf->out, hf->kind, &all);
    if (hf->kind != LAM_VOCAB_BPE_BYTES) return LAM_OK;
    if (!all && (hf->flags & LAM_VOCAB_BYTE_FALLBACK))
        return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: byte_fallback of a byte-level vocabulary that lacks bytes");
    /* Where every byte has its token these cannot matter, and GGUF doesn't say them. */
    hf->flags &= ~(uint32_t)(LAM_VOCAB_BYTE_FALLBACK | (all ? LAM_VOCAB_FUSE_UNKNOWN | LAM_VOCAB_EMIT_UNKNOWN : 0));
    if (json_is_string(unk)) {
        uint32_t id = lam_vocab_out_find(hf->out, true, json_string_value(unk), json_string_length(unk));
        if (id == LAM_TOKEN_NONE) return LAM_RAISE(hf->err, LAM_E_TOKEN, "tokenizer.json: unk_token \"%.64s\" is no added token", json_string_value(unk));
        lam_vocab_out_ids(hf->out)->unk = id;
    }
    return LAM_OK;
}

/* "left right" in older files, ["left", "right"] in newer ones. */
static lam_code merge_parts(const json_t *merge, const char *parts[2], size_t lens[2], lam_error *err)
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        for (size_t i = 0; i < 2; i++) {
            parts[i] = json_string_value(json_array_get(merge, i));
            lens[i] = json_string_length(json_array_get(merge, i));
        }
        if (parts[0] && parts[1]) return LAM_OK;
    } else if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        size_t len = json_string_length(merge);
        const char *space = memchr(text, ' ', len);
        if (space && !memchr(space + 1, ' ', len - (size_t)(space + 1 - text))) {
            parts[0] = text;
            lens[0] = (size_t)(space - text);
            parts[1] = space + 1;
            lens[1] = len - lens[0] - 1;
            return LAM_OK;
        }
    }
    return LAM_RAISE(err, LAM_E_FORMAT, "tokenizer.json: a merge is not two tokens");
}

static lam_code add_merges(struct lam_hf *hf, const json_t *merges)
{
    if (!json_is_array(merges)) return LAM_RAISE(hf->err, LAM_E_FORMAT, "tokenizer.json: no merges");
    size_t i;
    json_t *merge;
    json_array_foreach(merges, i, merge) {
        const char *parts[2];
        size_t lens[2];
        LAM_TRY(merge_parts(merge, parts, lens, hf->err));
        LAM_TRY(lam_vocab_add_merge(hf->out, hf->kind, parts[0], lens[0], parts[1], lens[1], hf->scratch, hf->err));
    }
    return LAM_OK;
}

/* Fields of the BPE model that we know; flags from them. */
static lam_code read_model(struct lam_hf *hf, const json_t *model)
{
    static const char *const fields[] = {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                         "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges", NULL};
    if (strcmp(lam_hf_type(model), "BPE") != 0)
        return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: model \"%.64s\" is not supported, only BPE", lam_hf_type(model));
    LAM_TRY(lam_hf_known_fields(model, "model", fields, hf->err));
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: dropout");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const json_t *affix = json_object_get(model, affixes[i]);
        if (affix && !json_is_null(affix) && (!json_is_string(affix) || json_string_length(affix) > 0))
            return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: %s", affixes[i]);
    }
    const struct { const char *name; uint32_t flag; } flags[] = {
        {"fuse_unk", LAM_VOCAB_FUSE_UNKNOWN}, {"byte_fallback", LAM_VOCAB_BYTE_FALLBACK}, {"ignore_merges", LAM_VOCAB_IGNORE_MERGES}};
    for (int i = 0; i < 3; i++) {
        bool set = false;
        LAM_TRY(lam_hf_bool(model, flags[i].name, &set, hf->err));
        if (set) hf->flags |= flags[i].flag;
    }
    const json_t *unk = json_object_get(model, "unk_token");
    if (unk && !json_is_null(unk) && json_string_length(unk) == 0)
        return LAM_RAISE(hf->err, LAM_E_FORMAT, "tokenizer.json: unk_token is no token");
    if (json_is_string(unk)) hf->flags |= LAM_VOCAB_EMIT_UNKNOWN;
    if (!json_is_object(json_object_get(model, "vocab"))) return LAM_RAISE(hf->err, LAM_E_FORMAT, "tokenizer.json: no vocabulary");
    return LAM_OK;
}

/* The flags of an added token that change where it is found. normalised is the text that it has after normalising. */
static lam_code add_special(struct lam_hf *hf, const struct entry *e, uint32_t id, enum lam_token_type type, const struct lam_str *normalised)
{
    bool lstrip = false, rstrip = false, word = false;
    LAM_TRY(lam_hf_bool(e->added, "lstrip", &lstrip, hf->err));
    LAM_TRY(lam_hf_bool(e->added, "rstrip", &rstrip, hf->err));
    LAM_TRY(lam_hf_bool(e->added, "single_word", &word, hf->err));
    uint32_t flags = (lstrip ? LAM_SPECIAL_LSTRIP : 0u) | (rstrip ? LAM_SPECIAL_RSTRIP : 0u) | (word ? LAM_SPECIAL_SINGLE_WORD : 0u) |
                     (type != LAM_TOKEN_USER_DEFINED ? LAM_SPECIAL_CONTROL : 0u);
    if (!normalised) return lam_vocab_out_special(hf->out, id, flags, e->text, e->len, hf->err);
    if (normalised->len == 0) return LAM_OK;
    return lam_vocab_out_special(hf->out, id, flags | LAM_SPECIAL_NORMALIZED, normalised->data, normalised->len, hf->err);
}

static lam_code add_special_list(struct lam_hf *hf, const struct entry *entries, uint32_t n, bool normalised,
                                 const struct lam_pipeline *pipeline, struct lam_pipeline_work *work)
{
    for (uint32_t id = 0; id < n; id++) {
        if (!entries[id].added) continue;
        bool wants = false;
        LAM_TRY(lam_hf_bool(entries[id].added, "normalized", &wants, hf->err));
        /* Without a normaliser the two lists seek the same text. */
        if ((wants && hf->normalizes) != normalised) continue;
        size_t len;
        uint8_t type;
        lam_vocab_out_bytes(hf->out, id, &len, &type);
        if (normalised) LAM_TRY(lam_pipeline_normalize(pipeline, work, entries[id].text, entries[id].len, true, hf->err));
        LAM_TRY(add_special(hf, &entries[id], id, (enum lam_token_type)(type & LAM_TOKEN_TYPE_MASK), normalised ? &work->text : NULL));
    }
    return LAM_OK;
}

/* Added tokens with normalized = true are sought by their normalised text, which takes the pipeline to know. */
static lam_code add_normalised_specials(struct lam_hf *hf, const struct entry *entries, uint32_t n)
{
    if (!hf->normalizes) return LAM_OK;
    uint8_t *bytes = NULL;
    size_t len;
    struct lam_vocab view;
    struct lam_pipeline *pipeline = NULL;
    struct lam_pipeline_work work = {0};
    lam_code code = lam_vocab_out_finish(hf->out, &bytes, &len, hf->err);
    if (code == LAM_OK) code = lam_vocab_open(bytes, len, &view, hf->err);
    if (code == LAM_OK) code = lam_pipeline_new(&view, &pipeline, hf->err);
    if (code == LAM_OK) code = lam_pipeline_work_init(&work, hf->err);
    if (code == LAM_OK) code = add_special_list(hf, entries, n, true, pipeline, &work);
    lam_pipeline_work_release(&work);
    lam_pipeline_free(pipeline);
    lam_free_aligned(bytes);
    return code;
}

static lam_code check_metaspace(struct lam_hf *hf, const struct entry *entries, uint32_t n)
{
    if (!hf->metaspace || !hf->normalizes) return LAM_OK;
    for (uint32_t id = 0; id < n; id++)
        if (entries[id].added && json_is_true(json_object_get(entries[id].added, "normalized")))
            return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: normalized added token %u beside Metaspace and a normalizer", id);
    return LAM_OK;
}

/* transformers adds tokens that stand in tokenizer_config.json alone; so must we, or refuse. */
static lam_code check_config_tokens(struct lam_hf *hf, const struct entry *entries)
{
    const char *key;
    json_t *token;
    json_object_foreach(json_object_get(hf->config, "added_tokens_decoder"), key, token) {
        const json_t *text = lam_hf_token_text(token);
        uint32_t id = !text ? LAM_TOKEN_NONE
                            : lam_vocab_out_find(hf->out, hf->kind == LAM_VOCAB_BPE_BYTES, json_string_value(text), json_string_length(text));
        if (id == LAM_TOKEN_NONE || !entries[id].added)
            return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer_config.json adds token %.32s \"%.64s\", which tokenizer.json lacks", key,
                             text ? json_string_value(text) : "");
    }
    bool prefix = false;
    if (hf->kind == LAM_VOCAB_BPE_BYTES) LAM_TRY(lam_hf_bool(hf->config, "add_prefix_space", &prefix, hf->err));
    return prefix ? LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer_config.json: add_prefix_space") : LAM_OK;
}

static lam_code fill(struct lam_hf *hf, const json_t *generation, struct entry *entries, uint32_t n)
{
    const json_t *model = json_object_get(hf->tokenizer, "model"), *added = json_object_get(hf->tokenizer, "added_tokens");
    const json_t *unk = json_object_get(model, "unk_token");
    LAM_TRY(gather_vocab(json_object_get(model, "vocab"), entries, n, hf->err));
    LAM_TRY(gather_added(added, entries, n, hf->err));
    LAM_TRY(add_tokens(hf, entries, n, json_is_string(unk) ? unk : NULL));
    LAM_TRY(add_merges(hf, json_object_get(model, "merges")));
    LAM_TRY(lam_hf_steps(hf));
    LAM_TRY(check_metaspace(hf, entries, n));
    LAM_TRY(check_config_tokens(hf, entries));
    LAM_TRY(lam_hf_apply_config(hf->config, hf->out, false, hf->err));
    LAM_TRY(lam_hf_post_processor(hf));
    if (!hf->has_template) LAM_TRY(lam_hf_apply_config(hf->config, hf->out, true, hf->err));
    lam_vocab_out_flags(hf->out, hf->flags);
    LAM_TRY(add_special_list(hf, entries, n, false, NULL, NULL));
    LAM_TRY(add_normalised_specials(hf, entries, n));
    LAM_TRY(lam_hf_apply_generation(generation, hf->out, hf->err));
    return lam_vocab_add_eog(hf->out, hf->err);
}

static lam_code import(struct lam_hf *hf, const json_t *generation, uint8_t **bytes, size_t *len)
{
    static const char *const fields[] = {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                         "post_processor", "decoder", "model", NULL};
    const json_t *model = json_object_get(hf->tokenizer, "model");
    uint32_t n = 0;
    LAM_TRY(lam_hf_known_fields(hf->tokenizer, "the file", fields, hf->err));
    hf->kind = lam_hf_kind(hf->tokenizer);
    LAM_TRY(read_model(hf, model));
    const json_t *added = json_object_get(hf->tokenizer, "added_tokens");
    if (added && !json_is_array(added) && !json_is_null(added))
        return LAM_RAISE(hf->err, LAM_E_FORMAT, "tokenizer.json: added_tokens is not a list");
    LAM_TRY(count_ids(json_object_get(model, "vocab"), added, &n, hf->err));
    LAM_TRY(lam_vocab_out_new(hf->kind, &hf->out, hf->err));
    struct entry *entries = lam_alloc(n, sizeof *entries);
    lam_code code = entries ? fill(hf, generation, entries, n) : LAM_RAISE(hf->err, LAM_E_NO_MEMORY, "%u tokens", n);
    if (code == LAM_OK) code = lam_vocab_out_finish(hf->out, bytes, len, hf->err);
    lam_free(entries);
    lam_vocab_out_free(hf->out);
    return code;
}

lam_code lam_vocab_import_hf(const struct lam_vocab_source *tokenizer, const struct lam_vocab_source *config,
                             const struct lam_vocab_source *generation, uint8_t **bytes, size_t *len, lam_error *err)
{
    json_t *roots[3] = {0};
    lam_code code = lam_hf_parse(tokenizer, "tokenizer.json", &roots[0], err);
    if (code == LAM_OK && !roots[0]) code = LAM_RAISE(err, LAM_E_ARGUMENT, "no tokenizer.json");
    if (code == LAM_OK) code = lam_hf_parse(config, "tokenizer_config.json", &roots[1], err);
    if (code == LAM_OK) code = lam_hf_parse(generation, "generation_config.json", &roots[2], err);
    struct lam_hf hf = {.tokenizer = roots[0], .config = roots[1], .err = err};
    if (code == LAM_OK) code = import(&hf, roots[2], bytes, len);
    for (int i = 0; i < 3; i++) json_decref(roots[i]);
    lam_str_release(&hf.scratch[0]);
    lam_str_release(&hf.scratch[1]);
    return code;
}
