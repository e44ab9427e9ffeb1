/* Words to tokens, by kind of vocabulary; and the list of tokens that an encoding gathers. */
#ifndef LAM_TEXT_ENCODE_H
#define LAM_TEXT_ENCODE_H

#include "base/error.h"
#include "format/vocab.h"
#include "text/merge.h"

struct lam_tokens {
    uint32_t *items; /* owned; freed with lam_free */
    size_t n, cap;
};
lam_code lam_tokens_push(struct lam_tokens *t, uint32_t id, lam_error *err);

/* word[len]: valid UTF-8, not empty, len < 2^32. Appends its tokens. */
lam_code lam_bpe_encode(const struct lam_vocab *v, struct lam_merger *m, const char *word, size_t len,
                        struct lam_tokens *out, lam_error *err);
lam_code lam_spm_encode(const struct lam_vocab *v, struct lam_merger *m, const char *word, size_t len,
                        struct lam_tokens *out, lam_error *err);

/* The tokens of a character that the vocabulary lacks: its bytes, else the unknown token (not doubled if
 * LAM_VOCAB_FUSE_UNKNOWN and *after_unknown), else none, as Hugging Face and llama.cpp do. Sets *after_unknown. */
lam_code lam_encode_unknown(const struct lam_vocab *v, const uint8_t *bytes, size_t len, bool *after_unknown,
                            struct lam_tokens *out, lam_error *err);

#endif
