/* Any text: byte-level, with the expressions of Llama 3 and every kind of added token. The first byte gives the flags.
 * Decoding the tokens must give the text back wherever nothing was normalised away. */
#include "base/alloc.h"
#include "base/utf8.h"
#include "format/vocab.h"
#include "text/detok.h"
#include "text/pretok.h"
#include "text/tokenizer.h"

#include <string.h>

static lam_code fill(struct lam_vocab_out *o)
{
    const struct lam_pretok *pre = lam_pretok_find("llama-bpe", 9);
    for (unsigned i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;
        LAM_TRY(lam_vocab_out_token(o, &byte, 1, LAM_TOKEN_NORMAL, 0, NULL));
        lam_vocab_out_byte(o, byte, i);
    }
    LAM_TRY(lam_vocab_out_token(o, "ab", 2, LAM_TOKEN_NORMAL, 0, NULL));
    LAM_TRY(lam_vocab_out_token(o, " a", 2, LAM_TOKEN_NORMAL, 0, NULL));
    LAM_TRY(lam_vocab_out_token(o, "aba", 3, LAM_TOKEN_NORMAL, 0, NULL));
    LAM_TRY(lam_vocab_out_token(o, "<s>", 3, LAM_TOKEN_CONTROL | LAM_TOKEN_LITERAL, 0, NULL));
    LAM_TRY(lam_vocab_out_token(o, "<sw>", 4, LAM_TOKEN_USER_DEFINED | LAM_TOKEN_LITERAL, 0, NULL));
    LAM_TRY(lam_vocab_out_merge(o, 'a', 'b', 256, NULL));
    LAM_TRY(lam_vocab_out_merge(o, ' ', 'a', 257, NULL));
    LAM_TRY(lam_vocab_out_merge(o, 256, 'a', 258, NULL));
    LAM_TRY(lam_vocab_out_special(o, 259, LAM_SPECIAL_CONTROL, "<s>", 3, NULL));
    LAM_TRY(lam_vocab_out_special(o, 260, LAM_SPECIAL_SINGLE_WORD, "<sw>", 4, NULL));
    lam_vocab_out_ids(o)->bos = 259;
    return lam_vocab_out_step(o, LAM_STEP_SPLIT_REGEX, LAM_SPLIT_ISOLATED, pre->expressions[0], strlen(pre->expressions[0]), "", 0, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    struct lam_vocab_out *o;
    uint8_t *section = NULL;
    size_t len, n;
    struct lam_vocab v;
    struct lam_tokenizer *t = NULL;
    uint32_t *tokens;
    if (lam_vocab_out_new(LAM_VOCAB_BPE_BYTES, &o, NULL) != LAM_OK) return 0;
    bool ready = fill(o) == LAM_OK && lam_vocab_out_finish(o, &section, &len, NULL) == LAM_OK &&
                 lam_vocab_open(section, len, &v, NULL) == LAM_OK && lam_tokenizer_new(&v, &t, NULL) == LAM_OK;
    if (ready && lam_tokenizer_encode(t, (const char *)data + 1, size - 1, data[0] & 3u, &tokens, &n, NULL) == LAM_OK) {
        struct lam_str back = {0}, text = {0};
        if (lam_detokenize(&v, tokens, n, LAM_DETOK_SPECIAL, &back, NULL) == LAM_OK && lam_utf8_append_lossy(&text, data + 1, size - 1))
            if (back.len != text.len || (text.len && memcmp(back.data, text.data, text.len) != 0)) __builtin_trap();
        lam_str_release(&back);
        lam_str_release(&text);
        lam_free(tokens);
    }
    lam_tokenizer_free(t);
    lam_free_aligned(section);
    lam_vocab_out_free(o);
    return 0;
}
