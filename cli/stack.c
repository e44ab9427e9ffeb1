#define _POSIX_C_SOURCE 200809L

#include "stack.h"

#include "held.h"
#include "progress.h"
#include "prompt.h"
#include "report.h"
#include "search.h"
#include "suggest.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

char *stack_keep(struct stack *s, const char *text, size_t len)
{
    char *copy = s->n_texts < sizeof s->texts / sizeof *s->texts ? strndup(text, len) : NULL;
    if (copy) s->texts[s->n_texts++] = copy;
    return copy;
}

/* The name of a file without folder and ending. */
static bool is_file_name(const char *path, const char *name)
{
    size_t len = strlen(path), n = strlen(name);
    while (len > 1 && path[len - 1] == '/') len--;
    size_t start = len;
    while (start && path[start - 1] != '/') start--;
    const char *base = path + start;
    return len - start >= n && strncmp(base, name, n) == 0 && (len - start == n || (base[n] == '.' && !memchr(base + n + 1, '.', len - start - n - 1)));
}

static lam_code read_policy(const char *text, struct stack *s, lam_error *err)
{
    static const char *const names[] = {[LAM_POLICY_DUAL] = "dual", [LAM_POLICY_MATERIALIZE] = "materialize", NULL};
    const char *equals = strchr(text, '='), *name = equals ? equals + 1 : text;
    char meant[SUGGESTION];
    size_t i = 0;
    while (i < 2 && strcmp(name, names[i]) != 0) i++;
    if (i == 2)
        return fail(err, LAM_E_ARGUMENT, "--policy %.200s: \"%.100s\" is none of dual and materialize%s", text, name, did_you_mean(name, "", names, meant));
    if (!equals) {
        s->made.policy = (lam_policy)i;
        return LAM_OK;
    }
    if (equals == text) return fail(err, LAM_E_ARGUMENT, "--policy %s: MODULE=POLICY is needed", text);
    char *module = stack_keep(s, text, (size_t)(equals - text));
    if (!module) return fail_memory(err);
    s->policies[s->made.n_module_policies++] = (lam_module_policy){module, (lam_policy)i};
    return LAM_OK;
}

/* What goes with a model and with a manifest, whose defaults it takes the place of. */
static void take_defaults(const struct options *o, lam_manifest *m)
{
    lam_manifest_sampling *s = &m->sampling;
    if (o->system) m->prompt = o->system;
    if (o->temperature.given) s->given |= LAM_SAMPLING_TEMPERATURE, s->temperature = o->temperature.value;
    if (o->top_k.given) s->given |= LAM_SAMPLING_TOP_K, s->top_k = o->top_k.value;
    if (o->top_p.given) s->given |= LAM_SAMPLING_TOP_P, s->top_p = o->top_p.value;
    if (o->min_p.given) s->given |= LAM_SAMPLING_MIN_P, s->min_p = o->min_p.value;
    if (o->repeat_penalty.given) s->given |= LAM_SAMPLING_REPEAT_PENALTY, s->repeat_penalty = o->repeat_penalty.value;
    if (o->seed.given) s->given |= LAM_SAMPLING_SEED, s->seed = o->seed.value;
}

static lam_code read_template(const char *path, struct stack *s, lam_error *err)
{
    struct text text = {0};
    lam_code code = read_whole(path, &text, err);
    if (code == LAM_OK && strlen(text.bytes) != text.len) code = fail(err, LAM_E_TEMPLATE, "%s: holds a zero byte", path);
    if (code == LAM_OK && !(s->made.template_text = stack_keep(s, text.bytes, text.len))) code = fail_memory(err);
    free(text.bytes);
    return code;
}

/* The path that text is, or that it means in the store. */
static lam_code look_up(const struct options *o, const char *text, struct held **held, const char **path, lam_error *err)
{
    lam_code code = held_open(o, text, HELD_ADAPTER, held, err);
    *path = *held ? held_path(*held) : text;
    return code;
}

static lam_code make(const struct options *o, struct stack *s, lam_error *err)
{
    lam_code code = LAM_OK;
    s->made = (lam_manifest){.base_file = o->model, .n_adapters = o->n_adapters, .module_policies = s->policies, .kv = o->kv};
    if (s->model) s->made.base_file = held_path(s->model);
    for (size_t i = 0; code == LAM_OK && i < o->n_adapters; i++) {
        const char *path;
        code = look_up(o, o->adapters[i].path, &s->held[i], &path, err);
        s->adapters[i] = (lam_manifest_adapter){.file = path, .weight = o->adapters[i].weight, .rule = o->adapters[i].rule,
                                                .waived = o->waive, .accept_tokenizer = o->accept_tokenizer};
    }
    for (size_t i = 0; code == LAM_OK && i < o->policies.n; i++) code = read_policy(o->policies.items[i], s, err);
    if (code == LAM_OK && o->template) code = read_template(o->template, s, err);
    return code;
}

