#include "base/json.h"
#include "format/vocab_layout.h"

#include <string.h>

/* Records of a few bytes each, hashed in larger portions. */
struct portion {
    struct lam_sha256 hash;
    size_t n;
    uint8_t bytes[4096];
};

static void portion_begin(struct portion *p)
{
    lam_sha256_init(&p->hash);
    p->n = 0;
}

static void put_bytes(struct portion *p, const void *bytes, size_t len)
{
    if (len > sizeof p->bytes - p->n) {
        lam_sha256_update(&p->hash, p->bytes, p->n);
        p->n = 0;
    }
    if (len > sizeof p->bytes) {
        lam_sha256_update(&p->hash, bytes, len);
        return;
    }
    if (len) memcpy(p->bytes + p->n, bytes, len);
    p->n += len;
}

static void portion_end(struct portion *p, uint8_t out[LAM_SHA256_BYTES])
{
    lam_sha256_update(&p->hash, p->bytes, p->n);
    lam_sha256_final(&p->hash, out);
}

static void put_u32(struct portion *p, uint32_t v)
{
    uint8_t b[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    put_bytes(p, b, 4);
}

static void put_text(struct portion *p, const void *bytes, size_t len)
{
    put_u32(p, (uint32_t)len);
    put_bytes(p, bytes, len);
}

/* What a token is to the model: control and user-defined are one class (see vocab.h). */
static uint8_t digest_type(enum lam_token_type type)
{
    return type == LAM_TOKEN_USER_DEFINED ? LAM_TOKEN_CONTROL : (uint8_t)type;
}

static void put_token(struct portion *p, const struct lam_vocab *v, uint32_t id)
{
    size_t len;
    const uint8_t *bytes = lam_vocab_token(v, id, &len);
    if (lam_vocab_type(v, id) == LAM_TOKEN_UNUSED) return;
    uint8_t head[2] = {digest_type(lam_vocab_type(v, id)), lam_vocab_is_literal(v, id)};
    put_u32(p, id);
    put_bytes(p, head, 2);
    put_text(p, bytes, len);
    if (v->scores) {
        uint32_t bits;
        memcpy(&bits, &v->scores[id], 4);
        put_u32(p, bits);
    }
}

static lam_code hash_tokens(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    struct portion p;
    portion_begin(&p);
    LAM_TRY(lam_vocab_check_index(v, err));
    for (uint32_t id = 0; id < v->n_tokens; id++) put_token(&p, v, id);
    for (int i = 0; i < 256; i++) put_u32(&p, v->byte_ids[i]);
    portion_end(&p, out);
    return LAM_OK;
}

static lam_code hash_merges(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    struct portion p;
    portion_begin(&p);
    LAM_TRY(lam_vocab_check_merge_index(v, err));
    for (uint32_t rank = 0; rank < v->n_merges; rank++) {
        put_u32(&p, v->merges[rank].left);
        put_u32(&p, v->merges[rank].right);
        put_u32(&p, v->merges[rank].result);
    }
    portion_end(&p, out);
    return LAM_OK;
}

static void hash_specials(const struct lam_vocab *v, uint8_t out[LAM_SHA256_BYTES])
{
    struct portion p;
    portion_begin(&p);
    for (int list = 0; list < 2; list++)
        for (uint32_t i = 0; i < v->n_specials[list]; i++) {
            const struct lam_special *special = &v->specials[list][i];
            put_u32(&p, special->id);
            put_u32(&p, special->flags & ~(uint32_t)LAM_SPECIAL_CONTROL);
            put_text(&p, v->special_bytes + special->offset, special->len);
        }
    portion_end(&p, out);
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
