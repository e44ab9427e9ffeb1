#include "open.h"

#include "progress.h"
#include "report.h"

#include "lamina/cache.h"

#include <stdlib.h>
#include <string.h>

/* What helps where the cache or the model's name is in the way. */
static lam_code explain(const struct options *o, const char *path, lam_error *err)
{
    bool first = o->bare_model && (strcmp(o->command, "run") == 0 || strcmp(o->command, "tokenize") == 0);
    about(err, path);
    if (err->code == LAM_E_LIMIT && strstr(err->message, "bytes are needed, the limit is"))
        hint(err, "raise LAMINA_CACHE_MAX, or run `lamina import SOURCE -o FILE.slm` and use FILE.slm");
    else if (err->code == LAM_E_NOT_FOUND && path == o->model && first && !o->prompt && !o->token_ids && !o->n_rest)
        hint(err, "the first word is the MODEL, -p gives the prompt");
    return err->code;
}

static lam_code open_cached(const struct options *o, struct opened *out, lam_error *err)
{
    struct progress progress;
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = &progress};
    progress_begin(&progress, o, false);
    lam_code code = lam_cache_open_base(o->model, &cache, out->cached_base, err);
    progress_end(&progress);
    return code;
}

lam_code open_base(const struct options *o, struct opened *out, lam_error *err)
{
    *out = (struct opened){.compose.kv = o->kv};
    double start = now_seconds();
    lam_engine_options engine = {.threads = (unsigned)count_or(o->threads, 0), .max_rows = (size_t)count_or(o->chunk, 0)};
    out->cached_base = calloc(1, sizeof *out->cached_base);
    if (!out->cached_base) return fail_memory(err);
    lam_code code = lam_engine_new(&engine, &out->engine, err);
    if (code != LAM_OK) return code;
    code = open_cached(o, out, err);
    if (code == LAM_OK) code = lam_base_open(out->engine, out->cached_base->path, o->verify, &out->base, err);
    if (code != LAM_OK) return explain(o, o->model, err);
    out->base_path = out->cached_base->path;
    lam_base_describe(out->base, &out->info);
    out->load_seconds = now_seconds() - start;
    return LAM_OK;
}

const char *bytes_state(const struct options *o) { return o->verify == LAM_VERIFY_OFF ? "unverified" : "verified"; }

void print_kv_format(FILE *to, const struct options *o, const struct opened *all)
{
    if (o->kv == LAM_KV_DEFAULT) return;
    fprintf(to, "keys and values  %s, %zu bytes a position\n", lam_composition_kv_format(all->composition),
            lam_composition_kv_bytes(all->composition));
}

/* The adapter's own name, with -2, -3 … if another one has it. */
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
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = &progress};
    struct lam_cached cached = {0};
    lam_adapter_report imported = {0};
    lam_adapter_info info;
    if (all->n_adapters == MAX_ADAPTERS) return fail(err, LAM_E_LIMIT, "%s: %d adapters at most", a->path, MAX_ADAPTERS);
    struct named_adapter *n = &all->adapters[all->n_adapters];
    progress_begin(&progress, o, false);
    lam_code code = lam_cache_open_adapter(a->path, all->base_path, all->info.base_digest, &cache, &cached, &imported, err);
    progress_end(&progress);
    list_unmatched(imported.unmatched);
    if (code == LAM_OK) code = lam_adapter_load(all->base, cached.path, o->waive, &n->adapter, err);
    lam_cache_release(&cached);
    if (code != LAM_OK) return explain(o, a->path, err);
    if (imported.warnings[0]) note(o, "%s: %s", a->path, imported.warnings);
    lam_adapter_describe(n->adapter, &info);
    if (info.n_no_effect) note(o, "%s: %zu of %zu modules have no effect: their B is all zero", a->path, info.n_no_effect, info.n_modules);
    n->name = free_name(all, info.name);
    n->weight = a->weight;
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
    lam_adapter *list[MAX_ADAPTERS];
    double weights[MAX_ADAPTERS];
    size_t n = 0;
    for (size_t i = 0; i < all->n_adapters; i++) {
        if (skip_zero && all->adapters[i].weight == 0.0) continue;
        list[n] = all->adapters[i].adapter;
        weights[n++] = all->adapters[i].weight;
    }
    return lam_compose(all->base, list, weights, n, &all->compose, out, err);
}

lam_code open_all(const struct options *o, struct opened *out, lam_error *err)
{
    lam_code code = open_base(o, out, err);
    for (size_t i = 0; code == LAM_OK && i < o->n_adapters; i++) code = open_adapter(o, out, &o->adapters[i], err);
    if (code == LAM_OK) code = compose(out, false, &out->composition, err);
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
    *all = (struct opened){0};
}
