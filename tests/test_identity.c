/* composition_id: against ids computed by tools/make_identity_golden.py; what is in it, and what is not. */
#define _POSIX_C_SOURCE 200809L

#include "fixture.h"

#include "base/json.h"
#include "compose/identity.h"

#include <openssl/sha.h>

/* ---- golden ---- */

static const char *text_of(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

static void check_golden(const json_t *c)
{
    struct lam_identity_adapter list[8];
    uint32_t tokens[8][4];
    json_t *no_modules = json_object(), *owners = json_object_get(c, "owners"), *policies = json_object_get(c, "policies");
    struct lam_identity identity = {.base_digest = text_of(c, "base_digest"), .tokenizer_digest = text_of(c, "tokenizer_digest"),
                                    .template_digest = text_of(c, "template_digest"), .kv_format = text_of(c, "kv_format"),
                                    .adapters = list, .owners = owners ? owners : no_modules, .policies = policies ? policies : no_modules,
                                    .policy = text_of(c, "policy") ? text_of(c, "policy") : "dual"};
    json_t *a;
    json_array_foreach(json_object_get(c, "adapters"), identity.n_adapters, a) {
        const json_t *invocation = json_object_get(a, "invocation");
        uint32_t *of = tokens[identity.n_adapters];
        for (size_t i = 0; i < json_array_size(invocation); i++) of[i] = (uint32_t)json_integer_value(json_array_get(invocation, i));
        list[identity.n_adapters] = (struct lam_identity_adapter){
            .digest = text_of(a, "digest"), .weight = json_number_value(json_object_get(a, "weight")),
            .waived = json_is_true(json_object_get(a, "waived")), .rule = text_of(a, "rule") ? text_of(a, "rule") : "add",
            .invocation = invocation ? of : NULL, .n_invocation = json_array_size(invocation)};
    }
    struct lam_str json = {0};
    char id[LAM_DIGEST_TEXT];
    lam_error err;
    assert_ok(lam_identity_make(&identity, &json, id, &err), err);
    assert_string_equal(json.data, text_of(c, "canonical"));
    assert_string_equal(id, text_of(c, "id"));
    lam_str_release(&json);
    json_decref(no_modules);
}

static void test_golden(void **state)
{
    (void)state;
    json_error_t problem;
    size_t i;
    json_t *list = json_load_file("tests/data/identity/compositions.json", 0, &problem), *c;
    if (!list) fail_msg("%s", problem.text);
    json_array_foreach(list, i, c) check_golden(c);
    assert_true(i > 30);
    json_decref(list);
}

/* ---- through the public API ---- */

#define GQA "tests/golden/llama-gqa/llama-gqa-"
#define ADAPTER "tests/golden/adapters/llama-gqa/"
static const char *const adapters[] = {ADAPTER "all-r4", "twin"};

static void id_of(struct fixture *f, const double *weights, size_t n, char out[LAM_DIGEST_TEXT])
{
    lam_composition *c = fixture_compose(f, weights, n);
    memcpy(out, lam_composition_id(c), LAM_DIGEST_TEXT);
    lam_composition_free(c);
}

#define MAX_IDS 32
struct ids {
    char id[MAX_IDS][LAM_DIGEST_TEXT];
    size_t n;
};

/* The id is new: no other combination of ingredients has it. */
static void add_new(struct ids *ids, const char *id)
{
    for (size_t i = 0; i < ids->n; i++) assert_string_not_equal(id, ids->id[i]);
    assert_true(ids->n < MAX_IDS);
    memcpy(ids->id[ids->n++], id, LAM_DIGEST_TEXT);
}

static void add_compositions(struct ids *ids, struct fixture *f)
{
    static const double weights[][2] = {{1, 1}, {1, 0.5}, {0.5, 1}, {0, 1}, {-0.0, -1}};
    char id[LAM_DIGEST_TEXT];
    for (size_t n = 0; n < 2; n++) {
        id_of(f, weights[0], n, id);
        add_new(ids, id);
    }
    for (size_t i = 0; i < 5; i++) {
        id_of(f, weights[i], 2, id);
        add_new(ids, id);
    }
}

static void test_every_ingredient_counts(void **state)
{
    (void)state;
    struct ids ids = {.n = 0};
    struct fixture f;
    char id[LAM_DIGEST_TEXT];
    static const char *const sources[] = {GQA "q4_0.gguf", GQA "q8_0.gguf", "tests/golden/llama-gqa"}; /* the last: KV in float32 */
    for (size_t i = 0; i < 3; i++) { /* the base's bytes */
        fixture_import(&f, sources[i], adapters, 2);
        fixture_open(&f, NULL);
        add_compositions(&ids, &f);
        fixture_close(&f);
        fixture_remove(&f);
    }
    static const char *const reversed[] = {ADAPTER "all-r4", ADAPTER "all-r4"};
    fixture_import(&f, sources[0], reversed, 2);
    char twin[512];
    lam_error err;
    fixture_twin(f.folder, ADAPTER "all-r4", twin);
    assert_ok(lam_import_adapter(twin, f.base_path, f.adapter_paths[0], NULL, NULL, &err), err);
    fixture_open(&f, NULL); /* the twin is first now */
    id_of(&f, (double[]){1, 1}, 1, id); /* the adapter's bytes */
    add_new(&ids, id);
    id_of(&f, (double[]){1, 1}, 2, id); /* the order */
    add_new(&ids, id);
    fixture_close(&f);
    fixture_remove(&f);
}

static void test_json_is_what_is_hashed(void **state)
{
    (void)state;
    struct fixture f;
    lam_base_info info;
    lam_adapter_info adapter;
    uint8_t digest[LAM_SHA256_BYTES];
    char text[LAM_DIGEST_TEXT];
    lam_error err;
    json_t *whole;
    fixture_import(&f, GQA "q4_0.gguf", adapters, 2);
    fixture_open(&f, NULL);
    lam_composition *c = fixture_compose(&f, (double[]){1.0, -0.5}, 2);
    const char *json = lam_composition_json(c);
    lam_sha256(json, strlen(json), digest);
    lam_digest_text(digest, text);
    assert_string_equal(text, lam_composition_id(c));
    assert_ok(lam_json_parse(json, strlen(json), "composition", &whole, &err), err);
    lam_base_describe(f.base, &info);
    assert_string_equal(text_of(whole, "base_digest"), info.base_digest);
    assert_string_equal(text_of(whole, "tokenizer_digest"), info.tokenizer_digest);
    assert_true(json_is_null(json_object_get(whole, "template_digest")) == !info.has_chat_template);
    assert_string_equal(text_of(whole, "numeric_contract"), "nc1");
    assert_string_equal(text_of(whole, "kv_format"), "f16");
    const json_t *list = json_object_get(whole, "adapters");
    assert_int_equal(json_array_size(list), 2);
    for (size_t i = 0; i < 2; i++) {
        char semantic[LAM_DIGEST_TEXT];
        lam_adapter_describe(f.adapters[i], &adapter);
        assert_ok(lam_semantic_digest(info.base_digest, &(struct lam_identity_adapter){.digest = adapter.digest}, semantic, &err), err);
        assert_string_equal(text_of(json_array_get(list, i), "semantic_digest"), semantic);
        assert_true(json_number_value(json_object_get(json_array_get(list, i), "weight")) == (i ? -0.5 : 1.0));
    }
    json_decref(whole);
    lam_composition_free(c);
    fixture_close(&f);
    fixture_remove(&f);
}

/* ---- each field of docs/format.md by itself ---- */

#define FIRST 0
#define TWIN 1
#define ACTIVATED 2 /* from the last of the tokens 20, 21, 22 on */
static const char *const three[] = {ADAPTER "all-r4", "twin", "tests/golden/methods/llama-gqa/alora"};

struct variant {
    size_t n, adapters[3];
    double weights[3];
    lam_compose_options options;
    const char *rules[3], *owners, *policy, *kv_format; /* as the identity must say them; NULL: as the first variant's */
};

#define RULES(...) .rules = (const lam_stack_rule[]){__VA_ARGS__}
#define OWNERS(...) .owners = (const lam_owner[]){__VA_ARGS__}, .n_owners = sizeof((const lam_owner[]){__VA_ARGS__}) / sizeof(lam_owner)
#define POLICIES(...) .module_policies = (const lam_module_policy[]){__VA_ARGS__}, \
                      .n_module_policies = sizeof((const lam_module_policy[]){__VA_ARGS__}) / sizeof(lam_module_policy)
#define BOTH .n = 2, .adapters = {FIRST, TWIN}, .weights = {1, 0.5}

/* Each differs from the first in one ingredient. */
static const struct variant variants[] = {
    {BOTH},
    {.n = 0},
    {.n = 1, .adapters = {FIRST}, .weights = {1}},
    {.n = 1, .adapters = {TWIN}, .weights = {1}},
    {.n = 2, .adapters = {TWIN, FIRST}, .weights = {1, 0.5}},
    {.n = 2, .adapters = {FIRST, ACTIVATED}, .weights = {1, 0.5}},
    {.n = 3, .adapters = {FIRST, TWIN, ACTIVATED}, .weights = {1, 0.5, 1}},
    {.n = 2, .adapters = {FIRST, TWIN}, .weights = {-2, 0.5}},
    {.n = 2, .adapters = {FIRST, TWIN}, .weights = {1, 0}},
    {BOTH, .options = {RULES(LAM_STACK_REPLACE, LAM_STACK_ADD)}, .rules = {"replace", "add"}},
    {BOTH, .options = {RULES(LAM_STACK_ADD, LAM_STACK_REPLACE)}, .rules = {"add", "replace"}},
    {BOTH, .options = {OWNERS({"blk.0.attn_q", 0})}, .owners = "{\"blk.0.attn_q\":0}"},
    {BOTH, .options = {OWNERS({"blk.0.attn_q", 1})}, .owners = "{\"blk.0.attn_q\":1}"},
    {BOTH, .options = {OWNERS({"blk.1.attn_q", 0})}, .owners = "{\"blk.1.attn_q\":0}"},
    {BOTH, .options = {OWNERS({"blk.1.attn_q", 0}, {"blk.0.ffn_up", 1})}, .owners = "{\"blk.0.ffn_up\":1,\"blk.1.attn_q\":0}"},
    {BOTH, .options = {.policy = LAM_POLICY_MATERIALIZE}, .policy = "\"materialize\""},
    {BOTH, .options = {POLICIES({"blk.0.ffn_up", LAM_POLICY_MATERIALIZE})},
     .policy = "{\"default\":\"dual\",\"modules\":{\"blk.0.ffn_up\":\"materialize\"}}"},
    {BOTH, .options = {POLICIES({"blk.1.ffn_up", LAM_POLICY_MATERIALIZE})},
     .policy = "{\"default\":\"dual\",\"modules\":{\"blk.1.ffn_up\":\"materialize\"}}"},
    {BOTH, .options = {.policy = LAM_POLICY_MATERIALIZE, POLICIES({"blk.0.ffn_up", LAM_POLICY_DUAL})},
     .policy = "{\"default\":\"materialize\",\"modules\":{\"blk.0.ffn_up\":\"dual\"}}"},
    {BOTH, .options = {.kv = LAM_KV_FLOAT32}, .kv_format = "f32"},
    {BOTH, .options = {.kv = LAM_KV_INT8}, .kv_format = "i8"},
};

/* What is said otherwise and means the same as the first. */
static const struct variant same[] = {
    {BOTH, .options = {.kv = LAM_KV_FLOAT16}},
    {BOTH, .options = {RULES(LAM_STACK_ADD, LAM_STACK_ADD)}},
    {BOTH, .options = {POLICIES({"blk.0.ffn_up", LAM_POLICY_DUAL})}},
};

static void sha_of(const char *text, char out[LAM_DIGEST_TEXT])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256((const uint8_t *)text, strlen(text), digest);
    size_t len = (size_t)snprintf(out, LAM_DIGEST_TEXT, "sha256:");
    for (size_t i = 0; i < sizeof digest; i++) len += (size_t)snprintf(out + len, LAM_DIGEST_TEXT - len, "%02x", digest[i]);
}

