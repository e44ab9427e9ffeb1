#include "base/alloc.h"
#include "base/str.h"
#include "format/vocab_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct token {
    size_t offset;
    uint32_t len;
    float score;
    uint8_t type;
};

struct special {
    uint32_t id, flags, len;
    size_t offset;
};

struct lam_vocab_out {
    enum lam_vocab_kind kind;
    uint32_t flags;
    struct lam_vocab_ids ids;
    uint32_t byte_ids[256];

    struct token *tokens;
    uint32_t n_tokens, cap_tokens;
    struct lam_str token_bytes;
    uint32_t *index; /* id + 1 by hash */
    uint32_t slots;

    struct lam_merge *merges;
    uint32_t n_merges, cap_merges;
    uint32_t *merge_index; /* rank + 1 by hash */
    uint32_t merge_slots;

    struct special *specials;
    uint32_t n_specials, cap_specials;
    struct lam_str special_bytes;

    uint32_t *eog;
    uint32_t n_eog, cap_eog;
    struct lam_str steps, pre_name;
};

lam_code lam_vocab_out_new(enum lam_vocab_kind kind, struct lam_vocab_out **out, lam_error *err)
{
    struct lam_vocab_out *o = lam_alloc(1, sizeof *o);
    if (!o) return LAM_RAISE(err, LAM_E_NO_MEMORY, "vocabulary builder");
    o->kind = kind;
    o->ids = (struct lam_vocab_ids){LAM_TOKEN_NONE, LAM_TOKEN_NONE, LAM_TOKEN_NONE, LAM_TOKEN_NONE, LAM_TOKEN_NONE, LAM_TOKEN_NONE};
    memset(o->byte_ids, 0xFF, sizeof o->byte_ids);
    *out = o;
    return LAM_OK;
}

void lam_vocab_out_free(struct lam_vocab_out *o)
{
    if (!o) return;
    lam_free(o->tokens);
    lam_str_release(&o->token_bytes);
    lam_free(o->index);
    lam_free(o->merges);
    lam_free(o->merge_index);
    lam_free(o->specials);
    lam_str_release(&o->special_bytes);
    lam_free(o->eog);
    lam_str_release(&o->steps);
    lam_str_release(&o->pre_name);
    lam_free(o);
}

/* Room for one more item of size bytes. */
static bool grow(void **items, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap) return true;
    uint32_t more = *cap ? *cap * 2 : 64;
    void *grown = lam_realloc(*items, more, size);
    if (!grown) return false;
    *items = grown;
    *cap = more;
    return true;
}

static const uint8_t *bytes_of(const struct lam_vocab_out *o, uint32_t id)
{
    return (const uint8_t *)o->token_bytes.data + o->tokens[id].offset;
}

static bool token_is(const struct lam_vocab_out *o, uint32_t id, bool literal, const void *bytes, size_t len)
{
    const struct token *t = &o->tokens[id];
    return t->len == len && ((t->type & LAM_TOKEN_LITERAL) != 0) == literal &&
           (len == 0 || memcmp(bytes_of(o, id), bytes, len) == 0);
}

/* The slot that holds the token, or the free one where it would go; slots if the probe limit is passed. */
static uint32_t token_slot(const struct lam_vocab_out *o, bool literal, const void *bytes, size_t len)
{
    uint32_t slot = lam_vocab_hash_token(literal, bytes, len) & (o->slots - 1);
    for (uint32_t probe = 0; probe < LAM_VOCAB_MAX_PROBE; probe++, slot = (slot + 1) & (o->slots - 1))
        if (o->index[slot] == 0 || token_is(o, o->index[slot] - 1, literal, bytes, len)) return slot;
    return o->slots;
}

static uint32_t merge_slot(const struct lam_vocab_out *o, uint32_t left, uint32_t right)
{
    uint32_t slot = lam_vocab_hash_merge(left, right) & (o->merge_slots - 1);
    for (uint32_t probe = 0; probe < LAM_VOCAB_MAX_PROBE; probe++, slot = (slot + 1) & (o->merge_slots - 1)) {
        uint32_t rank = o->merge_index[slot];
        if (rank == 0 || (o->merges[rank - 1].left == left && o->merges[rank - 1].right == right)) return slot;
    }
    return o->merge_slots;
}

