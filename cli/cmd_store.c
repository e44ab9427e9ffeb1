/* lamina store: the models, adapters and compositions that are kept, and which composition is active. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "progress.h"
#include "report.h"
#include "suggest.h"

#include "lamina/pull.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One call of the command. */
struct call {
    struct options *o;
    lam_store *store;
    struct progress progress;
    char **arguments;   /* behind the subcommand's name */
    size_t n;
    lam_error err;
};

static bool step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    struct call *c = context;
    return progress_step(&c->progress, stage, done, total);
}

static const char *short_digest(const char *digest) { return *digest ? digest + 7 : "-"; }

/* The error, with the name that was probably meant. */
static int refuse(struct call *c, const char *reference)
{
    lam_store_entry *entries;
    size_t n;
    const char *near = NULL;
    char help[200];
    if (!reference || c->err.code != LAM_E_NOT_FOUND || lam_store_list(c->store, &entries, &n, NULL) != LAM_OK) return report(c->o, &c->err);
    for (size_t i = 0; i < n; i++)
        if (entries[i].name) near = nearer_word(reference, near, entries[i].name);
    if (near) {
        snprintf(help, sizeof help, "did you mean %.128s?", near);
        hint(&c->err, help);
    } else {
        hint(&c->err, "`lamina store list` tells what there is");
    }
    lam_store_free_list(entries, n);
    return report(c->o, &c->err);
}

/* ---- list and show ---- */

static const char *entry_name(const lam_store_entry *e) { return e->name ? e->name : "(no name)"; }

static json_t *entry_json(const lam_store_entry *e)
{
    return json_pack("{s:s?,s:s,s:s,s:s?,s:I,s:b,s:s?}", "name", e->name, "digest", e->digest, "kind", lam_store_kind_name(e->kind), "id",
                     e->id[0] ? e->id : NULL, "bytes", (json_int_t)e->bytes, "active", e->active, "damage",
                     e->damage == LAM_OK ? NULL : lam_code_name(e->damage));
}

static int list_json(struct call *c, const lam_store_entry *entries, size_t n, const lam_store_state *active)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, entry_json(&entries[i]));
    return print_json(c->o, json_pack("{s:s,s:I,s:o}", "store", lam_store_where(c->store), "generation", (json_int_t)active->generation, "entries",
                                      list));
}

static int list(struct call *c)
{
    lam_store_entry *entries;
    lam_store_state active;
    size_t n;
    int width = 4;
    if (lam_store_active(c->store, &active, &c->err) != LAM_OK || lam_store_list(c->store, &entries, &n, &c->err) != LAM_OK) return refuse(c, NULL);
    int status = 0;
    if (c->o->json) {
        status = list_json(c, entries, n, &active);
    } else {
        for (size_t i = 0; i < n; i++)
            if ((int)strlen(entry_name(&entries[i])) > width) width = (int)strlen(entry_name(&entries[i]));
        for (size_t i = 0; i < n; i++) {
            const lam_store_entry *e = &entries[i];
            printf("%c %-*s  %-11s  %.12s  %9.2f MB  %s%.12s\n", e->active ? '*' : ' ', width, entry_name(e),
                   e->damage == LAM_OK ? lam_store_kind_name(e->kind) : "damaged", short_digest(e->digest), (double)e->bytes / 1e6,
                   e->damage == LAM_OK ? "" : lam_code_name(e->damage), e->damage == LAM_OK ? short_digest(e->id) : "");
        }
        printf("%zu in %s", n, lam_store_where(c->store));
        if (active.generation) printf(", generation %llu is active", (unsigned long long)active.generation);
        printf("\n");
    }
    lam_store_free_list(entries, n);
    return status;
}

