/* lamina run: text from a prompt, or a chat. */
#define _POSIX_C_SOURCE 200809L

#include "chat.h"
#include "commands.h"
#include "default_model.h"
#include "process.h"
#include "prompt.h"
#include "report.h"
#include "waived.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TOKENS 256 /* of text that a model may continue for ever */

struct generation {
    const struct options *o;
    char *text; /* with --json: all of it, owned */
    size_t len;
    double prefill, decode; /* seconds */
    size_t n_prompt, n_generated, n_most, room;
};

static bool take_piece(void *context, const char *piece, uint32_t token)
{
    struct generation *g = context;
    (void)token;
    if (!g->o->json) return print_now(piece) && !process_signal();
    size_t n = strlen(piece);
    char *longer = realloc(g->text, g->len + n + 1);
    if (!longer) return false;
    g->text = longer;
    memcpy(g->text + g->len, piece, n + 1);
    g->len += n;
    return !process_signal();
}

/* Why it ended: for programs, and for people. */
struct ending {
    const char *name, *words;
};

static struct ending ending(const struct generation *g)
{
    if (process_signal()) return (struct ending){"interrupted", "interrupted"};
    if (g->n_generated == g->n_most) return (struct ending){"tokens", "as many as -n allows"};
    if (g->n_generated == g->room) return (struct ending){"context", "the context is full (-c)"};
    return (struct ending){"end", "ended by the model"};
}

static double rate(size_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0.0; }

static int print_result(const struct options *o, const struct opened *all, const struct generation *g)
{
    const char *id = lam_composition_id(all->composition), *bytes = bytes_state(o);
    double prefill = rate(g->n_prompt, g->prefill), decode = rate(g->n_generated, g->decode);
    if (o->json)
        return print_json(o, json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:I,s:I,s:f,s:f,s:s,s:I}", "text", g->text ? g->text : "", "stop",
                                       ending(g).name, "composition_id", id, "kv_format",
                                       lam_composition_kv_format(all->composition), "base_digest", all->info.base_digest, "bytes", bytes,
                                       "waived", waived_names(all),
                                       "prompt_tokens", (json_int_t)g->n_prompt, "tokens", (json_int_t)g->n_generated, "seed",
                                       (json_int_t)o->sampling.seed, "prefill_tokens_per_second", prefill,
                                       "decode_tokens_per_second", decode, "isa", lam_engine_isa(all->engine), "threads",
                                       (json_int_t)lam_engine_threads(all->engine)));
    if (!print_now("\n") || o->quiet) return 0;
    fprintf(stderr, "\ncomposition %s, bytes %s\n", id, bytes);
    print_kv_format(stderr, o, all);
    print_waived(stderr, all);
    fprintf(stderr, "%zu prompt tokens at %.1f/s, %zu tokens at %.1f/s: %s; %s, %u threads\n", g->n_prompt, prefill, g->n_generated, decode,
            ending(g).words, lam_engine_isa(all->engine), lam_engine_threads(all->engine));
    return 0;
}

/* The prompt as the user sees it in front of its continuation. */
static lam_code echo(const struct opened *all, struct generation *g, const struct text *text, const struct tokens *tokens, lam_error *err)
{
    char *prompt = NULL;
    if (g->o->token_ids) {
        lam_code code = lam_detokenize_text(all->base, tokens->ids, tokens->n, false, &prompt, err);
        if (code != LAM_OK) return code;
    }
    take_piece(g, prompt ? prompt : text->bytes, 0);
    if (uses_template(g->o, all) && !g->o->token_ids) take_piece(g, "\n", 0);
    lam_memory_free(prompt);
    return LAM_OK;
}

static lam_code generate(struct opened *all, struct generation *g, const struct text *text, const struct tokens *tokens, lam_error *err)
{
    const struct options *o = g->o;
    lam_session *session;
    lam_code code = lam_session_new(all->composition, (size_t)count_or(o->context, 0), &session, err);
    if (code != LAM_OK) return code;
    double start = now_seconds();
    code = feed_prompt(o, session, tokens->ids, tokens->n, err);
    double middle = now_seconds();
    if (code == LAM_OK && o->echo) code = echo(all, g, text, tokens, err);
    g->room = lam_session_context(session) - lam_session_length(session);
    g->n_most = (size_t)count_or(o->tokens, uses_template(o, all) ? SIZE_MAX : DEFAULT_TOKENS);
    if (code == LAM_OK && !process_signal())
        code = lam_generate(session, &o->sampling, g->n_most, take_piece, g, &g->n_generated, err);
    g->prefill = middle - start;
    g->decode = now_seconds() - middle;
    lam_session_free(session);
    if (code != LAM_OK && !o->json && g->n_generated) print_now("\n");
    return code;
}

static void note_surprises(const struct options *o, const struct opened *all)
{
    if (!all->info.has_chat_template && !o->raw && !o->token_ids)
        note(o, "%s has no chat template: the prompt is the text to continue (as with --raw)", all->info.name);
    if (o->context.given && o->context.value > all->info.n_context)
        note(o, "a context of %zu tokens is beyond the %u that %s was made for", (size_t)o->context.value, all->info.n_context,
             all->info.name);
}

static int complete(struct options *o, struct opened *all)
{
    lam_error err;
    struct text text = {0};
    struct tokens tokens = {0};
    struct generation g = {.o = o};
    lam_code code = read_prompt(o, all, &text, &tokens, &err);
    if (code == LAM_OK) note_surprises(o, all);
    g.n_prompt = tokens.n;
    process_hold_signals();
    if (code == LAM_OK) code = generate(all, &g, &text, &tokens, &err);
    int status = code == LAM_OK ? print_result(o, all, &g) : report(o, &err);
    process_release_signals();
    free(g.text);
    free(text.bytes);
    lam_memory_free(tokens.ids);
    return status;
}

int cmd_run(struct options *o)
{
    lam_error err;
    struct opened all;
    char path[MODEL_PATH];
    bool talk = !o->prompt && !o->token_ids && isatty(STDIN_FILENO);
    if (!check_prompt_options(o)) return 2;
    if (talk && o->json) return usage(o, "--json needs a prompt: -p, --token-ids or standard input");
    if (talk && o->echo) return usage(o, "--echo needs a prompt: -p, --token-ids or standard input");
    if (!choose_model(o, 0, 0, path)) return 2;
    lam_code code = open_all(o, &all, &err);
    int status = code != LAM_OK ? report(o, &err) : talk ? chat(o, &all) : complete(o, &all);
    close_all(&all);
    return status;
}
