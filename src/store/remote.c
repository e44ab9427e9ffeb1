#include "store/remote.h"
#include "base/alloc.h"
#include "base/os.h"
#include "base/sha256.h"
#include "store/challenge.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ANSWER ((size_t)1 << 20) /* bytes of a token server's answer, of an error's explanation */
#define DOCKER_HUB "docker.io"
#define DOCKER_HUB_LOGIN "https://index.docker.io/v1/"

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory"); }

/* ---- login ---- */

static char *docker_config(void)
{
    const char *folder = getenv("DOCKER_CONFIG"), *home = getenv("HOME");
    if (folder && *folder) return lam_path_join(folder, "config.json");
    return home && *home ? lam_path_join(home, ".docker/config.json") : NULL;
}

lam_code lam_remote_login(struct lam_remote *r, const char *user, lam_error *err)
{
    if (user) {
        if (!strchr(user, ':')) return LAM_RAISE(err, LAM_E_ARGUMENT, "a login is NAME:PASSWORD");
        return lam_str_puts(&r->user, user) ? LAM_OK : no_memory(err);
    }
    char *path = r->server ? docker_config() : NULL;
    struct lam_mapping file;
    lam_code code = LAM_OK;
    if (path && lam_path_exists(path)) {
        code = lam_map_file(path, &file, err);
        if (code == LAM_OK) {
            const char *key = strcmp(r->host, DOCKER_HUB) == 0 ? DOCKER_HUB_LOGIN : r->host;
            code = lam_docker_login(file.data ? (const char *)file.data : "", file.size, key, &r->user, err);
            lam_unmap_file(&file);
        }
    }
    lam_free(path);
    return code;
}

void lam_remote_release(struct lam_remote *r)
{
    lam_str_release(&r->user);
    lam_str_release(&r->authorization);
}

static lam_code use_basic(struct lam_remote *r, lam_error *err)
{
    if (!r->user.len)
        return LAM_RAISE(err, LAM_E_LOGIN, "%s wants a login: --user NAME:PASSWORD, or docker login", r->server ? r->host : r->index);
    bool ok = lam_str_puts(&r->authorization, "Authorization: Basic ") && lam_base64(r->user.data, r->user.len, &r->authorization);
    return ok ? LAM_OK : no_memory(err);
}

static lam_code fetch_token(struct lam_remote *r, const struct lam_challenge *c, lam_error *err)
{
    struct lam_str url = {0}, token = {0};
    uint8_t *answer = lam_alloc(MOST_ANSWER, 1);
    lam_code code = answer ? lam_challenge_url(c, &url, err) : no_memory(err);
    if (code == LAM_OK && strncmp(url.data, "https://", 8) != 0 && strncmp(r->server, "http://", 7) != 0)
        code = LAM_RAISE(err, LAM_E_REGISTRY, "%s sends logins to %.200s, which is not https", r->server, url.data);
    struct lam_http_request q = {.url = url.data, .user = r->user.len ? r->user.data : NULL, .buffer = answer, .room = MOST_ANSWER};
    if (code == LAM_OK) code = lam_http_do(r->http, &q, r->tick, r->tick_context, err);
    if (code == LAM_OK && q.answer.status != 200)
        code = LAM_RAISE(err, LAM_E_LOGIN, "%.200s: the token server answers %ld%s", url.data, q.answer.status,
                         r->user.len ? "" : "; nobody is logged in (--user, or docker login)");
    if (code == LAM_OK) code = lam_token_parse((const char *)answer, q.got, &token, err);
    if (code == LAM_OK && !lam_str_printf(&r->authorization, "Authorization: Bearer %s", token.data)) code = no_memory(err);
    lam_str_release(&token);
    lam_str_release(&url);
    lam_free(answer);
    return code;
}

/* Follows a challenge. A challenge without a scope gets that of the repository. */
static lam_code log_in(struct lam_remote *r, const struct lam_http_answer *answer, lam_error *err)
{
    struct lam_challenge c = {0};
    if (!r->server || !answer->authenticate[0]) return LAM_RAISE(err, LAM_E_LOGIN, "the server answers %ld", answer->status);
    LAM_TRY(lam_challenge_parse(answer->authenticate, &c, err));
    lam_str_release(&r->authorization);
    bool ok = !c.bearer || c.scope.len || lam_str_printf(&c.scope, "repository:%s:pull%s", r->repository, r->push ? ",push" : "");
    lam_code code = !ok ? no_memory(err) : c.bearer ? fetch_token(r, &c, err) : use_basic(r, err);
    lam_challenge_release(&c);
    return code;
}

lam_code lam_remote_renew(void *context, struct lam_source *source, const struct lam_http_answer *answer, lam_error *err)
{
    struct lam_remote *r = context;
    LAM_TRY(log_in(r, answer, err));
    source->authorization = r->authorization.data;
    return LAM_OK;
}

/* Whether the login is for this URL: an upload may be sent elsewhere. */
static bool is_own(const struct lam_remote *r, const char *url)
{
    size_t n = r->server ? strlen(r->server) : 0;
    return n && strncmp(url, r->server, n) == 0 && url[n] == '/';
}

