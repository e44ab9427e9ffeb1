/* Tokens to text, as a stream that never splits a character.
 *
 * Ill-formed bytes become U+FFFD: one per maximal subpart for byte-level models (as Hugging Face's ByteLevel decoder),
 * one per byte for byte tokens of SentencePiece models (as sentencepiece; Hugging Face's ByteFallback agrees except that
 * it gives up a whole run of byte tokens if any byte of it is wrong, which a stream cannot know in time). */
#ifndef LAM_TEXT_DETOK_H
#define LAM_TEXT_DETOK_H

#include "base/error.h"
#include "base/str.h"
#include "format/vocab.h"

enum lam_detok_flags {
    LAM_DETOK_START = 1u << 0,   /* the tokens begin a text: the space that encoding put in front is taken off */
    LAM_DETOK_SPECIAL = 1u << 1  /* write control and unknown tokens too, by their names */
};

/* A value; no release needed. */
struct lam_detok {
    const struct lam_vocab *vocab; /* borrowed */
    unsigned flags;
    bool at_start;
    uint8_t pending[4]; /* beginning of a character */
    size_t n_pending;
};

void lam_detok_init(struct lam_detok *d, const struct lam_vocab *vocab, unsigned flags);
/* Append to *out the text that is now complete, always valid UTF-8 and never half a character (maybe nothing).
 * LAM_E_TOKEN if token is outside the vocabulary. */
lam_code lam_detok_push(struct lam_detok *d, uint32_t token, struct lam_str *out, lam_error *err);
/* The end: what is pending becomes U+FFFD. The stream can then be used for a new text. */
lam_code lam_detok_flush(struct lam_detok *d, struct lam_str *out, lam_error *err);

/* The whole at once. */
lam_code lam_detokenize(const struct lam_vocab *vocab, const uint32_t *tokens, size_t n, unsigned flags,
                        struct lam_str *out, lam_error *err);

/* The bytes that one token stands for in the middle of a text (may be part of a character): spaces restored, byte tokens
 * as their byte, control tokens by name. Appended to *out. */
lam_code lam_token_bytes(const struct lam_vocab *vocab, uint32_t token, struct lam_str *out, lam_error *err);

#endif
