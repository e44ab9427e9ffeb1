/* lamina cache: what was imported for direct use. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "report.h"
#include "suggest.h"

#include "lamina/cache.h"

#include <string.h>
#include <time.h>

static const char *entries_word(size_t n) { return n == 1 ? "entry" : "entries"; }

static void print_entry(const struct lam_cache_entry *e)
{
    char when[32] = "?";
    time_t t = (time_t)e->last_use;
    struct tm local;
    if (localtime_r(&t, &local)) strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
    printf("%.12s  %9.2f MB  %s  %-7s  %s\n", e->key, (double)e->bytes / 1e6, when, e->is_adapter ? "adapter" : "base", e->source);
}

static json_t *entry_json(const struct lam_cache_entry *e)
{
    return json_pack("{s:s,s:s,s:I,s:I,s:s}", "key", e->key, "source", e->source, "bytes", (json_int_t)e->bytes, "last_use",
                     (json_int_t)e->last_use, "kind", e->is_adapter ? "adapter" : "base");
}

static int list(struct options *o)
{
    lam_error err;
    struct lam_cache_entry *entries;
    size_t n;
    uint64_t bytes = 0;
    char *folder;
    if (lam_cache_folder(NULL, &folder, &err) != LAM_OK) return report(o, &err);
    if (lam_cache_list(NULL, &entries, &n, &err) != LAM_OK) {
        lam_memory_free(folder);
        return report(o, &err);
    }
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        bytes += entries[i].bytes;
        if (o->json) json_array_append_new(all, entry_json(&entries[i]));
        else print_entry(&entries[i]);
    }
    if (!o->json) printf("%zu %s, %.2f MB, in %s\n", n, entries_word(n), (double)bytes / 1e6, folder);
    lam_cache_free_list(entries, n);
    int status = 0;
    if (o->json) status = print_json(o, json_pack("{s:s,s:I,s:O}", "folder", folder, "bytes", (json_int_t)bytes, "entries", all));
    json_decref(all);
    lam_memory_free(folder);
    return status;
}

static int clear(struct options *o, const char *which)
{
    lam_error err;
    struct lam_cache_cleared cleared;
    if (lam_cache_clear(NULL, which, &cleared, &err) != LAM_OK) return report(o, &err);
    if (o->json)
        return print_json(o, json_pack("{s:I,s:I,s:I}", "removed", (json_int_t)cleared.n_removed, "in_use", (json_int_t)cleared.n_in_use,
                                       "bytes", (json_int_t)cleared.bytes));
    printf("%zu %s removed, %.2f MB freed", cleared.n_removed, entries_word(cleared.n_removed), (double)cleared.bytes / 1e6);
    if (cleared.n_in_use) printf(", %zu in use kept", cleared.n_in_use);
    printf("\n");
    return 0;
}

int cmd_cache(struct options *o)
{
    const char *what = o->n_rest ? o->rest[0] : "";
    if (strcmp(what, "list") == 0 && o->n_rest == 1) return list(o);
    if (strcmp(what, "clear") == 0 && o->n_rest <= 2) return clear(o, o->n_rest == 2 ? o->rest[1] : NULL);
    if (strcmp(what, "list") == 0 || strcmp(what, "clear") == 0) return usage(o, "unexpected argument \"%s\"", o->rest[o->n_rest - 1]);
    const char *meant = nearer_word(what, nearer_word(what, NULL, "list"), "clear");
    return usage(o, "cache takes list or clear [ENTRY]%s%s%s", meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
}
