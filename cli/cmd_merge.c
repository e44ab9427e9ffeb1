/* lamina merge: a base with its adapters as a new base. */
#include "commands.h"
#include "default_model.h"
#include "open.h"
#include "output.h"
#include "progress.h"
#include "report.h"
#include "suggest.h"

#include "lamina/merge.h"

#include <stdlib.h>

struct merge {
    struct options *o;
    struct opened all;
    lam_composition *composition; /* of the policy materialize: what is written; owned */
    json_t *report; /* owned */
    double seconds;
};

/* The composition under the policy that merging is defined by, whatever the options or a manifest say. */
static lam_code compose_materialized(struct merge *m, lam_error *err)
{
    m->all.compose.policy = LAM_POLICY_MATERIALIZE;
    m->all.compose.module_policies = NULL;
    m->all.compose.n_module_policies = 0;
    return compose(&m->all, false, &m->composition, err);
}

static lam_code write(struct merge *m, lam_error *err)
{
    struct progress progress;
    lam_merge_options options = {.dtype = m->o->dtype, .strict = m->o->strict, .progress = progress_step, .progress_context = &progress};
    static const char *const dtypes[] = {"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "q4_64", NULL};
    char *text = NULL, meant[SUGGESTION];
    double start = now_seconds();
    lam_code code = check_not_read(m->o, &m->all, m->o->output, err);
    if (code == LAM_OK) code = compose_materialized(m, err);
    if (code != LAM_OK) return code;
    progress_begin(&progress, m->o, false);
    code = lam_merge(m->composition, m->o->output, &options, &text, err);
    progress_end(&progress);
    if (code == LAM_E_ARGUMENT && m->o->dtype) behind(err, did_you_mean(m->o->dtype, "", dtypes, meant));
    if (code == LAM_OK) m->report = json_loads(text, 0, NULL);
    lam_memory_free(text);
    m->seconds = now_seconds() - start;
    return code;
}

static lam_code check(const struct options *o, lam_error *err)
{
    lam_code code = check_not_source(o->output, o->model, err);
    for (size_t i = 0; code == LAM_OK && i < o->n_adapters; i++) code = check_not_source(o->output, o->adapters[i].path, err);
    if (code == LAM_OK) code = check_replaceable(o->output, err);
    return code == LAM_OK ? check_slm_or_gguf(o->output, err) : code;
}

static double number(const json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }

static void print_tensors(const json_t *tensors)
{
    size_t i;
    json_t *t;
    printf("%-28s %-6s %10s %10s %14s %12s\n", "tensor", "type", "change", "error", "error/change", "change lost");
    json_array_foreach(tensors, i, t) {
        printf("%-28s %-6s", json_string_value(json_object_get(t, "tensor")), json_string_value(json_object_get(t, "type")));
        if (json_object_get(t, "relative_error"))
            printf(" %9.3g%% %9.3g%% %14.3g %11.3g%%", 100.0 * number(t, "relative_change"), 100.0 * number(t, "relative_error"),
                   number(t, "error_to_change"), 100.0 * number(t, "change_lost"));
        if (json_object_get(t, "wanted")) printf("  not %s, which is only read", json_string_value(json_object_get(t, "wanted")));
        if (json_object_get(t, "residuals_dropped")) printf("  without its %.0f residuals", number(t, "residuals_dropped"));
        printf("\n");
    }
}

static int tell(const struct merge *m)
{
    double bytes = file_bytes(m->o->output);
    const char *words = standing_of(&m->all, m->composition);
    if (m->o->json) {
        json_object_set_new(m->report, "standing", json_string(words));
        json_object_set_new(m->report, "output", json_string(m->o->output));
        json_object_set_new(m->report, "bytes", json_integer((json_int_t)bytes));
        json_object_set_new(m->report, "seconds", json_real(m->seconds));
        return print_json(m->o, json_incref(m->report));
    }
    if (json_is_true(json_object_get(m->report, "untied")))
        note(m->o, "embedding and head, one tensor in the base, differ now: they are two in the new one");
    if (m->o->quiet) return 0;
    print_tensors(json_object_get(m->report, "tensors"));
    printf("%s: %.2f MB, in %.2f s; %zu tensors changed, %.0f copied\n", m->o->output, bytes / 1e6, m->seconds,
           json_array_size(json_object_get(m->report, "tensors")), number(m->report, "copied"));
    printf("encoding   error %.3g%% of the weights, %.3g of the change; %.3g%% of the change is lost\n", 100.0 * number(m->report, "relative_error"),
           number(m->report, "error_to_change"), 100.0 * number(m->report, "change_lost"));
    printf("digest     %s\ncomposition %s\n", json_string_value(json_object_get(m->report, "base_digest")), lam_composition_id(m->composition));
    if (lam_composition_n_adapters(m->composition)) printf("standing   %s\n", words);
    return 0;
}

int cmd_merge(struct options *o)
{
    lam_error err;
    char path[MODEL_PATH];
    struct merge *m = calloc(1, sizeof *m);
    if (!o->output) return free(m), usage(o, "where to? give -o FILE, a .slm or .gguf");
    int failed = choose_model(o, 0, 0, path);
    if (failed) return free(m), failed;
    lam_code code = m ? check(o, &err) : fail_memory(&err);
    if (m) m->o = o;
    if (code == LAM_OK) code = open_all(o, &m->all, &err);
    if (code == LAM_OK) code = write(m, &err);
    int status = code == LAM_OK ? tell(m) : report(o, &err);
    if (m) lam_composition_free(m->composition), close_all(&m->all), json_decref(m->report);
    free(m);
    return status;
}
