#define _POSIX_C_SOURCE 200809L

#include "search.h"

#include "report.h"

#include "lamina/lamina.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One part of a manifest. */
struct part {
    const char *what;          /* "base, stories", "adapter 1, oz" */
    const char *digest, *file; /* as in the manifest; file may be NULL */
    const char *digest_key;    /* where lam_inspect tells it */
};

bool is_slm(const char *name)
{
    size_t len = strlen(name);
    return len > 4 && strcmp(name + len - 4, ".slm") == 0;
}

static char *join(const char *folder, const char *name)
{
    size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", folder, name);
    return path;
}

/* A file that cannot be looked into is none of this digest. */
static bool has_digest(const char *path, const struct part *p)
{
    char *text;
    lam_error err;
    if (lam_inspect(path, false, &text, &err) != LAM_OK) return false;
    json_t *found = json_loads(text, 0, NULL);
    const char *digest = json_string_value(json_object_get(found, p->digest_key));
    bool same = digest && strcmp(digest, p->digest) == 0;
    json_decref(found);
    lam_memory_free(text);
    return same;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static lam_code no_folder(const char *folder, lam_error *err)
{
    return fail(err, errno == ENOENT ? LAM_E_NOT_FOUND : errno == ENOMEM ? LAM_E_NO_MEMORY : LAM_E_IO, "--search %s: %s", folder, strerror(errno));
}

/* The part in one folder, of several the first by name; *out is NULL if it is not there. */
static lam_code look_in(const char *folder, const struct part *p, char **out, lam_error *err)
{
    struct dirent **names;
    lam_code code = LAM_OK;
    *out = p->file && !is_slm(p->file) ? join(folder, last_name(p->file)) : NULL;
    if (*out && access(*out, F_OK) == 0) return LAM_OK;
    free(*out);
    *out = NULL;
    int n = scandir(folder, &names, NULL, alphasort);
    if (n < 0) return no_folder(folder, err);
    for (int i = 0; i < n; i++) {
        char *path = code == LAM_OK && !*out && is_slm(names[i]->d_name) ? join(folder, names[i]->d_name) : NULL;
        if (code == LAM_OK && !*out && is_slm(names[i]->d_name) && !path) code = fail_memory(err);
        if (path && has_digest(path, p)) *out = path;
        else free(path);
        free(names[i]);
    }
    free(names);
    return code;
}

/* Adds the part to those that are missing. */
static void not_found(const struct options *o, struct stack *s, const struct part *p, const char *own)
{
    char folders[200];
    lam_error err;
    int len = snprintf(folders, sizeof folders, "%.80s", own);
    for (size_t i = 0; i < o->search.n && len < 150; i++) len += snprintf(folders + len, sizeof folders - (size_t)len, ", %.80s", o->search.items[i]);
    fail(&err, LAM_E_NOT_FOUND, "%s: %s%.60s, and nothing of that digest is in %.200s; --search DIR looks elsewhere", p->digest,
         p->file ? "there is no " : "it names no file", p->file ? p->file : "", folders);
    lam_fault_list_add_error(&s->missing, p->what, &err);
}

static lam_code find(const struct options *o, struct stack *s, const struct part *p, const char **file, bool *missing, lam_error *err)
{
    const char *slash = strrchr(o->model, '/');
    if (p->file && access(p->file, F_OK) == 0) return LAM_OK;
    char *found = NULL, *own = slash ? strndup(o->model, slash == o->model ? 1 : (size_t)(slash - o->model)) : strdup(".");
    lam_code code = own ? LAM_OK : fail_memory(err);
    for (size_t i = 0; code == LAM_OK && !found && i <= o->search.n; i++) code = look_in(i ? o->search.items[i - 1] : own, p, &found, err);
    *missing = code == LAM_OK && !found;
    if (*missing) not_found(o, s, p, own);
    if (found && !(*file = stack_keep(s, found, strlen(found)))) code = fail_memory(err);
    free(found);
    free(own);
    return code;
}

lam_code check_folders(const struct options *o, lam_error *err)
{
    for (size_t i = 0; i < o->search.n; i++) {
        DIR *folder = opendir(o->search.items[i]);
        if (!folder) return no_folder(o->search.items[i], err);
        closedir(folder);
    }
    return LAM_OK;
}

lam_code search_parts(const struct options *o, struct stack *s, lam_error *err)
{
    lam_manifest *m = &s->made;
    const char *paths[MAX_ADAPTERS] = {NULL};
    char names[MAX_ADAPTERS][LAM_ADAPTER_NAME], what[LAM_ADAPTER_NAME + 32];
    snprintf(what, sizeof what, "base%s%.100s", m->base_name ? ", " : "", m->base_name ? m->base_name : "");
    struct part base = {what, m->base_digest, m->base_file, "base_digest"};
    lam_code code = find(o, s, &base, &m->base_file, &s->no_base, err);
    m->adapters = s->adapters;
    lam_manifest_names(m, paths, names);
    for (size_t i = 0; code == LAM_OK && i < m->n_adapters; i++) {
        lam_manifest_adapter *a = &s->adapters[i];
        snprintf(what, sizeof what, "adapter %zu%s%.111s", i + 1, names[i][0] ? ", " : "", names[i]);
        struct part part = {what, a->digest, a->file, "adapter_digest"};
        code = find(o, s, &part, &a->file, &s->no_adapter[i], err);
    }
    if (code != LAM_OK || s->missing.n + s->missing.n_more == 0) return code;
    if (s->missing.n != 1) return lam_fault_list_error(&s->missing, o->model, err);
    return fail(err, LAM_E_NOT_FOUND, "%.60s: %.100s: %s", o->model, s->missing.items[0].subject, s->missing.items[0].what);
}
