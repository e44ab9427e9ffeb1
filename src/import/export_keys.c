#include "import/export_keys.h"
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/str.h"
#include "import/gguf_keys.h"
#include "kernels/math.h"
#include "text/vocab_import.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GEMMA3_PERIOD 6        /* what llama.cpp assumes without the key */
#define GEMMA3_27B_LAYERS 62    /* whose attention scale is another one */
#define QUANTIZATION_VERSION 2  /* of ggml's block formats */
#define PAD_SCORE (-1000.0f)

/* "<arch>.<suffix>" */
struct key_name {
    char text[96];
};

static struct key_name key_of(const struct lam_config *c, const char *suffix)
{
    struct key_name key;
    snprintf(key.text, sizeof key.text, "%s.%s", c->arch->name, suffix);
    return key;
}

static lam_code put_u32(struct lam_gguf_out *o, const struct lam_config *c, const char *suffix, uint32_t value, lam_error *err)
{
    return lam_gguf_out_u32(o, key_of(c, suffix).text, value, err);
}

static lam_code put_f32(struct lam_gguf_out *o, const struct lam_config *c, const char *suffix, double value, lam_error *err)
{
    return lam_gguf_out_f32(o, key_of(c, suffix).text, (float)value, err);
}

static lam_code put_text(struct lam_gguf_out *o, const char *key, const json_t *text, lam_error *err)
{
    return json_is_string(text) ? lam_gguf_out_string(o, key, json_string_value(text), json_string_length(text), err) : LAM_OK;
}

static lam_code put_shape(struct lam_gguf_out *o, const struct lam_config *c, lam_error *err)
{
    LAM_TRY(put_u32(o, c, "block_count", c->n_layers, err));
    LAM_TRY(put_u32(o, c, "context_length", c->n_context, err));
    LAM_TRY(put_u32(o, c, "embedding_length", c->d_model, err));
    LAM_TRY(put_u32(o, c, "feed_forward_length", c->d_ff, err));
    LAM_TRY(put_u32(o, c, "attention.head_count", c->n_heads, err));
    LAM_TRY(put_u32(o, c, "attention.head_count_kv", c->n_kv_heads, err));
    LAM_TRY(put_u32(o, c, "attention.key_length", c->head_dim, err));
    LAM_TRY(put_u32(o, c, "attention.value_length", c->head_dim, err));
    LAM_TRY(put_f32(o, c, "attention.layer_norm_rms_epsilon", c->norm_eps, err));
    LAM_TRY(put_u32(o, c, "rope.dimension_count", c->head_dim, err));
    return put_u32(o, c, "vocab_size", c->n_vocab, err);
}

static lam_code put_yarn(struct lam_gguf_out *o, const struct lam_config *c, lam_error *err)
{
    const struct lam_rope *r = &c->rope;
    if (r->original_context < 1.0 || r->original_context > UINT32_MAX || floor(r->original_context) != r->original_context)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "GGUF cannot say an original context of %g", r->original_context);
    double usual = 0.1 * lam_log64(r->factor) + 1.0; /* llama.cpp applies it by itself */
    LAM_TRY(lam_gguf_out_string(o, key_of(c, "rope.scaling.type").text, "yarn", 4, err));
    LAM_TRY(put_f32(o, c, "rope.scaling.factor", r->factor, err));
    LAM_TRY(put_u32(o, c, "rope.scaling.original_context_length", (uint32_t)r->original_context, err));
    if (r->attention_factor != usual) LAM_TRY(put_f32(o, c, "rope.scaling.attn_factor", r->attention_factor / usual, err));
    if (r->beta_fast != 32.0) LAM_TRY(put_f32(o, c, "rope.scaling.yarn_beta_fast", r->beta_fast, err));
    if (r->beta_slow != 1.0) LAM_TRY(put_f32(o, c, "rope.scaling.yarn_beta_slow", r->beta_slow, err));
    return LAM_OK;
}

static lam_code put_rope(struct lam_gguf_out *o, const struct lam_config *c, lam_error *err)
{
    LAM_TRY(put_f32(o, c, "rope.freq_base", c->rope.theta, err));
    switch (c->rope.scaling) {
    case LAM_ROPE_PLAIN: return LAM_OK;
    case LAM_ROPE_LLAMA3: /* stands in the tensor rope_freqs.weight */
        if (lam_arch_find(c->arch, LAM_ROLE_ROPE_FACTORS)) return LAM_OK;
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "GGUF cannot say llama3 rotary scaling for architecture %s", c->arch->name);
    case LAM_ROPE_LINEAR:
        LAM_TRY(lam_gguf_out_string(o, key_of(c, "rope.scaling.type").text, "linear", 6, err));
        return put_f32(o, c, "rope.scaling.factor", c->rope.factor, err);
    case LAM_ROPE_YARN: return put_yarn(o, c, err);
    }
    return LAM_RAISE(err, LAM_E_UNSUPPORTED, "rotary scaling %d", (int)c->rope.scaling);
}

