#define _POSIX_C_SOURCE 200809L

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

static volatile sig_atomic_t caught, held, json_wanted; /* held: how often */

static const int endings[] = {SIGINT, SIGTERM, SIGHUP};

/* Opened the wrong way round on purpose: writing to the stand-in for standard output fails, as on a closed one. */
void process_keep_streams(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) < 0) _exit(1);
}

static void on_ending(int number)
{
    if (!held || caught) _exit(128 + number);
    caught = number;
}

static void on_bus_error(int number)
{
    static const char text[] = "\nlamina: a model file was truncated or its disk failed while in use (LAM_E_CHANGED)\n";
    static const char json[] = "{\n  \"error\": {\n    \"code\": 33,\n    \"name\": \"LAM_E_CHANGED\",\n"
                               "    \"message\": \"a model file was truncated or its disk failed while in use\"\n  }\n}\n";
    (void)number;
    if ((json_wanted ? write(STDOUT_FILENO, json, sizeof json - 1) : write(STDERR_FILENO, text, sizeof text - 1)) < 0) _exit(1);
    _exit(1);
}

static void install(int number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, NULL);
}

void process_watch_signals(bool json)
{
    json_wanted = json;
    install(SIGBUS, on_bus_error);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        struct sigaction before; /* a signal that our caller ignores, as nohup does, stays ignored */
        if (sigaction(endings[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) install(endings[i], on_ending);
    }
}

void process_hold_signals(void) { held++; }
void process_release_signals(void) { held--; }

/* Blocked until pselect waits, so that none can come unseen between the look and the wait. */
bool process_wait_input(void)
{
    sigset_t blocked, before;
    fd_set input;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) sigaddset(&blocked, endings[i]);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    FD_ZERO(&input);
    FD_SET(STDIN_FILENO, &input);
    while (!caught && pselect(STDIN_FILENO + 1, &input, NULL, NULL, NULL, &before) < 0 && errno == EINTR) FD_SET(STDIN_FILENO, &input);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return !caught;
}

int process_signal(void) { return caught; }
void process_forget_signal(void) { caught = 0; }

bool process_folder(char *path, unsigned long room)
{
    ssize_t n = readlink("/proc/self/exe", path, room - 1);
    if (n <= 0 || (unsigned long)n >= room - 1) return false;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

/* A field in KiB of a file of /proc/self. */
static double proc_bytes(const char *path, const char *field)
{
    FILE *f = fopen(path, "r");
    char line[256];
    double kib = 0.0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0) kib = strtod(line + strlen(field), NULL);
    if (f) fclose(f);
    return kib * 1024.0;
}

double process_peak_bytes(void) { return proc_bytes("/proc/self/status", "VmHWM:"); }
double process_anonymous_bytes(void) { return proc_bytes("/proc/self/smaps_rollup", "Anonymous:"); }