/* The canonical JSON of docs/format.md, its keys in their order. Weights are such that %g prints them as ECMAScript does. */
static void expected_json(const struct fixture *f, const struct variant *v, char *out, size_t room)
{
    static const char *const activation[] = {"\"always\"", "\"always\"", "{\"from_last\":[20,21,22]}"};
    lam_base_info base;
    lam_adapter_info info;
    size_t len = (size_t)snprintf(out, room, "{\"adapters\":[");
    lam_base_describe(f->base, &base);
    for (size_t i = 0; i < v->n; i++) {
        char semantic[512], digest[LAM_DIGEST_TEXT];
        lam_adapter_describe(f->adapters[v->adapters[i]], &info);
        snprintf(semantic, sizeof semantic, "{\"activation\":%s,\"adapter_digest\":\"%s\",\"base_digest\":\"%s\",\"type\":\"lamina.semantic.v0\"}",
                 activation[v->adapters[i]], info.digest, base.base_digest);
        sha_of(semantic, digest);
        len += (size_t)snprintf(out + len, room - len, "%s{\"rule\":\"%s\",\"semantic_digest\":\"%s\",\"weight\":%g}", i ? "," : "",
                                v->rules[i] ? v->rules[i] : "add", digest, v->weights[i]);
    }
    snprintf(out + len, room - len,
             "],\"base_digest\":\"%s\",\"kv_format\":\"%s\",\"module_owners\":%s,\"numeric_contract\":\"nc1\",\"policy\":%s,\"template_digest\":null,"
             "\"tokenizer_digest\":\"%s\",\"type\":\"lamina.composition.v0\",\"waivers\":[],\"window_policy\":\"model\"}",
             base.base_digest, v->kv_format ? v->kv_format : "f16", v->owners ? v->owners : "{}", v->policy ? v->policy : "\"dual\"",
             base.tokenizer_digest);
}

