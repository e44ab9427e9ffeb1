/* The prefix cache: pages of K and V that histories had, for histories that begin alike. A page is an entry in a tree, below the page
 * that precedes it; its key is what cache/rows.h compares: contract (base, formats, namespace), tokens, positions and what acted on
 * each row, as interval_digest covers it. Whole pages are shared and never written again; of a page that fits in part the rows that fit
 * are copied. What was used least recently goes first once the budget is passed. One caller at a time. */
#ifndef LAM_CACHE_PREFIX_H
#define LAM_CACHE_PREFIX_H

#include "cache/kv.h"
#include "cache/rows.h"

struct lam_prefix;

struct lam_prefix_counters {
    size_t lookups, hits;             /* hits: look-ups that found rows */
    uint64_t tokens_asked, tokens_found;
    size_t pages, bytes, budget, evicted;
};

/* budget in bytes of pages and their keys. */
lam_code lam_prefix_new(size_t budget, struct lam_prefix **out, lam_error *err);
void lam_prefix_free(struct lam_prefix *p);
void lam_prefix_count(const struct lam_prefix *p, struct lam_prefix_counters *out);
/* What an entry of n positions and n_runs runs counts beside its page. */
size_t lam_prefix_entry_bytes(size_t n, size_t n_runs);

/* One use of the cache. The steps come in this order, none is left out, and each refuses to come before the one it needs:
 * begin (what is wanted is frozen, with what will act on each row), authorise, look up, hold, fork, publish. */
enum lam_prefix_stage { LAM_PREFIX_FROZEN = 1, LAM_PREFIX_AUTHORISED, LAM_PREFIX_FOUND, LAM_PREFIX_HELD, LAM_PREFIX_FORKED };

struct lam_prefix_use {
    struct lam_prefix *prefix;
    enum lam_prefix_stage stage;
    struct lam_rows want;             /* borrowed parts: they stay as they are during the use */
    struct lam_kv_page **pages;       /* [n_pages], held from lam_prefix_hold to lam_prefix_end; owned */
    struct lam_prefix_entry **found;  /* [n_pages]: valid until the cache changes */
    size_t n_pages;
    size_t n;                         /* positions that they serve */
};

void lam_prefix_begin(struct lam_prefix *p, const struct lam_rows *want, struct lam_prefix_use *use);
/* For whom: the contract's namespace must be this one (LAM_E_KV_NAMESPACE). */
lam_code lam_prefix_authorise(struct lam_prefix_use *use, const char *name_space, lam_error *err);
/* The longest prefix of at most `most` positions. LAM_E_KV_UNAUTHORISED, LAM_E_NO_MEMORY. */
lam_code lam_prefix_look_up(struct lam_prefix_use *use, size_t most, lam_error *err);
lam_code lam_prefix_hold(struct lam_prefix_use *use, lam_error *err);
/* Puts the pages into kv, which has none: the last one as a copy if it serves in part. LAM_E_KV_RECEIPT unless held. */
lam_code lam_prefix_fork(struct lam_prefix_use *use, struct lam_kv *kv, lam_error *err);
/* Offers rows 0 .. rows->n-1 in kv, which were computed as the use's want says. Their whole pages are shared from now on, the rest is
 * copied. LAM_E_KV_TAINT, LAM_E_KV_RELABELLED where the label says otherwise, LAM_E_KV_SUFFIX, LAM_E_KV_FROZEN, LAM_E_KV_PARENT,
 * LAM_E_NO_MEMORY. base_operators: what the base alone is labelled with. */
lam_code lam_prefix_publish(struct lam_prefix_use *use, const struct lam_rows *rows, const struct lam_kv *kv,
                            const uint8_t base_operators[LAM_SHA256_BYTES], lam_error *err);
void lam_prefix_end(struct lam_prefix_use *use);

#endif