static void print_layers(const json_t *manifest)
{
    size_t i;
    json_t *layer;
    json_array_foreach(json_object_get(manifest, "layers"), i, layer) {
        const json_t *notes = json_object_get(layer, "annotations");
        const char *title = json_string_value(json_object_get(notes, "org.opencontainers.image.title"));
        printf("blob         %s  %9.2f MB  %s\n", json_string_value(json_object_get(layer, "digest")),
               (double)json_integer_value(json_object_get(layer, "size")) / 1e6, title ? title : "");
    }
}

static void print_composition(const json_t *composition)
{
    size_t i;
    json_t *adapter, *base = json_object_get(composition, "base");
    const char *name = json_string_value(json_object_get(base, "name"));
    if (!composition) return;
    printf("base         %s  %s\n", json_string_value(json_object_get(base, "digest")), name ? name : "");
    json_array_foreach(json_object_get(composition, "adapters"), i, adapter) {
        const char *called = json_string_value(json_object_get(adapter, "name")), *rule = json_string_value(json_object_get(adapter, "rule"));
        printf("adapter %-4zu %s  %s=%.6g%s\n", i + 1, json_string_value(json_object_get(adapter, "digest")), called ? called : "?",
               json_number_value(json_object_get(adapter, "weight")), rule && strcmp(rule, "replace") == 0 ? ",replace" : "");
    }
}

static int show(struct call *c)
{
    char *text;
    if (lam_store_show(c->store, c->arguments[0], &text, &c->err) != LAM_OK) return refuse(c, c->arguments[0]);
    json_t *parsed = json_loads(text, 0, NULL), *about = printable(parsed);
    json_decref(parsed);
    lam_memory_free(text);
    if (!about) return fail_memory(&c->err), report(c->o, &c->err);
    if (c->o->json) return print_json(c->o, about);
    const char *id = json_string_value(json_object_get(about, "id"));
    printf("kind         %s\nmanifest     %s\nid           %s\n", json_string_value(json_object_get(about, "kind")),
           json_string_value(json_object_get(about, "digest")), id ? id : "-");
    print_composition(json_object_get(about, "composition"));
    print_layers(json_object_get(about, "manifest"));
    json_decref(about);
    return 0;
}

/* ---- changes ---- */

static json_t *result_json(const lam_store_result *r)
{
    return json_pack("{s:s,s:s,s:s,s:s*,s:s*,s:I,s:b}", "kind", lam_store_kind_name(r->kind), "digest", r->digest, "id", r->id, "name",
                     r->name[0] ? r->name : NULL, "from", r->from[0] ? r->from : NULL, "generation", (json_int_t)r->generation, "changed", r->changed);
}

static int tell_named(struct call *c, const lam_store_result *r)
{
    if (c->o->json) return print_json(c->o, result_json(r));
    if (c->o->quiet) return 0;
    printf("%s  %s %s\nmanifest %s%s\n", r->name, lam_store_kind_name(r->kind), r->id, r->digest, r->changed ? "" : ", as before");
    if (r->changed && r->from[0]) printf("before   %s\n", r->from);
    return 0;
}

static int tell_active(struct call *c, const lam_store_result *r)
{
    if (c->o->json) return print_json(c->o, result_json(r));
    if (c->o->quiet) return 0;
    printf("composition %s\ngeneration  %llu%s\n", r->id, (unsigned long long)r->generation, r->changed ? "" : ", active already");
    return 0;
}

static int add_one(struct call *c, const char *source)
{
    lam_adapter_report imported = {0};
    lam_store_add_options options = {.name = c->o->name, .base = c->o->model, .accept_tokenizer = c->o->accept_tokenizer, .report = &imported};
    lam_store_result result;
    lam_code code = lam_store_add(c->store, source, &options, &result, &c->err);
    progress_end(&c->progress);
    progress_begin(&c->progress, c->o, false);
    list_faults(imported.faults, imported.n_faults);
    lam_memory_free(imported.faults);
    if (code != LAM_OK) return report(c->o, &c->err);
    if (imported.warnings[0]) note(c->o, "%s: %s", source, imported.warnings);
    return tell_named(c, &result);
}

