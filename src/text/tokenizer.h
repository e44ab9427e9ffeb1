/* Text to tokens. A tokenizer borrows a vocabulary view, is immutable once made, and may be used by several threads.
 *
 * Text that is not UTF-8 is first made so: every maximal ill-formed subpart becomes U+FFFD, as Hugging Face's callers do
 * (bytes.decode("utf-8", "replace")). llama.cpp instead gives one U+FFFD per byte (byte-level models) or passes the bytes
 * through (SentencePiece models); on valid UTF-8 all agree. */
#ifndef LAM_TEXT_TOKENIZER_H
#define LAM_TEXT_TOKENIZER_H

#include "base/error.h"
#include "format/vocab.h"

struct lam_tokenizer;

/* Compiles the pre-tokenizer. vocab is borrowed and must outlive the tokenizer. LAM_E_PRETOKENIZER for a regular
 * expression that we cannot run exactly, LAM_E_NO_MEMORY. */
lam_code lam_tokenizer_new(const struct lam_vocab *vocab, struct lam_tokenizer **out, lam_error *err);
void lam_tokenizer_free(struct lam_tokenizer *t);

enum lam_encode_flags {
    /* Begin with BOS and end with EOS if the vocabulary asks for it (LAM_VOCAB_ADD_BOS, LAM_VOCAB_ADD_EOS). Where BOS
     * was added or stands in the text already, exactly one begins the result. */
    LAM_ENCODE_ADD_SPECIAL = 1u << 0,
    /* Text like "<|im_start|>" becomes the control token. Without it, control tokens in the text are plain text (for
     * input that users may not forge); user-defined tokens are found always. */
    LAM_ENCODE_PARSE_SPECIAL = 1u << 1
};

/* *tokens[*n] is owned by the caller, freed with lam_free (never NULL on success). A character or byte
 * that the vocabulary cannot write vanishes where the model's own tokenizer drops it (no unknown token). LAM_E_LIMIT if a regular expression passes its match limit, LAM_E_NO_MEMORY. */
lam_code lam_tokenizer_encode(const struct lam_tokenizer *t, const char *text, size_t len, unsigned flags,
                              uint32_t **tokens, size_t *n, lam_error *err);

#endif
