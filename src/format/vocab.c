#include "format/vocab.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "format/vocab_layout.h"

#include <math.h>
#include <string.h>

static uint64_t mix64(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    return h;
}

uint32_t lam_vocab_hash_token(bool literal, const uint8_t *bytes, size_t len)
{
    uint64_t h = literal ? 0x9E3779B97F4A7C15u : 0xCBF29CE484222325u;
    for (size_t i = 0; i < len; i++) h = (h ^ bytes[i]) * 0x100000001B3u;
    return (uint32_t)mix64(h);
}

uint32_t lam_vocab_hash_merge(uint32_t left, uint32_t right)
{
    return (uint32_t)mix64(((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u);
}

uint32_t lam_vocab_slots(uint32_t n)
{
    uint32_t slots = 2;
    while (slots < 2 * n) slots *= 2;
    return slots;
}

int lam_vocab_compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    size_t common = a_len < b_len ? a_len : b_len;
    int order = common ? memcmp(a, b, common) : 0;
    if (order == 0 && a_len != b_len) order = a_len < b_len ? -1 : 1;
    return order < 0 ? -1 : order > 0;
}

/* Place count items of size bytes at *at, which moves to the next multiple of 8. */
static bool place(size_t *at, size_t count, size_t size, size_t *start)
{
    size_t bytes, end;
    *start = *at;
    return lam_mul_size(count, size, &bytes) && lam_add_size(*at, bytes, &end) && lam_round_up(end, 8, at);
}

lam_code lam_vocab_layout(const struct lam_vocab_header *h, struct lam_vocab_layout *l, lam_error *err)
{
    size_t at = sizeof *h;
    size_t specials;
    bool ok = lam_add_size(h->n_specials[0], h->n_specials[1], &specials) &&
              place(&at, (size_t)h->n_tokens + 1, sizeof(uint32_t), &l->token_offsets) &&
              place(&at, h->token_bytes, 1, &l->token_bytes) &&
              place(&at, h->kind == LAM_VOCAB_SPM ? h->n_tokens : 0, sizeof(float), &l->scores) &&
              place(&at, h->n_tokens, 1, &l->types) &&
              place(&at, 256, sizeof(uint32_t), &l->byte_ids) &&
              place(&at, h->token_slots, sizeof(uint32_t), &l->token_index) &&
              place(&at, h->n_merges, sizeof(struct lam_merge), &l->merges) &&
              place(&at, h->merge_slots, sizeof(uint32_t), &l->merge_index) &&
              place(&at, specials, sizeof(struct lam_special), &l->specials) &&
              place(&at, 2 * 257, sizeof(uint32_t), &l->special_heads) &&
              place(&at, h->special_bytes, 1, &l->special_bytes) &&
              place(&at, h->n_eog, sizeof(uint32_t), &l->eog) &&
              place(&at, h->steps_bytes, 1, &l->steps) &&
              place(&at, h->pre_name_len, 1, &l->pre_name);
    if (!ok) return LAM_RAISE(err, LAM_E_OVERFLOW, "vocabulary section: its tables pass the address space");
    l->end = at;
    return LAM_OK;
}

static lam_code check_header(size_t len, const struct lam_vocab_header *h, lam_error *err)
{
    if (memcmp(h->magic, LAM_VOCAB_MAGIC, 4) != 0) return LAM_RAISE(err, LAM_E_MAGIC, "not a vocabulary section");
    if (h->version != LAM_VOCAB_VERSION)
        return LAM_RAISE(err, LAM_E_VERSION, "vocabulary section version %u, this program reads %d", h->version,
                         LAM_VOCAB_VERSION);
    if (h->kind < LAM_VOCAB_BPE_BYTES || h->kind > LAM_VOCAB_BPE_TEXT)
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "vocabulary kind %u", h->kind);
    if (h->flags & ~(uint32_t)LAM_VOCAB_FLAGS_ALL)
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "vocabulary flags 0x%x", h->flags);
    if (h->length != len)
        return LAM_RAISE(err, h->length > len ? LAM_E_TRUNCATED : LAM_E_GAP,
                         "vocabulary section: declares %llu bytes, has %zu", (unsigned long long)h->length, len);
    if (h->n_tokens == 0 || h->n_tokens > LAM_VOCAB_MAX_TOKENS || h->n_merges > 4 * LAM_VOCAB_MAX_TOKENS)
        return LAM_RAISE(err, LAM_E_LIMIT, "vocabulary of %u tokens, %u merges", h->n_tokens, h->n_merges);
    if (h->n_eog > LAM_VOCAB_MAX_EOG) return LAM_RAISE(err, LAM_E_LIMIT, "vocabulary with %u end-of-generation tokens", h->n_eog);
    if (h->token_slots != lam_vocab_slots(h->n_tokens) || h->merge_slots != lam_vocab_slots(h->n_merges))
        return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary index of %u and %u slots", h->token_slots, h->merge_slots);
    if (h->zero[0] != 0 || h->zero[1] != 0) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "vocabulary header: a reserved field is set");
    for (size_t i = 0; i < sizeof h->zero2; i++)
        if (h->zero2[i]) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "vocabulary header: a reserved byte is set");
    return LAM_OK;
}

