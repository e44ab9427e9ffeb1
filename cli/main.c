/* lamina: the command line. Each command is a file of its own, cmd_<name>.c. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "process.h"
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int unknown_command(const struct options *o, const char *name, const struct command *near)
{
    const char *dot = strrchr(name, '.');
    bool file = (dot && (strcmp(dot, ".gguf") == 0 || strcmp(dot, ".slm") == 0)) || access(name, F_OK) == 0;
    if (file) return usage(o, "no command \"%s\"; lamina run %s runs a model", name, name);
    if (strcmp(name, "chat") == 0) return usage(o, "no command \"chat\"; lamina run MODEL chats, on a terminal");
    if (near) return usage(o, "no command \"%s\"; did you mean %s?", name, near->name);
    return usage(o, "no command \"%s\"", name);
}

static int help(const struct options *o, const char *name)
{
    const struct command *near, *c = name ? command_find(name, &near) : NULL;
    if (name && !c) return unknown_command(o, name, near);
    if (c) command_print_help(c);
    else commands_print_overview();
    return 0;
}

static int run_command(const struct command *c, int argc, char **argv)
{
    struct options o;
    int status = 2;
    if (options_parse(argc, argv, 2, c->name, c->options, &o)) {
        process_watch_signals(o.json);
        status = o.help ? help(&o, c->name) : c->run(&o);
    }
    options_release(&o);
    return status;
}

static int dispatch(int argc, char **argv)
{
    const struct options none = {.json = options_want_json(argc, argv, 1)};
    const struct command *near, *c;
    if (argc < 2) return usage(&none, "which command? lamina help lists them");
    const char *first = argv[1];
    if (strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        return help(&none, argc > 2 ? argv[2] : NULL);
    if (strcmp(first, "--version") == 0 || strcmp(first, "version") == 0) {
        printf("lamina %s\n", lam_version());
        return 0;
    }
    c = command_find(first, &near);
    return c ? run_command(c, argc, argv) : unknown_command(&none, first, near);
}

int main(int argc, char **argv)
{
    process_keep_streams();
    int status = close_output(dispatch(argc, argv));
    return process_signal() ? 128 + process_signal() : status;
}
