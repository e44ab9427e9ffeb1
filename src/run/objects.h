/* The public handles from inside. Each counts its holders; what is made from another holds it. */
#ifndef LAM_RUN_OBJECTS_H
#define LAM_RUN_OBJECTS_H

#include "adapter/adapter.h"
#include "adapter/overlay.h"
#include "base/budget.h"
#include "base/pool.h"
#include "base/str.h"
#include "cache/kv.h"
#include "cache/prefix.h"
#include "kernels/kernels.h"
#include "lamina/lamina.h"
#include "lamina/reuse.h"
#include "model/forward.h"
#include "model/model.h"
#include "run/verified.h"
#include "text/template.h"
#include "text/tokenizer.h"

#include <stdatomic.h>

struct lam_engine {
    atomic_size_t holders;
    struct lam_pool *pool;
    const struct lam_kernels *kernels;
    size_t max_rows;
    struct lam_prefix *prefix;      /* used under the pool's lock; NULL: off */
    struct lam_budget budget;       /* of all that is made with the engine */
    char machine[96];               /* what the default number of threads was chosen by */
};

struct lam_base {
    atomic_size_t holders;
    struct lam_engine *engine;      /* held */
    struct lam_model *model;
    struct lam_verified verified;   /* used under the pool's lock */
    struct lam_vocab vocab;         /* in place in the mapping, but for the end tokens */
    uint32_t *end_tokens;
    struct lam_tokenizer *tokenizer;
    struct lam_template *chat_template; /* NULL if the base has none */
    struct lam_forward *forward;    /* used under the pool's lock */
    struct lam_row *rows;           /* [engine's max_rows], likewise */
    char *name;
    char tokenizer_digest[LAM_DIGEST_TEXT];
    char template_digest[LAM_DIGEST_TEXT]; /* "" without a template */
};

struct lam_adapter_handle {
    atomic_size_t holders;
    atomic_bool inspected;          /* what is staged was looked at once more (run/runtime.c) */
    struct lam_base *base;          /* held */
    struct lam_adapter *staged;
};

struct lam_composition {
    atomic_size_t holders;
    struct lam_base *base;          /* held */
    lam_adapter **adapters;         /* n_adapters, each held */
    size_t n_adapters;
    double *weights;                /* [n_adapters] */
    enum lam_rule *rules;           /* [n_adapters] */
    size_t *activated;              /* [n_activated]: places of the activated adapters (LAM_MAX_ACTIVATED at most) */
    size_t n_activated;
    size_t *owners;                 /* [targets] or NULL: see struct lam_stack */
    bool *materialize;              /* [targets] or NULL */
    struct lam_variant_overlay *variants; /* [n_variants]: overlays by which activated adapters act; the first is that of all */
    size_t n_variants, max_variants;
    enum lam_kv_type kv;
    char *template_text;            /* owned; NULL: the base's template is used */
    struct lam_template *chat_template; /* of template_text, owned */
    char template_digest[LAM_DIGEST_TEXT]; /* of its own or the base's; "" without either */
    struct lam_str json;
    char id[LAM_DIGEST_TEXT];
};

/* The overlay of rows in which the activated adapters of a mask act: bit i stands for the i-th activated one. */
struct lam_variant_overlay {
    uint64_t active;
    uint64_t used;                  /* the number of the plan that last had it (lam_forward_plans) */
    struct lam_overlay *overlay;    /* owned; its address stays */
};

#define LAM_MAX_ACTIVATED 64

/* How many overlays a composition keeps, but for those of one plan, which may be more. */
#define LAM_MOST_VARIANTS 64

/* Cheap while the mask's overlay is kept. *out lasts until the plan that is being made has been run; that of all activated adapters, as long
 * as c. Under the lock of the engine's pool. LAM_E_NO_MEMORY. */
lam_code lam_composition_overlay(struct lam_composition *c, uint64_t active, const struct lam_overlay **out, lam_error *err);
size_t lam_composition_n_activated(const struct lam_composition *c);
/* The i-th activated adapter; its invocation tells from where on it acts. */
const struct lam_adapter *lam_composition_activated(const struct lam_composition *c, size_t i);
/* All activated adapters' bits. */
uint64_t lam_composition_all_active(const struct lam_composition *c);

/* Rows beyond a session's history that were computed on a guess (run/draft.h): its next tokens may be these. */
struct lam_ahead {
    uint32_t tokens[LAM_MAX_DRAFT];
    float *logits;                  /* [room, n_vocab], owned */
    size_t room;
    size_t n, at;                   /* tokens at .. n-1 are still ahead */
};

struct lam_session {
    struct lam_composition *composition; /* held */
    struct lam_lease *lease;        /* held: of the generation whose composition that is; NULL: of none */
    struct lam_kv kv;
    uint32_t *tokens;               /* [context] */
    size_t length, context;
    float *logits, *next_logits;    /* [n_vocab]: of the last token; where the next ones are computed */
    bool has_logits;
    uint64_t n_draws;               /* of the sampler's generator */
    size_t starts[LAM_MAX_ACTIVATED]; /* the row from which on each activated adapter acts in what is cached (run/activation.h) */
    bool stale;                     /* no submission says where they act: none was made, or its invocation was cut off */
    bool allow_base;                /* without an invocation the base answers */
    size_t n_cached;                /* tokens of the last feed that came from the prefix cache */
    size_t n_published;             /* tokens that the prefix cache was offered */
    bool restored;                  /* rows came from a file: they are not for other sessions */
    char name_space[LAM_NAMESPACE_TEXT];
    struct lam_ahead ahead;
    struct lam_session *drafter;    /* owned: the bare base on the same history; NULL before it is needed */
};

#endif