static int add(struct call *c)
{
    if (c->o->name && c->n > 1) return usage(c->o, "--name is for one SOURCE, %zu are given", c->n);
    for (size_t i = 0; i < c->n; i++) {
        int status = add_one(c, c->arguments[i]);
        if (status) return status;
    }
    return 0;
}

static int remove_name(struct call *c)
{
    if (lam_store_remove_name(c->store, c->arguments[0], &c->err) != LAM_OK) return refuse(c, c->arguments[0]);
    if (c->o->json) return print_json(c->o, json_pack("{s:s}", "removed", c->arguments[0]));
    if (!c->o->quiet) printf("%s is no name any more; `lamina store gc` frees what nothing else needs\n", c->arguments[0]);
    return 0;
}

static int activate(struct call *c)
{
    lam_store_adapter adapters[MAX_ADAPTERS];
    lam_store_result result;
    for (size_t i = 0; i < c->o->n_adapters; i++)
        adapters[i] = (lam_store_adapter){.source = c->o->adapters[i].path, .weight = c->o->adapters[i].weight, .rule = c->o->adapters[i].rule,
                                          .waive = c->o->waive, .accept_tokenizer = c->o->accept_tokenizer};
    lam_code code = lam_store_activate(c->store, c->arguments[0], adapters, c->o->n_adapters, &result, &c->err);
    return code == LAM_OK ? tell_active(c, &result) : refuse(c, c->arguments[0]);
}

static int rollback(struct call *c)
{
    lam_store_result result;
    return lam_store_rollback(c->store, &result, &c->err) == LAM_OK ? tell_active(c, &result) : report(c->o, &c->err);
}

static int deactivate(struct call *c)
{
    lam_store_result result;
    lam_code code = lam_store_deactivate(c->store, c->n ? c->arguments[0] : NULL, &result, &c->err);
    return code == LAM_OK ? tell_active(c, &result) : report(c->o, &c->err);
}

/* ---- upkeep ---- */

static int gc(struct call *c)
{
    lam_store_swept s;
    if (lam_store_gc(c->store, &s, &c->err) != LAM_OK) {
        if (c->err.code >= LAM_E_STORE_LAYOUT && c->err.code <= LAM_E_STORE_NAME) hint(&c->err, "nothing was removed; `lamina store fsck` tells all that is wrong");
        return report(c->o, &c->err);
    }
    if (c->o->json)
        return print_json(c->o, json_pack("{s:I,s:I,s:I,s:I}", "blobs", (json_int_t)s.n_blobs, "temporaries", (json_int_t)s.n_temporaries, "in_use",
                                          (json_int_t)s.n_in_use, "bytes", (json_int_t)s.bytes));
    if (c->o->quiet) return 0;
    printf("%zu %s removed, %.2f MB freed", s.n_blobs, s.n_blobs == 1 ? "blob" : "blobs", (double)s.bytes / 1e6);
    if (s.n_temporaries) printf(", %zu left behind by dead processes", s.n_temporaries);
    if (s.n_in_use) printf(", %zu in use kept", s.n_in_use);
    printf("\n");
    return 0;
}

static int tell_faults(struct call *c, const lam_fault_list *found, const lam_fault_list *left, bool well)
{
    if (c->o->json)
        return print_json(c->o, json_pack("{s:b,s:o,s:o}", "well", well, "found", faults_json(found->items, found->n), "left",
                                          faults_json(left->items, left->n)));
    if (found->n == 0) {
        if (!c->o->quiet) printf("nothing is wrong\n");
        return 0;
    }
    print_faults(stdout, found->items, found->n);
    if (c->o->repair && well) printf("all of it is repaired\n");
    else if (c->o->repair && left->n) {
        printf("not repaired:\n");
        print_faults(stdout, left->items, left->n);
    }
    return 0;
}

