/* index.json: names for manifests. It is edited as JSON, so that what other OCI tools have put there stays. */
#ifndef LAM_STORE_INDEX_H
#define LAM_STORE_INDEX_H

#include "store/artifact.h"

struct lam_index_entry {
    const char *name;            /* NULL: without one */
    struct lam_descriptor manifest;
};

struct lam_index {
    json_t *root;                /* owned; the texts' */
    struct lam_index_entry *entries; /* [n], owned */
    size_t n;
};

/* LAM_E_STORE_INDEX names what is wrong with it; LAM_E_STORE_LINK, LAM_E_IO, LAM_E_NO_MEMORY. A file that is not there is LAM_E_STORE_INDEX. */
lam_code lam_index_read(const struct lam_store *s, struct lam_index *out, lam_error *err);
void lam_index_release(struct lam_index *index);

/* The entry of this name, or NULL. */
const struct lam_index_entry *lam_index_find(const struct lam_index *index, const char *name);

/* Whether a name is one by the OCI image-spec's grammar: letters and digits, with one of - . _ : @ / + (or --) between them; 128 bytes at most;
 * LAM_E_STORE_NAME says why not. Nor may it look like a digest. */
lam_code lam_name_check(const char *name, lam_error *err);

/* name means the manifest from now on: in index.json, by one rename. kind_type: its artifactType. The store must be locked. */
lam_code lam_index_set(struct lam_store *s, const char *name, const char *kind_type, const char *digest, uint64_t size, lam_error *err);
/* Takes the name away. LAM_E_NOT_FOUND. The store must be locked. */
lam_code lam_index_remove(struct lam_store *s, const char *name, lam_error *err);

/* The artifactType of a kind, NULL for LAM_STORE_FOREIGN. */
const char *lam_artifact_type(lam_store_kind kind);

#endif
