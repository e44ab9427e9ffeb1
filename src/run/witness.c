#include "run/witness.h"
#include "run/pass.h"

#include <string.h>

/* The page as it was, and as it is after its last row was computed anew. */
static lam_code compare_layer(const struct lam_kv *was, const struct lam_kv *is, size_t page, uint32_t layer, size_t row, lam_error *err)
{
    size_t k_bytes = lam_kv_k_bytes(is->type, is->head_dim), v_bytes = lam_kv_v_bytes(is->type, is->head_dim);
    bool k = false, v = false;
    for (uint32_t h = 0; h < is->n_heads; h++) {
        k |= memcmp(lam_kv_k(was, 0, layer, h), lam_kv_k(is, page, layer, h), k_bytes) != 0;
        v |= memcmp(lam_kv_v(was, 0, layer, h), lam_kv_v(is, page, layer, h), v_bytes) != 0;
    }
    if (k && v)
        return LAM_RAISE(err, LAM_E_KV_HIDDEN, "cached rows: keys and values of layer %u at position %zu are not those of the hidden state that enters "
                         "it here", layer, row);
    if (k || v)
        return LAM_RAISE(err, LAM_E_KV_PROJECTION, "cached rows: the %s of layer %u at position %zu are not those that its projection gives here",
                         k ? "keys" : "values", layer, row);
    return LAM_OK;
}

static lam_code compute_last(struct lam_session *s, lam_error *err)
{
    const struct lam_pass pass = {.composition = s->composition, .kv = &s->kv, .tokens = s->tokens, .starts = s->starts, .from = s->length - 1,
                                  .end = s->length, .told = s->length, .logits = s->next_logits};
    LAM_TRY(lam_kv_write(&s->kv, s->length - 1, s->length, err));
    return lam_pass_run(&pass, err);
}

lam_code lam_witness_check(struct lam_session *s, lam_error *err)
{
    if (s->length == 0) return LAM_OK;
    size_t row = s->length - 1, page = row / LAM_KV_PAGE;
    struct lam_kv_page *held = lam_kv_hold(s->kv.pages[page]); /* so the pass writes to a copy */
    struct lam_kv was = s->kv;
    was.pages = &held;
    struct lam_pool *pool = s->composition->base->engine->pool;
    lam_pool_lock(pool);
    lam_code code = compute_last(s, err);
    lam_pool_unlock(pool);
    for (uint32_t l = 0; code == LAM_OK && l < s->kv.n_layers; l++) code = compare_layer(&was, &s->kv, page, l, row, err);
    lam_kv_drop(held);
    LAM_TRY(code);
    if (s->has_logits && memcmp(s->logits, s->next_logits, s->composition->base->model->config.n_vocab * sizeof *s->logits) != 0)
        return LAM_RAISE(err, LAM_E_KV_HEAD, "cached rows: the logits of position %zu are not those that the last layer and the head give here", row);
    return LAM_OK;
}
