/* The chat: each turn renders the whole conversation, keeps the part of the session that it shares, and feeds the rest. A switch of
 * adapters is a new composition and a new session; the conversation goes on. */
#define _POSIX_C_SOURCE 200809L

#include "chat.h"

#include "process.h"
#include "prompt.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RAW_TOKENS 128 /* of an answer without a chat template, unless -n is given */
#define LEAST_FREE 256 /* tokens that an answer leaves to the next message in a large context */

static bool add_message(struct chat *c, const char *role, const char *content)
{
    lam_message *longer = realloc(c->messages, (c->n_messages + 1) * sizeof *longer);
    char *copy = malloc(strlen(content) + 1);
    if (longer) c->messages = longer;
    if (!longer || !copy) {
        free(copy);
        return false;
    }
    strcpy(copy, content);
    c->messages[c->n_messages++] = (lam_message){role, copy};
    return true;
}

void chat_forget(struct chat *c, size_t keep)
{
    while (c->n_messages > keep) free((void *)c->messages[--c->n_messages].content);
}

static bool take_reply(void *context, const char *text, uint32_t token)
{
    struct chat *c = context;
    size_t n = strlen(text);
    char *longer = realloc(c->reply, c->reply_len + n + 1);
    if (!longer) return false;
    c->reply = longer;
    memcpy(c->reply + c->reply_len, text, n + 1);
    c->reply_len += n;
    if (c->n_fed < lam_session_length(c->session)) c->fed[c->n_fed++] = token;
    return print_now(text) && !process_signal();
}

/* Without a template the conversation is one text. */
static lam_code join_messages(const struct chat *c, char **text, lam_error *err)
{
    size_t len = 0;
    for (size_t i = 0; i < c->n_messages; i++) len += strlen(c->messages[i].content);
    char *at = *text = malloc(len + 1);
    if (!at) return fail_memory(err);
    *at = 0;
    for (size_t i = 0; i < c->n_messages; i++) {
        size_t n = strlen(c->messages[i].content);
        memcpy(at, c->messages[i].content, n + 1);
        at += n;
    }
    return LAM_OK;
}

static lam_code conversation(const struct chat *c, struct tokens *out, lam_error *err)
{
    char *text = NULL;
    bool template = uses_template(c->o, c->all);
    lam_code code = template ? lam_chat_format(c->all->composition, c->messages, c->n_messages, true, &text, err) : join_messages(c, &text, err);
    if (code != LAM_OK) return code;
    unsigned flags = LAM_TOKENIZE_SPECIAL | (template ? LAM_TOKENIZE_CONTROL : 0);
    code = lam_tokenize(c->all->base, text, strlen(text), flags, &out->ids, &out->n, err);
    if (template) lam_memory_free(text);
    else free(text);
    return code;
}

/* Brings the session to tokens, whose common beginning it keeps. At least the last token is fed anew, for its logits. */
static lam_code feed_difference(struct chat *c, const struct tokens *t, lam_error *err)
{
    size_t same = 0, context = lam_session_context(c->session);
    if (t->n >= context)
        return fail(err, LAM_E_CONTEXT, "with this message the conversation has %zu tokens, the context room for %zu: /reset begins anew, "
                    "-c sets the context; nothing was changed", t->n, context);
    while (same < c->n_fed && same + 1 < t->n && c->fed[same] == t->ids[same]) same++;
    lam_code code = lam_session_truncate(c->session, same, err);
    if (code == LAM_OK) code = feed_prompt(c->o, c->session, t->ids + same, t->n - same, err);
    c->n_fed = lam_session_length(c->session);
    memcpy(c->fed, t->ids, c->n_fed * sizeof *c->fed);
    return code;
}

static lam_code begin_session(struct chat *c, lam_error *err)
{
    if (c->session) return LAM_OK;
    lam_code code = lam_session_new(c->all->composition, (size_t)count_or(c->o->context, 0), &c->session, err);
    if (code != LAM_OK) return code;
    free(c->fed);
    c->n_fed = 0;
    c->fed = malloc(lam_session_context(c->session) * sizeof *c->fed);
    return c->fed ? LAM_OK : fail_memory(err);
}

/* How many tokens an answer may have without -n: the next message finds a quarter of the context (LEAST_FREE at most), or else half of what
 * is left. A model without a template need not end by itself. */
static size_t answer_limit(const struct chat *c)
{
    size_t context = lam_session_context(c->session), room = context - lam_session_length(c->session);
    size_t keep = context / 4 < LEAST_FREE ? context / 4 : LEAST_FREE;
    size_t most = room - (keep < room / 2 ? keep : room / 2);
    return !uses_template(c->o, c->all) && most > RAW_TOKENS ? RAW_TOKENS : most;
}

/* Why the answer ended, where that was neither its own end nor what -n or the default allows to each. */
static void print_ending(const struct chat *c, bool at_limit, size_t limit)
{
    size_t used = lam_session_length(c->session), context = lam_session_context(c->session);
    bool plain = c->o->tokens.given || (!uses_template(c->o, c->all) && limit == RAW_TOKENS);
    if (process_signal()) fprintf(c->talk, "(stopped)\n");
    else if (used == context) fprintf(c->talk, "(the context of %zu tokens is full: /reset begins anew, -c sets it)\n", context);
    else if (at_limit && !plain)
        fprintf(c->talk, "(stopped to leave room: %zu of %zu tokens of the context are used; /reset begins anew, -c sets it)\n", used, context);
}

