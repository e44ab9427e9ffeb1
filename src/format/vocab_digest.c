#include "base/json.h"
#include "format/vocab_layout.h"

#include <string.h>

static void put_u32(struct lam_sha256 *s, uint32_t v)
{
    uint8_t b[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    lam_sha256_update(s, b, 4);
}

static void put_bytes(struct lam_sha256 *s, const void *bytes, size_t len)
{
    put_u32(s, (uint32_t)len);
    lam_sha256_update(s, bytes, len);
}

/* What a token is to the model: control and user-defined are one class (see vocab.h). */
static uint8_t digest_type(enum lam_token_type type)
{
    return type == LAM_TOKEN_USER_DEFINED ? LAM_TOKEN_CONTROL : (uint8_t)type;
}

static lam_code hash_tokens(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    struct lam_sha256 s;
    lam_sha256_init(&s);
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        size_t len;
        const uint8_t *bytes = lam_vocab_token(v, id, &len);
        if (lam_vocab_find(v, lam_vocab_is_literal(v, id), bytes, len) != id)
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: the index doesn't find token %u", id);
        if (lam_vocab_type(v, id) == LAM_TOKEN_UNUSED) continue;
        uint8_t head[2] = {digest_type(lam_vocab_type(v, id)), lam_vocab_is_literal(v, id)};
        put_u32(&s, id);
        lam_sha256_update(&s, head, 2);
        put_bytes(&s, bytes, len);
        if (v->scores) {
            uint32_t bits;
            memcpy(&bits, &v->scores[id], 4);
            put_u32(&s, bits);
        }
    }
    for (int i = 0; i < 256; i++) put_u32(&s, v->byte_ids[i]);
    lam_sha256_final(&s, out);
    return LAM_OK;
}

static lam_code hash_merges(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    struct lam_sha256 s;
    lam_sha256_init(&s);
    for (uint32_t rank = 0; rank < v->n_merges; rank++) {
        const struct lam_merge *m = &v->merges[rank];
        if (lam_vocab_merge(v, m->left, m->right) != rank)
            return LAM_RAISE(err, LAM_E_FORMAT, "vocabulary: the index doesn't find merge %u", rank);
        put_u32(&s, m->left);
        put_u32(&s, m->right);
        put_u32(&s, m->result);
    }
    lam_sha256_final(&s, out);
    return LAM_OK;
}

static void hash_specials(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES])
{
    struct lam_sha256 s;
    lam_sha256_init(&s);
    for (int list = 0; list < 2; list++)
        for (uint32_t i = 0; i < v->n_specials[list]; i++) {
            const struct lam_special *special = &v->specials[list][i];
            put_u32(&s, special->id);
            put_u32(&s, special->flags & ~(uint32_t)LAM_SPECIAL_CONTROL);
            put_bytes(&s, v->special_bytes + special->offset, special->len);
        }
    lam_sha256_final(&s, out);
}

static void hash_steps(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES])
{
    lam_sha256(v->steps, v->steps_bytes, out);
}

static json_t *digest_json(const uint8_t digest[LAM_SHA256_BYTES])
{
    char text[LAM_DIGEST_TEXT];
    lam_digest_text(digest, text);
    return json_string(text);
}

static json_t *id_json(uint32_t id) { return id == LAM_TOKEN_NONE ? json_null() : json_integer(id); }

lam_code lam_vocab_digest(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    uint8_t tokens[LAM_SHA256_BYTES], merges[LAM_SHA256_BYTES], specials[LAM_SHA256_BYTES], steps[LAM_SHA256_BYTES];
    LAM_TRY(hash_tokens(v, tokens, err));
    LAM_TRY(hash_merges(v, merges, err));
    hash_specials(v, specials);
    hash_steps(v, steps);
    static const char *const kinds[] = {"", "bpe-bytes", "spm", "bpe-text"};
    json_t *content = json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                                "kind", kinds[v->kind], "flags", (json_int_t)v->flags,
                                "tokens", digest_json(tokens), "merges", digest_json(merges),
                                "specials", digest_json(specials), "steps", digest_json(steps),
                                "bos", id_json(v->ids.bos), "eos", id_json(v->ids.eos),
                                "unk", id_json(v->flags & LAM_VOCAB_EMIT_UNKNOWN ? v->ids.unk : LAM_TOKEN_NONE));
    if (!content) return LAM_RAISE(err, LAM_E_NO_MEMORY, "tokenizer digest");
    lam_code code = lam_json_digest(content, out, err);
    json_decref(content);
    return code;
}
