/* adapter_config.json, and the matching of a model's modules by what it says. */
#include "base/alloc.h"
#include "import/adapter_peft_config.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        const char *name;
        enum lam_module_kind kind;
    } modules[] = {{"model.embed_tokens", LAM_MODULE_EMBEDDING}, {"model.layers.0.self_attn.q_proj", LAM_MODULE_LINEAR},
                   {"model.layers.11.mlp.down_proj", LAM_MODULE_LINEAR}, {"model.norm", LAM_MODULE_NORM}, {"lm_head", LAM_MODULE_HEAD}};
    struct lam_peft_config c;
    lam_error err;
    struct lam_faults faults = {0};
    lam_code code = lam_peft_config_parse((const char *)data, size, "fuzz", size % 2 ? "llama" : "qwen2", &c, &faults, &err);
    lam_free(lam_faults_list(&faults));
    lam_faults_release(&faults);
    if (code != LAM_OK) return 0;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        bool targeted, feedforward;
        uint32_t rank;
        double alpha;
        if (lam_module_match_find(c.modules, modules[i].name, modules[i].kind, &targeted, &err) != LAM_OK) break;
        lam_module_match_saved(c.modules, modules[i].name);
        if (lam_module_match_feedforward(c.modules, modules[i].name, &feedforward, &err) != LAM_OK) break;
        if (lam_peft_config_module(&c, modules[i].name, &rank, &alpha, &err) != LAM_OK) break;
    }
    for (size_t i = 0; lam_module_match_unused(c.modules, i); i++)
        ;
    for (size_t i = 0; lam_module_match_unsaved(c.modules, i); i++)
        ;
    for (size_t i = 0; lam_pattern_table_unused(c.rank_pattern, i); i++)
        ;
    lam_peft_config_release(&c);
    return 0;
}
