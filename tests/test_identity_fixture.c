/* tests/data/fixtures/identity.json on the code that composes: its canonical texts and digests, what must and what must not change an identity,
 * shown on our own digests, and its faults, each with a code of its own: those of bases and adapters refused by lam_manifest_check, which
 * `lamina run` and `lamina check` call, those of caches by lam_session_restore, those of requests, slots and generations by what every activation,
 * admission and pass goes through. Its shards do not exist here. The last test prints how many of each there are. */
#define _XOPEN_SOURCE 700

#include "adapter_case.h"
#include "fixture.h"
#include "generation_case.h"

#include "base/json.h"
#include "cache/rows.h"
#include "compose/identity.h"
#include "lamina/manifest.h"
#include "lamina/reuse.h"
#include "lamina/runtime.h"
#include "run/objects.h"
#include "run/residency.h"
#include "tensor/half.h"

#include <unistd.h>

#define FIXTURE "tests/data/fixtures/identity.json"
#define ZEROS "sha256:0000000000000000000000000000000000000000000000000000000000000000"

static json_t *load(void)
{
    lam_error err;
    size_t size;
    json_t *all;
    char *text = (char *)test_read_file(FIXTURE, &size);
    assert_ok(lam_json_parse(text, size, FIXTURE, &all, &err), err);
    free(text);
    return all;
}

static json_t *at(const json_t *value, const char *key) { return json_object_get(value, key); }

/* What was shown, of how many the fixture has. */
static struct { size_t values, records, states; } shown;

/* ---- its digests, by our canonical JSON ---- */

/* Hex of the digest of object without its member own, which is set to it. */
static const char *seal(json_t *object, const char *own)
{
    uint8_t digest[LAM_SHA256_BYTES];
    char text[LAM_DIGEST_TEXT];
    lam_error err;
    json_t *rest = json_copy(object);
    json_object_del(rest, own);
    assert_ok(lam_json_digest(rest, digest, &err), err);
    json_decref(rest);
    lam_digest_text(digest, text);
    json_object_set_new(object, own, json_string(text + 7));
    return json_string_value(at(object, own));
}

/* The named members of an object. */
static json_t *only(const json_t *object, const char *const *names, size_t n)
{
    json_t *out = json_object();
    for (size_t i = 0; i < n; i++) json_object_set(out, names[i], at(object, names[i]));
    return out;
}

static const char *seal_only(json_t *object, const char *own, const char *const *names, size_t n)
{
    json_t *part = only(object, names, n);
    json_object_set_new(object, own, json_string(seal(part, own)));
    json_decref(part);
    return json_string_value(at(object, own));
}

/* SHA-256 of a matrix as little-endian binary16 in row order. */
static void seal_tensor(json_t *module, const char *name, const char *own)
{
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    char text[LAM_DIGEST_TEXT];
    size_t r, c;
    json_t *row, *value;
    lam_sha256_init(&hash);
    json_array_foreach(at(module, name), r, row) json_array_foreach(row, c, value) {
        uint16_t half = lam_f32_to_f16((float)json_number_value(value));
        lam_sha256_update(&hash, &half, sizeof half);
    }
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, text);
    json_object_set_new(module, own, json_string(text + 7));
}

static void set(json_t *object, const char *key, const char *text) { json_object_set_new(object, key, json_string(text)); }

