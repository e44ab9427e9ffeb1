/* Blobs: files named by the SHA-256 of their bytes, 0444, put in their place by rename. */
#ifndef LAM_STORE_BLOB_H
#define LAM_STORE_BLOB_H

#include "store/work.h"

/* The one to be placed: its bytes lie in a work folder. */
struct lam_staged {
    char *path;                   /* owned */
    char digest[LAM_DIGEST_TEXT]; /* "sha256:…" of the bytes */
    uint64_t size;
};

/* Where the blob of this digest lies, or would; freed with lam_free. LAM_E_ARGUMENT if it is none: nothing but "sha256:" and 64 digits ever
 * becomes a path. */
lam_code lam_blob_path(const struct lam_store *s, const char *digest, char **out, lam_error *err);
/* Looks at the file, not into it. LAM_E_STORE_BLOB_MISSING, LAM_E_STORE_LINK if no plain file is there, LAM_E_STORE_BLOB_SIZE if it has
 * another length than size (UINT64_MAX: any). */
lam_code lam_blob_check(const struct lam_store *s, const char *digest, uint64_t size, lam_error *err);
/* All bytes of a small blob, checked against the digest, → *out (empty at the call). Errors as lam_blob_check, LAM_E_STORE_BLOB_BYTES,
 * LAM_E_LIMIT above LAM_STORE_SMALL_MAX. */
lam_code lam_blob_read(const struct lam_store *s, const char *digest, uint64_t size, struct lam_str *out, lam_error *err);
/* Hashes the plain file at path. With a store that has a progress function, stage names the work. */
lam_code lam_blob_hash(const struct lam_store *s, const char *path, const char *stage, char digest[LAM_DIGEST_TEXT], uint64_t *size,
                       lam_error *err);
/* Keeps gc from removing it until lam_unlock; never makes a writer wait. NULL in *out if it is being removed now. */
lam_code lam_blob_hold(const struct lam_store *s, const char *digest, struct lam_lock **out, lam_error *err);

lam_code lam_blob_stage_bytes(struct lam_work *w, const void *bytes, size_t len, struct lam_staged *out, lam_error *err);
/* A copy of the file at path. LAM_E_NO_SPACE before anything is written, if the disk lacks the room. */
lam_code lam_blob_stage_copy(const struct lam_store *s, struct lam_work *w, const char *path, struct lam_staged *out, lam_error *err);
/* A file that was made in the work folder; path is taken over. */
lam_code lam_blob_stage_made(const struct lam_store *s, char *path, struct lam_staged *out, lam_error *err);
void lam_staged_release(struct lam_staged *staged);

/* Puts it in its place. What is there already and has these bytes stays as it is. The store must be locked. */
lam_code lam_blob_place(struct lam_store *s, struct lam_staged *staged, lam_error *err);
/* Stages and places a small one. */
lam_code lam_blob_put(struct lam_store *s, struct lam_work *w, const void *bytes, size_t len, char digest[LAM_DIGEST_TEXT], lam_error *err);

#endif