static void check_variant(const struct fixture *f, const struct variant *v, char id[LAM_DIGEST_TEXT])
{
    lam_error err;
    lam_composition *c;
    lam_adapter *stack[3];
    char json[4096];
    for (size_t i = 0; i < v->n; i++) stack[i] = f->adapters[v->adapters[i]];
    assert_ok(lam_compose(f->base, stack, v->weights, v->n, &v->options, &c, &err), err);
    expected_json(f, v, json, sizeof json);
    assert_string_equal(lam_composition_json(c), json);
    sha_of(json, id);
    assert_string_equal(lam_composition_id(c), id);
    lam_composition_free(c);
}

static void test_each_field(void **state)
{
    (void)state;
    struct fixture f;
    struct ids ids = {.n = 0};
    char id[LAM_DIGEST_TEXT];
    fixture_import(&f, GQA "q4_0.gguf", three, 3);
    fixture_open(&f, NULL);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        check_variant(&f, &variants[i], id);
        add_new(&ids, id);
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        check_variant(&f, &same[i], id);
        assert_string_equal(id, ids.id[0]);
    }
    fixture_close(&f);
    fixture_remove(&f);
}

/* A copy of a model's folder with a chat template of its own. */
static void copy_with_template(const char *folder, const char *name, const char *template, char *out)
{
    char command[4096];
    snprintf(out, 512, "%s/%s", folder, name);
    snprintf(command, sizeof command, "cp -r tests/golden/llama-gqa %s && rm -f %s/*.gguf && printf '%%s' '%s' > %s/chat_template.jinja", out,
             out, template, out);
    assert_int_equal(system(command), 0);
}

