#include "text/vocab_common.h"

#include "base/utf8.h"
#include "text/bytemap.h"

#include <stdio.h>
#include <string.h>

lam_code lam_vocab_add_printable(struct lam_vocab_out *o, const char *text, size_t len, enum lam_token_type type, bool added,
                                 struct lam_str *scratch, lam_error *err)
{
    bool mapped = false;
    lam_str_clear(scratch);
    if (!added && !lam_bytemap_decode(scratch, text, len, &mapped)) return LAM_RAISE(err, LAM_E_NO_MEMORY, "token of %zu bytes", len);
    if (mapped) return lam_vocab_out_token(o, scratch->data, scratch->len, (uint8_t)type, 0, err);
    return lam_vocab_out_token(o, text, len, (uint8_t)(type | LAM_TOKEN_LITERAL), 0, err);
}

uint32_t lam_vocab_resolve(const struct lam_vocab_out *o, enum lam_vocab_kind kind, const char *text, size_t len,
                           struct lam_str *scratch, lam_code *code)
{
    if (kind != LAM_VOCAB_BPE_BYTES) return lam_vocab_out_find(o, false, text, len);
    bool mapped;
    lam_str_clear(scratch);
    if (!lam_bytemap_decode(scratch, text, len, &mapped)) {
        *code = LAM_E_NO_MEMORY;
        return LAM_TOKEN_NONE;
    }
    uint32_t id = mapped ? lam_vocab_out_find(o, false, scratch->data, scratch->len) : LAM_TOKEN_NONE;
    return id != LAM_TOKEN_NONE ? id : lam_vocab_out_find(o, true, text, len);
}

lam_code lam_vocab_add_merge(struct lam_vocab_out *o, enum lam_vocab_kind kind, const char *left, size_t left_len,
                             const char *right, size_t right_len, struct lam_str scratch[2], lam_error *err)
{
    lam_code code = LAM_OK;
    lam_str_clear(&scratch[0]);
    if (!lam_str_append(&scratch[0], left, left_len) || !lam_str_append(&scratch[0], right, right_len)) code = LAM_E_NO_MEMORY;
    uint32_t l = lam_vocab_resolve(o, kind, left, left_len, &scratch[1], &code);
    uint32_t r = lam_vocab_resolve(o, kind, right, right_len, &scratch[1], &code);
    uint32_t both = code == LAM_OK ? lam_vocab_resolve(o, kind, scratch[0].data, scratch[0].len, &scratch[1], &code) : LAM_TOKEN_NONE;
    if (code != LAM_OK) return LAM_RAISE(err, code, "merge");
    if (l == LAM_TOKEN_NONE || r == LAM_TOKEN_NONE || both == LAM_TOKEN_NONE)
        return LAM_RAISE(err, LAM_E_TOKEN, "merge \"%.*s\" + \"%.*s\" names a token that is not in the vocabulary",
                         (int)(left_len < 64 ? left_len : 64), left, (int)(right_len < 64 ? right_len : 64), right);
    return lam_vocab_out_merge(o, l, r, both, err);
}

void lam_vocab_find_bytes(struct lam_vocab_out *o, enum lam_vocab_kind kind, bool *all)
{
    *all = true;
    for (unsigned b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b, printable[4];
        uint32_t id;
        if (kind == LAM_VOCAB_BPE_BYTES) {
            id = lam_vocab_out_find(o, false, &byte, 1);
            if (id == LAM_TOKEN_NONE) id = lam_vocab_out_find(o, true, printable, lam_utf8_encode(lam_bytemap_char(byte), printable));
        } else {
            char name[8];
            snprintf(name, sizeof name, "<0x%02X>", b);
            id = lam_vocab_out_find(o, false, name, 6);
        }
        lam_vocab_out_byte(o, byte, id);
        *all = *all && id != LAM_TOKEN_NONE;
    }
}

