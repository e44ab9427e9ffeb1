/* A vocabulary as GGUF's tokenizer.ggml.* keys. */
#include "text/vocab_import.h"

#include "base/cursor.h"
#include "base/str.h"
#include "text/bytemap.h"
#include "text/pretok.h"
#include "text/vocab_common.h"

#include <string.h>

/* The pre-tokenizer's GGUF name: the one it came with if that still says the same, else any that does. */
static lam_code find_pre(const struct lam_vocab *v, const char **name, size_t *len, lam_error *err)
{
    *name = v->pre_name;
    *len = v->pre_name_len;
    if (v->kind == LAM_VOCAB_SPM) {
        if (*len == 0) *name = "default", *len = 7;
        return LAM_OK;
    }
    const struct lam_pretok *match = lam_pretok_match(v, v->pre_name, v->pre_name_len);
    if (!match) match = lam_pretok_match(v, NULL, 0);
    if (!match) return LAM_RAISE(err, LAM_E_UNSUPPORTED, "export to GGUF: no tokenizer.ggml.pre stands for this pre-tokenizer");
    *name = match->name;
    *len = strlen(match->name);
    return LAM_OK;
}

static lam_code check(const struct lam_vocab *v, lam_error *err)
{
    if (v->kind == LAM_VOCAB_BPE_TEXT)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "export to GGUF: merges over characters have no GGUF form");
    for (int list = 0; list < 2; list++)
        for (uint32_t i = 0; i < v->n_specials[list]; i++) {
            const struct lam_special *s = &v->specials[list][i];
            if (s->flags & (LAM_SPECIAL_LSTRIP | LAM_SPECIAL_RSTRIP | LAM_SPECIAL_SINGLE_WORD))
                return LAM_RAISE(err, LAM_E_UNSUPPORTED, "export to GGUF: lstrip, rstrip or single_word of token %u", s->id);
            if (list == 1 && v->kind == LAM_VOCAB_BPE_BYTES)
                return LAM_RAISE(err, LAM_E_UNSUPPORTED, "export to GGUF: normalized added token %u", s->id);
        }
    size_t at = 0;
    struct lam_step step;
    while (v->kind == LAM_VOCAB_SPM && lam_vocab_next_step(v, &at, &step))
        if (step.kind == LAM_STEP_PREPEND && step.flags != 0)
            return LAM_RAISE(err, LAM_E_UNSUPPORTED, "export to GGUF: a space prefix at the very start alone (legacy = false)");
    return LAM_OK;
}

/* GGUF's form of a string: 64-bit length, bytes. */
static bool put_string(struct lam_str *out, const struct lam_str *text)
{
    uint8_t head[8];
    lam_store_u64(head, text->len);
    return lam_str_append(out, head, 8) && lam_str_append(out, text->data, text->len);
}

/* Append a token as GGUF writes it. */
static bool put_token(const struct lam_vocab *v, uint32_t id, struct lam_str *out)
{
    size_t len;
    const uint8_t *bytes = lam_vocab_token(v, id, &len);
    bool printable = v->kind == LAM_VOCAB_BPE_BYTES && !lam_vocab_is_literal(v, id);
    return printable ? lam_bytemap_encode(out, bytes, len) : lam_str_append(out, bytes, len);
}

static bool gather_tokens(const struct lam_vocab *v, struct lam_str *strings, struct lam_str *types, struct lam_str *text)
{
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        uint8_t type[4];
        lam_store_u32(type, (uint32_t)lam_vocab_type(v, id));
        lam_str_clear(text);
        if (!put_token(v, id, text) || !put_string(strings, text) || !lam_str_append(types, type, 4)) return false;
    }
    return true;
}

static bool gather_merges(const struct lam_vocab *v, struct lam_str *strings, struct lam_str *text)
{
    for (uint32_t rank = 0; rank < v->n_merges; rank++) {
        lam_str_clear(text);
        if (!put_token(v, v->merges[rank].left, text) || !lam_str_putc(text, ' ') || !put_token(v, v->merges[rank].right, text) ||
            !put_string(strings, text))
            return false;
    }
    return true;
}