/* All digests of the fixture anew, from the base downward (its README, "Digest rule"); the ids → out. */
static void rebuild(json_t *f, json_t *out)
{
    static const char *const module_names[] = {"a_axes", "a_sha256", "alpha", "b_axes", "b_sha256", "base_shape", "name", "rank", "scaling_rule",
                                               "target_role"};
    static const char *const artifact[] = {"base_abi_sha256", "method", "modules", "peft_config_sha256"};
    static const char *const semantic[] = {"activation_policy_sha256", "artifact_sha256", "base_abi_sha256"};
    static const char *const cache[] = {"adapter_set_sha256", "base_abi_sha256", "cache_schema", "local_shard", "position_contract"};
    static const char *const prefix[] = {"cache_abi_sha256", "isolation_salt", "prompt_tokens_sha256", "side_inputs_sha256"};
    json_t *adapter = at(f, "adapter"), *kernel = json_array_get(at(f, "kernels"), 0), *m, *list = json_array();
    uint8_t digest[LAM_SHA256_BYTES];
    char text[LAM_DIGEST_TEXT];
    size_t i;
    lam_error err;
    const char *base = seal(at(f, "base"), "base_abi_sha256");
    static const char *const bound[] = {"adapter", "request", "cache"};
    for (i = 0; i < 3; i++) set(at(f, bound[i]), "base_abi_sha256", base);
    m = json_array_get(at(adapter, "modules"), 1); /* two modules, which ascend by name */
    if (strcmp(json_string_value(at(m, "name")), json_string_value(at(json_array_get(at(adapter, "modules"), 0), "name"))) < 0) {
        json_array_insert(at(adapter, "modules"), 0, m);
        json_array_remove(at(adapter, "modules"), 2);
    }
    json_array_foreach(at(adapter, "modules"), i, m) {
        seal_tensor(m, "A", "a_sha256");
        seal_tensor(m, "B", "b_sha256");
        json_array_append_new(list, only(m, module_names, 10));
    }
    json_t *whole = json_copy(adapter);
    json_object_set_new(whole, "modules", list);
    set(adapter, "artifact_sha256", seal_only(whole, "artifact_sha256", artifact, 4));
    json_decref(whole);
    const char *function = seal_only(adapter, "semantic_sha256", semantic, 3);
    set(out, "artifact", json_string_value(at(adapter, "artifact_sha256")));
    set(out, "semantic", function);
    /* the layouts of a kernel follow the adapter's modules */
    set(kernel, "adapter_semantic_sha256", function);
    json_array_foreach(at(kernel, "local_module_layouts"), i, m) {
        const json_t *module = json_array_get(at(adapter, "modules"), i);
        json_object_set(m, "name", at(module, "name"));
        json_array_set(at(m, "a_shape"), 0, at(module, "rank"));
        json_array_set(at(m, "b_shape"), 0, at(module, "rank"));
    }
    set(at(f, "slot"), "kernel_local_sha256", seal(kernel, "kernel_local_sha256"));
    set(out, "kernel_local_0", json_string_value(at(kernel, "kernel_local_sha256")));
    set(at(f, "request"), "adapter_semantic_sha256", function);
    set(out, "request_binding", seal(at(f, "request"), "request_binding_sha256"));
    set(at(f, "slot"), "adapter_semantic_sha256", function);
    set(out, "slot_binding", seal(at(f, "slot"), "slot_binding_sha256"));
    set(at(f, "cache"), "adapter_set_sha256", function);
    set(out, "cache_abi", seal_only(at(f, "cache"), "cache_abi_sha256", cache, 5));
    assert_ok(lam_json_digest(at(at(f, "prefix"), "prompt_tokens"), digest, &err), err);
    lam_digest_text(digest, text);
    set(at(f, "prefix"), "prompt_tokens_sha256", text + 7);
    set(at(f, "prefix"), "cache_abi_sha256", json_string_value(at(out, "cache_abi")));
    set(out, "prefix", seal_only(at(f, "prefix"), "prefix_sha256", prefix, 4));
}

/* Sets what a JSON pointer names. */
static void patch(json_t *root, const char *pointer, json_t *to)
{
    char key[64];
    json_t *here = root;
    for (const char *p = pointer + 1;; ) {
        size_t len = strcspn(p, "/");
        snprintf(key, sizeof key, "%.*s", (int)len, p);
        bool last = !p[len];
        if (json_is_array(here) && last) json_array_set(here, (size_t)atoi(key), to);
        else if (last) json_object_set(here, key, to);
        else here = json_is_array(here) ? json_array_get(here, (size_t)atoi(key)) : at(here, key);
        if (last) return;
        assert_non_null(here);
        p += len + 1;
    }
}

static void test_its_digests(void **state)
{
    (void)state;
    json_t *all = load(), *expected = at(all, "expected"), *ids = json_object(), *f = json_deep_copy(at(all, "fixture")), *p;
    rebuild(f, ids);
    assert_true(json_equal(ids, at(expected, "ids")));
    assert_true(json_equal(f, at(all, "fixture"))); /* every digest of the fixture itself */
    json_decref(f);
    static const char *const texts[][3] = {{"base_abi", "base", "base_abi_sha256"}, {"slot_binding", "slot", "slot_binding_sha256"},
                                           {"request_binding", "request", "request_binding_sha256"}};
    for (size_t i = 0; i < 3; i++) {
        struct lam_str text = {0};
        lam_error err;
        json_t *object = json_copy(at(at(all, "fixture"), texts[i][1]));
        json_object_del(object, texts[i][2]);
        assert_ok(lam_json_canonical(object, &text, &err), err);
        assert_string_equal(text.data, json_string_value(at(at(expected, "canonical_text"), texts[i][0])));
        lam_str_release(&text);
        json_decref(object);
    }
    static const char *const variants[] = {"reload_slot_generation_12", "v_proj_rank_4_to_2", "one_factor_byte", "retarget_v_to_k"};
    for (size_t i = 0; i < 4; i++) {
        const json_t *variant = at(expected, variants[i]);
        json_t *changed = json_object();
        size_t k;
        f = json_deep_copy(at(all, "fixture"));
        json_array_foreach(at(variant, "patch"), k, p) patch(f, json_string_value(at(p, "field")), at(p, "to"));
        rebuild(f, changed);
        if (!json_equal(changed, at(variant, "ids"))) fail_msg("%s", variants[i]);
        assert_int_equal(json_array_size(at(variant, "same")) + json_array_size(at(variant, "changed")), json_object_size(ids));
        json_array_foreach(at(variant, "same"), k, p) assert_true(json_equal(at(changed, json_string_value(p)), at(ids, json_string_value(p))));
        json_array_foreach(at(variant, "changed"), k, p) assert_false(json_equal(at(changed, json_string_value(p)), at(ids, json_string_value(p))));
        json_decref(changed);
        json_decref(f);
    }
    shown.values += 2; /* ids, canonical_text; the variants count on our own digests */
    json_decref(ids);
    json_decref(all);
}

