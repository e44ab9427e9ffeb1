#include "store/content_range.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* The value behind "name:", if the line begins so, without the blanks around it. */
static bool field(const char *line, size_t len, const char *name, char *out, size_t room)
{
    size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') return false;
    for (n++; n < len && (line[n] == ' ' || line[n] == '\t');) n++;
    while (len > n && strchr(" \t\r\n", line[len - 1])) len--;
    size_t value = len - n < room - 1 ? len - n : room - 1;
    memcpy(out, line + n, value);
    out[value] = 0;
    return true;
}

static bool number(const char **text, uint64_t *out)
{
    const char *c = *text;
    *out = 0;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (*out > (UINT64_MAX - 9) / 10) return false;
        *out = *out * 10 + (uint64_t)(*c - '0');
    }
    bool any = c != *text;
    *text = c;
    return any;
}

void lam_http_take_line(struct lam_http_answer *a, const char *line, size_t len)
{
    char text[LAM_HTTP_FIELD];
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        *a = (struct lam_http_answer){0}; /* of a redirection, or of 100 Continue: what counts comes last */
        size_t at = 0;
        while (at < len && line[at] != ' ') at++;
        for (at++; at < len && line[at] >= '0' && line[at] <= '9' && a->status < 1000;) a->status = a->status * 10 + (line[at++] - '0');
        return;
    }
    if (field(line, len, "content-length", text, sizeof text)) {
        const char *c = text;
        a->has_length = number(&c, &a->length) && !*c;
    } else if (field(line, len, "www-authenticate", text, sizeof text)) {
        if (!a->authenticate[0] || strncasecmp(text, "bearer ", 7) == 0) memcpy(a->authenticate, text, sizeof text);
    } else {
        (void)(field(line, len, "content-type", a->type, sizeof a->type) ||
               field(line, len, "content-encoding", a->encoding, sizeof a->encoding) ||
               field(line, len, "content-range", a->range, sizeof a->range) || field(line, len, "etag", a->etag, sizeof a->etag) ||
               field(line, len, "location", a->location, sizeof a->location) ||
                   field(line, len, "range", a->upload_range, sizeof a->upload_range) ||
               field(line, len, "docker-content-digest", a->digest, sizeof a->digest));
    }
}

bool lam_content_range(const char *text, uint64_t *first, uint64_t *last, uint64_t *total)
{
    if (strncasecmp(text, "bytes ", 6) != 0) return false;
    const char *c = text + 6;
    if (!number(&c, first) || *c++ != '-' || !number(&c, last) || *c++ != '/' || !number(&c, total) || *c) return false;
    return *first <= *last && *last < *total;
}

static bool is_page(const struct lam_http_answer *a)
{
    return strncasecmp(a->type, "text/html", 9) == 0 || strncasecmp(a->type, "application/xhtml", 17) == 0;
}

/* What an answer of any kind may be refused for. */
static lam_code check_answer(const struct lam_http_answer *a, lam_error *err)
{
    if (a->status == 401 || a->status == 403)
        return LAM_RAISE(err, LAM_E_LOGIN, "the server answers %ld: %s", a->status,
                         a->status == 401 ? "it wants a user's name and password" : "this user may not");
    if (a->status == 404 || a->status == 410) return LAM_RAISE(err, LAM_E_NOT_FOUND, "the server has no such file (%ld)", a->status);
    if (a->status == 416) return LAM_RAISE(err, LAM_E_HTTP_LENGTH, "the server's file ends before the bytes that were asked for (416)");
    if ((a->status == 200 || a->status == 206) && is_page(a))
        return LAM_RAISE(err, LAM_E_HTTP_PAGE, "the server sends a web page (%s), not the file", a->type);
    if (a->status != 200 && a->status != 206) return LAM_RAISE(err, LAM_E_HTTP, "the server answers %ld", a->status);
    if (a->encoding[0] && strcasecmp(a->encoding, "identity") != 0)
        return LAM_RAISE(err, LAM_E_HTTP_ENCODING, "the server encodes the file as %s on its way", a->encoding);
    return LAM_OK;
}

lam_code lam_http_check_range(const struct lam_http_answer *a, uint64_t from, uint64_t bytes, uint64_t *total, lam_error *err)
{
    uint64_t first, last;
    LAM_TRY(check_answer(a, err));
    if (a->status != 206) return LAM_RAISE(err, LAM_E_HTTP_RANGE, "the server sends whole files only (200), and ranges are needed");
    if (!lam_content_range(a->range, &first, &last, total))
        return LAM_RAISE(err, LAM_E_HTTP_RANGE, "the server's answer has the range \"%s\" (%s)", a->range, a->type);
    uint64_t wanted = from + bytes - 1 < *total ? from + bytes - 1 : *total - 1;
    if (first != from || last != wanted)
        return LAM_RAISE(err, LAM_E_HTTP_RANGE, "bytes %" PRIu64 "-%" PRIu64 " were asked for, the server sends %s", from,
                         from + bytes - 1, a->range);
    if (a->has_length && a->length != last - first + 1)
        return LAM_RAISE(err, LAM_E_HTTP_LENGTH, "the server announces %" PRIu64 " bytes for the range %s", a->length, a->range);
    return LAM_OK;
}

lam_code lam_http_check_whole(const struct lam_http_answer *a, lam_error *err)
{
    LAM_TRY(check_answer(a, err));
    return a->status == 200 ? LAM_OK : LAM_RAISE(err, LAM_E_HTTP_RANGE, "the server sends a part of the file, which was not asked for");
}