/* What m says is composed; the options may not say it, too. */
static lam_code take_manifest(const struct options *o, struct stack *s, const lam_manifest *m, lam_error *err)
{
    s->made = *m;
    for (size_t i = 0; i < m->n_adapters; i++) s->adapters[i] = m->adapters[i];
    if (o->n_adapters && o->unnamed_model && s->model)
        return fail(err, LAM_E_CONFLICT, "no model was named, and the one that runs then, %.19s, is a composition, to which -a adds nothing; "
                    "`lamina store activate %.19s -a %.100s` makes one with it the active one, -m BASE runs a base with it", o->model, o->model,
                    o->adapters[0].path);
    if (o->n_adapters || o->owners.n || o->policies.n || o->kv || o->waive || o->accept_tokenizer || o->template)
        return fail(err, LAM_E_CONFLICT, "%s is a manifest, which says what is composed; -a, --owner, --policy, --kv, --waive, --accept-tokenizer and "
                    "--template go with a model", o->model);
    return LAM_OK;
}

static lam_code read_file(const struct options *o, struct stack *s, lam_error *err)
{
    lam_fault_list faults = {0};
    lam_code code = lam_manifest_read(o->model, &s->read, &faults, err);
    list_faults(faults.items, faults.n);
    lam_fault_list_release(&faults);
    if (code != LAM_OK) return about(err, o->model);
    code = take_manifest(o, s, s->read, err);
    return code == LAM_OK ? search_parts(o, s, err) : code;
}

/* --search is for the parts of manifests, of the one that is the model or of the one that --from names. */
static lam_code refuse_search(const struct options *o, lam_error *err)
{
    for (size_t i = 0; i < o->from.n; i++)
        if (lam_manifest_detect(o->from.items[i])) return LAM_OK;
    if (o->search.n == 0) return LAM_OK;
    return fail(err, LAM_E_CONFLICT, "--search %.200s looks for the parts of a manifest, and %.200s is none", o->search.items[0], o->model);
}

lam_code stack_open(const struct options *o, struct stack *s, lam_error *err)
{
    *s = (struct stack){.m = &s->made};
    bool file = lam_manifest_detect(o->model);
    lam_code code = check_folders(o, err);
    if (code == LAM_OK && !file) code = refuse_search(o, err);
    if (code == LAM_OK && !file) code = held_open(o, o->model, HELD_MODEL, &s->model, err);
    if (code != LAM_OK) return code;
    const lam_manifest *kept = held_manifest(s->model);
    code = file ? read_file(o, s, err) : kept ? take_manifest(o, s, kept, err) : make(o, s, err);
    s->made.adapters = s->adapters;
    take_defaults(o, &s->made);
    return code;
}

bool stack_is_said(const struct stack *s) { return s->read || held_manifest(s->model); }

void stack_release(struct stack *s)
{
    for (size_t i = 0; i < s->n_texts; i++) free(s->texts[i]);
    lam_manifest_free(s->read);
    lam_fault_list_release(&s->missing);
    lam_memory_free(s->contests);
    free(s->owners);
    held_close(s->model);
    for (size_t i = 0; i < MAX_ADAPTERS; i++) held_close(s->held[i]);
    *s = (struct stack){0};
}

/* The adapter's .slm, or what its import found; without a base only what is a .slm already. Where that begins the list, *summary says what all of it comes from, as import does. */
static void obtain(const struct options *o, const lam_manifest_adapter *a, const char *base, const char *base_digest, struct lam_cached *out,
                   lam_fault_list *faults, lam_error *summary)
{
    struct progress progress;
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = &progress,
                                      .accept_tokenizer = a->accept_tokenizer};
    lam_adapter_report report = {0};
    lam_error err;
    progress_begin(&progress, o, false);
    lam_code code = lam_cache_open_adapter(a->file, base, base_digest, &cache, out, &report, &err);
    progress_end(&progress);
    if (code != LAM_OK && report.n_faults > 1 && faults->n == 0 && !strstr(err.message, report.faults[0].what)) {
        about(&err, a->file);
        *summary = err;
    }
    for (size_t i = 0; code != LAM_OK && i < report.n_faults; i++) {
        char subject[300];
        lam_error one = {.code = report.faults[i].code};
        snprintf(subject, sizeof subject, "%.140s: %.140s", a->file, report.faults[i].subject);
        snprintf(one.message, sizeof one.message, "%s", report.faults[i].what);
        lam_fault_list_add_error(faults, subject, &one);
    }
    if (code != LAM_OK && report.n_faults == 0) lam_fault_list_add_error(faults, a->file, &err);
    lam_memory_free(report.faults);
}

