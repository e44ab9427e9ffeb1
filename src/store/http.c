/* By libcurl's multi interface. */
#include "base/alloc.h"
#include "base/str.h"
#include "store/curl.h"
#include "store/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_SECONDS 20L
#define SILENT_SECONDS 30L /* without a byte: the connection counts as broken */
#define MOST_REDIRECTIONS 10L
#define TOO_LARGE 100 /* CURLE_TOO_LARGE, since 8.6: a line longer than libcurl takes; before it was CURLE_OUT_OF_MEMORY */

struct lam_http {
    struct lam_curl curl;
    CURLM *multi;
    char *cacert; /* owned; NULL: libcurl's own */
    uint64_t limit_rate;
    struct lam_http_request *aside; /* done while one request alone was waited for */
};

struct lam_http_transfer {
    const struct lam_curl *curl;
    CURL *easy;
    struct curl_slist *headers;
    struct lam_http_request *request;
    char problem[CURL_ERROR_SIZE];
    bool looked; /* at the head of this answer */
};

static char *chosen_cacert(const struct lam_http_options *o)
{
    const char *names[] = {o ? o->cacert : NULL, getenv("CURL_CA_BUNDLE"), getenv("SSL_CERT_FILE")};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i] && *names[i]) return lam_strdup(names[i]);
    return NULL;
}

lam_code lam_http_new(const struct lam_http_options *options, struct lam_http **out, lam_error *err)
{
    *out = NULL;
    struct lam_curl curl;
    LAM_TRY(lam_curl_load(&curl, err));
    struct lam_http *h = lam_alloc(1, sizeof *h);
    if (h)
        *h = (struct lam_http){.curl = curl, .multi = curl.multi_init(), .cacert = chosen_cacert(options),
                               .limit_rate = options ? options->limit_rate : 0};
    if (h && h->multi) {
        *out = h;
        return LAM_OK;
    }
    lam_http_free(h);
    return LAM_RAISE(err, LAM_E_NO_MEMORY, "HTTP");
}

void lam_http_free(struct lam_http *h)
{
    if (!h) return;
    if (h->multi) h->curl.multi_cleanup(h->multi);
    lam_free(h->cacert);
    lam_free(h);
}

static size_t take_header(char *line, size_t size, size_t n, void *context)
{
    struct lam_http_transfer *t = context;
    if (n * size >= 5 && memcmp(line, "HTTP/", 5) == 0) t->looked = false;
    lam_http_take_line(&t->request->answer, line, size * n);
    return size * n;
}

/* Whether the body of this answer is what was asked for, before a byte of it is taken. */
static lam_code check_head(struct lam_http_request *r)
{
    uint64_t total = 0;
    if (!r->bytes) return LAM_OK;
    LAM_TRY(lam_http_check_range(&r->answer, r->from, r->bytes, &total, &r->why));
    if (r->etag && strcmp(r->etag, r->answer.etag) != 0)
        return LAM_RAISE(&r->why, LAM_E_HTTP_CHANGED, "the file changed on the server: its tag was %.100s, it is %.100s", r->etag,
                         r->answer.etag);
    if (r->total && r->total != total)
        return LAM_RAISE(&r->why, LAM_E_HTTP_LENGTH, "the server's file has %" PRIu64 " bytes, it must have %" PRIu64, total, r->total);
    r->total = total;
    return LAM_OK;
}

static size_t take_body(char *bytes, size_t size, size_t n, void *context)
{
    struct lam_http_transfer *t = context;
    struct lam_http_request *r = t->request;
    size_t len = size * n;
    if (!t->looked) {
        t->looked = true;
        r->code = check_head(r);
    }
    if (r->code == LAM_OK && len > r->room - r->got)
        r->code = LAM_RAISE(&r->why, LAM_E_HTTP_LENGTH, "the server sends more than the %zu bytes that may come", r->room);
    if (r->code != LAM_OK) return 0;
    memcpy(r->buffer + r->got, bytes, len);
    r->got += len;
    return len;
}

static size_t give_body(char *bytes, size_t size, size_t n, void *context)
{
    struct lam_http_request *r = ((struct lam_http_transfer *)context)->request;
    size_t len = size * n < r->body_bytes - r->sent ? size * n : r->body_bytes - r->sent;
    memcpy(bytes, r->body + r->sent, len);
    r->sent += len;
    return len;
}

/* libcurl asks for a body again from its start when a connection that was kept turns out to be dead. */
static int rewind_body(void *context, curl_off_t offset, int origin)
{
    struct lam_http_request *r = ((struct lam_http_transfer *)context)->request;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > r->body_bytes) return CURL_SEEKFUNC_CANTSEEK;
    r->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static bool add_header(struct lam_http_transfer *t, const char *line)
{
    struct curl_slist *longer = t->curl->slist_append(t->headers, line);
    if (longer) t->headers = longer;
    return longer != NULL;
}

