#include "cache/operators.h"
#include "base/cursor.h"
#include "base/json.h"
#include "cache/closure.h"

#include <string.h>

static bool in_closure(const struct lam_target *t, enum lam_closure closure, uint32_t n_layers)
{
    if (lam_closure_reaches(t->role, t->layer, n_layers - 1)) return true;
    return closure == LAM_CLOSURE_LOGITS && lam_closure_reaches_logits(t->role);
}

/* SHA-256 of v[n] as little-endian float32, as text. */
static json_t *floats_json(const float *v, size_t n)
{
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    char text[LAM_DIGEST_TEXT];
    lam_sha256_init(&hash);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        uint8_t bytes[4];
        memcpy(&bits, &v[i], sizeof bits);
        lam_store_u32(bytes, bits);
        lam_sha256_update(&hash, bytes, sizeof bytes);
    }
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, text);
    return json_string(text);
}

/* True for a part of an adapter's modules: what lies between the first and the last. */
static bool holds(const struct lam_adapter *a, const void *part)
{
    const char *at = part, *first = (const char *)a->modules, *end = (const char *)(a->modules + a->n_modules);
    return at >= first && at < end;
}

static json_t *owner_json(const struct lam_operators *o, const void *part)
{
    for (size_t i = 0; i < o->n_adapters; i++)
        if (holds(o->adapters[i], part)) return json_string(o->adapters[i]->digest);
    return NULL;
}

static bool acts(const struct lam_overlay_slot *slot, const struct lam_overlay_op *op, const struct lam_target *t)
{
    if (slot->materialize || t->role == LAM_ROLE_EMBEDDING) return true; /* there a sum with zeros is another path */
    return !op->module->no_effect || op->method == LAM_METHOD_NONE || op->method == LAM_METHOD_DORA;
}

/* Sets a member; a value of NULL is lack of memory. */
static void put(json_t *object, bool *ok, const char *key, json_t *value) { *ok &= json_object_set_new(object, key, value) == 0; }

static json_t *op_json(const struct lam_operators *o, const struct lam_overlay_op *op, const struct lam_target *t)
{
    static const char *const methods[] = {
        [LAM_METHOD_NONE] = "weight", [LAM_METHOD_LORA] = "lora", [LAM_METHOD_DORA] = "dora", [LAM_METHOD_IA3_OUTPUT] = "ia3",
        [LAM_METHOD_IA3_INPUT] = "ia3_input", [LAM_METHOD_SPARSE] = "sparse", [LAM_METHOD_DENSE] = "dense"};
    bool ok = true;
    json_t *json = json_pack("{s:s,s:f,s:o}", "method", methods[op->method], "scale", (double)op->scale, "adapter_digest",
                             owner_json(o, op->module));
    if (!json) return NULL;
    if (op->rows) put(json, &ok, "rows", floats_json(op->rows, t->rows));
    if (op->shift) put(json, &ok, "shift", floats_json(op->shift, t->rows));
    if (ok) return json;
    json_decref(json);
    return NULL;
}

/* What acts on one target: an object without members where nothing does. NULL when memory is lacking. */
static json_t *slot_json(const struct lam_operators *o, const struct lam_overlay_slot *slot, const struct lam_target *t)
{
    json_t *json = json_object(), *ops = json_array();
    bool ok = json && ops;
    for (size_t i = 0; ok && i < slot->n_ops; i++)
        if (acts(slot, &slot->ops[i], t)) ok = json_array_append_new(ops, op_json(o, &slot->ops[i], t)) == 0;
    if (ok && slot->weight) put(json, &ok, "weight", owner_json(o, slot->weight));
    if (ok && slot->input) put(json, &ok, "input", floats_json(slot->input, t->cols));
    if (ok && slot->bias) put(json, &ok, "bias", floats_json(slot->bias, t->rows));
    if (ok && slot->vector) put(json, &ok, "vector", floats_json(slot->vector, t->cols));
    if (ok && slot->shift) put(json, &ok, "shift", floats_json(slot->shift, t->rows));
    if (ok && json_array_size(ops)) ok = json_object_set(json, "operators", ops) == 0;
    if (ok && slot->materialize && json_object_size(json)) put(json, &ok, "policy", json_string("materialize"));
    json_decref(ops);
    if (ok) return json;
    json_decref(json);
    return NULL;
}

lam_code lam_operators_digest(const struct lam_operators *o, enum lam_closure closure, uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    json_t *whole = json_object();
    bool ok = whole != NULL;
    for (size_t i = 0; ok && o->overlay && i < o->overlay->n_slots; i++) {
        const struct lam_target *t = &o->overlay->first_target[i];
        if (!in_closure(t, closure, o->n_layers)) continue;
        json_t *slot = slot_json(o, &o->overlay->slots[i], t);
        ok = slot != NULL;
        if (ok && json_object_size(slot)) ok = json_object_set(whole, t->name, slot) == 0;
        json_decref(slot);
    }
    lam_code code = ok ? lam_json_digest(whole, out, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "the digest of operators");
    json_decref(whole);
    return code;
}