static lam_code check_tokens(const struct lam_vocab *v, const struct lam_vocab_header *h, lam_error *err)
{
    if (v->token_offsets[0] != 0 || v->token_offsets[v->n_tokens] != h->token_bytes)
        return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: token offsets don't span the token bytes");
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (v->token_offsets[i + 1] < v->token_offsets[i] ||
            v->token_offsets[i + 1] - v->token_offsets[i] > LAM_VOCAB_MAX_TOKEN_BYTES)
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: offset of token %u", i + 1);
        unsigned type = v->types[i] & LAM_TOKEN_TYPE_MASK;
        if ((v->types[i] & ~(LAM_TOKEN_TYPE_MASK | LAM_TOKEN_LITERAL)) || type < LAM_TOKEN_NORMAL || type > LAM_TOKEN_BYTE)
            return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "vocabulary: type 0x%x of token %u", v->types[i], i);
        if (v->scores && !isfinite(v->scores[i]))
            return LAM_RAISE(err, LAM_E_NON_FINITE, "vocabulary: score of token %u", i);
    }
    for (int i = 0; i < 256; i++)
        if (v->byte_ids[i] != LAM_TOKEN_NONE && v->byte_ids[i] >= v->n_tokens)
            return LAM_RAISE(err, LAM_E_TOKEN, "vocabulary: token %u of byte %d", v->byte_ids[i], i);
    for (int i = 0; i < 6; i++)
        if (h->ids[i] != LAM_TOKEN_NONE && h->ids[i] >= v->n_tokens)
            return LAM_RAISE(err, LAM_E_TOKEN, "vocabulary: special id %u of %u tokens", h->ids[i], v->n_tokens);
    for (uint32_t i = 0; i < v->n_eog; i++)
        if (v->eog[i] >= v->n_tokens || (i > 0 && v->eog[i] <= v->eog[i - 1]))
            return LAM_RAISE(err, LAM_E_TOKEN, "vocabulary: end-of-generation id %u", v->eog[i]);
    return LAM_OK;
}

static lam_code check_indexes(const struct lam_vocab *v, lam_error *err)
{
    for (uint32_t i = 0; i < v->token_slots; i++)
        if (v->token_index[i] > v->n_tokens)
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: token index slot %u holds %u", i, v->token_index[i]);
    for (uint32_t i = 0; i < v->n_merges; i++) {
        const struct lam_merge *m = &v->merges[i];
        if (m->left >= v->n_tokens || m->right >= v->n_tokens || m->result >= v->n_tokens)
            return LAM_RAISE(err, LAM_E_TOKEN, "vocabulary: merge %u names a token outside %u", i, v->n_tokens);
    }
    for (uint32_t i = 0; i < v->merge_slots; i++)
        if (v->merge_index[i] > v->n_merges)
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: merge index slot %u holds %u", i, v->merge_index[i]);
    return LAM_OK;
}