/* Rebuild the token index for n entries, in id order, so that it depends on the content alone. */
static lam_code index_tokens(struct lam_vocab_out *o, uint32_t n, lam_error *err)
{
    uint32_t slots = lam_vocab_slots(n);
    if (slots == o->slots) return LAM_OK;
    uint32_t *index = lam_alloc(slots, sizeof *index);
    if (!index) return LAM_RAISE(err, LAM_E_NO_MEMORY, "index of %u tokens", n);
    lam_free(o->index);
    o->index = index;
    o->slots = slots;
    for (uint32_t id = 0; id < o->n_tokens; id++) {
        const struct token *t = &o->tokens[id];
        uint32_t slot = token_slot(o, (t->type & LAM_TOKEN_LITERAL) != 0, bytes_of(o, id), t->len);
        if (slot == slots) return LAM_RAISE(err, LAM_E_LIMIT, "tokens collide beyond %u probes", LAM_VOCAB_MAX_PROBE);
        index[slot] = id + 1;
    }
    return LAM_OK;
}

static lam_code index_merges(struct lam_vocab_out *o, uint32_t n, lam_error *err)
{
    uint32_t slots = lam_vocab_slots(n);
    if (slots == o->merge_slots) return LAM_OK;
    uint32_t *index = lam_alloc(slots, sizeof *index);
    if (!index) return LAM_RAISE(err, LAM_E_NO_MEMORY, "index of %u merges", n);
    lam_free(o->merge_index);
    o->merge_index = index;
    o->merge_slots = slots;
    for (uint32_t rank = 0; rank < o->n_merges; rank++) {
        uint32_t slot = merge_slot(o, o->merges[rank].left, o->merges[rank].right);
        if (slot == slots) return LAM_RAISE(err, LAM_E_LIMIT, "merges collide beyond %u probes", LAM_VOCAB_MAX_PROBE);
        index[slot] = rank + 1;
    }
    return LAM_OK;
}

lam_code lam_vocab_out_token(struct lam_vocab_out *o, const void *bytes, size_t len, uint8_t type, float score, lam_error *err)
{
    bool literal = (type & LAM_TOKEN_LITERAL) != 0;
    if (o->n_tokens >= LAM_VOCAB_MAX_TOKENS) return LAM_RAISE(err, LAM_E_LIMIT, "more than %u tokens", LAM_VOCAB_MAX_TOKENS);
    if (len > LAM_VOCAB_MAX_TOKEN_BYTES) return LAM_RAISE(err, LAM_E_LIMIT, "token %u of %zu bytes", o->n_tokens, len);
    if (!isfinite(score)) return LAM_RAISE(err, LAM_E_NON_FINITE, "score of token %u", o->n_tokens);
    LAM_TRY(index_tokens(o, o->n_tokens + 1, err));
    uint32_t slot = token_slot(o, literal, bytes, len);
    if (slot == o->slots) return LAM_RAISE(err, LAM_E_LIMIT, "tokens collide beyond %u probes", LAM_VOCAB_MAX_PROBE);
    if (o->index[slot])
        return LAM_RAISE(err, LAM_E_DUPLICATE, "tokens %u and %u are both \"%.*s\"", o->index[slot] - 1, o->n_tokens,
                         (int)(len < 64 ? len : 64), (const char *)bytes);
    size_t offset = o->token_bytes.len;
    if (offset + len > UINT32_MAX || !grow((void **)&o->tokens, o->n_tokens, &o->cap_tokens, sizeof *o->tokens) ||
        !lam_str_append(&o->token_bytes, bytes, len))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u tokens", o->n_tokens + 1);
    o->tokens[o->n_tokens++] = (struct token){.offset = offset, .len = (uint32_t)len, .score = score, .type = type};
    o->index[slot] = o->n_tokens;
    return LAM_OK;
}