static lam_code generate(struct chat *c, lam_error *err)
{
    size_t generated = 0, limit = (size_t)count_or(c->o->tokens, answer_limit(c));
    c->reply_len = 0;
    if (c->colour) fputs("\033[36m", stdout);
    lam_generate_options drafts;
    lam_generate_report report;
    (void)draft_options(c->o, &drafts);
    lam_code code = lam_generate_with(c->session, &c->all->sampling, &drafts, limit, take_reply, c, &report, err);
    generated = report.n_tokens;
    print_now(c->colour ? "\033[0m\n" : "\n");
    if (code != LAM_OK) return code;
    print_ending(c, generated == limit, limit);
    return add_message(c, "assistant", c->reply_len ? c->reply : "") ? LAM_OK : fail_memory(err);
}

/* Ctrl-C is held: it ends the prompt's feeding or the answer, and no more. */
static lam_code answer(struct chat *c, lam_error *err)
{
    struct tokens tokens = {0};
    process_forget_signal();
    process_hold_signals();
    lam_code code = begin_session(c, err);
    if (code == LAM_OK) code = conversation(c, &tokens, err);
    if (code == LAM_OK) code = feed_difference(c, &tokens, err);
    if (code == LAM_OK) code = generate(c, err);
    process_release_signals();
    lam_memory_free(tokens.ids);
    return code;
}

static lam_code turn(struct chat *c, char *line, lam_error *err)
{
    size_t before = c->n_messages, blanks = strspn(line, " \t"), end = strlen(line);
    if (!line[blanks]) return LAM_OK;
    if (line[blanks] == '/') {
        while (line[end - 1] == ' ' || line[end - 1] == '\t') line[--end] = 0;
        return chat_command(c, line + blanks, err);
    }
    lam_code code = add_message(c, "user", line) ? answer(c, err) : fail_memory(err);
    if (code != LAM_OK) chat_forget(c, before); /* the turn never happened */
    return code;
}

/* One line, or several of which all but the last end in a backslash, without line ends, to *line (owned, replaced). False at the end of
 * input and after Ctrl-C. */
static bool read_input(const struct chat *c, char **line)
{
    char *part = NULL;
    size_t room = 0, len = 0;
    bool more = true;
    while (more) {
        fputs(len ? "... " : "> ", c->talk);
        fflush(c->talk);
        ssize_t n = process_wait_input() ? getline(&part, &room, stdin) : -1;
        if (n < 0) break;
        while (n && (part[n - 1] == '\n' || part[n - 1] == '\r')) n--;
        char *longer = realloc(*line, len + (size_t)n + 1);
        if (!longer) break;
        *line = longer;
        memcpy(longer + len, part, (size_t)n);
        len += (size_t)n;
        longer[len] = 0;
        more = n && part[n - 1] == '\\';
        if (more) longer[len - 1] = '\n';
    }
    free(part);
    return !more;
}

/* The same; Ctrl-C throws away what was typed: once with a hint, twice in a row it is the end. */
static bool read_line(const struct chat *c, char **line)
{
    for (int interrupts = 0; interrupts < 2; interrupts++) {
        process_forget_signal();
        process_hold_signals();
        bool got = read_input(c, line);
        process_release_signals();
        if (!process_signal()) {
            if (!got) fprintf(c->talk, "\n");
            return got;
        }
        fprintf(c->talk, "\n%s", interrupts ? "" : "(Ctrl-D or /quit leaves, so does another Ctrl-C)\n");
    }
    return false;
}

static void greet(const struct chat *c)
{
    if (c->o->quiet) return;
    chat_print_composition(c);
    if (!lam_composition_template_digest(c->all->composition))
        fprintf(c->talk, "This model has no chat template: it continues what you write, as text (as with --raw)%s.\n",
                c->o->tokens.given ? "" : ", by 128 tokens at most (-n)");
    fprintf(c->talk, "/help lists the commands.\n");
}

int chat(struct options *o, struct opened *all)
{
    struct chat c = {.o = o, .all = all, .talk = isatty(STDOUT_FILENO) ? stdout : stderr, .colour = colours(stdout)};
    char *line = NULL;
    int status = 0;
    lam_error err = {0};
    if (check_system(o, all, &err) != LAM_OK) return report(o, &err);
    greet(&c);
    if (all->stack.m->prompt && uses_template(o, all)) c.done = !add_message(&c, "system", all->stack.m->prompt);
    while (!c.done && !ferror(stdout) && read_line(&c, &line)) {
        if (turn(&c, line, &err) == LAM_OK) continue;
        report(o, &err);
        /* A base that changed stays changed. */
        if (err.code == LAM_E_CHANGED) c.done = (status = 1);
    }
    chat_forget(&c, 0);
    free(c.messages);
    free(c.reply);
    free(c.fed);
    free(line);
    lam_session_free(c.session);
    return status;
}
