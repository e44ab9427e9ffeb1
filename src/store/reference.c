#include "store/reference.h"
#include "base/alloc.h"
#include "base/str.h"
#include "compose/manifest.h"

#include <string.h>

#define SEED_FILE "seed.json"
#define DEFAULT_TAG "latest"

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }
static bool ends(const char *text, const char *with)
{
    size_t a = strlen(text), b = strlen(with);
    return a >= b && strcmp(text + a - b, with) == 0;
}
static bool is_http(const char *text) { return begins(text, "http://") || begins(text, "https://"); }

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory"); }

/* "HOST/…" where HOST can be no folder's name of everyday: with a dot within it, a port, or localhost. */
static bool has_host(const char *text)
{
    size_t n = strcspn(text, "/");
    if (!text[n] || n == 0 || text[0] == '.') return false;
    return memchr(text, ':', n) || memchr(text, '.', n) || (n == 9 && begins(text, "localhost"));
}

bool lam_reference_is_remote(const char *text) { return is_http(text) || begins(text, "oci://") || has_host(text); }

char *lam_url_join(const char *base, const char *path)
{
    const char *rest = strstr(base, "://");
    const char *host = rest ? rest + 3 : base;
    size_t keep = strlen(base);
    struct lam_str s = {0};
    if (path[0] == '/') {
        keep = (size_t)(host - base) + strcspn(host, "/?#");
    } else {
        const char *query = strpbrk(host, "?#");
        size_t end = query ? (size_t)(query - base) : keep;
        while (end > (size_t)(host - base) && base[end - 1] != '/') end--;
        keep = end;
    }
    if (lam_str_append(&s, base, keep) && lam_str_puts(&s, path)) return s.data;
    lam_str_release(&s);
    return NULL;
}

static lam_code take_pin(const char *pin, const char *text, struct lam_reference *out, lam_error *err)
{
    if (!lam_is_digest(pin))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s: \"%.100s\" is no digest; \"sha256:\" and 64 hexadecimal digits in small letters are one", text, pin);
    memcpy(out->pin, pin, LAM_DIGEST_TEXT);
    return LAM_OK;
}

static bool is_visible(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= 0x20 || (unsigned char)*text >= 0x7f) return false;
    return true;
}

static lam_code parse_url(const char *text, struct lam_reference *out, lam_error *err)
{
    const char *hash = strchr(text, '#'), *host = strstr(text, "://") + 3;
    size_t len = hash ? (size_t)(hash - text) : strlen(text), n = strcspn(host, "/?#");
    if (n == 0) return LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s: no host", text);
    if (memchr(host, '@', n))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%.*s…: a user's name does not belong into a URL, which is shown and recorded; give it with --user", (int)(host - text), text);
    if (hash) LAM_TRY(take_pin(hash + 1, text, out, err));
    struct lam_str url = {0};
    if (!lam_str_append(&url, text, len) || (url.data[len - 1] == '/' && !lam_str_puts(&url, SEED_FILE)) ||
        (!host[n] && !lam_str_puts(&url, "/" SEED_FILE))) {
        lam_str_release(&url);
        return no_memory(err);
    }
    out->url = url.data;
    out->kind = ends(url.data, ".json") ? LAM_REFERENCE_SEED : LAM_REFERENCE_FILE;
    return LAM_OK;
}

/* The distribution specification's grammar of names: parts of small letters and digits, with one of . _ __ or - (any number) between
 * them. */
static bool is_repository(const char *c)
{
    for (bool first = true;; first = false) {
        if (!first && *c++ != '/') return false;
        for (;;) {
            size_t n = strspn(c, "abcdefghijklmnopqrstuvwxyz0123456789");
            if (n == 0) return false;
            c += n;
            if (*c == '.') c++;
            else if (*c == '_') c += c[1] == '_' ? 2 : 1;
            else if (*c == '-') c += strspn(c, "-");
            else break;
        }
        if (!*c) return true;
    }
}

static bool is_tag(const char *c)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t n = strlen(c);
    return n > 0 && n <= 128 && strspn(c, allowed) == n && c[0] != '.' && c[0] != '-';
}

static bool is_local(const char *host)
{
    size_t n = begins(host, "[") ? strcspn(host, "]") + 1 : strcspn(host, ":");
    return (n == 9 && begins(host, "localhost")) || (n == 9 && begins(host, "127.0.0.1")) || (n == 5 && begins(host, "[::1]"));
}

static lam_code parse_registry(const char *text, bool plain_http, struct lam_reference *out, lam_error *err)
{
    const char *host = begins(text, "oci://") ? text + 6 : text, *slash = strchr(host, '/'), *at = strchr(host, '@');
    struct lam_str url = {0}, server = {0};
    if (!slash || slash == host)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s: a registry's reference is oci://HOST/NAME[:TAG][@sha256:…]", text);
    if (at && at < slash) return LAM_RAISE(err, LAM_E_ARGUMENT, "a user's name does not belong into a reference; give it with --user");
    if (at) LAM_TRY(take_pin(at + 1, text, out, err));
    size_t end = at ? (size_t)(at - slash) : strlen(slash), name = 0;
    while (name < end && slash[name] != ':') name++;
    out->host = lam_strndup(host, (size_t)(slash - host));
    out->name = lam_strndup(slash + 1, name - 1);
    if (name < end) out->tag = lam_strndup(slash + name + 1, end - name - 1);
    else if (!at) out->tag = lam_strdup(DEFAULT_TAG);
    if (!out->host || !out->name || ((name < end || !at) && !out->tag)) return no_memory(err);
    if (!is_repository(out->name))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s: \"%.100s\" is no repository's name: small letters, digits, and . _ - / between them", text, out->name);
    if (out->tag && !is_tag(out->tag)) return LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s: \"%.130s\" is no tag", text, out->tag);
    const char *machine = strcmp(out->host, "docker.io") == 0 ? "registry-1.docker.io" : out->host; /* the one name that is no machine's */
    bool ok = lam_str_printf(&server, "%s://%s", plain_http || is_local(out->host) ? "http" : "https", machine);
    out->server = server.data;
    ok = ok && lam_str_printf(&url, "oci://%s/%s%s%s", out->host, out->name, out->tag ? ":" : "@", out->tag ? out->tag : out->pin);
    out->url = url.data;
    out->kind = LAM_REFERENCE_REGISTRY;
    return ok ? LAM_OK : no_memory(err);
}

lam_code lam_reference_parse(const char *text, bool plain_http, struct lam_reference *out, lam_error *err)
{
    *out = (struct lam_reference){.kind = LAM_REFERENCE_FILE};
    if (!is_visible(text)) return LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s: a reference is of visible ASCII characters", text);
    if (!lam_reference_is_remote(text))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%.300s: neither a URL nor a registry's reference (oci://HOST/NAME:TAG)", text);
    lam_code code = is_http(text) ? parse_url(text, out, err) : parse_registry(text, plain_http, out, err);
    if (code != LAM_OK) lam_reference_release(out);
    return code;
}

void lam_reference_release(struct lam_reference *r)
{
    lam_free(r->url);
    lam_free(r->server);
    lam_free(r->host);
    lam_free(r->name);
    lam_free(r->tag);
    *r = (struct lam_reference){.kind = LAM_REFERENCE_FILE};
}