/* The base as a .slm, whichever it is. */
static lam_code import_base(const struct options *o, const struct stack *s, struct lam_cached *out, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct progress progress;
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = &progress};
    const lam_manifest *m = s->m;
    char *text = NULL;
    progress_begin(&progress, o, false);
    lam_code code = lam_cache_open_base(m->base_file, &cache, out, err);
    progress_end(&progress);
    if (code == LAM_OK) code = lam_inspect(out->path, false, &text, err);
    if (code != LAM_OK) return about(err, m->base_file);
    json_t *found = json_loads(text, 0, NULL);
    const char *value = json_string_value(json_object_get(found, "base_digest"));
    snprintf(digest, LAM_DIGEST_TEXT, "%s", value ? value : "");
    json_decref(found);
    lam_memory_free(text);
    return value ? LAM_OK : fail(err, LAM_E_FORMAT, "%s is an adapter, not a base", m->base_file);
}

lam_code stack_open_base(const struct options *o, const struct stack *s, struct lam_cached *out, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    const lam_manifest *m = s->m;
    lam_code code = import_base(o, s, out, digest, err);
    if (code != LAM_OK) return code;
    if (m->base_digest && strcmp(m->base_digest, digest) != 0)
        return fail(err, LAM_E_WRONG_BASE, "%.150s: %.150s is base %s, the manifest names %s", o->model, m->base_file, digest, m->base_digest);
    return LAM_OK;
}

/* ---- the adapters' files ---- */

/* The stack's adapters as .slm, while somebody looks into them. */
struct files {
    struct lam_cached cached[MAX_ADAPTERS];
    const char *paths[MAX_ADAPTERS]; /* NULL: could not be had */
    char names[MAX_ADAPTERS][LAM_ADAPTER_NAME];
    lam_error summary;               /* of the first import that failed, if it says more than the first fault; else its code is LAM_OK */
};

static struct files *files_open(const struct options *o, const struct stack *s, const char *base, const char *base_digest, lam_fault_list *faults)
{
    struct files *f = calloc(1, sizeof *f);
    for (size_t i = 0; f && i < s->m->n_adapters; i++) {
        if (s->no_adapter[i] || (!base && !is_slm(s->m->adapters[i].file))) continue;
        obtain(o, &s->m->adapters[i], base, base_digest, &f->cached[i], faults, &f->summary);
        f->paths[i] = f->cached[i].path;
    }
    if (f) lam_manifest_names(s->m, f->paths, f->names);
    return f;
}

static void files_close(struct files *f)
{
    for (size_t i = 0; f && i < MAX_ADAPTERS; i++) lam_cache_release(&f->cached[i]);
    free(f);
}

/* ---- owners ---- */

/* The place of the adapter that text means; n_adapters if there is none, one more if there are several. */
static size_t find_adapter(const struct options *o, const struct files *f, const char *text)
{
    size_t found = o->n_adapters;
    char *end;
    for (size_t i = 0; i < o->n_adapters; i++)
        if (strcmp(o->adapters[i].path, text) == 0) return i;
    for (size_t i = 0; i < o->n_adapters; i++)
        if (strcmp(f->names[i], text) == 0) return i;
    for (size_t i = 0; i < o->n_adapters; i++) {
        if (!is_file_name(o->adapters[i].path, text)) continue;
        if (found < o->n_adapters) return o->n_adapters + 1;
        found = i;
    }
    unsigned long place = strtoul(text, &end, 10);
    if (found == o->n_adapters && *text >= '1' && *text <= '9' && !*end && place <= o->n_adapters) return place - 1;
    return found;
}

/* One --owner: module[len] of the adapter at a place; module is NULL for all that is contested. */
struct claim {
    const char *text, *module;
    size_t len, adapter;
};