static void say(void *context, const char *line) { note(((struct call *)context)->o, "%s", line); }

static int fsck(struct call *c)
{
    lam_fault_list found = {0}, left = {0};
    lam_transfer_options options = {.user = c->o->user, .cacert = c->o->cacert, .progress = step, .progress_context = c, .say = say, .say_context = c};
    uint64_t fetched = 0;
    lam_code code = c->o->repair ? lam_pull_fsck(c->store, &options, &found, &left, &fetched, &c->err) : lam_store_fsck(c->store, false, &found, &left, &c->err);
    int status = 0;
    if (fetched) note(c->o, "%.2f MB were fetched again", (double)fetched / 1e6);
    if (code != LAM_OK && found.n == 0) status = report(c->o, &c->err);
    else status = tell_faults(c, &found, &left, code == LAM_OK);
    if (code != LAM_OK && c->o->repair && found.n && !left.n) report(c->o, &c->err); /* why the repair did nothing, or stopped */
    lam_fault_list_release(&found);
    lam_fault_list_release(&left);
    return code == LAM_OK ? status : 1;
}

static void print_line(const json_t *line)
{
    const char *names[] = {"at", "by", "op", "outcome", "name", "from", "to", "reason"}, *texts[8];
    for (size_t i = 0; i < 8; i++) texts[i] = json_string_value(json_object_get(line, names[i]));
    const json_t *why = json_object_get(line, "error");
    printf("%4lld  %s  %s  %s  %s", (long long)json_integer_value(json_object_get(line, "seq")), texts[0] ? texts[0] : "?", texts[1] ? texts[1] : "?",
           texts[2] ? texts[2] : "?", texts[3] ? texts[3] : "?");
    if (texts[4]) printf("  %s", texts[4]);
    if (texts[5] || texts[6]) printf("  %.12s → %.12s", texts[5] ? texts[5] + 7 : "nothing", texts[6] ? texts[6] + 7 : "nothing");
    if (texts[7]) printf("  (%s)", texts[7]);
    if (why) printf("  %s", json_string_value(json_object_get(why, "code")));
    printf("\n");
}

static int print_log(struct call *c, const json_t *lines, bool broken)
{
    size_t i, n = json_array_size(lines);
    json_t *line;
    if (c->o->json) return print_json(c->o, json_pack("{s:b,s:O}", "whole", !broken, "lines", lines));
    if (c->o->check_chain) {
        if (!broken) printf("%zu %s, each follows from the one before it\n", n, n == 1 ? "line" : "lines");
        return 0;
    }
    json_array_foreach(lines, i, line) print_line(line);
    return 0;
}

static int log_of(struct call *c)
{
    char *text;
    lam_code code = lam_store_log(c->store, &text, &c->err);
    if (!text) return report(c->o, &c->err);
    json_t *parsed = json_loads(text, 0, NULL), *lines = printable(parsed);
    json_decref(parsed);
    lam_memory_free(text);
    if (!lines) return fail_memory(&c->err), report(c->o, &c->err);
    int status = print_log(c, lines, code != LAM_OK);
    json_decref(lines);
    if (code == LAM_OK) return status;
    return c->o->json ? 1 : report(c->o, &c->err);
}

/* ---- copies ---- */

/* Copies are folders. Whoever names an archive, which is no folder, is told how one is made or opened. */
static bool is_archive(struct call *c, const char *path, const char *instead)
{
    struct stat st;
    size_t len = strlen(path);
    if (len < 4 || strcmp(path + len - 4, ".tar") != 0 || (stat(path, &st) == 0 && S_ISDIR(st.st_mode))) return false;
    fail(&c->err, LAM_E_ARGUMENT, "%.200s: copies are folders, not archives; %s", path, instead);
    return true;
}

