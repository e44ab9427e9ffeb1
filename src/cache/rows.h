/* Which cached rows may stand in for rows that are to be computed. Re-basing, the prefix cache and saved sessions all ask
 * lam_rows_admit, and nothing else decides. */
#ifndef LAM_CACHE_ROWS_H
#define LAM_CACHE_ROWS_H

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "cache/closure.h"
#include "kernels/kernels.h"

#define LAM_NAMESPACE_TEXT 72 /* a tenant's salt as a digest, or "" */
#define LAM_ROW_SCHEMA "kv_row_v1"

/* What rows are a function of, beside their tokens, positions and operators. Texts are static, or the owner's of the struct. */
struct lam_row_contract {
    char base_digest[LAM_DIGEST_TEXT];
    const char *numeric;            /* "nc1" */
    const char *graph_revision;
    const char *same_layer[LAM_PROJECTIONS + 1], *earlier_layers[LAM_PROJECTIONS + 1]; /* the closure, NULL at the end */
    uint32_t layers;
    const char *schema, *dtype, *quantisation, *shard, *rope, *visibility, *window, *side_inputs;
    char name_space[LAM_NAMESPACE_TEXT];
};

/* The contract of this program's rows. name_space: "" or a digest. */
void lam_row_contract_here(const char *base_digest, uint32_t n_layers, enum lam_kv_type type, const char *name_space,
                           struct lam_row_contract *out);

/* Rows up to end, from the run before on, are computed with these operators (cache/operators.h). */
struct lam_run {
    size_t end;
    uint8_t operators[LAM_SHA256_BYTES];
};

struct lam_rows {
    const struct lam_row_contract *contract;
    const uint32_t *tokens;         /* [n] of positions first .. first + n - 1 */
    size_t first, n;
    const struct lam_run *runs;     /* [n_runs] over positions 0 .. first + n - 1 */
    size_t n_runs;
    /* of rows that exist */
    size_t covered_end;             /* positions below it hold rows */
    uint32_t complete_layers;
    bool frozen;                    /* nobody writes them any more */
};

/* How many of want's rows, from want->first = have->first on, have holds. LAM_OK with *n = 0 if the first differs. With whole, all of have must serve:
 * a row that does not is the error LAM_E_KV_TOKENS, LAM_E_KV_POSITIONS, LAM_E_KV_EXECUTION or LAM_E_KV_COVERAGE. Where the
 * contracts differ or rows are not complete and frozen, nothing serves: LAM_E_KV_BASE … LAM_E_KV_FROZEN. LAM_E_NO_TOKENS: want
 * has no tokens, so nothing can be derived. */
lam_code lam_rows_admit(const struct lam_rows *want, const struct lam_rows *have, bool whole, size_t *n, lam_error *err);

/* The operators of position p, which a run covers. */
const uint8_t *lam_rows_operators(const struct lam_run *runs, size_t n_runs, size_t p);

/* interval_digest: SHA-256 over the canonical JSON of what rows begin .. end-1 are a function of, beside tokens. With them every
 * earlier row counts, which they see. LAM_E_NO_MEMORY. */
lam_code lam_interval_digest(const struct lam_row_contract *contract, const struct lam_run *runs, size_t n_runs, size_t begin, size_t end,
                             uint8_t out[LAM_SHA256_BYTES], lam_error *err);

/* The contract as JSON, which interval_digest covers and saved sessions hold; a new reference, or NULL when memory is lacking. */
json_t *lam_row_contract_json(const struct lam_row_contract *contract);
/* The reverse; texts stay in json. A member that is lacking, of another type or unknown: LAM_E_FORMAT, LAM_E_UNKNOWN_FIELD, and codes of their own
 * for a key without namespace (LAM_E_KV_KEY_NAMESPACE) and one that names a place (LAM_E_KV_KEY_PLACE). */
lam_code lam_row_contract_read(const json_t *json, struct lam_row_contract *out, lam_error *err);

/* Runs as JSON: [{ "end", "operators": "sha256:…" }, …]. */
json_t *lam_runs_json(const struct lam_run *runs, size_t n_runs, size_t end);
/* *runs[*n_runs] is freed with lam_free. LAM_E_KV_KEY_EXECUTION if json is NULL, LAM_E_FORMAT. */
lam_code lam_runs_read(const json_t *json, struct lam_run **runs, size_t *n_runs, lam_error *err);

#endif
