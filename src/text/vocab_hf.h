/* Parts of the tokenizer.json import. */
#ifndef LAM_TEXT_VOCAB_HF_H
#define LAM_TEXT_VOCAB_HF_H

#include "base/json.h"
#include "format/vocab.h"
#include "text/vocab_import.h"

/* What the import knows so far. */
struct lam_hf {
    const json_t *tokenizer;  /* tokenizer.json */
    const json_t *config;     /* tokenizer_config.json, or NULL */
    struct lam_vocab_out *out;
    enum lam_vocab_kind kind;
    uint32_t flags;           /* enum lam_vocab_flags gathered */
    bool normalizes;          /* there is a normaliser step */
    bool metaspace;           /* a Metaspace pre-tokenizer puts and marks spaces */
    bool decodes_bytes;       /* the decoder knows byte tokens */
    bool has_template;        /* TemplateProcessing says what is put around a text */
    struct lam_str scratch[2];
    lam_error *err;
};

/* LAM_VOCAB_BPE_BYTES if the pre-tokenizer ends in ByteLevel, else LAM_VOCAB_BPE_TEXT. */
enum lam_vocab_kind lam_hf_kind(const json_t *tokenizer);
/* normalizer and pre_tokenizer become steps; decoder is checked against them. */
lam_code lam_hf_steps(struct lam_hf *hf);
/* post_processor: BOS and EOS. Sets ids where the template names them. */
lam_code lam_hf_post_processor(struct lam_hf *hf);

/* LAM_E_UNKNOWN_FIELD if object has a key that isn't in names (NULL at the end). what names the object. */
lam_code lam_hf_known_fields(const json_t *object, const char *what, const char *const *names, lam_error *err);
/* A boolean field; *out stays if it is absent or null. */
lam_code lam_hf_bool(const json_t *object, const char *name, bool *out, lam_error *err);
/* The string of field "type", or "" */
const char *lam_hf_type(const json_t *object);
/* The content of a token that is a string or an object with content; NULL else. */
const json_t *lam_hf_token_text(const json_t *token);

/* bos, eos, unk, pad, add_bos and add_eos of tokenizer_config.json, whatever the tokenizer's own file is. override:
 * its add_bos_token counts. */
lam_code lam_hf_apply_config(const json_t *config, struct lam_vocab_out *out, bool override, lam_error *err);
/* eos_token_id of generation_config.json: a number or a list. */
lam_code lam_hf_apply_generation(const json_t *generation, struct lam_vocab_out *out, lam_error *err);
/* Parse an optional source; *out = NULL if there is none. */
lam_code lam_hf_parse(const struct lam_vocab_source *source, const char *what, json_t **out, lam_error *err);

#endif
