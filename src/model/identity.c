#include "model/identity.h"
#include "model/arch.h"

#include <string.h>

static json_t *dims_json(const struct lam_slm_entry *e)
{
    json_t *dims = json_array();
    for (unsigned d = 0; dims && d < e->n_dims; d++)
        if (json_array_append_new(dims, json_integer(e->dims[d])) != 0) {
            json_decref(dims);
            return NULL;
        }
    return dims;
}

static json_t *directory_json(const struct lam_slm *s)
{
    json_t *directory = json_array();
    for (size_t i = 0; directory && i < s->n_entries; i++) {
        const struct lam_slm_entry *e = &s->entries[i];
        json_t *dims = dims_json(e);
        json_t *entry = json_pack("{s:s%,s:i,s:o,s:i,s:i,s:I}", "name", s->names + e->name_offset, (size_t)e->name_len, "dtype",
                                  e->dtype, "dims", dims, "layout", e->layout, "layer", e->layer, "role", (json_int_t)e->role);
        if (entry && e->residual && json_object_set_new(entry, "residual", json_integer(e->residual)) != 0) {
            json_decref(entry);
            entry = NULL;
        }
        if (json_array_append_new(directory, entry) != 0) {
            json_decref(directory);
            return NULL;
        }
    }
    return directory;
}

/* Which matrix an adapter's module name means, for the names that the architecture knows. */
static json_t *target_map_json(const struct lam_arch *arch)
{
    json_t *map = json_object();
    for (size_t i = 0; map && i < arch->n_tensors; i++) {
        const struct lam_tensor_spec *spec = &arch->tensors[i];
        if (lam_role_is_matrix(spec->role) && spec->hf && json_object_set_new(map, spec->hf, json_integer(spec->role)) != 0) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

lam_code lam_base_digest(const struct lam_slm *base, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    json_t *config_json = json_object_get(base->metadata, "config");
    struct lam_config config;
    if (base->kind != LAM_SLM_BASE) return LAM_RAISE(err, LAM_E_FORMAT, "%s: not a base", base->file.path);
    LAM_TRY(lam_config_from_json(config_json, &config, err));
    char root[LAM_DIGEST_TEXT];
    lam_digest_text(base->weights_root, root);
    json_t *whole = json_pack("{s:s,s:s,s:o,s:O,s:o}", "type", "lamina.base.v0", "weights_root", root, "directory",
                              directory_json(base), "config", config_json, "targets", target_map_json(config.arch));
    if (!whole) return LAM_RAISE(err, LAM_E_NO_MEMORY, "base digest");
    uint8_t digest[LAM_SHA256_BYTES];
    lam_code code = lam_json_digest(whole, digest, err);
    json_decref(whole);
    if (code == LAM_OK) lam_digest_text(digest, out);
    return code;
}

/* Takes value over. */
static lam_code part_digest(json_t *value, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    uint8_t digest[LAM_SHA256_BYTES];
    if (!value) return LAM_RAISE(err, LAM_E_NO_MEMORY, "base digest");
    lam_code code = lam_json_digest(value, digest, err);
    json_decref(value);
    if (code == LAM_OK) lam_digest_text(digest, out);
    return code;
}

lam_code lam_base_parts(const struct lam_slm *base, struct lam_base_parts *out, lam_error *err)
{
    json_t *config_json = json_object_get(base->metadata, "config");
    struct lam_config config;
    LAM_TRY(lam_config_from_json(config_json, &config, err));
    lam_digest_text(base->weights_root, out->weights);
    LAM_TRY(part_digest(directory_json(base), out->layout, err));
    LAM_TRY(part_digest(json_incref(config_json), out->config, err));
    return part_digest(target_map_json(config.arch), out->targets, err);
}
