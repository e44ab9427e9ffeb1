/* Lamina: what one computation leaves to the next. Keys and values (rows) of a history serve another composition, another session or another
 * process wherever they are provably the same bits; drafts let one pass compute several tokens. Results are always those of a new session
 * that was fed everything at once, bit for bit; only the time differs.
 * A row may be reused if nothing that it depends on differs: its tokens and all before it, the base, the formats, and every operator of its
 * closure (docs/format.md, "interval_digest"). */
#ifndef LAMINA_REUSE_H
#define LAMINA_REUSE_H

#include "lamina/lamina.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- another composition ---- */

/* The session goes on under another composition of the same base. The history stays; rows that are provably equal are kept (*kept of them,
 * from the beginning; kept may be NULL), the others computed again, and so are the last token's logits if they may differ. Activated
 * adapters act from where their invocation occurs in the history as it is. Draws of the sampler and drafts begin anew.
 * On failure the session is as before: LAM_E_WRONG_BASE, and what lam_session_feed raises. */
LAM_API lam_code lam_session_rebase(lam_session *session, lam_composition *composition, size_t *kept, lam_error *err);

/* interval_digest of rows begin .. end-1 of the history, as they were computed. LAM_E_ARGUMENT unless begin <= end <= length, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_session_interval(lam_session *session, size_t begin, size_t end, char out[LAM_DIGEST_TEXT], lam_error *err);

/* ---- the prefix cache: lam_engine_options.prefix_cache ---- */

/* A session that is fed while it is empty (and without a callback for every position's logits) takes from the cache what earlier
 * sessions of the engine left there; lam_session_free leaves its rows there too, and so waits for its turn. How many tokens the last feed took: */
LAM_API size_t lam_session_cached(const lam_session *session);
/* Rows are shared only among sessions with the same salt (any text, such as a tenant's secret; "" at first). LAM_E_CONFLICT unless the session is empty. */
LAM_API lam_code lam_session_isolate(lam_session *session, const char *salt, lam_error *err);

typedef struct lam_prefix_figures {
    size_t lookups, hits;                 /* hits: that found something */
    uint64_t tokens_asked, tokens_found;
    size_t pages, bytes, budget, evicted; /* of 256 positions; evicted: pages */
} lam_prefix_figures;
/* All zero if the cache is off. */
LAM_API void lam_engine_prefix(lam_engine *engine, lam_prefix_figures *out);

/* ---- a file ---- */

/* Writes the session to path: history, keys and values, logits, draws, and under which composition (docs/format.md, "Saved sessions").
 * LAM_E_IO, LAM_E_NO_SPACE, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_session_save(lam_session *session, const char *path, lam_error *err);

typedef struct lam_restore_options {
    size_t context;      /* as in lam_session_new, but at least the saved history */
    bool allow_base;     /* take what the base computed in an activated adapter's place; else LAM_E_BASE_FALLBACK */
    const char *salt;    /* NULL: ""; see lam_session_isolate */
} lam_restore_options;
/* A new session as the saved one was. options may be NULL. Damaged files: LAM_E_MAGIC, LAM_E_VERSION, LAM_E_TRUNCATED, LAM_E_GAP, LAM_E_DIGEST,
 * LAM_E_FORMAT, LAM_E_TOKEN, LAM_E_NON_FINITE, LAM_E_UNKNOWN_FIELD; another identity: LAM_E_IDENTITY, LAM_E_KV_REVISION (an adapter of
 * the same name with other bytes), LAM_E_KV_BASE … LAM_E_KV_LOGITS and LAM_E_KV_GRAPH_LAYOUT (lamina/error.h) for what differs in its rows;
 * LAM_E_KV_OWNER for a description that lacks what goes on with them. The last row is computed anew: LAM_E_KV_HIDDEN, LAM_E_KV_PROJECTION,
 * LAM_E_KV_HEAD if other bits come out than the file has, and what lam_session_step raises. LAM_E_CONTEXT, LAM_E_NO_MEMORY, LAM_E_IO. */
LAM_API lam_code lam_session_restore(lam_composition *composition, const char *path, const lam_restore_options *options, lam_session **out,
                                     lam_error *err);

/* ---- prompts that can be cancelled ---- */

/* done of total rows are computed. Returning false cancels. */
typedef bool (*lam_feed_progress_fn)(void *context, size_t done, size_t total);
/* lam_session_feed without logits of every position; progress (may be NULL) is called after each forward pass. */
LAM_API lam_code lam_session_prefill(lam_session *session, const uint32_t *tokens, size_t n, lam_feed_progress_fn progress, void *context,
                                     lam_error *err);

/* ---- drafts ---- */

#define LAM_MAX_DRAFT 31

typedef enum lam_draft {
    LAM_DRAFT_NONE = 0,
    LAM_DRAFT_LOOKUP = 1, /* what followed the last tokens where they occurred before (Saxena 2023, "Prompt Lookup Decoding") */
    LAM_DRAFT_BASE = 2    /* what the bare base would say, in a session of its own with its own cache (Leviathan et al. 2023,
                           * arXiv:2211.17192) */
} lam_draft;

typedef struct lam_generate_options {
    lam_draft draft;
    size_t n_draft;       /* tokens guessed at a time at most, fewer after wrong guesses; LAM_MAX_DRAFT at most; 0: 7 */
    size_t n_beams;       /* continuations that are kept at a time: 0 or 1. A session is one history, and its activated adapters act from one
                           * place in it, so more (beam search) is LAM_E_BEAMS */
} lam_generate_options;

typedef struct lam_generate_report {
    size_t n_tokens;      /* appended */
    size_t n_passes;      /* of the session's composition */
    size_t n_drafted, n_accepted;
} lam_generate_report;

/* lam_generate with options (may be NULL) and a report (may be NULL). Tokens, text and logits are the same with any of them: a token is
 * always drawn from its own logits, with its own draw. LAM_E_ARGUMENT for options that are not acceptable, LAM_E_BEAMS. */
LAM_API lam_code lam_generate_with(lam_session *session, const lam_sampling *sampling, const lam_generate_options *options, size_t max_tokens,
                                   lam_text_fn on_text, void *context, lam_generate_report *report, lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
