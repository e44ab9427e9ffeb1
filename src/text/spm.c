/* SentencePiece's BPE: two neighbours merge if their text is a piece; the piece with the highest score goes first. */
#include "base/utf8.h"
#include "text/encode.h"

#include <string.h>

struct spm_word {
    const struct lam_vocab *v;
    const uint8_t *text;
};

/* Higher scores to lower ranks; the order of floats is that of their bits once negative ones are flipped. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are equal scores */
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

/* Control, unknown and byte tokens are never the text that they are named by; unused ones are padding. */
static uint32_t find_piece(const struct lam_vocab *v, const uint8_t *text, size_t len)
{
    uint32_t id = lam_vocab_find(v, false, text, len);
    return id != LAM_TOKEN_NONE && lam_vocab_type(v, id) == LAM_TOKEN_NORMAL ? id : LAM_TOKEN_NONE;
}

static bool pair_by_score(const void *context, const struct lam_symbol *left, const struct lam_symbol *right, uint32_t *rank,
                          uint32_t *result)
{
    const struct spm_word *w = context;
    *result = find_piece(w->v, w->text + left->start, (size_t)left->len + right->len);
    if (*result == LAM_TOKEN_NONE) return false;
    *rank = rank_of_score(w->v->scores[*result]);
    return true;
}

lam_code lam_spm_encode(const struct lam_vocab *v, struct lam_merger *m, const char *word, size_t len,
                        struct lam_tokens *out, lam_error *err)
{
    struct spm_word w = {.v = v, .text = (const uint8_t *)word};
    lam_merger_clear(m);
    for (size_t at = 0; at < len;) {
        uint32_t cp;
        bool valid;
        size_t n = lam_utf8_decode(w.text + at, len - at, &cp, &valid);
        LAM_TRY(lam_merger_push(m, find_piece(v, w.text + at, n), (uint32_t)at, (uint32_t)n, err));
        at += n;
    }
    LAM_TRY(lam_merger_run(m, pair_by_score, &w, err));
    bool after_unknown = false;
    for (size_t i = 0; i < m->n; i++) {
        const struct lam_symbol *s = &m->symbols[i];
        if (s->len == 0) continue;
        if (s->id == LAM_TOKEN_NONE) {
            LAM_TRY(lam_encode_unknown(v, w.text + s->start, s->len, &after_unknown, out, err));
            continue;
        }
        after_unknown = false;
        LAM_TRY(lam_tokens_push(out, s->id, err));
    }
    return LAM_OK;
}
