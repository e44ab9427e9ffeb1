/* HTTP requests, several at a time, on the caller's thread, by libcurl. Proxies and TLS are as libcurl's users know them (http_proxy,
 * https_proxy, no_proxy, ALL_PROXY; CURL_CA_BUNDLE, SSL_CERT_FILE). Redirections are followed, never from https to http, and no
 * password goes to another host than it is for. */
#ifndef LAM_STORE_HTTP_H
#define LAM_STORE_HTTP_H

#include "store/content_range.h"

#include <stddef.h>

struct lam_http_options {
    const char *cacert;  /* certificates to trust in PEM, a file; NULL: the system's */
    uint64_t limit_rate; /* bytes a second of one transfer; 0: none */
};
struct lam_http;
lam_code lam_http_new(const struct lam_http_options *options, struct lam_http **out, lam_error *err);
void lam_http_free(struct lam_http *http); /* NULL is allowed; what is under way ends */

#define LAM_HTTP_HEADERS 6
struct lam_http_request {
    /* what is asked; texts are borrowed until it is done */
    const char *method;                        /* NULL: GET */
    const char *url;
    const char *headers[LAM_HTTP_HEADERS];     /* "Name: value", NULL: none more */
    const char *user;                          /* "name:password" for the Basic scheme; NULL */
    uint64_t from, bytes;                      /* the range; bytes 0: the whole, of whatever status */
    const uint8_t *body;                       /* [body_bytes] to send; NULL: none */
    size_t body_bytes;
    /* what comes: buffer[room] gets the body behind the got bytes that are there; a body that passes it is LAM_E_HTTP_LENGTH. With a
     * range, nothing is taken but from an answer that lam_http_check_range accepts, with the same etag (if not NULL) and total (if not
     * 0). */
    uint8_t *buffer;
    size_t room, got;
    const char *etag;
    uint64_t total;                            /* of the file: expected, then as the answer says */
    struct lam_http_answer answer;
    /* how it ended: LAM_OK whatever the status if there is no range */
    lam_code code;
    lam_error why;
    size_t sent;                               /* bytes of the body that went out */
    /* the caller's and the implementation's own */
    void *owner;
    struct lam_http_transfer *transfer;
    struct lam_http_request *next;             /* done, and not yet given to whoever waits for it */
};

/* Begins. The request must stay where it is until it is done. */
lam_code lam_http_start(struct lam_http *http, struct lam_http_request *r, lam_error *err);
/* A request that is done, or NULL after at most `seconds`. */
struct lam_http_request *lam_http_wait(struct lam_http *http, double seconds);
/* Ends a request that was begun; one that is done is forgotten. */
void lam_http_stop(struct lam_http *http, struct lam_http_request *r);

/* Called while something is waited for; false ends it with LAM_E_CANCELLED. */
typedef bool (*lam_http_tick_fn)(void *context);
/* One request, from its beginning to its end; its code. Others that are done meanwhile come out of the next lam_http_wait. tick may be
 * NULL. */
lam_code lam_http_do(struct lam_http *http, struct lam_http_request *r, lam_http_tick_fn tick, void *context, lam_error *err);

#endif