/* The fixture's factors as tensors of a file, in binary16. */
static void take_factor(const json_t *matrix, struct case_tensor *t)
{
    size_t r, c, n = 0;
    json_t *row, *value;
    json_array_foreach(matrix, r, row) json_array_foreach(row, c, value) {
        uint16_t half = lam_f32_to_f16((float)json_number_value(value));
        memcpy(t->bytes + 2 * n++, &half, sizeof half);
    }
    t->dtype = LAM_F16;
    t->rows = (uint32_t)json_array_size(matrix);
    t->cols = (uint32_t)json_array_size(json_array_get(matrix, 0));
}

/* Scalars and bytes of its adapter, as `lamina inspect` tells them; a wrong ledger is another number. */
static void test_ledger(void **state)
{
    (void)state;
    json_t *all = load(), *modules = at(at(at(all, "fixture"), "adapter"), "modules"), *told, *t, *dim, *fault;
    char *folder = test_make_folder(), path[600], *text;
    struct adapter_case *c = calloc(1, sizeof *c);
    json_int_t scalars = 0, bytes = 0;
    size_t i, k;
    lam_error err;
    assert_non_null(c);
    snprintf(path, sizeof path, "%s/case.slm", folder);
    case_lora(c, ZEROS, 8, 8);
    for (i = 0; i < 4; i++) take_factor(at(json_array_get(modules, i / 2), i % 2 ? "B" : "A"), &c->tensors[i]);
    case_write(c, path);
    assert_ok(lam_inspect(path, true, &text, &err), err);
    assert_ok(lam_json_parse(text, strlen(text), "inspect", &told, &err), err);
    lam_memory_free(text);
    json_array_foreach(at(told, "tensors"), i, t) {
        json_int_t product = 1;
        json_array_foreach(at(t, "dims"), k, dim) product *= json_integer_value(dim);
        scalars += product;
        bytes += json_integer_value(at(t, "bytes"));
    }
    assert_int_equal(scalars, json_integer_value(at(at(all, "expected"), "adapter_scalars")));
    assert_int_equal(bytes, json_integer_value(at(at(all, "expected"), "adapter_bytes")));
    shown.values += 2;
    json_array_foreach(at(all, "negatives"), i, fault) {
        if (strcmp(json_string_value(at(fault, "id")), "id-29") != 0) continue;
        assert_int_equal(bytes, json_integer_value(at(at(fault, "mutate"), "from")));
        assert_int_not_equal(bytes, json_integer_value(at(at(fault, "mutate"), "to")));
        shown.records++;
    }
    json_decref(told);
    json_decref(c->metadata);
    free(c);
    test_remove_folder(folder);
    json_decref(all);
}

/* A key of cached rows may name none of what the fixture leaves out of it. */
static void test_key_excludes(void **state)
{
    (void)state;
    json_t *all = load(), *name;
    struct lam_row_contract here, read;
    lam_error err;
    size_t i;
    lam_row_contract_here(ZEROS, 2, LAM_KV_F16, "", &here);
    json_array_foreach(at(at(all, "expected"), "prefix_key_excludes"), i, name) {
        json_t *key = lam_row_contract_json(&here);
        assert_ok(lam_row_contract_read(key, &read, &err), err);
        set(key, json_string_value(name), "here");
        if (lam_row_contract_read(key, &read, &err) != LAM_E_KV_KEY_PLACE) fail_msg("%s: %s", json_string_value(name), err.message);
        json_decref(key);
    }
    assert_int_equal(i, 8);
    shown.values++;
    json_decref(all);
}

/* ---- its relations, on real digests ---- */

struct real {
    struct fixture f;
    lam_base_info info;
    uint32_t d_v;
    char path[600];
    struct adapter_case *c;
};

static void real_open(struct real *r)
{
    fixture_import(&r->f, "tests/golden/llama-gqa/llama-gqa-q4_0.gguf", NULL, 0);
    fixture_open(&r->f, NULL);
    lam_base_describe(r->f.base, &r->info);
    r->d_v = r->info.n_kv_heads * r->info.head_dim;
    snprintf(r->path, sizeof r->path, "%s/case.slm", r->f.folder);
    r->c = calloc(1, sizeof *r->c);
    assert_non_null(r->c);
}

static void real_close(struct real *r)
{
    free(r->c);
    fixture_close(&r->f);
    fixture_remove(&r->f);
}

typedef void (*change_fn)(struct adapter_case *c);

/* The digest of the case's adapter as it is. */
static void sound_digest(struct real *r, char out[LAM_DIGEST_TEXT])
{
    lam_error err;
    lam_adapter *a;
    lam_adapter_info info;
    case_lora(r->c, r->info.base_digest, r->info.d_model, r->d_v);
    case_write(r->c, r->path);
    json_decref(r->c->metadata);
    assert_ok(lam_adapter_load(r->f.base, r->path, false, &a, &err), err);
    lam_adapter_describe(a, &info);
    strcpy(out, info.digest);
    lam_adapter_unload(a);
}

