/* The vocabulary section of .slm: flat tables used where they lie, with no parsing and no heap.
 *
 * Layout, little-endian; every table starts at a multiple of 8 and tables follow each other in this order:
 *   header (128 bytes, struct lam_vocab_header in vocab_layout.h)
 *   token_offsets u32[n_tokens + 1]   into token bytes
 *   token_bytes
 *   scores        f32[n_tokens]       only for LAM_VOCAB_SPM
 *   types         u8[n_tokens]        enum lam_token_type | LAM_TOKEN_LITERAL
 *   byte_ids      u32[256]            the token of a single byte
 *   token_index   u32[token_slots]    open addressing, linear probing; id + 1, 0 = empty
 *   merges        struct lam_merge[n_merges], by rank
 *   merge_index   u32[merge_slots]    (left, right) -> rank + 1, 0 = empty
 *   specials      struct lam_special[n_specials], the raw ones then the normalised ones, each sorted by pattern
 *   special_heads u32[2 * 257]        first entry by first byte of the pattern, for both lists
 *   special_bytes                     patterns
 *   eog           u32[n_eog]          ids that end a generation, ascending
 *   steps                             normaliser and pre-tokenizer, records of struct lam_step_head + a + b, each
 *                                     padded to 8 bytes
 *   pre_name                          tokenizer.ggml.pre, for export and messages
 */
#ifndef LAM_FORMAT_VOCAB_H
#define LAM_FORMAT_VOCAB_H

#include "base/error.h"
#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAM_TOKEN_NONE UINT32_MAX
#define LAM_VOCAB_MAX_TOKENS (1u << 24)
#define LAM_VOCAB_MAX_TOKEN_BYTES (1u << 16)
#define LAM_VOCAB_MAX_EOG 1024u

enum lam_vocab_kind {
    LAM_VOCAB_BPE_BYTES = 1, /* byte-level BPE (GPT-2 and later); token bytes are raw bytes, not GPT-2's printable form */
    LAM_VOCAB_SPM = 2,       /* SentencePiece BPE: pairs merge by the score of the result; spaces are U+2581 */
    LAM_VOCAB_BPE_TEXT = 3   /* BPE over characters with merges, as tokenizer.json has SentencePiece models */
};

/* GGUF's numbering of token types. */
enum lam_token_type {
    LAM_TOKEN_NORMAL = 1, LAM_TOKEN_UNKNOWN, LAM_TOKEN_CONTROL, LAM_TOKEN_USER_DEFINED, LAM_TOKEN_UNUSED, LAM_TOKEN_BYTE
};
#define LAM_TOKEN_TYPE_MASK 0x07u
#define LAM_TOKEN_LITERAL 0x80u /* found only as a special, never by the model: its bytes are text as written */

enum lam_vocab_flags {
    LAM_VOCAB_ADD_BOS = 1u << 0,
    LAM_VOCAB_ADD_EOS = 1u << 1,
    LAM_VOCAB_SPACE_PREFIX = 1u << 2,   /* a space is put before text (and taken off again when decoding) */
    LAM_VOCAB_BYTE_FALLBACK = 1u << 3,  /* unknown characters become byte tokens */
    LAM_VOCAB_FUSE_UNKNOWN = 1u << 4,   /* a run of unknown characters is one unknown token */
    LAM_VOCAB_IGNORE_MERGES = 1u << 5,  /* a whole word that is a token is taken without merging */
    LAM_VOCAB_STRIP_EXTRA_SPACES = 1u << 6, /* SentencePiece's remove_extra_whitespaces */
    LAM_VOCAB_SPACE_SUFFIX = 1u << 7,   /* treat_whitespace_as_suffix */
    LAM_VOCAB_EMIT_UNKNOWN = 1u << 8,   /* characters without a token become ids.unk; without the flag they vanish */
    LAM_VOCAB_FLAGS_ALL = (1u << 9) - 1
};

struct lam_merge {
    uint32_t left, right, result; /* token ids */
};

enum lam_special_flags {
    LAM_SPECIAL_CONTROL = 1u << 0,     /* found only if the caller asks for special tokens to be parsed */
    LAM_SPECIAL_LSTRIP = 1u << 1,      /* takes the white space before it */
    LAM_SPECIAL_RSTRIP = 1u << 2,      /* takes the white space after it */
    LAM_SPECIAL_SINGLE_WORD = 1u << 3, /* only between non-word characters */
    LAM_SPECIAL_NORMALIZED = 1u << 4,  /* sought after normalisation, in what the raw ones left */
    LAM_SPECIAL_FLAGS_ALL = (1u << 5) - 1
};

