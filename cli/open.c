#include "open.h"

#include "held.h"
#include "output.h"
#include "plan.h"
#include "progress.h"
#include "report.h"

#include "lamina/cache.h"
#include "lamina/receipt.h"

#include <stdlib.h>
#include <string.h>

/* What helps where the cache or the model's name is in the way. */
static lam_code explain(const struct options *o, const char *path, lam_error *err)
{
    bool first = o->bare_model && (strcmp(o->command, "run") == 0 || strcmp(o->command, "tokenize") == 0);
    about(err, path);
    if (err->code == LAM_E_LIMIT && strstr(err->message, "bytes are needed, the limit is"))
        hint(err, "raise LAMINA_CACHE_MAX, or run `lamina import SOURCE -o FILE.slm` and use FILE.slm");
    else if (err->code == LAM_E_UNBOUND)
        hint(err, "`lamina import ADAPTER -m BASE -o FILE.slm` binds it, --waive takes it as it is");
    else if (err->code == LAM_E_NOT_FOUND && path == o->model && first && !o->prompt && !o->token_ids && !o->n_rest)
        hint(err, "the first word is the MODEL, -p gives the prompt");
    return err->code;
}

static lam_code open_cached(const struct options *o, struct opened *out, lam_error *err)
{
    struct progress progress;
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = &progress};
    progress_begin(&progress, o, false);
    lam_code code = lam_cache_open_base(out->stack.m->base_file, &cache, out->cached_base, err);
    progress_end(&progress);
    return code;
}

static bool differs(const char *wanted, const char *found) { return wanted && strcmp(wanted, found ? found : "none") != 0; }

/* The base is the one that the manifest names. A template of its own was compared with its digest when it was read. */
static lam_code check_base(const struct options *o, const struct opened *all, lam_error *err)
{
    const lam_manifest *m = all->stack.m;
    const lam_base_info *b = &all->info;
    const char *template = m->states_template && !m->template_text ? m->template_digest ? m->template_digest : "none" : NULL;
    if (differs(m->base_digest, b->base_digest))
        return fail(err, LAM_E_WRONG_BASE, "%.150s: %.150s is base %s, the manifest names %s", o->model, m->base_file, b->base_digest, m->base_digest);
    if (differs(m->tokenizer_digest, b->tokenizer_digest))
        return fail(err, LAM_E_TOKENIZER, "%.150s: %.150s has tokenizer %s, the manifest names %s", o->model, m->base_file, b->tokenizer_digest,
                    m->tokenizer_digest);
    if (differs(template, b->template_digest))
        return fail(err, LAM_E_TEMPLATE, "%.150s: %.150s has template %s, the manifest names %s", o->model, m->base_file,
                    b->template_digest ? b->template_digest : "none", template);
    return LAM_OK;
}

lam_code open_base(const struct options *o, struct opened *out, lam_error *err)
{
    *out = (struct opened){.stack = {0}};
    lam_code code = stack_open(o, &out->stack, err);
    if (code != LAM_OK) return code;
    const lam_manifest *m = out->stack.m;
    out->compose = (lam_compose_options){.kv = m->kv, .policy = m->policy, .module_policies = m->module_policies,
                                         .n_module_policies = m->n_module_policies, .chat_template = m->template_text};
    lam_sampling_default(&out->sampling);
    lam_manifest_sampling_apply(&m->sampling, &out->sampling);
    double start = now_seconds();
    uint64_t budget = 0;
    code = budget_of(o, m, &budget, err);
    if (code != LAM_OK) return code;
    lam_engine_options engine = {.threads = (unsigned)count_or(o->threads, 0), .max_rows = (size_t)count_or(o->chunk, 0),
                                 .prefix_cache = (size_t)(count_or(o->prefix_cache, 0) << 20),
                                 .budget = budget < SIZE_MAX ? (size_t)budget : SIZE_MAX};
    out->cached_base = calloc(1, sizeof *out->cached_base);
    if (!out->cached_base) return fail_memory(err);
    code = lam_engine_new(&engine, &out->engine, err);
    if (code != LAM_OK) return code;
    code = open_cached(o, out, err);
    if (code == LAM_OK) code = lam_base_open(out->engine, out->cached_base->path, o->verify, &out->base, err);
    if (code != LAM_OK) return explain(o, out->stack.read || out->stack.model ? m->base_file : o->model, err);
    out->base_path = out->cached_base->path;
    lam_base_describe(out->base, &out->info);
    out->load_seconds = now_seconds() - start;
    return check_base(o, out, err);
}