static void open_copy(struct fixture *f, const char *source, char id[2][LAM_DIGEST_TEXT])
{
    const char *const one[] = {ADAPTER "all-r4"};
    fixture_import(f, source, one, 1);
    fixture_open(f, NULL);
    id_of(f, NULL, 0, id[0]);
    id_of(f, (double[]){1.0}, 1, id[1]);
}

static void test_template_counts(void **state)
{
    (void)state;
    char *folder = test_make_folder(), source[512], ids[3][2][LAM_DIGEST_TEXT];
    static const char *const templates[] = {"{{ messages[0].content }}", "{{ messages[0].content }}!", "{{ messages[0].content }}"};
    char base_digest[3][LAM_DIGEST_TEXT], adapter_digest[3][LAM_DIGEST_TEXT];
    for (size_t i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + (int)i), 0};
        struct fixture f;
        lam_base_info base;
        lam_adapter_info adapter;
        copy_with_template(folder, name, templates[i], source);
        open_copy(&f, source, ids[i]);
        lam_base_describe(f.base, &base);
        lam_adapter_describe(f.adapters[0], &adapter);
        assert_true(base.has_chat_template);
        memcpy(base_digest[i], base.base_digest, LAM_DIGEST_TEXT);
        memcpy(adapter_digest[i], adapter.digest, LAM_DIGEST_TEXT);
        fixture_close(&f);
        fixture_remove(&f);
    }
    for (size_t n = 0; n < 2; n++) {
        assert_string_not_equal(ids[0][n], ids[1][n]);
        assert_string_equal(ids[0][n], ids[2][n]); /* another folder, the same content */
    }
    assert_string_equal(base_digest[0], base_digest[1]); /* a template edit orphans no adapter */
    assert_string_equal(adapter_digest[0], adapter_digest[1]);
    test_remove_folder(folder);
}

