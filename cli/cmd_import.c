/* lamina import: models and adapters to .slm. */
#include "commands.h"
#include "describe.h"
#include "output.h"
#include "progress.h"
#include "report.h"
#include "suggest.h"

#include "stack.h"

#include <stdlib.h>
#include <string.h>

struct import {
    struct options *o;
    const char *source, *output;
    char own_output[512]; /* if none was given */
    bool adapter;
    lam_adapter_report report;
    double seconds;
};

/* The source's last name with .slm for what stands behind its last dot. */
static bool name_output(struct import *i)
{
    size_t len = strlen(i->source);
    while (len > 1 && i->source[len - 1] == '/') len--;
    size_t begin = len;
    while (begin && i->source[begin - 1] != '/') begin--;
    const char *name = i->source + begin, *dot = NULL;
    size_t n = len - begin;
    for (size_t k = 1; k < n; k++)
        if (name[k] == '.') dot = name + k;
    if (dot && (strncmp(dot, ".gguf", n - (size_t)(dot - name)) == 0)) n = (size_t)(dot - name);
    if (n == 0 || name[0] == '.' || n + 5 > sizeof i->own_output) return false;
    snprintf(i->own_output, sizeof i->own_output, "%.*s.slm", (int)n, name);
    i->output = i->own_output;
    return true;
}

static lam_code choose_output(struct import *i, lam_error *err)
{
    i->output = i->o->output;
    if (!i->output) {
        if (!name_output(i)) return fail(err, LAM_E_ARGUMENT, "%s gives no name for the output: give -o FILE", i->source);
        if (file_bytes(i->output) > 0) return fail(err, LAM_E_CONFLICT, "%s is there already: -o %s replaces it", i->output, i->output);
    }
    lam_code code = check_not_source(i->output, i->source, err);
    if (code == LAM_OK && i->o->model) code = check_not_source(i->output, i->o->model, err);
    if (code == LAM_OK) code = check_replaceable(i->output, err);
    return code == LAM_OK ? check_ending(i->output, ".slm", err) : code;
}

static lam_code import_adapter(struct import *i, const lam_import_options *options, lam_error *err)
{
    struct lam_cached base = {0};
    struct stack *s = calloc(1, sizeof *s);
    char digest[LAM_DIGEST_TEXT];
    if (!s) return fail_memory(err);
    lam_code code = stack_open(i->o, s, err);
    if (code == LAM_OK) code = stack_open_base(i->o, s, &base, digest, err);
    if (code == LAM_OK) code = check_not_source(i->output, base.path, err);
    if (code == LAM_OK && s->read) code = check_not_source(i->output, s->m->base_file, err);
    bool opened = code == LAM_OK;
    progress_begin(options->progress_context, i->o, false);
    if (opened) code = lam_import_adapter(i->source, base.path, i->output, options, &i->report, err);
    progress_end(options->progress_context);
    lam_cache_release(&base);
    stack_release(s);
    free(s);
    if (!opened) return code;
    list_faults(i->report.faults, i->report.n_faults);
    lam_memory_free(i->report.faults);
    i->report.faults = NULL;
    return code == LAM_OK ? LAM_OK : about(err, i->source);
}

static lam_code import_base(struct import *i, const lam_import_options *options, lam_error *err)
{
    progress_begin(options->progress_context, i->o, false);
    lam_code code = lam_import_base(i->source, i->output, options, err);
    progress_end(options->progress_context);
    return code == LAM_OK ? LAM_OK : about(err, i->source);
}

static lam_code import(struct import *i, lam_error *err)
{
    static const char *const words[] = {"q4_64", "outliers", "keep", "embedding", "output", NULL};
    struct progress progress;
    char meant[SUGGESTION];
    lam_import_options options = {.progress = progress_step, .progress_context = &progress, .quantise = i->o->quantise,
                                  .accept_tokenizer = i->o->accept_tokenizer};
    double start = now_seconds();
    lam_code code = i->adapter ? import_adapter(i, &options, err) : import_base(i, &options, err);
    i->seconds = now_seconds() - start;
    if (code == LAM_E_ARGUMENT && i->o->quantise) behind(err, did_you_mean(i->o->quantise, ":,=", words, meant));
    return code;
}

/* What --quantise did, from lam_inspect's tensors. */
struct encoding {
    json_int_t n_encoded, encoded_bytes, residual_values, residual_bytes, other_bytes;
    json_t *left; /* owned: names of the matrices that are not encoded */
};

static struct encoding encoding_of(const json_t *found)
{
    struct encoding e = {.left = json_array()};
    size_t i;
    json_t *tensor;
    json_array_foreach(json_object_get(found, "tensors"), i, tensor) {
        json_int_t bytes = json_integer_value(json_object_get(tensor, "bytes"));
        const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
        if (dtype && strcmp(dtype, "Q4_64") == 0) {
            e.n_encoded++;
            e.encoded_bytes += bytes;
            e.residual_values += json_integer_value(json_object_get(tensor, "residual_values"));
            e.residual_bytes += json_integer_value(json_object_get(tensor, "residual_bytes"));
        } else {
            e.other_bytes += bytes;
            if (json_array_size(json_object_get(tensor, "dims")) > 1) json_array_append(e.left, json_object_get(tensor, "name"));
        }
    }
    return e;
}

static void add_encoding(json_t *out, const json_t *found)
{
    struct encoding e = encoding_of(found);
    json_object_set_new(out, "encoded", json_pack("{s:s,s:I,s:I,s:I,s:I}", "type", "Q4_64", "matrices", e.n_encoded, "bytes",
                                                  e.encoded_bytes, "residual_values", e.residual_values, "residual_bytes",
                                                  e.residual_bytes));
    json_object_set_new(out, "left", e.left);
}

