/* semantic_digest and composition_id: the canonical JSON that names what a composition computes (docs/format.md "Identities"). */
#ifndef LAM_COMPOSE_IDENTITY_H
#define LAM_COMPOSE_IDENTITY_H

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define LAM_NUMERIC_CONTRACT "nc1"

struct lam_identity_adapter {
    const char *digest;            /* adapter_digest */
    double weight;
    const char *rule;              /* "add" or "replace" */
    bool waived;                   /* laid over a base that it is not bound to */
    const uint32_t *invocation;    /* [n_invocation]; NULL: every row is changed */
    size_t n_invocation;
};

struct lam_identity {
    const char *base_digest, *tokenizer_digest;
    const char *template_digest; /* NULL without a template */
    const char *kv_format;       /* "f16", "f32", "i8" */
    const struct lam_identity_adapter *adapters;
    size_t n_adapters;
    const json_t *owners;        /* module → place in the stack; borrowed */
    const char *policy;          /* "dual" or "materialize" */
    const json_t *policies;      /* module → the other policy, for those that differ; borrowed */
};

/* SHA-256 over base_digest, adapter_digest and the activation rule: "always", or { "from_last": [token, …] }. */
lam_code lam_semantic_digest(const char *base_digest, const struct lam_identity_adapter *adapter, char out[LAM_DIGEST_TEXT],
                             lam_error *err);

/* Appends the canonical JSON to *json and writes its SHA-256. */
lam_code lam_identity_make(const struct lam_identity *identity, struct lam_str *json, char id[LAM_DIGEST_TEXT], lam_error *err);

#endif