static lam_code check_special_list(const struct lam_vocab *v, int list, size_t n_bytes, lam_error *err)
{
    const uint32_t *heads = v->special_heads[list];
    if (heads[0] != 0 || heads[256] != v->n_specials[list])
        return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: heads of special list %d", list);
    for (int i = 0; i < 256; i++)
        if (heads[i + 1] < heads[i]) return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: heads of special list %d", list);
    for (uint32_t i = 0; i < v->n_specials[list]; i++) {
        const struct lam_special *s = &v->specials[list][i];
        if (s->len == 0 || s->len > LAM_VOCAB_MAX_TOKEN_BYTES || s->offset > n_bytes || s->len > n_bytes - s->offset)
            return LAM_RAISE(err, LAM_E_OVERFLOW, "vocabulary: pattern of special token %u", i);
        if (s->id >= v->n_tokens) return LAM_RAISE(err, LAM_E_TOKEN, "vocabulary: special token %u", s->id);
        if (s->flags & ~(uint32_t)LAM_SPECIAL_FLAGS_ALL)
            return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "vocabulary: flags 0x%x of special token %u", s->flags, s->id);
        if (((s->flags & LAM_SPECIAL_NORMALIZED) != 0) != (list == 1))
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: special token %u is in the wrong list", s->id);
        const uint8_t *p = v->special_bytes + s->offset;
        if (lam_utf8_valid_prefix(p, s->len) != s->len)
            return LAM_RAISE(err, LAM_E_UTF8, "vocabulary: pattern of special token %u", s->id);
        if (i < heads[p[0]] || i >= heads[p[0] + 1])
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: heads miss special token %u", s->id);
        if (i > 0 && lam_vocab_compare(p - s->offset + s[-1].offset, s[-1].len, p, s->len) >= 0)
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: special tokens out of order at %u", s->id);
    }
    return LAM_OK;
}

static bool step_known(unsigned kind, unsigned flags)
{
    if (kind == LAM_STEP_PREPEND) return flags <= (LAM_PREPEND_FIRST_ONLY | LAM_PREPEND_UNLESS_PRESENT);
    if (kind == LAM_STEP_SPLIT_REGEX || kind == LAM_STEP_SPLIT_TEXT)
        return (flags & ~(unsigned)LAM_SPLIT_INVERT) <= LAM_SPLIT_CONTIGUOUS;
    return kind >= LAM_STEP_NFC && kind <= LAM_STEP_STRIP_SPACES && flags == 0;
}

/* The record at *at; false at the end or if it is malformed (at then stays). */
bool lam_vocab_next_step(const struct lam_vocab *v, size_t *at, struct lam_step *out)
{
    struct lam_step_head head;
    if (v->steps_bytes - *at < sizeof head) return false;
    memcpy(&head, v->steps + *at, sizeof head);
    size_t need;
    if (!lam_add_size(head.a_len, head.b_len, &need) || !lam_add_size(need, sizeof head, &need) ||
        !lam_round_up(need, 8, &need) || need > v->steps_bytes - *at)
        return false;
    if (head.zero || head.zero2 || !step_known(head.kind, head.flags)) return false;
    const char *text = (const char *)v->steps + *at + sizeof head;
    *out = (struct lam_step){.kind = head.kind, .flags = head.flags, .a = text, .a_len = head.a_len,
                             .b = text + head.a_len, .b_len = head.b_len};
    *at += need;
    return true;
}

static lam_code check_steps(const struct lam_vocab *v, lam_error *err)
{
    size_t at = 0;
    struct lam_step step;
    while (lam_vocab_next_step(v, &at, &step)) {
        if (lam_utf8_valid_prefix((const uint8_t *)step.a, step.a_len) != step.a_len ||
            lam_utf8_valid_prefix((const uint8_t *)step.b, step.b_len) != step.b_len)
            return LAM_RAISE(err, LAM_E_UTF8, "vocabulary: text of a normaliser or pre-tokenizer step");
        bool text_needed = step.kind >= LAM_STEP_SPLIT_REGEX || step.kind == LAM_STEP_PREPEND ||
                           step.kind == LAM_STEP_REPLACE || step.kind == LAM_STEP_APPEND;
        if (text_needed != (step.a_len > 0) || (step.b_len > 0 && step.kind != LAM_STEP_REPLACE))
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: text of step kind %d", step.kind);
    }
    if (at != v->steps_bytes)
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "vocabulary: unknown or malformed step at byte %zu", at);
    return LAM_OK;
}

