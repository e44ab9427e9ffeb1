/* lamina pull: a model or composition from another machine into the store. */
#include "commands.h"
#include "transfer.h"

#include <string.h>

static void print_model(const char *name, const json_t *model, bool first)
{
    json_int_t bytes = 0;
    size_t i;
    json_t *file;
    json_array_foreach(json_object_get(model, "files"), i, file) bytes += json_integer_value(json_object_get(file, "size"));
    printf("%-24s %-12s %10.2f MB  %s%s\n", name, json_string_value(json_object_get(model, "kind")), (double)bytes / 1e6,
           json_string_value(json_object_get(json_object_get(model, "manifest"), "digest")), first ? "  (default)" : "");
}

static int list(struct options *o)
{
    struct transfer t;
    lam_error err;
    char *text = NULL;
    lam_code code = transfer_begin(&t, o, &err);
    if (code == LAM_OK) code = lam_seed_list(o->rest[0], &t.options, &text, &err);
    transfer_end(&t);
    if (code != LAM_OK) return report(o, &err);
    json_t *found = json_loads(text, 0, NULL), *model;
    const char *name, *first = json_string_value(json_object_get(found, "default"));
    lam_memory_free(text);
    if (o->json) return print_json(o, found);
    json_object_foreach(json_object_get(found, "models"), name, model) print_model(name, model, first && strcmp(name, first) == 0);
    printf("%s\n", json_string_value(json_object_get(found, "standing")));
    json_decref(found);
    return 0;
}

static void print_report(const lam_transfer_report *r)
{
    printf("%s: %s, %.2f MB, %.2f MB of it fetched\n", r->name, lam_store_kind_name(r->kind), (double)r->bytes / 1e6,
           (double)r->moved / 1e6);
    printf("digest     %s\nroot       %s (%s%s%s)\n", r->digest, r->root, lam_root_origin_name(r->origin),
           r->origin == LAM_ROOT_SIGNED ? " by " : "",
           r->signer);
}

int cmd_pull(struct options *o)
{
    struct transfer t;
    lam_transfer_report pulled;
    lam_store *store = NULL;
    lam_error err;
    if (o->n_rest < 1 || o->n_rest > 2 || (o->list && o->n_rest > 1))
        return usage(o, "pull takes one REFERENCE, and of a seed a MODEL");
    if (o->list) return list(o);
    lam_code code = transfer_begin(&t, o, &err);
    if (code == LAM_OK) code = open_store(o, true, &store, &err);
    if (code == LAM_OK) code = lam_pull(store, o->rest[0], o->n_rest > 1 ? o->rest[1] : NULL, o->name, &t.options, &pulled, &err);
    json_t *out = code == LAM_OK && o->json ? transfer_json(&t, &pulled) : NULL;
    transfer_end(&t);
    lam_store_close(store);
    if (code != LAM_OK) return report(o, &err);
    if (o->json) return print_json(o, out);
    if (!o->quiet) print_report(&pulled);
    return 0;
}