static void rank_4_to_2(struct adapter_case *c)
{
    json_object_set_new(json_array_get(case_modules(c), 1), "rank", json_integer(2));
    c->tensors[2].rows = 2;
    c->tensors[3].cols = 2;
}
static void one_factor_byte(struct adapter_case *c) { c->tensors[0].bytes[7] ^= 0x80; } /* a sign: no rounding hides it */
static void retarget_v_to_k(struct adapter_case *c)
{
    json_array_insert(case_modules(c), 0, json_array_get(case_modules(c), 1)); /* k stands before q */
    json_array_remove(case_modules(c), 2);
    json_object_set_new(json_array_get(case_modules(c), 0), "name", json_string("blk.0.attn_k"));
    for (size_t i = 2; i < 4; i++) {
        c->tensors[i].name[11] = 'k';
        c->tensors[i].role = LAM_ROLE_K | (c->tensors[i].role & 0xffff0000u);
    }
}
static void other_name(struct adapter_case *c) { json_object_set_new(c->metadata, "name", json_string("customer-blue")); }
static void other_source(struct adapter_case *c) { json_object_set_new(c->metadata, "source", json_pack("{s:s}", "path", "/else")); }

/* Ours of each identity that the fixture has, in its words. */
enum { ARTIFACT, SEMANTIC, CACHE_ABI, PREFIX, SLOT_BINDING, KERNEL_LOCAL, REQUEST_BINDING, N_IDENTITIES };
static const char *const identity_names[N_IDENTITIES] = {"artifact", "semantic", "cache_abi", "prefix", "slot_binding", "kernel_local_0", "request_binding"};

struct identities {
    char of[N_IDENTITIES][2 * LAM_DIGEST_TEXT], base[LAM_DIGEST_TEXT];
};

/* A runtime with a prefix cache, in which one adapter after the other is active. */
struct served {
    struct real r;
    lam_engine *engine;
    lam_runtime *runtime;
    lam_composition *bare;
};

static void served_open(struct served *s)
{
    lam_error err;
    real_open(&s->r);
    assert_ok(lam_engine_new(&(lam_engine_options){.threads = 1, .prefix_cache = (size_t)16 << 20}, &s->engine, &err), err);
    assert_ok(lam_runtime_new(s->engine, &s->runtime, &err), err);
    assert_ok(lam_runtime_load(s->runtime, s->r.f.base_path, LAM_VERIFY_FULL, &err), err);
    assert_ok(lam_runtime_compose(s->runtime, NULL, NULL, 0, NULL, &s->bare, &err), err);
}

static void served_close(struct served *s)
{
    lam_composition_free(s->bare);
    lam_runtime_free(s->runtime);
    lam_engine_free(s->engine);
    real_close(&s->r);
}

/* An adapter from the case's file, composed alone. */
static lam_composition *served_compose(struct served *s, change_fn change, lam_adapter **adapter)
{
    lam_error err;
    lam_composition *c;
    case_lora(s->r.c, s->r.info.base_digest, s->r.info.d_model, s->r.d_v);
    if (change) change(s->r.c);
    case_write(s->r.c, s->r.path);
    json_decref(s->r.c->metadata);
    assert_ok(lam_adapter_load(lam_runtime_base(s->runtime), s->r.path, false, adapter, &err), err);
    assert_ok(lam_runtime_compose(s->runtime, adapter, (double[]){1.0}, 1, NULL, &c, &err), err);
    return c;
}

/* The fixture's prompt: what its rows depend on, and whether rows of an equal prefix were there. */
static void take_rows(lam_composition *c, struct identities *out)
{
    lam_error err;
    lam_session *session = fixture_session(c, 16);
    assert_ok(lam_session_isolate(session, "tenant-blue", &err), err);
    assert_ok(lam_session_feed(session, (const uint32_t[]){11, 12, 99, 100}, 4, NULL, NULL, &err), err);
    assert_ok(lam_session_interval(session, 0, 4, out->of[CACHE_ABI], &err), err);
    strcpy(out->of[PREFIX], lam_session_cached(session) ? "found" : "not found");
    lam_session_free(session); /* leaves its rows to the next */
}

/* Composes, runs and publishes the adapter as it is with a change, when something else was active. */
static void take_identities(struct served *s, change_fn change, struct identities *out)
{
    lam_error err;
    lam_adapter *a;
    lam_adapter_info info;
    lam_base_info base;
    lam_generation now;
    uint8_t digest[LAM_SHA256_BYTES];
    assert_ok(lam_runtime_activate(s->runtime, s->bare, NULL, NULL, &err), err);
    lam_composition *c = served_compose(s, change, &a);
    lam_adapter_describe(a, &info);
    lam_base_describe(lam_runtime_base(s->runtime), &base);
    strcpy(out->base, base.base_digest);
    strcpy(out->of[ARTIFACT], info.digest);
    assert_ok(lam_semantic_digest(base.base_digest, &(struct lam_identity_adapter){.digest = info.digest, .weight = 1.0, .rule = "add"},
                                  out->of[SEMANTIC], &err), err);
    take_rows(c, out);
    assert_ok(lam_runtime_activate(s->runtime, c, NULL, &now, &err), err);
    snprintf(out->of[SLOT_BINDING], sizeof out->of[0], "%u %llu %llu %s", now.slot, (unsigned long long)now.slot_generation,
             (unsigned long long)now.pointer_generation, now.composition_id);
    lam_sha256(&a->staged->seal, sizeof a->staged->seal, digest); /* what the kernels read */
    lam_digest_text(digest, out->of[KERNEL_LOCAL]);
    strcpy(out->of[REQUEST_BINDING], lam_composition_id(c));
    lam_composition_free(c);
    lam_adapter_unload(a);
}

