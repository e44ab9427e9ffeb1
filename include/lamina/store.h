/* The store on disk: an OCI image layout of bases, adapters and compositions, with one active composition (docs/store.md).
 *
 * A store is a folder. What it holds is named by digests; a name is an alias for one and may be moved. Readers take no lock. Writers, of this
 * process or others, exclude one another and wait for their turn. Every change happens wholly or not at all, also if the process or the machine
 * dies in the middle of it: the next writer finds the old state or the new one.
 * A store handle is used by one thread at a time. */
#ifndef LAMINA_STORE_H
#define LAMINA_STORE_H

#include "lamina/manifest.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lam_store lam_store;

typedef enum lam_store_kind { LAM_STORE_BASE, LAM_STORE_ADAPTER, LAM_STORE_COMPOSITION, LAM_STORE_FOREIGN } lam_store_kind;
/* "base", "adapter", "composition", "foreign": what another OCI tool has put there. */
LAM_API const char *lam_store_kind_name(lam_store_kind kind);

typedef struct lam_store_options {
    const char *folder;       /* NULL: $LAMINA_STORE, else $XDG_DATA_HOME/lamina, else $HOME/.local/share/lamina */
    const char *reason;       /* why; stands in the audit. NULL: not said */
    lam_progress_fn progress; /* may be NULL; the stage "wait" (0 of 0) while another process writes */
    void *progress_context;
    bool damaged;             /* for lam_store_fsck: opens what has lost its oci-layout, too */
} lam_store_options;

/* The folder that is meant, NULL as above; *out is freed with lam_memory_free. LAM_E_ARGUMENT if no variable tells one. */
LAM_API lam_code lam_store_folder(const char *folder, char **out, lam_error *err);

/* Opens the store, or makes one with create. LAM_E_NOT_FOUND if there is none, LAM_E_STORE_LAYOUT if the folder is something else,
 * LAM_E_IO, LAM_E_NO_SPACE, LAM_E_NO_MEMORY. options may be NULL. */
LAM_API lam_code lam_store_open(const lam_store_options *options, bool create, lam_store **out, lam_error *err);
LAM_API void lam_store_close(lam_store *store);
/* Its folder, borrowed. */
LAM_API const char *lam_store_where(const lam_store *store);

/* ---- what it holds ---- */

typedef struct lam_store_entry {
    char *name;                   /* owned; NULL: without one */
    char digest[LAM_DIGEST_TEXT]; /* of its OCI manifest: what the name is for */
    lam_store_kind kind;
    char id[LAM_DIGEST_TEXT];     /* base_digest, adapter_digest, composition_id; "" of a foreign one */
    uint64_t bytes;               /* of all that it names; what others name, too, counts in each */
    bool active;
    lam_code damage;              /* its manifest cannot be read; kind and id then say nothing */
} lam_store_entry;
/* Every name, in the index's order; the active composition, and the one before it, also if they have no name. *entries[*n] is freed with
 * lam_store_free_list. LAM_E_STORE_INDEX, LAM_E_STORE_ACTIVE, LAM_E_IO, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_store_list(lam_store *store, lam_store_entry **entries, size_t *n, lam_error *err);
LAM_API void lam_store_free_list(lam_store_entry *entries, size_t n);

/* What a reference means: a name, or a digest ("sha256:…", of an OCI manifest, or a base_digest, adapter_digest, composition_id), or the first
 * digits of one, 6 at least, with or without "sha256:". LAM_E_NOT_FOUND, LAM_E_CONFLICT if several begin so. */
LAM_API lam_code lam_store_resolve(lam_store *store, const char *reference, char digest[LAM_DIGEST_TEXT], lam_error *err);
/* The active composition, as active.json has it; generation 0 and empty texts if there is none. */
typedef struct lam_store_state {
    uint64_t generation;
    char manifest[LAM_DIGEST_TEXT], composition_id[LAM_DIGEST_TEXT], previous[LAM_DIGEST_TEXT];
} lam_store_state;
LAM_API lam_code lam_store_active(lam_store *store, lam_store_state *out, lam_error *err);

/* Notes that what has this manifest digest, of a base or a composition, ran; and what ran last: LAM_E_NOT_FOUND if nothing did, or what
 * tells it cannot be read. It may be gone meanwhile. Neither takes the lock nor stands in the audit. LAM_E_ARGUMENT, LAM_E_IO, LAM_E_NO_SPACE,
 * LAM_E_STORE_LINK, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_store_note_used(lam_store *store, const char *digest, lam_error *err);
LAM_API lam_code lam_store_used(lam_store *store, char digest[LAM_DIGEST_TEXT], lam_error *err);

/* The OCI manifest and configuration of what reference means → *json, an object as text, freed with lam_memory_free. */
LAM_API lam_code lam_store_show(lam_store *store, const char *reference, char **json, lam_error *err);

/* What a reference meant when it was opened: that is kept whatever becomes of the name, and gc leaves its blobs. */
typedef struct lam_store_item {
    lam_store_kind kind;
    char digest[LAM_DIGEST_TEXT];
    char *path;                   /* owned; the .slm of a base or an adapter, NULL of a composition */
    lam_manifest *manifest;       /* owned; of a composition, its files are blobs of the store; else NULL */
    struct lam_lock **holds;      /* owned */
    size_t n_holds;
} lam_store_item;
/* reference NULL: the active composition; LAM_E_NOT_FOUND if there is none. Errors of lam_store_resolve; what is damaged by its own code, looked
 * at but not hashed: that is done when the bytes are used. LAM_E_STORE_PATH if the composition's configuration names a file. */
