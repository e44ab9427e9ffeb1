/* The answer to a request for a range of bytes (RFC 9110, sections 14.4 and 15.3.7), held to what was asked for. */
#ifndef LAM_STORE_CONTENT_RANGE_H
#define LAM_STORE_CONTENT_RANGE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAM_HTTP_FIELD 1024 /* room of a header field's value; a longer one is cut, and then is no value that is accepted */

/* What Lamina looks at of an answer's head; texts are "" where a field is missing. */
struct lam_http_answer {
    long status;
    uint64_t length;       /* of the body, as the head says */
    bool has_length;
    char type[128];        /* Content-Type */
    char encoding[64];     /* Content-Encoding */
    char range[128];       /* Content-Range */
    char etag[256];
    char location[LAM_HTTP_FIELD];
    char authenticate[LAM_HTTP_FIELD]; /* the first WWW-Authenticate that names Bearer, else the first one */
    char upload_range[64]; /* Range, of an upload */
    char digest[128];      /* Docker-Content-Digest */
};

/* Takes over one line of a head, "Name: value" or the status line, which begins a new head. Lines that mean nothing here are passed
 * over. */
void lam_http_take_line(struct lam_http_answer *a, const char *line, size_t len);

/* "bytes FIRST-LAST/TOTAL". False for everything else: "bytes *" with a total alone, an unknown total, a first behind the last, a last
 * behind the total. */
bool lam_content_range(const char *text, uint64_t *first, uint64_t *last, uint64_t *total);

/* Whether the head promises bytes from … from + bytes - 1 of a file, and no others: *total is the file's length. The faults in this
 * order: LAM_E_LOGIN (401, 403), LAM_E_NOT_FOUND (404, 410), LAM_E_HTTP_LENGTH (416), LAM_E_HTTP_PAGE (a web page), LAM_E_HTTP (any
 * other status but 200 and 206), LAM_E_HTTP_ENCODING, LAM_E_HTTP_RANGE (200, several parts, another range). The end of a range may be
 * cut by the file's own: the caller compares *total. */
lam_code lam_http_check_range(const struct lam_http_answer *a, uint64_t from, uint64_t bytes, uint64_t *total, lam_error *err);
/* The same for a whole body: status 200, no encoding, no web page. */
lam_code lam_http_check_whole(const struct lam_http_answer *a, lam_error *err);

#endif