static void check_relation(const json_t *names, const struct identities *first, const struct identities *other, bool same, const char *variant)
{
    size_t i;
    json_t *name;
    json_array_foreach(names, i, name) {
        int k = 0;
        while (strcmp(identity_names[k], json_string_value(name)) != 0) k++;
        if ((strcmp(first->of[k], other->of[k]) == 0) != same) fail_msg("%s: %s is %s", variant, identity_names[k], same ? "another" : "the same");
    }
}

/* What is the same and what changes in each variant of the fixture, on our own digests. */
static void test_relations(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        change_fn change;
    } variants[] = {{"reload_slot_generation_12", NULL}, {"v_proj_rank_4_to_2", rank_4_to_2}, {"one_factor_byte", one_factor_byte},
                    {"retarget_v_to_k", retarget_v_to_k}};
    static const change_fn unnamed[] = {other_name, other_source}; /* the fixture's prefix_key_excludes */
    json_t *all = load();
    const json_t *reload = at(at(all, "expected"), "reload_slot_generation_12");
    struct served s;
    struct identities first, other;
    served_open(&s);
    take_identities(&s, NULL, &first);
    assert_string_equal(first.of[PREFIX], "not found");
    strcpy(first.of[PREFIX], "found"); /* by whoever has an equal prefix */
    for (size_t i = 0; i < 4; i++) {
        const json_t *variant = at(at(all, "expected"), variants[i].name);
        take_identities(&s, variants[i].change, &other);
        assert_string_equal(other.base, first.base);
        check_relation(at(variant, "same"), &first, &other, true, variants[i].name);
        check_relation(at(variant, "changed"), &first, &other, false, variants[i].name);
        assert_int_equal(json_array_size(at(variant, "same")) + json_array_size(at(variant, "changed")), N_IDENTITIES);
        shown.values++;
    }
    for (size_t i = 0; i < 2; i++) {
        take_identities(&s, unnamed[i], &other);
        check_relation(at(reload, "same"), &first, &other, true, "another name or place");
    }
    served_close(&s);
    json_decref(all);
}

/* ---- its faults ---- */

/* A sound manifest of a sound adapter, before a fault. */
struct subject {
    struct real *r;
    lam_manifest m;
    lam_manifest_adapter adapter;
};

typedef void (*fault_fn)(struct subject *s);

static void base_weights(struct subject *s) { s->m.base_parts.weights = ZEROS; }
static void base_config(struct subject *s) { s->m.base_parts.config = ZEROS; }
static void base_layout(struct subject *s) { s->m.base_parts.layout = ZEROS; }
static void base_targets(struct subject *s) { s->m.base_parts.targets = ZEROS; }
static void method(struct subject *s) { s->adapter.parts.method = "dora"; }
static void factors(struct subject *s) { s->adapter.parts.factors = ZEROS; }
static void activation(struct subject *s) { s->adapter.parts.activation = ZEROS; }

static void rewrite(struct subject *s, change_fn change)
{
    case_lora(s->r->c, s->r->info.base_digest, s->r->info.d_model, s->r->d_v);
    change(s->r->c);
    case_write(s->r->c, s->r->path);
    json_decref(s->r->c->metadata);
}

static void to_other_base(struct adapter_case *c) { json_object_set_new(c->metadata, "bases", json_pack("[s]", ZEROS)); }
static void other_base(struct subject *s) { rewrite(s, to_other_base); }
static void with_scaling(struct adapter_case *c) { json_object_set_new(json_array_get(case_modules(c), 1), "scaling", json_string("alpha/sqrt(r)")); }
static void config(struct subject *s) { rewrite(s, with_scaling); }
static void with_alpha(struct adapter_case *c) { json_object_set_new(json_array_get(case_modules(c), 1), "alpha", json_real(4.0)); }
static void alpha(struct subject *s) { rewrite(s, with_alpha); }
static void with_twin(struct adapter_case *c) { json_array_set(case_modules(c), 1, json_array_get(case_modules(c), 0)); }
static void twin(struct subject *s) { rewrite(s, with_twin); }
static void with_disorder(struct adapter_case *c)
{
    json_t *first = json_incref(json_array_get(case_modules(c), 0));
    json_array_remove(case_modules(c), 0);
    json_array_append_new(case_modules(c), first);
}
static void disorder(struct subject *s) { rewrite(s, with_disorder); }
static void with_rank(struct adapter_case *c) { json_object_set_new(json_array_get(case_modules(c), 1), "rank", json_integer(2)); }
static void rank(struct subject *s) { rewrite(s, with_rank); }
static void with_width(struct adapter_case *c) { c->tensors[0].cols /= 2; }
static void width(struct subject *s) { rewrite(s, with_width); }
static void turn(struct case_tensor *t)
{
    uint32_t rows = t->rows;
    t->rows = t->cols;
    t->cols = rows;
}
static void with_turned_a(struct adapter_case *c) { turn(&c->tensors[0]); }
static void turned_a(struct subject *s) { rewrite(s, with_turned_a); }
static void with_turned_b(struct adapter_case *c) { turn(&c->tensors[1]); }
static void turned_b(struct subject *s) { rewrite(s, with_turned_b); }
static void with_role(struct adapter_case *c) { c->tensors[3].role = LAM_ROLE_K | LAM_PART_B << 16; }
static void role(struct subject *s) { rewrite(s, with_role); }

