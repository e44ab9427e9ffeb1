#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/str.h"
#include "base/utf8.h"
#include "text/encode.h"
#include "text/pretok.h"

#include <string.h>
#include <utf8proc.h>

#define SPACE_MARK "\xE2\x96\x81"

struct lam_tokenizer {
    const struct lam_vocab *vocab; /* borrowed */
    struct lam_pipeline *pipeline;
    bool cut_at_marks; /* see marks_begin_tokens */
};

/* One call's state. */
struct encoding {
    const struct lam_vocab *v;
    const struct lam_pipeline *pipeline;
    bool cut_at_marks;
    bool control; /* parse control tokens */
    struct lam_pipeline_work work;
    struct lam_merger merger;
    struct lam_tokens out;
    lam_error *err;
};

static bool is_mark(const uint8_t *text, size_t len, size_t at) { return len - at >= 3 && memcmp(text + at, SPACE_MARK, 3) == 0; }

/* True if the space mark follows nothing but marks in every token. No merge then reaches over the start of a run of marks,
 * and a text of characters can be cut there into words that fit the processor's cache, with the same result. */
static bool marks_begin_tokens(const struct lam_vocab *v)
{
    if (v->kind == LAM_VOCAB_BPE_BYTES || (v->flags & LAM_VOCAB_IGNORE_MERGES)) return false;
    if (lam_vocab_find(v, false, SPACE_MARK, 3) == LAM_TOKEN_NONE) return false;
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        size_t len, at = 0;
        const uint8_t *text = lam_vocab_token(v, id, &len);
        if (lam_vocab_is_literal(v, id)) continue;
        while (is_mark(text, len, at)) at += 3;
        for (; at < len; at++)
            if (is_mark(text, len, at)) return false;
    }
    return true;
}

lam_code lam_tokenizer_new(const struct lam_vocab *vocab, struct lam_tokenizer **out, lam_error *err)
{
    struct lam_tokenizer *t = lam_alloc(1, sizeof *t);
    if (!t) return LAM_RAISE(err, LAM_E_NO_MEMORY, "tokenizer");
    t->vocab = vocab;
    lam_code code = lam_pipeline_new(vocab, &t->pipeline, err);
    if (code != LAM_OK) {
        lam_free(t);
        return code;
    }
    t->cut_at_marks = marks_begin_tokens(vocab);
    *out = t;
    return LAM_OK;
}

void lam_tokenizer_free(struct lam_tokenizer *t)
{
    if (!t) return;
    lam_pipeline_free(t->pipeline);
    lam_free(t);
}

lam_code lam_tokens_push(struct lam_tokens *t, uint32_t id, lam_error *err)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        uint32_t *grown = lam_realloc(t->items, cap, sizeof *grown);
        if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tokens", t->n + 1);
        t->items = grown;
        t->cap = cap;
    }
    t->items[t->n++] = id;
    return LAM_OK;
}

lam_code lam_encode_unknown(const struct lam_vocab *v, const uint8_t *bytes, size_t len, bool *after_unknown,
                            struct lam_tokens *out, lam_error *err)
{
    bool all_bytes = (v->flags & LAM_VOCAB_BYTE_FALLBACK) != 0;
    for (size_t i = 0; i < len; i++) all_bytes = all_bytes && v->byte_ids[bytes[i]] != LAM_TOKEN_NONE;
    if (all_bytes) {
        *after_unknown = false;
        for (size_t i = 0; i < len; i++) LAM_TRY(lam_tokens_push(out, v->byte_ids[bytes[i]], err));
        return LAM_OK;
    }
    if (v->ids.unk == LAM_TOKEN_NONE || !(v->flags & LAM_VOCAB_EMIT_UNKNOWN)) return LAM_OK;
    if (*after_unknown && (v->flags & LAM_VOCAB_FUSE_UNKNOWN)) return LAM_OK;
    *after_unknown = true;
    return lam_tokens_push(out, v->ids.unk, err);
}