/* A user-defined token by its text with spaces marked. */
static lam_code add_marked(struct lam_vocab_out *o, uint32_t id, const uint8_t *text, size_t len, lam_error *err)
{
    struct lam_str marked = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < len; i++)
        ok = text[i] == ' ' ? lam_str_puts(&marked, LAM_SPACE_MARK) : lam_str_putc(&marked, (char)text[i]);
    lam_code code = ok ? lam_vocab_out_special(o, id, LAM_SPECIAL_NORMALIZED, marked.data, marked.len, err)
                       : LAM_RAISE(err, LAM_E_NO_MEMORY, "token %u", id);
    lam_str_release(&marked);
    return code;
}

lam_code lam_vocab_add_specials(struct lam_vocab_out *o, bool marked, lam_error *err)
{
    for (uint32_t id = 0; id < lam_vocab_out_count(o); id++) {
        size_t len;
        uint8_t type;
        const uint8_t *text = lam_vocab_out_bytes(o, id, &len, &type);
        type &= LAM_TOKEN_TYPE_MASK;
        bool control = type == LAM_TOKEN_CONTROL || type == LAM_TOKEN_UNKNOWN;
        if (len == 0 || (!control && type != LAM_TOKEN_USER_DEFINED)) continue;
        if (marked && !control) LAM_TRY(add_marked(o, id, text, len, err));
        else LAM_TRY(lam_vocab_out_special(o, id, control ? LAM_SPECIAL_CONTROL : 0, text, len, err));
    }
    return LAM_OK;
}

/* A control or user-defined token by its text. */
static uint32_t find_added(const struct lam_vocab_out *o, const char *name)
{
    for (int literal = 1; literal >= 0; literal--) {
        uint32_t id = lam_vocab_out_find(o, literal, name, strlen(name));
        if (id == LAM_TOKEN_NONE) continue;
        size_t len;
        uint8_t type;
        lam_vocab_out_bytes(o, id, &len, &type);
        type &= LAM_TOKEN_TYPE_MASK;
        if (type == LAM_TOKEN_CONTROL || type == LAM_TOKEN_USER_DEFINED) return id;
    }
    return LAM_TOKEN_NONE;
}

lam_code lam_vocab_add_eog(struct lam_vocab_out *o, lam_error *err)
{
    static const char *const turn_ends[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|end_of_turn|>", "<EOT>", "_<EOT>"};
    static const char *const text_ends[] = {"<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};
    struct lam_vocab_ids *ids = lam_vocab_out_ids(o);
    for (size_t i = 0; i < sizeof turn_ends / sizeof *turn_ends; i++) {
        uint32_t id = find_added(o, turn_ends[i]);
        if (ids->eot == LAM_TOKEN_NONE) ids->eot = id;
        LAM_TRY(lam_vocab_out_eog(o, id, err));
    }
    for (size_t i = 0; i < sizeof text_ends / sizeof *text_ends; i++)
        LAM_TRY(lam_vocab_out_eog(o, find_added(o, text_ends[i]), err));
    if (ids->eom == LAM_TOKEN_NONE) ids->eom = find_added(o, "<|eom_id|>");
    LAM_TRY(lam_vocab_out_eog(o, ids->eos, err));
    LAM_TRY(lam_vocab_out_eog(o, ids->eot, err));
    return lam_vocab_out_eog(o, ids->eom, err);
}

lam_code lam_vocab_add_space_steps(struct lam_vocab_out *o, uint32_t flags, uint8_t prepend_flags, lam_error *err)
{
    if (flags & LAM_VOCAB_STRIP_EXTRA_SPACES) LAM_TRY(lam_vocab_out_step(o, LAM_STEP_STRIP_SPACES, 0, "", 0, "", 0, err));
    if ((flags & LAM_VOCAB_SPACE_PREFIX) && (flags & LAM_VOCAB_SPACE_SUFFIX))
        LAM_TRY(lam_vocab_out_step(o, LAM_STEP_APPEND, 0, " ", 1, "", 0, err));
    else if (flags & LAM_VOCAB_SPACE_PREFIX)
        LAM_TRY(lam_vocab_out_step(o, LAM_STEP_PREPEND, prepend_flags, " ", 1, "", 0, err));
    return lam_vocab_out_step(o, LAM_STEP_REPLACE, 0, " ", 1, LAM_SPACE_MARK, 3, err);
}
