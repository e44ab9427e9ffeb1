/* lamina seed: a folder that any web server can serve to lamina pull. */
#include "commands.h"
#include "transfer.h"

static void print_files(const json_t *statement)
{
    const char *name;
    json_t *model, *file;
    size_t i;
    json_object_foreach(json_object_get(statement, "models"), name, model) {
        printf("%s: %s\n", name, json_string_value(json_object_get(model, "kind")));
        printf("  %s\n", json_string_value(json_object_get(json_object_get(model, "manifest"), "path")));
        json_array_foreach(json_object_get(model, "files"), i, file)
            printf("  %s  %lld\n", json_string_value(json_object_get(file, "path")),
                   (long long)json_integer_value(json_object_get(file, "size")));
    }
}

int cmd_seed(struct options *o)
{
    lam_store *store = NULL;
    lam_error err;
    char *text = NULL;
    if (o->key && !o->output) return usage(o, "a signature is for what is written: give -o FOLDER");
    lam_code code = open_store(o, false, &store, &err);
    if (code == LAM_OK) code = lam_seed_make(store, (const char *const *)o->rest, o->n_rest, o->first, o->key, o->output, &text, &err);
    lam_store_close(store);
    if (code != LAM_OK) return report(o, &err);
    json_t *index = json_loads(text, 0, NULL);
    lam_memory_free(text);
    if (o->json) return print_json(o, index);
    if (!o->quiet) print_files(json_object_get(index, "statement"));
    if (o->output && !o->quiet) printf("%s/seed.json: %s\n", o->output, json_object_get(index, "signature") ? "signed" : "unsigned");
    json_decref(index);
    return 0;
}
