#include "store/make.h"
#include "base/alloc.h"
#include "store/config.h"

#include <string.h>

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

struct lam_recipe *lam_recipe_new(void) { return lam_alloc(1, sizeof(struct lam_recipe)); }

void lam_recipe_free(struct lam_recipe *r)
{
    if (!r) return;
    lam_piece_release(&r->base);
    for (size_t i = 0; i < r->n_adapters; i++) lam_piece_release(&r->adapters[i]);
    lam_manifest_free(r->read);
    lam_free(r);
}

lam_code lam_recipe_of_artifact(const struct lam_store *s, const struct lam_artifact *a, struct lam_recipe *r, lam_error *err)
{
    LAM_TRY(lam_config_open(s, a, &r->read, err));
    r->manifest = *r->read;
    r->manifest.id = NULL;
    LAM_TRY(lam_piece_of_layer(s, lam_artifact_layer(a, LAM_TYPE_BASE_SLM, r->manifest.base_digest), &r->base, err));
    for (size_t i = 0; i < r->read->n_adapters; i++) {
        const lam_manifest_adapter *from = &r->read->adapters[i];
        LAM_TRY(lam_piece_of_layer(s, lam_artifact_layer(a, LAM_TYPE_ADAPTER_SLM, from->digest), &r->adapters[i], err));
        r->stack[r->n_adapters++] = (lam_manifest_adapter){.weight = from->weight, .rule = from->rule, .waived = from->waived, .name = from->name};
    }
    return LAM_OK;
}

/* Owners name places in the stack: those behind move up, and what it owned is nobody's. */
static void drop_owner(struct lam_recipe *r, size_t i)
{
    lam_owner *owners = (lam_owner *)r->manifest.owners; /* r->read's own */
    size_t n = 0;
    for (size_t k = 0; k < r->manifest.n_owners; k++) {
        lam_owner o = owners[k];
        if (o.adapter == i) continue;
        o.adapter -= o.adapter > i;
        owners[n++] = o;
    }
    r->manifest.n_owners = n;
}

void lam_recipe_drop(struct lam_recipe *r, size_t i)
{
    lam_piece_release(&r->adapters[i]);
    drop_owner(r, i);
    r->n_adapters--;
    memmove(&r->adapters[i], &r->adapters[i + 1], (r->n_adapters - i) * sizeof *r->adapters);
    memmove(&r->stack[i], &r->stack[i + 1], (r->n_adapters - i) * sizeof *r->stack);
}

/* ---- composing ---- */

/* The objects that tell the id. */
struct opened {
    lam_engine *engine;
    lam_base *base;
    lam_adapter *adapters[LAM_MANIFEST_MAX_ADAPTERS];
    lam_composition *composition;
};

static void close_all(struct opened *o, size_t n)
{
    lam_composition_free(o->composition);
    for (size_t i = 0; i < n; i++) lam_adapter_unload(o->adapters[i]);
    lam_base_free(o->base);
    lam_engine_free(o->engine);
}

static lam_code open_all(const struct lam_recipe *r, struct opened *o, lam_error *err)
{
    double weights[LAM_MANIFEST_MAX_ADAPTERS];
    lam_stack_rule rules[LAM_MANIFEST_MAX_ADAPTERS];
    const lam_manifest *m = &r->manifest;
    lam_engine_options engine = {.max_rows = 1};
    lam_compose_options options = {.kv = m->kv, .rules = rules, .owners = m->owners, .n_owners = m->n_owners, .policy = m->policy,
                                   .module_policies = m->module_policies, .n_module_policies = m->n_module_policies,
                                   .chat_template = m->template_text};
    LAM_TRY(lam_engine_new(&engine, &o->engine, err));
    LAM_TRY(lam_base_open(o->engine, r->base.path, LAM_VERIFY_LAZY, &o->base, err));
    for (size_t i = 0; i < r->n_adapters; i++) {
        weights[i] = r->stack[i].weight;
        rules[i] = r->stack[i].rule;
        LAM_TRY(lam_adapter_load(o->base, r->adapters[i].path, r->stack[i].waived, &o->adapters[i], err));
    }
    return lam_compose(o->base, o->adapters, weights, r->n_adapters, &options, &o->composition, err);
}

static bool differs(const char *wanted, const char *found) { return wanted && strcmp(wanted, found ? found : "none") != 0; }

/* What the manifest names must be what came out. */
static lam_code check_named(const lam_manifest *m, const lam_base_info *base, const lam_composition *c, lam_error *err)
{
    const char *id = lam_composition_id(c), *template = lam_composition_template_digest(c);
    if (differs(m->base_digest, base->base_digest))
        return LAM_RAISE(err, LAM_E_WRONG_BASE, "the base is %s, the manifest names %s", base->base_digest, m->base_digest);
    if (differs(m->tokenizer_digest, base->tokenizer_digest))
        return LAM_RAISE(err, LAM_E_TOKENIZER, "the base has tokenizer %s, the manifest names %s", base->tokenizer_digest, m->tokenizer_digest);
    if (m->states_template && differs(m->template_digest ? m->template_digest : "none", template))
        return LAM_RAISE(err, LAM_E_TEMPLATE, "its template is %s, the manifest names %s", template ? template : "none",
                         m->template_digest ? m->template_digest : "none");
    if (differs(m->id, id)) return LAM_RAISE(err, LAM_E_WRONG_COMPOSITION, "it is composition %s, the manifest says %s", id, m->id);
    return LAM_OK;
}