/* Where the word that begins at from ends. */
static size_t word_end(const struct encoding *e, const char *text, size_t from, size_t len)
{
    const uint8_t *bytes = (const uint8_t *)text;
    if (!e->cut_at_marks) return len;
    while (is_mark(bytes, len, from)) from += 3;
    while (from < len && !is_mark(bytes, len, from)) from++;
    return from;
}

static lam_code encode_words(struct encoding *e, const char *text, size_t len)
{
    LAM_TRY(lam_pipeline_split(e->pipeline, &e->work, text, len, e->err));
    for (size_t i = 0; i < e->work.pieces.n; i++) {
        const char *piece = text + e->work.pieces.items[i].start;
        size_t n = e->work.pieces.items[i].end - e->work.pieces.items[i].start, end;
        for (size_t at = 0; at < n; at = end) {
            end = word_end(e, piece, at, n);
            if (e->v->kind == LAM_VOCAB_SPM) LAM_TRY(lam_spm_encode(e->v, &e->merger, piece + at, end - at, &e->out, e->err));
            else LAM_TRY(lam_bpe_encode(e->v, &e->merger, piece + at, end - at, &e->out, e->err));
        }
    }
    return LAM_OK;
}

/* Unicode's White_Space. */
static bool is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == ' ' || cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

/* \w of UTS 18: alphabetic, marks, decimal digits, connectors, joiners. */
static bool is_word(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC || cp == 0x200C || cp == 0x200D ||
           (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F189);
}

static uint32_t char_at(const char *text, size_t len, size_t at, size_t *n)
{
    uint32_t cp;
    bool valid;
    *n = lam_utf8_decode((const uint8_t *)text + at, len - at, &cp, &valid);
    return cp;
}

