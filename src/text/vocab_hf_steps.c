/* tokenizer.json: normalizer, pre_tokenizer, decoder and post_processor. */
#include "text/pretok.h"
#include "text/vocab_common.h"
#include "text/vocab_hf.h"

#include <string.h>

static const char *string_of(const json_t *value, size_t *len)
{
    *len = json_string_length(value);
    return json_is_string(value) ? json_string_value(value) : NULL;
}

static bool is(const json_t *object, const char *type) { return strcmp(lam_hf_type(object), type) == 0; }

static lam_code refuse(struct lam_hf *hf, const char *part, const json_t *object)
{
    lam_code code = strcmp(part, "pre_tokenizer") == 0 ? LAM_E_PRETOKENIZER : LAM_E_UNSUPPORTED;
    return LAM_RAISE(hf->err, code, "tokenizer.json: %s \"%.64s\" is not supported", part, lam_hf_type(object));
}

static lam_code step(struct lam_hf *hf, enum lam_step_kind kind, uint8_t flags, const char *a, size_t a_len, const char *b, size_t b_len)
{
    return lam_vocab_out_step(hf->out, kind, flags, a, a_len, b, b_len, hf->err);
}

/* pattern: {"String": s} */
static const char *literal_pattern(const json_t *object, size_t *len)
{
    return string_of(json_object_get(json_object_get(object, "pattern"), "String"), len);
}

static lam_code normalizer(struct lam_hf *hf, const json_t *object, int depth)
{
    static const char *const fields[] = {"type", "normalizers", "prepend", "pattern", "content", NULL};
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    if (!object || json_is_null(object)) return LAM_OK;
    LAM_TRY(lam_hf_known_fields(object, "normalizer", fields, hf->err));
    if (is(object, "Sequence") && depth < 4) {
        size_t i;
        json_t *item;
        json_array_foreach(json_object_get(object, "normalizers"), i, item) LAM_TRY(normalizer(hf, item, depth + 1));
        return LAM_OK;
    }
    hf->normalizes = true;
    for (int i = 0; i < 4; i++)
        if (is(object, forms[i])) return step(hf, (enum lam_step_kind)(LAM_STEP_NFC + i), 0, "", 0, "", 0);
    size_t a_len, b_len;
    if (is(object, "Prepend")) {
        const char *a = string_of(json_object_get(object, "prepend"), &a_len);
        if (!a || a_len == 0) return refuse(hf, "normalizer", object);
        return step(hf, LAM_STEP_PREPEND, 0, a, a_len, "", 0);
    }
    if (is(object, "Replace")) {
        const char *a = literal_pattern(object, &a_len), *b = string_of(json_object_get(object, "content"), &b_len);
        if (!a || !b || a_len == 0)
            return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: normalizer \"Replace\" without a string pattern is not supported");
        return step(hf, LAM_STEP_REPLACE, 0, a, a_len, b, b_len);
    }
    return refuse(hf, "normalizer", object);
}