static bool set_headers(struct lam_http_transfer *t)
{
    const struct lam_http_request *r = t->request;
    bool ok = add_header(t, "Expect:"); /* no waiting for 100 Continue */
    for (size_t i = 0; ok && i < LAM_HTTP_HEADERS && r->headers[i]; i++) ok = add_header(t, r->headers[i]);
    if (ok && r->bytes) {
        char range[64];
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, r->from, r->from + r->bytes - 1);
        ok = t->curl->easy_setopt(t->easy, CURLOPT_RANGE, range) == CURLE_OK;
    }
    return ok && t->curl->easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers) == CURLE_OK;
}

static bool set_method(struct lam_http_transfer *t)
{
    const struct lam_http_request *r = t->request;
    const char *method = r->method ? r->method : "GET";
    CURL *e = t->easy;
    bool ok = true;
    if (strcmp(method, "HEAD") == 0) return t->curl->easy_setopt(e, CURLOPT_NOBODY, 1L) == CURLE_OK;
    if (r->body) {
        ok = t->curl->easy_setopt(e, CURLOPT_UPLOAD, 1L) == CURLE_OK && t->curl->easy_setopt(e, CURLOPT_READFUNCTION, give_body) == CURLE_OK &&
             t->curl->easy_setopt(e, CURLOPT_READDATA, t) == CURLE_OK &&
             t->curl->easy_setopt(e, CURLOPT_SEEKFUNCTION, rewind_body) == CURLE_OK &&
             t->curl->easy_setopt(e, CURLOPT_SEEKDATA, t) == CURLE_OK &&
             t->curl->easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_bytes) == CURLE_OK;
    } else if (strcmp(method, "POST") == 0) {
        ok = t->curl->easy_setopt(e, CURLOPT_POSTFIELDSIZE, 0L) == CURLE_OK && t->curl->easy_setopt(e, CURLOPT_COPYPOSTFIELDS, "") == CURLE_OK;
    }
    return ok && (strcmp(method, "GET") == 0 || t->curl->easy_setopt(e, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK);
}

static bool set_options(const struct lam_http *h, struct lam_http_transfer *t)
{
    const struct lam_http_request *r = t->request;
    CURL *e = t->easy;
    bool secure = strncmp(r->url, "https://", 8) == 0;
#define SET(option, value) (t->curl->easy_setopt(e, option, value) == CURLE_OK)
    bool ok = SET(CURLOPT_URL, r->url) && SET(CURLOPT_ERRORBUFFER, t->problem) && SET(CURLOPT_PRIVATE, t) &&
              SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_PROTOCOLS_STR, "http,https") &&
              SET(CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https") && SET(CURLOPT_FOLLOWLOCATION, r->body ? 0L : 1L) &&
              SET(CURLOPT_MAXREDIRS, MOST_REDIRECTIONS) && SET(CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS) &&
              SET(CURLOPT_LOW_SPEED_LIMIT, 1L) && SET(CURLOPT_LOW_SPEED_TIME, SILENT_SECONDS) &&
              SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) && SET(CURLOPT_USERAGENT, "lamina/" LAM_VERSION) &&
              SET(CURLOPT_HEADERFUNCTION, take_header) && SET(CURLOPT_HEADERDATA, t) && SET(CURLOPT_WRITEFUNCTION, take_body) &&
              SET(CURLOPT_WRITEDATA, t);
    if (ok && h->cacert) ok = SET(CURLOPT_CAINFO, h->cacert);
    if (ok && h->limit_rate)
        ok = SET(CURLOPT_MAX_RECV_SPEED_LARGE, (curl_off_t)h->limit_rate) &&
            SET(CURLOPT_MAX_SEND_SPEED_LARGE, (curl_off_t)h->limit_rate);
    if (ok && r->user) ok = SET(CURLOPT_USERPWD, r->user) && SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
#undef SET
    return ok && set_method(t) && set_headers(t);
}

static void transfer_free(struct lam_http_transfer *t)
{
    if (t->easy) t->curl->easy_cleanup(t->easy);
    t->curl->slist_free_all(t->headers);
    lam_free(t);
}

