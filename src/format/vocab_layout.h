/* The vocabulary section's header and hashing, shared by the view and the builder. */
#ifndef LAM_FORMAT_VOCAB_LAYOUT_H
#define LAM_FORMAT_VOCAB_LAYOUT_H

#include "format/vocab.h"

#define LAM_VOCAB_MAGIC "LVOC"
#define LAM_VOCAB_VERSION 0
/* Longest run of occupied slots that a lookup walks; the builder refuses a table that needs more. */
#define LAM_VOCAB_MAX_PROBE 256u

struct lam_vocab_header {
    uint8_t magic[4];
    uint16_t version, kind;
    uint32_t flags;
    uint32_t n_tokens, token_slots;
    uint32_t n_merges, merge_slots;
    uint32_t n_specials[2];
    uint32_t n_eog;
    uint32_t ids[6]; /* bos, eos, unk, pad, eot, eom */
    uint32_t token_bytes, special_bytes, steps_bytes, pre_name_len;
    uint32_t zero[2];
    uint64_t length; /* of the whole section, header included */
    uint8_t zero2[32];
};
_Static_assert(sizeof(struct lam_vocab_header) == 128, "layout of the vocabulary header");
_Static_assert(sizeof(struct lam_special) == 16, "layout of a special token");
_Static_assert(sizeof(struct lam_merge) == 12, "layout of a merge");
_Static_assert(sizeof(struct lam_step_head) == 16, "layout of a step");

/* Where each table lies, from the section's start. */
struct lam_vocab_layout {
    size_t token_offsets, token_bytes, scores, types, byte_ids, token_index, merges, merge_index, specials,
        special_heads, special_bytes, eog, steps, pre_name, end;
};

/* LAM_E_OVERFLOW if the sizes pass size_t. */
lam_code lam_vocab_layout(const struct lam_vocab_header *h, struct lam_vocab_layout *out, lam_error *err);

/* That a lookup of every token (lam_vocab_find), of every merge (lam_vocab_merge) gives it: LAM_E_FORMAT names one that is not found. */
lam_code lam_vocab_check_index(const struct lam_vocab *v, lam_error *err);
lam_code lam_vocab_check_merge_index(const struct lam_vocab *v, lam_error *err);

uint32_t lam_vocab_hash_token(bool literal, const uint8_t *bytes, size_t len);
uint32_t lam_vocab_hash_merge(uint32_t left, uint32_t right);
/* A power of two, at least twice n. */
uint32_t lam_vocab_slots(uint32_t n);
/* -1, 0, 1 as memcmp over the common length, then the shorter first. */
int lam_vocab_compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len);

#endif