uint32_t lam_vocab_out_find(const struct lam_vocab_out *o, bool literal, const void *bytes, size_t len)
{
    if (o->n_tokens == 0) return LAM_TOKEN_NONE;
    uint32_t slot = token_slot(o, literal, bytes, len);
    return slot == o->slots || o->index[slot] == 0 ? LAM_TOKEN_NONE : o->index[slot] - 1;
}

uint32_t lam_vocab_out_count(const struct lam_vocab_out *o) { return o->n_tokens; }

const uint8_t *lam_vocab_out_bytes(const struct lam_vocab_out *o, uint32_t id, size_t *len, uint8_t *type)
{
    *len = o->tokens[id].len;
    *type = o->tokens[id].type;
    return bytes_of(o, id);
}

lam_code lam_vocab_out_merge(struct lam_vocab_out *o, uint32_t left, uint32_t right, uint32_t result, lam_error *err)
{
    if (left >= o->n_tokens || right >= o->n_tokens || result >= o->n_tokens)
        return LAM_RAISE(err, LAM_E_TOKEN, "merge %u names a token that is not in the vocabulary", o->n_merges);
    if (o->n_merges >= 4 * LAM_VOCAB_MAX_TOKENS) return LAM_RAISE(err, LAM_E_LIMIT, "more than %u merges", o->n_merges);
    LAM_TRY(index_merges(o, o->n_merges + 1, err));
    uint32_t slot = merge_slot(o, left, right);
    if (slot == o->merge_slots) return LAM_RAISE(err, LAM_E_LIMIT, "merges collide beyond %u probes", LAM_VOCAB_MAX_PROBE);
    if (o->merge_index[slot]) return LAM_OK;
    if (!grow((void **)&o->merges, o->n_merges, &o->cap_merges, sizeof *o->merges))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u merges", o->n_merges + 1);
    o->merges[o->n_merges++] = (struct lam_merge){left, right, result};
    o->merge_index[slot] = o->n_merges;
    return LAM_OK;
}

lam_code lam_vocab_out_special(struct lam_vocab_out *o, uint32_t id, uint32_t flags, const void *pattern, size_t len,
                               lam_error *err)
{
    if (id >= o->n_tokens || len == 0 || len > LAM_VOCAB_MAX_TOKEN_BYTES)
        return LAM_RAISE(err, LAM_E_TOKEN, "special token %u with a pattern of %zu bytes", id, len);
    size_t offset = o->special_bytes.len;
    if (offset + len > UINT32_MAX || !grow((void **)&o->specials, o->n_specials, &o->cap_specials, sizeof *o->specials) ||
        !lam_str_append(&o->special_bytes, pattern, len))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u special tokens", o->n_specials + 1);
    o->specials[o->n_specials++] = (struct special){.id = id, .flags = flags, .len = (uint32_t)len, .offset = offset};
    return LAM_OK;
}

lam_code lam_vocab_out_step(struct lam_vocab_out *o, enum lam_step_kind kind, uint8_t flags, const char *a, size_t a_len,
                            const char *b, size_t b_len, lam_error *err)
{
    if (a_len > UINT16_MAX || b_len > UINT16_MAX)
        return LAM_RAISE(err, LAM_E_LIMIT, "pre-tokenizer or normaliser text of %zu bytes", a_len > b_len ? a_len : b_len);
    struct lam_step_head head = {.kind = (uint8_t)kind, .flags = flags, .a_len = (uint32_t)a_len, .b_len = (uint32_t)b_len};
    static const uint8_t zero[8];
    size_t pad = (8 - (a_len + b_len) % 8) % 8;
    if (!lam_str_append(&o->steps, &head, sizeof head) || !lam_str_append(&o->steps, a, a_len) ||
        !lam_str_append(&o->steps, b, b_len) || !lam_str_append(&o->steps, zero, pad))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "pre-tokenizer step");
    return LAM_OK;
}

