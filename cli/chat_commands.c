#define _POSIX_C_SOURCE 200809L

#include "chat.h"

#include "report.h"
#include "suggest.h"
#include "waived.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_adapters(const struct chat *c)
{
    for (size_t i = 0; i < c->all->n_adapters; i++) {
        const struct named_adapter *a = &c->all->adapters[i];
        fprintf(c->talk, "adapter      %s, weight %g%s\n", a->name, a->weight, a->weight == 0.0 ? " (off)" : "");
    }
}

void chat_print_composition(const struct chat *c)
{
    fprintf(c->talk, "base         %s\n", c->all->info.name);
    print_adapters(c);
    fprintf(c->talk, "composition  %s\n", lam_composition_id(c->all->composition));
    print_standing(c->talk, c->all, 12);
    print_kv_format(c->talk, c->o, c->all);
    if (c->o->verify == LAM_VERIFY_OFF) fprintf(c->talk, "bytes        unverified\n");
    print_waived(c->talk, c->all);
}

/* A new composition of the adapters whose weights are not 0; the session of the old one ends. */
static lam_code recompose(struct chat *c, lam_error *err)
{
    lam_composition *composition;
    double start = now_seconds();
    lam_code code = compose(c->all, true, &composition, err);
    if (code != LAM_OK) return code;
    lam_session_free(c->session);
    c->session = NULL;
    lam_composition_free(c->all->composition);
    c->all->composition = composition;
    fprintf(c->talk, "switched in %.3f ms: base %s", (now_seconds() - start) * 1e3, c->all->info.name);
    for (size_t i = 0; i < c->all->n_adapters; i++)
        if (c->all->adapters[i].weight != 0.0) fprintf(c->talk, " + %g x %s", c->all->adapters[i].weight, c->all->adapters[i].name);
    fprintf(c->talk, "\n");
    return LAM_OK;
}

static struct named_adapter *find_adapter(const struct chat *c, const char *name)
{
    for (size_t i = 0; i < c->all->n_adapters; i++)
        if (strcmp(c->all->adapters[i].name, name) == 0) return &c->all->adapters[i];
    return NULL;
}

/* No loaded adapter and no file has this name: says what there is. */
static lam_code unknown_adapter(const struct chat *c, const char *name, lam_error *err)
{
    char names[256] = "";
    const char *best = NULL;
    for (size_t i = 0; i < c->all->n_adapters; i++) {
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", c->all->adapters[i].name);
        best = nearer_word(name, best, c->all->adapters[i].name);
    }
    return fail(err, LAM_E_NOT_FOUND, "no adapter and no file is called \"%.100s\"%s%.60s%s; loaded: %s", name,
                best ? " (did you mean " : "", best ? best : "", best ? "?)" : "", names[0] ? names : "none");
}

/* The one loaded before the last that is the same adapter as it, or NULL. */
static struct named_adapter *loaded_before(const struct chat *c)
{
    lam_adapter_info last, other;
    size_t n = c->all->n_adapters - 1;
    lam_adapter_describe(c->all->adapters[n].adapter, &last);
    for (size_t i = 0; i < n; i++) {
        lam_adapter_describe(c->all->adapters[i].adapter, &other);
        if (strcmp(last.digest, other.digest) == 0) return &c->all->adapters[i];
    }
    return NULL;
}

/* The adapter of this name, loaded from a file if need be: then *loaded. */
static lam_code obtain(struct chat *c, const struct adapter_option *option, struct named_adapter **out, bool *loaded, lam_error *err)
{
    *loaded = false;
    *out = find_adapter(c, option->path);
    if (*out) return LAM_OK;
    lam_code code = open_adapter(c->o, c->all, option, err);
    if (code == LAM_E_NOT_FOUND) return unknown_adapter(c, option->path, err);
    if (code != LAM_OK) return code;
    *out = loaded_before(c);
    if (*out) {
        drop_adapter(c->all);
        return LAM_OK;
    }
    *out = &c->all->adapters[c->all->n_adapters - 1];
    *loaded = true;
    return LAM_OK;
}

static bool is_number(const char *text)
{
    double value;
    return read_real(text, &value);
}

/* "NAME W" for NAME=W, and a weight that is no number behind a loaded adapter's name. */
static lam_code check_spelling(const struct chat *c, const char *text, lam_error *err)
{
    char front[256];
    const char *blank = strrchr(text, ' '), *equals = strrchr(text, '=');
    if (find_adapter(c, text) || access(text, F_OK) == 0) return LAM_OK;
    if (blank && is_number(blank + 1)) {
        int n = (int)(blank - text);
        while (n && strchr(" \t", text[n - 1])) n--;
        return fail(err, LAM_E_ARGUMENT, "the weight stands behind a '=', without blanks: /adapter %.*s=%s", n, text, blank + 1);
    }
    snprintf(front, sizeof front, "%.*s", equals ? (int)(equals - text) : 0, text);
    if (equals && find_adapter(c, front) && !is_number(equals + 1))
        return fail(err, LAM_E_ARGUMENT, "%s: the weight \"%.100s\" is not a number", front, equals + 1);
    return LAM_OK;
}

