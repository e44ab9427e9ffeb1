#include "text/pretok.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct step {
    struct lam_step s;
    struct lam_regex *regex; /* LAM_STEP_SPLIT_REGEX; owned */
};

struct lam_pipeline {
    struct step *steps;
    size_t n;
};

static bool is_split(const struct lam_step *s) { return s->kind == LAM_STEP_SPLIT_REGEX || s->kind == LAM_STEP_SPLIT_TEXT; }

lam_code lam_pipeline_new(const struct lam_vocab *vocab, struct lam_pipeline **out, lam_error *err)
{
    size_t at = 0, n = 0;
    struct lam_step step;
    while (lam_vocab_next_step(vocab, &at, &step)) n++;
    struct lam_pipeline *p = lam_alloc(1, sizeof *p);
    if (p) p->steps = lam_alloc(n, sizeof *p->steps);
    if (!p || !p->steps) {
        lam_free(p);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "pre-tokenizer of %zu steps", n);
    }
    lam_code code = LAM_OK;
    for (at = 0; code == LAM_OK && lam_vocab_next_step(vocab, &at, &step); p->n++) {
        p->steps[p->n].s = step;
        if (step.kind == LAM_STEP_SPLIT_REGEX) code = lam_regex_compile(step.a, step.a_len, &p->steps[p->n].regex, err);
    }
    if (code != LAM_OK) {
        lam_pipeline_free(p);
        return code;
    }
    *out = p;
    return LAM_OK;
}

void lam_pipeline_free(struct lam_pipeline *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->n; i++) lam_regex_free(p->steps[i].regex);
    lam_free(p->steps);
    lam_free(p);
}

lam_code lam_pipeline_work_init(struct lam_pipeline_work *w, lam_error *err)
{
    *w = (struct lam_pipeline_work){0};
    return lam_matcher_new(&w->matcher, err);
}

void lam_pipeline_work_release(struct lam_pipeline_work *w)
{
    lam_matcher_free(w->matcher);
    lam_str_release(&w->text);
    lam_str_release(&w->spare);
    lam_free(w->pieces.items);
    lam_free(w->spare_pieces.items);
}

/* Normalising: each step reads w->text and leaves its result there. */

/* All below U+0300 is in form NFC already; U+0300 is CC 80. */
static bool composed_surely(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)text[i] >= 0xCC) return false;
    return true;
}

static lam_code unicode_form(const struct lam_step *s, struct lam_pipeline_work *w, lam_error *err)
{
    if (s->kind == LAM_STEP_NFC && composed_surely(w->text.data, w->text.len)) return LAM_OK;
    int options = UTF8PROC_STABLE;
    options |= s->kind == LAM_STEP_NFC || s->kind == LAM_STEP_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (s->kind == LAM_STEP_NFKC || s->kind == LAM_STEP_NFKD) options |= UTF8PROC_COMPAT;
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)w->text.data, (utf8proc_ssize_t)w->text.len, &mapped,
                                      (utf8proc_option_t)options);
    if (n < 0)
        return LAM_RAISE(err, n == UTF8PROC_ERROR_NOMEM ? LAM_E_NO_MEMORY : LAM_E_LIMIT, "normalising %zu bytes: %s", w->text.len,
                         utf8proc_errmsg(n));
    lam_str_clear(&w->text);
    bool ok = lam_str_append(&w->text, mapped, (size_t)n);
    free(mapped);
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "normalised text of %zd bytes", (size_t)n);
}

static const char *find(const char *text, size_t len, const char *what, size_t what_len)
{
    while (len >= what_len) {
        const char *at = memchr(text, what[0], len - what_len + 1);
        if (!at) return NULL;
        if (memcmp(at, what, what_len) == 0) return at;
        len -= (size_t)(at + 1 - text);
        text = at + 1;
    }
    return NULL;
}

/* A replacement may be longer than what it replaces; a hostile vocabulary may not use that to fill memory. */
static size_t replaced_limit(size_t len) { return 32 * len + (1u << 20); }

