/* What a user writes to name something on another machine. */
#ifndef LAM_STORE_REFERENCE_H
#define LAM_STORE_REFERENCE_H

#include "base/error.h"
#include "lamina/lamina.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum lam_reference_kind {
    LAM_REFERENCE_FILE,    /* an .slm by its URL */
    LAM_REFERENCE_SEED,    /* a seed's index by its URL, which ends in .json */
    LAM_REFERENCE_REGISTRY /* of an OCI registry */
} lam_reference_kind;

struct lam_reference {
    lam_reference_kind kind;
    char *url;                 /* owned: the file's or the index's, without a fragment; of a registry "oci://HOST/NAME:TAG", as it is recorded */
    char pin[LAM_DIGEST_TEXT]; /* what was written behind '#' or '@'; "" if nothing */
    /* of a registry */
    char *server;              /* owned: "https://HOST:PORT" */
    char *host;                /* owned: "HOST:PORT" */
    char *name, *tag;          /* owned: "group/model", "latest" if none was given; tag is NULL with a pin alone */
};

/* http://… and https://…: a file, or a seed if the path ends in "/" (then seed.json is meant) or .json; a digest may follow '#'.
 * oci://HOST/NAME, or HOST/NAME where HOST has a dot or a port, or is localhost: a registry; :TAG and @sha256:… may follow. Registries
 * are spoken to by https, but by http with plain_http and on this machine itself (localhost, 127.0.0.1, [::1]). LAM_E_ARGUMENT says
 * what is wrong; a user's name in a URL is refused, since a URL is recorded and shown. */
lam_code lam_reference_parse(const char *text, bool plain_http, struct lam_reference *out, lam_error *err);
void lam_reference_release(struct lam_reference *r);

/* Whether text names something on another machine, rather than a file or a name of the store. */
bool lam_reference_is_remote(const char *text);

/* base with path behind its last '/'; "/…" replaces all of its path. Freed with lam_free; NULL when memory is lacking. */
char *lam_url_join(const char *base, const char *path);

#endif
