/* What happens to text before merging: the normaliser steps and the cutting into words, as the vocabulary lists them. */
#ifndef LAM_TEXT_PRETOK_H
#define LAM_TEXT_PRETOK_H

#include "base/error.h"
#include "base/str.h"
#include "format/vocab.h"
#include "text/regex.h"

/* A pre-tokenizer that GGUF knows by name (tokenizer.ggml.pre). */
struct lam_pretok {
    const char *name;
    bool nfc;           /* the model's own tokenizer composes characters first */
    bool ignore_merges; /* a word that is a token is not merged */
    bool add_bos;       /* where the file doesn't say */
    const char *const *expressions; /* each cuts, in turn, what the one before left; NULL at the end */
};

/* NULL if the name is unknown. */
const struct lam_pretok *lam_pretok_find(const char *name, size_t len);
/* A name whose expressions and normaliser are those of v; name[len] alone if it isn't NULL. NULL if there is none. */
const struct lam_pretok *lam_pretok_match(const struct lam_vocab *v, const char *name, size_t len);
/* GPT-2's expression, which ByteLevel stands for. */
extern const char lam_pretok_gpt2[];

/* The compiled steps of a vocabulary; immutable, shared by threads. vocab is borrowed. */
struct lam_pipeline;
lam_code lam_pipeline_new(const struct lam_vocab *vocab, struct lam_pipeline **out, lam_error *err);
void lam_pipeline_free(struct lam_pipeline *p);

/* A word: byte range of the normalised text. */
struct lam_piece {
    size_t start, end;
};
struct lam_pieces {
    struct lam_piece *items;
    size_t n, cap;
};

/* One thread's scratch. */
struct lam_pipeline_work {
    struct lam_matcher *matcher;
    struct lam_str text;   /* after lam_pipeline_normalize: the result */
    struct lam_str spare;
    struct lam_pieces pieces; /* after lam_pipeline_split: the words, in order, none empty */
    struct lam_pieces spare_pieces;
};
lam_code lam_pipeline_work_init(struct lam_pipeline_work *w, lam_error *err);
void lam_pipeline_work_release(struct lam_pipeline_work *w);

/* text is valid UTF-8; at_start: nothing comes before it in the input. */
lam_code lam_pipeline_normalize(const struct lam_pipeline *p, struct lam_pipeline_work *w, const char *text, size_t len,
                                bool at_start, lam_error *err);
lam_code lam_pipeline_split(const struct lam_pipeline *p, struct lam_pipeline_work *w, const char *text, size_t len,
                            lam_error *err);

#endif