struct lam_special {
    uint32_t id;
    uint32_t flags;
    uint32_t offset, len; /* pattern, in special_bytes; len >= 1 */
};

enum lam_step_kind {
    LAM_STEP_NFC = 1, LAM_STEP_NFD, LAM_STEP_NFKC, LAM_STEP_NFKD,
    LAM_STEP_PREPEND,      /* a in front of non-empty text; flags: enum lam_prepend_flags */
    LAM_STEP_REPLACE,      /* every a by b */
    LAM_STEP_APPEND,       /* a after non-empty text */
    LAM_STEP_STRIP_SPACES, /* spaces at both ends (at the end U+2581 too) go, runs inside become one */
    LAM_STEP_SPLIT_REGEX = 16, /* cut at matches of regular expression a; flags: enum lam_split */
    LAM_STEP_SPLIT_TEXT    /* cut at the string a */
};
enum lam_prepend_flags {
    LAM_PREPEND_FIRST_ONLY = 1u << 0,     /* only at the very start of the input */
    LAM_PREPEND_UNLESS_PRESENT = 1u << 1  /* not if the text begins with a already */
};
/* What becomes of a match; LAM_SPLIT_INVERT swaps matches and the text between them. */
enum lam_split {
    LAM_SPLIT_ISOLATED = 0, LAM_SPLIT_REMOVED, LAM_SPLIT_MERGED_WITH_PREVIOUS, LAM_SPLIT_MERGED_WITH_NEXT,
    LAM_SPLIT_CONTIGUOUS, LAM_SPLIT_INVERT = 0x80
};

/* Head of one record of the steps table. */
struct lam_step_head {
    uint8_t kind, flags;
    uint16_t zero;
    uint32_t a_len, b_len;
    uint32_t zero2;
};
/* A step as read; a and b point into the section. */
struct lam_step {
    enum lam_step_kind kind;
    uint8_t flags;
    const char *a, *b;
    size_t a_len, b_len;
};

/* Ids are LAM_TOKEN_NONE where the vocabulary has none. */
struct lam_vocab_ids {
    uint32_t bos, eos, unk, pad, eot, eom;
};

/* A view on a section; points into the bytes given to lam_vocab_open. All values are within bounds. */
struct lam_vocab {
    const uint8_t *bytes;
    size_t len;
    enum lam_vocab_kind kind;
    uint32_t flags; /* enum lam_vocab_flags */
    struct lam_vocab_ids ids;

    uint32_t n_tokens;
    const uint32_t *token_offsets; /* [n_tokens + 1] */
    const uint8_t *token_bytes;
    const float *scores;           /* [n_tokens]; NULL unless LAM_VOCAB_SPM */
    const uint8_t *types;          /* [n_tokens] */
    const uint32_t *byte_ids;      /* [256]: the token of a single byte, or LAM_TOKEN_NONE */
    const uint32_t *token_index;
    uint32_t token_slots;          /* a power of two */

    uint32_t n_merges;
    const struct lam_merge *merges;
    const uint32_t *merge_index;
    uint32_t merge_slots;

    uint32_t n_specials[2];              /* raw, normalised */
    const struct lam_special *specials[2];
    const uint32_t *special_heads[2];    /* [257] each, relative to specials[i] */
    const uint8_t *special_bytes;

    uint32_t n_eog;
    const uint32_t *eog;
    const uint8_t *steps;
    size_t steps_bytes;
    const char *pre_name;                /* not zero-terminated */
    size_t pre_name_len;
};

/* Checks every offset, id and size of the section once, O(its length), and fills the view. bytes must be aligned to 8
 * and outlive the view. LAM_E_MAGIC, LAM_E_VERSION, LAM_E_TRUNCATED, LAM_E_OVERFLOW, LAM_E_ALIGNMENT, LAM_E_GAP,
 * LAM_E_FORMAT. */
lam_code lam_vocab_open(const uint8_t *bytes, size_t len, struct lam_vocab *out, lam_error *err);

/* The bytes of a token; id < n_tokens. */
const uint8_t *lam_vocab_token(const struct lam_vocab *v, uint32_t id, size_t *len);
enum lam_token_type lam_vocab_type(const struct lam_vocab *v, uint32_t id);
bool lam_vocab_is_literal(const struct lam_vocab *v, uint32_t id);
bool lam_vocab_is_eog(const struct lam_vocab *v, uint32_t id);