/* A copy of path, in which the home folder stands for a "~" in front; owned. */
static char *expand_home(const char *path)
{
    const char *home = strncmp(path, "~/", 2) == 0 ? getenv("HOME") : NULL;
    size_t room = (home ? strlen(home) : 0) + strlen(path) + 1;
    char *out = malloc(room);
    if (out) snprintf(out, room, "%s%s", home ? home : "", home ? path + 1 : path);
    return out;
}

/* NAME[=W]: a loaded adapter by its name, else a file. Nothing changes unless the composition can be made. */
static lam_code use_adapter(struct chat *c, const char *text, lam_error *err)
{
    struct adapter_option option = {0};
    struct named_adapter *a = NULL;
    bool loaded = false;
    lam_code code = check_spelling(c, text, err);
    if (code == LAM_OK) code = adapter_option_parse(text, &option, err);
    if (code == LAM_OK) code = obtain(c, &option, &a, &loaded, err);
    free(option.path);
    if (code != LAM_OK) return code;
    double before = a->weight;
    a->weight = option.weight;
    code = recompose(c, err);
    if (code != LAM_OK) a->weight = before;
    if (code != LAM_OK && loaded) drop_adapter(c->all);
    return code;
}

static lam_code do_adapter(struct chat *c, const char *argument, lam_error *err)
{
    if (*argument) {
        char *path = expand_home(argument);
        lam_code code = path ? use_adapter(c, path, err) : fail_memory(err);
        free(path);
        return code;
    }
    print_adapters(c);
    if (!c->all->n_adapters) fprintf(c->talk, "no adapter is loaded; /adapter FILE loads one\n");
    return LAM_OK;
}

static lam_code do_base(struct chat *c, const char *argument, lam_error *err)
{
    (void)argument;
    for (size_t i = 0; i < c->all->n_adapters; i++) c->all->adapters[i].weight = 0.0;
    return recompose(c, err);
}

static lam_code do_id(struct chat *c, const char *argument, lam_error *err)
{
    (void)argument, (void)err;
    chat_print_composition(c);
    return LAM_OK;
}

static lam_code do_reset(struct chat *c, const char *argument, lam_error *err)
{
    (void)argument, (void)err;
    chat_forget(c, c->n_messages && strcmp(c->messages[0].role, "system") == 0 ? 1 : 0);
    fprintf(c->talk, "the conversation is forgotten\n");
    return LAM_OK;
}

static lam_code do_quit(struct chat *c, const char *argument, lam_error *err)
{
    (void)argument, (void)err;
    c->done = true;
    return LAM_OK;
}

static lam_code do_help(struct chat *c, const char *argument, lam_error *err);

static const struct {
    const char *name, *argument, *help;
    lam_code (*run)(struct chat *c, const char *argument, lam_error *err);
} commands[] = {
    {"/adapter", "NAME[=W]", "lay a loaded adapter, or a file, over the base with weight W (1; 0 is off);\nalone: list them", do_adapter},
    {"/base", "", "the base alone", do_base},
    {"/id", "", "what is composed, and its id", do_id},
    {"/reset", "", "forget the conversation", do_reset},
    {"/help", "", "this list", do_help},
    {"/quit", "", "leave (also Ctrl-D)", do_quit},
    {"/exit", "", "the same", do_quit},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static lam_code do_help(struct chat *c, const char *argument, lam_error *err)
{
    (void)argument, (void)err;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const char *more = strchr(commands[i].help, '\n');
        fprintf(c->talk, "%-9s%-10s%.*s\n", commands[i].name, commands[i].argument,
                (int)(more ? more - commands[i].help : (long)strlen(commands[i].help)), commands[i].help);
        if (more) fprintf(c->talk, "%19s%s\n", "", more + 1);
    }
    fprintf(c->talk, "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.\n");
    return LAM_OK;
}

lam_code chat_command(struct chat *c, const char *line, lam_error *err)
{
    char name[32];
    const char *best = NULL, *argument = line + strcspn(line, " \t");
    snprintf(name, sizeof name, "%.*s", (int)(argument - line), line);
    argument += strspn(argument, " \t");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        best = nearer_word(name, best, commands[i].name);
        if (strcmp(name, commands[i].name) != 0) continue;
        if (*argument && !*commands[i].argument) return fail(err, LAM_E_ARGUMENT, "%s takes nothing behind it", name);
        return commands[i].run(c, argument, err);
    }
    if (best) return fail(err, LAM_E_ARGUMENT, "no command %s; did you mean %s? /help lists them", name, best);
    return fail(err, LAM_E_ARGUMENT, "no command %s; /help lists them", name);
}
