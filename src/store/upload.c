/* Putting things into a registry (distribution-spec 1.1, "Push"): POST opens an upload, PATCH sends bytes to it, GET tells how many it
 * has after a connection broke, PUT closes it with the digest. */
#include "base/alloc.h"
#include "base/files.h"
#include "base/os.h"
#include "store/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ANSWER ((size_t)64 << 10) /* bytes of an explanation */
#define MOST_FAILURES 6                /* in a row without a byte */
#define MOST_BREAKS 200                /* in all: some registries forget an upload that broke, and all of it goes out again */
#define CHUNK ((size_t)64 << 20)       /* bytes of one PATCH */
#define WAIT 0.1                       /* seconds after a failure */

struct upload {
    struct lam_remote *r;
    const char *digest;
    const uint8_t *bytes;
    size_t size, at;       /* at: bytes that the registry has */
    char *url;             /* owned: where the next bytes go */
    uint64_t sent;
    unsigned n_failures, n_breaks;
    uint8_t answer[MOST_ANSWER];
    bool (*tell)(void *context, uint64_t done);
    void *context;
    const struct lam_http_request *current;
};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "upload: out of memory"); }

static lam_code refused(const struct lam_http_request *q, const char *what, lam_error *err)
{
    lam_code code = q->answer.status >= 500 || q->answer.status == 429 ? LAM_E_HTTP : LAM_E_REGISTRY;
    return LAM_RAISE(err, code, "%.200s: the registry answers %ld to %s: %.*s", q->url, q->answer.status, what,
                     (int)(q->got < 150 ? q->got : 150), (const char *)q->buffer);
}

static lam_code ask(struct upload *u, struct lam_http_request *q, lam_error *err)
{
    q->buffer = u->answer;
    q->room = sizeof u->answer;
    lam_code code = lam_remote_do(u->r, q, err);
    u->sent += q->sent;
    return code;
}

/* The next place for bytes, as an answer says. */
static lam_code follow(struct upload *u, const struct lam_http_request *q, lam_error *err)
{
    if (!q->answer.location[0]) return LAM_RAISE(err, LAM_E_REGISTRY, "%.300s: the registry does not say where bytes go", q->url);
    bool whole = strncmp(q->answer.location, "http://", 7) == 0 || strncmp(q->answer.location, "https://", 8) == 0;
    if (strncmp(u->r->server, "https://", 8) == 0 && strncmp(q->answer.location, "http://", 7) == 0)
        return LAM_RAISE(err, LAM_E_REGISTRY, "the registry wants bytes sent without TLS, to %.300s", q->answer.location);
    char *url = whole ? lam_strdup(q->answer.location) : lam_url_join(u->r->server, q->answer.location);
    if (!url) return no_memory(err);
    lam_free(u->url);
    u->url = url;
    return LAM_OK;
}

static lam_code has_blob(struct upload *u, bool *has, lam_error *err)
{
    char *url = lam_remote_blob_url(u->r, u->digest);
    struct lam_http_request q = {.method = "HEAD", .url = url};
    lam_code code = url ? ask(u, &q, err) : no_memory(err);
    if (code == LAM_OK && q.answer.status != 200 && q.answer.status != 404) code = refused(&q, "the question for a blob", err);
    if (code == LAM_OK) *has = q.answer.status == 200;
    if (code == LAM_OK && *has && q.answer.has_length && q.answer.length != u->size)
        code = LAM_RAISE(err, LAM_E_REGISTRY, "%.300s: the registry has %" PRIu64 " bytes of it, it has %zu", url, q.answer.length,
                         u->size);
    lam_free(url);
    return code;
}

static lam_code open_upload(struct upload *u, lam_error *err)
{
    struct lam_str url = {0};
    u->at = 0;
    if (!lam_str_printf(&url, "%s/v2/%s/blobs/uploads/", u->r->server, u->r->repository)) return no_memory(err);
    struct lam_http_request q = {.method = "POST", .url = url.data};
    lam_code code = ask(u, &q, err);
    if (code == LAM_OK && q.answer.status != 202) code = refused(&q, "a new upload", err);
    if (code == LAM_OK) code = follow(u, &q, err);
    lam_str_release(&url);
    return code;
}

/* "0-LAST". "0-0" is what some registries say of an upload without a byte: it is taken so, and costs a byte at most. */
static bool take_offset(struct upload *u, const struct lam_http_request *q)
{
    const char *c = q->answer.upload_range;
    char *end;
    if (strncmp(c, "bytes=", 6) == 0) c += 6;
    if (strncmp(c, "0-", 2) != 0 || c[2] < '0' || c[2] > '9') return false;
    unsigned long long last = strtoull(c + 2, &end, 10);
    if (*end || last >= u->size) return false;
    u->at = last ? (size_t)last + 1 : 0;
    return true;
}

static lam_code send_chunk(struct upload *u, lam_error *err)
{
    char range[96];
    size_t n = u->size - u->at < CHUNK ? u->size - u->at : CHUNK;
    snprintf(range, sizeof range, "Content-Range: %zu-%zu", u->at, u->at + n - 1);
    struct lam_http_request q = {.method = "PATCH", .url = u->url, .headers = {"Content-Type: application/octet-stream", range},
                                 .body = u->bytes + u->at, .body_bytes = n};
    u->current = &q;
    lam_code code = ask(u, &q, err);
    u->current = NULL;
    if (code != LAM_OK) return code;
    if (q.answer.status == 416)
        return LAM_RAISE(err, LAM_E_HTTP_RANGE, "%.200s: the registry does not go on at byte %zu", u->url, u->at);
    if (q.answer.status != 202) return refused(&q, "bytes", err);
    LAM_TRY(follow(u, &q, err));
    u->at += n;
    u->n_failures = 0;
    return LAM_OK;
}