/* Bytes between from and to must be zero, so that one content has one form. */
static bool zero_between(const uint8_t *bytes, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (bytes[i]) return false;
    return true;
}

static lam_code check_padding(const uint8_t *bytes, const struct lam_vocab_header *h, const struct lam_vocab_layout *l,
                              lam_error *err)
{
    bool ok = zero_between(bytes, l->token_offsets + ((size_t)h->n_tokens + 1) * 4, l->token_bytes) &&
              zero_between(bytes, l->token_bytes + h->token_bytes, l->scores) &&
              zero_between(bytes, l->scores + (h->kind == LAM_VOCAB_SPM ? (size_t)h->n_tokens * 4 : 0), l->types) &&
              zero_between(bytes, l->types + h->n_tokens, l->byte_ids) &&
              zero_between(bytes, l->merges + (size_t)h->n_merges * 12, l->merge_index) &&
              zero_between(bytes, l->special_bytes + h->special_bytes, l->eog) &&
              zero_between(bytes, l->eog + (size_t)h->n_eog * 4, l->steps) &&
              zero_between(bytes, l->pre_name + h->pre_name_len, l->end);
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: padding between tables is not zero");
}

static void fill_view(const uint8_t *bytes, size_t len, const struct lam_vocab_header *h,
                      const struct lam_vocab_layout *l, struct lam_vocab *v)
{
    const struct lam_special *specials = (const void *)(bytes + l->specials);
    const uint32_t *heads = (const void *)(bytes + l->special_heads);
    *v = (struct lam_vocab){
        .bytes = bytes, .len = len, .kind = h->kind, .flags = h->flags,
        .ids = {h->ids[0], h->ids[1], h->ids[2], h->ids[3], h->ids[4], h->ids[5]},
        .n_tokens = h->n_tokens,
        .token_offsets = (const void *)(bytes + l->token_offsets),
        .token_bytes = bytes + l->token_bytes,
        .scores = h->kind == LAM_VOCAB_SPM ? (const void *)(bytes + l->scores) : NULL,
        .types = bytes + l->types,
        .byte_ids = (const void *)(bytes + l->byte_ids),
        .token_index = (const void *)(bytes + l->token_index), .token_slots = h->token_slots,
        .n_merges = h->n_merges, .merges = (const void *)(bytes + l->merges),
        .merge_index = (const void *)(bytes + l->merge_index), .merge_slots = h->merge_slots,
        .n_specials = {h->n_specials[0], h->n_specials[1]},
        .specials = {specials, specials + h->n_specials[0]},
        .special_heads = {heads, heads + 257},
        .special_bytes = bytes + l->special_bytes,
        .n_eog = h->n_eog, .eog = (const void *)(bytes + l->eog),
        .steps = bytes + l->steps, .steps_bytes = h->steps_bytes,
        .pre_name = (const char *)bytes + l->pre_name, .pre_name_len = h->pre_name_len,
    };
}

lam_code lam_vocab_open(const uint8_t *bytes, size_t len, struct lam_vocab *out, lam_error *err)
{
    if ((uintptr_t)bytes % 8 != 0) return LAM_RAISE(err, LAM_E_ALIGNMENT, "vocabulary section at an address not aligned to 8");
    struct lam_vocab_header h;
    if (len < sizeof h) return LAM_RAISE(err, LAM_E_TRUNCATED, "vocabulary section of %zu bytes", len);
    memcpy(&h, bytes, sizeof h);
    LAM_TRY(check_header(len, &h, err));
    struct lam_vocab_layout l;
    LAM_TRY(lam_vocab_layout(&h, &l, err));
    if (l.end != len)
        return LAM_RAISE(err, l.end > len ? LAM_E_TRUNCATED : LAM_E_GAP, "vocabulary section: tables end at %zu of %zu bytes",
                         l.end, len);
    struct lam_vocab v;
    fill_view(bytes, len, &h, &l, &v);
    LAM_TRY(check_padding(bytes, &h, &l, err));
    LAM_TRY(check_tokens(&v, &h, err));
    LAM_TRY(check_indexes(&v, err));
    LAM_TRY(check_special_list(&v, 0, h.special_bytes, err));
    LAM_TRY(check_special_list(&v, 1, h.special_bytes, err));
    LAM_TRY(check_steps(&v, err));
    *out = v;
    return LAM_OK;
}