/* The same weights under another tokenizer: two tokens have changed places. */
static void test_tokenizer_counts(void **state)
{
    (void)state;
    char *folder = test_make_folder(), source[512], command[2048], ids[2][2][LAM_DIGEST_TEXT], digests[2][LAM_DIGEST_TEXT];
    lam_base_info info[2];
    struct fixture f[2];
    copy_with_template(folder, "a", "{{ messages[0].content }}", source);
    open_copy(&f[0], source, ids[0]);
    snprintf(command, sizeof command, "cd %s && python3 -c 'import json; t = json.load(open(\"tokenizer.json\")); v = t[\"model\"][\"vocab\"]; "
             "v[\"p\"], v[\"c\"] = v[\"c\"], v[\"p\"]; json.dump(t, open(\"tokenizer.json\", \"w\"))'", source);
    assert_int_equal(system(command), 0);
    open_copy(&f[1], source, ids[1]);
    for (size_t i = 0; i < 2; i++) {
        lam_base_describe(f[i].base, &info[i]);
        memcpy(digests[i], info[i].tokenizer_digest, LAM_DIGEST_TEXT);
    }
    assert_string_equal(info[0].base_digest, info[1].base_digest);
    assert_string_not_equal(digests[0], digests[1]);
    for (size_t n = 0; n < 2; n++) assert_string_not_equal(ids[0][n], ids[1][n]);
    for (size_t i = 0; i < 2; i++) {
        fixture_close(&f[i]);
        fixture_remove(&f[i]);
    }
    test_remove_folder(folder);
}

static char *format_chat(lam_composition *c)
{
    char *text;
    lam_error err;
    const lam_message messages[] = {{"system", "A"}, {"user", "B"}};
    assert_ok(lam_chat_format(c, messages, 2, true, &text, &err), err);
    return text;
}

