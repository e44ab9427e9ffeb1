#include "base/alloc.h"
#include "run/objects.h"

#include <string.h>

static void base_release(struct lam_base *b)
{
    lam_forward_free(b->forward);
    lam_free(b->rows);
    lam_template_free(b->chat_template);
    lam_tokenizer_free(b->tokenizer);
    lam_verified_release(&b->verified);
    lam_model_close(b->model);
    lam_free(b->end_tokens);
    lam_free(b->name);
    lam_engine_free(b->engine);
    lam_free(b);
}

void lam_base_free(lam_base *b)
{
    if (b && atomic_fetch_sub(&b->holders, 1) == 1) base_release(b);
}

/* lam_token_is_end cannot fail, so it must not read a file that may have been truncated. */
static lam_code copy_end_tokens(struct lam_base *b, lam_error *err)
{
    b->end_tokens = lam_alloc(b->vocab.n_eog, sizeof *b->end_tokens);
    if (!b->end_tokens) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u end tokens", b->vocab.n_eog);
    for (uint32_t i = 0; i < b->vocab.n_eog; i++) b->end_tokens[i] = b->vocab.eog[i];
    b->vocab.eog = b->end_tokens;
    return LAM_OK;
}

static lam_code open_text(struct lam_base *b, lam_error *err)
{
    const struct lam_slm *s = b->model->file;
    uint8_t digest[LAM_SHA256_BYTES];
    if (!s->vocab) return LAM_RAISE(err, LAM_E_FORMAT, "%s has no vocabulary", s->file.path);
    LAM_TRY(lam_vocab_open(s->vocab, s->vocab_bytes, &b->vocab, err));
    if (b->vocab.n_tokens > b->model->config.n_vocab)
        return LAM_RAISE(err, LAM_E_SHAPE, "%u tokens in the vocabulary, %u rows in the embedding", b->vocab.n_tokens,
                         b->model->config.n_vocab);
    LAM_TRY(copy_end_tokens(b, err));
    LAM_TRY(lam_tokenizer_new(&b->vocab, &b->tokenizer, err));
    LAM_TRY(lam_vocab_digest(&b->vocab, digest, err));
    lam_digest_text(digest, b->tokenizer_digest);
    const json_t *text = json_object_get(s->metadata, "chat_template");
    if (!json_is_string(text)) return LAM_OK;
    lam_sha256(json_string_value(text), json_string_length(text), digest);
    lam_digest_text(digest, b->template_digest);
    /* A template that we cannot run does not stop the base: lam_chat_format says so when it is asked. */
    lam_error why;
    if (lam_template_compile(json_string_value(text), json_string_length(text), &b->chat_template, &why) == LAM_OK) return LAM_OK;
    b->chat_template = NULL;
    return why.code == LAM_E_NO_MEMORY ? LAM_RAISE(err, LAM_E_NO_MEMORY, "%s", why.message) : LAM_OK;
}

static lam_code open_name(struct lam_base *b, const char *path, lam_error *err)
{
    const char *name = json_string_value(json_object_get(json_object_get(b->model->file->metadata, "source"), "name"));
    b->name = lam_strdup(name ? name : lam_path_base(path));
    if (!b->name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_clean_line(b->name);
    return LAM_OK;
}

lam_code lam_base_open(lam_engine *engine, const char *path, lam_verify verify, lam_base **out, lam_error *err)
{
    *out = NULL;
    struct lam_base *b = lam_alloc(1, sizeof *b);
    if (!b) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    b->holders = 1;
    atomic_fetch_add(&engine->holders, 1);
    b->engine = engine;
    lam_code code = lam_model_open(path, &engine->budget, &b->model, err);
    if (code == LAM_OK) code = open_name(b, path, err);
    if (code == LAM_OK) code = lam_verified_init(&b->verified, b->model, engine->pool, verify, err);
    if (code == LAM_OK) code = open_text(b, err);
    if (code == LAM_OK) code = lam_forward_new(b->model, engine->pool, engine->kernels, engine->max_rows, &b->forward, err);
    if (code == LAM_OK && !(b->rows = lam_alloc(engine->max_rows, sizeof *b->rows)))
        code = LAM_RAISE(err, LAM_E_NO_MEMORY, "a plan of %zu rows", engine->max_rows);
    if (code == LAM_OK) *out = b;
    else base_release(b);
    return code;
}

void lam_base_describe(const lam_base *b, lam_base_info *out)
{
    const struct lam_config *c = &b->model->config;
    *out = (lam_base_info){
        .name = b->name,
        .architecture = c->arch->name,
        .base_digest = b->model->base_digest,
        .tokenizer_digest = b->tokenizer_digest,
        .template_digest = b->template_digest[0] ? b->template_digest : NULL,
        .n_layers = c->n_layers,
        .d_model = c->d_model,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .d_ff = c->d_ff,
        .n_vocab = c->n_vocab,
        .n_context = c->n_context,
        .weight_bytes = b->model->file->data_bytes,
        .has_chat_template = b->template_digest[0] != 0,
    };
    lam_digest_text(b->model->file->weights_root, out->weights_root);
}

lam_code lam_base_verify(lam_base *b, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    lam_pool_lock(b->engine->pool);
    lam_code code = lam_verified_all(&b->verified, err);
    lam_pool_unlock(b->engine->pool);
    if (code != LAM_OK) return code;
    if (out) lam_digest_text(b->model->file->weights_root, out);
    return LAM_OK;
}
