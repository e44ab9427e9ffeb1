/* The composition_id of a manifest from its files alone: nothing is staged. */
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/error.h"
#include "compose/identity.h"
#include "format/vocab.h"
#include "lamina/manifest.h"
#include "model/model.h"

#include <string.h>

struct naming {
    const lam_manifest *manifest;
    struct lam_model *model;
    struct lam_slm **files;                 /* [n_adapters]; owned */
    char (*digests)[LAM_DIGEST_TEXT];       /* [n_adapters]; owned */
    struct lam_identity_adapter *adapters;  /* [n_adapters] with their invocations; owned */
    json_t *owners, *policies;
    char tokenizer[LAM_DIGEST_TEXT], chat_template[LAM_DIGEST_TEXT];
};

static const char *policy_name(lam_policy p) { return p == LAM_POLICY_MATERIALIZE ? "materialize" : "dual"; }

static lam_code name_text(struct naming *n, lam_error *err)
{
    const struct lam_slm *base = n->model->file;
    struct lam_vocab vocab;
    uint8_t digest[LAM_SHA256_BYTES];
    if (!base->vocab) return LAM_RAISE(err, LAM_E_FORMAT, "%s has no vocabulary", base->file.path);
    LAM_TRY(lam_vocab_open(base->vocab, base->vocab_bytes, &vocab, err));
    LAM_TRY(lam_vocab_digest(&vocab, digest, err));
    lam_digest_text(digest, n->tokenizer);
    const json_t *own = json_object_get(base->metadata, "chat_template");
    const char *text = n->manifest->template_text;
    if (text || json_is_string(own)) lam_digest_bytes(text ? text : json_string_value(own), text ? strlen(text) : json_string_length(own), n->chat_template);
    return LAM_OK;
}

static bool is_bound(const struct lam_slm *file, const char *base_digest)
{
    const json_t *bases = json_object_get(file->metadata, "bases");
    for (size_t i = 0; i < json_array_size(bases); i++) {
        const char *digest = json_string_value(json_array_get(bases, i));
        if (digest && strcmp(digest, base_digest) == 0) return true;
    }
    return false;
}

static lam_code name_adapter(struct naming *n, size_t i, const char *path, lam_error *err)
{
    const lam_manifest_adapter *entry = &n->manifest->adapters[i];
    LAM_TRY(lam_slm_open(path, &n->files[i], err));
    const struct lam_slm *file = n->files[i];
    if (file->kind != LAM_SLM_ADAPTER) return LAM_RAISE(err, LAM_E_FORMAT, "%s is a base, not an adapter", path);
    LAM_TRY(lam_adapter_digest(file, n->digests[i], err));
    bool bound = is_bound(file, n->model->base_digest);
    if (!bound && !entry->waived) return LAM_RAISE(err, LAM_E_WRONG_BASE, "%s is not bound to base %s", path, n->model->base_digest);
    n->adapters[i] = (struct lam_identity_adapter){.digest = n->digests[i], .weight = entry->weight, .waived = !bound,
                                                   .rule = entry->rule == LAM_STACK_REPLACE ? "replace" : "add"};
    const json_t *tokens = json_object_get(json_object_get(file->metadata, "activation"), "invocation");
    size_t n_tokens = json_array_size(tokens);
    if (n_tokens == 0) return LAM_OK;
    uint32_t *invocation = lam_alloc(n_tokens, sizeof *invocation);
    if (!invocation) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    for (size_t k = 0; k < n_tokens; k++) invocation[k] = (uint32_t)json_integer_value(json_array_get(tokens, k));
    n->adapters[i].invocation = invocation;
    n->adapters[i].n_invocation = n_tokens;
    return LAM_OK;
}

/* Who owns what, and what is computed in another way than the default. */
static lam_code name_modules(struct naming *n, lam_error *err)
{
    const lam_manifest *m = n->manifest;
    n->owners = json_object();
    n->policies = json_object();
    int failed = !n->owners || !n->policies;
    for (size_t i = 0; i < m->n_owners && !failed; i++) {
        if (!lam_find_target(&n->model->targets, m->owners[i].module, strlen(m->owners[i].module)))
            return LAM_RAISE(err, LAM_E_UNMATCHED, "owner of %.100s: the base has no such module", m->owners[i].module);
        failed |= json_object_set_new(n->owners, m->owners[i].module, json_integer((json_int_t)m->owners[i].adapter));
    }
    for (size_t i = 0; i < m->n_module_policies && !failed; i++) {
        const lam_module_policy *p = &m->module_policies[i];
        const struct lam_target *t = lam_find_target(&n->model->targets, p->module, strlen(p->module));
        if (!t) return LAM_RAISE(err, LAM_E_UNMATCHED, "policy of %.100s: the base has no such module", p->module);
        if (p->policy == m->policy) json_object_del(n->policies, p->module); /* of two the last holds */
        else if (t->matrix) failed |= json_object_set_new(n->policies, p->module, json_string(policy_name(p->policy)));
    }
    return failed ? LAM_RAISE(err, LAM_E_NO_MEMORY, "composition id") : LAM_OK;
}

static lam_code name_all(struct naming *n, const char *base, const char *const adapters[], char id[LAM_DIGEST_TEXT], lam_error *err)
{
    const lam_manifest *m = n->manifest;
    struct lam_str json = {0};
    n->files = lam_alloc(m->n_adapters, sizeof *n->files);
    n->digests = lam_alloc(m->n_adapters, sizeof *n->digests);
    n->adapters = lam_alloc(m->n_adapters, sizeof *n->adapters);
    if (!n->files || !n->digests || !n->adapters) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapters", m->n_adapters);
    LAM_TRY(lam_model_open(base, NULL, &n->model, err));
    LAM_TRY(name_text(n, err));
    for (size_t i = 0; i < m->n_adapters; i++) LAM_TRY(name_adapter(n, i, adapters[i], err));
    LAM_TRY(name_modules(n, err));
    static const char *const formats[] = {[LAM_KV_FLOAT16] = "f16", [LAM_KV_FLOAT32] = "f32", [LAM_KV_INT8] = "i8"};
    struct lam_identity identity = {.base_digest = n->model->base_digest, .tokenizer_digest = n->tokenizer,
                                    .template_digest = n->chat_template[0] ? n->chat_template : NULL,
                                    .kv_format = m->kv != LAM_KV_DEFAULT ? formats[m->kv] : n->model->float_weights ? "f32" : "f16",
                                    .adapters = n->adapters, .n_adapters = m->n_adapters, .owners = n->owners, .policy = policy_name(m->policy),
                                    .policies = n->policies};
    lam_code code = lam_identity_make(&identity, &json, id, err);
    lam_str_release(&json);
    return code;
}

lam_code lam_manifest_id(const lam_manifest *m, const char *base, const char *const adapters[], char id[LAM_DIGEST_TEXT], lam_error *err)
{
    struct naming n = {.manifest = m};
    if (m->n_adapters > LAM_MANIFEST_MAX_ADAPTERS)
        return LAM_RAISE(err, LAM_E_LIMIT, "%zu adapters, %d at most", m->n_adapters, LAM_MANIFEST_MAX_ADAPTERS);
    lam_code code = name_all(&n, base, adapters, id, err);
    for (size_t i = 0; i < m->n_adapters; i++) {
        if (n.adapters) lam_free((uint32_t *)n.adapters[i].invocation);
        if (n.files) lam_slm_close(n.files[i]);
    }
    lam_model_close(n.model);
    lam_free(n.files);
    lam_free(n.digests);
    lam_free(n.adapters);
    json_decref(n.owners);
    json_decref(n.policies);
    return code;
}