/* The canonical manifest. What is in it depends on the composition and its pieces alone, so that equal ones share a blob. */
static lam_code manifest_text(struct lam_recipe *r, const struct opened *o, char **json, lam_error *err)
{
    lam_manifest m = r->manifest;
    lam_base_info base;
    lam_base_describe(o->base, &base);
    const char *id = lam_composition_id(o->composition), *kv = lam_composition_kv_format(o->composition);
    LAM_TRY(check_named(&m, &base, o->composition, err));
    m.id = id;
    m.base_digest = base.base_digest;
    m.base_name = base.name;
    m.base_file = NULL;
    m.base_parts = (lam_base_parts_text){0};
    m.tokenizer_digest = base.tokenizer_digest;
    m.states_template = true;
    m.template_digest = lam_composition_template_digest(o->composition);
    m.template_file = NULL; /* its text is told instead */
    m.kv = strcmp(kv, "f16") == 0 ? LAM_KV_FLOAT16 : strcmp(kv, "f32") == 0 ? LAM_KV_FLOAT32 : LAM_KV_INT8;
    for (size_t i = 0; i < r->n_adapters; i++) {
        lam_adapter_info info;
        lam_adapter_describe(o->adapters[i], &info);
        r->stack[i].digest = info.digest;
        r->stack[i].name = info.name;
        r->stack[i].waived = !info.bound;
    }
    m.adapters = r->stack;
    m.n_adapters = r->n_adapters;
    return lam_manifest_json(&m, "composition.json", json, err);
}

/* An artefact while it is put together. */
struct assembly {
    struct lam_descriptor layers[1 + LAM_MANIFEST_MAX_ADAPTERS + LAM_N_CONTENTS];
    size_t n;
    char digests[LAM_N_CONTENTS][LAM_DIGEST_TEXT];
};

static lam_code put_pieces(struct lam_store *s, struct lam_recipe *r, struct assembly *a, lam_error *err)
{
    LAM_TRY(lam_piece_place(s, &r->base, err));
    a->layers[a->n++] = lam_piece_layer(&r->base);
    for (size_t i = 0; i < r->n_adapters; i++) {
        LAM_TRY(lam_piece_place(s, &r->adapters[i], err));
        a->layers[a->n++] = lam_piece_layer(&r->adapters[i]);
    }
    return LAM_OK;
}

static lam_code put_contents(struct lam_store *s, struct lam_work *w, const struct lam_contents *contents, struct assembly *a, lam_error *err)
{
    for (enum lam_content i = 0; i < LAM_N_CONTENTS; i++) {
        const struct lam_str *text = &contents->texts[i];
        if (!text->data) continue;
        LAM_TRY(lam_blob_put(s, w, text->data, text->len, a->digests[i], err));
        a->layers[a->n++] = (struct lam_descriptor){.media_type = lam_content_type(i), .digest = a->digests[i], .size = text->len,
                                                    .title = lam_content_title(i)};
    }
    return LAM_OK;
}

/* Puts the artefact of this manifest, which names no file, together. */
static lam_code put_artifact(struct lam_store *s, struct lam_work *w, struct lam_recipe *r, const char *manifest, const char *id,
                             char digest[LAM_DIGEST_TEXT], uint64_t *size, lam_error *err)
{
    struct assembly a = {.n = 0};
    struct lam_contents contents = {0};
    struct lam_str config = {0}, text = {0};
    char config_digest[LAM_DIGEST_TEXT];
    struct lam_descriptor about = {.media_type = LAM_TYPE_CONFIG, .digest = config_digest};
    lam_code code = lam_config_split(manifest, &config, &contents, err);
    if (code == LAM_OK) code = put_pieces(s, r, &a, err);
    if (code == LAM_OK) code = put_contents(s, w, &contents, &a, err);
    if (code == LAM_OK) code = lam_blob_put(s, w, config.data, config.len, config_digest, err);
    about.size = config.len;
    if (code == LAM_OK) code = lam_artifact_write(LAM_STORE_COMPOSITION, id, &about, a.layers, a.n, &text, err);
    if (code == LAM_OK) code = lam_blob_put(s, w, text.data, text.len, digest, err);
    *size = text.len;
    lam_contents_release(&contents);
    lam_str_release(&config);
    lam_str_release(&text);
    return code;
}

lam_code lam_recipe_check(const struct lam_store *s, const struct lam_artifact *a, lam_error *err)
{
    struct lam_recipe *r = lam_recipe_new();
    struct opened *o = lam_alloc(1, sizeof *o);
    lam_base_info base;
    lam_code code = r && o ? lam_recipe_of_artifact(s, a, r, err) : no_memory(err);
    if (code == LAM_OK) code = open_all(r, o, err);
    if (code == LAM_OK) {
        lam_base_describe(o->base, &base);
        r->manifest.id = a->id;
        code = check_named(&r->manifest, &base, o->composition, err);
    }
    if (o) close_all(o, r ? r->n_adapters : 0);
    lam_free(o);
    lam_recipe_free(r);
    return code;
}

lam_code lam_recipe_make(struct lam_store *s, struct lam_work *w, struct lam_recipe *r, char digest[LAM_DIGEST_TEXT], char id[LAM_DIGEST_TEXT],
                         uint64_t *size, lam_error *err)
{
    char *manifest = NULL;
    struct opened *o = lam_alloc(1, sizeof *o);
    if (!o) return no_memory(err);
    lam_code code = open_all(r, o, err);
    if (code == LAM_OK) code = manifest_text(r, o, &manifest, err);
    if (code == LAM_OK) {
        memcpy(id, lam_composition_id(o->composition), LAM_DIGEST_TEXT);
        code = put_artifact(s, w, r, manifest, id, digest, size, err);
    }
    close_all(o, r->n_adapters);
    lam_free(o);
    lam_memory_free(manifest);
    return code;
}
