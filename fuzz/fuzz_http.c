/* What servers say in heads: an input is the lines of an answer's head; each line is taken as a reference, a range and a challenge, too. */
#include "base/alloc.h"
#include "base/str.h"
#include "store/challenge.h"
#include "store/content_range.h"
#include "store/reference.h"

#include <stdlib.h>
#include <string.h>

static void use_challenge(const char *text)
{
    struct lam_challenge c;
    struct lam_str url = {0};
    if (lam_challenge_parse(text, &c, NULL) != LAM_OK) return;
    if (c.bearer && lam_challenge_url(&c, &url, NULL) == LAM_OK)
        for (size_t i = c.realm.len; i < url.len; i++) /* nothing of service and scope may end the URL or the line */
            if ((unsigned char)url.data[i] <= 0x20 || url.data[i] == '#') abort();
    lam_str_release(&url);
    lam_challenge_release(&c);
}

static void use_reference(const char *text)
{
    struct lam_reference r, again;
    if (lam_reference_parse(text, false, &r, NULL) != LAM_OK) return;
    if (r.kind == LAM_REFERENCE_REGISTRY) { /* as it is recorded it means the same */
        if (lam_reference_parse(r.url, false, &again, NULL) != LAM_OK || strcmp(r.url, again.url) != 0 || strcmp(r.server, again.server) != 0) abort();
        lam_reference_release(&again);
    }
    char *joined = lam_url_join(r.url, "blobs/x"), *rooted = lam_url_join(r.url, "/x");
    if (!joined || !rooted) abort();
    lam_free(joined);
    lam_free(rooted);
    lam_reference_release(&r);
}

static void use_answer(const struct lam_http_answer *a)
{
    uint64_t first, last, total;
    if (lam_http_check_range(a, 100, 50, &total, NULL) != LAM_OK) return;
    if (!lam_content_range(a->range, &first, &last, &total) || first != 100 || last > 149 || last >= total || a->status != 206) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lam_http_answer answer = {0};
    for (size_t at = 0; at < size;) {
        const uint8_t *stop = memchr(data + at, '\n', size - at);
        size_t len = stop ? (size_t)(stop - data) + 1 - at : size - at;
        lam_http_take_line(&answer, (const char *)data + at, len);
        char *line = lam_strndup((const char *)data + at, len - (stop ? 1 : 0));
        if (!line) return 0;
        use_challenge(line);
        use_reference(line);
        lam_free(line);
        at += len;
    }
    use_answer(&answer);
    use_challenge(answer.authenticate);
    return 0;
}
