/* lamina import, inspect, verify, export, cache: what deals with files and runs no model. */
#include "commands.h"
#include "common.h"

#include "lamina/cache.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int import_base(struct options *o, const char *source)
{
    lam_error err;
    lam_import_options options = import_options(o);
    double start = now_seconds();
    if (lam_import_base(source, o->output, &options, &err) != LAM_OK) return report(o, &err);
    double seconds = now_seconds() - start;
    if (o->json) return print_json(json_pack("{s:s,s:s,s:s,s:f}", "kind", "base", "source", source, "output", o->output, "seconds", seconds));
    if (!o->quiet) printf("%s: a base, from %s, in %.1f s\n", o->output, source, seconds);
    return 0;
}

static int import_adapter(struct options *o, const char *source)
{
    lam_error err;
    lam_adapter_report r;
    lam_import_options options = import_options(o);
    struct lam_cached base;
    struct lam_cache_options cache = {.progress = options.progress};
    if (!o->model) return usage("an adapter is bound to its base: give -m BASE");
    if (lam_cache_open_base(o->model, &cache, &base, &err) != LAM_OK) return report(o, &err);
    lam_code code = lam_import_adapter(source, base.path, o->output, &options, &r, &err);
    lam_cache_release(&base);
    if (code != LAM_OK) return report(o, &err);
    if (o->json)
        return print_json(json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:s}", "kind", "adapter", "source", source, "output", o->output,
                                    "adapter_digest", r.digest, "applied", (json_int_t)r.n_applied, "total", (json_int_t)r.n_tensors,
                                    "modules", (json_int_t)r.n_modules, "no_effect", (json_int_t)r.n_no_effect, "warnings", r.warnings));
    if (r.warnings[0]) fprintf(stderr, "lamina: %s\n", r.warnings);
    if (o->quiet) return 0;
    printf("%s: an adapter, from %s: %zu/%zu tensors applied, %zu modules\n%s\n", o->output, source, r.n_applied, r.n_tensors,
           r.n_modules, r.digest);
    if (r.n_no_effect) printf("%zu modules have no effect: their B is all zero\n", r.n_no_effect);
    return 0;
}

int cmd_import(struct options *o)
{
    lam_error err;
    lam_source_kind kind;
    if (o->n_rest != 1) return usage("import takes one SOURCE");
    if (!o->output) return usage("where to? give -o FILE");
    const char *source = o->rest[0];
    if (lam_source_detect(source, &kind, &err) != LAM_OK) return report(o, &err);
    switch (kind) {
    case LAM_SOURCE_GGUF_MODEL: case LAM_SOURCE_HF_MODEL: return import_base(o, source);
    case LAM_SOURCE_GGUF_ADAPTER: case LAM_SOURCE_PEFT_ADAPTER: return import_adapter(o, source);
    default: return usage("%s is a .slm already", source);
    }
}

/* "key: value" lines of an object, nested ones indented. */
static void print_object(const json_t *object, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (json_is_object(value)) {
            printf("%*s%s:\n", indent, "", key);
            print_object(value, indent + 2);
        } else if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
            printf("%*s%s: %zu\n", indent, "", key, json_array_size(value));
            for (size_t i = 0; i < json_array_size(value); i++) {
                char *line = json_dumps(json_array_get(value, i), JSON_COMPACT);
                printf("%*s%s\n", indent + 2, "", line ? line : "");
                free(line);
            }
        } else {
            char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
            printf("%*s%-*s %s\n", indent, "", 24 - indent, key, json_is_string(value) ? json_string_value(value) : text ? text : "");
            free(text);
        }
    }
}

int cmd_inspect(struct options *o)
{
    lam_error err;
    char *text;
    if (o->n_rest != 1) return usage("inspect takes one FILE");
    if (lam_inspect(o->rest[0], o->tensors, &text, &err) != LAM_OK) return report(o, &err);
    if (o->json) {
        puts(text);
    } else {
        json_t *object = json_loads(text, 0, NULL);
        print_object(object, 0);
        json_decref(object);
    }
    lam_memory_free(text);
    return 0;
}

