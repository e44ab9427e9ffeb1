/* The chat: each turn renders the whole conversation, keeps the part of the session that it shares, and feeds the rest. A switch of
 * adapters is a new composition and a new session; the conversation goes on. */
#define _POSIX_C_SOURCE 200809L

#include "chat.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TOKENS 512

volatile int interrupted;

static void on_interrupt(int number)
{
    (void)number;
    if (interrupted) _exit(130); /* a second Ctrl-C */
    interrupted = 1;
}

void watch_interrupts(void) { signal(SIGINT, on_interrupt); }

struct chat {
    struct options *o;
    struct opened *all;
    lam_session *session;
    uint32_t *fed;          /* tokens in the session */
    size_t n_fed;
    lam_message *messages;  /* contents owned */
    size_t n_messages;
    char *reply;
    size_t reply_len;
    bool colour;
};

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

static void forget(struct chat *c, size_t keep)
{
    while (c->n_messages > keep) free((void *)c->messages[--c->n_messages].content);
}

static bool take_reply(void *context, const char *text, uint32_t token)
{
    struct chat *c = context;
    size_t n = strlen(text);
    (void)token;
    char *longer = realloc(c->reply, c->reply_len + n + 1);
    if (!longer) return false;
    c->reply = longer;
    memcpy(c->reply + c->reply_len, text, n + 1);
    c->reply_len += n;
    fputs(text, stdout);
    fflush(stdout);
    return !interrupted;
}

/* The conversation in tokens: through the template, or as plain text for a model without one. */
static lam_code conversation(struct chat *c, uint32_t **tokens, size_t *n, lam_error *err)
{
    char *text = NULL;
    bool template = c->all->info.has_chat_template && !c->o->raw;
    lam_code code = LAM_OK;
    if (template) {
        code = lam_chat_format(c->all->base, c->messages, c->n_messages, true, &text, err);
    } else {
        size_t len = 0;
        for (size_t i = 0; i < c->n_messages; i++) len += strlen(c->messages[i].content);
        text = calloc(len + 1, 1);
        if (!text) return LAM_E_NO_MEMORY;
        for (size_t i = 0; i < c->n_messages; i++) strcat(text, c->messages[i].content);
    }
    unsigned flags = LAM_TOKENIZE_SPECIAL | (template ? LAM_TOKENIZE_CONTROL : 0);
    if (code == LAM_OK) code = lam_tokenize(c->all->base, text, strlen(text), flags, tokens, n, err);
    if (template) lam_memory_free(text);
    else free(text);
    return code;
}

/* Brings the session to tokens[n], whose common beginning it keeps. At least the last token is fed anew, for its logits. */
static lam_code feed_difference(struct chat *c, const uint32_t *tokens, size_t n, lam_error *err)
{
    size_t same = 0;
    while (same < c->n_fed && same + 1 < n && c->fed[same] == tokens[same]) same++;
    uint32_t *copy = malloc(n * sizeof *copy);
    if (!copy) return LAM_E_NO_MEMORY;
    memcpy(copy, tokens, n * sizeof *copy);
    lam_code code = lam_session_truncate(c->session, same, err);
    if (code == LAM_OK) code = lam_session_feed(c->session, tokens + same, n - same, NULL, NULL, err);
    free(c->fed);
    c->fed = copy;
    c->n_fed = code == LAM_OK ? n : same;
    return code;
}

static lam_code answer(struct chat *c, lam_error *err)
{
    uint32_t *tokens = NULL;
    size_t n = 0, generated = 0;
    lam_code code = LAM_OK;
    if (!c->session) {
        code = lam_session_new(c->all->composition, c->o->context, &c->session, err);
        c->n_fed = 0;
    }
    if (code == LAM_OK) code = conversation(c, &tokens, &n, err);
    if (code == LAM_OK) code = feed_difference(c, tokens, n, err);
    lam_memory_free(tokens);
    if (code != LAM_OK) return code;
    interrupted = 0;
    c->reply_len = 0;
    if (c->colour) fputs("\033[36m", stdout);
    code = lam_generate(c->session, &c->o->sampling, c->o->n_tokens ? c->o->n_tokens : DEFAULT_TOKENS, take_reply, c, &generated, err);
    fputs(c->colour ? "\033[0m\n" : "\n", stdout);
    interrupted = 0;
    if (code == LAM_OK && !add_message(c, "assistant", c->reply_len ? c->reply : "")) code = LAM_E_NO_MEMORY;
    return code;
}

/* A new composition of the adapters whose weights are not 0. */
static lam_code recompose(struct chat *c, lam_error *err)
{
    lam_adapter *list[MAX_ADAPTERS];
    double weights[MAX_ADAPTERS];
    size_t n = 0;
    lam_composition *composition;
    for (size_t i = 0; i < c->all->n_adapters; i++) {
        if (c->all->adapters[i].weight == 0.0) continue;
        list[n] = c->all->adapters[i].adapter;
        weights[n++] = c->all->adapters[i].weight;
    }
    lam_code code = lam_compose(c->all->base, list, weights, n, &composition, err);
    if (code != LAM_OK) return code;
    lam_session_free(c->session);
    c->session = NULL;
    lam_composition_free(c->all->composition);
    c->all->composition = composition;
    return LAM_OK;
}

