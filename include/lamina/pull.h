/* Models from other machines into a store, and to them: by URL, from a seed (a static tree with a signed index), from and to OCI
 * registries (docs/pull.md). Nothing becomes part of the store before every byte of it was found to be what was expected; what an
 * interrupted pull has fetched is kept, and not fetched again. */
#ifndef LAMINA_PULL_H
#define LAMINA_PULL_H

#include "lamina/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lam_transfer_options {
    const char *const *sources; /* [n_sources] more URLs of the same .slm; pieces come from all of them at once */
    size_t n_sources;
    const char *user;           /* "name:password"; NULL: docker's config.json, for registries */
    const char *cacert;         /* certificates to trust, a file in PEM; NULL: $CURL_CA_BUNDLE, $SSL_CERT_FILE, else the system's */
    const char *trust;          /* keys whose signatures of seeds count, as in lam_trust_open; NULL: the default list */
    uint64_t limit_rate;        /* bytes a second; 0: none */
    unsigned connections;       /* 1 to 16; 0: 4 */
    bool plain_http;            /* speak http to registries; those on this machine are spoken to so anyway */
    lam_progress_fn progress;   /* may be NULL; stages "check" (what is there already), "fetch", "hash", "send" */
    void *progress_context;
    void (*say)(void *context, const char *line); /* may be NULL: what a user should read, such as which source was wrong */
    void *say_context;
} lam_transfer_options;

/* Where the expected root came from. */
typedef enum lam_root_origin {
    LAM_ROOT_GIVEN = 1,  /* with the reference */
    LAM_ROOT_SIGNED = 2, /* an index that is signed by a key of the trust list */
    LAM_ROOT_PINNED = 3, /* this build's own */
    LAM_ROOT_KNOWN = 4,  /* the same as when it was first pulled from there */
    LAM_ROOT_FIRST_USE = 5 /* nothing was known: it was taken as it came, and recorded */
} lam_root_origin;
/* "given", "signed", "pinned", "known", "first use" */
LAM_API const char *lam_root_origin_name(lam_root_origin origin);

typedef struct lam_transfer_report {
    lam_store_kind kind;
    char name[132];                /* of the store; of a push, where it went */
    char digest[LAM_DIGEST_TEXT];  /* of the OCI manifest */
    char root[LAM_DIGEST_TEXT];    /* what was expected and found: file_root of an .slm by URL, else the digest */
    lam_root_origin origin;
    char signer[160];              /* with LAM_ROOT_SIGNED */
    uint64_t bytes;                /* of everything that it consists of */
    uint64_t moved;                /* bytes that went over the network for blobs, in this call */
    size_t n_blobs, n_had;         /* of which the other side needed n_blobs - n_had */
} lam_transfer_report;

/* Fetches what reference means and gives it a name in the store (NULL: one from the reference; a name that is there moves). item:
 * which model of a seed (NULL: its default). options may be NULL. Errors, besides the store's and those of the files: LAM_E_ARGUMENT
 * for a wrong reference; LAM_E_ROOT if it is not what was given, signed, pinned or seen before; LAM_E_NO_SPACE, with the bytes that
 * are needed and free; LAM_E_NETWORK … LAM_E_REGISTRY; LAM_E_DIGEST if every source sent wrong bytes; LAM_E_SIGNATURE;
 * LAM_E_CANCELLED. */
LAM_API lam_code lam_pull(lam_store *store, const char *reference, const char *item, const char *name,
                          const lam_transfer_options *options,
                          lam_transfer_report *out, lam_error *err);

/* Sends what reference means in the store (as in lam_store_resolve) to a registry. Blobs that it has are not sent. */
LAM_API lam_code lam_push(lam_store *store, const char *reference, const char *to, const lam_transfer_options *options,
                          lam_transfer_report *out,
                          lam_error *err);

/* Whether text names something on another machine, and no file or name of the store. */
LAM_API bool lam_is_remote(const char *text);

/* lam_store_fsck with repair, where the pieces of an .slm that are damaged are fetched again from where it was pulled; *n_bytes: how
 * many bytes. What comes is held to the root that it had. */
LAM_API lam_code lam_pull_fsck(lam_store *store, const lam_transfer_options *options, lam_fault_list *found, lam_fault_list *left,
                               uint64_t *n_bytes,
                               lam_error *err);

/* ---- seeds ---- */

/* A seed of names[n] of the store (n 0: all that have names) in the folder to, which any web server can then serve: an OCI layout, and
 * seed.json that names everything with its root. Blobs are linked where that can be, else copied. first: the default; NULL: the first.
 * key: a private key in PEM, a file, to sign with; NULL: none. to NULL: nothing is written. *json: the index, freed with
 * lam_memory_free. */
LAM_API lam_code lam_seed_make(lam_store *store, const char *const names[], size_t n, const char *first, const char *key,
                               const char *to, char **json,
                               lam_error *err);
/* The index of the seed at reference → *json, an object of its models, its default, and how it stands ("signed by NAME" or
 * "unsigned"). */
LAM_API lam_code lam_seed_list(const char *reference, const lam_transfer_options *options, char **json, lam_error *err);

/* Where the first model comes from: $LAMINA_SEED_URL, else what the build was given; NULL: nowhere. */
LAM_API const char *lam_seed_default(void);

#ifdef __cplusplus
}
#endif
#endif