lam_code lam_vocab_out_eog(struct lam_vocab_out *o, uint32_t id, lam_error *err)
{
    if (id == LAM_TOKEN_NONE) return LAM_OK;
    if (id >= o->n_tokens) return LAM_RAISE(err, LAM_E_TOKEN, "end-of-generation token %u of %u", id, o->n_tokens);
    uint32_t at = 0;
    while (at < o->n_eog && o->eog[at] < id) at++;
    if (at < o->n_eog && o->eog[at] == id) return LAM_OK;
    if (o->n_eog >= LAM_VOCAB_MAX_EOG) return LAM_RAISE(err, LAM_E_LIMIT, "more than %u end-of-generation tokens", LAM_VOCAB_MAX_EOG);
    if (!grow((void **)&o->eog, o->n_eog, &o->cap_eog, sizeof *o->eog))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "end-of-generation tokens");
    memmove(o->eog + at + 1, o->eog + at, (o->n_eog - at) * sizeof *o->eog);
    o->eog[at] = id;
    o->n_eog++;
    return LAM_OK;
}

lam_code lam_vocab_out_pre_name(struct lam_vocab_out *o, const char *name, size_t len, lam_error *err)
{
    lam_str_clear(&o->pre_name);
    if (len > UINT16_MAX) return LAM_RAISE(err, LAM_E_LIMIT, "pre-tokenizer name of %zu bytes", len);
    return lam_str_append(&o->pre_name, name, len) ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "pre-tokenizer name");
}

void lam_vocab_out_flags(struct lam_vocab_out *o, uint32_t set) { o->flags |= set; }
void lam_vocab_out_byte(struct lam_vocab_out *o, uint8_t byte, uint32_t id) { o->byte_ids[byte] = id; }
struct lam_vocab_ids *lam_vocab_out_ids(struct lam_vocab_out *o) { return &o->ids; }

struct sorted_special {
    const uint8_t *pattern;
    struct special s;
};

static int compare_specials(const void *a, const void *b)
{
    const struct sorted_special *x = a, *y = b;
    int list_x = (x->s.flags & LAM_SPECIAL_NORMALIZED) != 0, list_y = (y->s.flags & LAM_SPECIAL_NORMALIZED) != 0;
    if (list_x != list_y) return list_x - list_y;
    int order = lam_vocab_compare(x->pattern, x->s.len, y->pattern, y->s.len);
    if (order == 0 && x->s.id != y->s.id) order = x->s.id < y->s.id ? -1 : 1;
    return order;
}

/* Write the sorted specials, their heads and patterns. */
static lam_code write_specials(const struct lam_vocab_out *o, const struct lam_vocab_layout *l, uint8_t *bytes,
                               lam_error *err)
{
    struct sorted_special *sorted = lam_alloc(o->n_specials, sizeof *sorted);
    if (!sorted) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u special tokens", o->n_specials);
    for (uint32_t i = 0; i < o->n_specials; i++) {
        sorted[i].s = o->specials[i];
        sorted[i].pattern = (const uint8_t *)o->special_bytes.data + o->specials[i].offset;
    }
    if (o->n_specials) qsort(sorted, o->n_specials, sizeof *sorted, compare_specials);
    struct lam_special *out = (void *)(bytes + l->specials);
    uint32_t *heads = (void *)(bytes + l->special_heads);
    uint32_t at = 0;
    lam_code code = LAM_OK;
    for (uint32_t i = 0; i < o->n_specials; i++) {
        const struct sorted_special *x = &sorted[i];
        bool second = (x->s.flags & LAM_SPECIAL_NORMALIZED) != 0;
        if (i > 0 && ((x[-1].s.flags ^ x->s.flags) & LAM_SPECIAL_NORMALIZED) == 0 &&
            lam_vocab_compare(x[-1].pattern, x[-1].s.len, x->pattern, x->s.len) == 0)
            code = LAM_RAISE(err, LAM_E_DUPLICATE, "special tokens %u and %u are both \"%.*s\"", x[-1].s.id, x->s.id,
                             (int)(x->s.len < 64 ? x->s.len : 64), (const char *)x->pattern);
        out[i] = (struct lam_special){.id = x->s.id, .flags = x->s.flags, .offset = at, .len = x->s.len};
        memcpy(bytes + l->special_bytes + at, x->pattern, x->s.len);
        at += x->s.len;
        heads[257 * second + x->pattern[0] + 1]++;
    }
    for (int list = 0; list < 2; list++)
        for (int i = 0; i < 256; i++) heads[257 * list + i + 1] += heads[257 * list + i];
    lam_free(sorted);
    return code;
}

