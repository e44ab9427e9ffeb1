#define _POSIX_C_SOURCE 200809L

#include "default_model.h"

#include "first_launch.h"
#include "held.h"
#include "process.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHIPPED "stories260K-Q8_0.gguf"

static bool find_shipped(char *path)
{
    static const char *const places[] = {"/share/lamina/" SHIPPED, "/data/" SHIPPED}; /* in the folder above */
    if (!process_folder(path, MODEL_PATH)) return false;
    char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (len + strlen(places[i]) >= MODEL_PATH) return false;
        strcpy(path + len, places[i]);
        if (access(path, R_OK) == 0) return true;
    }
    return false;
}

/* $LAMINA_MODEL, or the shipped model's path in path, or NULL with a message. */
static const char *fallback(const struct options *o, char *path)
{
    const char *named = getenv("LAMINA_MODEL");
    if (named && *named) return named;
    uint64_t generation;
    if (held_active(o, path, &generation)) {
        note(o, "no model given: this is the store's active composition, generation %llu", (unsigned long long)generation);
        return path;
    }
    enum first_launch first = first_launch(o, path);
    if (first != FIRST_LAUNCH_NONE) return first == FIRST_LAUNCH_FOUND ? path : NULL;
    if (!find_shipped(path)) {
        usage(o, "no model: give -m FILE, or set LAMINA_MODEL");
        return NULL;
    }
    note(o, "no model given: this is the small one that ships with Lamina, %s", path);
    return path;
}

bool choose_model(struct options *o, size_t least, size_t most, char *path)
{
    if (!o->model && o->n_rest > least) {
        o->model = *o->rest++;
        o->bare_model = true;
        o->n_rest--;
    }
    if (o->n_rest > most) {
        usage(o, "unexpected argument \"%s\"%s", o->rest[most], strcmp(o->command, "run") == 0 ? "; a prompt is given with -p" : "");
        return false;
    }
    if (o->n_rest < least) {
        usage(o, "%s needs a FILE", o->command);
        return false;
    }
    o->unnamed_model = !o->model;
    if (!o->model) o->model = fallback(o, path);
    return o->model != NULL;
}