const char *bytes_state(const struct options *o) { return o->verify == LAM_VERIFY_OFF ? "unverified" : "verified"; }

void print_kv_format(FILE *to, const struct options *o, const struct opened *all)
{
    if (o->kv == LAM_KV_DEFAULT) return;
    fprintf(to, "keys and values  %s, %zu bytes a position\n", lam_composition_kv_format(all->composition),
            lam_composition_kv_bytes(all->composition));
}

/* A name, with -2, -3 … if another one has it (as lam_manifest_names does). */
static char *free_name(const struct opened *all, const char *wish)
{
    size_t room = strlen(wish) + 8;
    char *name = malloc(room);
    if (!name) return NULL;
    strcpy(name, wish);
    for (size_t i = 0, next = 2; i < all->n_adapters; i++) {
        if (strcmp(all->adapters[i].name, name) != 0) continue;
        snprintf(name, room, "%s-%zu", wish, next++);
        i = (size_t)-1; /* look at all again */
    }
    return name;
}

lam_code open_adapter(const struct options *o, struct opened *all, const struct adapter_option *a, lam_error *err)
{
    struct progress progress;
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = &progress,
                                      .accept_tokenizer = a->accept_tokenizer || o->accept_tokenizer};
    struct lam_cached cached = {0};
    lam_adapter_report imported = {0};
    lam_adapter_info info;
    if (lam_manifest_detect(a->path)) return fail(err, LAM_E_ARGUMENT, "%s is a manifest, which stands in a MODEL's place, not in an adapter's", a->path);
    if (all->n_adapters == MAX_ADAPTERS) return fail(err, LAM_E_LIMIT, "%s: %d adapters at most", a->path, MAX_ADAPTERS);
    struct named_adapter *n = &all->adapters[all->n_adapters];
    struct held *held;
    lam_code code = held_open(o, a->path, HELD_ADAPTER, &held, err);
    if (code != LAM_OK) return code;
    progress_begin(&progress, o, false);
    code = lam_cache_open_adapter(held ? held_path(held) : a->path, all->base_path, all->info.base_digest, &cache, &cached, &imported, err);
    progress_end(&progress);
    list_faults(imported.faults, imported.n_faults);
    lam_memory_free(imported.faults);
    if (code == LAM_OK) code = lam_adapter_load(all->base, cached.path, o->waive || a->waive, &n->adapter, err);
    lam_cache_release(&cached);
    held_close(held); /* it is staged */
    if (code != LAM_OK) return explain(o, a->path, err);
    if (imported.warnings[0]) note(o, "%s: %s", a->path, imported.warnings);
    lam_adapter_describe(n->adapter, &info);
    if (differs(a->digest, info.digest)) {
        code = fail(err, LAM_E_DIGEST, "%.150s: %.150s is adapter %s, the manifest names %s", o->model, a->path, info.digest, a->digest);
        lam_adapter_unload(n->adapter); /* info's texts are its own */
        n->adapter = NULL;
        return code;
    }
    if (info.n_no_effect) note(o, "%s: %zu of %zu modules have no effect: their B is all zero", a->path, info.n_no_effect, info.n_modules);
    n->name = free_name(all, a->name ? a->name : info.name);
    n->weight = a->weight;
    n->rule = a->rule;
    all->n_adapters++;
    if (n->name) return LAM_OK;
    drop_adapter(all);
    return fail_memory(err);
}

void drop_adapter(struct opened *all)
{
    struct named_adapter *last = &all->adapters[--all->n_adapters];
    lam_adapter_unload(last->adapter);
    free(last->name);
    *last = (struct named_adapter){0};
}

lam_code compose(const struct opened *all, bool skip_zero, lam_composition **out, lam_error *err)
{
    const lam_manifest *m = all->stack.m;
    lam_adapter *list[MAX_ADAPTERS];
    double weights[MAX_ADAPTERS];
    lam_stack_rule rules[MAX_ADAPTERS];
    size_t n = 0, places[MAX_ADAPTERS];
    lam_owner *owners = calloc(m->n_owners + 1, sizeof *owners);
    lam_compose_options options = all->compose;
    if (!owners) return fail_memory(err);
    options.rules = rules;
    options.owners = owners;
    for (size_t i = 0; i < all->n_adapters; i++) {
        places[i] = MAX_ADAPTERS;
        if (skip_zero && all->adapters[i].weight == 0.0) continue;
        list[n] = all->adapters[i].adapter;
        rules[n] = all->adapters[i].rule;
        places[i] = n;
        weights[n++] = all->adapters[i].weight;
    }
    for (size_t i = 0; i < m->n_owners; i++) /* one that is left out owns nothing */
        if (places[m->owners[i].adapter] < MAX_ADAPTERS)
            owners[options.n_owners++] = (lam_owner){m->owners[i].module, places[m->owners[i].adapter]};
    lam_code code = lam_compose(all->base, list, weights, n, &options, out, err);
    free(owners);
    return code;
}

