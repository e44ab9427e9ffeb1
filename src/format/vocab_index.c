/* Checking the vocabulary's prebuilt indexes. Slots lie at random places of tables larger than a processor's cache, so they are fetched
 * for a run of tokens before the run is looked at. */
#include "format/vocab_layout.h"

#include <string.h>

#define RUN 64

static bool same_token(const struct lam_vocab *v, uint32_t a, uint32_t b)
{
    size_t a_len, b_len;
    const uint8_t *a_text = lam_vocab_token(v, a, &a_len), *b_text = lam_vocab_token(v, b, &b_len);
    return a_len == b_len && lam_vocab_is_literal(v, a) == lam_vocab_is_literal(v, b) && (a_len == 0 || memcmp(a_text, b_text, a_len) == 0);
}

/* Whether lam_vocab_find from this first slot comes to id before an empty slot and before another token of the same text. */
static bool finds_token(const struct lam_vocab *v, uint32_t slot, uint32_t id)
{
    for (uint32_t probe = 0; probe < LAM_VOCAB_MAX_PROBE; probe++, slot = (slot + 1) & (v->token_slots - 1)) {
        uint32_t found = v->token_index[slot];
        if (found == id + 1) return true;
        if (found == 0 || same_token(v, found - 1, id)) return false;
    }
    return false;
}

lam_code lam_vocab_check_index(const struct lam_vocab *v, lam_error *err)
{
    uint32_t slots[RUN];
    for (uint32_t from = 0; from < v->n_tokens; from += RUN) {
        uint32_t n = v->n_tokens - from < RUN ? v->n_tokens - from : RUN;
        for (uint32_t i = 0; i < n; i++) {
            size_t len;
            const uint8_t *text = lam_vocab_token(v, from + i, &len);
            slots[i] = lam_vocab_hash_token(lam_vocab_is_literal(v, from + i), text, len) & (v->token_slots - 1);
            __builtin_prefetch(&v->token_index[slots[i]]);
        }
        for (uint32_t i = 0; i < n; i++)
            if (!finds_token(v, slots[i], from + i))
                return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: the index doesn't find token %u", from + i);
    }
    return LAM_OK;
}

static bool finds_merge(const struct lam_vocab *v, uint32_t slot, uint32_t rank)
{
    const struct lam_merge *m = &v->merges[rank];
    for (uint32_t probe = 0; probe < LAM_VOCAB_MAX_PROBE; probe++, slot = (slot + 1) & (v->merge_slots - 1)) {
        uint32_t found = v->merge_index[slot];
        if (found == rank + 1) return true;
        if (found == 0 || (v->merges[found - 1].left == m->left && v->merges[found - 1].right == m->right)) return false;
    }
    return false;
}

lam_code lam_vocab_check_merge_index(const struct lam_vocab *v, lam_error *err)
{
    uint32_t slots[RUN];
    for (uint32_t from = 0; from < v->n_merges; from += RUN) {
        uint32_t n = v->n_merges - from < RUN ? v->n_merges - from : RUN;
        for (uint32_t i = 0; i < n; i++) {
            slots[i] = lam_vocab_hash_merge(v->merges[from + i].left, v->merges[from + i].right) & (v->merge_slots - 1);
            __builtin_prefetch(&v->merge_index[slots[i]]);
        }
        for (uint32_t i = 0; i < n; i++)
            if (!finds_merge(v, slots[i], from + i))
                return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: the index doesn't find merge %u", from + i);
    }
    return LAM_OK;
}