static bool has_period(const struct lam_config *c, uint32_t period)
{
    bool same = true;
    for (uint32_t i = 0; i < c->n_layers; i++) same &= c->local[i] == ((i + 1) % period != 0);
    return same;
}

/* The period p with which layer i is local if (i + 1) % p is not 0; n_layers + 1 if all are. LAM_E_UNSUPPORTED if none. */
static lam_code find_period(const struct lam_config *c, uint32_t *period, lam_error *err)
{
    *period = GEMMA3_PERIOD;
    if (has_period(c, *period)) return LAM_OK;
    for (*period = 1; *period <= c->n_layers + 1; ++*period)
        if (has_period(c, *period)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_UNSUPPORTED, "GGUF cannot say which layers have the sliding window: they follow no period");
}

static lam_code put_gemma3(struct lam_gguf_out *o, const struct lam_config *c, lam_error *err)
{
    uint32_t period = 0;
    float usual = (float)(1.0 / sqrt((double)(c->n_layers == GEMMA3_27B_LAYERS ? c->d_model / c->n_heads : c->head_dim)));
    if (c->attention_scale != usual)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "GGUF cannot say the attention scale %g: readers take %g", (double)c->attention_scale,
                         (double)usual);
    LAM_TRY(find_period(c, &period, err));
    LAM_TRY(put_f32(o, c, "rope.freq_base_swa", c->rope_local.theta, err));
    LAM_TRY(put_u32(o, c, "attention.sliding_window", c->window, err));
    if (period != GEMMA3_PERIOD) LAM_TRY(put_u32(o, c, "attention.sliding_window_pattern", period, err));
    if (c->logit_softcap != 0.0f) LAM_TRY(put_f32(o, c, "final_logit_softcapping", c->logit_softcap, err));
    return LAM_OK;
}

/* ggml's number for "mostly this type"; only where all matrices have one. */
static lam_code put_file_type(struct lam_gguf_out *o, const struct lam_model *m, lam_error *err)
{
    enum lam_dtype dtype = m->embedding.dtype;
    for (size_t i = 0; i < m->targets.n_items; i++)
        if (m->targets.items[i].dtype != dtype) return LAM_OK;
    uint32_t number = dtype == LAM_F32 ? 0 : dtype == LAM_F16 ? 1 : 32 /* BF16 */;
    return lam_gguf_out_u32(o, "general.file_type", number, err);
}

/* An array of the vocabulary with items for the embedding's rows beyond it, which llama.cpp wants to have names. */
static lam_code put_padded(struct lam_gguf_out *o, const struct lam_gguf_kv *kv, uint32_t n_rows, lam_error *err)
{
    struct lam_str bytes = {0};
    bool ok = lam_str_append(&bytes, kv->value, kv->value_bytes);
    for (uint64_t i = kv->count; ok && i < n_rows; i++) {
        uint8_t number[8];
        char name[32];
        if (kv->item_type == LAM_GGUF_STRING) {
            snprintf(name, sizeof name, "[PAD%u]", (unsigned)i);
            lam_store_u64(number, strlen(name));
            ok = lam_str_append(&bytes, number, 8) && lam_str_puts(&bytes, name);
        } else if (kv->item_type == LAM_GGUF_F32) {
            const float score = PAD_SCORE;
            uint32_t bits;
            memcpy(&bits, &score, sizeof bits);
            lam_store_u32(number, bits);
            ok = lam_str_append(&bytes, number, 4);
        } else {
            lam_store_u32(number, LAM_TOKEN_UNUSED);
            ok = lam_str_append(&bytes, number, 4);
        }
    }
    lam_code code = ok ? lam_gguf_out_kv(o, kv->key, kv->key_len, kv->type, kv->item_type, n_rows, bytes.data, bytes.len, err)
                       : LAM_RAISE(err, LAM_E_NO_MEMORY, "%u tokens", n_rows);
    lam_str_release(&bytes);
    return code;
}

static bool is_per_token(const struct lam_gguf_kv *kv, uint32_t n_tokens)
{
    return kv->type == LAM_GGUF_ARRAY && kv->count == n_tokens &&
           (strcmp(kv->key, "tokenizer.ggml.tokens") == 0 || strcmp(kv->key, "tokenizer.ggml.scores") == 0 ||
            strcmp(kv->key, "tokenizer.ggml.token_type") == 0);
}