/* One byte of A changes in the file itself. */
static void bytes(struct subject *s)
{
    FILE *f = fopen(s->r->path, "r+b");
    struct lam_slm *file;
    lam_error err;
    assert_non_null(f);
    assert_ok(lam_slm_open(s->r->path, &file, &err), err);
    long place = (long)(lam_slm_tensor_data(file, lam_slm_find(file, "blk.0.attn_q.lora_a")) - file->file.data);
    lam_slm_close(file);
    assert_int_equal(fseek(f, place, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, place, SEEK_SET), 0);
    assert_true(fputc(byte ^ 1, f) != EOF);
    assert_int_equal(fclose(f), 0);
}

/* Ours of each fault of the fixture; without a function: of a cache, see test_cache_faults. */
static const struct {
    const char *id;
    fault_fn fault;
    lam_code code;
} ours[] = {
    {"id-01", base_weights, LAM_E_BASE_WEIGHTS}, {"id-02", base_config, LAM_E_BASE_CONFIG}, {"id-03", base_layout, LAM_E_BASE_LAYOUT},
    {"id-04", base_targets, LAM_E_BASE_TARGETS}, {"id-05", other_base, LAM_E_WRONG_BASE}, {"id-06", method, LAM_E_METHOD},
    {"id-07", config, LAM_E_ADAPTER_MODULES}, {"id-08", twin, LAM_E_DUPLICATE}, {"id-09", disorder, LAM_E_ORDER}, {"id-10", rank, LAM_E_RANK},
    {"id-11", alpha, LAM_E_ADAPTER_ALPHA}, {"id-12", width, LAM_E_SHAPE}, {"id-13", turned_a, LAM_E_TRANSPOSED},
    {"id-14", turned_b, LAM_E_TRANSPOSED_B}, {"id-15", bytes, LAM_E_DIGEST}, {"id-16", factors, LAM_E_ADAPTER_FACTORS}, {"id-17", role, LAM_E_FORMAT},
    {"id-18", activation, LAM_E_ADAPTER_ACTIVATION}, {"id-26", NULL, LAM_E_IDENTITY}, {"id-27", NULL, LAM_E_KV_NAMESPACE},
};
#define N_OURS (sizeof ours / sizeof *ours)

/* ---- faults of what is active: by the functions that every activation, admission and pass goes through ---- */

/* B as staged lies the other way round than the kernels read it. */
static lam_code turned_staged_b(struct served *s)
{
    lam_error err;
    lam_adapter *a;
    lam_composition *c = served_compose(s, NULL, &a);
    struct lam_factor *b = &a->staged->modules[0].lora.b, was = *b;
    b->rows = was.cols;
    b->cols = was.rows;
    lam_code code = lam_runtime_activate(s->runtime, c, NULL, NULL, &err);
    *b = was;
    assert_ok(lam_runtime_activate(s->runtime, c, NULL, NULL, &err), err);
    lam_composition_free(c);
    lam_adapter_unload(a);
    return code;
}

/* A number of the catalogue in place of a slot's generation. */
static lam_code crossed_counters(struct served *s)
{
    lam_error err;
    lam_adapter *a;
    lam_generation now;
    lam_composition *c = served_compose(s, NULL, &a);
    for (int i = 0; i < 2; i++) assert_ok(lam_runtime_activate(s->runtime, i ? s->bare : c, NULL, &now, &err), err);
    lam_generation crossed = now;
    crossed.slot_generation = now.catalogue;
    assert_true(crossed.slot_generation != now.slot_generation);
    lam_code code = lam_runtime_activate(s->runtime, c, &crossed, NULL, &err);
    assert_ok(lam_runtime_activate(s->runtime, c, &now, NULL, &err), err);
    lam_composition_free(c);
    lam_adapter_unload(a);
    return code;
}

typedef void (*handle_fn)(struct lam_handle *h);
static void other_function(struct lam_handle *h) { strcpy(h->digest, ZEROS); }
static void other_generation(struct lam_handle *h) { h->slot_generation++; }
static void other_pointers(struct lam_handle *h) { h->pointer_generation++; }

