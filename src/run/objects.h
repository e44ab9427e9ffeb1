/* The public handles from inside. Each counts its holders; what is made from another holds it. */
#ifndef LAM_RUN_OBJECTS_H
#define LAM_RUN_OBJECTS_H

#include "adapter/adapter.h"
#include "adapter/overlay.h"
#include "base/pool.h"
#include "base/str.h"
#include "cache/kv.h"
#include "kernels/kernels.h"
#include "lamina/lamina.h"
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
    struct lam_base *base;          /* held */
    struct lam_adapter *staged;
};

struct lam_composition {
    atomic_size_t holders;
    struct lam_base *base;          /* held */
    lam_adapter **adapters;         /* n_adapters, each held */
    size_t n_adapters;
    struct lam_overlay overlay;
    enum lam_kv_type kv;
    struct lam_str json;
    char id[LAM_DIGEST_TEXT];
};

struct lam_session {
    struct lam_composition *composition; /* held */
    struct lam_kv kv;
    uint32_t *tokens;               /* [context] */
    size_t length, context;
    float *logits, *next_logits;    /* [n_vocab]: of the last token; where the next ones are computed */
    bool has_logits;
    uint64_t n_draws;               /* of the sampler's generator */
};

#endif