int cmd_verify(struct options *o)
{
    lam_error err;
    char root[LAM_DIGEST_TEXT];
    if (o->n_rest != 1) return usage("verify takes one FILE");
    lam_import_options options = import_options(o);
    double start = now_seconds();
    if (lam_verify_file(o->rest[0], &options, root, &err) != LAM_OK) return report(o, &err);
    double seconds = now_seconds() - start;
    if (o->json) return print_json(json_pack("{s:b,s:s,s:f}", "verified", 1, "file_root", root, "seconds", seconds));
    printf("%s: every piece matches, file_root %s, in %.2f s\n", o->rest[0], root, seconds);
    if (!o->quiet) printf("The root came with the file; compare it with one that you have from elsewhere.\n");
    return 0;
}

int cmd_export(struct options *o)
{
    lam_error err;
    struct lam_cached base;
    lam_import_options options = import_options(o);
    struct lam_cache_options cache = {.progress = options.progress};
    if (!options_take_model(o)) return 2;
    if (!o->output) return usage("where to? give -o FILE");
    if (lam_cache_open_base(o->model, &cache, &base, &err) != LAM_OK) return report(o, &err);
    lam_code code = lam_export_gguf(base.path, o->output, &options, &err);
    lam_cache_release(&base);
    if (code != LAM_OK) return report(o, &err);
    if (o->json) return print_json(json_pack("{s:s}", "output", o->output));
    if (!o->quiet) printf("%s: written\n", o->output);
    return 0;
}

static int cache_list(struct options *o)
{
    lam_error err;
    struct lam_cache_entry *entries;
    size_t n;
    uint64_t bytes = 0;
    if (lam_cache_list(NULL, &entries, &n, &err) != LAM_OK) return report(o, &err);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct lam_cache_entry *e = &entries[i];
        char when[32];
        time_t t = (time_t)e->last_use;
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime(&t));
        bytes += e->bytes;
        if (!o->json) printf("%.12s  %8.1f MB  %s  %-7s  %s\n", e->key, (double)e->bytes / 1e6, when, e->is_adapter ? "adapter" : "base", e->source);
        json_array_append_new(list, json_pack("{s:s,s:s,s:I,s:I,s:s}", "key", e->key, "source", e->source, "bytes", (json_int_t)e->bytes,
                                              "last_use", (json_int_t)e->last_use, "kind", e->is_adapter ? "adapter" : "base"));
    }
    lam_cache_free_list(entries, n);
    if (o->json) return print_json(list);
    json_decref(list);
    printf("%zu entries, %.1f MB\n", n, (double)bytes / 1e6);
    return 0;
}

static int cache_clear(struct options *o, const char *which)
{
    lam_error err;
    struct lam_cache_cleared cleared;
    if (lam_cache_clear(NULL, which, &cleared, &err) != LAM_OK) return report(o, &err);
    if (o->json)
        return print_json(json_pack("{s:I,s:I,s:I}", "removed", (json_int_t)cleared.n_removed, "in_use", (json_int_t)cleared.n_in_use,
                                    "bytes", (json_int_t)cleared.bytes));
    printf("%zu entries removed, %.1f MB freed, %zu in use kept\n", cleared.n_removed, (double)cleared.bytes / 1e6, cleared.n_in_use);
    return 0;
}

int cmd_cache(struct options *o)
{
    if (o->n_rest == 1 && strcmp(o->rest[0], "list") == 0) return cache_list(o);
    if (o->n_rest >= 1 && o->n_rest <= 2 && strcmp(o->rest[0], "clear") == 0) return cache_clear(o, o->n_rest == 2 ? o->rest[1] : NULL);
    return usage("cache takes list or clear [ENTRY]");
}
