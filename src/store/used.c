/* Which base or composition ran last: a wish of the user's, not a change of the store. It is replaced whole, needs no lock, and keeps
 * nothing from gc. */
#include "compose/manifest.h"
#include "store/store.h"

#include <string.h>

lam_code lam_store_used(lam_store *s, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    json_t *root;
    digest[0] = 0;
    LAM_TRY(lam_store_read_json(s, LAM_STORE_USED, LAM_E_NOT_FOUND, &root, err));
    const char *manifest = json_string_value(json_object_get(root, "manifest"));
    if (manifest && lam_is_digest(manifest)) memcpy(digest, manifest, LAM_DIGEST_TEXT);
    json_decref(root);
    return digest[0] ? LAM_OK : LAM_RAISE(err, LAM_E_NOT_FOUND, "%s/" LAM_STORE_USED " names no manifest", s->folder);
}

lam_code lam_store_note_used(lam_store *s, const char *digest, lam_error *err)
{
    char before[LAM_DIGEST_TEXT];
    if (!lam_is_digest(digest)) return LAM_RAISE(err, LAM_E_ARGUMENT, "\"%.80s\" is no digest", digest);
    if (lam_store_used(s, before, NULL) == LAM_OK && strcmp(before, digest) == 0) return LAM_OK;
    json_t *root = json_pack("{s:s}", "manifest", digest);
    if (!root) return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    lam_code code = lam_store_write_json(s, LAM_STORE_USED, root, err);
    json_decref(root);
    return code;
}