lam_code lam_remote_do(struct lam_remote *r, struct lam_http_request *q, lam_error *err)
{
    size_t free_place = 0;
    bool own = is_own(r, q->url);
    while (q->headers[free_place]) free_place++;
    if (!r->server && r->user.len) q->user = r->user.data;
    for (int attempt = 0;; attempt++) {
        q->headers[free_place] = own && r->authorization.len ? r->authorization.data : NULL;
        q->got = 0;
        LAM_TRY(lam_http_do(r->http, q, r->tick, r->tick_context, err));
        if (q->answer.status != 401) break;
        if (attempt || !own)
            return LAM_RAISE(err, LAM_E_LOGIN, "%.300s: the server %s", q->url,
                             r->user.len ? "does not take the login" : "wants a login: --user NAME:PASSWORD");
        LAM_TRY(log_in(r, &q->answer, err));
    }
    if (q->answer.status == 403) return LAM_RAISE(err, LAM_E_LOGIN, "%.300s: this user may not (403)", q->url);
    return LAM_OK;
}

/* ---- reading ---- */

char *lam_remote_blob_url(const struct lam_remote *r, const char *digest)
{
    struct lam_str s = {0};
    bool ok = r->server ? lam_str_printf(&s, "%s/v2/%s/blobs/%s", r->server, r->repository, digest)
                        : lam_str_printf(&s, LAM_STORE_BLOBS "/%s", digest + strlen("sha256:"));
    char *url = NULL;
    if (ok && !r->server) url = lam_url_join(r->index, s.data);
    else if (ok) return s.data;
    lam_str_release(&s);
    return url;
}

static lam_code get_into(struct lam_remote *r, const char *url, const char *accept, uint8_t *buffer, struct lam_str *out,
                         struct lam_http_answer *answer, lam_error *err)
{
    lam_error why;
    struct lam_http_request q = {.url = url, .headers = {accept}, .buffer = buffer, .room = (size_t)LAM_STORE_SMALL_MAX};
    LAM_TRY(lam_remote_do(r, &q, err));
    if (lam_http_check_whole(&q.answer, &why) != LAM_OK) return LAM_RAISE(err, why.code, "%.200s: %.300s", url, why.message);
    *answer = q.answer;
    return lam_str_append(out, buffer, q.got) ? LAM_OK : no_memory(err);
}

static lam_code get(struct lam_remote *r, const char *url, const char *accept, struct lam_str *out, struct lam_http_answer *answer,
                    lam_error *err)
{
    uint8_t *buffer = lam_alloc((size_t)LAM_STORE_SMALL_MAX, 1);
    if (!buffer) return no_memory(err);
    lam_code code = get_into(r, url, accept, buffer, out, answer, err);
    lam_free(buffer);
    return code;
}

lam_code lam_remote_get(struct lam_remote *r, const char *url, const char *accept, struct lam_str *out, lam_error *err)
{
    struct lam_http_answer answer;
    return get(r, url, accept, out, &answer, err);
}

static void digest_of(const struct lam_str *text, char digest[LAM_DIGEST_TEXT])
{
    uint8_t hash[LAM_SHA256_BYTES];
    lam_sha256(text->data ? text->data : "", text->len, hash);
    lam_digest_text(hash, digest);
}

lam_code lam_remote_blob(struct lam_remote *r, const char *digest, uint64_t size, struct lam_str *out, lam_error *err)
{
    char found[LAM_DIGEST_TEXT], *url = lam_remote_blob_url(r, digest);
    lam_code code = url ? lam_remote_get(r, url, NULL, out, err) : no_memory(err);
    if (code == LAM_OK && size != UINT64_MAX && out->len != size)
        code = LAM_RAISE(err, LAM_E_HTTP_LENGTH, "%.300s: %zu bytes, its descriptor says %" PRIu64, url, out->len, size);
    if (code == LAM_OK) {
        digest_of(out, found);
        if (strcmp(found, digest) != 0) code = LAM_RAISE(err, LAM_E_DIGEST, "%.300s: the bytes hash to %s", url, found);
    }
    lam_free(url);
    return code;
}

lam_code lam_remote_manifest(struct lam_remote *r, const char *reference, struct lam_str *out, char digest[LAM_DIGEST_TEXT],
                             lam_error *err)
{
    struct lam_http_answer answer;
    struct lam_str url = {0};
    lam_code code = lam_str_printf(&url, "%s/v2/%s/manifests/%s", r->server, r->repository, reference) ? LAM_OK : no_memory(err);
    if (code == LAM_OK) code = get(r, url.data, "Accept: " LAM_TYPE_MANIFEST, out, &answer, err);
    if (code == LAM_OK) {
        digest_of(out, digest);
        const char *stated = strncmp(reference, "sha256:", 7) == 0 ? reference : answer.digest;
        if (*stated && strcmp(stated, digest) != 0)
            code = LAM_RAISE(err, LAM_E_DIGEST, "%.300s: the manifest hashes to %s, it must be %.80s", url.data, digest, stated);
    }
    lam_str_release(&url);
    return code;
}
