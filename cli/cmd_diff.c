/* lamina diff: what a tuned model changed of its base, as an adapter. */
#include "commands.h"
#include "output.h"
#include "progress.h"
#include "report.h"
#include "suggest.h"

#include "lamina/cache.h"
#include "lamina/diff.h"
#include "lamina/manifest.h"

#include <stdlib.h>
#include <string.h>

struct diff {
    struct options *o;
    const char *base, *tuned; /* as they were named */
    lam_diff_options options;
    json_t *report;           /* owned */
    double seconds;
};

/* A number from 0 to less than or equal to 1; true too where none is given. */
static bool read_share(const struct options *o, const char *name, const char *text, bool with_one, double *out)
{
    if (!text || (read_real(text, out) && *out >= 0.0 && (with_one ? *out <= 1.0 : *out < 1.0))) return true;
    usage(o, "--%s %s: 0 to %s1 are possible", name, text, with_one ? "" : "less than ");
    return false;
}

static bool read_method(struct diff *d)
{
    static const char *const methods[] = {"sparse", "dense", "lora", NULL};
    const char *text = d->o->method;
    unsigned long rank = 0;
    char *end = NULL, meant[SUGGESTION];
    if (!text) return usage(d->o, "how? give --method sparse, dense or lora:RANK"), false;
    if (strncmp(text, "lora:", 5) == 0 && text[5] >= '0' && text[5] <= '9') rank = strtoul(text + 5, &end, 10);
    if (strcmp(text, "sparse") == 0) d->options.method = LAM_DIFF_SPARSE;
    else if (strcmp(text, "dense") == 0) d->options.method = LAM_DIFF_DENSE;
    else if (end && !*end && rank >= 1 && rank <= 8192) d->options.method = LAM_DIFF_LORA;
    else
        return usage(d->o, "--method %s: sparse, dense and lora:RANK (1 to 8192) are possible%s", text, did_you_mean(text, ":", methods, meant)), false;
    d->options.rank = (uint32_t)rank;
    return true;
}

static bool read_options(struct diff *d)
{
    static const char *const dtypes[] = {"f32", "f16", "bf16", NULL};
    char meant[SUGGESTION];
    bool known = !d->o->dtype;
    for (size_t i = 0; dtypes[i] && !known; i++) known = strcmp(d->o->dtype, dtypes[i]) == 0;
    d->options.dtype = d->o->dtype;
    d->options.seed = count_or(d->o->seed, 0);
    d->options.threads = (unsigned)count_or(d->o->threads, 0);
    if (!known) return usage(d->o, "--dtype %s: f32, f16 and bf16 are possible%s", d->o->dtype, did_you_mean(d->o->dtype, "", dtypes, meant)), false;
    return read_method(d) && read_share(d->o, "density", d->o->density, true, &d->options.density) &&
           read_share(d->o, "drop", d->o->drop, false, &d->options.drop);
}

static lam_code take(struct diff *d, struct progress *progress, lam_error *err)
{
    struct lam_cached base = {0}, tuned = {0};
    struct lam_cache_options cache = {.progress = progress_step, .progress_context = progress};
    char *text = NULL;
    lam_code code = lam_cache_open_base(d->base, &cache, &base, err);
    if (code != LAM_OK) return about(err, d->base);
    code = lam_cache_open_base(d->tuned, &cache, &tuned, err);
    if (code != LAM_OK) {
        lam_cache_release(&base);
        return about(err, d->tuned);
    }
    code = check_not_source(d->o->output, base.path, err);
    if (code == LAM_OK) code = check_not_source(d->o->output, tuned.path, err);
    if (code == LAM_OK) code = lam_diff(base.path, tuned.path, d->o->output, &d->options, &text, err);
    if (code == LAM_OK) d->report = json_loads(text, 0, NULL);
    lam_memory_free(text);
    lam_cache_release(&base);
    lam_cache_release(&tuned);
    return code;
}

static lam_code run(struct diff *d, lam_error *err)
{
    struct progress progress;
    double start = now_seconds();
    lam_code code = check_not_source(d->o->output, d->base, err);
    if (code == LAM_OK) code = check_not_source(d->o->output, d->tuned, err);
    if (code == LAM_OK) code = check_replaceable(d->o->output, err);
    if (code == LAM_OK) code = check_ending(d->o->output, ".slm", err);
    if (code != LAM_OK) return code;
    d->options.progress = progress_step;
    d->options.progress_context = &progress;
    progress_begin(&progress, d->o, false);
    code = take(d, &progress, err);
    progress_end(&progress);
    d->seconds = now_seconds() - start;
    return code;
}

static double number(const json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }

static void print_tensors(const json_t *tensors)
{
    size_t i;
    json_t *t;
    printf("%-22s %-7s %12s %12s %12s %10s\n", "module", "part", "difference", "kept", "rest", "of base");
    json_array_foreach(tensors, i, t) {
        printf("%-22s %-7s %12.5g %12.5g %12.5g %9.3g%%", json_string_value(json_object_get(t, "module")),
               json_string_value(json_object_get(t, "part")), number(t, "norm_delta"), number(t, "norm_kept"), number(t, "norm_rest"),
               number(t, "norm_base") > 0.0 ? 100.0 * number(t, "norm_delta") / number(t, "norm_base") : 0.0);
        if (json_object_get(t, "rank")) printf("  rank %.0f leaves %.3g%%", number(t, "rank"), 100.0 * number(t, "relative_rest"));
        else if (number(t, "kept") < number(t, "changed")) printf("  %.0f of %.0f elements", number(t, "kept"), number(t, "changed"));
        printf("\n");
    }
}

static int tell(const struct diff *d)
{
    size_t i;
    json_t *warning;
    const json_t *tensors = json_object_get(d->report, "tensors");
    double bytes = file_bytes(d->o->output);
    json_array_foreach(json_object_get(d->report, "warnings"), i, warning) note(d->o, "%s", json_string_value(warning));
    if (d->o->json) {
        json_object_set_new(d->report, "output", json_string(d->o->output));
        json_object_set_new(d->report, "bytes", json_integer((json_int_t)bytes));
        json_object_set_new(d->report, "seconds", json_real(d->seconds));
        return print_json(d->o, json_incref(d->report));
    }
    if (d->o->quiet) return 0;
    print_tensors(tensors);
    printf("%s: %s, %.2f MB, in %.2f s; %zu tensors differ, %.0f do not\n", d->o->output, d->o->method, bytes / 1e6, d->seconds,
           json_array_size(tensors), number(d->report, "unchanged"));
    printf("digest     %s\n", json_string_value(json_object_get(d->report, "adapter_digest")));
    return 0;
}

int cmd_diff(struct options *o)
{
    lam_error err;
    struct diff d = {.o = o};
    if (o->n_rest != 2) return usage(o, "diff takes BASE and TUNED");
    for (size_t i = 0; i < 2; i++)
        if (lam_manifest_detect(o->rest[i]))
            return usage(o, "%s is a manifest, and diff takes bases: lamina merge %s -o FILE.slm makes one of it", o->rest[i], o->rest[i]);
    if (!o->output) return usage(o, "where to? give -o FILE");
    d.base = o->rest[0];
    d.tuned = o->rest[1];
    if (!read_options(&d)) return 2;
    int status = run(&d, &err) == LAM_OK ? tell(&d) : report(o, &err);
    json_decref(d.report);
    return status;
}