static lam_code read_claim(const struct options *o, const struct files *f, const char *text, struct claim *out, lam_error *err)
{
    const char *equals = strchr(text, '='), *name = equals ? equals + 1 : text;
    char names[200] = "";
    size_t i = find_adapter(o, f, text); /* a file's name may hold a '=' */
    *out = (struct claim){.text = text};
    if (i >= o->n_adapters && equals) *out = (struct claim){.text = text, .module = text, .len = (size_t)(equals - text)}, i = find_adapter(o, f, name);
    if (equals && (equals == text || !*name)) return fail(err, LAM_E_ARGUMENT, "--owner %s: MODULE=ADAPTER is needed, or ADAPTER", text);
    if (i > o->n_adapters)
        return fail(err, LAM_E_ARGUMENT, "--owner %s: several adapters are called so; name the one as -a does, or by its place", text);
    out->adapter = i;
    if (i < o->n_adapters) return LAM_OK;
    for (size_t k = 0, len = 0; k < o->n_adapters && len < 150; k++)
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%.40s", k ? ", " : "", f->names[k]);
    return fail(err, LAM_E_NOT_FOUND, "--owner %.150s: no adapter of -a is called %.100s; there are: %s", text, name, *names ? names : "none");
}

static bool is_pattern(const struct claim *c)
{
    for (size_t i = 0; c->module && i < c->len; i++)
        if (strchr("*?[", c->module[i])) return true;
    return !c->module;
}

/* Those that name one module; the others are for what is then still contested. */
static lam_code own_single(struct stack *s, const struct claim *claims, size_t n, lam_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (is_pattern(&claims[i])) continue;
        char *module = stack_keep(s, claims[i].module, claims[i].len);
        if (!module) return fail_memory(err);
        s->owners[s->made.n_owners++] = (lam_owner){module, claims[i].adapter};
    }
    return LAM_OK;
}

/* Whether a claim takes part in a contest, and means its module. */
static bool decides(const struct claim *c, const lam_contest *contest)
{
    char pattern[200];
    snprintf(pattern, sizeof pattern, "%.*s", (int)c->len, c->module ? c->module : "");
    return is_pattern(c) && contest->claimants >> c->adapter & 1 && (!c->module || fnmatch(pattern, contest->module, 0) == 0);
}

