/* What the imports share. */
#ifndef LAM_TEXT_VOCAB_COMMON_H
#define LAM_TEXT_VOCAB_COMMON_H

#include "base/error.h"
#include "base/str.h"
#include "format/vocab.h"

#define LAM_SPACE_MARK "\xE2\x96\x81" /* U+2581, a space in SentencePiece's tokens */

/* Add a token of a byte-level vocabulary, given in GPT-2's printable form. added: it is a special or user's token. */
lam_code lam_vocab_add_printable(struct lam_vocab_out *o, const char *text, size_t len, enum lam_token_type type, bool added,
                                 struct lam_str *scratch, lam_error *err);
/* The token that a merge of a vocabulary names by text; LAM_TOKEN_NONE if there is none. *code: LAM_E_NO_MEMORY. */
uint32_t lam_vocab_resolve(const struct lam_vocab_out *o, enum lam_vocab_kind kind, const char *text, size_t len,
                           struct lam_str *scratch, lam_code *code);
/* Add the merge of left and right, and of their concatenation. */
lam_code lam_vocab_add_merge(struct lam_vocab_out *o, enum lam_vocab_kind kind, const char *left, size_t left_len,
                             const char *right, size_t right_len, struct lam_str scratch[2], lam_error *err);
/* Fill byte_ids: single bytes, or "<0xHH>" tokens. *all = every byte has one. */
void lam_vocab_find_bytes(struct lam_vocab_out *o, enum lam_vocab_kind kind, bool *all);
/* Every control, unknown and user-defined token becomes a special by its text. marked: user-defined ones are sought after
 * normalising, where spaces are U+2581, as SentencePiece does. */
lam_code lam_vocab_add_specials(struct lam_vocab_out *o, bool marked, lam_error *err);
/* eos, eot, eom and the tokens that chat models are known to end with become end-of-generation tokens; eot and eom are
 * found by name where unset. */
lam_code lam_vocab_add_eog(struct lam_vocab_out *o, lam_error *err);
/* SentencePiece's spaces: what to strip, where to put a space, spaces to marks. */
lam_code lam_vocab_add_space_steps(struct lam_vocab_out *o, uint32_t flags, uint8_t prepend_flags, lam_error *err);

#endif
