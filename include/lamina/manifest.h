/* Composition manifests: one JSON file that names a base, its adapters in order and everything else that enters a composition_id,
 * each by its digest (docs/manifest.md; the schema is docs/manifest.schema.json). And the checks of a whole stack, which go on after
 * the first fault. */
#ifndef LAMINA_MANIFEST_H
#define LAMINA_MANIFEST_H

#include "lamina/lamina.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LAM_MANIFEST_MAX_BYTES ((size_t)1 << 20)
#define LAM_MANIFEST_MAX_ADAPTERS 64
#define LAM_MANIFEST_PARTS 5

/* ---- faults ---- */

/* Everything that is wrong with something, in the order in which it was found. All zero: nothing. */
typedef struct lam_fault_list {
    lam_fault *items;  /* [n], owned with their texts */
    size_t n, n_more;  /* n_more: beyond the 1000 that are kept, or than memory holds */
} lam_fault_list;
LAM_API void lam_fault_list_release(lam_fault_list *faults);
/* LAM_OK if there is no fault, else the first one's code, with it and their number in *err. */
LAM_API lam_code lam_fault_list_error(const lam_fault_list *faults, const char *what, lam_error *err);
/* Adds what a call that failed said. */
LAM_API void lam_fault_list_add_error(lam_fault_list *faults, const char *subject, const lam_error *err);

/* ---- manifests ---- */

/* What a digest is made of, each part by a digest of its own, so that it can be told in what two things differ. NULL: not stated. */
typedef struct lam_base_parts_text {
    const char *weights, *layout, *config, *targets;
} lam_base_parts_text;
typedef struct lam_adapter_parts_text {
    const char *method; /* its name */
    const char *modules, *factors, *activation;
    const char *alphas; /* of the modules: where they differ, the modules do too */
} lam_adapter_parts_text;

typedef struct lam_manifest_adapter {
    const char *digest; /* adapter_digest; NULL: whatever the file holds */
    const char *name;   /* for people; NULL */
    const char *file;   /* a path that can be opened from here; NULL: none is named */
    double weight;
    lam_stack_rule rule;
    bool waived;        /* laid over a base that it is not bound to; the file names both digests */
    lam_adapter_parts_text parts;
    bool accept_tokenizer; /* as in lam_import_options, for a source that is imported */
} lam_manifest_adapter;

/* Sampling defaults: a member counts if its bit is set in given. */
enum {
    LAM_SAMPLING_TEMPERATURE = 1, LAM_SAMPLING_TOP_K = 2, LAM_SAMPLING_TOP_P = 4, LAM_SAMPLING_MIN_P = 8, LAM_SAMPLING_REPEAT_PENALTY = 16,
    LAM_SAMPLING_SEED = 32
};
typedef struct lam_manifest_sampling {
    unsigned given;
    double temperature, top_p, min_p, repeat_penalty;
    uint64_t top_k, seed;
} lam_manifest_sampling;
/* Puts what is given into *out, and leaves the rest of it. */
LAM_API void lam_manifest_sampling_apply(const lam_manifest_sampling *sampling, lam_sampling *out);

typedef struct lam_manifest {
    const char *id;                /* composition_id that must come out; NULL: any */
    const char *base_digest, *base_name, *base_file; /* as an adapter's */
    lam_base_parts_text base_parts;
    const char *tokenizer_digest;  /* NULL: the base's, whatever it is */
    bool states_template;          /* template_digest counts; NULL then says that there is none */
    const char *template_digest;
    const char *template_text;     /* a chat template in place of the base's; NULL: the base's */
    const char *template_file;     /* where it lies, if not in the manifest itself; NULL */
    const lam_manifest_adapter *adapters;
    size_t n_adapters;
    const lam_owner *owners;
    size_t n_owners;
    lam_policy policy;
    const lam_module_policy *module_policies;
    size_t n_module_policies;
    lam_kv kv;
    uint64_t memory_budget;        /* bytes; 0: none. In no id */
    const char *prompt;            /* a system message in front of every conversation; NULL. In no id */
    lam_manifest_sampling sampling; /* in no id */
    const char *const *receipts;   /* [n_receipts], canonical JSON (lamina/receipt.h) */
    size_t n_receipts;
} lam_manifest;