LAM_API lam_code lam_store_open_item(lam_store *store, const char *reference, lam_store_item *out, lam_error *err);
/* Also for one that is all zero. */
LAM_API void lam_store_release_item(lam_store_item *item);

/* ---- changes ---- */

typedef struct lam_store_result {
    lam_store_kind kind;
    char digest[LAM_DIGEST_TEXT]; /* of the OCI manifest */
    char id[LAM_DIGEST_TEXT];     /* base_digest, adapter_digest or composition_id */
    char name[132];               /* "": none */
    char from[LAM_DIGEST_TEXT];   /* what the name meant, or what was active, before; "": nothing */
    uint64_t generation;          /* of the active composition after an activation */
    bool changed;                 /* false: it was so already */
} lam_store_result;

typedef struct lam_store_add_options {
    const char *name;             /* the alias, moved if it is there; NULL: the source's name, LAM_E_CONFLICT if that is another one's */
    const char *base;             /* of a PEFT folder or LoRA GGUF: a path or a reference. NULL: the store's only base, or the active one */
    bool accept_tokenizer;        /* as in lam_import_options */
    lam_adapter_report *report;   /* may be NULL; of an imported adapter */
} lam_store_add_options;
/* source: a .slm, what lam_import_base and lam_import_adapter take, or a manifest (lamina/manifest.h), whose base and adapters are added
 * with it, or found in the store by their digests. Every byte of a .slm is hashed. options may be NULL. */
LAM_API lam_code lam_store_add(lam_store *store, const char *source, const lam_store_add_options *options, lam_store_result *out,
                               lam_error *err);
/* Takes a name away; what it meant stays until lam_store_gc. LAM_E_NOT_FOUND. */
LAM_API lam_code lam_store_remove_name(lam_store *store, const char *name, lam_error *err);

typedef struct lam_store_adapter {
    const char *source;           /* a reference, or what lam_store_add takes as an adapter; that is then stored without a name */
    double weight;
    lam_stack_rule rule;
    bool waive, accept_tokenizer; /* as of lam_adapter_load and lam_import_options */
} lam_store_adapter;
/* Makes what reference means the active composition: a composition as it is, or with adapters[n] laid over it; a base, with them. Goes through
 * IDLE, VALIDATE, RESERVE, STAGE, VERIFY, COMMIT; after a failure the active one is as before. Nothing changes, and no generation is
 * counted, if it is active already. */
LAM_API lam_code lam_store_activate(lam_store *store, const char *reference, const lam_store_adapter *adapters, size_t n, lam_store_result *out,
                                    lam_error *err);
/* The composition that was active before becomes active again, as a new generation. LAM_E_NOT_FOUND if there was none. */
LAM_API lam_code lam_store_rollback(lam_store *store, lam_store_result *out, lam_error *err);
/* The active composition without one adapter (its name, its place from 1, its adapter_digest or the beginning of that), or without all
 * (NULL). LAM_E_NOT_FOUND. */
LAM_API lam_code lam_store_deactivate(lam_store *store, const char *adapter, lam_store_result *out, lam_error *err);

/* ---- upkeep ---- */

typedef struct lam_store_swept {
    size_t n_blobs, n_temporaries, n_in_use; /* removed, removed, kept because a process holds them */
    uint64_t bytes;                          /* freed */
} lam_store_swept;
/* Removes what neither a name nor the active composition nor the one before it needs: blobs, and what dead processes have left. It works on a
 * full disk. Refuses to judge if a manifest cannot be read: the error is that manifest's. */
LAM_API lam_code lam_store_gc(lam_store *store, lam_store_swept *out, lam_error *err);

/* Looks at everything, hashes every byte, and goes on after each fault: *found (zero at the call) has one for each, of the codes LAM_E_STORE_…,
 * the subject is a path in the store or a name. With repair, what can be put right is, and *left has what could not be; without, *left
 * stays empty. LAM_OK if nothing is wrong (any more), else the first code. */
LAM_API lam_code lam_store_fsck(lam_store *store, bool repair, lam_fault_list *found, lam_fault_list *left, lam_error *err);

/* The audit as a JSON array, oldest first, freed with lam_memory_free. LAM_E_STORE_AUDIT names the first broken line; *json then has those before.
 * LAM_E_STORE_AUDIT or LAM_E_STORE_JOURNAL, with all lines in *json, if the audit or the journal lacks a change that the other tells of. */
LAM_API lam_code lam_store_log(lam_store *store, char **json, lam_error *err);

/* Copies what reference means into another store (an OCI layout) at folder, made if need be, under the same name, or its digits if it has none. */
LAM_API lam_code lam_store_export(lam_store *store, const char *reference, const char *folder, lam_store_result *out, lam_error *err);
/* Copies all bases, adapters and compositions of the OCI layout at folder into the store, each under its name; with name (may be NULL) there must be
 * one alone, and it gets that. Everything is hashed, compositions are composed to see that they are what they say. *results[*n] is freed
 * with lam_memory_free. LAM_E_CONFLICT for a name that is another one's; what was copied before stays. */
LAM_API lam_code lam_store_import(lam_store *store, const char *folder, const char *name, lam_store_result **results, size_t *n, lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
