/* lamina tokenize and detokenize. */
#include "commands.h"
#include "common.h"

#include <stdlib.h>
#include <string.h>

static int print_tokens(const struct options *o, const struct opened *all, const uint32_t *tokens, size_t n)
{
    lam_error err;
    json_t *list = json_array(), *pieces = json_array();
    for (size_t i = 0; i < n; i++) {
        char *piece;
        if (lam_detokenize_text(all->base, &tokens[i], 1, true, &piece, &err) != LAM_OK) {
            json_decref(list);
            json_decref(pieces);
            return report(o, &err);
        }
        json_array_append_new(list, json_integer(tokens[i]));
        json_array_append_new(pieces, json_string(piece));
        lam_memory_free(piece);
        if (!o->json) printf("%s%u", i ? "," : "", tokens[i]);
    }
    if (o->json)
        return print_json(json_pack("{s:I,s:o,s:o,s:s}", "n", (json_int_t)n, "tokens", list, "pieces", pieces, "tokenizer_digest",
                                    all->info.tokenizer_digest));
    json_decref(list);
    json_decref(pieces);
    printf("\n");
    return 0;
}

/* -p, the first of the rest, or standard input: freed with free. */
static lam_code text_of(struct options *o, char **text, size_t *len, lam_error *err)
{
    const char *given = o->prompt ? o->prompt : o->n_rest ? o->rest[0] : NULL;
    if (!given) return read_whole("-", text, len, err);
    *len = strlen(given);
    *text = malloc(*len + 1);
    if (!*text) return LAM_E_NO_MEMORY;
    memcpy(*text, given, *len + 1);
    return LAM_OK;
}

int cmd_tokenize(struct options *o)
{
    lam_error err = {0};
    struct opened all;
    char *text = NULL;
    uint32_t *tokens = NULL;
    size_t len = 0, n = 0;
    if (!options_take_model(o)) return 2;
    o->verify = LAM_VERIFY_OFF; /* no weight is read */
    lam_code code = open_base(o, &all, &err);
    if (code == LAM_OK) code = text_of(o, &text, &len, &err);
    unsigned flags = o->raw ? 0 : LAM_TOKENIZE_SPECIAL | LAM_TOKENIZE_CONTROL;
    if (code == LAM_OK) code = lam_tokenize(all.base, text, len, flags, &tokens, &n, &err);
    int status = code == LAM_OK ? print_tokens(o, &all, tokens, n) : report(o, &err);
    free(text);
    lam_memory_free(tokens);
    close_all(&all);
    return status;
}

int cmd_detokenize(struct options *o)
{
    lam_error err = {0};
    struct opened all;
    char *ids = NULL, *text = NULL;
    uint32_t *tokens = NULL;
    size_t len = 0, n = 0;
    if (!options_take_model(o)) return 2;
    o->verify = LAM_VERIFY_OFF;
    if (o->token_ids) o->prompt = o->token_ids;
    lam_code code = open_base(o, &all, &err);
    if (code == LAM_OK) code = text_of(o, &ids, &len, &err);
    if (code == LAM_OK) code = parse_token_ids(ids, &tokens, &n, &err);
    if (code == LAM_OK) code = lam_detokenize_text(all.base, tokens, n, !o->raw, &text, &err);
    int status = code == LAM_OK ? 0 : report(o, &err);
    if (code == LAM_OK && o->json) status = print_json(json_pack("{s:s}", "text", text));
    else if (code == LAM_OK) puts(text);
    free(ids);
    lam_memory_free(tokens);
    lam_memory_free(text);
    close_all(&all);
    return status;
}