static bool replace_all(const struct lam_step *s, const struct lam_str *in, size_t limit, struct lam_str *out)
{
    const char *at = in->data, *end = in->data + in->len;
    const char *hit;
    while ((hit = find(at, (size_t)(end - at), s->a, s->a_len))) {
        if (!lam_str_append(out, at, (size_t)(hit - at)) || !lam_str_append(out, s->b, s->b_len)) return false;
        at = hit + s->a_len;
        if (out->len > limit) return false;
    }
    return lam_str_append(out, at, (size_t)(end - at));
}

static bool prepend(const struct lam_step *s, bool at_start, const struct lam_str *in, struct lam_str *out)
{
    bool present = in->len >= s->a_len && memcmp(in->data, s->a, s->a_len) == 0;
    bool skip = ((s->flags & LAM_PREPEND_FIRST_ONLY) && !at_start) || ((s->flags & LAM_PREPEND_UNLESS_PRESENT) && present);
    return (skip || lam_str_append(out, s->a, s->a_len)) && lam_str_append(out, in->data, in->len);
}

static bool strip_spaces(const struct lam_str *in, struct lam_str *out)
{
    size_t from = 0, to = in->len;
    while (from < to && in->data[from] == ' ') from++;
    for (;;) {
        if (to > from && in->data[to - 1] == ' ') to--;
        else if (to - from >= 3 && memcmp(in->data + to - 3, "\xE2\x96\x81", 3) == 0) to -= 3;
        else break;
    }
    for (size_t i = from; i < to; i++)
        if ((in->data[i] != ' ' || in->data[i - 1] != ' ') && !lam_str_putc(out, in->data[i])) return false;
    return true;
}

/* limit: bytes that the text may grow to. */
static lam_code apply(const struct lam_step *s, struct lam_pipeline_work *w, bool at_start, size_t limit, lam_error *err)
{
    if (s->kind <= LAM_STEP_NFKD) return unicode_form(s, w, err);
    lam_str_clear(&w->spare);
    bool ok;
    switch (s->kind) {
    case LAM_STEP_PREPEND: ok = prepend(s, at_start, &w->text, &w->spare); break;
    case LAM_STEP_REPLACE: ok = replace_all(s, &w->text, limit, &w->spare); break;
    case LAM_STEP_STRIP_SPACES: ok = strip_spaces(&w->text, &w->spare); break;
    default: ok = lam_str_append(&w->spare, w->text.data, w->text.len) && lam_str_append(&w->spare, s->a, s->a_len); break;
    }
    if (w->spare.len > limit) return LAM_RAISE(err, LAM_E_LIMIT, "normalising makes the text longer than %zu bytes", limit);
    if (!ok) return LAM_RAISE(err, LAM_E_NO_MEMORY, "normalised text of %zu bytes", w->text.len);
    struct lam_str result = w->spare;
    w->spare = w->text;
    w->text = result;
    return LAM_OK;
}

lam_code lam_pipeline_normalize(const struct lam_pipeline *p, struct lam_pipeline_work *w, const char *text, size_t len,
                                bool at_start, lam_error *err)
{
    lam_str_clear(&w->text);
    if (!lam_str_append(&w->text, text, len)) return LAM_RAISE(err, LAM_E_NO_MEMORY, "text of %zu bytes", len);
    for (size_t i = 0; i < p->n && w->text.len > 0; i++)
        if (!is_split(&p->steps[i].s)) LAM_TRY(apply(&p->steps[i].s, w, at_start, replaced_limit(len), err));
    return LAM_OK;
}

/* Cutting. A cutter receives, in order, the matches of one piece and the text between them. */

struct cutter {
    struct lam_pieces *out;
    enum lam_split behavior;
    bool invert, previous_match, ok;
    bool fresh;              /* nothing given out for this piece yet: merges have no partner */
    bool held;               /* MERGED_WITH_NEXT: a match waits for what follows */
    struct lam_piece hold;
};

