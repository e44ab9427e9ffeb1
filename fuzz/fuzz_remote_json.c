/* JSON from other machines: seeds' indexes, OCI manifests, tokens; and docker's logins. What a seed names lies below it. */
#include "base/str.h"
#include "store/artifact.h"
#include "store/challenge.h"
#include "store/seed.h"

#include <stdlib.h>
#include <string.h>

static void use_seed(const char *text, size_t size)
{
    struct lam_seed s;
    const char *digest;
    uint64_t bytes;
    if (lam_seed_parse(text, size, NULL, &s, NULL) != LAM_OK) return;
    if (lam_seed_find(&s, s.first, &digest, &bytes, NULL) != LAM_OK || strlen(digest) != 71) abort();
    if (s.seal.name) abort(); /* nobody is trusted here */
    lam_seed_release(&s);
}

static void use_manifest(const char *text, size_t size)
{
    struct lam_artifact a;
    if (lam_artifact_parse(text, size, LAM_EMPTY_DIGEST, &a, NULL) != LAM_OK) return;
    for (size_t i = 0; i < a.n_layers; i++)
        if (strlen(a.layers[i].digest) != 71 || strchr(a.layers[i].digest, '/')) abort();
    lam_artifact_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct lam_str token = {0}, login = {0};
    use_seed(text, size);
    use_manifest(text, size);
    if (lam_token_parse(text, size, &token, NULL) == LAM_OK && strpbrk(token.data, " \r\n")) abort();
    if (lam_docker_login(text, size, "localhost:5000", &login, NULL) == LAM_OK && login.len && !strchr(login.data, ':')) abort();
    lam_str_release(&token);
    lam_str_release(&login);
    return 0;
}
