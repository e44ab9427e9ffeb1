/* BPE by merge ranks: over bytes (LAM_VOCAB_BPE_BYTES) or over characters (LAM_VOCAB_BPE_TEXT). */
#include "base/utf8.h"
#include "text/encode.h"

static bool pair_by_rank(const void *context, const struct lam_symbol *left, const struct lam_symbol *right, uint32_t *rank,
                         uint32_t *result)
{
    const struct lam_vocab *v = context;
    if (left->id == LAM_TOKEN_NONE || right->id == LAM_TOKEN_NONE) return false;
    *rank = lam_vocab_merge(v, left->id, right->id);
    if (*rank == LAM_TOKEN_NONE) return false;
    *result = v->merges[*rank].result;
    return true;
}

/* One symbol per byte, or per character. */
static lam_code split_word(const struct lam_vocab *v, struct lam_merger *m, const uint8_t *word, size_t len, lam_error *err)
{
    for (size_t at = 0; at < len;) {
        size_t n = 1;
        uint32_t id;
        if (v->kind == LAM_VOCAB_BPE_BYTES) {
            id = v->byte_ids[word[at]];
        } else {
            uint32_t cp;
            bool valid;
            n = lam_utf8_decode(word + at, len - at, &cp, &valid);
            id = lam_vocab_find(v, false, word + at, n);
        }
        LAM_TRY(lam_merger_push(m, id, (uint32_t)at, (uint32_t)n, err));
        at += n;
    }
    return LAM_OK;
}

lam_code lam_bpe_encode(const struct lam_vocab *v, struct lam_merger *m, const char *word, size_t len,
                        struct lam_tokens *out, lam_error *err)
{
    const uint8_t *bytes = (const uint8_t *)word;
    if (v->flags & LAM_VOCAB_IGNORE_MERGES) {
        uint32_t id = lam_vocab_find(v, false, word, len);
        if (id != LAM_TOKEN_NONE) return lam_tokens_push(out, id, err);
    }
    lam_merger_clear(m);
    LAM_TRY(split_word(v, m, bytes, len, err));
    LAM_TRY(lam_merger_run(m, pair_by_rank, v, err));
    bool after_unknown = false;
    for (size_t i = 0; i < m->n; i++) {
        const struct lam_symbol *s = &m->symbols[i];
        if (s->len == 0) continue;
        if (s->id == LAM_TOKEN_NONE) {
            LAM_TRY(lam_encode_unknown(v, bytes + s->start, s->len, &after_unknown, out, err));
            continue;
        }
        after_unknown = false;
        LAM_TRY(lam_tokens_push(out, s->id, err));
    }
    return LAM_OK;
}