static void give(struct cutter *c, size_t start, size_t end)
{
    struct lam_pieces *out = c->out;
    if (start == end) return;
    if (out->n == out->cap) {
        size_t cap = out->cap ? out->cap * 2 : 64;
        struct lam_piece *grown = lam_realloc(out->items, cap, sizeof *grown);
        if (!grown) {
            c->ok = false;
            return;
        }
        out->items = grown;
        out->cap = cap;
    }
    out->items[out->n++] = (struct lam_piece){start, end};
    c->fresh = false;
}

static void extend_or_give(struct cutter *c, bool extend, size_t start, size_t end)
{
    if (extend && !c->fresh) c->out->items[c->out->n - 1].end = end;
    else give(c, start, end);
}

static void release_hold(struct cutter *c)
{
    if (c->held) give(c, c->hold.start, c->hold.end);
    c->held = false;
}

static void segment(struct cutter *c, size_t start, size_t end, bool match)
{
    if (start == end || !c->ok) return;
    match ^= c->invert;
    switch (c->behavior) {
    case LAM_SPLIT_ISOLATED: give(c, start, end); break;
    case LAM_SPLIT_REMOVED:
        if (!match) give(c, start, end);
        break;
    case LAM_SPLIT_CONTIGUOUS: extend_or_give(c, match == c->previous_match, start, end); break;
    case LAM_SPLIT_MERGED_WITH_PREVIOUS: extend_or_give(c, match && !c->previous_match, start, end); break;
    case LAM_SPLIT_MERGED_WITH_NEXT:
        if (match) {
            release_hold(c);
            c->held = true;
            c->hold = (struct lam_piece){start, end};
        } else {
            give(c, c->held ? c->hold.start : start, end);
            c->held = false;
        }
        break;
    default: break;
    }
    c->previous_match = match;
}

static lam_code next_match(const struct step *s, struct lam_matcher *m, const char *text, size_t len, size_t from, bool *found,
                           size_t *start, size_t *end, lam_error *err)
{
    if (s->regex) return lam_regex_find(s->regex, m, text, len, from, found, start, end, err);
    const char *hit = find(text + from, len - from, s->s.a, s->s.a_len);
    *found = hit != NULL;
    if (hit) {
        *start = (size_t)(hit - text);
        *end = *start + s->s.a_len;
    }
    return LAM_OK;
}

static lam_code cut(const struct step *s, struct lam_matcher *m, const char *text, struct lam_piece piece,
                    struct lam_pieces *out, lam_error *err)
{
    struct cutter c = {.out = out, .behavior = (enum lam_split)(s->s.flags & ~(unsigned)LAM_SPLIT_INVERT),
                       .invert = (s->s.flags & LAM_SPLIT_INVERT) != 0, .ok = true, .fresh = true};
    const char *base = text + piece.start;
    size_t len = piece.end - piece.start, at = 0;
    while (at < len) {
        bool found;
        size_t start, end;
        LAM_TRY(next_match(s, m, base, len, at, &found, &start, &end, err));
        if (!found) break;
        segment(&c, piece.start + at, piece.start + start, false);
        segment(&c, piece.start + start, piece.start + end, true);
        at = end;
    }
    segment(&c, piece.start + at, piece.end, false);
    release_hold(&c);
    return c.ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu words", out->n);
}

lam_code lam_pipeline_split(const struct lam_pipeline *p, struct lam_pipeline_work *w, const char *text, size_t len,
                            lam_error *err)
{
    struct cutter whole = {.out = &w->pieces, .ok = true};
    w->pieces.n = 0;
    give(&whole, 0, len);
    if (!whole.ok) return LAM_RAISE(err, LAM_E_NO_MEMORY, "words");
    for (size_t i = 0; i < p->n; i++) {
        if (!is_split(&p->steps[i].s)) continue;
        w->spare_pieces.n = 0;
        for (size_t j = 0; j < w->pieces.n; j++)
            LAM_TRY(cut(&p->steps[i], w->matcher, text, w->pieces.items[j], &w->spare_pieces, err));
        struct lam_pieces result = w->spare_pieces;
        w->spare_pieces = w->pieces;
        w->pieces = result;
    }
    return LAM_OK;
}
