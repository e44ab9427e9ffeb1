#include "base/alloc.h"
#include "base/utf8.h"
#include "compose/identity.h"
#include "run/objects.h"

#include <math.h>
#include <string.h>

/* Before anything reads the base's values outside a forward pass. */
static lam_code need_base(lam_base *base, lam_error *err)
{
    lam_pool_lock(base->engine->pool);
    lam_code code = lam_verified_need(&base->verified, NULL, 0, err);
    lam_pool_unlock(base->engine->pool);
    return code;
}

lam_code lam_adapter_load(lam_base *base, const char *path, bool waive, lam_adapter **out, lam_error *err)
{
    *out = NULL;
    bool reads = false;
    LAM_TRY(lam_adapter_reads_base(path, &reads, err));
    if (reads) LAM_TRY(need_base(base, err));
    lam_adapter *a = lam_alloc(1, sizeof *a);
    if (!a) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_code code = lam_adapter_open(path, &base->model->targets, waive, &a->staged, err);
    if (code != LAM_OK) {
        lam_free(a);
        return code;
    }
    a->holders = 1;
    atomic_fetch_add(&base->holders, 1);
    a->base = base;
    *out = a;
    return LAM_OK;
}

void lam_adapter_unload(lam_adapter *a)
{
    if (!a || atomic_fetch_sub(&a->holders, 1) != 1) return;
    lam_adapter_free(a->staged);
    lam_base_free(a->base);
    lam_free(a);
}

void lam_adapter_describe(const lam_adapter *a, lam_adapter_info *out)
{
    const struct lam_adapter *s = a->staged;
    *out = (lam_adapter_info){.name = s->name, .digest = s->digest, .n_modules = s->n_modules, .n_tensors = s->n_tensors,
                              .staged_bytes = s->bytes, .bound = s->bound, .invocation = s->invocation, .n_invocation = s->n_invocation};
    for (size_t i = 0; i < s->n_modules; i++) out->n_no_effect += s->modules[i].no_effect;
}

static const float *base_bias(const void *context, const struct lam_target *t)
{
    const struct lam_model *m = context;
    const struct lam_layer *l = t->layer == LAM_LAYER_NONE ? NULL : &m->layers[t->layer];
    switch (t->role) {
    case LAM_ROLE_Q: return l->q_bias;
    case LAM_ROLE_K: return l->k_bias;
    case LAM_ROLE_V: return l->v_bias;
    case LAM_ROLE_O: return l->o_bias;
    case LAM_ROLE_GATE: return l->gate_bias;
    case LAM_ROLE_UP: return l->up_bias;
    case LAM_ROLE_DOWN: return l->down_bias;
    default: return NULL;
    }
}

/* The format that is asked for; by default float16, or float32 if every matrix of the base is of a float type. */
static lam_code choose_kv(const struct lam_base *base, lam_kv choice, enum lam_kv_type *out, lam_error *err)
{
    switch (choice) {
    case LAM_KV_DEFAULT: *out = base->model->float_weights ? LAM_KV_F32 : LAM_KV_F16; return LAM_OK;
    case LAM_KV_FLOAT16: *out = LAM_KV_F16; return LAM_OK;
    case LAM_KV_FLOAT32: *out = LAM_KV_F32; return LAM_OK;
    case LAM_KV_INT8: *out = LAM_KV_I8; return LAM_OK;
    }
    return LAM_RAISE(err, LAM_E_ARGUMENT, "there is no KV format %d", (int)choice);
}

