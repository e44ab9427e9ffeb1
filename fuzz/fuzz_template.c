/* Compile and render arbitrary templates. What follows a zero byte, if it is a JSON object, are the variables;
 * otherwise a small conversation. */
#include "text/template.h"

#include <stdint.h>
#include <string.h>

static json_t *default_variables(void)
{
    return json_pack("{s:[{s:s, s:s}, {s:s, s:n, s:[{s:{s:s, s:{s:i}}}]}], s:[{s:s}], s:b, s:s, s:I}", "messages",
                     "role", "user", "content", " Hi \xc3\x89 ", "role", "assistant", "content", "tool_calls", "function",
                     "name", "f", "arguments", "a", 1, "tools", "name", "f", "add_generation_prompt", 1, "bos_token", "<s>",
                     "strftime_now", (json_int_t)1795955696);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t len = zero ? (size_t)(zero - data) : size;
    struct lam_template *t;
    struct lam_str out = {0};
    lam_error err;
    if (lam_template_compile((const char *)data, len, &t, &err) != LAM_OK) return 0;
    json_t *variables = zero ? json_loadb((const char *)zero + 1, size - len - 1, 0, NULL) : NULL;
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = default_variables();
    }
    lam_template_render(t, variables, &out, &err);
    lam_str_release(&out);
    lam_template_free(t);
    json_decref(variables);
    return 0;
}