/* Each contested module goes to the first claim that means it; every claim must mean one. */
static lam_code own_contested(struct stack *s, const struct claim *claims, size_t n, size_t n_contests, lam_error *err)
{
    bool used[MAX_LIST] = {false};
    for (size_t k = 0; k < n_contests; k++) {
        bool owned = false;
        for (size_t i = 0; i < n; i++) {
            if (!decides(&claims[i], &s->contests[k])) continue;
            used[i] = true;
            if (!owned) s->owners[s->made.n_owners++] = (lam_owner){s->contests[k].module, claims[i].adapter};
            owned = true;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (is_pattern(&claims[i]) && !used[i])
            return fail(err, LAM_E_UNMATCHED, "--owner %s: no module that several replace, that adapter among them, is called so", claims[i].text);
    return LAM_OK;
}

static lam_code read_owners(const struct options *o, struct stack *s, const struct files *f, const char *base, lam_error *err)
{
    struct claim claims[MAX_LIST];
    size_t n = o->owners.n, n_contests = 0;
    bool patterns = false;
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        code = read_claim(o, f, o->owners.items[i], &claims[i], err);
        if (code == LAM_OK) patterns |= is_pattern(&claims[i]);
    }
    if (code == LAM_OK && !(s->owners = calloc(n, sizeof *s->owners))) code = fail_memory(err);
    if (code == LAM_OK) code = own_single(s, claims, n, err);
    s->made.owners = s->owners;
    if (code == LAM_OK && patterns) code = lam_manifest_contests(s->m, base, f->paths, &s->contests, &n_contests, err);
    if (code != LAM_OK || !patterns) return code;
    lam_owner *longer = realloc(s->owners, (n + n_contests) * sizeof *longer);
    if (!longer) return fail_memory(err);
    s->made.owners = s->owners = longer;
    return own_contested(s, claims, n, n_contests, err);
}

/* All of --owner, or nothing of it. */
static lam_code own(const struct options *o, struct stack *s, const struct files *f, const char *base, lam_error *err)
{
    lam_code code = read_owners(o, s, f, base, err);
    if (code == LAM_OK) return LAM_OK;
    free(s->owners);
    lam_memory_free(s->contests);
    s->made.owners = s->owners = NULL;
    s->made.n_owners = 0;
    s->contests = NULL;
    return code;
}

lam_code stack_name_owners(const struct options *o, struct stack *s, const char *base, const char *base_digest, lam_error *err)
{
    lam_fault_list faults = {0};
    if (o->owners.n == 0 || s->owners) return LAM_OK;
    struct files *f = files_open(o, s, base, base_digest, &faults);
    lam_code code = f ? lam_fault_list_error(&faults, "stack", err) : fail_memory(err);
    if (code == LAM_OK) code = own(o, s, f, base, err);
    files_close(f);
    lam_fault_list_release(&faults);
    return code;
}

/* ---- checking ---- */

/* How the first contest, and all of them, could be ended. */
static void advise(struct stack *s, const struct files *f, const char *base)
{
    lam_contest *contests;
    size_t n, who = 0;
    lam_error err;
    if (lam_manifest_contests(s->m, base, f->paths, &contests, &n, &err) != LAM_OK || n == 0) return;
    while (!(contests->claimants >> who & 1)) who++;
    const char *module = contests->module, *name = f->names[who];
    if (s->read) snprintf(s->advice, sizeof s->advice, "module_owners of the manifest names owners: \"%.60s\": \"%.71s\"", module, s->m->adapters[who].digest);
    else snprintf(s->advice, sizeof s->advice, "--owner %.60s=%.60s gives %s to %.60s%s%.60s%s", module, name, n > 1 ? "that one" : "it", name,
                  n > 1 ? ", --owner " : "", n > 1 ? name : "", n > 1 ? " all that it takes part in" : "");
    lam_memory_free(contests);
}

/* Adds what is wrong with the stack's base, adapters and all between them. */
static lam_code check_parts(const struct options *o, struct stack *s, lam_fault_list *faults, lam_error *err)
{
    struct lam_cached cached = {0};
    lam_error why;
    char digest[LAM_DIGEST_TEXT] = "";
    lam_code code = s->no_base ? LAM_E_NOT_FOUND : import_base(o, s, &cached, digest, &why);
    if (code == LAM_E_CANCELLED || code == LAM_E_NO_MEMORY) return *err = why, code;
    if (code != LAM_OK && !s->no_base) lam_fault_list_add_error(faults, "base", &why);
    const char *base = code == LAM_OK ? cached.path : NULL;
    struct files *f = files_open(o, s, base, digest, faults);
    if (!f) return lam_cache_release(&cached), fail_memory(err);
    if (base && o->owners.n && own(o, s, f, base, &why) != LAM_OK) lam_fault_list_add_error(faults, "owners", &why);
    code = lam_manifest_check(s->m, base, f->paths, faults, err);
    if (code != LAM_OK && f->summary.code) code = (*err = f->summary).code;
    if (code != LAM_OK && s->read) about(err, o->model);
    if (code != LAM_OK && base) advise(s, f, base);
    if (s->advice[0]) hint(err, s->advice);
    files_close(f);
    lam_cache_release(&cached);
    return code;
}

lam_code stack_check(const struct options *o, lam_fault_list *faults, lam_error *err)
{
    struct stack *s = calloc(1, sizeof *s);
    if (!s) return fail_memory(err);
    lam_code code = stack_open(o, s, err);
    for (size_t i = 0; i < s->missing.n; i++) {
        lam_error one = {.code = s->missing.items[i].code};
        snprintf(one.message, sizeof one.message, "%s", s->missing.items[i].what);
        lam_fault_list_add_error(faults, s->missing.items[i].subject, &one);
    }
    if (code == LAM_OK || s->missing.n) code = check_parts(o, s, faults, err);
    stack_release(s);
    free(s);
    return code;
}

lam_code stack_list_faults(const struct options *o, lam_code code, lam_error *err)
{
    lam_fault_list faults = {0};
    lam_error all;
    if (code == LAM_E_CANCELLED || code == LAM_E_NO_MEMORY || code == LAM_E_BUDGET || code == LAM_E_NO_SPACE || code == LAM_E_IO) return code;
    bool contest = code == LAM_E_CONFLICT; /* what ends it is told with it */
    if (stack_check(o, &faults, &all) != LAM_OK && faults.n > (contest ? 0 : 1)) {
        list_faults(faults.items, faults.n);
        *err = all;
        code = err->code;
    }
    lam_fault_list_release(&faults);
    return code;
}
