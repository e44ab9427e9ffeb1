#include "store/active.h"
#include "base/alloc.h"
#include "base/os.h"
#include "compose/manifest.h"

#include <string.h>

/* A member that is a digest; with optional it may be null, and is then "". */
static bool read_digest(const json_t *root, const char *key, bool optional, char out[LAM_DIGEST_TEXT])
{
    const json_t *value = json_object_get(root, key);
    const char *text = json_string_value(value);
    out[0] = 0;
    if (optional && json_is_null(value)) return true;
    if (!text || !lam_is_digest(text)) return false;
    memcpy(out, text, LAM_DIGEST_TEXT);
    return true;
}

lam_code lam_active_read(const struct lam_store *s, struct lam_active *out, lam_error *err)
{
    json_t *root;
    *out = (struct lam_active){0};
    lam_code code = lam_store_read_json(s, LAM_STORE_ACTIVE, LAM_E_STORE_ACTIVE, &root, err);
    if (code != LAM_OK) return code == LAM_E_NOT_FOUND ? LAM_OK : code;
    json_int_t generation = json_integer_value(json_object_get(root, "generation"));
    out->generation = generation > 0 ? (uint64_t)generation : 0;
    bool well = generation > 0 && read_digest(root, "manifest", false, out->manifest) &&
                read_digest(root, "composition_id", false, out->composition) && read_digest(root, "previous", true, out->previous);
    json_decref(root);
    if (well) return LAM_OK;
    *out = (struct lam_active){0};
    return LAM_RAISE(err, LAM_E_STORE_ACTIVE, "%s/" LAM_STORE_ACTIVE " names no generation, manifest, composition_id and previous", s->folder);
}

lam_code lam_active_stage(const struct lam_store *s, const struct lam_active *active, struct lam_writer **out, lam_error *err)
{
    json_t *root = json_pack("{s:I,s:s,s:s,s:s?}", "generation", (json_int_t)active->generation, "manifest", active->manifest, "composition_id",
                             active->composition, "previous", active->previous[0] ? active->previous : NULL);
    if (!root) return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    lam_code code = lam_store_stage_json(s, LAM_STORE_ACTIVE, root, out, err);
    json_decref(root);
    return code;
}
