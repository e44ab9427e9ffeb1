/* Any bytes as a Hugging Face config.json; what is accepted must survive the form that .slm keeps. */
#include "model/config.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *config;
    struct lam_config c, back;
    lam_error err;
    if (lam_json_parse((const char *)data, size, "fuzz", &config, &err) != LAM_OK) return 0;
    if (lam_config_from_hf(config, &c, &err) == LAM_OK && lam_config_check(&c, &err) == LAM_OK) {
        json_t *kept = lam_config_to_json(&c);
        if (!kept || lam_config_from_json(kept, &back, &err) != LAM_OK) __builtin_trap();
        json_t *again = lam_config_to_json(&back);
        if (!json_equal(kept, again)) __builtin_trap();
        json_decref(again);
        json_decref(kept);
    }
    json_decref(config);
    return 0;
}
