/* A .slm that goes into a composition: one of the store's blobs, or one that is about to become it. */
#ifndef LAM_STORE_PIECE_H
#define LAM_STORE_PIECE_H

#include "store/artifact.h"

struct lam_piece {
    lam_store_kind kind;          /* LAM_STORE_BASE or LAM_STORE_ADAPTER */
    char *path;                   /* owned; where it can be opened now */
    struct lam_staged staged;     /* path NULL: it is in the store already */
    char digest[LAM_DIGEST_TEXT], file_root[LAM_DIGEST_TEXT], meaning[LAM_DIGEST_TEXT];
    uint64_t size;
    char *title;                  /* owned; the file's name for who pulls it with other tools */
};

/* From what lies at path: a .slm is copied and every byte of it hashed, anything else imported, an adapter for the base at base_path (NULL: none is
 * known, LAM_E_ARGUMENT). base_path may be a piece's path. want: LAM_STORE_FOREIGN takes either kind, else LAM_E_ARGUMENT for the other. */
struct lam_piece_source {
    const char *path, *base_path;
    lam_store_kind want;
    bool accept_tokenizer;
    lam_adapter_report *report;   /* may be NULL */
};
lam_code lam_piece_stage(const struct lam_store *s, struct lam_work *w, const struct lam_piece_source *source, struct lam_piece *out,
                         lam_error *err);
/* From the whole .slm at path, which is taken over; every piece of it was found good. */
lam_code lam_piece_of_made(const struct lam_store *s, char *path, struct lam_piece *out, lam_error *err);
/* From a layer of the store. */
lam_code lam_piece_of_layer(const struct lam_store *s, const struct lam_descriptor *layer, struct lam_piece *out, lam_error *err);
void lam_piece_release(struct lam_piece *p);

/* Checks that the .slm at path is what root and meaning say (NULL: whatever): its small parts are hashed, and the tree of the rest. LAM_E_DIGEST
 * for another root, LAM_E_WRONG_BASE or LAM_E_DIGEST for another meaning, and the file's own errors. */
lam_code lam_piece_check(const char *path, lam_store_kind kind, const char *file_root, const char *meaning, lam_error *err);

/* lam_piece_check of every .slm among an artefact's layers. */
lam_code lam_layers_verify(const struct lam_store *s, const struct lam_artifact *a, lam_error *err);

/* The layer that it is; texts are borrowed. */
struct lam_descriptor lam_piece_layer(const struct lam_piece *p);
/* Puts it in its place, if it is not there. The store must be locked. */
lam_code lam_piece_place(struct lam_store *s, struct lam_piece *p, lam_error *err);

#endif
