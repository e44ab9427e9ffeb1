#include "compose/identity.h"
#include "base/json.h"

/* "always", or from which tokens on. */
static json_t *activation_json(const struct lam_identity_adapter *a)
{
    if (!a->invocation) return json_string("always");
    json_t *tokens = json_array();
    for (size_t i = 0; tokens && i < a->n_invocation; i++)
        if (json_array_append_new(tokens, json_integer(a->invocation[i])) != 0) {
            json_decref(tokens);
            return NULL;
        }
    return json_pack("{s:o}", "from_last", tokens);
}

lam_code lam_semantic_digest(const char *base_digest, const struct lam_identity_adapter *adapter, char out[LAM_DIGEST_TEXT],
                             lam_error *err)
{
    uint8_t digest[LAM_SHA256_BYTES];
    json_t *whole = json_pack("{s:s,s:s,s:s,s:o}", "type", "lamina.semantic.v0", "base_digest", base_digest, "adapter_digest",
                              adapter->digest, "activation", activation_json(adapter));
    if (!whole) return LAM_RAISE(err, LAM_E_NO_MEMORY, "semantic digest");
    lam_code code = lam_json_digest(whole, digest, err);
    json_decref(whole);
    if (code == LAM_OK) lam_digest_text(digest, out);
    return code;
}

static lam_code adapters_json(const struct lam_identity *identity, json_t *adapters, json_t *waivers, lam_error *err)
{
    for (size_t i = 0; i < identity->n_adapters; i++) {
        const struct lam_identity_adapter *a = &identity->adapters[i];
        char semantic[LAM_DIGEST_TEXT];
        LAM_TRY(lam_semantic_digest(identity->base_digest, a, semantic, err));
        int failed = json_array_append_new(
            adapters, json_pack("{s:s,s:f,s:s}", "semantic_digest", semantic, "weight", a->weight, "rule", a->rule));
        if (a->waived)
            failed |= json_array_append_new(waivers, json_pack("{s:s,s:s}", "adapter_digest", a->digest, "base_digest",
                                                               identity->base_digest));
        if (failed) return LAM_RAISE(err, LAM_E_NO_MEMORY, "composition id");
    }
    return LAM_OK;
}

/* The policy's name, or with what differs from it: { "default": …, "modules": { … } }. */
static json_t *policy_json(const struct lam_identity *identity)
{
    if (json_object_size(identity->policies) == 0) return json_string(identity->policy);
    return json_pack("{s:s,s:O}", "default", identity->policy, "modules", identity->policies);
}

lam_code lam_identity_make(const struct lam_identity *identity, struct lam_str *json, char id[LAM_DIGEST_TEXT], lam_error *err)
{
    json_t *adapters = json_array(), *waivers = json_array();
    json_t *whole = json_pack("{s:s,s:s,s:s,s:s?,s:o,s:O,s:o,s:s,s:o,s:s,s:s}", "type", "lamina.composition.v0", "base_digest",
                              identity->base_digest, "tokenizer_digest", identity->tokenizer_digest, "template_digest",
                              identity->template_digest, "adapters", adapters, "module_owners", identity->owners, "waivers", waivers,
                              "numeric_contract", LAM_NUMERIC_CONTRACT, "policy", policy_json(identity), "kv_format", identity->kv_format,
                              "window_policy", "model");
    if (!whole) return LAM_RAISE(err, LAM_E_NO_MEMORY, "composition id");
    size_t start = json->len;
    lam_code code = adapters_json(identity, adapters, waivers, err);
    if (code == LAM_OK) code = lam_json_canonical(whole, json, err);
    json_decref(whole);
    if (code != LAM_OK) return code;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256(json->data + start, json->len - start, digest);
    lam_digest_text(digest, id);
    return LAM_OK;
}