const uint8_t *lam_vocab_token(const struct lam_vocab *v, uint32_t id, size_t *len)
{
    *len = v->token_offsets[id + 1] - v->token_offsets[id];
    return v->token_bytes + v->token_offsets[id];
}

enum lam_token_type lam_vocab_type(const struct lam_vocab *v, uint32_t id)
{
    return (enum lam_token_type)(v->types[id] & LAM_TOKEN_TYPE_MASK);
}

bool lam_vocab_is_literal(const struct lam_vocab *v, uint32_t id) { return (v->types[id] & LAM_TOKEN_LITERAL) != 0; }

bool lam_vocab_is_eog(const struct lam_vocab *v, uint32_t id)
{
    for (uint32_t i = 0; i < v->n_eog; i++)
        if (v->eog[i] == id) return true;
    return false;
}

uint32_t lam_vocab_find(const struct lam_vocab *v, bool literal, const void *bytes, size_t len)
{
    uint32_t mask = v->token_slots - 1;
    uint32_t slot = lam_vocab_hash_token(literal, bytes, len) & mask;
    for (uint32_t probe = 0; probe < LAM_VOCAB_MAX_PROBE; probe++, slot = (slot + 1) & mask) {
        uint32_t id = v->token_index[slot];
        if (id == 0) break;
        size_t have;
        const uint8_t *text = lam_vocab_token(v, --id, &have);
        if (have == len && lam_vocab_is_literal(v, id) == literal && (len == 0 || memcmp(text, bytes, len) == 0)) return id;
    }
    return LAM_TOKEN_NONE;
}

uint32_t lam_vocab_find_text(const struct lam_vocab *v, const char *text, size_t len)
{
    uint32_t id = lam_vocab_find(v, true, text, len);
    return id != LAM_TOKEN_NONE ? id : lam_vocab_find(v, false, text, len);
}

uint32_t lam_vocab_merge(const struct lam_vocab *v, uint32_t left, uint32_t right)
{
    uint32_t mask = v->merge_slots - 1;
    uint32_t slot = lam_vocab_hash_merge(left, right) & mask;
    for (uint32_t probe = 0; probe < LAM_VOCAB_MAX_PROBE; probe++, slot = (slot + 1) & mask) {
        uint32_t rank = v->merge_index[slot];
        if (rank == 0) break;
        if (v->merges[rank - 1].left == left && v->merges[rank - 1].right == right) return rank - 1;
    }
    return LAM_TOKEN_NONE;
}

/* The first entry in [low, high) whose byte at depth is at least byte; all are longer than depth. */
static uint32_t lower_bound(const struct lam_vocab *v, const struct lam_special *list, uint32_t low, uint32_t high,
                            size_t depth, unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (v->special_bytes[list[middle].offset + depth] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

const struct lam_special *lam_vocab_special_at(const struct lam_vocab *v, int list, bool control, const uint8_t *text,
                                               size_t len)
{
    if (len == 0) return NULL;
    const struct lam_special *all = v->specials[list], *best = NULL;
    uint32_t low = v->special_heads[list][text[0]], high = v->special_heads[list][text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        /* All in [low, high) begin with text[0..depth); the shortest comes first. */
        if (all[low].len == depth) {
            if (control || !(all[low].flags & LAM_SPECIAL_CONTROL)) best = &all[low];
            low++;
        }
        if (depth == len) break;
        low = lower_bound(v, all, low, high, depth, text[depth]);
        high = lower_bound(v, all, low, high, depth, text[depth] + 1u);
    }
    return best;
}
