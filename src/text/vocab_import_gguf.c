#include "text/vocab_import.h"

#include "base/cursor.h"
#include "base/str.h"
#include "text/pretok.h"
#include "text/vocab_common.h"

#include <string.h>

struct import {
    const struct lam_gguf *g;
    struct lam_vocab_out *o;
    enum lam_vocab_kind kind;
    const struct lam_pretok *pre; /* LAM_VOCAB_BPE_BYTES */
    bool marked; /* user-defined tokens are sought in normalised text; with a space prefix llama.cpp cuts them out first */
    struct lam_str scratch[2];
    lam_error *err;
};

static lam_code find_kind(struct import *im)
{
    const char *model = NULL;
    size_t len = 0;
    LAM_TRY(lam_gguf_string(im->g, "tokenizer.ggml.model", true, &model, &len, im->err));
    if (len == 4 && memcmp(model, "gpt2", 4) == 0) im->kind = LAM_VOCAB_BPE_BYTES;
    else if (len == 5 && memcmp(model, "llama", 5) == 0) im->kind = LAM_VOCAB_SPM;
    else return LAM_RAISE(im->err, LAM_E_UNSUPPORTED, "tokenizer.ggml.model \"%.*s\"", (int)(len < 64 ? len : 64), model);
    return LAM_OK;
}

static lam_code find_pre(struct import *im)
{
    const char *name = NULL;
    size_t len = 0;
    LAM_TRY(lam_gguf_string(im->g, "tokenizer.ggml.pre", false, &name, &len, im->err));
    if (name) LAM_TRY(lam_vocab_out_pre_name(im->o, name, len, im->err));
    if (im->kind == LAM_VOCAB_SPM) return LAM_OK;
    if (!name) return LAM_RAISE(im->err, LAM_E_PRETOKENIZER, "a byte-level vocabulary without tokenizer.ggml.pre");
    im->pre = lam_pretok_find(name, len);
    if (!im->pre) return LAM_RAISE(im->err, LAM_E_PRETOKENIZER, "tokenizer.ggml.pre \"%.*s\" is not known", (int)(len < 64 ? len : 64), name);
    return LAM_OK;
}

/* An array key of n items (n = 0: any number). NULL in *out if absent and not required. */
static lam_code array(const struct import *im, const char *key, bool required, enum lam_gguf_type item_type, uint64_t n,
                      const struct lam_gguf_kv **out)
{
    const struct lam_gguf_kv *kv = lam_gguf_find(im->g, key);
    *out = kv;
    if (!kv) return required ? LAM_RAISE(im->err, LAM_E_NOT_FOUND, "no %s", key) : LAM_OK;
    if (kv->type != LAM_GGUF_ARRAY || (kv->item_type != item_type && (item_type != LAM_GGUF_I32 || kv->item_type != LAM_GGUF_U32)))
        return LAM_RAISE(im->err, LAM_E_FORMAT, "%s has an unexpected type", key);
    if (n && kv->count != n)
        return LAM_RAISE(im->err, LAM_E_FORMAT, "%s has %llu items for %llu tokens", key, (unsigned long long)kv->count, (unsigned long long)n);
    return LAM_OK;
}

static lam_code add_token(struct import *im, const char *text, size_t len, uint32_t type, float score)
{
    if (type < LAM_TOKEN_NORMAL || type > LAM_TOKEN_BYTE)
        return LAM_RAISE(im->err, LAM_E_UNKNOWN_FIELD, "type %u of token %u", type, lam_vocab_out_count(im->o));
    if (im->kind == LAM_VOCAB_BPE_BYTES)
        return lam_vocab_add_printable(im->o, text, len, (enum lam_token_type)type, type != LAM_TOKEN_NORMAL, &im->scratch[0], im->err);
    bool literal = type == LAM_TOKEN_CONTROL || type == LAM_TOKEN_USER_DEFINED || type == LAM_TOKEN_UNUSED;
    return lam_vocab_out_token(im->o, text, len, (uint8_t)(type | (literal ? LAM_TOKEN_LITERAL : 0)), score, im->err);
}

static lam_code add_tokens(struct import *im)
{
    const struct lam_gguf_kv *tokens, *types, *scores;
    LAM_TRY(array(im, "tokenizer.ggml.tokens", true, LAM_GGUF_STRING, 0, &tokens));
    LAM_TRY(array(im, "tokenizer.ggml.token_type", im->kind == LAM_VOCAB_SPM, LAM_GGUF_I32, tokens->count, &types));
    LAM_TRY(array(im, "tokenizer.ggml.scores", im->kind == LAM_VOCAB_SPM, LAM_GGUF_F32, tokens->count, &scores));
    const uint8_t *at = tokens->value;
    const char *text;
    size_t len;
    for (uint64_t i = 0; lam_gguf_next_string(tokens, &at, &text, &len); i++) {
        uint32_t type = types ? lam_load_u32(types->value + 4 * i) : LAM_TOKEN_NORMAL;
        float score = 0;
        if (im->kind == LAM_VOCAB_SPM) {
            uint32_t bits = lam_load_u32(scores->value + 4 * i);
            memcpy(&score, &bits, 4);
        }
        LAM_TRY(add_token(im, text, len, type, score));
    }
    return LAM_OK;
}