static void write_tables(const struct lam_vocab_out *o, const struct lam_vocab_layout *l, uint8_t *bytes)
{
    uint32_t *offsets = (void *)(bytes + l->token_offsets);
    float *scores = (void *)(bytes + l->scores);
    for (uint32_t i = 0; i < o->n_tokens; i++) {
        offsets[i + 1] = offsets[i] + o->tokens[i].len;
        bytes[l->types + i] = o->tokens[i].type;
        if (o->kind == LAM_VOCAB_SPM) scores[i] = o->tokens[i].score;
    }
    if (o->token_bytes.len) memcpy(bytes + l->token_bytes, o->token_bytes.data, o->token_bytes.len);
    memcpy(bytes + l->byte_ids, o->byte_ids, sizeof o->byte_ids);
    memcpy(bytes + l->token_index, o->index, (size_t)o->slots * sizeof *o->index);
    if (o->n_merges) memcpy(bytes + l->merges, o->merges, (size_t)o->n_merges * sizeof *o->merges);
    memcpy(bytes + l->merge_index, o->merge_index, (size_t)o->merge_slots * sizeof *o->merge_index);
    if (o->n_eog) memcpy(bytes + l->eog, o->eog, (size_t)o->n_eog * sizeof *o->eog);
    if (o->steps.len) memcpy(bytes + l->steps, o->steps.data, o->steps.len);
    if (o->pre_name.len) memcpy(bytes + l->pre_name, o->pre_name.data, o->pre_name.len);
}

static void fill_header(const struct lam_vocab_out *o, struct lam_vocab_header *h)
{
    uint32_t normalized = 0;
    for (uint32_t i = 0; i < o->n_specials; i++) normalized += (o->specials[i].flags & LAM_SPECIAL_NORMALIZED) != 0;
    *h = (struct lam_vocab_header){
        .version = LAM_VOCAB_VERSION, .kind = (uint16_t)o->kind, .flags = o->flags,
        .n_tokens = o->n_tokens, .token_slots = o->slots, .n_merges = o->n_merges, .merge_slots = o->merge_slots,
        .n_specials = {o->n_specials - normalized, normalized}, .n_eog = o->n_eog,
        .ids = {o->ids.bos, o->ids.eos, o->ids.unk, o->ids.pad, o->ids.eot, o->ids.eom},
        .token_bytes = (uint32_t)o->token_bytes.len, .special_bytes = (uint32_t)o->special_bytes.len,
        .steps_bytes = (uint32_t)o->steps.len, .pre_name_len = (uint32_t)o->pre_name.len,
    };
    memcpy(h->magic, LAM_VOCAB_MAGIC, 4);
}

lam_code lam_vocab_out_finish(struct lam_vocab_out *o, uint8_t **bytes, size_t *len, lam_error *err)
{
    if (o->n_tokens == 0) return LAM_RAISE(err, LAM_E_FORMAT, "a vocabulary without tokens");
    LAM_TRY(index_merges(o, o->n_merges, err));
    struct lam_vocab_header h;
    struct lam_vocab_layout l;
    fill_header(o, &h);
    LAM_TRY(lam_vocab_layout(&h, &l, err));
    h.length = l.end;
    uint8_t *section = lam_alloc_aligned(l.end);
    if (!section) return LAM_RAISE(err, LAM_E_NO_MEMORY, "vocabulary section of %zu bytes", l.end);
    memcpy(section, &h, sizeof h);
    write_tables(o, &l, section);
    lam_code code = write_specials(o, &l, section, err);
    struct lam_vocab view;
    if (code == LAM_OK) code = lam_vocab_open(section, l.end, &view, err);
    if (code != LAM_OK) {
        lam_free_aligned(section);
        return code;
    }
    *bytes = section;
    *len = l.end;
    return LAM_OK;
}
