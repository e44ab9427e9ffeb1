#include "plan.h"

#include "progress.h"
#include "prompt.h"
#include "report.h"

#include "lamina/receipt.h"

#include <stdlib.h>
#include <string.h>

#define PERPLEXITY_CONTEXT 512
#define BENCH_POSITIONS 256 /* of each session of a batch: it begins at 128 */
#define BENCH_TOKENS 64
#define BENCH_PREFILL 512

static lam_code open_file(const struct plan *p, const char *digest, const char *file, const struct lam_cache_options *cache, struct lam_cached *out,
                          lam_error *err)
{
    lam_adapter_report report = {0};
    lam_code code = lam_cache_open_adapter(file, p->base.path, digest, cache, out, &report, err);
    list_faults(report.faults, report.n_faults);
    lam_memory_free(report.faults);
    return code == LAM_OK ? LAM_OK : about(err, file);
}

/* --from MANIFEST: the composition before is that one, of this base. */
static lam_code open_from_manifest(struct plan *p, const char *path, const char *digest, const struct lam_cache_options *cache, lam_error *err)
{
    struct options o = {.command = p->o->command, .model = path, .search = p->o->search, .quiet = true};
    p->from_stack = calloc(1, sizeof *p->from_stack);
    if (!p->from_stack) return fail_memory(err);
    lam_code code = stack_open(&o, p->from_stack, err);
    const lam_manifest *m = p->from_stack->m;
    if (code == LAM_OK && strcmp(m->base_digest, digest) != 0)
        code = fail(err, LAM_E_WRONG_BASE, "--from %.150s is of base %s, the plan's is %s", path, m->base_digest, digest);
    for (size_t i = 0; code == LAM_OK && i < m->n_adapters; i++) {
        struct lam_cache_options own = *cache;
        own.accept_tokenizer = m->adapters[i].accept_tokenizer;
        code = open_file(p, digest, m->adapters[i].file, &own, &p->from[p->n_from], err);
        if (code == LAM_OK) p->n_from++;
    }
    return code;
}

static lam_code open_from(struct plan *p, const char *digest, const struct lam_cache_options *cache, lam_error *err)
{
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < p->o->from.n; i++) {
        struct adapter_option a;
        const char *item = p->o->from.items[i];
        if (strcmp(item, "base") == 0) continue;
        if (lam_manifest_detect(item)) {
            if (p->o->from.n > 1) return fail(err, LAM_E_CONFLICT, "--from %s is a manifest, and says all of the composition before: it stands alone", item);
            return open_from_manifest(p, item, digest, cache, err);
        }
        if (p->n_from == MAX_ADAPTERS) return fail(err, LAM_E_LIMIT, "--from: %d adapters at most", MAX_ADAPTERS);
        code = adapter_option_parse(item, &a, err);
        if (code == LAM_OK) code = open_file(p, digest, a.path, cache, &p->from[p->n_from], err);
        if (code == LAM_OK) p->n_from++;
        free(a.path);
    }
    return code;
}

static lam_code open_adapters(struct plan *p, const char *digest, lam_error *err)
{
    struct progress progress;
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = &progress};
    const lam_manifest *m = p->stack.m;
    lam_code code = LAM_OK;
    progress_begin(&progress, p->o, false);
    for (size_t i = 0; code == LAM_OK && i < m->n_adapters; i++) {
        cache.accept_tokenizer = m->adapters[i].accept_tokenizer;
        code = open_file(p, digest, m->adapters[i].file, &cache, &p->adapters[i], err);
        if (code == LAM_OK) p->n_adapters++;
    }
    cache.accept_tokenizer = false;
    if (code == LAM_OK) code = open_from(p, digest, &cache, err);
    progress_end(&progress);
    return code;
}

static lam_code import_files(struct plan *p, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    lam_code code = stack_open_base(p->o, &p->stack, &p->base, digest, err);
    if (code == LAM_OK) code = stack_name_owners(p->o, &p->stack, p->base.path, digest, err);
    return code == LAM_OK ? open_adapters(p, digest, err) : code;
}

lam_code budget_of(const struct options *o, const lam_manifest *m, uint64_t *out, lam_error *err)
{
    *out = 0;
    lam_code code = read_bytes("budget", o->budget, out, err);
    if (m->memory_budget && (*out == 0 || *out > m->memory_budget)) *out = m->memory_budget;
    return code;
}

/* What is to be planned, and within which budget; no file but a manifest is read. */
static lam_code read_stack(const struct options *o, struct plan *p, lam_error *err)
{
    *p = (struct plan){.o = o};
    lam_code code = stack_open(o, &p->stack, err);
    if (code != LAM_OK) return code;
    uint64_t allowed = p->stack.m->memory_budget, asked = 0;
    code = read_bytes("budget", o->budget, &asked, err);
    if (code == LAM_OK && allowed && asked > allowed)
        note(o, "%s allows %.1f MB: that holds, not --budget %s", o->model, (double)allowed / 1e6, o->budget);
    return code == LAM_OK ? budget_of(o, p->stack.m, &p->budget, err) : code;
}

/* Who only asks for a plan does not expect that a file of the model's size is written. */
static void note_imports(const struct plan *p)
{
    if (!p->base.was_cached)
        note(p->o, "%s was imported for this, into the cache: later commands find it there (lamina cache list)", p->stack.m->base_file);
    for (size_t i = 0; i < p->n_adapters; i++)
        if (!p->adapters[i].was_cached) note(p->o, "%s was imported into the cache, too", p->stack.m->adapters[i].file);
}