static lam_code validate(const struct lam_base *base, lam_adapter *const adapters[], const double weights[], size_t n, lam_error *err)
{
    LAM_TRY(lam_mapping_check(&base->model->file->file, err));
    for (size_t i = 0; i < n; i++) {
        if (adapters[i]->base != base)
            return LAM_RAISE(err, LAM_E_WRONG_BASE, "adapter %s was loaded for another base", adapters[i]->staged->name);
        if (!isfinite(weights[i]))
            return LAM_RAISE(err, LAM_E_ARGUMENT, "adapter %s: its weight is not finite", adapters[i]->staged->name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(adapters[j]->staged->digest, adapters[i]->staged->digest) == 0)
                return LAM_RAISE(err, LAM_E_DUPLICATE, "adapter %s occurs twice", adapters[i]->staged->name);
    }
    return LAM_OK;
}

static const char *policy_name(bool materialize) { return materialize ? "materialize" : "dual"; }

/* Who owns what, and what is computed in another way than the default, as the identity tells it. */
static lam_code options_json(const struct lam_composition *c, bool by_default, json_t **owners, json_t **policies, lam_error *err)
{
    const struct lam_base_targets *targets = &c->base->model->targets;
    *owners = json_object();
    *policies = json_object();
    int failed = !*owners || !*policies;
    for (size_t t = 0; t < targets->n_items && !failed; t++) {
        const char *name = targets->items[t].name;
        if (c->owners && c->owners[t] != SIZE_MAX) failed |= json_object_set_new(*owners, name, json_integer((json_int_t)c->owners[t]));
        if (c->materialize && targets->items[t].matrix && c->materialize[t] != by_default)
            failed |= json_object_set_new(*policies, name, json_string(policy_name(c->materialize[t])));
    }
    return failed ? LAM_RAISE(err, LAM_E_NO_MEMORY, "composition id") : LAM_OK;
}

