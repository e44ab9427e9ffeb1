/* Vocabularies from GGUF, tokenizer.json and tokenizer.model, and back to GGUF. Every import gives the bytes of a
 * vocabulary section (format/vocab.h), aligned, freed with lam_free_aligned; what would change results and is not
 * supported is refused by name. */
#ifndef LAM_TEXT_VOCAB_IMPORT_H
#define LAM_TEXT_VOCAB_IMPORT_H

#include "base/error.h"
#include "format/gguf.h"
#include "format/vocab.h"

/* tokenizer.ggml.* keys. LAM_E_PRETOKENIZER names an unknown or missing tokenizer.ggml.pre; LAM_E_UNSUPPORTED names an
 * unknown tokenizer.ggml.model. */
lam_code lam_vocab_import_gguf(const struct lam_gguf *g, uint8_t **bytes, size_t *len, lam_error *err);

/* A Hugging Face folder: tokenizer.json, else tokenizer.model; with tokenizer_config.json and generation_config.json
 * where they exist. */
lam_code lam_vocab_import_folder(const char *dir, uint8_t **bytes, size_t *len, lam_error *err);

/* The same over texts in memory; config and generation may be NULL. */
struct lam_vocab_source {
    const char *text;
    size_t len;
};
lam_code lam_vocab_import_hf(const struct lam_vocab_source *tokenizer, const struct lam_vocab_source *config,
                             const struct lam_vocab_source *generation, uint8_t **bytes, size_t *len, lam_error *err);
/* tokenizer.model: SentencePiece's ModelProto, BPE type. */
lam_code lam_vocab_import_spm(const struct lam_vocab_source *model, const struct lam_vocab_source *config,
                              const struct lam_vocab_source *generation, uint8_t **bytes, size_t *len, lam_error *err);

/* Append the tokenizer.ggml.* keys. LAM_E_UNSUPPORTED where GGUF cannot say it (merges over characters, pre-tokenizers
 * without a GGUF name, …). */
lam_code lam_vocab_export_gguf(const struct lam_vocab *v, struct lam_gguf_out *o, lam_error *err);

#endif
