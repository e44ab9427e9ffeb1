#include "text/detok.h"

#include "base/utf8.h"

#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"

void lam_detok_init(struct lam_detok *d, const struct lam_vocab *vocab, unsigned flags)
{
    *d = (struct lam_detok){.vocab = vocab, .flags = flags, .at_start = (flags & LAM_DETOK_START) != 0};
}

static bool spaces_are_marked(const struct lam_vocab *v) { return v->kind != LAM_VOCAB_BPE_BYTES; }

/* Value of "<0xHH>". */
static int byte_of_name(const uint8_t *name, size_t len)
{
    if (len != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        uint8_t c = name[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* U+2581 to space. */
static bool append_unmarked(struct lam_str *out, const uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool mark = len - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0;
        if (!lam_str_putc(out, mark ? ' ' : (char)text[i])) return false;
        if (mark) i += 2;
    }
    return true;
}

static bool append_token(const struct lam_vocab *v, uint32_t token, struct lam_str *out)
{
    size_t len;
    const uint8_t *bytes = lam_vocab_token(v, token, &len);
    int byte = lam_vocab_type(v, token) == LAM_TOKEN_BYTE ? byte_of_name(bytes, len) : -1;
    if (byte >= 0) return lam_str_putc(out, (char)byte);
    if (spaces_are_marked(v) && !lam_vocab_is_literal(v, token)) return append_unmarked(out, bytes, len);
    return lam_str_append(out, bytes, len);
}

static lam_code check_token(const struct lam_vocab *v, uint32_t token, lam_error *err)
{
    if (token < v->n_tokens) return LAM_OK;
    return LAM_RAISE(err, LAM_E_TOKEN, "token %u of a vocabulary of %u", token, v->n_tokens);
}

lam_code lam_token_bytes(const struct lam_vocab *vocab, uint32_t token, struct lam_str *out, lam_error *err)
{
    LAM_TRY(check_token(vocab, token, err));
    return append_token(vocab, token, out) ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "token %u", token);
}

/* Replace what is pending: once per maximal subpart, or per byte. */
static bool give_up_pending(struct lam_detok *d, struct lam_str *out)
{
    size_t marks = spaces_are_marked(d->vocab) ? d->n_pending : d->n_pending > 0;
    d->n_pending = 0;
    for (size_t i = 0; i < marks; i++)
        if (!lam_str_append(out, REPLACEMENT, 3)) return false;
    return true;
}

/* One byte of the stream. */
static bool feed(struct lam_detok *d, uint8_t byte, struct lam_str *out)
{
    d->pending[d->n_pending++] = byte;
    if (lam_utf8_is_partial(d->pending, d->n_pending)) return true;
    if (lam_utf8_valid_prefix(d->pending, d->n_pending) == d->n_pending) {
        bool ok = lam_str_append(out, d->pending, d->n_pending);
        d->n_pending = 0;
        return ok;
    }
    /* The new byte doesn't continue the character: what came before is lost, the byte begins anew. */
    if (d->n_pending == 1) return give_up_pending(d, out);
    d->n_pending--;
    return give_up_pending(d, out) && feed(d, byte, out);
}

static bool is_silent(const struct lam_detok *d, uint32_t token)
{
    enum lam_token_type type = lam_vocab_type(d->vocab, token);
    return !(d->flags & LAM_DETOK_SPECIAL) && (type == LAM_TOKEN_CONTROL || type == LAM_TOKEN_UNKNOWN);
}

lam_code lam_detok_push(struct lam_detok *d, uint32_t token, struct lam_str *out, lam_error *err)
{
    LAM_TRY(check_token(d->vocab, token, err));
    if (is_silent(d, token)) return LAM_OK;
    struct lam_str bytes = {0};
    bool ok = append_token(d->vocab, token, &bytes);
    size_t from = 0;
    if (d->at_start && (d->vocab->flags & LAM_VOCAB_SPACE_PREFIX) && bytes.len > 0 && bytes.data[0] == ' ') from = 1;
    d->at_start = false;
    for (size_t i = from; ok && i < bytes.len; i++) ok = feed(d, (uint8_t)bytes.data[i], out);
    lam_str_release(&bytes);
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "text of token %u", token);
}

lam_code lam_detok_flush(struct lam_detok *d, struct lam_str *out, lam_error *err)
{
    bool ok = give_up_pending(d, out);
    lam_detok_init(d, d->vocab, d->flags);
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "end of text");
}

lam_code lam_detokenize(const struct lam_vocab *vocab, const uint32_t *tokens, size_t n, unsigned flags,
                        struct lam_str *out, lam_error *err)
{
    struct lam_detok d;
    lam_detok_init(&d, vocab, flags);
    for (size_t i = 0; i < n; i++) LAM_TRY(lam_detok_push(&d, tokens[i], out, err));
    return lam_detok_flush(&d, out, err);
}