static lam_code make_identity(struct lam_composition *c, const lam_compose_options *options, lam_error *err)
{
    bool by_default = options && options->policy == LAM_POLICY_MATERIALIZE;
    json_t *owners = NULL, *policies = NULL;
    struct lam_identity_adapter *list = lam_alloc(c->n_adapters, sizeof *list);
    lam_code code = list ? options_json(c, by_default, &owners, &policies, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapters", c->n_adapters);
    for (size_t i = 0; list && i < c->n_adapters; i++) {
        const struct lam_adapter *a = c->adapters[i]->staged;
        list[i] = (struct lam_identity_adapter){.digest = a->digest, .weight = c->weights[i], .waived = !a->bound,
                                                .rule = c->rules[i] == LAM_RULE_REPLACE ? "replace" : "add",
                                                .invocation = a->invocation, .n_invocation = a->n_invocation};
    }
    const struct lam_base *b = c->base;
    struct lam_identity identity = {
        .base_digest = b->model->base_digest,
        .tokenizer_digest = b->tokenizer_digest,
        .template_digest = lam_composition_template_digest(c),
        .kv_format = lam_composition_kv_format(c),
        .adapters = list,
        .n_adapters = c->n_adapters,
        .owners = owners,
        .policy = policy_name(by_default),
        .policies = policies,
    };
    if (code == LAM_OK) code = lam_identity_make(&identity, &c->json, c->id, err);
    json_decref(owners);
    json_decref(policies);
    lam_free(list);
    return code;
}

/* Biases, norms and matrices that an adapter replaces may be mixed with the base's, here and now. */
static bool mixes_with_base(lam_adapter *const adapters[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < adapters[i]->staged->n_modules; k++) {
            const struct lam_module *m = &adapters[i]->staged->modules[k];
            if (m->bias || m->vector || m->method == LAM_METHOD_IA3_OUTPUT) return true;
        }
    return false;
}

static lam_code hold_adapters(struct lam_composition *c, lam_adapter *const adapters[], const double weights[], size_t n,
                              const lam_compose_options *options, lam_error *err)
{
    c->adapters = lam_alloc(n, sizeof *c->adapters);
    c->weights = lam_alloc(n, sizeof *c->weights);
    c->rules = lam_alloc(n, sizeof *c->rules);
    c->activated = lam_alloc(n, sizeof *c->activated);
    if (!c->adapters || !c->weights || !c->rules || !c->activated) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapters", n);
    for (size_t i = 0; i < n; i++) {
        lam_stack_rule rule = options && options->rules ? options->rules[i] : LAM_STACK_ADD;
        if (rule != LAM_STACK_ADD && rule != LAM_STACK_REPLACE) return LAM_RAISE(err, LAM_E_ARGUMENT, "there is no rule %d", (int)rule);
        c->weights[i] = weights[i];
        c->rules[i] = rule == LAM_STACK_REPLACE ? LAM_RULE_REPLACE : LAM_RULE_ADD;
        if (adapters[i]->staged->invocation) c->activated[c->n_activated++] = i;
        c->adapters[c->n_adapters++] = adapters[i];
        atomic_fetch_add(&adapters[i]->holders, 1);
    }
    if (c->n_activated > LAM_MAX_ACTIVATED)
        return LAM_RAISE(err, LAM_E_LIMIT, "%zu activated adapters; %d are possible", c->n_activated, LAM_MAX_ACTIVATED);
    return LAM_OK;
}

static lam_code find_module(const struct lam_composition *c, const char *name, size_t *out, lam_error *err)
{
    const struct lam_base_targets *targets = &c->base->model->targets;
    const struct lam_target *t = lam_find_target(targets, name, strlen(name));
    if (!t) return LAM_RAISE(err, LAM_E_UNMATCHED, "the base has no module %.100s", name);
    *out = (size_t)(t - targets->items);
    return LAM_OK;
}

static lam_code read_owners(struct lam_composition *c, const lam_compose_options *options, lam_error *err)
{
    size_t n = c->base->model->targets.n_items, t;
    if (!options || options->n_owners == 0) return LAM_OK;
    c->owners = lam_alloc(n, sizeof *c->owners);
    if (!c->owners) return LAM_RAISE(err, LAM_E_NO_MEMORY, "owners of %zu modules", n);
    for (size_t i = 0; i < n; i++) c->owners[i] = SIZE_MAX;
    for (size_t i = 0; i < options->n_owners; i++) {
        LAM_TRY(find_module(c, options->owners[i].module, &t, err));
        if (options->owners[i].adapter >= c->n_adapters)
            return LAM_RAISE(err, LAM_E_ARGUMENT, "the owner of %.100s is adapter %zu of %zu", options->owners[i].module,
                             options->owners[i].adapter, c->n_adapters);
        if (c->owners[t] != SIZE_MAX) return LAM_RAISE(err, LAM_E_DUPLICATE, "two owners of %.100s", options->owners[i].module);
        c->owners[t] = options->owners[i].adapter;
    }
    return LAM_OK;
}

static lam_code read_policies(struct lam_composition *c, const lam_compose_options *options, lam_error *err)
{
    size_t n = c->base->model->targets.n_items, t;
    if (!options || (options->policy == LAM_POLICY_DUAL && options->n_module_policies == 0)) return LAM_OK;
    c->materialize = lam_alloc(n, sizeof *c->materialize);
    if (!c->materialize) return LAM_RAISE(err, LAM_E_NO_MEMORY, "policies of %zu modules", n);
    for (size_t i = 0; i < n; i++) c->materialize[i] = options->policy == LAM_POLICY_MATERIALIZE;
    for (size_t i = 0; i < options->n_module_policies; i++) {
        LAM_TRY(find_module(c, options->module_policies[i].module, &t, err));
        c->materialize[t] = options->module_policies[i].policy == LAM_POLICY_MATERIALIZE;
    }
    return LAM_OK;
}

static lam_code build_overlay(const struct lam_composition *c, uint64_t active, struct lam_overlay *out, lam_error *err)
{
    struct lam_stack_item *items = lam_alloc(c->n_adapters, sizeof *items);
    if (!items) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapters", c->n_adapters);
    for (size_t i = 0; i < c->n_adapters; i++)
        items[i] = (struct lam_stack_item){.adapter = c->adapters[i]->staged, .weight = c->weights[i], .rule = c->rules[i], .active = true};
    for (size_t i = 0; i < c->n_activated; i++) items[c->activated[i]].active = active >> i & 1;
    const struct lam_model *m = c->base->model;
    struct lam_stack stack = {.items = items, .n = c->n_adapters, .owners = c->owners, .materialize = c->materialize};
    lam_code code = lam_overlay_build(&m->targets, &stack, base_bias, m, out, err);
    lam_free(items);
    return code;
}

uint64_t lam_composition_all_active(const struct lam_composition *c)
{
    return c->n_activated == LAM_MAX_ACTIVATED ? UINT64_MAX : ((uint64_t)1 << c->n_activated) - 1;
}

size_t lam_composition_n_activated(const struct lam_composition *c) { return c->n_activated; }

const struct lam_adapter *lam_composition_activated(const struct lam_composition *c, size_t i)
{
    return c->adapters[c->activated[i]]->staged;
}

static void free_variant(struct lam_variant_overlay *v)
{
    lam_overlay_release(v->overlay);
    lam_free(v->overlay);
}

/* Makes room for one more: those go that were used the longest ago, by no row of the plan that is being made. The first stays. */
static void drop_variants(struct lam_composition *c, uint64_t plan)
{
    while (c->n_variants >= LAM_MOST_VARIANTS) {
        size_t oldest = 0;
        for (size_t i = 1; i < c->n_variants; i++)
            if (c->variants[i].used < plan && (oldest == 0 || c->variants[i].used < c->variants[oldest].used)) oldest = i;
        if (oldest == 0) return;
        free_variant(&c->variants[oldest]);
        c->variants[oldest] = c->variants[--c->n_variants];
    }
}

static lam_code reserve_variant(struct lam_composition *c, uint64_t plan, lam_error *err)
{
    drop_variants(c, plan);
    if (c->n_variants < c->max_variants) return LAM_OK;
    size_t most = 2 * c->max_variants + 1;
    struct lam_variant_overlay *grown = lam_alloc(most, sizeof *grown);
    if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu overlays", most);
    if (c->n_variants) memcpy(grown, c->variants, c->n_variants * sizeof *grown);
    lam_free(c->variants);
    c->variants = grown;
    c->max_variants = most;
    return LAM_OK;
}

/* plan: the one that the overlay is first used in. */
static lam_code make_variant(struct lam_composition *c, uint64_t active, uint64_t plan, lam_error *err)
{
    LAM_TRY(reserve_variant(c, plan, err));
    struct lam_overlay *overlay = lam_alloc(1, sizeof *overlay);
    if (!overlay) return LAM_RAISE(err, LAM_E_NO_MEMORY, "an overlay");
    lam_code code = build_overlay(c, active, overlay, err);
    if (code == LAM_OK) c->variants[c->n_variants++] = (struct lam_variant_overlay){active, plan, overlay};
    else lam_free(overlay);
    return code;
}

lam_code lam_composition_overlay(struct lam_composition *c, uint64_t active, const struct lam_overlay **out, lam_error *err)
{
    uint64_t plan = lam_forward_plans(c->base->forward);
    size_t i = 0;
    while (i < c->n_variants && c->variants[i].active != active) i++;
    if (i == c->n_variants) {
        LAM_TRY(make_variant(c, active, plan, err));
        i = c->n_variants - 1;
    }
    c->variants[i].used = plan;
    *out = c->variants[i].overlay;
    return LAM_OK;
}

/* The template of its own, or the base's, for the identity. */
static lam_code take_template(struct lam_composition *c, const lam_compose_options *options, lam_error *err)
{
    const char *text = options ? options->chat_template : NULL;
    if (!text) {
        memcpy(c->template_digest, c->base->template_digest, LAM_DIGEST_TEXT);
        return LAM_OK;
    }
    size_t len = strlen(text);
    if (lam_utf8_valid_prefix((const uint8_t *)text, len) != len) return LAM_RAISE(err, LAM_E_UTF8, "the composition's chat template is not UTF-8");
    c->template_text = lam_strdup(text);
    if (!c->template_text) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a chat template of %zu bytes", len);
    lam_digest_bytes(text, len, c->template_digest);
    return lam_template_compile(text, len, &c->chat_template, err);
}

static lam_code stage(struct lam_composition *c, lam_adapter *const adapters[], const double weights[], size_t n,
                      const lam_compose_options *options, lam_error *err)
{
    LAM_TRY(hold_adapters(c, adapters, weights, n, options, err));
    LAM_TRY(read_owners(c, options, err));
    LAM_TRY(read_policies(c, options, err));
    /* What rows will be computed with is made now, while nobody else has c: activating it need not wait for a pass. The pool's lock is
     * not held, so no plan is looked at. */
    LAM_TRY(make_variant(c, lam_composition_all_active(c), 0, err));
    if (c->n_activated) LAM_TRY(make_variant(c, 0, 0, err));
    LAM_TRY(take_template(c, options, err));
    return make_identity(c, options, err);
}

lam_code lam_compose(lam_base *base, lam_adapter *const adapters[], const double weights[], size_t n,
                     const lam_compose_options *options, lam_composition **out, lam_error *err)
{
    *out = NULL;
    enum lam_kv_type kv = LAM_KV_F16;
    LAM_TRY(choose_kv(base, options ? options->kv : LAM_KV_DEFAULT, &kv, err));
    LAM_TRY(validate(base, adapters, weights, n, err));
    if (mixes_with_base(adapters, n)) LAM_TRY(need_base(base, err));
    struct lam_composition *c = lam_alloc(1, sizeof *c);
    if (!c) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a composition");
    c->holders = 1;
    atomic_fetch_add(&base->holders, 1);
    c->base = base;
    c->kv = kv;
    lam_code code = stage(c, adapters, weights, n, options, err);
    if (code == LAM_OK) *out = c;
    else lam_composition_free(c);
    return code;
}

void lam_composition_free(lam_composition *c)
{
    if (!c || atomic_fetch_sub(&c->holders, 1) != 1) return;
    for (size_t i = 0; i < c->n_variants; i++) free_variant(&c->variants[i]);
    for (size_t i = 0; i < c->n_adapters; i++) lam_adapter_unload(c->adapters[i]);
    lam_free(c->variants);
    lam_free(c->adapters);
    lam_free(c->weights);
    lam_free(c->rules);
    lam_free(c->activated);
    lam_free(c->owners);
    lam_free(c->materialize);
    lam_template_free(c->chat_template);
    lam_free(c->template_text);
    lam_str_release(&c->json);
    lam_base_free(c->base);
    lam_free(c);
}

const char *lam_composition_id(const lam_composition *c) { return c->id; }
const char *lam_composition_json(const lam_composition *c) { return c->json.data; }
size_t lam_composition_n_adapters(const lam_composition *c) { return c->n_adapters; }
const char *lam_composition_template_digest(const lam_composition *c) { return c->template_digest[0] ? c->template_digest : NULL; }

const char *lam_composition_kv_format(const lam_composition *c)
{
    static const char *const names[] = {[LAM_KV_F16] = "f16", [LAM_KV_F32] = "f32", [LAM_KV_I8] = "i8"};
    return names[c->kv];
}

size_t lam_composition_kv_bytes(const lam_composition *c)
{
    const struct lam_config *m = &c->base->model->config;
    struct lam_kv one = {.type = c->kv, .n_layers = m->n_layers, .n_heads = m->n_kv_heads, .head_dim = m->head_dim};
    return lam_kv_page_bytes(&one) / LAM_KV_PAGE;
}
