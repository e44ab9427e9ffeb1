/* OCI artefacts of ours: what a manifest blob says, and manifests to be written (OCI image-spec 1.1). */
#ifndef LAM_STORE_ARTIFACT_H
#define LAM_STORE_ARTIFACT_H

#include "store/blob.h"

#define LAM_TYPE_INDEX "application/vnd.oci.image.index.v1+json"
#define LAM_TYPE_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define LAM_TYPE_EMPTY "application/vnd.oci.empty.v1+json"

#define LAM_TYPE_BASE "application/vnd.lamina.base.v0"               /* artefacts */
#define LAM_TYPE_ADAPTER "application/vnd.lamina.adapter.v0"
#define LAM_TYPE_COMPOSITION "application/vnd.lamina.composition.v0+json"
#define LAM_TYPE_CONFIG "application/vnd.lamina.composition.config.v0+json" /* a composition's configuration */
#define LAM_TYPE_BASE_SLM "application/vnd.lamina.base.v0.slm"       /* layers */
#define LAM_TYPE_ADAPTER_SLM "application/vnd.lamina.adapter.v0.slm"
#define LAM_TYPE_TOKENIZER "application/vnd.lamina.tokenizer.v0"
#define LAM_TYPE_TEMPLATE "application/vnd.lamina.template.v0"
#define LAM_TYPE_SAMPLING "application/vnd.lamina.sampling.v0+json"
#define LAM_TYPE_PROMPT "application/vnd.lamina.prompt.v0"

#define LAM_NOTE_NAME "org.opencontainers.image.ref.name"   /* annotations */
#define LAM_NOTE_TITLE "org.opencontainers.image.title"
#define LAM_NOTE_FILE_ROOT "lamina.file_root"
#define LAM_NOTE_BASE "lamina.base_digest"
#define LAM_NOTE_ADAPTER "lamina.adapter_digest"
#define LAM_NOTE_COMPOSITION "lamina.composition_id"

#define LAM_ARTIFACT_MAX_LAYERS 256

/* A descriptor. Texts are borrowed from the JSON that it was read from. */
struct lam_descriptor {
    const char *media_type, *digest;
    uint64_t size;
    const char *title, *file_root;   /* NULL where not annotated */
    const char *meaning;             /* base_digest or adapter_digest; NULL */
};

struct lam_artifact {
    lam_store_kind kind;
    json_t *root;                    /* owned; the texts' */
    char digest[LAM_DIGEST_TEXT];    /* of the manifest blob */
    uint64_t size;                   /* its bytes */
    const char *id;                  /* base_digest, adapter_digest or composition_id by its annotations; NULL in LAM_STORE_FOREIGN */
    struct lam_descriptor config;
    struct lam_descriptor *layers;   /* [n_layers], owned */
    size_t n_layers;
};

/* Reads a descriptor: mediaType, a SHA-256 digest, a size. LAM_E_STORE_ARTIFACT names what is wrong. */
lam_code lam_descriptor_read(const json_t *value, const char *what, struct lam_descriptor *out, lam_error *err);

/* What text[len] says; digest is its own. Any OCI manifest is read, those of other kinds as LAM_STORE_FOREIGN. Layers of ours must be
 * annotated with their roots and digests. LAM_E_STORE_ARTIFACT, LAM_E_NO_MEMORY. */
lam_code lam_artifact_parse(const char *text, size_t len, const char *digest, struct lam_artifact *out, lam_error *err);
/* The manifest blob of this digest; size: as its descriptor says, UINT64_MAX if none does. Errors as lam_blob_read and above;
 * LAM_E_STORE_DANGLING if it is not there. */
lam_code lam_artifact_open(const struct lam_store *s, const char *digest, uint64_t size, struct lam_artifact *out, lam_error *err);
void lam_artifact_release(struct lam_artifact *a);

/* The first layer of a media type, and of a meaning if that is not NULL; NULL if there is none. */
const struct lam_descriptor *lam_artifact_layer(const struct lam_artifact *a, const char *media_type, const char *meaning);

/* The canonical text of a manifest → *text (empty at the call). config: of a composition; NULL: the empty one. id: what the artefact means. */
lam_code lam_artifact_write(lam_store_kind kind, const char *id, const struct lam_descriptor *config, const struct lam_descriptor *layers,
                            size_t n_layers, struct lam_str *text, lam_error *err);

/* The bytes of the empty configuration, and its digest, as the specification gives them. */
#define LAM_EMPTY_CONFIG "{}"
#define LAM_EMPTY_DIGEST "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"

#endif