lam_code plan_open(const struct options *o, struct plan *p, lam_error *err)
{
    lam_code code = read_stack(o, p, err);
    if (code == LAM_OK) code = import_files(p, err);
    if (code == LAM_OK) note_imports(p);
    return code;
}

static void list_paths(const struct lam_cached *cached, size_t n, const char **out)
{
    for (size_t i = 0; i < n; i++) out[i] = cached[i].path;
}

lam_code plan_make(const struct plan *p, const lam_policy *policy, lam_plan_options *options, lam_plan_bytes *out, lam_error *err)
{
    const struct options *o = p->o;
    const lam_manifest *m = p->stack.m;
    const char *paths[MAX_ADAPTERS], *from_paths[MAX_ADAPTERS];
    lam_plan_stack stack = {paths, p->n_adapters, policy ? *policy : m->policy, m->module_policies, m->n_module_policies}, from = stack;
    from.adapters = from_paths;
    from.n = p->n_from;
    if (p->from_stack) {
        const lam_manifest *before = p->from_stack->m;
        from.policy = before->policy;
        from.module_policies = before->module_policies;
        from.n_module_policies = before->n_module_policies;
    }
    if (!options->context) options->context = (size_t)count_or(o->context, 0);
    options->threads = (unsigned)count_or(o->threads, 0);
    options->max_rows = (size_t)count_or(o->chunk, 0);
    options->prefix_cache = (size_t)(count_or(o->prefix_cache, 0) << 20);
    options->kv = m->kv;
    (void)draft_options(o, &options->drafts); /* the command has looked at it */
    options->from = o->from.n ? &from : NULL;
    options->budget = p->budget;
    list_paths(p->adapters, p->n_adapters, paths);
    list_paths(p->from, p->n_from, from_paths);
    return lam_plan(p->base.path, &stack, options, out, err);
}

lam_code plan_name(const struct plan *p, lam_policy policy, char id[LAM_DIGEST_TEXT], char standing[256], lam_error *err)
{
    lam_manifest m = *p->stack.m;
    const char *paths[MAX_ADAPTERS];
    lam_trust *trust = NULL;
    m.policy = policy;
    list_paths(p->adapters, p->n_adapters, paths);
    lam_code code = lam_manifest_id(&m, p->base.path, paths, id, err);
    if (code == LAM_OK && m.id && strcmp(m.id, id) != 0)
        code = fail(err, LAM_E_WRONG_COMPOSITION, "%.200s is composition %s, it says %s", p->o->model, id, m.id);
    if (code == LAM_OK && m.n_receipts) code = lam_trust_open(p->o->trust, &trust, err);
    if (code == LAM_OK) code = lam_standing(id, m.n_adapters, m.receipts, m.n_receipts, trust, standing, err);
    lam_trust_free(trust);
    return code;
}

void plan_close(struct plan *p)
{
    lam_cache_release(&p->base);
    for (size_t i = 0; i < p->n_adapters; i++) lam_cache_release(&p->adapters[i]);
    for (size_t i = 0; i < p->n_from; i++) lam_cache_release(&p->from[i]);
    stack_release(&p->stack);
    if (p->from_stack) stack_release(p->from_stack);
    free(p->from_stack);
    *p = (struct plan){0};
}

/* bench decodes with many short sessions, or with one long one. */
static lam_code plan_bench(const struct plan *p, lam_plan_bytes *bytes, lam_error *err)
{
    const struct options *o = p->o;
    size_t prefill = (size_t)count_or(o->prefill, BENCH_PREFILL), tokens = (size_t)count_or(o->tokens, BENCH_TOKENS), most = 1;
    size_t context = (size_t)count_or(o->context, 0);
    for (const char *at = o->sessions ? o->sessions : "16"; *at; at += *at == ',' || *at == ' ') {
        size_t n = (size_t)strtoul(at, NULL, 10), digits = strspn(at, "0123456789");
        if (n > most) most = n;
        at += digits ? digits : 1;
        if (!*at) break;
    }
    lam_plan_options batch = {.sessions = most, .context = BENCH_POSITIONS / 2 + tokens};
    lam_plan_options one = {.context = context > prefill + tokens ? context : prefill + tokens};
    lam_code code = plan_make(p, NULL, &batch, bytes, err);
    return code == LAM_OK ? plan_make(p, NULL, &one, bytes, err) : code;
}

lam_code check_budget(const struct options *o, lam_error *err)
{
    struct plan p;
    lam_plan_bytes bytes;
    lam_plan_options options = {0};
    if (!o->budget && !lam_manifest_detect(o->model)) return LAM_OK;
    lam_code code = read_stack(o, &p, err);
    if (code == LAM_OK && p.budget) code = import_files(&p, err);
    if (code == LAM_OK && p.budget) {
        options.all_logits = strcmp(o->command, "perplexity") == 0;
        if (options.all_logits && !o->context.given) options.context = PERPLEXITY_CONTEXT;
        code = strcmp(o->command, "bench") == 0 ? plan_bench(&p, &bytes, err) : plan_make(&p, NULL, &options, &bytes, err);
    }
    plan_close(&p);
    return code;
}
