/* The merging loop that BPE and SentencePiece's BPE share: neighbours merge in order of rank, the leftmost first among
 * equals, until no pair is left. A heap of candidates gives O(n log n). */
#ifndef LAM_TEXT_MERGE_H
#define LAM_TEXT_MERGE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run of bytes with the token that it is at present (LAM_TOKEN_NONE if none). */
struct lam_symbol {
    uint32_t id;
    uint32_t start, len;  /* bytes of the text; len 0: merged away */
    uint32_t prev, next;  /* LAM_SYMBOL_END at the ends */
};
#define LAM_SYMBOL_END UINT32_MAX

struct lam_candidate {
    uint32_t rank, left, result;
};

/* One thread's scratch, reused from word to word. Zero-initialised. */
struct lam_merger {
    struct lam_symbol *symbols;
    size_t n, cap;
    struct lam_candidate *heap;
    size_t n_heap, cap_heap;
};
void lam_merger_release(struct lam_merger *m);

/* What two neighbours merge to: *rank (lower goes first) and *result; false if they don't. */
typedef bool (*lam_pair_fn)(const void *context, const struct lam_symbol *left, const struct lam_symbol *right,
                            uint32_t *rank, uint32_t *result);

/* Start a word: drop the symbols. */
void lam_merger_clear(struct lam_merger *m);
/* Append a symbol. */
lam_code lam_merger_push(struct lam_merger *m, uint32_t id, uint32_t start, uint32_t len, lam_error *err);
/* Merge until nothing merges. Symbols with len > 0 are then the result, in order. */
lam_code lam_merger_run(struct lam_merger *m, lam_pair_fn pair, const void *context, lam_error *err);

#endif
