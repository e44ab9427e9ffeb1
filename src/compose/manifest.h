/* A manifest from inside: what it owns, and the names of its choices. */
#ifndef LAM_COMPOSE_MANIFEST_H
#define LAM_COMPOSE_MANIFEST_H

#include "base/json.h"
#include "lamina/manifest.h"

#define LAM_MANIFEST_TYPE "lamina.manifest.v0"
#define LAM_WINDOW_POLICY "model"

enum { LAM_N_RULES = 2, LAM_N_POLICIES = 2, LAM_N_KV = 3 };
extern const char *const lam_rule_names[LAM_N_RULES];     /* by enum lam_stack_rule */
extern const char *const lam_policy_names[LAM_N_POLICIES]; /* by enum lam_policy */
extern const char *const lam_kv_names[LAM_N_KV];          /* by enum lam_kv_choice, less LAM_KV_FLOAT16 */

/* A manifest that was read. Its texts are root's and paths'. */
struct lam_manifest_parts {
    lam_manifest manifest;  /* first: lam_manifest_free gets its address */
    json_t *root, *paths;   /* paths: texts */
    lam_manifest_adapter adapters[LAM_MANIFEST_MAX_ADAPTERS];
    lam_owner *owners;
    lam_module_policy *policies;
    char **receipts;        /* [manifest.n_receipts], each owned */
};

/* text[len] of a manifest that lies in folder ("": here); what names it in errors. See lam_manifest_read. */
lam_code lam_manifest_parse(const char *text, size_t len, const char *folder, const char *what, lam_manifest **out, lam_fault_list *faults,
                            lam_error *err);

/* "sha256:" and 64 hexadecimal digits in small letters. */
bool lam_is_digest(const char *text);

#endif
