/* PEFT adapter folders: adapter_config.json and adapter_model.safetensors. */
#include "base/alloc.h"
#include "format/safetensors.h"
#include "import/adapter_import.h"
#include "import/adapter_peft_config.h"

#include <string.h>

struct peft {
    struct lam_adapter_import *import;
    const char *folder;
    struct lam_peft_config config;
};

/* What PEFT passes over in silence or with a warning. */
static void warn(struct peft *p)
{
    struct lam_adapter_import *import = p->import;
    const char *text = NULL;
    for (size_t i = 0; (text = lam_module_match_unused(p->config.modules, i)); i++)
        lam_adapter_warn(import, "target_modules: \"%.100s\" matches no module", text);
    for (size_t i = 0; (text = lam_module_match_unsaved(p->config.modules, i)); i++)
        lam_adapter_warn(import, "modules_to_save: \"%.100s\" matches no module", text);
    for (size_t i = 0; (text = lam_pattern_table_unused(p->config.rank_pattern, i)); i++)
        lam_adapter_warn(import, "rank_pattern: \"%.100s\" decides for no module", text);
    for (size_t i = 0; (text = lam_pattern_table_unused(p->config.alpha_pattern, i)); i++)
        lam_adapter_warn(import, "alpha_pattern: \"%.100s\" decides for no module", text);
    if (p->config.fan_in_fan_out)
        lam_adapter_warn(import, "fan_in_fan_out is true, which has no effect on linear layers (PEFT resets it)");
    if (!p->config.ia3 && p->config.alpha == 0.0)
        lam_adapter_warn(import, "lora_alpha is 0: no effect, except where alpha_pattern says otherwise");
    const char *base = json_string_value(json_object_get(json_object_get(import->base->metadata, "source"), "name"));
    if (p->config.base && base && strcmp(lam_path_base(p->config.base), base) != 0)
        lam_adapter_warn(import, "base_model_name_or_path is \"%.100s\", this base is \"%.100s\"", p->config.base, base);
}

static lam_code read_config(struct peft *p, lam_error *err)
{
    char *path = lam_path_join(p->folder, "adapter_config.json");
    struct lam_mapping m;
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "path of adapter_config.json");
    lam_code code = lam_map_file(path, &m, err);
    lam_free(path);
    if (code != LAM_OK) return code;
    code = lam_peft_config_parse(m.data ? (const char *)m.data : "", m.size, "adapter_config.json", p->import->config.arch->hf_type,
                                 &p->config, &p->import->faults, err);
    lam_unmap_file(&m);
    return code;
}

static lam_code open_tensors(const char *folder, struct lam_safetensors **file, lam_error *err)
{
    char *path = lam_path_join(folder, "adapter_model.safetensors"), *pickle = lam_path_join(folder, "adapter_model.bin");
    lam_code code = path && pickle ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "path of adapter_model.safetensors");
    if (code == LAM_OK && !lam_path_exists(path) && lam_path_exists(pickle))
        code = LAM_RAISE(err, LAM_E_UNSUPPORTED, "%s is a Python pickle, which could run code; save the adapter as safetensors",
                         pickle);
    if (code == LAM_OK) code = lam_st_open(path, file, err);
    lam_free(path);
    lam_free(pickle);
    return code;
}

static lam_code set_provenance(struct peft *p, lam_error *err)
{
    LAM_TRY(lam_adapter_set_name(p->import, lam_path_base(p->folder), strlen(lam_path_base(p->folder)), err));
    json_t *source = p->import->source = json_pack("{s:s}", "format", "peft");
    bool ok = source != NULL;
    if (p->config.base) ok = ok && json_object_set_new(source, "base_model", json_string(p->config.base)) == 0;
    if (p->config.version) ok = ok && json_object_set_new(source, "peft_version", json_string(p->config.version)) == 0;
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's provenance");
}

/* The tokens that start an activated LoRA. */
static lam_code set_invocation(struct peft *p, lam_error *err)
{
    struct lam_adapter_import *import = p->import;
    size_t n = json_array_size(p->config.invocation);
    if (n == 0) return LAM_OK;
    import->invocation = lam_alloc(n, sizeof *import->invocation);
    if (!import->invocation) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tokens of an invocation", n);
    import->n_invocation = n;
    for (size_t i = 0; i < n; i++) import->invocation[i] = (uint32_t)json_integer_value(json_array_get(p->config.invocation, i));
    return LAM_OK;
}

static lam_code read_all(struct peft *p, struct lam_safetensors **file, lam_error *err)
{
    struct lam_adapter_import *import = p->import;
    import->rows_interleaved = import->config.arch->hf_rope_interleaved;
    import->norm_offset = import->config.arch->hf_norm_offset;
    LAM_TRY(read_config(p, err));
    import->method = p->config.ia3 ? "ia3" : p->config.dora ? "dora" : "lora";
    LAM_TRY(open_tensors(p->folder, file, err));
    LAM_TRY(set_provenance(p, err));
    LAM_TRY(lam_adapter_check_tokenizer(import, p->folder, err));
    LAM_TRY(set_invocation(p, err));
    LAM_TRY(lam_adapter_take_peft(import, *file, err));
    LAM_TRY(lam_adapter_target_peft(import, &p->config, err));
    LAM_TRY(lam_adapter_take_tokens(import, p->config.token_indices, err));
    warn(p);
    return LAM_OK;
}

lam_code lam_adapter_read_peft(struct lam_adapter_import *import, const char *folder, struct lam_safetensors **file, lam_error *err)
{
    struct peft p = {.import = import, .folder = folder};
    lam_code code = read_all(&p, file, err);
    lam_peft_config_release(&p.config);
    return code;
}
