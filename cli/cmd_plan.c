/* lamina plan: how much memory a composition takes. */
#include "commands.h"
#include "default_model.h"
#include "plan.h"
#include "prompt.h"
#include "report.h"

#include <string.h>

static void line(const char *what, uint64_t bytes, const char *note)
{
    if (bytes) printf("%-26s %12.2f MB%s%s\n", what, (double)bytes / 1e6, *note ? "  " : "", note);
}

/* What one plan is of. */
struct subject {
    const char *policy;
    char id[LAM_DIGEST_TEXT], standing[256];
};

static void print_plan(const struct plan *plan, const struct subject *s, const lam_plan_bytes *p)
{
    printf("policy %s, a context of %zu, %u threads\n", s->policy, p->context, p->threads);
    printf("composition %s\n", s->id);
    if (strcmp(s->standing, "base") != 0) printf("standing %s\n", s->standing);
    line("base, mapped", p->mapped, "shared with the system's file cache, not counted");
    line("program and threads", p->process, "");
    line("base, decoded", p->base, "norms, biases, metadata, tokenizer");
    line("adapters, staged", p->adapters, "");
    line("overlay", p->overlay, "");
    line("keys and values", p->kv, "");
    line("session", p->session, "");
    line("scratch", p->scratch, "buffers of the forward pass");
    line("prefix cache, full", p->prefix, "");
    line("drafts", p->drafts, "");
    line("composition before", p->from, "until the switch is done");
    line("its keys and values", p->from_kv, "the same, while all rows are computed again");
    line("while sampling", p->sampling, "");
    line("while staging", p->staging, "given back before the first token");
    line("peak", p->peak, plan->budget && p->peak > plan->budget ? "above the budget" : "");
}

static json_t *plan_json(const struct subject *s, const lam_plan_bytes *p)
{
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {{"context", p->context}, {"threads", p->threads}, {"mapped", p->mapped}, {"process", p->process}, {"base", p->base},
                   {"adapters", p->adapters}, {"overlay", p->overlay}, {"kv", p->kv}, {"session", p->session}, {"scratch", p->scratch},
                   {"prefix_cache", p->prefix}, {"drafts", p->drafts}, {"from", p->from}, {"from_kv", p->from_kv}, {"sampling", p->sampling},
                   {"staging", p->staging}, {"peak", p->peak}};
    json_t *out = json_pack("{s:s,s:s,s:s}", "policy", s->policy, "composition_id", s->id, "standing", s->standing);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_object_set_new(out, members[i].name, json_integer((json_int_t)members[i].value));
    return out;
}

/* The options' policy, or both where they name none. LAM_E_BUDGET only if none of them fits. */
static lam_code plan_all(const struct options *o, const struct plan *plan, json_t *list, lam_error *err)
{
    static const char *const names[] = {"dual", "materialize"};
    bool chosen = o->policies.n || stack_is_said(&plan->stack);
    lam_code fitting = LAM_E_BUDGET;
    for (lam_policy policy = LAM_POLICY_DUAL; policy <= LAM_POLICY_MATERIALIZE; policy++) {
        lam_plan_options options = {0};
        lam_plan_bytes bytes;
        lam_error why;
        struct subject subject = {.policy = names[policy]};
        if (chosen && policy != plan->stack.m->policy) continue;
        lam_code code = plan_name(plan, policy, subject.id, subject.standing, &why);
        if (code == LAM_OK) code = plan_make(plan, &policy, &options, &bytes, &why);
        if (code != LAM_OK && code != LAM_E_BUDGET) return *err = why, code;
        if (code == LAM_OK) fitting = LAM_OK;
        else if (fitting != LAM_OK) *err = why;
        if (o->json) json_array_append_new(list, plan_json(&subject, &bytes));
        else if (!o->quiet) print_plan(plan, &subject, &bytes);
        if (!o->json && !o->quiet && !chosen && policy == LAM_POLICY_DUAL) printf("\n");
    }
    return fitting;
}

int cmd_plan(struct options *o)
{
    lam_error err;
    char path[MODEL_PATH];
    struct plan plan;
    lam_generate_options drafts;
    if (!draft_options(o, &drafts)) return 2;
    int failed = choose_model(o, 0, 0, path);
    if (failed) return failed;
    json_t *list = json_array();
    lam_code code = plan_open(o, &plan, &err);
    if (code == LAM_OK) code = plan_all(o, &plan, list, &err);
    plan_close(&plan);
    if (code != LAM_OK) {
        if (lam_manifest_detect(o->model)) stack_list_faults(o, code, &err);
        json_decref(list);
        return report(o, &err);
    }
    if (!o->json) json_decref(list);
    return o->json ? print_json(o, json_pack("{s:s,s:o}", "model", o->model, "plans", list)) : 0;
}