static lam_code put_vocabulary(struct lam_gguf_out *o, const struct lam_gguf_out *vocabulary, uint32_t n_tokens, uint32_t n_rows,
                               lam_error *err)
{
    struct lam_gguf_kv kv;
    for (size_t i = 0; lam_gguf_out_kv_at(vocabulary, i, &kv); i++) {
        if (is_per_token(&kv, n_tokens)) LAM_TRY(put_padded(o, &kv, n_rows, err));
        else LAM_TRY(lam_gguf_out_kv(o, kv.key, kv.key_len, kv.type, kv.item_type, kv.count, kv.value, kv.value_bytes, err));
    }
    return LAM_OK;
}

static lam_code put_synthesised(const struct lam_model *m, const struct lam_gguf_out *vocabulary, uint32_t n_tokens,
                                struct lam_gguf_out *o, lam_error *err)
{
    const struct lam_config *c = &m->config;
    const json_t *metadata = m->file->metadata, *source = json_object_get(metadata, "source");
    if (c->attention_softcap != 0.0f)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "GGUF readers ignore an attention soft-cap (%g) in architecture %s",
                         (double)c->attention_softcap, c->arch->name);
    LAM_TRY(lam_gguf_out_string(o, "general.architecture", c->arch->name, strlen(c->arch->name), err));
    LAM_TRY(lam_gguf_out_string(o, "general.type", "model", 5, err));
    LAM_TRY(put_text(o, "general.name", json_object_get(source, "name"), err));
    LAM_TRY(put_text(o, "general.license", json_object_get(source, "licence"), err));
    LAM_TRY(put_shape(o, c, err));
    LAM_TRY(put_rope(o, c, err));
    if (c->arch == &lam_arch_gemma3) LAM_TRY(put_gemma3(o, c, err));
    LAM_TRY(put_file_type(o, m, err));
    LAM_TRY(lam_gguf_out_u32(o, "general.quantization_version", QUANTIZATION_VERSION, err));
    LAM_TRY(put_vocabulary(o, vocabulary, n_tokens, c->n_vocab, err));
    return put_text(o, "tokenizer.chat_template", json_object_get(metadata, "chat_template"), err);
}

static lam_code put_original(const json_t *metadata, const json_t *keys, const struct lam_gguf_out *vocabulary,
                             struct lam_gguf_out *o, lam_error *err)
{
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *object = json_array_get(keys, i);
        const char *key = json_string_value(json_object_get(object, "key")), *from = json_string_value(json_object_get(object, "from"));
        struct lam_gguf_kv kv;
        if (!from) {
            LAM_TRY(lam_gguf_key_from_json(object, o, err));
        } else if (key && strcmp(from, "chat_template") == 0) {
            LAM_TRY(put_text(o, key, json_object_get(metadata, "chat_template"), err));
        } else if (key && strcmp(from, "vocabulary") == 0 && vocabulary && lam_gguf_out_find(vocabulary, key, &kv)) {
            LAM_TRY(lam_gguf_out_kv(o, key, strlen(key), kv.type, kv.item_type, kv.count, kv.value, kv.value_bytes, err));
        } else {
            return LAM_RAISE(err, LAM_E_FORMAT, "metadata: key %s is to come from %s", key ? key : "?", from);
        }
    }
    return LAM_OK;
}

lam_code lam_export_keys(const struct lam_model *m, struct lam_gguf_out *o, lam_error *err)
{
    const json_t *metadata = m->file->metadata, *keys = json_object_get(json_object_get(metadata, "gguf"), "keys");
    struct lam_vocab vocab;
    struct lam_gguf_out *vocabulary = NULL;
    if (!m->file->vocab) return LAM_RAISE(err, LAM_E_FORMAT, "%s has no vocabulary", m->file->file.path);
    LAM_TRY(lam_vocab_open(m->file->vocab, m->file->vocab_bytes, &vocab, err));
    LAM_TRY(lam_gguf_out_new(&vocabulary, err));
    lam_code code = lam_vocab_export_gguf(&vocab, vocabulary, err);
    /* A vocabulary that GGUF cannot say may have come from one all the same: then its keys were kept. */
    if (keys && code != LAM_E_NO_MEMORY) code = put_original(metadata, keys, code == LAM_OK ? vocabulary : NULL, o, err);
    else if (code == LAM_OK) code = put_synthesised(m, vocabulary, vocab.n_tokens, o, err);
    lam_gguf_out_free(vocabulary);
    return code;
}