/* A template of the composition's own takes the base's place in its conversations and in its id. */
static void test_own_template(void **state)
{
    (void)state;
    static const char own[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    char *folder = test_make_folder(), source[512], digest[LAM_DIGEST_TEXT], *text;
    struct fixture f;
    lam_error err;
    lam_composition *plain, *mine, *same, *none;
    copy_with_template(folder, "a", "{{ messages[0].content }}", source);
    fixture_import(&f, source, adapters, 0);
    fixture_open(&f, NULL);
    lam_compose_options options = {.chat_template = own};
    assert_ok(lam_compose(f.base, NULL, NULL, 0, NULL, &plain, &err), err);
    assert_ok(lam_compose(f.base, NULL, NULL, 0, &options, &mine, &err), err);
    options.chat_template = "{{ messages[0].content }}"; /* the base's, once more */
    assert_ok(lam_compose(f.base, NULL, NULL, 0, &options, &same, &err), err);
    assert_string_equal(lam_composition_id(plain), lam_composition_id(same));
    assert_string_not_equal(lam_composition_id(plain), lam_composition_id(mine));
    lam_digest_bytes(own, strlen(own), digest);
    assert_string_equal(lam_composition_template_digest(mine), digest);
    assert_non_null(strstr(lam_composition_json(mine), digest));
    text = format_chat(plain);
    assert_string_equal(text, "A");
    lam_memory_free(text);
    text = format_chat(mine);
    assert_string_equal(text, "<system>A<user>B");
    lam_memory_free(text);
    options.chat_template = "{{ 1";
    assert_int_equal(lam_compose(f.base, NULL, NULL, 0, &options, &none, &err), LAM_E_TEMPLATE);
    assert_null(none);
    options.chat_template = "\xff";
    assert_int_equal(lam_compose(f.base, NULL, NULL, 0, &options, &none, &err), LAM_E_UTF8);
    lam_composition_free(plain);
    lam_composition_free(mine);
    lam_composition_free(same);
    fixture_close(&f);
    fixture_remove(&f);

    fixture_import(&f, GQA "q4_0.gguf", adapters, 1); /* a base without one */
    fixture_open(&f, NULL);
    plain = fixture_compose(&f, (double[]){0.0}, 1);
    assert_null(lam_composition_template_digest(plain));
    assert_int_equal(lam_composition_n_adapters(plain), 1);
    assert_int_equal(lam_chat_format(plain, &(lam_message){"user", "B"}, 1, true, &text, &err), LAM_E_TEMPLATE);
    options.chat_template = own;
    assert_ok(lam_compose(f.base, NULL, NULL, 0, &options, &mine, &err), err);
    assert_int_equal(lam_composition_n_adapters(mine), 0);
    text = format_chat(mine);
    assert_string_equal(text, "<system>A<user>B");
    lam_memory_free(text);
    lam_composition_free(plain);
    lam_composition_free(mine);
    fixture_close(&f);
    fixture_remove(&f);
    test_remove_folder(folder);
}

/* Paths, names, threads, instruction set, rows of a pass, a prefix cache, a budget, when the base is verified and context stand in no id. */
static void test_circumstances_do_not_count(void **state)
{
    (void)state;
    struct fixture f;
    char id[LAM_DIGEST_TEXT], again[LAM_DIGEST_TEXT], command[1200];
    lam_error err;
    fixture_import(&f, GQA "q4_0.gguf", adapters, 2);
    fixture_open(&f, &(lam_engine_options){.threads = 1, .isa = "scalar", .max_rows = 1});
    id_of(&f, (double[]){1, 0.5}, 2, id);
    lam_composition *c = fixture_compose(&f, (double[]){1, 0.5}, 2);
    lam_session *s = fixture_session(c, 17);
    assert_string_equal(lam_session_composition_id(s), id);
    lam_session_free(s);
    lam_composition_free(c);
    fixture_close(&f);
    snprintf(command, sizeof command, "cd %s && mkdir other && mv base.slm other/renamed && mv adapter-0.slm other/x", f.folder);
    assert_int_equal(system(command), 0);
    snprintf(f.base_path, sizeof f.base_path, "%s/other/renamed", f.folder);
    snprintf(f.adapter_paths[0], sizeof f.adapter_paths[0], "%s/other/x", f.folder);
    fixture_open(&f, &(lam_engine_options){.threads = 3, .max_rows = 99, .prefix_cache = 1 << 20, .budget = 1 << 30});
    id_of(&f, (double[]){1, 0.5}, 2, again);
    assert_string_equal(again, id);
    fixture_close(&f);
    assert_ok(lam_engine_new(NULL, &f.engine, &err), err);
    assert_ok(lam_base_open(f.engine, f.base_path, LAM_VERIFY_LAZY, &f.base, &err), err);
    for (size_t i = 0; i < 2; i++) assert_ok(lam_adapter_load(f.base, f.adapter_paths[i], false, &f.adapters[i], &err), err);
    id_of(&f, (double[]){1, 0.5}, 2, again);
    assert_string_equal(again, id);
    fixture_close(&f);
    /* the same adapter as llama.cpp's GGUF, from a file of another name */
    assert_ok(lam_import_adapter(ADAPTER "all-r4.gguf", f.base_path, f.adapter_paths[0], NULL, NULL, &err), err);
    fixture_open(&f, NULL);
    id_of(&f, (double[]){1, 0.5}, 2, again);
    assert_string_equal(again, id);
    fixture_close(&f);
    fixture_remove(&f);
}

/* An adapter of another base, taken with a waiver: the composition says so. */
static void test_waiver_is_recorded(void **state)
{
    (void)state;
    struct fixture bound, other;
    lam_base_info info;
    lam_adapter_info adapter;
    lam_error err;
    json_t *whole;
    fixture_import(&bound, GQA "q4_0.gguf", adapters, 1);
    fixture_import(&other, GQA "q8_0.gguf", adapters, 0);
    fixture_open(&bound, NULL);
    fixture_open(&other, NULL);
    lam_adapter *waived = NULL;
    assert_int_equal(lam_adapter_load(other.base, bound.adapter_paths[0], false, &waived, &err), LAM_E_WRONG_BASE);
    assert_null(waived);
    assert_ok(lam_adapter_load(other.base, bound.adapter_paths[0], true, &waived, &err), err);
    other.adapters[0] = waived;
    other.n_adapters = 1;
    lam_adapter_describe(waived, &adapter);
    assert_false(adapter.bound);
    lam_base_describe(other.base, &info);
    lam_composition *c = fixture_compose(&other, (double[]){1.0}, 1), *plain = fixture_compose(&bound, (double[]){1.0}, 1);
    const char *json = lam_composition_json(c);
    assert_ok(lam_json_parse(json, strlen(json), "composition", &whole, &err), err);
    const json_t *waivers = json_object_get(whole, "waivers");
    assert_int_equal(json_array_size(waivers), 1);
    assert_string_equal(text_of(json_array_get(waivers, 0), "adapter_digest"), adapter.digest);
    assert_string_equal(text_of(json_array_get(waivers, 0), "base_digest"), info.base_digest);
    json_decref(whole);
    json = lam_composition_json(plain);
    assert_non_null(strstr(json, "\"waivers\":[]"));
    lam_composition_free(c);
    lam_composition_free(plain);
    fixture_close(&bound);
    fixture_close(&other);
    fixture_remove(&bound);
    fixture_remove(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_every_ingredient_counts),
        cmocka_unit_test(test_json_is_what_is_hashed),
        cmocka_unit_test(test_each_field),
        cmocka_unit_test(test_template_counts),
        cmocka_unit_test(test_tokenizer_counts),
        cmocka_unit_test(test_own_template),
        cmocka_unit_test(test_circumstances_do_not_count),
        cmocka_unit_test(test_waiver_is_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