lam_code lam_http_start(struct lam_http *h, struct lam_http_request *r, lam_error *err)
{
    struct lam_http_transfer *t = lam_alloc(1, sizeof *t);
    if (!t) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", r->url);
    t->curl = &h->curl;
    t->easy = h->curl.easy_init();
    t->request = r;
    r->code = LAM_OK;
    r->sent = 0;
    r->answer = (struct lam_http_answer){0};
    if (t->easy && set_options(h, t) && h->curl.multi_add_handle(h->multi, t->easy) == CURLM_OK) {
        r->transfer = t;
        return LAM_OK;
    }
    transfer_free(t);
    return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: the request cannot be made", r->url);
}

static bool is_tls(CURLcode c)
{
    return c == CURLE_SSL_CONNECT_ERROR || c == CURLE_PEER_FAILED_VERIFICATION || c == CURLE_SSL_CERTPROBLEM ||
        c == CURLE_SSL_CACERT_BADFILE ||
           c == CURLE_SSL_CIPHER || c == CURLE_USE_SSL_FAILED || c == CURLE_SSL_ISSUER_ERROR || c == CURLE_SSL_INVALIDCERTSTATUS;
}

static void conclude(struct lam_http_transfer *t, CURLcode result)
{
    struct lam_http_request *r = t->request;
    if (r->code == LAM_OK && !t->looked && r->answer.status) r->code = check_head(r); /* an answer without a body */
    if (r->code != LAM_OK || result == CURLE_OK) return;
    if ((result == CURLE_OUT_OF_MEMORY || (int)result == TOO_LARGE) && r->answer.status && !t->looked) {
        r->code = LAM_RAISE(&r->why, LAM_E_HTTP, "the head of the server's answer (%ld) has a line that is too long", r->answer.status);
        return;
    }
    lam_code code = is_tls(result) ? LAM_E_TLS : result == CURLE_OUT_OF_MEMORY ? LAM_E_NO_MEMORY
                  : result == CURLE_URL_MALFORMAT || result == CURLE_UNSUPPORTED_PROTOCOL ? LAM_E_ARGUMENT : LAM_E_NETWORK;
    r->code = LAM_RAISE(&r->why, code, "%.300s", t->problem[0] ? t->problem : t->curl->easy_strerror(result));
}

static struct lam_http_request *take_aside(struct lam_http *h)
{
    struct lam_http_request *r = h->aside;
    if (r) h->aside = r->next;
    return r;
}

static struct lam_http_request *next_done(struct lam_http *h)
{
    int left;
    for (CURLMsg *m; (m = h->curl.multi_info_read(h->multi, &left)) != NULL;) {
        struct lam_http_transfer *t;
        CURLcode result = m->data.result;
        if (m->msg != CURLMSG_DONE || h->curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t) != CURLE_OK) continue;
        struct lam_http_request *r = t->request;
        conclude(t, result);
        h->curl.multi_remove_handle(h->multi, t->easy);
        transfer_free(t);
        r->transfer = NULL;
        return r;
    }
    return NULL;
}

/* As lam_http_wait, without those that were set aside. */
static struct lam_http_request *wait_for_done(struct lam_http *h, double seconds)
{
    int running;
    struct lam_http_request *r = next_done(h);
    if (r) return r;
    h->curl.multi_perform(h->multi, &running);
    r = next_done(h);
    if (r) return r;
    h->curl.multi_poll(h->multi, NULL, 0, (int)(seconds * 1e3), NULL);
    h->curl.multi_perform(h->multi, &running);
    return next_done(h);
}

struct lam_http_request *lam_http_wait(struct lam_http *h, double seconds)
{
    struct lam_http_request *r = take_aside(h);
    return r ? r : wait_for_done(h, seconds);
}

void lam_http_stop(struct lam_http *h, struct lam_http_request *r)
{
    for (struct lam_http_request **at = &h->aside; *at; at = &(*at)->next) {
        if (*at != r) continue;
        *at = r->next;
        break;
    }
    if (!r->transfer) return;
    h->curl.multi_remove_handle(h->multi, r->transfer->easy);
    transfer_free(r->transfer);
    r->transfer = NULL;
}

lam_code lam_http_do(struct lam_http *h, struct lam_http_request *r, lam_http_tick_fn tick, void *context, lam_error *err)
{
    LAM_TRY(lam_http_start(h, r, err));
    for (struct lam_http_request *done; (done = wait_for_done(h, 0.1)) != r;) {
        if (done) {
            done->next = h->aside;
            h->aside = done;
        }
        if (!tick || tick(context)) continue;
        lam_http_stop(h, r);
        return LAM_RAISE(err, LAM_E_CANCELLED, "%.400s: stopped", r->url);
    }
    return r->code == LAM_OK ? LAM_OK : LAM_RAISE(err, r->code, "%.200s: %.300s", r->url, r->why.message);
}