/* A pass by a request's lease, with a fault. */
static lam_code launch(const struct served *s, handle_fn fault)
{
    struct lam_generations table;
    struct lam_handle lease;
    lam_error err;
    assert_ok(lam_generations_init(&table, &err), err);
    assert_ok(generation_publish(&table, lam_composition_id(s->bare), NULL, NULL, &err), err);
    assert_ok(lam_generations_acquire(&table, &lease, &err), err);
    struct lam_handle wrong = lease;
    fault(&wrong);
    lam_code code = lam_generations_use_begin(&table, &wrong, &err);
    assert_ok(lam_generations_use_begin(&table, &lease, &err), err);
    lam_generations_use_end(&table, &lease);
    assert_ok(lam_generations_give_back(&table, &lease, &err), err);
    lam_generations_release(&table);
    return code;
}

static lam_code launch_other_function(struct served *s) { return launch(s, other_function); }
static lam_code launch_other_generation(struct served *s) { return launch(s, other_generation); }
static lam_code launch_other_pointers(struct served *s) { return launch(s, other_pointers); }

/* The slot holds another adapter than the catalogue says: nothing is published over it. */
static lam_code slot_of_another(struct served *s)
{
    struct lam_generations table;
    struct lam_publication p;
    lam_error err;
    assert_ok(lam_generations_init(&table, &err), err);
    assert_ok(generation_publish(&table, lam_composition_id(s->bare), NULL, NULL, &err), err);
    strcpy(table.slots[table.current.slot].digest, ZEROS);
    lam_code code = lam_publication_begin(&table, &p, &err);
    lam_generations_release(&table);
    return code;
}

/* An adapter that was loaded and pinned for a request's earlier attempt. */
static lam_code other_attempt(struct served *s)
{
    struct lam_ledger ledger = {0};
    struct lam_worker_limits worker = {0};
    struct lam_arrival arrival = {.attempt = 0};
    struct lam_admission admission = {.pinned = 1};
    lam_error err;
    strcpy(arrival.digest, s->r.info.base_digest);
    strcpy(admission.staged_digest, arrival.digest);
    for (int step = 0; step <= LAM_ADMIT_RESERVE; step++) assert_ok(lam_admission_step(&admission, (enum lam_admission_step)step, &err), err);
    return lam_admission_commit(&ledger, &worker, &arrival, &admission, &err);
}

static const struct {
    const char *id;
    lam_code (*provoke)(struct served *s);
    lam_code code;
} launches[] = {
    {"id-19", turned_staged_b, LAM_E_GEN_STAGED_EXTENT}, {"id-21", launch_other_function, LAM_E_GEN_LEASE_DIGEST},
    {"id-22", other_attempt, LAM_E_RES_PIN}, {"id-23", slot_of_another, LAM_E_GEN_CATALOGUE_DIGEST},
    {"id-24", launch_other_generation, LAM_E_GEN_LEASE_GENERATION}, {"id-25", launch_other_pointers, LAM_E_GEN_LEASE_POINTER},
    {"id-28", crossed_counters, LAM_E_GEN_STALE},
};
#define N_LAUNCHES (sizeof launches / sizeof *launches)

static void test_launch_faults(void **state)
{
    (void)state;
    struct served s;
    served_open(&s);
    for (size_t i = 0; i < N_LAUNCHES; i++) {
        lam_code code = launches[i].provoke(&s);
        if (code != launches[i].code) fail_msg("%s: %s, not %s", launches[i].id, lam_code_name(code), lam_code_name(launches[i].code));
        shown.states++;
    }
    served_close(&s);
}

/* Of shards, which do not exist: nothing here holds a thing that they could befall. */
static const struct {
    const char *id, *what;
} elsewhere[] = {{"id-20", "output ranges of shards"}};
#define N_ELSEWHERE (sizeof elsewhere / sizeof *elsewhere)

static void no_change(struct adapter_case *c) { (void)c; }

static void test_faults(void **state)
{
    (void)state;
    struct real r;
    char base_parts[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT], parts[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT];
    char sound[LAM_DIGEST_TEXT];
    lam_error err;
    real_open(&r);
    sound_digest(&r, sound);
    assert_ok(lam_manifest_parts(r.f.base_path, base_parts, &err), err);
    assert_ok(lam_manifest_parts(r.path, parts, &err), err);
    for (size_t i = 0; i < N_OURS + 1; i++) {
        struct subject s = {.r = &r, .m = {.base_digest = r.info.base_digest, .tokenizer_digest = r.info.tokenizer_digest, .n_adapters = 1,
                            .base_parts = {base_parts[0], base_parts[1], base_parts[2], base_parts[3]}},
                            .adapter = {.digest = sound, .file = "case", .weight = 1.0,
                                        .parts = {parts[0], parts[1], parts[2], parts[3], parts[4]}}};
        const char *path = r.path;
        lam_fault_list faults = {0};
        if (i < N_OURS && !ours[i].fault) continue;
        rewrite(&s, no_change);
        if (i < N_OURS) ours[i].fault(&s);
        s.m.adapters = &s.adapter;
        lam_code code = lam_manifest_check(&s.m, r.f.base_path, &path, &faults, &err);
        lam_code want = i < N_OURS ? ours[i].code : LAM_OK; /* the first fault's; that it is another file then, too, comes after it */
        if (code != want) fail_msg("%s: %s, %s", i < N_OURS ? ours[i].id : "sound", lam_code_name(code), code == LAM_OK ? "" : err.message);
        shown.states += i < N_OURS;
        lam_fault_list_release(&faults);
    }
    real_close(&r);
}