static bool split_behavior(const json_t *object, uint8_t *out)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = json_string_value(json_object_get(object, "behavior"));
    for (uint8_t i = 0; name && i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static lam_code split(struct lam_hf *hf, const json_t *object)
{
    static const char *const fields[] = {"type", "pattern", "behavior", "invert", NULL};
    uint8_t flags;
    bool invert = false;
    LAM_TRY(lam_hf_known_fields(object, "pre_tokenizer Split", fields, hf->err));
    LAM_TRY(lam_hf_bool(object, "invert", &invert, hf->err));
    if (!split_behavior(object, &flags)) return refuse(hf, "pre_tokenizer", object);
    if (invert) flags |= LAM_SPLIT_INVERT;
    size_t len;
    const char *text = literal_pattern(object, &len);
    if (text && len > 0) return step(hf, LAM_STEP_SPLIT_TEXT, flags, text, len, "", 0);
    text = string_of(json_object_get(json_object_get(object, "pattern"), "Regex"), &len);
    if (!text || len == 0) return refuse(hf, "pre_tokenizer", object);
    return step(hf, LAM_STEP_SPLIT_REGEX, flags, text, len, "", 0);
}

static lam_code byte_level(struct lam_hf *hf, const json_t *object, bool last)
{
    static const char *const fields[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    bool prefix = true, regex = true;
    LAM_TRY(lam_hf_known_fields(object, "pre_tokenizer ByteLevel", fields, hf->err));
    LAM_TRY(lam_hf_bool(object, "add_prefix_space", &prefix, hf->err));
    LAM_TRY(lam_hf_bool(object, "use_regex", &regex, hf->err));
    if (prefix) return LAM_RAISE(hf->err, LAM_E_PRETOKENIZER, "tokenizer.json: ByteLevel with add_prefix_space is not supported");
    if (!last) return LAM_RAISE(hf->err, LAM_E_PRETOKENIZER, "tokenizer.json: ByteLevel before other pre-tokenizers is not supported");
    return regex ? step(hf, LAM_STEP_SPLIT_REGEX, LAM_SPLIT_ISOLATED, lam_pretok_gpt2, strlen(lam_pretok_gpt2), "", 0) : LAM_OK;
}

static lam_code digits(struct lam_hf *hf, const json_t *object)
{
    static const char *const fields[] = {"type", "individual_digits", NULL};
    bool individual = false;
    LAM_TRY(lam_hf_known_fields(object, "pre_tokenizer Digits", fields, hf->err));
    LAM_TRY(lam_hf_bool(object, "individual_digits", &individual, hf->err));
    const char *expression = individual ? "\\p{N}" : "\\p{N}+";
    return step(hf, LAM_STEP_SPLIT_REGEX, LAM_SPLIT_ISOLATED, expression, strlen(expression), "", 0);
}

static lam_code punctuation(struct lam_hf *hf, const json_t *object)
{
    static const char expression[] = "[!-/:-@\\[-`{-~\\p{P}]";
    uint8_t flags = LAM_SPLIT_ISOLATED;
    if (json_object_get(object, "behavior") && !split_behavior(object, &flags)) return refuse(hf, "pre_tokenizer", object);
    return step(hf, LAM_STEP_SPLIT_REGEX, flags, expression, strlen(expression), "", 0);
}

/* scheme: "always", "first" or "never"; older files say add_prefix_space. */
static lam_code prepend_scheme(struct lam_hf *hf, const json_t *object, const char **out)
{
    bool prefix = true;
    LAM_TRY(lam_hf_bool(object, "add_prefix_space", &prefix, hf->err));
    const char *scheme = json_string_value(json_object_get(object, "prepend_scheme"));
    *out = scheme ? scheme : prefix ? "always" : "never";
    if (strcmp(*out, "always") != 0 && strcmp(*out, "first") != 0 && strcmp(*out, "never") != 0)
        return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: prepend_scheme \"%.32s\"", *out);
    return LAM_OK;
}

static lam_code metaspace(struct lam_hf *hf, const json_t *object, bool only)
{
    static const char *const fields[] = {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep", NULL};
    LAM_TRY(lam_hf_known_fields(object, "pre_tokenizer Metaspace", fields, hf->err));
    size_t len;
    const char *mark = string_of(json_object_get(object, "replacement"), &len), *scheme;
    bool splits = true;
    LAM_TRY(lam_hf_bool(object, "split", &splits, hf->err));
    LAM_TRY(prepend_scheme(hf, object, &scheme));
    if (!mark || strcmp(mark, LAM_SPACE_MARK) != 0 || !only) return refuse(hf, "pre_tokenizer", object);
    hf->metaspace = true;
    LAM_TRY(step(hf, LAM_STEP_REPLACE, 0, " ", 1, mark, len));
    uint8_t flags = LAM_PREPEND_UNLESS_PRESENT | (strcmp(scheme, "first") == 0 ? LAM_PREPEND_FIRST_ONLY : 0);
    if (strcmp(scheme, "never") != 0) LAM_TRY(step(hf, LAM_STEP_PREPEND, flags, mark, len, "", 0));
    return splits ? step(hf, LAM_STEP_SPLIT_TEXT, LAM_SPLIT_MERGED_WITH_NEXT, mark, len, "", 0) : LAM_OK;
}

static lam_code pre_tokenizer(struct lam_hf *hf, const json_t *object, bool only, bool last, int depth)
{
    if (!object || json_is_null(object)) return LAM_OK;
    if (is(object, "Sequence") && depth < 4) {
        static const char *const fields[] = {"type", "pretokenizers", NULL};
        LAM_TRY(lam_hf_known_fields(object, "pre_tokenizer Sequence", fields, hf->err));
        const json_t *items = json_object_get(object, "pretokenizers");
        size_t n = json_array_size(items);
        for (size_t i = 0; i < n; i++)
            LAM_TRY(pre_tokenizer(hf, json_array_get(items, i), only && n == 1, last && i + 1 == n, depth + 1));
        return LAM_OK;
    }
    if (is(object, "Split")) return split(hf, object);
    if (is(object, "ByteLevel")) return byte_level(hf, object, last);
    if (is(object, "Digits")) return digits(hf, object);
    if (is(object, "Punctuation")) return punctuation(hf, object);
    if (is(object, "Metaspace")) return metaspace(hf, object, only);
    return refuse(hf, "pre_tokenizer", object);
}

/* What the decoder of a character-level vocabulary does to the first space. */
static lam_code text_decoder(struct lam_hf *hf, const json_t *object, int depth)
{
    if (is(object, "Sequence") && depth < 4) {
        size_t i;
        json_t *item;
        json_array_foreach(json_object_get(object, "decoders"), i, item) LAM_TRY(text_decoder(hf, item, depth + 1));
        return LAM_OK;
    }
    if (is(object, "ByteFallback")) hf->decodes_bytes = true;
    if (is(object, "ByteFallback") || is(object, "Fuse")) return LAM_OK;
    size_t len;
    if (is(object, "Replace")) {
        const char *from = literal_pattern(object, &len), *to = json_string_value(json_object_get(object, "content"));
        return from && to && strcmp(from, LAM_SPACE_MARK) == 0 && strcmp(to, " ") == 0 ? LAM_OK : refuse(hf, "decoder", object);
    }
    if (is(object, "Strip")) {
        const char *content = json_string_value(json_object_get(object, "content"));
        if (!content || strcmp(content, " ") != 0 || json_integer_value(json_object_get(object, "start")) != 1 ||
            json_integer_value(json_object_get(object, "stop")) != 0)
            return refuse(hf, "decoder", object);
        hf->flags |= LAM_VOCAB_SPACE_PREFIX;
        return LAM_OK;
    }
    if (is(object, "Metaspace")) {
        const char *scheme;
        LAM_TRY(prepend_scheme(hf, object, &scheme));
        if (strcmp(scheme, "never") != 0) hf->flags |= LAM_VOCAB_SPACE_PREFIX;
        return LAM_OK;
    }
    return refuse(hf, "decoder", object);
}

enum lam_vocab_kind lam_hf_kind(const json_t *tokenizer)
{
    const json_t *pre = json_object_get(tokenizer, "pre_tokenizer");
    for (int depth = 0; depth < 4 && is(pre, "Sequence"); depth++) {
        const json_t *items = json_object_get(pre, "pretokenizers");
        pre = json_array_get(items, json_array_size(items) ? json_array_size(items) - 1 : 0);
    }
    return is(pre, "ByteLevel") ? LAM_VOCAB_BPE_BYTES : LAM_VOCAB_BPE_TEXT;
}

lam_code lam_hf_steps(struct lam_hf *hf)
{
    LAM_TRY(normalizer(hf, json_object_get(hf->tokenizer, "normalizer"), 0));
    LAM_TRY(pre_tokenizer(hf, json_object_get(hf->tokenizer, "pre_tokenizer"), true, true, 0));
    const json_t *decoder = json_object_get(hf->tokenizer, "decoder");
    if (hf->kind == LAM_VOCAB_BPE_TEXT) {
        LAM_TRY(text_decoder(hf, decoder, 0));
        if ((hf->flags & LAM_VOCAB_BYTE_FALLBACK) && !hf->decodes_bytes)
            return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: byte_fallback without ByteFallback in the decoder");
        return LAM_OK;
    }
    return is(decoder, "ByteLevel") ? LAM_OK : refuse(hf, "decoder", decoder);
}

/* The one id that a template item of "SpecialToken" stands for; LAM_TOKEN_NONE if it isn't one. */
static uint32_t template_token(const json_t *processor, const json_t *item)
{
    const json_t *special = json_object_get(item, "SpecialToken");
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *entry = name ? json_object_get(json_object_get(processor, "special_tokens"), name) : NULL;
    const json_t *ids = json_object_get(entry, "ids");
    if (json_array_size(ids) != 1 || !json_is_integer(json_array_get(ids, 0))) return LAM_TOKEN_NONE;
    json_int_t id = json_integer_value(json_array_get(ids, 0));
    return id >= 0 && id < LAM_VOCAB_MAX_TOKENS ? (uint32_t)id : LAM_TOKEN_NONE;
}

/* [BOS] text [EOS]. */
static lam_code template(struct lam_hf *hf, const json_t *processor)
{
    const json_t *single = json_object_get(processor, "single");
    size_t n = json_array_size(single), text = 0;
    while (text < n && !json_object_get(json_array_get(single, text), "Sequence")) text++;
    if (text == n || text > 1 || n - text > 2)
        return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: post_processor template with more than one token before or after the text");
    struct lam_vocab_ids *ids = lam_vocab_out_ids(hf->out);
    hf->has_template = true;
    for (size_t i = 0; i < n; i++) {
        if (i == text) continue;
        uint32_t id = template_token(processor, json_array_get(single, i));
        if (id == LAM_TOKEN_NONE) return LAM_RAISE(hf->err, LAM_E_UNSUPPORTED, "tokenizer.json: item %zu of the post_processor template", i);
        hf->flags |= i < text ? LAM_VOCAB_ADD_BOS : LAM_VOCAB_ADD_EOS;
        *(i < text ? &ids->bos : &ids->eos) = id;
    }
    return LAM_OK;
}

static lam_code post_processor(struct lam_hf *hf, const json_t *object, int depth)
{
    if (!object || json_is_null(object) || is(object, "ByteLevel")) return LAM_OK;
    if (is(object, "Sequence") && depth < 4) {
        size_t i;
        json_t *item;
        json_array_foreach(json_object_get(object, "processors"), i, item) LAM_TRY(post_processor(hf, item, depth + 1));
        return LAM_OK;
    }
    if (is(object, "TemplateProcessing")) return template(hf, object);
    return refuse(hf, "post_processor", object);
}

lam_code lam_hf_post_processor(struct lam_hf *hf) { return post_processor(hf, json_object_get(hf->tokenizer, "post_processor"), 0); }