/* Asks how far the upload came; one that the registry does not know any more begins anew. */
static lam_code find_offset(struct upload *u, lam_error *err)
{
    struct lam_http_request q = {.url = u->url};
    LAM_TRY(ask(u, &q, err));
    if (q.answer.status == 204 && take_offset(u, &q)) {
        return q.answer.location[0] ? follow(u, &q, err) : LAM_OK;
    }
    return open_upload(u, err);
}

static lam_code close_upload(struct upload *u, lam_error *err)
{
    struct lam_str url = {0};
    if (!lam_str_printf(&url, "%s%cdigest=%s", u->url, strchr(u->url, '?') ? '&' : '?', u->digest)) return no_memory(err);
    struct lam_http_request q = {.method = "PUT", .url = url.data, .headers = {"Content-Type: application/octet-stream"},
                                 .body = u->bytes};
    lam_code code = ask(u, &q, err);
    if (code == LAM_OK && q.answer.status != 201) code = refused(&q, "the end of an upload", err);
    if (code == LAM_OK && q.answer.digest[0] && strcmp(q.answer.digest, u->digest) != 0)
        code = LAM_RAISE(err, LAM_E_DIGEST, "the registry has %.80s where %s was sent", q.answer.digest, u->digest);
    lam_str_release(&url);
    return code;
}

static bool tick(void *context)
{
    struct upload *u = context;
    return !u->tell || u->tell(u->context, u->at + (u->current ? u->current->sent : 0));
}

/* The next step to the end. *done: the blob is there. */
static lam_code step(struct upload *u, bool *done, lam_error *err)
{
    bool has;
    if (!u->url) {
        LAM_TRY(has_blob(u, &has, err));
        *done = has;
        return has ? LAM_OK : open_upload(u, err);
    }
    if (u->at < u->size) return send_chunk(u, err);
    LAM_TRY(close_upload(u, err));
    *done = true;
    return LAM_OK;
}

/* A range that is refused is asked for anew: bytes of a connection that broke may still have been on their way. */
static bool may_pass(lam_code code) { return code == LAM_E_NETWORK || code == LAM_E_HTTP || code == LAM_E_HTTP_RANGE; }

/* Goes on after a break, where the registry says that it was. */
static lam_code take_up(struct upload *u, bool *done, lam_error *err)
{
    if (!u->url) return LAM_OK;
    if (u->at == u->size) LAM_TRY(has_blob(u, done, err)); /* the answer to the end of the upload may be what was lost */
    return *done ? LAM_OK : find_offset(u, err);
}

static lam_code send_all(struct upload *u, bool *skipped, lam_error *err)
{
    bool done = false;
    *skipped = true;
    while (!done) {
        uint64_t sent = u->sent;
        lam_code code = step(u, &done, err);
        if (u->url) *skipped = false;
        if (code != LAM_OK && u->sent > sent) u->n_failures = 0;
        while (code != LAM_OK && may_pass(code)) {
            if (++u->n_failures >= MOST_FAILURES || ++u->n_breaks >= MOST_BREAKS) break;
            if (!tick(u)) return LAM_RAISE(err, LAM_E_CANCELLED, "stopped");
            lam_sleep(WAIT * u->n_failures);
            code = take_up(u, &done, err);
        }
        if (code != LAM_OK) return code;
    }
    return LAM_OK;
}

lam_code lam_remote_upload(struct lam_remote *r, const char *digest, const uint8_t *bytes, size_t size, bool *skipped, uint64_t *sent,
                           bool (*tell)(void *context, uint64_t done), void *context, lam_error *err)
{
    struct upload *u = lam_alloc(1, sizeof *u);
    if (!u) return no_memory(err);
    *u = (struct upload){.r = r, .digest = digest, .bytes = bytes, .size = size, .tell = tell, .context = context};
    r->tick = tick;
    r->tick_context = u;
    lam_code code = send_all(u, skipped, err);
    r->tick = NULL;
    *sent = u->sent;
    lam_free(u->url);
    lam_free(u);
    return code;
}

lam_code lam_remote_put_manifest(struct lam_remote *r, const char *reference, const char *text, size_t len, const char *digest,
                                 lam_error *err)
{
    struct lam_str url = {0};
    uint8_t answer[4096];
    lam_code code = lam_str_printf(&url, "%s/v2/%s/manifests/%s", r->server, r->repository, reference) ? LAM_OK : no_memory(err);
    struct lam_http_request q = {.method = "PUT", .url = url.data, .headers = {"Content-Type: " LAM_TYPE_MANIFEST},
                                 .body = (const uint8_t *)text,
                                 .body_bytes = len, .buffer = answer, .room = sizeof answer};
    for (unsigned i = 0; code == LAM_OK; i++) {
        code = lam_remote_do(r, &q, err);
        if (!may_pass(code) || i + 1 == MOST_FAILURES) break;
        lam_sleep(WAIT * (i + 1));
        code = LAM_OK;
    }
    if (code == LAM_OK && q.answer.status != 201) code = refused(&q, "the manifest", err);
    if (code == LAM_OK && q.answer.digest[0] && strcmp(q.answer.digest, digest) != 0)
        code = LAM_RAISE(err, LAM_E_DIGEST, "%.300s: the registry has %.80s where %s was sent", url.data, q.answer.digest, digest);
    lam_str_release(&url);
    return code;
}