static int export_to(struct call *c)
{
    lam_store_result result;
    if (is_archive(c, c->arguments[1], "export to a FOLDER, and `tar -cf FILE.tar -C FOLDER .` packs it")) return report(c->o, &c->err);
    if (lam_store_export(c->store, c->arguments[0], c->arguments[1], &result, &c->err) != LAM_OK) return refuse(c, c->arguments[0]);
    return tell_named(c, &result);
}

static int import_from(struct call *c)
{
    lam_store_result *results;
    size_t n;
    if (is_archive(c, c->arguments[0], "`mkdir FOLDER && tar -xf FILE.tar -C FOLDER` unpacks one, then import FOLDER")) return report(c->o, &c->err);
    if (lam_store_import(c->store, c->arguments[0], c->o->name, &results, &n, &c->err) != LAM_OK) return report(c->o, &c->err);
    json_t *list = json_array();
    int status = 0;
    for (size_t i = 0; i < n; i++) {
        if (c->o->json) json_array_append_new(list, result_json(&results[i]));
        else status = tell_named(c, &results[i]);
    }
    if (c->o->json) status = print_json(c->o, json_incref(list));
    json_decref(list);
    lam_memory_free(results);
    return status;
}

/* ---- the command ---- */

static const struct subcommand {
    const char *name, *arguments;
    size_t least, most;
    bool create, damaged; /* a store that is not there is made; one that is damaged is opened */
    int (*run)(struct call *c);
} subcommands[] = {
    {"add", "SOURCE…", 1, 1000, true, false, add}, {"list", "", 0, 0, false, false, list}, {"show", "REF", 1, 1, false, false, show},
    {"remove", "NAME", 1, 1, false, false, remove_name}, {"activate", "REF", 1, 1, false, false, activate},
    {"rollback", "", 0, 0, false, false, rollback}, {"deactivate", "[ADAPTER]", 0, 1, false, false, deactivate},
    {"gc", "", 0, 0, false, false, gc}, {"fsck", "", 0, 0, false, true, fsck}, {"log", "", 0, 0, false, false, log_of},
    {"export", "REF FOLDER", 2, 2, false, false, export_to}, {"import", "FOLDER", 1, 1, true, false, import_from},
};
#define N_SUBCOMMANDS (sizeof subcommands / sizeof *subcommands)

static int unknown(struct options *o, const char *what)
{
    const char *near = NULL;
    for (size_t i = 0; i < N_SUBCOMMANDS; i++) near = nearer_word(what, near, subcommands[i].name);
    if (near) return usage(o, "store has no \"%s\"; did you mean %s?", what, near);
    return usage(o, "store takes add, list, show, remove, activate, rollback, deactivate, gc, fsck, log, export or import");
}

int cmd_store(struct options *o)
{
    const char *what = o->n_rest ? o->rest[0] : "";
    size_t i = 0, n = o->n_rest ? o->n_rest - 1 : 0;
    while (i < N_SUBCOMMANDS && strcmp(subcommands[i].name, what) != 0) i++;
    if (i == N_SUBCOMMANDS) return unknown(o, what);
    const struct subcommand *s = &subcommands[i];
    if (n < s->least) return usage(o, "store %s needs %s", what, s->arguments);
    if (n > s->most) return usage(o, "unexpected argument \"%s\"", o->rest[1 + s->most]);
    struct call c = {.o = o, .arguments = o->rest + 1, .n = n};
    lam_store_options options = {.folder = o->store, .reason = o->reason, .progress = step, .progress_context = &c, .damaged = s->damaged};
    progress_begin(&c.progress, o, false);
    int status;
    if (lam_store_open(&options, s->create, &c.store, &c.err) == LAM_OK) {
        status = s->run(&c);
        lam_store_close(c.store);
    } else {
        if (c.err.code == LAM_E_NOT_FOUND) hint(&c.err, "`lamina store add` makes one");
        status = report(o, &c.err);
    }
    progress_end(&c.progress);
    return status;
}