/* Start of the character that ends at at > 0. */
static size_t char_before(const char *text, size_t at)
{
    do at--;
    while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

static bool stands_alone(const char *text, size_t len, size_t start, size_t end)
{
    size_t n;
    return (start == 0 || !is_word(char_at(text, len, char_before(text, start), &n))) &&
           (end == len || !is_word(char_at(text, len, end, &n)));
}

/* Where the special token's match begins and ends once it has taken its white space; not before from. */
static void take_spaces(const struct lam_special *s, const char *text, size_t len, size_t from, size_t *start, size_t *end)
{
    size_t n;
    if (s->flags & LAM_SPECIAL_LSTRIP)
        while (*start > from && is_space(char_at(text, len, char_before(text, *start), &n))) *start = char_before(text, *start);
    if (s->flags & LAM_SPECIAL_RSTRIP)
        while (*end < len && is_space(char_at(text, len, *end, &n))) *end += n;
}

/* The next special token at or after from: leftmost, then longest. NULL if none; else its range. */
static const struct lam_special *next_special(const struct encoding *e, int list, const char *text, size_t len, size_t from,
                                              size_t *start, size_t *end)
{
    const uint32_t *heads = e->v->special_heads[list];
    for (size_t at = from; at < len; at++) {
        uint8_t first = (uint8_t)text[at];
        if (heads[first] == heads[first + 1]) continue;
        const struct lam_special *s = lam_vocab_special_at(e->v, list, e->control, (const uint8_t *)text + at, len - at);
        if (!s) continue;
        *start = at;
        *end = at + s->len;
        if ((s->flags & LAM_SPECIAL_SINGLE_WORD) && !stands_alone(text, len, *start, *end)) {
            at = *end - 1;
            continue;
        }
        take_spaces(s, text, len, from, start, end);
        return s;
    }
    return NULL;
}

/* Normalised text: cut out the normalised special tokens, encode the rest. */
static lam_code encode_normalized(struct encoding *e, const char *text, size_t len)
{
    size_t at = 0, start, end;
    const struct lam_special *s;
    while (at < len && (s = next_special(e, 1, text, len, at, &start, &end))) {
        if (start > at) LAM_TRY(encode_words(e, text + at, start - at));
        LAM_TRY(lam_tokens_push(&e->out, s->id, e->err));
        at = end;
    }
    return at < len ? encode_words(e, text + at, len - at) : LAM_OK;
}

static lam_code encode_section(struct encoding *e, const char *text, size_t len, bool at_start)
{
    LAM_TRY(lam_pipeline_normalize(e->pipeline, &e->work, text, len, at_start, e->err));
    /* The words below point into this buffer while the scratch is used again. */
    struct lam_str normalized = e->work.text;
    e->work.text = (struct lam_str){0};
    lam_code code = encode_normalized(e, normalized.data, normalized.len);
    lam_str_release(&e->work.text);
    e->work.text = normalized;
    return code;
}

static lam_code encode_text(struct encoding *e, const char *text, size_t len)
{
    size_t at = 0, start, end;
    const struct lam_special *s;
    while (at < len && (s = next_special(e, 0, text, len, at, &start, &end))) {
        if (start > at) LAM_TRY(encode_section(e, text + at, start - at, at == 0));
        LAM_TRY(lam_tokens_push(&e->out, s->id, e->err));
        at = end;
    }
    return at < len ? encode_section(e, text + at, len - at, at == 0) : LAM_OK;
}

/* Exactly one BOS: room for it was left at items[0]; a BOS that the text begins with takes its place. */
static void one_bos(struct lam_tokens *t, uint32_t bos)
{
    size_t extra = 0;
    while (1 + extra < t->n && t->items[1 + extra] == bos) extra++;
    memmove(t->items + 1, t->items + 1 + extra, (t->n - 1 - extra) * sizeof *t->items);
    t->n -= extra;
}

static lam_code encode_all(struct encoding *e, const char *text, size_t len, unsigned flags)
{
    bool bos = (flags & LAM_ENCODE_ADD_SPECIAL) && (e->v->flags & LAM_VOCAB_ADD_BOS) && e->v->ids.bos != LAM_TOKEN_NONE;
    bool eos = (flags & LAM_ENCODE_ADD_SPECIAL) && (e->v->flags & LAM_VOCAB_ADD_EOS) && e->v->ids.eos != LAM_TOKEN_NONE;
    if (bos) LAM_TRY(lam_tokens_push(&e->out, e->v->ids.bos, e->err));
    LAM_TRY(encode_text(e, text, len));
    if (bos) one_bos(&e->out, e->v->ids.bos);
    return eos ? lam_tokens_push(&e->out, e->v->ids.eos, e->err) : LAM_OK;
}

lam_code lam_tokenizer_encode(const struct lam_tokenizer *t, const char *text, size_t len, unsigned flags,
                              uint32_t **tokens, size_t *n, lam_error *err)
{
    if (flags & ~(unsigned)(LAM_ENCODE_ADD_SPECIAL | LAM_ENCODE_PARSE_SPECIAL))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "encode flags 0x%x", flags);
    if (len > UINT32_MAX / 64) return LAM_RAISE(err, LAM_E_LIMIT, "text of %zu bytes", len);
    struct encoding e = {.v = t->vocab, .pipeline = t->pipeline, .cut_at_marks = t->cut_at_marks, .err = err, .control = (flags & LAM_ENCODE_PARSE_SPECIAL) != 0};
    struct lam_str repaired = {0};
    lam_code code = lam_pipeline_work_init(&e.work, err);
    if (code == LAM_OK && lam_utf8_valid_prefix((const uint8_t *)text, len) != len) {
        if (!lam_utf8_append_lossy(&repaired, text, len)) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "text of %zu bytes", len);
        text = repaired.data;
        len = repaired.len;
    }
    /* Never NULL, even for an empty result. */
    if (code == LAM_OK) code = lam_tokens_push(&e.out, 0, err);
    e.out.n = 0;
    if (code == LAM_OK) code = encode_all(&e, text, len, flags);
    lam_str_release(&repaired);
    lam_pipeline_work_release(&e.work);
    lam_merger_release(&e.merger);
    if (code != LAM_OK) {
        lam_free(e.out.items);
        return code;
    }
    *tokens = e.out.items;
    *n = e.out.n;
    return LAM_OK;
}
