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

/* o->model as $LAMINA_MODEL, or as what is found, written to path. An exit status. */
static int fall_back(struct options *o, char *path)
{
    const char *named = getenv("LAMINA_MODEL");
    o->model = named && *named ? named : path;
    if (o->model == named) return 0;
    uint64_t generation;
    lam_error err;
    if (held_active(o, path, &generation, &err) != LAM_OK) return report(o, &err);
    if (generation) {
        note(o, "no model given: this is the store's active composition, generation %llu", (unsigned long long)generation);
        return 0;
    }
    enum first_launch first = first_launch(o, path);
    if (first != FIRST_LAUNCH_NONE) return first == FIRST_LAUNCH_FOUND ? 0 : 1;
    if (!find_shipped(path)) return usage(o, "no model: give -m FILE, or set LAMINA_MODEL");
    note(o, "no model given: this is the small one that ships with Lamina, %s", path);
    return 0;
}

int choose_model(struct options *o, size_t least, size_t most, char *path)
{
    if (!o->model && o->n_rest > least) {
        o->model = *o->rest++;
        o->bare_model = true;
        o->n_rest--;
    }
    if (o->n_rest > most)
        return usage(o, "unexpected argument \"%s\"%s", o->rest[most], strcmp(o->command, "run") == 0 ? "; a prompt is given with -p" : "");
    if (o->n_rest < least) return usage(o, "%s needs a FILE", o->command);
    o->unnamed_model = !o->model;
    return o->model ? 0 : fall_back(o, path);
}
