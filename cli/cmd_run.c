/* lamina run: text from a prompt, or a chat. */
#define _POSIX_C_SOURCE 200809L

#include "chat.h"
#include "commands.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TOKENS 256

struct printer {
    const struct options *o;
    char *text; /* with --json: all of it */
    size_t len;
    bool failed;
};

static bool print_piece(void *context, const char *text, uint32_t token)
{
    struct printer *p = context;
    (void)token;
    if (!p->o->json) {
        fputs(text, stdout);
        fflush(stdout);
        return !interrupted;
    }
    size_t n = strlen(text);
    char *longer = realloc(p->text, p->len + n + 1);
    if (!longer) return !(p->failed = true);
    p->text = longer;
    memcpy(p->text + p->len, text, n + 1);
    p->len += n;
    return !interrupted;
}

struct timing {
    double prefill, decode;
    size_t n_prompt, n_generated;
};

static double rate(size_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0.0; }

static int print_result(const struct options *o, const struct opened *all, const struct printer *p, const struct timing *t)
{
    const char *id = lam_composition_id(all->composition);
    const char *bytes = o->verify == LAM_VERIFY_OFF ? "bytes unverified" : "bytes verified";
    double prefill = rate(t->n_prompt, t->prefill), decode = rate(t->n_generated, t->decode);
    if (o->json)
        return print_json(json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:s,s:I}", "text", p->text ? p->text : "", "composition_id", id,
                                    "base_digest", all->info.base_digest, "bytes", bytes, "prompt_tokens", (json_int_t)t->n_prompt,
                                    "tokens", (json_int_t)t->n_generated, "seed", (json_int_t)o->sampling.seed,
                                    "prefill_tokens_per_second", prefill, "decode_tokens_per_second", decode, "isa",
                                    lam_engine_isa(all->engine), "threads", (json_int_t)lam_engine_threads(all->engine)));
    printf("\n");
    fflush(stdout);
    if (o->quiet) return 0;
    fprintf(stderr, "\n%s, %s\n%zu prompt tokens at %.1f/s, %zu tokens at %.1f/s, %s, %u threads\n", id, bytes, t->n_prompt, prefill,
            t->n_generated, decode, lam_engine_isa(all->engine), lam_engine_threads(all->engine));
    return 0;
}

static int complete(struct options *o, struct opened *all, const char *prompt)
{
    lam_error err;
    lam_session *session = NULL;
    uint32_t *tokens = NULL;
    struct printer p = {.o = o};
    struct timing t = {0};
    bool chat_prompt = all->info.has_chat_template && !o->raw;
    if (!all->info.has_chat_template && !o->raw && !o->quiet && !o->json)
        fprintf(stderr, "%s has no chat template: the prompt is the text to continue (as with --raw)\n", all->info.name);
    lam_code code = prompt_tokens(o, all, prompt, chat_prompt, &tokens, &t.n_prompt, &err);
    if (code == LAM_OK) code = lam_session_new(all->composition, o->context, &session, &err);
    double start = now_seconds();
    if (code == LAM_OK) code = lam_session_feed(session, tokens, t.n_prompt, NULL, NULL, &err);
    double middle = now_seconds();
    if (code == LAM_OK && o->echo && prompt) print_piece(&p, prompt, 0);
    if (code == LAM_OK)
        code = lam_generate(session, &o->sampling, o->n_tokens ? o->n_tokens : DEFAULT_TOKENS, print_piece, &p, &t.n_generated, &err);
    t.prefill = middle - start;
    t.decode = now_seconds() - middle;
    if (code != LAM_OK && !o->json && t.n_generated) printf("\n");
    int status = code == LAM_OK ? print_result(o, all, &p, &t) : report(o, &err);
    free(p.text);
    lam_memory_free(tokens);
    lam_session_free(session);
    return status;
}

int cmd_run(struct options *o)
{
    lam_error err;
    struct opened all;
    char *input = NULL;
    size_t len;
    if (!options_take_model(o)) return 2;
    watch_interrupts();
    lam_code code = open_all(o, &all, &err);
    bool has_prompt = o->prompt || o->token_ids, terminal = isatty(STDIN_FILENO);
    if (code == LAM_OK && !has_prompt && !terminal) code = read_whole("-", &input, &len, &err);
    int status;
    if (code != LAM_OK) status = report(o, &err);
    else if (!has_prompt && terminal) status = chat(o, &all);
    else status = complete(o, &all, input ? input : o->prompt);
    free(input);
    close_all(&all);
    return status;
}
