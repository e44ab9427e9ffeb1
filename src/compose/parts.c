#include "compose/parts.h"
#include "adapter/adapter.h"
#include "compose/faults.h"
#include "model/identity.h"

#include <stdio.h>
#include <string.h>

static lam_code json_part(const json_t *value, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    uint8_t digest[LAM_SHA256_BYTES];
    LAM_TRY(lam_json_digest(value, digest, err));
    lam_digest_text(digest, out);
    return LAM_OK;
}

/* The method by its name; modules and activation by the digest of their JSON; factors by that of names, shapes and values. */
static lam_code adapter_parts(const struct lam_slm *file, char out[4][LAM_DIGEST_TEXT], lam_error *err)
{
    const char *method = json_string_value(json_object_get(file->metadata, "method"));
    const json_t *modules = json_object_get(file->metadata, "modules"), *activation = json_object_get(file->metadata, "activation");
    if (!method || !modules) return LAM_RAISE(err, LAM_E_FORMAT, "%s: metadata lacks method or modules", file->file.path);
    snprintf(out[0], LAM_DIGEST_TEXT, "%.60s", method);
    LAM_TRY(json_part(modules, out[1], err));
    LAM_TRY(lam_adapter_factors_digest(file, out[2], err));
    json_t *always = json_string("always");
    lam_code code = always ? json_part(activation ? activation : always, out[3], err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "adapter digest");
    json_decref(always);
    return code;
}

lam_code lam_file_parts(const struct lam_slm *file, char out[4][LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_base_parts base;
    if (file->kind == LAM_SLM_ADAPTER) return adapter_parts(file, out, err);
    LAM_TRY(lam_base_parts(file, &base, err));
    strcpy(out[0], base.weights);
    strcpy(out[1], base.layout);
    strcpy(out[2], base.config);
    strcpy(out[3], base.targets);
    return LAM_OK;
}

lam_code lam_manifest_parts(const char *path, char out[4][LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_slm *file;
    LAM_TRY(lam_slm_open(path, &file, err));
    lam_code code = lam_file_parts(file, out, err);
    lam_slm_close(file);
    return code;
}

static void compare(const struct lam_slm *file, const char *const stated[4], const char *const names[4], const lam_code codes[4],
                    const char *subject, lam_fault_list *faults)
{
    char found[4][LAM_DIGEST_TEXT];
    lam_error err;
    if (!stated[0] && !stated[1] && !stated[2] && !stated[3]) return;
    if (lam_file_parts(file, found, &err) != LAM_OK) {
        lam_fault_list_add_error(faults, subject, &err);
        return;
    }
    for (size_t i = 0; i < 4; i++)
        if (stated[i] && strcmp(stated[i], found[i]) != 0)
            lam_fault_list_add(faults, codes[i], subject, "its %s: %s, the manifest says %.71s", names[i], found[i], stated[i]);
}

void lam_check_base_parts(const struct lam_slm *file, const lam_base_parts_text *p, const char *subject, lam_fault_list *faults)
{
    static const char *const names[] = {"weights", "tensors' layout", "configuration", "target modules"};
    static const lam_code codes[] = {LAM_E_BASE_WEIGHTS, LAM_E_BASE_LAYOUT, LAM_E_BASE_CONFIG, LAM_E_BASE_TARGETS};
    compare(file, (const char *const[]){p->weights, p->layout, p->config, p->targets}, names, codes, subject, faults);
}

void lam_check_adapter_parts(const struct lam_slm *file, const lam_adapter_parts_text *p, const char *subject, lam_fault_list *faults)
{
    static const char *const names[] = {"method", "modules", "factors", "activation"};
    static const lam_code codes[] = {LAM_E_METHOD, LAM_E_ADAPTER_MODULES, LAM_E_ADAPTER_FACTORS, LAM_E_ADAPTER_ACTIVATION};
    compare(file, (const char *const[]){p->method, p->modules, p->factors, p->activation}, names, codes, subject, faults);
}