static lam_code put_array(struct lam_gguf_out *o, const char *key, enum lam_gguf_type item, uint64_t count, const void *data,
                          size_t bytes, lam_error *err)
{
    return lam_gguf_out_kv(o, key, strlen(key), LAM_GGUF_ARRAY, item, count, data, bytes, err);
}

static lam_code put_tables(const struct lam_vocab *v, struct lam_gguf_out *o, struct lam_str work[3], lam_error *err)
{
    if (!gather_tokens(v, &work[0], &work[1], &work[2])) return LAM_RAISE(err, LAM_E_NO_MEMORY, "export of %u tokens", v->n_tokens);
    LAM_TRY(put_array(o, "tokenizer.ggml.tokens", LAM_GGUF_STRING, v->n_tokens, work[0].data, work[0].len, err));
    if (v->scores)
        LAM_TRY(put_array(o, "tokenizer.ggml.scores", LAM_GGUF_F32, v->n_tokens, v->scores, 4 * (size_t)v->n_tokens, err));
    LAM_TRY(put_array(o, "tokenizer.ggml.token_type", LAM_GGUF_I32, v->n_tokens, work[1].data, work[1].len, err));
    if (v->kind != LAM_VOCAB_BPE_BYTES) return LAM_OK;
    lam_str_clear(&work[0]);
    if (!gather_merges(v, &work[0], &work[2])) return LAM_RAISE(err, LAM_E_NO_MEMORY, "export of %u merges", v->n_merges);
    return put_array(o, "tokenizer.ggml.merges", LAM_GGUF_STRING, v->n_merges, work[0].data ? work[0].data : "", work[0].len, err);
}

static lam_code put_ids(const struct lam_vocab *v, struct lam_gguf_out *o, lam_error *err)
{
    const struct { const char *key; uint32_t id; } ids[] = {
        {"tokenizer.ggml.bos_token_id", v->ids.bos}, {"tokenizer.ggml.eos_token_id", v->ids.eos},
        {"tokenizer.ggml.unknown_token_id", v->ids.unk}, {"tokenizer.ggml.padding_token_id", v->ids.pad},
        {"tokenizer.ggml.eot_token_id", v->ids.eot}, {"tokenizer.ggml.eom_token_id", v->ids.eom}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id != LAM_TOKEN_NONE) LAM_TRY(lam_gguf_out_u32(o, ids[i].key, ids[i].id, err));
    LAM_TRY(lam_gguf_out_bool(o, "tokenizer.ggml.add_bos_token", (v->flags & LAM_VOCAB_ADD_BOS) != 0, err));
    LAM_TRY(lam_gguf_out_bool(o, "tokenizer.ggml.add_eos_token", (v->flags & LAM_VOCAB_ADD_EOS) != 0, err));
    if (v->kind != LAM_VOCAB_SPM) return LAM_OK;
    LAM_TRY(lam_gguf_out_bool(o, "tokenizer.ggml.add_space_prefix", (v->flags & LAM_VOCAB_SPACE_PREFIX) != 0, err));
    LAM_TRY(lam_gguf_out_bool(o, "tokenizer.ggml.remove_extra_whitespaces", (v->flags & LAM_VOCAB_STRIP_EXTRA_SPACES) != 0, err));
    return lam_gguf_out_bool(o, "tokenizer.ggml.treat_whitespace_as_suffix", (v->flags & LAM_VOCAB_SPACE_SUFFIX) != 0, err);
}

lam_code lam_vocab_export_gguf(const struct lam_vocab *v, struct lam_gguf_out *o, lam_error *err)
{
    const char *model = v->kind == LAM_VOCAB_SPM ? "llama" : "gpt2", *pre;
    size_t pre_len;
    LAM_TRY(check(v, err));
    LAM_TRY(find_pre(v, &pre, &pre_len, err));
    LAM_TRY(lam_gguf_out_string(o, "tokenizer.ggml.model", model, strlen(model), err));
    LAM_TRY(lam_gguf_out_string(o, "tokenizer.ggml.pre", pre, pre_len, err));
    struct lam_str work[3] = {0};
    lam_code code = put_tables(v, o, work, err);
    for (int i = 0; i < 3; i++) lam_str_release(&work[i]);
    return code == LAM_OK ? put_ids(v, o, err) : code;
}
