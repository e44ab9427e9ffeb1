/* How a registry says that it wants to know who asks (RFC 9110, section 11.6.1, and the distribution specification's token
 * authentication), and what a token server answers. */
#ifndef LAM_STORE_CHALLENGE_H
#define LAM_STORE_CHALLENGE_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>

struct lam_challenge {
    bool bearer;                /* else Basic */
    struct lam_str realm, service, scope; /* owned; empty where missing */
};

/* A WWW-Authenticate field. LAM_E_REGISTRY for other schemes and what does not follow the grammar, LAM_E_NO_MEMORY. */
lam_code lam_challenge_parse(const char *text, struct lam_challenge *out, lam_error *err);
void lam_challenge_release(struct lam_challenge *c);

/* The URL to ask for a token: realm with service and scope as its query → *out (empty at the call). */
lam_code lam_challenge_url(const struct lam_challenge *c, struct lam_str *out, lam_error *err);

/* The token in a token server's answer, text[len] → *out (empty at the call). LAM_E_REGISTRY if there is none that can stand in a
 * header. */
lam_code lam_token_parse(const char *text, size_t len, struct lam_str *out, lam_error *err);

/* The "name:password" that a docker config.json, text[len], has for host → *out (empty if it has none). LAM_E_FORMAT. */
lam_code lam_docker_login(const char *text, size_t len, const char *host, struct lam_str *out, lam_error *err);

/* Appends bytes[len] in base64. */
bool lam_base64(const char *bytes, size_t len, struct lam_str *out);

#endif