/* "left right", cut at the first space after the first byte. */
static lam_code add_merges(struct import *im)
{
    const struct lam_gguf_kv *merges;
    if (im->kind != LAM_VOCAB_BPE_BYTES) return LAM_OK;
    LAM_TRY(array(im, "tokenizer.ggml.merges", true, LAM_GGUF_STRING, 0, &merges));
    const uint8_t *at = merges->value;
    const char *text;
    size_t len;
    while (lam_gguf_next_string(merges, &at, &text, &len)) {
        const char *space = len > 1 ? memchr(text + 1, ' ', len - 1) : NULL;
        if (!space) return LAM_RAISE(im->err, LAM_E_FORMAT, "merge \"%.*s\" is not two tokens", (int)(len < 64 ? len : 64), text);
        size_t left = (size_t)(space - text);
        LAM_TRY(lam_vocab_add_merge(im->o, im->kind, text, left, space + 1, len - left - 1, im->scratch, im->err));
    }
    return LAM_OK;
}

static lam_code add_ids(struct import *im)
{
    struct lam_vocab_ids *ids = lam_vocab_out_ids(im->o);
    const struct { const char *key; uint32_t *id; } keys[] = {
        {"tokenizer.ggml.bos_token_id", &ids->bos}, {"tokenizer.ggml.eos_token_id", &ids->eos},
        {"tokenizer.ggml.unknown_token_id", &ids->unk}, {"tokenizer.ggml.padding_token_id", &ids->pad},
        {"tokenizer.ggml.eot_token_id", &ids->eot}, {"tokenizer.ggml.eom_token_id", &ids->eom}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        LAM_TRY(lam_gguf_u32(im->g, keys[i].key, false, keys[i].id, im->err));
        if (*keys[i].id != LAM_TOKEN_NONE && *keys[i].id >= lam_vocab_out_count(im->o))
            return LAM_RAISE(im->err, LAM_E_TOKEN, "%s is %u of %u tokens", keys[i].key, *keys[i].id, lam_vocab_out_count(im->o));
    }
    return LAM_OK;
}

static lam_code add_flags(struct import *im)
{
    bool spm = im->kind == LAM_VOCAB_SPM;
    bool bos = spm || im->pre->add_bos, eos = false, prefix = spm, strip = false, suffix = false, all_bytes;
    LAM_TRY(lam_gguf_bool(im->g, "tokenizer.ggml.add_bos_token", false, &bos, im->err));
    LAM_TRY(lam_gguf_bool(im->g, "tokenizer.ggml.add_eos_token", false, &eos, im->err));
    uint32_t flags = (bos ? LAM_VOCAB_ADD_BOS : 0u) | (eos ? LAM_VOCAB_ADD_EOS : 0u);
    lam_vocab_find_bytes(im->o, im->kind, &all_bytes);
    if (spm) {
        LAM_TRY(lam_gguf_bool(im->g, "tokenizer.ggml.add_space_prefix", false, &prefix, im->err));
        LAM_TRY(lam_gguf_bool(im->g, "tokenizer.ggml.remove_extra_whitespaces", false, &strip, im->err));
        LAM_TRY(lam_gguf_bool(im->g, "tokenizer.ggml.treat_whitespace_as_suffix", false, &suffix, im->err));
        im->marked = !prefix;
        flags |= LAM_VOCAB_FUSE_UNKNOWN | LAM_VOCAB_EMIT_UNKNOWN | (all_bytes ? LAM_VOCAB_BYTE_FALLBACK : 0u) | (prefix ? LAM_VOCAB_SPACE_PREFIX : 0u) |
                 (strip ? LAM_VOCAB_STRIP_EXTRA_SPACES : 0u) | (suffix ? LAM_VOCAB_SPACE_SUFFIX : 0u);
    } else if (im->pre->ignore_merges) {
        flags |= LAM_VOCAB_IGNORE_MERGES;
    }
    lam_vocab_out_flags(im->o, flags);
    return spm ? lam_vocab_add_space_steps(im->o, flags, 0, im->err) : LAM_OK;
}

static lam_code add_pre_steps(struct import *im)
{
    if (!im->pre) return LAM_OK;
    if (im->pre->nfc) LAM_TRY(lam_vocab_out_step(im->o, LAM_STEP_NFC, 0, "", 0, "", 0, im->err));
    for (const char *const *e = im->pre->expressions; *e; e++)
        LAM_TRY(lam_vocab_out_step(im->o, LAM_STEP_SPLIT_REGEX, LAM_SPLIT_ISOLATED, *e, strlen(*e), "", 0, im->err));
    return LAM_OK;
}

static lam_code fill(struct import *im)
{
    LAM_TRY(find_pre(im));
    const struct lam_gguf_kv *charsmap = lam_gguf_find(im->g, "tokenizer.ggml.precompiled_charsmap");
    if (charsmap && charsmap->count > 0)
        return LAM_RAISE(im->err, LAM_E_UNSUPPORTED, "tokenizer.ggml.precompiled_charsmap (SentencePiece normalisation rules)");
    LAM_TRY(add_tokens(im));
    LAM_TRY(add_merges(im));
    LAM_TRY(add_ids(im));
    LAM_TRY(add_flags(im));
    LAM_TRY(add_pre_steps(im));
    LAM_TRY(lam_vocab_add_specials(im->o, im->marked, im->err));
    return lam_vocab_add_eog(im->o, im->err);
}

lam_code lam_vocab_import_gguf(const struct lam_gguf *g, uint8_t **bytes, size_t *len, lam_error *err)
{
    struct import im = {.g = g, .err = err};
    LAM_TRY(find_kind(&im));
    LAM_TRY(lam_vocab_out_new(im.kind, &im.o, err));
    lam_code code = fill(&im);
    if (code == LAM_OK) code = lam_vocab_out_finish(im.o, bytes, len, err);
    lam_vocab_out_free(im.o);
    lam_str_release(&im.scratch[0]);
    lam_str_release(&im.scratch[1]);
    return code;
}