static struct named_adapter *find_adapter(const struct chat *c, const char *name)
{
    for (size_t i = 0; i < c->all->n_adapters; i++) {
        lam_adapter_info info;
        lam_adapter_describe(c->all->adapters[i].adapter, &info);
        if (strcmp(info.name, name) == 0) return &c->all->adapters[i];
    }
    return NULL;
}

static void print_composition(const struct chat *c)
{
    printf("base %s\n", c->all->info.name);
    for (size_t i = 0; i < c->all->n_adapters; i++) {
        lam_adapter_info info;
        lam_adapter_describe(c->all->adapters[i].adapter, &info);
        printf("adapter %s, weight %g%s\n", info.name, c->all->adapters[i].weight, c->all->adapters[i].weight == 0.0 ? " (off)" : "");
    }
    printf("composition %s\n", lam_composition_id(c->all->composition));
}

/* /adapter NAME[=W]: a loaded adapter by its name, else a file. The weights change only if the composition can be made. */
static lam_code use_adapter(struct chat *c, const char *text, lam_error *err)
{
    struct adapter_option option;
    if (!adapter_option_parse(text, &option)) return LAM_E_NO_MEMORY;
    struct named_adapter *a = find_adapter(c, option.path);
    size_t loaded = c->all->n_adapters;
    lam_code code = LAM_OK;
    if (!a) {
        code = open_adapter(c->o, c->all, &option, err);
        a = &c->all->adapters[loaded];
    }
    free(option.path);
    if (code != LAM_OK) return code;
    double before = c->all->n_adapters > loaded ? 0.0 : a->weight, start = now_seconds();
    a->weight = option.weight;
    code = isfinite(option.weight) ? recompose(c, err) : LAM_E_ARGUMENT;
    if (code != LAM_OK) a->weight = before;
    else printf("switched in %.3f ms\n", (now_seconds() - start) * 1e3);
    return code;
}

static lam_code use_base(struct chat *c, lam_error *err)
{
    double start = now_seconds();
    for (size_t i = 0; i < c->all->n_adapters; i++) c->all->adapters[i].weight = 0.0;
    lam_code code = recompose(c, err);
    if (code == LAM_OK) printf("switched in %.3f ms\n", (now_seconds() - start) * 1e3);
    return code;
}

/* A line that begins with '/'. *done is set by /quit. */
static lam_code command(struct chat *c, const char *line, bool *done, lam_error *err)
{
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0) {
        *done = true;
    } else if (strcmp(line, "/id") == 0) {
        print_composition(c);
    } else if (strcmp(line, "/base") == 0) {
        return use_base(c, err);
    } else if (strcmp(line, "/reset") == 0) {
        forget(c, c->o->system ? 1 : 0);
    } else if (strncmp(line, "/adapter ", 9) == 0) {
        return use_adapter(c, line + 9, err);
    } else {
        printf("/adapter NAME[=W]  lay a loaded adapter, or a file, over the base with weight W (0: off)\n"
               "/base              the base alone\n/id                what is composed, and its id\n"
               "/reset             forget the conversation\n/quit              leave (also Ctrl-D)\nCtrl-C stops an answer.\n");
    }
    return LAM_OK;
}

static lam_code turn(struct chat *c, const char *line, bool *done, lam_error *err)
{
    size_t before = c->n_messages;
    *err = (lam_error){.code = LAM_E_NO_MEMORY, .message = "out of memory"};
    if (line[0] == '/') return command(c, line, done, err);
    if (!line[0]) return LAM_OK;
    lam_code code = add_message(c, "user", line) ? answer(c, err) : LAM_E_NO_MEMORY;
    if (code != LAM_OK) forget(c, before); /* the turn never happened */
    return code;
}

int chat(struct options *o, struct opened *all)
{
    struct chat c = {.o = o, .all = all, .colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR")};
    char *line = NULL;
    size_t room = 0;
    bool done = false;
    lam_error err;
    if (!o->quiet) {
        print_composition(&c);
        printf("/help lists the commands\n");
    }
    if (o->system) done = !add_message(&c, "system", o->system);
    while (!done) {
        fputs("> ", stdout);
        fflush(stdout);
        ssize_t n = getline(&line, &room, stdin);
        if (n < 0) break;
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (turn(&c, line, &done, &err) != LAM_OK) report(o, &err);
    }
    printf("\n");
    forget(&c, 0);
    free(c.messages);
    free(c.reply);
    free(c.fed);
    free(line);
    lam_session_free(c.session);
    return 0;
}
