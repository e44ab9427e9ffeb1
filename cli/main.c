/* lamina: the command line. Each command is a file of its own, cmd_<name>.c. */
#include "commands.h"
#include "process.h"
#include "report.h"

#include <stdio.h>
#include <string.h>

static int unknown_command(const char *name, const struct command *near)
{
    const struct options none = {0};
    if (near) return usage(&none, "no command \"%s\"; did you mean %s?", name, near->name);
    return usage(&none, "no command \"%s\"", name);
}

static int help(const char *name)
{
    const struct command *near, *c = name ? command_find(name, &near) : NULL;
    if (name && !c) return unknown_command(name, near);
    if (c) command_print_help(c);
    else commands_print_overview();
    return 0;
}

static int run_command(int argc, char **argv)
{
    struct options o;
    const struct command *near, *c = command_find(argv[1], &near);
    int status = 2;
    if (!c) return unknown_command(argv[1], near);
    if (options_parse(argc, argv, 2, c->name, c->options, &o)) {
        process_watch_signals(o.json);
        status = o.help ? help(c->name) : c->run(&o);
    }
    options_release(&o);
    return status;
}

static int dispatch(int argc, char **argv)
{
    const struct options none = {0};
    if (argc < 2) return usage(&none, "which command? lamina help lists them");
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return help(argc > 2 ? argv[2] : NULL);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("lamina %s\n", lam_version());
        return 0;
    }
    return run_command(argc, argv);
}

int main(int argc, char **argv)
{
    process_keep_streams();
    int status = close_output(dispatch(argc, argv));
    return process_signal() ? 128 + process_signal() : status;
}
