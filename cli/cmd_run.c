/* lamina run: text from a prompt, or a chat. */
#define _POSIX_C_SOURCE 200809L

#include "chat.h"
#include "commands.h"
#include "default_model.h"
#include "held.h"
#include "output.h"
#include "process.h"
#include "prompt.h"
#include "report.h"
#include "waived.h"

#include "lamina/reuse.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TOKENS 256 /* of text that a model may continue for ever */

struct generation {
    const struct options *o;
    char *text; /* with --json: all of it, owned */
    size_t len;
    double prefill, decode; /* seconds */
    size_t n_prompt, n_before, n_generated, n_most, room; /* n_before: of a restored session */
    size_t n_cached;
    lam_generate_options drafts;
    lam_generate_report report;
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
        return print_json(o, json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:s,s:I}", "text", g->text ? g->text : "", "stop",
                                       ending(g).name, "composition_id", id, "standing", standing(all), "kv_format",
                                       lam_composition_kv_format(all->composition), "base_digest", all->info.base_digest, "bytes", bytes,
                                       "waived", waived_names(all),
                                       "prompt_tokens", (json_int_t)g->n_prompt, "restored_tokens", (json_int_t)g->n_before, "cached_tokens",
                                       (json_int_t)g->n_cached, "passes", (json_int_t)g->report.n_passes, "drafted_tokens",
                                       (json_int_t)g->report.n_drafted, "accepted_tokens", (json_int_t)g->report.n_accepted, "tokens", (json_int_t)g->n_generated, "seed",
                                       (json_int_t)all->sampling.seed, "prefill_tokens_per_second", prefill,
                                       "decode_tokens_per_second", decode, "isa", lam_engine_isa(all->engine), "threads",
                                       (json_int_t)lam_engine_threads(all->engine)));
    if (!print_now("\n") || o->quiet) return 0;
    fprintf(stderr, "\ncomposition %s, bytes %s\n", id, bytes);
    print_standing(stderr, all, 0);
    print_kv_format(stderr, o, all);
    print_waived(stderr, all);
    fprintf(stderr, "%zu prompt tokens at %.1f/s, %zu tokens at %.1f/s: %s; %s, %u threads\n", g->n_prompt, prefill, g->n_generated, decode,
            ending(g).words, lam_engine_isa(all->engine), lam_engine_threads(all->engine));
    if (g->n_before) fprintf(stderr, "%zu tokens of a saved session\n", g->n_before);
    if (g->drafts.draft != LAM_DRAFT_NONE)
        fprintf(stderr, "%zu tokens drafted, %zu accepted: %zu passes\n", g->report.n_drafted, g->report.n_accepted, g->report.n_passes);
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

static lam_code begin_session(const struct opened *all, const struct options *o, lam_session **out, lam_error *err)
{
    size_t context = (size_t)count_or(o->context, 0);
    if (!o->restore_session) return lam_session_new(all->composition, context, out, err);
    lam_restore_options restore = {.context = context, .allow_base = o->allow_base};
    lam_code code = lam_session_restore(all->composition, o->restore_session, &restore, out, err);
    if (code == LAM_E_IDENTITY) hint(err, "name the same model, adapters and weights as when it was saved");
    return code == LAM_OK ? LAM_OK : explain_feed(err);
}

static lam_code generate(struct opened *all, struct generation *g, const struct text *text, const struct tokens *tokens, lam_error *err)
{
    const struct options *o = g->o;
    lam_session *session;
    lam_code code = begin_session(all, o, &session, err);
    if (code != LAM_OK) return code;
    g->n_before = lam_session_length(session);
    double start = now_seconds();
    code = feed_prompt(o, session, tokens->ids, tokens->n, err);
    g->n_cached = lam_session_cached(session);
    double middle = now_seconds();
    if (code == LAM_OK && o->echo) code = echo(all, g, text, tokens, err);
    g->room = lam_session_context(session) - lam_session_length(session);
    g->n_most = (size_t)count_or(o->tokens, uses_template(o, all) ? SIZE_MAX : DEFAULT_TOKENS);
    if (code == LAM_OK && !process_signal())
        code = lam_generate_with(session, &all->sampling, &g->drafts, g->n_most, take_piece, g, &g->report, err);
    g->n_generated = g->report.n_tokens;
    g->prefill = middle - start;
    g->decode = now_seconds() - middle;
    if (code == LAM_OK && o->save_session) code = lam_session_save(session, o->save_session, err);
    lam_session_free(session);
    if (code != LAM_OK && !o->json && g->n_generated) print_now("\n");
    return code;
}

static void note_surprises(const struct options *o, const struct opened *all)
{
    if (!lam_composition_template_digest(all->composition) && !o->raw && !o->token_ids)
        note(o, "%s has no chat template: the prompt is the text to continue (as with --raw)", all->info.name);
    if (o->context.given && o->context.value > all->info.n_context)
        note(o, "a context of %zu tokens is beyond the %u that %s was made for", (size_t)o->context.value, all->info.n_context,
             all->info.name);
}

/* That the session can be saved at the end is known before there is anything to lose. */
static lam_code check_save(const struct options *o, const struct opened *all, lam_error *err)
{
    if (!o->save_session) return LAM_OK;
    lam_code code = check_not_source(o->save_session, o->model, err);
    if (code == LAM_OK) code = check_not_read(o, all, o->save_session, err);
    return code == LAM_OK ? check_replaceable(o->save_session, err) : code;
}

static int complete(struct options *o, struct opened *all)
{
    lam_error err;
    struct text text = {0};
    struct tokens tokens = {0};
    struct generation g = {.o = o};
    (void)draft_options(o, &g.drafts); /* cmd_run has looked at it */
    lam_code code = check_save(o, all, &err);
    if (code == LAM_OK) code = read_prompt(o, all, &text, &tokens, &err);
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
    lam_generate_options drafts;
    if (talk && (o->save_session || o->restore_session)) return usage(o, "a saved session needs a prompt: -p, --token-ids or standard input");
    if (!draft_options(o, &drafts)) return 2;
    int failed = choose_model(o, 0, 0, path);
    if (failed) return failed;
    lam_code code = open_all(o, &all, &err);
    if (code == LAM_OK) held_note_used(o, all.stack.model);
    int status = code != LAM_OK ? report(o, &err) : talk ? chat(o, &all) : complete(o, &all);
    close_all(&all);
    return status;
}
