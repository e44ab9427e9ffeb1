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
    char *template_text;    /* of a file; owned */
};

/* text[len] of a manifest that lies in folder ("": here); what names it in errors. See lam_manifest_read; no file is opened here. */
lam_code lam_manifest_parse(const char *text, size_t len, const char *folder, const char *what, lam_manifest **out, lam_fault_list *faults,
                            lam_error *err);

/* What a sampling default is called, where it lies in lam_manifest_sampling, and its bounds. */
struct lam_sampling_field {
    const char *name;
    unsigned bit;
    bool whole;             /* a uint64_t, else a double */
    size_t at;
    double least, most;
};
enum { LAM_N_SAMPLING = 6 };
extern const struct lam_sampling_field lam_sampling_fields[LAM_N_SAMPLING];

/* "sha256:" and 64 hexadecimal digits in small letters. */
bool lam_is_digest(const char *text);

#endif
