/* Ranges of one file from several servers at once, and which of them can be relied on. A connection that breaks is taken up again
 * where it broke. A server that sends what it must not is not used again: at once if its answer's head shows it, after LAM_MOST_FAULTS
 * ranges whose bytes were found wrong. Every such thing is said, with the server's name. */
#ifndef LAM_STORE_SOURCES_H
#define LAM_STORE_SOURCES_H

#include "lamina/lamina.h"
#include "store/http.h"

#define LAM_MOST_FAULTS 3
#define LAM_MOST_SOURCES 16
#define LAM_MOST_CONNECTIONS 16

struct lam_source {
    const char *url;           /* borrowed */
    const char *user;          /* for the Basic scheme, or NULL; borrowed */
    const char *authorization; /* a whole header field, or NULL; borrowed */
    char etag[256];            /* of the first answer; "" if it had none */
    bool out;                  /* not used any more */
    bool renewed;              /* its authorization is new, and was not yet accepted */
    unsigned n_failures;       /* in a row, without a byte between them */
    unsigned n_faults;         /* ranges with wrong bytes */
    unsigned n_active;
    double failed, wait_until, renewed_at; /* seconds of lam_now */
};

struct lam_sources {
    struct lam_http *http;
    struct lam_source list[LAM_MOST_SOURCES];
    size_t n;
    const struct lam_source *only; /* ask no other one; NULL: all */
    unsigned connections;      /* 1 … LAM_MOST_CONNECTIONS */
    uint64_t total;            /* of the file; 0 while it is not known */
    uint64_t fetched;          /* bytes of bodies so far */
    uint64_t done, of;         /* for progress: bytes that are good, of so many */
    lam_progress_fn progress;  /* may be NULL */
    void *progress_context;
    /* A line for the user: may be NULL. */
    void (*say)(void *context, const char *line);
    void *say_context;
    /* A server wants (another) authorization: sets the source's, or fails. May be NULL. */
    lam_code (*renew)(void *context, struct lam_source *source, const struct lam_http_answer *answer, lam_error *err);
    void *renew_context;
    lam_error last;            /* why the last source was given up */
};

/* One range. */
struct lam_range {
    uint64_t from;
    size_t bytes;
};
/* Where ranges[n] come to, one after the other, in any order. LAM_E_DIGEST: the bytes are wrong, and the range is fetched again.
 * What is blameless (below) ends everything; for any other code the source is given up. */
typedef lam_code (*lam_range_fn)(void *context, size_t index, const uint8_t *bytes, size_t len, lam_error *err);

/* What no source is to blame for: LAM_E_NO_MEMORY, LAM_E_IO, LAM_E_NO_SPACE, LAM_E_CANCELLED. */
bool lam_sources_blameless(lam_code code);
/* Fetches all of ranges[n]. LAM_E_CANCELLED; LAM_E_NO_MEMORY; what accept returned; if no source is left, why the last one was given
 * up. */
lam_code lam_sources_fetch(struct lam_sources *s, const struct lam_range *ranges, size_t n, lam_range_fn accept, void *context,
                           lam_error *err);
void lam_sources_say(const struct lam_sources *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
