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

/* The alphas that occur, in the order of their first module. */
static lam_code alphas_part(const json_t *modules, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    json_t *alphas = json_array();
    int failed = !alphas;
    for (size_t i = 0; !failed && i < json_array_size(modules); i++) {
        json_t *alpha = json_object_get(json_array_get(modules, i), "alpha");
        size_t k = 0;
        while (k < json_array_size(alphas) && json_number_value(json_array_get(alphas, k)) != json_number_value(alpha)) k++;
        if (alpha && k == json_array_size(alphas)) failed = json_array_append_new(alphas, json_real(json_number_value(alpha)));
    }
    lam_code code = failed ? LAM_RAISE(err, LAM_E_NO_MEMORY, "an adapter's alphas") : json_part(alphas, out, err);
    json_decref(alphas);
    return code;
}

/* The method by its name; modules, activation and alphas by the digest of their JSON; factors by that of names, shapes and values. */
static lam_code adapter_parts(const struct lam_slm *file, char out[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT], lam_error *err)
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
    return code == LAM_OK ? alphas_part(modules, out[4], err) : code;
}

lam_code lam_file_parts(const struct lam_slm *file, char out[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_base_parts base;
    if (file->kind == LAM_SLM_ADAPTER) return adapter_parts(file, out, err);
    LAM_TRY(lam_base_parts(file, &base, err));
    strcpy(out[0], base.weights);
    strcpy(out[1], base.layout);
    strcpy(out[2], base.config);
    strcpy(out[3], base.targets);
    out[4][0] = 0;
    return LAM_OK;
}

lam_code lam_manifest_parts(const char *path, char out[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_slm *file;
    LAM_TRY(lam_slm_open(path, &file, err));
    lam_code code = lam_file_parts(file, out, err);
    lam_slm_close(file);
    return code;
}

/* What a manifest says of a part (its place in lam_file_parts), what it is called, and the code of another one. */
struct stated {
    const char *text;
    size_t part;
    const char *name;
    lam_code code;
};

static void compare(const struct lam_slm *file, const struct stated *stated, size_t n, const char *subject, lam_fault_list *faults)
{
    char found[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT];
    lam_error err;
    bool any = false;
    for (size_t i = 0; i < n; i++) any |= stated[i].text != NULL;
    if (!any) return;
    if (lam_file_parts(file, found, &err) != LAM_OK) {
        lam_fault_list_add_error(faults, subject, &err);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct stated *s = &stated[i];
        if (s->text && strcmp(s->text, found[s->part]) != 0)
            lam_fault_list_add(faults, s->code, subject, "its %s: %s, the manifest says %.71s", s->name, found[s->part], s->text);
    }
}

void lam_check_base_parts(const struct lam_slm *file, const lam_base_parts_text *p, const char *subject, lam_fault_list *faults)
{
    const struct stated stated[] = {
        {p->weights, 0, "weights", LAM_E_BASE_WEIGHTS}, {p->layout, 1, "tensors' layout", LAM_E_BASE_LAYOUT},
        {p->config, 2, "configuration", LAM_E_BASE_CONFIG}, {p->targets, 3, "target modules", LAM_E_BASE_TARGETS}};
    compare(file, stated, sizeof stated / sizeof *stated, subject, faults);
}

void lam_check_adapter_parts(const struct lam_slm *file, const lam_adapter_parts_text *p, const char *subject, lam_fault_list *faults)
{
    const struct stated stated[] = { /* alphas before the modules, which hold them: the smaller tells more */
        {p->method, 0, "method", LAM_E_METHOD}, {p->alphas, 4, "alphas", LAM_E_ADAPTER_ALPHA},
        {p->modules, 1, "modules", LAM_E_ADAPTER_MODULES}, {p->factors, 2, "factors", LAM_E_ADAPTER_FACTORS},
        {p->activation, 3, "activation", LAM_E_ADAPTER_ACTIVATION}};
    compare(file, stated, sizeof stated / sizeof *stated, subject, faults);
}
