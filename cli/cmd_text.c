/* lamina tokenize and detokenize. */
#include "commands.h"
#include "default_model.h"
#include "open.h"
#include "prompt.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

/* Appends the text of a token as it is within a text: at the very beginning some models drop a space, so first's token
 * stands in front. */
static lam_code append_piece(const struct opened *all, const struct tokens *first, uint32_t id, json_t *pieces, lam_error *err)
{
    uint32_t both[2];
    char *front = NULL, *text = NULL;
    size_t n = first->n ? 1 : 0;
    if (n) both[0] = first->ids[0];
    both[n] = id;
    lam_code code = lam_detokenize_text(all->base, both, n, true, &front, err);
    if (code == LAM_OK) code = lam_detokenize_text(all->base, both, n + 1, true, &text, err);
    if (code == LAM_OK) json_array_append_new(pieces, json_string(text + strlen(front)));
    lam_memory_free(front);
    lam_memory_free(text);
    return code;
}

static lam_code pieces_json(const struct opened *all, const struct tokens *t, json_t *ids, json_t *pieces, lam_error *err)
{
    struct tokens first = {0}; /* BOS, where the model has one */
    lam_code code = lam_tokenize(all->base, "", 0, LAM_TOKENIZE_SPECIAL, &first.ids, &first.n, err);
    for (size_t i = 0; code == LAM_OK && i < t->n; i++) {
        json_array_append_new(ids, json_integer(t->ids[i]));
        code = append_piece(all, &first, t->ids[i], pieces, err);
    }
    lam_memory_free(first.ids);
    return code;
}

static int print_tokens(const struct options *o, const struct opened *all, const struct tokens *t)
{
    lam_error err;
    if (!o->json) {
        for (size_t i = 0; i < t->n && !ferror(stdout); i++) printf("%s%u", i ? "," : "", t->ids[i]);
        printf("\n");
        return 0;
    }
    json_t *ids = json_array(), *pieces = json_array();
    lam_code code = pieces_json(all, t, ids, pieces, &err);
    int status = code != LAM_OK ? report(o, &err)
                                : print_json(o, json_pack("{s:I,s:O,s:O,s:s}", "n", (json_int_t)t->n, "tokens", ids, "pieces", pieces,
                                                          "tokenizer_digest", all->info.tokenizer_digest));
    json_decref(ids);
    json_decref(pieces);
    return status;
}

/* The model without a look at its weights: none is read here. */
static lam_code open_vocabulary(struct options *o, struct opened *all, lam_error *err)
{
    o->verify = LAM_VERIFY_OFF;
    o->threads = (struct count){1, true};
    return open_base(o, all, err);
}

int cmd_tokenize(struct options *o)
{
    lam_error err;
    struct opened all;
    struct text text = {0};
    struct tokens tokens = {0};
    char path[MODEL_PATH];
    int failed = choose_model(o, 0, 1, path);
    if (failed) return failed;
    if (o->prompt && o->n_rest) return usage(o, "the text stands twice: --prompt and \"%s\"", o->rest[0]);
    lam_code code = open_vocabulary(o, &all, &err);
    if (code == LAM_OK) code = given_or_input(o->n_rest ? o->rest[0] : o->prompt, &text, &err);
    unsigned flags = o->raw ? 0 : LAM_TOKENIZE_SPECIAL | LAM_TOKENIZE_CONTROL;
    if (code == LAM_OK) note_replaced(o, &text);
    if (code == LAM_OK) code = lam_tokenize(all.base, text.bytes, text.len, flags, &tokens.ids, &tokens.n, &err);
    int status = code == LAM_OK ? print_tokens(o, &all, &tokens) : report(o, &err);
    free(text.bytes);
    lam_memory_free(tokens.ids);
    close_all(&all);
    return status;
}

int cmd_detokenize(struct options *o)
{
    lam_error err;
    struct opened all;
    struct text list = {0};
    struct tokens tokens = {0};
    char *text = NULL, path[MODEL_PATH];
    int status = 0;
    int failed = choose_model(o, 0, 1, path);
    if (failed) return failed;
    if (o->token_ids && o->n_rest) return usage(o, "the tokens stand twice: --token-ids and \"%s\"", o->rest[0]);
    lam_code code = open_vocabulary(o, &all, &err);
    if (code == LAM_OK) code = given_or_input(o->n_rest ? o->rest[0] : o->token_ids, &list, &err);
    if (code == LAM_OK) code = parse_token_ids(list.bytes, &tokens, &err);
    if (code == LAM_OK) code = lam_detokenize_text(all.base, tokens.ids, tokens.n, !o->raw, &text, &err);
    if (code != LAM_OK) status = report(o, &err);
    else if (o->json) status = print_json(o, json_pack("{s:s,s:I}", "text", text, "n", (json_int_t)tokens.n));
    else puts(text);
    free(list.bytes);
    lam_memory_free(tokens.ids);
    lam_memory_free(text);
    close_all(&all);
    return status;
}