lam_code take_receipts(const struct options *o, struct opened *all, const char *const receipts[], size_t n, lam_error *err)
{
    const char *id = lam_composition_id(all->composition);
    lam_trust *trust = NULL;
    if (n == 0) return LAM_OK;
    lam_code code = lam_trust_open(o->trust, &trust, err);
    if (code == LAM_OK) code = lam_standing(id, lam_composition_n_adapters(all->composition), receipts, n, trust, all->standing, err);
    snprintf(all->standing_id, sizeof all->standing_id, "%s", id);
    lam_trust_free(trust);
    return code;
}

/* The manifest names the composition that must come out, and its receipts are about it. */
static lam_code check_composition(const struct options *o, struct opened *out, lam_error *err)
{
    const lam_manifest *m = out->stack.m;
    const char *id = lam_composition_id(out->composition);
    if (differs(m->id, id)) return fail(err, LAM_E_WRONG_COMPOSITION, "%.200s is composition %s, it says %s", o->model, id, m->id);
    lam_code code = take_receipts(o, out, m->receipts, m->n_receipts, err);
    return code == LAM_OK ? code : about(err, o->model);
}

const char *standing_of(const struct opened *all, const lam_composition *c)
{
    if (all->standing[0] && strcmp(all->standing_id, lam_composition_id(c)) == 0) return all->standing;
    return lam_composition_n_adapters(c) ? "unverified mixture" : "base";
}

const char *standing(const struct opened *all) { return standing_of(all, all->composition); }

void print_standing(FILE *to, const struct opened *all, int width)
{
    const char *words = standing(all);
    if (strcmp(words, "base") != 0) fprintf(to, "%-*s %s\n", width, "standing", words);
}

static lam_code open_stack(const struct options *o, struct opened *out, lam_error *err)
{
    const lam_manifest *m = out->stack.m;
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < m->n_adapters; i++) {
        const lam_manifest_adapter *a = &m->adapters[i];
        struct adapter_option option = {.path = (char *)a->file, .weight = a->weight, .rule = a->rule, .waive = a->waived,
                                        .accept_tokenizer = a->accept_tokenizer, .digest = a->digest, .name = a->name};
        code = open_adapter(o, out, &option, err);
    }
    return code == LAM_OK ? compose(out, false, &out->composition, err) : code;
}

static lam_code open_parts(const struct options *o, struct opened *out, lam_error *err)
{
    *out = (struct opened){.stack = {0}};
    lam_code code = check_budget(o, err);
    if (code == LAM_OK) code = open_base(o, out, err);
    if (code == LAM_OK) code = stack_name_owners(o, &out->stack, out->base_path, out->info.base_digest, err);
    return code == LAM_OK ? open_stack(o, out, err) : code;
}

lam_code open_all(const struct options *o, struct opened *out, lam_error *err)
{
    lam_code code = open_parts(o, out, err);
    if (code == LAM_OK) return check_composition(o, out, err);
    return out->base || lam_manifest_detect(o->model) ? stack_list_faults(o, code, err) : code;
}

lam_code check_not_read(const struct options *o, const struct opened *all, const char *path, lam_error *err)
{
    const lam_manifest *m = all->stack.m;
    const struct list *lists[] = {&o->figures, &o->receipts};
    const char *single[] = {all->base_path, m->base_file, m->template_file, o->template, o->key, o->trust};
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < sizeof single / sizeof *single; i++)
        if (single[i]) code = check_not_source(path, single[i], err);
    for (size_t i = 0; code == LAM_OK && i < m->n_adapters; i++) code = check_not_source(path, m->adapters[i].file, err);
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; code == LAM_OK && i < lists[l]->n; i++) code = check_not_source(path, lists[l]->items[i], err);
    return code;
}

void close_all(struct opened *all)
{
    lam_composition_free(all->composition);
    while (all->n_adapters) drop_adapter(all);
    lam_base_free(all->base);
    lam_engine_free(all->engine);
    if (all->cached_base) lam_cache_release(all->cached_base);
    free(all->cached_base);
    stack_release(&all->stack);
    *all = (struct opened){0};
}
