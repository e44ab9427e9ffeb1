#define _POSIX_C_SOURCE 200809L

#include "common.h"

#include "lamina/cache.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static lam_code fail(lam_error *err, lam_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

static lam_code fail(lam_error *err, lam_code code, const char *format, ...)
{
    va_list args;
    *err = (lam_error){.code = code, .file = __FILE__};
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

int report(const struct options *o, const lam_error *err)
{
    if (o->json) {
        json_t *message = json_string(err->message); /* NULL if it is not UTF-8 */
        print_json(json_pack("{s:{s:i,s:s,s:o}}", "error", "code", err->code, "name", lam_code_name(err->code), "message",
                             message ? message : json_string("(the message is not UTF-8)")));
    } else {
        fprintf(stderr, "lamina: %s (%s)\n", err->message, lam_code_name(err->code));
    }
    return 1;
}

int usage(const char *format, ...)
{
    va_list args;
    fprintf(stderr, "lamina: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    return 2;
}

int print_json(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    if (text) puts(text);
    free(text);
    json_decref(value);
    return text ? 0 : 1;
}

bool progress_bar(void *context, const char *stage, uint64_t done, uint64_t total)
{
    static const char full[] = "########################################";
    const int width = (int)sizeof full - 1;
    (void)context;
    int filled = total ? (int)((double)done / (double)total * width) : width;
    if (filled > width) filled = width;
    fprintf(stderr, "\r%-8s [%-*.*s] %7.1f of %.1f MB", stage, width, filled, full, (double)done / 1e6, (double)total / 1e6);
    if (done >= total) fprintf(stderr, "\r\033[K");
    fflush(stderr);
    return true;
}

lam_import_options import_options(const struct options *o)
{
    bool show = !o->quiet && !o->json && isatty(STDERR_FILENO);
    return (lam_import_options){.progress = show ? progress_bar : NULL};
}

static struct lam_cache_options cache_options(const struct options *o)
{
    return (struct lam_cache_options){.progress = import_options(o).progress};
}

lam_code open_base(const struct options *o, struct opened *out, lam_error *err)
{
    *out = (struct opened){0};
    double start = now_seconds();
    lam_engine_options engine = {.threads = o->threads, .max_rows = o->chunk};
    struct lam_cache_options cache = cache_options(o);
    out->cached_base = calloc(1, sizeof *out->cached_base);
    if (!out->cached_base) return fail(err, LAM_E_NO_MEMORY, "out of memory");
    lam_code code = lam_engine_new(&engine, &out->engine, err);
    if (code == LAM_OK) code = lam_cache_open_base(o->model, &cache, out->cached_base, err);
    if (code == LAM_OK) code = lam_base_open(out->engine, out->cached_base->path, o->verify, &out->base, err);
    if (code == LAM_OK) {
        out->base_path = out->cached_base->path;
        lam_base_describe(out->base, &out->info);
    }
    out->load_seconds = now_seconds() - start;
    return code;
}

lam_code open_adapter(const struct options *o, struct opened *all, const struct adapter_option *a, lam_error *err)
{
    struct lam_cache_options cache = cache_options(o);
    struct lam_cached cached = {0};
    lam_adapter_report imported = {0};
    if (all->n_adapters == MAX_ADAPTERS) return fail(err, LAM_E_LIMIT, "more than %d adapters", MAX_ADAPTERS);
    lam_code code = lam_cache_open_adapter(a->path, all->base_path, all->info.base_digest, &cache, &cached, &imported, err);
    struct named_adapter *n = &all->adapters[all->n_adapters];
    if (code == LAM_OK) code = lam_adapter_load(all->base, cached.path, o->waive, &n->adapter, err);
    lam_cache_release(&cached);
    if (code != LAM_OK) return code;
    if (!o->quiet && imported.warnings[0]) fprintf(stderr, "lamina: %s: %s\n", a->path, imported.warnings);
    n->weight = a->weight;
    all->n_adapters++;
    return LAM_OK;
}

lam_code open_all(const struct options *o, struct opened *out, lam_error *err)
{
    lam_code code = open_base(o, out, err);
    for (size_t i = 0; code == LAM_OK && i < o->n_adapters; i++) code = open_adapter(o, out, &o->adapters[i], err);
    lam_adapter *list[MAX_ADAPTERS];
    double weights[MAX_ADAPTERS];
    for (size_t i = 0; i < out->n_adapters; i++) {
        list[i] = out->adapters[i].adapter;
        weights[i] = out->adapters[i].weight;
    }
    if (code == LAM_OK) code = lam_compose(out->base, list, weights, out->n_adapters, &out->composition, err);
    return code;
}

void close_all(struct opened *all)
{
    lam_composition_free(all->composition);
    for (size_t i = 0; i < all->n_adapters; i++) lam_adapter_unload(all->adapters[i].adapter);
    lam_base_free(all->base);
    lam_engine_free(all->engine);
    if (all->cached_base) lam_cache_release(all->cached_base);
    free(all->cached_base);
    *all = (struct opened){0};
}

lam_code read_whole(const char *path, char **text, size_t *len, lam_error *err)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f) return fail(err, errno == ENOENT ? LAM_E_NOT_FOUND : LAM_E_IO, "%s: %s", path, strerror(errno));
    size_t room = 1 << 16, n = 0;
    char *block = malloc(room);
    while (block) {
        n += fread(block + n, 1, room - n - 1, f);
        if (n + 1 < room) break;
        char *bigger = realloc(block, room *= 2);
        if (!bigger) free(block);
        block = bigger;
    }
    bool failed = ferror(f) != 0;
    if (!standard) fclose(f);
    if (!block) return fail(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    if (failed) {
        free(block);
        return fail(err, LAM_E_IO, "%s: cannot be read", path);
    }
    block[n] = 0;
    *text = block;
    *len = n;
    return LAM_OK;
}

lam_code parse_token_ids(const char *text, uint32_t **tokens, size_t *n, lam_error *err)
{
    size_t room = strlen(text) / 2 + 1;
    *n = 0;
    *tokens = malloc(room * sizeof **tokens);
    if (!*tokens) return fail(err, LAM_E_NO_MEMORY, "out of memory");
    for (const char *c = text; *c;) {
        char *end;
        errno = 0;
        unsigned long id = strtoul(c, &end, 10);
        if (end == c || errno || id > UINT32_MAX || *c == '-') {
            lam_memory_free(*tokens);
            *tokens = NULL;
            return fail(err, LAM_E_ARGUMENT, "\"%.40s\" is not a list of token ids", c);
        }
        (*tokens)[(*n)++] = (uint32_t)id;
        c = end + strspn(end, ", \n\t\r");
    }
    return LAM_OK;
}

static lam_code chat_tokens(const struct options *o, const struct opened *all, const char *text, uint32_t **tokens, size_t *n,
                            lam_error *err)
{
    lam_message messages[2];
    size_t count = 0;
    char *formatted;
    if (o->system) messages[count++] = (lam_message){"system", o->system};
    messages[count++] = (lam_message){"user", text};
    lam_code code = lam_chat_format(all->base, messages, count, true, &formatted, err);
    if (code != LAM_OK) return code;
    code = lam_tokenize(all->base, formatted, strlen(formatted), LAM_TOKENIZE_SPECIAL | LAM_TOKENIZE_CONTROL, tokens, n, err);
    lam_memory_free(formatted);
    return code;
}

lam_code prompt_tokens(const struct options *o, const struct opened *all, const char *text, bool chat, uint32_t **tokens, size_t *n,
                       lam_error *err)
{
    lam_code code;
    if (o->token_ids) code = parse_token_ids(o->token_ids, tokens, n, err);
    else if (chat) code = chat_tokens(o, all, text, tokens, n, err);
    else code = lam_tokenize(all->base, text, strlen(text), LAM_TOKENIZE_SPECIAL, tokens, n, err);
    if (code == LAM_OK && *n == 0) {
        lam_memory_free(*tokens);
        *tokens = NULL;
        return fail(err, LAM_E_ARGUMENT, "the prompt is empty");
    }
    return code;
}
