/* The text functions of the public API. */
#include "base/alloc.h"
#include "base/os.h"
#include "base/utf8.h"
#include "run/objects.h"
#include "text/detok.h"

#include <string.h>

lam_code lam_tokenize(const lam_base *base, const char *text, size_t len, unsigned flags, uint32_t **tokens, size_t *n, lam_error *err)
{
    unsigned encode = (flags & LAM_TOKENIZE_SPECIAL ? LAM_ENCODE_ADD_SPECIAL : 0) |
                      (flags & LAM_TOKENIZE_CONTROL ? LAM_ENCODE_PARSE_SPECIAL : 0);
    *tokens = NULL;
    *n = 0;
    LAM_TRY(lam_mapping_check(&base->model->file->file, err)); /* the vocabulary is used in place */
    return lam_tokenizer_encode(base->tokenizer, text, len, encode, tokens, n, err);
}

/* Hands the string's memory to the caller; "" for one that was never written. */
static lam_code give_text(struct lam_str *s, char **text, lam_error *err)
{
    *text = s->data ? s->data : lam_strdup("");
    return *text ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a text");
}

lam_code lam_detokenize_text(const lam_base *base, const uint32_t *tokens, size_t n, bool special, char **text, lam_error *err)
{
    struct lam_str s = {0};
    *text = NULL;
    LAM_TRY(lam_mapping_check(&base->model->file->file, err));
    unsigned flags = LAM_DETOK_START | (special ? LAM_DETOK_SPECIAL : 0);
    lam_code code = lam_detokenize(&base->vocab, tokens, n, flags, &s, err);
    if (code == LAM_OK) return give_text(&s, text, err);
    lam_str_release(&s);
    return code;
}

/* The text of a special token for the template's bos_token and eos_token; "" if there is none that is text. */
static json_t *token_text(const struct lam_vocab *v, uint32_t id)
{
    size_t len = 0;
    const uint8_t *bytes = id < v->n_tokens ? lam_vocab_token(v, id, &len) : NULL;
    if (lam_utf8_valid_prefix(bytes, len) != len) len = 0;
    return json_stringn(bytes ? (const char *)bytes : "", len);
}

static bool is_text(const char *text) { return text && lam_utf8_valid_prefix((const uint8_t *)text, strlen(text)) == strlen(text); }

static lam_code check_messages(const lam_message *messages, size_t n, lam_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!is_text(messages[i].role) || !is_text(messages[i].content))
            return LAM_RAISE(err, LAM_E_UTF8, "message %zu is not UTF-8, which a chat template needs", i);
    return LAM_OK;
}

/* NULL when memory is lacking. */
static json_t *template_variables(const lam_base *base, const lam_message *messages, size_t n, bool add_generation_prompt)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_pack("{s:s,s:s}", "role", messages[i].role, "content", messages[i].content)) != 0) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:o,s:b,s:o,s:o,s:I}", "messages", list, "add_generation_prompt", add_generation_prompt, "bos_token",
                     token_text(&base->vocab, base->vocab.ids.bos), "eos_token", token_text(&base->vocab, base->vocab.ids.eos),
                     "strftime_now", (json_int_t)lam_unix_time()); /* some templates print today's date */
}

/* The base's template; one that could not be run is compiled again, for the reason. */
static lam_code base_template(const lam_base *base, const struct lam_template **out, lam_error *err)
{
    struct lam_template *t = NULL;
    const json_t *source = json_object_get(base->model->file->metadata, "chat_template");
    *out = base->chat_template;
    if (*out) return LAM_OK;
    if (!json_is_string(source))
        return LAM_RAISE(err, LAM_E_TEMPLATE, "%s has no chat template; tokenize the prompt as it is", base->name);
    lam_code code = lam_template_compile(json_string_value(source), json_string_length(source), &t, err);
    lam_template_free(t);
    return code;
}

lam_code lam_chat_format(const lam_composition *composition, const lam_message *messages, size_t n, bool add_generation_prompt, char **text,
                         lam_error *err)
{
    const lam_base *base = composition->base;
    const struct lam_template *template = composition->chat_template;
    *text = NULL;
    LAM_TRY(lam_mapping_check(&base->model->file->file, err)); /* its special tokens are used in place */
    if (!template) LAM_TRY(base_template(base, &template, err));
    LAM_TRY(check_messages(messages, n, err));
    json_t *variables = template_variables(base, messages, n, add_generation_prompt);
    if (!variables) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu messages", n);
    struct lam_str s = {0};
    lam_code code = lam_template_render(template, variables, &s, err);
    json_decref(variables);
    if (code == LAM_OK) return give_text(&s, text, err);
    lam_str_release(&s);
    return code;
}