/* Rows of another adapter, and of another tenant. */
static void test_cache_faults(void **state)
{
    (void)state;
    struct real r;
    lam_error err;
    lam_adapter *a;
    lam_composition *c;
    char path[600];
    real_open(&r);
    case_lora(r.c, r.info.base_digest, r.info.d_model, r.d_v);
    case_write(r.c, r.path);
    json_decref(r.c->metadata);
    assert_ok(lam_adapter_load(r.f.base, r.path, false, &a, &err), err);
    assert_ok(lam_compose(r.f.base, &a, (double[]){1.0}, 1, NULL, &c, &err), err);
    lam_composition *bare;
    assert_ok(lam_compose(r.f.base, NULL, NULL, 0, NULL, &bare, &err), err);
    lam_session *s = fixture_session(c, 16), *t;
    snprintf(path, sizeof path, "%s/rows.session", r.f.folder);
    assert_ok(lam_session_isolate(s, "tenant-blue", &err), err);
    assert_ok(lam_session_feed(s, (const uint32_t[]){11, 12, 99, 100}, 4, NULL, NULL, &err), err);
    assert_ok(lam_session_save(s, path, &err), err);
    lam_session_free(s);
    for (size_t i = 0; i < N_OURS; i++) {
        if (ours[i].fault) continue;
        bool adapter = strcmp(ours[i].id, "id-26") == 0;
        lam_restore_options options = {.salt = adapter ? "tenant-blue" : "tenant-red"};
        assert_int_equal(lam_session_restore(adapter ? bare : c, path, &options, &t, &err), ours[i].code);
        assert_null(t);
        shown.states++;
    }
    assert_ok(lam_session_restore(c, path, &(lam_restore_options){.salt = "tenant-blue"}, &t, &err), err);
    lam_session_free(t);
    lam_composition_free(bare);
    lam_composition_free(c);
    lam_adapter_unload(a);
    real_close(&r);
}

static void test_codes_are_distinct(void **state)
{
    (void)state;
    lam_code codes[N_OURS + N_LAUNCHES];
    for (size_t i = 0; i < N_OURS; i++) codes[i] = ours[i].code;
    for (size_t i = 0; i < N_LAUNCHES; i++) codes[N_OURS + i] = launches[i].code;
    for (size_t i = 0; i < N_OURS + N_LAUNCHES; i++)
        for (size_t k = 0; k < i; k++)
            if (codes[i] == codes[k]) fail_msg("two faults have the code %s", lam_code_name(codes[i]));
}

/* After all others: no fault is passed over. An entry of "expected" counts once, however many numbers it has. */
static void test_count(void **state)
{
    (void)state;
    static const char *const of_shards[] = {"local_scalars", "local_bytes", "cluster_bytes"};
    json_t *all = load(), *fault;
    size_t i, records = 0, states = 0, later = 0, values = json_object_size(at(all, "expected"));
    json_array_foreach(at(all, "negatives"), i, fault) {
        const char *id = json_string_value(at(fault, "id"));
        bool found = false;
        if (strcmp(json_string_value(at(fault, "surface")), "record") == 0) {
            records++;
            continue;
        }
        states++;
        for (size_t k = 0; k < N_OURS; k++) found |= strcmp(ours[k].id, id) == 0;
        for (size_t k = 0; k < N_LAUNCHES; k++) found |= strcmp(launches[k].id, id) == 0;
        for (size_t k = 0; k < N_ELSEWHERE; k++)
            if (strcmp(elsewhere[k].id, id) == 0) found = true, later++, print_message("%s waits for shards: %s\n", id, elsewhere[k].what);
        if (!found) fail_msg("%s: %s", id, json_string_value(at(fault, "error")));
    }
    for (i = 0; i < 3; i++) {
        assert_non_null(at(at(all, "expected"), of_shards[i]));
        print_message("%s waits for shards\n", of_shards[i]);
    }
    print_message("id-30 waits for shards: their bytes\n");
    print_message("identity.json    positive entries %zu of %zu   faults of records %zu of %zu   faults of states %zu of %zu\n", shown.values, values,
                  shown.records, records, shown.states, states);
    assert_int_equal(shown.values + 3, values);
    assert_int_equal(shown.records + 1, records);
    assert_int_equal(shown.states + later, states);
    assert_true(states == 28 && later == N_ELSEWHERE);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_its_digests), cmocka_unit_test(test_ledger), cmocka_unit_test(test_key_excludes),
                                       cmocka_unit_test(test_relations), cmocka_unit_test(test_faults), cmocka_unit_test(test_cache_faults), cmocka_unit_test(test_launch_faults),
                                       cmocka_unit_test(test_codes_are_distinct), cmocka_unit_test(test_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