/* What was written, as lam_inspect sees it, with what the import knows beside. */
static int print_as_json(const struct import *i, json_t *found)
{
    static const char *const kept[] = {"bytes", "base_digest", "adapter_digest", "tokenizer_digest", "weights_root", "file_root",
                                       "tensor_types"};
    json_t *out = json_pack("{s:s,s:s,s:s,s:f}", "kind", i->adapter ? "adapter" : "base", "source", i->source, "output", i->output,
                            "seconds", i->seconds);
    for (size_t k = 0; out && k < sizeof kept / sizeof *kept; k++) json_object_set(out, kept[k], json_object_get(found, kept[k]));
    if (out && i->adapter) {
        json_object_set_new(out, "applied", json_integer((json_int_t)i->report.n_applied));
        json_object_set_new(out, "total", json_integer((json_int_t)i->report.n_tensors));
        json_object_set_new(out, "modules", json_integer((json_int_t)i->report.n_modules));
        json_object_set_new(out, "no_effect", json_integer((json_int_t)i->report.n_no_effect));
        json_object_set_new(out, "warnings", json_string(i->report.warnings));
    }
    if (out && i->o->quantise) add_encoding(out, found);
    return print_json(i->o, out);
}

static void print_encoding(const json_t *found)
{
    struct encoding e = encoding_of(found);
    size_t n = 0;
    printf("encoded    %lld matrices to Q4_64, %.2f MB", (long long)e.n_encoded, (double)e.encoded_bytes / 1e6);
    if (e.residual_values)
        printf(", and %lld outlier residuals, %.2f MB", (long long)e.residual_values, (double)e.residual_bytes / 1e6);
    printf("\nleft       ");
    if (json_array_size(e.left) == 0) printf("no matrix");
    for (; n < json_array_size(e.left) && n < 8; n++) printf("%s%s", n ? ", " : "", json_string_value(json_array_get(e.left, n)));
    if (n < json_array_size(e.left)) printf(" and %zu more", json_array_size(e.left) - n);
    printf("; %snorms and biases %.2f MB\n", json_array_size(e.left) ? "with " : "", (double)e.other_bytes / 1e6);
    json_decref(e.left);
}

static void print_for_people(const struct import *i, const json_t *found)
{
    char types[512];
    describe_types(found, types, sizeof types);
    printf("%s: %s from %s, %.2f MB, in %.2f s\n", i->output, i->adapter ? "an adapter" : "a base", i->source,
           (double)json_integer_value(json_object_get(found, "bytes")) / 1e6, i->seconds);
    printf("weights    %s\n", types);
    if (i->o->quantise) print_encoding(found);
    if (i->adapter)
        printf("applied    %zu of %zu tensors, to %zu modules%s\n", i->report.n_applied, i->report.n_tensors, i->report.n_modules,
               i->report.n_no_effect ? "" : ", all with effect");
    if (i->report.n_no_effect) printf("no effect  %zu modules: their B is all zero\n", i->report.n_no_effect);
    printf("digest     %s\n", json_string_value(json_object_get(found, i->adapter ? "adapter_digest" : "base_digest")));
    printf("file_root  %s\n", json_string_value(json_object_get(found, "file_root")));
}

static int tell(const struct import *i)
{
    lam_error err;
    char *text;
    int status = 0;
    if (i->report.warnings[0]) note(i->o, "%s: %s", i->source, i->report.warnings);
    if (lam_inspect(i->output, i->o->quantise != NULL, &text, &err) != LAM_OK) return report(i->o, &err);
    json_t *found = json_loads(text, 0, NULL);
    if (i->o->json) status = print_as_json(i, found);
    else if (!i->o->quiet) print_for_people(i, found);
    json_decref(found);
    lam_memory_free(text);
    return status;
}

int cmd_import(struct options *o)
{
    lam_error err;
    lam_source_kind kind;
    if (o->n_rest != 1) return usage(o, "import takes one SOURCE");
    struct import i = {.o = o, .source = o->rest[0]};
    if (lam_manifest_detect(i.source)) return usage(o, "%s is a manifest, of which nothing is imported: lamina run and the others take it as it is", i.source);
    if (lam_source_detect(i.source, &kind, &err) != LAM_OK) return report(o, &err);
    bool bind = kind == LAM_SOURCE_SLM_ADAPTER;
    if (kind == LAM_SOURCE_SLM_BASE || (bind && !o->model))
        return usage(o, "%s is a .slm already%s", i.source, bind ? "; -m BASE binds an adapter that is bound to no base" : "");
    if (bind && !o->output) return usage(o, "where to? give -o FILE.slm");
    i.adapter = bind || kind == LAM_SOURCE_GGUF_ADAPTER || kind == LAM_SOURCE_PEFT_ADAPTER;
    if (i.adapter && !o->model) return usage(o, "%s is an adapter, which is bound to its base: give -m BASE", i.source);
    if (i.adapter && o->quantise) return usage(o, "%s is an adapter; --quantise is for bases", i.source);
    if (!i.adapter && o->accept_tokenizer) return usage(o, "%s is a base; --accept-tokenizer is for adapters", i.source);
    if (!i.adapter && o->model) return usage(o, "%s is a base; -m is for adapters", i.source);
    lam_code code = choose_output(&i, &err);
    if (code == LAM_OK) code = import(&i, &err);
    return code == LAM_OK ? tell(&i) : report(o, &err);
}
