#define _POSIX_C_SOURCE 200809L

#include "stack.h"

#include "progress.h"
#include "report.h"
#include "suggest.h"

#include "lamina/cache.h"

#include <stdlib.h>
#include <string.h>

/* A copy of text[len] that lives as long as the stack. */
static char *keep(struct stack *s, const char *text, size_t len)
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

/* The place of the adapter that text means; n_adapters if there is none, one more if there are several. */
static size_t find_adapter(const struct options *o, const char *text)
{
    size_t found = o->n_adapters;
    char *end;
    for (size_t i = 0; i < o->n_adapters; i++)
        if (strcmp(o->adapters[i].path, text) == 0) return i;
    for (size_t i = 0; i < o->n_adapters; i++) {
        if (!is_file_name(o->adapters[i].path, text)) continue;
        if (found < o->n_adapters) return o->n_adapters + 1;
        found = i;
    }
    unsigned long place = strtoul(text, &end, 10);
    if (found == o->n_adapters && *text >= '1' && *text <= '9' && !*end && place <= o->n_adapters) return place - 1;
    return found;
}

static lam_code read_owner(const struct options *o, const char *text, struct stack *s, lam_error *err)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1]) return fail(err, LAM_E_ARGUMENT, "--owner %s: MODULE=ADAPTER is needed", text);
    char *module = keep(s, text, (size_t)(equals - text));
    size_t i = find_adapter(o, equals + 1);
    if (!module) return fail_memory(err);
    if (i > o->n_adapters)
        return fail(err, LAM_E_ARGUMENT, "--owner %s: several adapters are called so; name the one as -a does, or by its place", text);
    if (i == o->n_adapters) return fail(err, LAM_E_NOT_FOUND, "--owner %s: no adapter of -a is called so", text);
    s->owners[s->made.n_owners++] = (lam_owner){module, i};
    return LAM_OK;
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
    char *module = keep(s, text, (size_t)(equals - text));
    if (!module) return fail_memory(err);
    s->policies[s->made.n_module_policies++] = (lam_module_policy){module, (lam_policy)i};
    return LAM_OK;
}

static lam_code make(const struct options *o, struct stack *s, lam_error *err)
{
    lam_code code = LAM_OK;
    s->made = (lam_manifest){.base_file = o->model, .adapters = s->adapters, .n_adapters = o->n_adapters, .owners = s->owners,
                             .module_policies = s->policies, .kv = o->kv};
    for (size_t i = 0; i < o->n_adapters; i++)
        s->adapters[i] = (lam_manifest_adapter){.file = o->adapters[i].path, .weight = o->adapters[i].weight, .rule = o->adapters[i].rule,
                                                .waived = o->waive, .accept_tokenizer = o->accept_tokenizer};
    for (size_t i = 0; code == LAM_OK && i < o->owners.n; i++) code = read_owner(o, o->owners.items[i], s, err);
    for (size_t i = 0; code == LAM_OK && i < o->policies.n; i++) code = read_policy(o->policies.items[i], s, err);
    s->m = &s->made;
    return code;
}

static lam_code read_file(const struct options *o, struct stack *s, lam_error *err)
{
    lam_fault_list faults = {0};
    lam_code code = lam_manifest_read(o->model, &s->read, &faults, err);
    list_faults(faults.items, faults.n);
    lam_fault_list_release(&faults);
    if (code != LAM_OK) return code;
    s->m = s->read;
    if (o->n_adapters || o->owners.n || o->policies.n || o->kv || o->waive || o->accept_tokenizer)
        return fail(err, LAM_E_CONFLICT, "%s is a manifest, which says what is composed; -a, --owner, --policy, --kv, --waive and --accept-tokenizer go with a model",
                    o->model);
    if (!s->m->base_file) return fail(err, LAM_E_NOT_FOUND, "%s names no file of its base %s", o->model, s->m->base_digest);
    for (size_t i = 0; i < s->m->n_adapters; i++)
        if (!s->m->adapters[i].file)
            return fail(err, LAM_E_NOT_FOUND, "%s names no file of adapter %zu, %s", o->model, i + 1, s->m->adapters[i].digest);
    return LAM_OK;
}

lam_code stack_open(const struct options *o, struct stack *s, lam_error *err)
{
    *s = (struct stack){.m = &s->made};
    return lam_manifest_detect(o->model) ? read_file(o, s, err) : make(o, s, err);
}

void stack_release(struct stack *s)
{
    for (size_t i = 0; i < s->n_texts; i++) free(s->texts[i]);
    lam_manifest_free(s->read);
    *s = (struct stack){0};
}

/* The adapter's .slm, or what its import found; where that begins the list, *summary says what all of it comes from, as import does. */
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

lam_code stack_check(const struct options *o, const struct stack *s, const char *base, const char *base_digest, lam_fault_list *faults,
                     lam_error *err)
{
    struct lam_cached cached[MAX_ADAPTERS] = {{0}};
    const char *paths[MAX_ADAPTERS] = {0};
    lam_error summary = {0};
    for (size_t i = 0; i < s->m->n_adapters; i++) {
        obtain(o, &s->m->adapters[i], base, base_digest, &cached[i], faults, &summary);
        paths[i] = cached[i].path;
    }
    lam_code code = lam_manifest_check(s->m, base, paths, faults, err);
    for (size_t i = 0; i < s->m->n_adapters; i++) lam_cache_release(&cached[i]);
    if (code == LAM_OK || !summary.code) return code;
    *err = summary;
    return err->code;
}