/* Whether the file at path holds a JSON object, and so may be a manifest: its first byte that is no white space is '{'. True behind a byte
 * order mark, too, so that lam_manifest_read can say what is wrong. */
LAM_API bool lam_manifest_detect(const char *path);

/* Reads and checks the file at path; its references are resolved against its folder and not opened, but for a template's. Every fault is in
 * *faults (must be zero or from an earlier call, may not be NULL), and the first in *err: LAM_E_UNKNOWN_FIELD, LAM_E_FORMAT,
 * LAM_E_DUPLICATE, LAM_E_VERSION, LAM_E_MAGIC, LAM_E_LIMIT, LAM_E_WRONG_BASE and LAM_E_DIGEST (a waiver for other digests than those beside
 * it), LAM_E_DIGEST for a template that is not the digest's, LAM_E_CONFLICT for one that is given twice, LAM_E_UTF8, LAM_E_UNMATCHED (an
 * owner that is no adapter of the stack), LAM_E_NOT_FOUND, LAM_E_IO, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_manifest_read(const char *path, lam_manifest **out, lam_fault_list *faults, lam_error *err);
LAM_API void lam_manifest_free(lam_manifest *manifest);

/* The parts of the .slm at path, in the order of the structures above: of a base weights, layout, config, targets; of an adapter method,
 * modules, factors, activation, alphas; "" for the fifth of a base. Errors are those of the file. */
LAM_API lam_code lam_manifest_parts(const char *path, char out[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT], lam_error *err);

/* The canonical JSON of a manifest that is to lie at path (files become relative to its folder) → *json, freed with lam_memory_free.
 * LAM_E_ARGUMENT for what lam_manifest_read would refuse, named. */
LAM_API lam_code lam_manifest_json(const lam_manifest *manifest, const char *path, char **json, lam_error *err);
/* The same, written to path, atomically. */
LAM_API lam_code lam_manifest_write(const lam_manifest *manifest, const char *path, lam_error *err);

/* Checks a whole stack without staging anything, and goes on after each fault: digests, bindings and waivers, method, modules, names,
 * shapes, rank, types, roles, finite values, index order, what occurs twice, owners, policies. base is the .slm of the manifest's base,
 * adapters[n_adapters] those of its adapters; NULL is one that could not be had, and is passed over. Without a base, or with one that cannot be
 * opened, which is a fault, only digests and parts of the adapters and a template of the manifest's own are looked at. What faults holds already
 * stays, and counts. Reads every byte of the adapters, and of the base what lies beside the weights. LAM_OK if there is no fault; else as
 * lam_fault_list_error. */
LAM_API lam_code lam_manifest_check(const lam_manifest *manifest, const char *base, const char *const adapters[], lam_fault_list *faults,
                                    lam_error *err);

/* The composition_id of the manifest's stack, from its files alone, as lam_compose would give it → id; nothing is staged. base and
 * adapters[n_adapters] are .slm. What a composition is refused for beyond that is not looked for (lam_manifest_check). LAM_E_WRONG_BASE,
 * LAM_E_UNMATCHED, LAM_E_LIMIT, LAM_E_NO_MEMORY, and the errors of the files. */
LAM_API lam_code lam_manifest_id(const lam_manifest *manifest, const char *base, const char *const adapters[], char id[LAM_DIGEST_TEXT],
                                 lam_error *err);

#define LAM_ADAPTER_NAME 112
/* How outputs and faults call the adapters, out[n_adapters]: as the manifest does, else as their files at adapters[n_adapters] say (as in
 * lam_manifest_check), else by the file's name; with -2, -3 … behind a name that an earlier one has. */
LAM_API void lam_manifest_names(const lam_manifest *manifest, const char *const adapters[], char (*out)[LAM_ADAPTER_NAME]);

/* A module that several adapters of a stack claim alone, and that has no owner. */
typedef struct lam_contest {
    const char *module;
    uint64_t claimants; /* bit i: adapter i */
} lam_contest;
/* The contests of a stack, as in lam_manifest_check, in the order of the base's modules → *out[*n], with their texts one block that is freed with
 * lam_memory_free. What else is wrong with the stack is passed over. LAM_E_LIMIT, LAM_E_NO_MEMORY, and the errors of the base. */
LAM_API lam_code lam_manifest_contests(const lam_manifest *manifest, const char *base, const char *const adapters[], lam_contest **out, size_t *n,
                                       lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
