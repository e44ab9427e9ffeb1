/* Another composition under a session: rows that are provably equal stay, the rest is computed again. */
#include "base/alloc.h"
#include "run/activation.h"
#include "run/lease.h"
#include "run/pass.h"
#include "run/session.h"

#include <string.h>

struct rebase {
    struct lam_session *session;
    struct lam_composition *to;
    size_t starts[LAM_MAX_ACTIVATED]; /* under `to` */
    size_t kept;                      /* rows that are equal */
    bool same_logits;
    struct lam_kv kv;                 /* of `to`; without pages where the session's serves as it is */
    bool apart;
};

/* How many of the session's rows `to` would compute alike. */
static lam_code count_equal(struct rebase *r, lam_error *err)
{
    struct lam_session *s = r->session, next = *s;
    struct lam_row_contract contracts[2];
    struct lam_run *runs[2] = {NULL, NULL};
    struct lam_rows have, want;
    next.composition = r->to;
    memcpy(next.starts, r->starts, sizeof next.starts);
    lam_code code = lam_session_rows(s, &contracts[0], &runs[0], &have, err);
    if (code == LAM_OK) code = lam_session_rows(&next, &contracts[1], &runs[1], &want, err);
    /* Rows of another format are no fault: none of them serves. */
    if (code == LAM_OK) (void)lam_rows_admit(&want, &have, false, &r->kept, NULL);
    lam_free(runs[0]);
    lam_free(runs[1]);
    return code;
}

/* Whether the logits that the session has are those of its last token under `to`. */
static lam_code compare_logits(struct rebase *r, lam_error *err)
{
    struct lam_session *s = r->session;
    uint8_t old[LAM_SHA256_BYTES], new[LAM_SHA256_BYTES];
    if (!s->has_logits || r->kept < s->length || s->length == 0) return LAM_OK;
    uint64_t was = lam_activation_mask(s->starts, lam_composition_n_activated(s->composition), s->length - 1);
    uint64_t is = lam_activation_mask(r->starts, lam_composition_n_activated(r->to), s->length - 1);
    LAM_TRY(lam_activation_operators(s->composition, was, LAM_CLOSURE_LOGITS, old, err));
    LAM_TRY(lam_activation_operators(r->to, is, LAM_CLOSURE_LOGITS, new, err));
    r->same_logits = memcmp(old, new, sizeof old) == 0;
    return LAM_OK;
}

static lam_code compute(struct rebase *r, lam_error *err)
{
    struct lam_session *s = r->session;
    LAM_TRY(count_equal(r, err));
    LAM_TRY(compare_logits(r, err));
    if (s->length == 0 && s->kv.type == r->to->kv) return LAM_OK;
    if (r->same_logits) return LAM_OK;
    size_t from = r->kept < s->length ? r->kept : s->length ? s->length - 1 : 0; /* at least the last token, for its logits */
    LAM_TRY(lam_session_new_kv(s, r->to, &r->kv, err));
    r->apart = true;
    if (s->length == 0) return LAM_OK;
    LAM_TRY(lam_kv_fork(&s->kv, from, &r->kv, err));
    LAM_TRY(lam_kv_write(&r->kv, from, s->length, err));
    struct lam_pass pass = {.composition = r->to, .kv = &r->kv, .tokens = s->tokens, .starts = r->starts, .from = from, .end = s->length,
                            .logits = s->next_logits};
    return lam_pass_run(&pass, err);
}

static void commit(struct rebase *r)
{
    struct lam_session *s = r->session;
    struct lam_composition *old = s->composition;
    if (r->apart) {
        struct lam_kv was = s->kv;
        s->kv = r->kv;
        r->kv = was;
        if (s->length) lam_session_take_logits(s);
    }
    atomic_fetch_add(&r->to->holders, 1);
    s->composition = r->to;
    memcpy(s->starts, r->starts, sizeof s->starts);
    s->stale = s->length == 0 && lam_composition_n_activated(r->to) > 0;
    s->n_draws = 0;
    s->n_cached = 0;
    s->n_published = 0;
    lam_session_publish(s);
    r->to = old; /* to be released outside the lock */
}

lam_code lam_session_rebase(lam_session *s, lam_composition *composition, size_t *kept, lam_error *err)
{
    struct lam_base *base = s->composition->base;
    struct rebase r = {.session = s, .to = composition};
    if (kept) *kept = 0;
    if (composition->base != base) return LAM_RAISE(err, LAM_E_WRONG_BASE, "the composition has another base than the session");
    LAM_TRY(lam_mapping_check(&base->model->file->file, err));
    for (size_t i = 0; i < LAM_MAX_ACTIVATED; i++) r.starts[i] = LAM_NO_START;
    if (s->length) LAM_TRY(lam_activation_scan(composition, s->tokens, s->length, s->allow_base, r.starts, err));
    lam_pool_lock(base->engine->pool);
    lam_code code = compute(&r, err);
    if (code == LAM_OK) commit(&r);
    lam_pool_unlock(base->engine->pool);
    lam_kv_release(&r.kv);
    if (code != LAM_OK) return code;
    if (kept) *kept = r.kept;
    lam_composition_free(r.to);
    lam_lease_release(s->lease); /* the generation's composition is the session's no more */
    s->lease = NULL;
    lam_session_drop_ahead(s);
    lam_session_free(s->drafter);
    s->drafter = NULL;
    return LAM_OK;
}

lam_code lam_session_interval(lam_session *s, size_t begin, size_t end, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_row_contract contract;
    struct lam_run *runs = NULL;
    struct lam_rows rows;
    uint8_t digest[LAM_SHA256_BYTES];
    if (begin > end || end > s->length)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "rows %zu to %zu of a history of %zu", begin, end, s->length);
    struct lam_pool *pool = s->composition->base->engine->pool;
    lam_pool_lock(pool);
    lam_code code = lam_session_rows(s, &contract, &runs, &rows, err);
    lam_pool_unlock(pool);
    if (code == LAM_OK) code = lam_interval_digest(&contract, rows.runs, rows.n_runs, begin, end, digest, err);
    lam_free(runs);
    if (code == LAM_OK) lam_digest_text(digest, out);
    return code;
}
