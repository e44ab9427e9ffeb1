/* Where blobs come from or go to: an OCI registry (distribution-spec 1.1), or a static tree with an OCI layout in it (a seed). */
#ifndef LAM_STORE_REMOTE_H
#define LAM_STORE_REMOTE_H

#include "store/artifact.h"
#include "store/reference.h"
#include "store/sources.h"

struct lam_remote {
    struct lam_http *http;      /* borrowed, and so are all but the last two */
    const char *server;         /* "https://HOST:PORT" of a registry; NULL: a static tree */
    const char *host, *repository;
    const char *index;          /* of a static tree: the URL of a file beside its blobs/ */
    bool push;                  /* asks for the right to write, too */
    bool (*tick)(void *context);/* may be NULL; false stops */
    void *tick_context;
    struct lam_str user;        /* "name:password", or empty */
    struct lam_str authorization; /* a header field, or empty */
};

/* Sets the login for host: user (NULL: that of $DOCKER_CONFIG/config.json or ~/.docker/config.json, if there is one). */
lam_code lam_remote_login(struct lam_remote *r, const char *user, lam_error *err);
void lam_remote_release(struct lam_remote *r);

/* One request, with a login where the server wants one. Its headers need a free place. */
lam_code lam_remote_do(struct lam_remote *r, struct lam_http_request *q, lam_error *err);
/* A lam_sources' renew: context is the struct lam_remote. */
lam_code lam_remote_renew(void *context, struct lam_source *source, const struct lam_http_answer *answer, lam_error *err);

/* Where the blob of a digest is; freed with lam_free, NULL when memory is lacking. */
char *lam_remote_blob_url(const struct lam_remote *r, const char *digest);
/* The body of url, of at most LAM_STORE_SMALL_MAX bytes, taken as it is → *out (empty at the call). accept: a header field, or NULL. */
lam_code lam_remote_get(struct lam_remote *r, const char *url, const char *accept, struct lam_str *out, lam_error *err);
/* A small blob, held to its digest and size (UINT64_MAX: any). LAM_E_DIGEST, LAM_E_HTTP_LENGTH. */
lam_code lam_remote_blob(struct lam_remote *r, const char *digest, uint64_t size, struct lam_str *out, lam_error *err);
/* The manifest of a tag or digest in a registry → its text and digest. */
lam_code lam_remote_manifest(struct lam_remote *r, const char *reference, struct lam_str *out, char digest[LAM_DIGEST_TEXT],
                             lam_error *err);

/* Puts bytes[size] into the registry, unless it has the blob already (*skipped). A connection that breaks is taken up where the
 * registry says that it broke. *sent: bytes that went out. tell(context, bytes) is told how far it is; false stops. */
lam_code lam_remote_upload(struct lam_remote *r, const char *digest, const uint8_t *bytes, size_t size, bool *skipped, uint64_t *sent,
                           bool (*tell)(void *context, uint64_t done), void *context, lam_error *err);
/* Puts a manifest under a tag or digest; the registry's digest of it must be this one. */
lam_code lam_remote_put_manifest(struct lam_remote *r, const char *reference, const char *text, size_t len, const char *digest,
                                 lam_error *err);

#endif