/* The token with these bytes, or LAM_TOKEN_NONE. literal chooses between the model's tokens and the literal ones. */
uint32_t lam_vocab_find(const struct lam_vocab *v, bool literal, const void *bytes, size_t len);
/* Any token whose text as a user writes it is this, literal ones first; for bos_token: "<s>" and the like. */
uint32_t lam_vocab_find_text(const struct lam_vocab *v, const char *text, size_t len);
/* The merge of two tokens: its rank, or LAM_TOKEN_NONE. */
uint32_t lam_vocab_merge(const struct lam_vocab *v, uint32_t left, uint32_t right);
/* Longest special token at text[0..len): its entry, or NULL. list: 0 raw, 1 normalised. */
const struct lam_special *lam_vocab_special_at(const struct lam_vocab *v, int list, bool control, const uint8_t *text,
                                               size_t len);
/* Walk the steps: start with *at = 0; false at the end. */
bool lam_vocab_next_step(const struct lam_vocab *v, size_t *at, struct lam_step *out);

/* tokenizer_digest: SHA-256 over canonical JSON of the content. Also checks that the prebuilt indexes agree with the
 * content (LAM_E_FORMAT), since a wrong index would be another tokenizer under the same digest.
 *
 * What stands in it: kind, the flags that change results, tokens (id, type, bytes; scores of LAM_VOCAB_SPM), merges in
 * order, specials, steps, and the ids of bos, eos and (where it is emitted) unk. Not in it: padding tokens that only fill the embedding
 * (LAM_TOKEN_UNUSED), pad, eot, eom and end-of-generation ids (they end a text, they do not make one), pre_name, and
 * LAM_SPECIAL_CONTROL / token types of literal tokens beyond "special".
 *
 * So one byte-level tokenizer has one digest from GGUF and from tokenizer.json. It cannot be so where the sources say
 * different things: SentencePiece models are scores in GGUF and tokenizer.model but merges in tokenizer.json (two
 * functions that differ on some overlapping runs); lstrip, rstrip, single_word and normalized of added tokens do not
 * exist in GGUF; a GGUF may have been given another eos, add_bos or fewer added tokens than its source. */
lam_code lam_vocab_digest(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES], lam_error *err);

/* Building. Tokens get the ids 0, 1, …; nothing is checked against limits of the model. */
struct lam_vocab_out;
lam_code lam_vocab_out_new(enum lam_vocab_kind kind, struct lam_vocab_out **out, lam_error *err);
void lam_vocab_out_free(struct lam_vocab_out *o);
/* score is used by LAM_VOCAB_SPM alone; it must be finite. LAM_E_DUPLICATE if the (literal, bytes) pair exists. */
lam_code lam_vocab_out_token(struct lam_vocab_out *o, const void *bytes, size_t len, uint8_t type_and_literal,
                             float score, lam_error *err);
uint32_t lam_vocab_out_find(const struct lam_vocab_out *o, bool literal, const void *bytes, size_t len);
uint32_t lam_vocab_out_count(const struct lam_vocab_out *o);
/* Bytes and type of a token added before; valid until the next lam_vocab_out_token. */
const uint8_t *lam_vocab_out_bytes(const struct lam_vocab_out *o, uint32_t id, size_t *len, uint8_t *type);
/* The next rank. The result must be a token whose bytes are left's followed by right's; a pair that occurs twice keeps
 * its first rank. */
lam_code lam_vocab_out_merge(struct lam_vocab_out *o, uint32_t left, uint32_t right, uint32_t result, lam_error *err);
lam_code lam_vocab_out_special(struct lam_vocab_out *o, uint32_t id, uint32_t flags, const void *pattern, size_t len,
                               lam_error *err);
lam_code lam_vocab_out_step(struct lam_vocab_out *o, enum lam_step_kind kind, uint8_t flags, const char *a, size_t a_len,
                            const char *b, size_t b_len, lam_error *err);
lam_code lam_vocab_out_eog(struct lam_vocab_out *o, uint32_t id, lam_error *err);
lam_code lam_vocab_out_pre_name(struct lam_vocab_out *o, const char *name, size_t len, lam_error *err);
void lam_vocab_out_flags(struct lam_vocab_out *o, uint32_t set);
void lam_vocab_out_byte(struct lam_vocab_out *o, uint8_t byte, uint32_t id);
/* Ids to edit before finish. */
struct lam_vocab_ids *lam_vocab_out_ids(struct lam_vocab_out *o);
/* The section's bytes, aligned to 64; freed with lam_free_aligned. Equal content gives equal bytes. */
lam_code lam_vocab_out_finish(struct lam_vocab_out *o, uint8_t **bytes, size_t *len, lam_error *err);

#endif
