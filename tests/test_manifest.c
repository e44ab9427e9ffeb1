/* Manifests: every field, every fault with its code, canonical form, references; and the checks of a whole stack, which find what the
 * loader would refuse, and go on. */
#define _XOPEN_SOURCE 700

#include "adapter_case.h"
#include "fixture.h"

#include "base/json.h"
#include "compose/manifest.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define GQA "tests/golden/llama-gqa/llama-gqa-"
#define A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define T "sha256:f24189f08c85a1eb19a737306c3a13e85462ee33d964f28108d64a2485fa2171" /* of {{ messages }} */
#define C "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

/* ---- reading ---- */

static const char whole[] =
    "{\"type\":\"lamina.manifest.v0\",\"id\":\"" C "\",\"base\":{\"digest\":\"" A "\",\"name\":\"base\",\"file\":\"b/base.slm\","
    "\"parts\":{\"weights\":\"" A "\",\"layout\":\"" B "\",\"config\":\"" C "\",\"targets\":\"" A "\"}},"
    "\"tokenizer\":{\"digest\":\"" B "\"},\"template\":{\"digest\":\"" T "\",\"text\":\"{{ messages }}\"},"
    "\"adapters\":[{\"digest\":\"" A "\",\"name\":\"one\",\"file\":\"one.slm\",\"weight\":0.5,\"rule\":\"replace\","
    "\"waiver\":{\"adapter_digest\":\"" A "\",\"base_digest\":\"" A "\"},\"accept_tokenizer\":true,"
    "\"parts\":{\"method\":\"lora\",\"modules\":\"" A "\",\"factors\":\"" B "\",\"activation\":\"" C "\",\"alphas\":\"" B "\"}},"
    "{\"digest\":\"" B "\",\"file\":\"../two\"}],"
    "\"module_owners\":{\"blk.0.attn_q\":\"" B "\"},\"policy\":\"materialize\",\"module_policies\":{\"blk.1.ffn_up\":\"dual\"},"
    "\"numeric_contract\":\"nc1\",\"kv_format\":\"i8\",\"window_policy\":\"model\",\"memory_budget\":1000000,"
    "\"prompt\":\"Be\\nbrief.\",\"sampling\":{\"temperature\":0.5,\"top_k\":40,\"top_p\":0.9,\"min_p\":0.1,\"repeat_penalty\":1.1,\"seed\":7},\"receipts\":[{\"b\":1,\"a\":2}]}";

static lam_code parse(const char *text, lam_manifest **out, lam_fault_list *faults)
{
    lam_error err;
    *faults = (lam_fault_list){0};
    return lam_manifest_parse(text, strlen(text), "folder", "test", out, faults, &err);
}

static void test_every_field(void **state)
{
    (void)state;
    lam_manifest *m;
    lam_fault_list faults;
    assert_int_equal(parse(whole, &m, &faults), LAM_OK);
    assert_int_equal(faults.n, 0);
    assert_string_equal(m->id, C);
    assert_string_equal(m->base_digest, A);
    assert_string_equal(m->base_name, "base");
    assert_string_equal(m->base_file, "folder/b/base.slm");
    assert_string_equal(m->base_parts.layout, B);
    assert_string_equal(m->tokenizer_digest, B);
    assert_true(m->states_template);
    assert_string_equal(m->template_digest, T);
    assert_string_equal(m->template_text, "{{ messages }}");
    assert_null(m->template_file);
    assert_string_equal(m->prompt, "Be\nbrief.");
    lam_sampling sampling = {.repeat_window = 3};
    lam_manifest_sampling_apply(&m->sampling, &sampling);
    assert_true(sampling.temperature == 0.5f && sampling.top_k == 40 && sampling.top_p == 0.9f && sampling.min_p == 0.1f &&
                sampling.repeat_penalty == 1.1f && sampling.seed == 7 && sampling.repeat_window == 3);
    assert_int_equal(m->n_adapters, 2);
    assert_string_equal(m->adapters[0].name, "one");
    assert_true(m->adapters[0].weight == 0.5 && m->adapters[0].rule == LAM_STACK_REPLACE && m->adapters[0].waived);
    assert_true(m->adapters[0].accept_tokenizer);
    assert_string_equal(m->adapters[0].parts.method, "lora");
    assert_string_equal(m->adapters[0].parts.alphas, B);
    assert_string_equal(m->adapters[1].file, "folder/../two");
    assert_true(m->adapters[1].weight == 1.0 && m->adapters[1].rule == LAM_STACK_ADD && !m->adapters[1].waived);
    assert_int_equal(m->n_owners, 1);
    assert_string_equal(m->owners[0].module, "blk.0.attn_q");
    assert_int_equal(m->owners[0].adapter, 1);
    assert_int_equal(m->policy, LAM_POLICY_MATERIALIZE);
    assert_int_equal(m->n_module_policies, 1);
    assert_int_equal(m->module_policies[0].policy, LAM_POLICY_DUAL);
    assert_int_equal(m->kv, LAM_KV_INT8);
    assert_int_equal(m->memory_budget, 1000000);
    assert_int_equal(m->n_receipts, 1);
    assert_string_equal(m->receipts[0], "{\"a\":2,\"b\":1}");
    lam_manifest_free(m);
    assert_int_equal(parse("{\"type\":\"lamina.manifest.v0\",\"base\":{\"digest\":\"" A "\"},\"template\":null}", &m, &faults), LAM_OK);
    assert_true(m->states_template && !m->template_digest && !m->base_file && m->kv == LAM_KV_DEFAULT);
    lam_manifest_free(m);
    assert_int_equal(parse("{\"type\":\"lamina.manifest.v0\",\"base\":{\"digest\":\"" A "\"},\"memory_budget\":1e9}", &m, &faults), LAM_OK);
    assert_int_equal(m->memory_budget, 1000000000);
    sampling = (lam_sampling){.temperature = 9, .seed = 9};
    lam_manifest_sampling_apply(&m->sampling, &sampling); /* what is not given stays */
    assert_true(m->sampling.given == 0 && sampling.temperature == 9 && sampling.seed == 9 && !m->prompt && !m->template_text);
    lam_manifest_free(m);
    lam_manifest_free(NULL);
}

/* whole with one piece of text in another's place. */
static char *changed(const char *from, const char *to)
{
    const char *at = strstr(whole, from);
    char *text = malloc(sizeof whole + strlen(to));
    assert_non_null(at);
    assert_non_null(text);
    sprintf(text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    return text;
}

static void test_each_fault(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *subject;
        lam_code code;
    } cases[] = {
        {"lamina.manifest.v0", "lamina.manifest.v1", "type", LAM_E_VERSION},
        {"lamina.manifest.v0", "composition", "type", LAM_E_MAGIC},
        {"\"type\":\"lamina.manifest.v0\",", "", "type", LAM_E_FORMAT},
        {"\"id\":\"sha256:c", "\"id\":\"sha256:C", "id", LAM_E_FORMAT},
        {"\"id\":\"sha256:c", "\"id\":\"sha256:", "id", LAM_E_FORMAT},
        {"\"id\":", "\"ident\":", "ident", LAM_E_UNKNOWN_FIELD},
        {"\"name\":\"base\"", "\"names\":\"base\"", "base.names", LAM_E_UNKNOWN_FIELD},
        {"\"name\":\"base\"", "\"name\":\"ba\\nse\"", "base.name", LAM_E_FORMAT},
        {"\"name\":\"base\"", "\"name\":\"\"", "base.name", LAM_E_FORMAT},
        {"\"name\":\"base\"", "\"name\":\"a\\u0000b\"", "base.name", LAM_E_FORMAT},
        {"b/base.slm", "/b/base.slm", "base.file", LAM_E_FORMAT},
        {"\"layout\":", "\"layouts\":", "base.parts.layouts", LAM_E_UNKNOWN_FIELD},
        {"\"weight\":0.5", "\"weight\":\"0.5\"", "adapters[0].weight", LAM_E_FORMAT},
        {"\"rule\":\"replace\"", "\"rule\":\"mul\"", "adapters[0].rule", LAM_E_FORMAT},
        {"\"rule\":", "\"rules\":", "adapters[0].rules", LAM_E_UNKNOWN_FIELD},
        {"\"adapter_digest\":\"sha256:a", "\"adapter_digest\":\"sha256:d", "adapters[0].waiver", LAM_E_DIGEST},
        {"\"base_digest\":\"sha256:a", "\"base_digest\":\"sha256:d", "adapters[0].waiver", LAM_E_WRONG_BASE},
        {"\"base_digest\":", "\"base\":", "adapters[0].waiver.base_digest", LAM_E_FORMAT},
        {"\"accept_tokenizer\":true", "\"accept_tokenizer\":1", "adapters[0].accept_tokenizer", LAM_E_FORMAT},
        {"\"method\":", "\"methods\":", "adapters[0].parts.methods", LAM_E_UNKNOWN_FIELD},
        {"\"digest\":\"" B "\",\"file\":\"../two\"", "\"digest\":\"" A "\",\"file\":\"../two\"", "adapters[1]", LAM_E_DUPLICATE},
        {"{\"digest\":\"" B "\",\"file\":\"../two\"}", "7", "adapters[1]", LAM_E_FORMAT},
        {"\"blk.0.attn_q\":\"" B "\"", "\"blk.0.attn_q\":\"" C "\"", "module_owners.blk.0.attn_q", LAM_E_UNMATCHED},
        {"\"blk.0.attn_q\":\"" B "\"", "\"blk.0.attn_q\":1", "module_owners.blk.0.attn_q", LAM_E_FORMAT},
        {"\"policy\":\"materialize\"", "\"policy\":\"merge\"", "policy", LAM_E_FORMAT},
        {"\"blk.1.ffn_up\":\"dual\"", "\"blk.1.ffn_up\":\"both\"", "module_policies.blk.1.ffn_up", LAM_E_FORMAT},
        {"\"nc1\"", "\"nc2\"", "numeric_contract", LAM_E_VERSION},
        {"\"i8\"", "\"int8\"", "kv_format", LAM_E_FORMAT},
        {"\"window_policy\":\"model\"", "\"window_policy\":\"all\"", "window_policy", LAM_E_FORMAT},
        {"\"digest\":\"" T "\"", "\"digest\":\"" C "\"", "template.text", LAM_E_DIGEST},
        {"\"digest\":\"" T "\",", "", "template.digest", LAM_E_FORMAT},
        {"\"{{ messages }}\"", "\"{{ messages }}\",\"file\":\"t.jinja\"", "template", LAM_E_CONFLICT},
        {"\"text\":\"{{ messages }}\"", "\"file\":\"/t.jinja\"", "template.file", LAM_E_FORMAT},
        {"\"{{ messages }}\"", "7", "template.text", LAM_E_FORMAT},
        {"\"{{ messages }}\"", "\"a\\u0000b\"", "template.text", LAM_E_FORMAT},
        {"\"Be\\nbrief.\"", "[]", "prompt", LAM_E_FORMAT},
        {"\"Be\\nbrief.\"", "\"a\\u0000b\"", "prompt", LAM_E_FORMAT},
        {"\"sampling\":{", "\"sampling\":[{", "manifest", LAM_E_FORMAT},
        {"\"temperature\":0.5", "\"temperature\":-0.5", "sampling.temperature", LAM_E_FORMAT},
        {"\"temperature\":0.5", "\"temperature\":101", "sampling.temperature", LAM_E_FORMAT},
        {"\"temperature\":0.5", "\"temp\":0.5", "sampling.temp", LAM_E_UNKNOWN_FIELD},
        {"\"top_k\":40", "\"top_k\":40.5", "sampling.top_k", LAM_E_FORMAT},
        {"\"top_p\":0.9", "\"top_p\":1.5", "sampling.top_p", LAM_E_FORMAT},
        {"\"min_p\":0.1", "\"min_p\":\"0.1\"", "sampling.min_p", LAM_E_FORMAT},
        {"\"repeat_penalty\":1.1", "\"repeat_penalty\":0", "sampling.repeat_penalty", LAM_E_FORMAT},
        {"\"seed\":7", "\"seed\":9007199254740992", "sampling.seed", LAM_E_FORMAT},
        {"\"name\":\"base\"", "\"name\":null", "base.name", LAM_E_FORMAT},
        {"\"policy\":\"materialize\"", "\"policy\":null", "policy", LAM_E_FORMAT},
        {"{\"digest\":\"" T "\",\"text\":\"{{ messages }}\"},\"adapters\":", "null,\"adapters\":null,\"id\":", "manifest", LAM_E_DUPLICATE},
        {"1000000", "0", "memory_budget", LAM_E_FORMAT},
        {"1000000", "9007199254740992", "memory_budget", LAM_E_FORMAT},
        {"1000000", "1.5", "memory_budget", LAM_E_FORMAT},
        {"[{\"b\":1,\"a\":2}]", "[3]", "receipts[0]", LAM_E_FORMAT},
        {"{\"b\":1,\"a\":2}", "{\"b\":1,\"b\":2}", "manifest", LAM_E_DUPLICATE},
        {"{\"b\":1,\"a\":2}", "{\"b\":[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]}", "manifest", LAM_E_LIMIT},
        {"\"receipts\":[{", "\"receipts\":{[", "manifest", LAM_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_manifest *m = (void *)&m;
        lam_fault_list faults;
        char *text = changed(cases[i].from, cases[i].to);
        lam_code code = parse(text, &m, &faults);
        assert_true(faults.n > 0);
        assert_int_equal(code, faults.items[0].code);
        assert_null(m);
        bool found = false;
        for (size_t k = 0; k < faults.n; k++) found |= faults.items[k].code == cases[i].code && strcmp(faults.items[k].subject, cases[i].subject) == 0;
        if (!found) fail_msg("case %zu: the first of %zu is %s at %s: %s", i, faults.n, lam_code_name(faults.items[0].code),
                             faults.items[0].subject, faults.items[0].what);
        lam_fault_list_release(&faults);
        free(text);
    }
}

static void test_all_faults_are_told(void **state)
{
    (void)state;
    lam_manifest *m;
    lam_fault_list faults;
    lam_error err;
    const char *text = "{\"type\":\"lamina.manifest.v9\",\"base\":{\"file\":\"/x\"},\"policy\":1,\"adapters\":[{\"weight\":\"\",\"x\":0},{\"rule\":0}],\"y\":0}";
    assert_int_equal(parse(text, &m, &faults), LAM_E_VERSION);
    static const char *const subjects[] = {"type", "base.digest", "base.file", "adapters[0].digest", "adapters[0].weight", "adapters[0].x",
                                           "adapters[1].digest", "adapters[1].rule", "policy", "y"};
    assert_int_equal(faults.n, sizeof subjects / sizeof *subjects);
    for (size_t i = 0; i < faults.n; i++) assert_string_equal(faults.items[i].subject, subjects[i]);
    assert_int_equal(lam_fault_list_error(&faults, "what", &err), LAM_E_VERSION);
    assert_non_null(strstr(err.message, "10 faults"));
    lam_fault_list_release(&faults);
    assert_int_equal(lam_fault_list_error(&faults, "what", &err), LAM_OK);
}

static void test_bounds(void **state)
{
    (void)state;
    lam_manifest *m;
    lam_fault_list faults;
    size_t n = LAM_MANIFEST_MAX_BYTES + 1;
    char *text = malloc(n + 1);
    memset(text, ' ', n);
    text[n] = 0;
    assert_int_equal(parse(text, &m, &faults), LAM_E_LIMIT);
    lam_fault_list_release(&faults);
    size_t at = (size_t)sprintf(text, "{\"type\":\"lamina.manifest.v0\",\"base\":{\"digest\":\"" A "\"},\"adapters\":[");
    for (size_t i = 0; i < LAM_MANIFEST_MAX_ADAPTERS + 1; i++) at += (size_t)sprintf(text + at, "%s{\"digest\":\"sha256:%064zx\"}", i ? "," : "", i);
    sprintf(text + at, "]}");
    assert_int_equal(parse(text, &m, &faults), LAM_E_LIMIT);
    lam_fault_list_release(&faults);
    at = (size_t)sprintf(text, "{");
    for (size_t i = 0; i < 5000; i++) at += (size_t)sprintf(text + at, "\"f%zu\":0,", i);
    sprintf(text + at, "\"type\":0}");
    assert_int_equal(parse(text, &m, &faults), LAM_E_MAGIC);
    assert_int_equal(faults.n, 1000);
    assert_int_equal(faults.n_more, 5002 - 1000);
    lam_fault_list_release(&faults);
    free(text);
}

/* What is no JSON text in UTF-8 is called by its name. */
static void test_encodings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        size_t len;
    } cases[] = {
        {"\xEF\xBB\xBF{}", "byte order mark", 5}, {"\xFF\xFE{\0}\0", "UTF-16", 6}, {"\xFE\xFF\0{\0}", "UTF-16", 6},
        {"{\0}\0", "zero byte", 4}, {"{} \0", "zero byte", 4},
    };
    char *folder = test_make_folder(), path[600];
    snprintf(path, sizeof path, "%s/m.json", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_manifest *m;
        lam_fault_list faults = {0};
        lam_error err;
        fixture_write(path, cases[i].text, cases[i].len);
        assert_true(lam_manifest_detect(path));
        assert_int_equal(lam_manifest_read(path, &m, &faults, &err), LAM_E_FORMAT);
        if (!strstr(err.message, cases[i].says) || !strstr(err.message, path)) fail_msg("case %zu: %s", i, err.message);
        assert_null(m);
        lam_fault_list_release(&faults);
    }
    test_remove_folder(folder);
}

/* A template beside the manifest, which is read with it. */
static void test_template_file(void **state)
{
    (void)state;
    static const char text[] = "{\"type\":\"lamina.manifest.v0\",\"base\":{\"digest\":\"" A "\"},\"template\":{\"digest\":\"" T "\",\"file\":\"t.jinja\"}}";
    static const struct {
        const char *text;
        size_t len;
        lam_code code;
    } cases[] = {{"{{ messages }}", 14, LAM_OK}, {"{{ messages }}\n", 15, LAM_E_DIGEST}, {"{{\0}}", 5, LAM_E_UTF8}, {"\xff", 1, LAM_E_UTF8},
                 {"", 0, LAM_E_DIGEST}, {NULL, 0, LAM_E_NOT_FOUND}};
    char *folder = test_make_folder(), path[600], template[600], *json;
    snprintf(path, sizeof path, "%s/m.json", folder);
    snprintf(template, sizeof template, "%s/t.jinja", folder);
    fixture_write(path, text, strlen(text));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_manifest *m;
        lam_fault_list faults = {0};
        lam_error err = {0};
        if (cases[i].text) fixture_write(template, cases[i].text, cases[i].len);
        else assert_int_equal(unlink(template), 0);
        lam_code code = lam_manifest_read(path, &m, &faults, &err);
        if (code != cases[i].code) fail_msg("case %zu: %s: %s", i, lam_code_name(code), err.message);
        if (code == LAM_OK) {
            assert_string_equal(m->template_text, cases[i].text);
            assert_ok(lam_manifest_json(m, path, &json, &err), err);
            assert_non_null(strstr(json, "\"template\":{\"digest\":\"" T "\",\"file\":\"t.jinja\"}")); /* it stays where it is */
            lam_memory_free(json);
        } else {
            assert_string_equal(faults.items[0].subject, "template.file");
        }
        lam_manifest_free(m);
        lam_fault_list_release(&faults);
    }
    test_remove_folder(folder);
}

/* ---- the schema ---- */

/* Every name that one of the two knows the other knows, too. */
static void compare_names(const json_t *schema, const json_t *value, const char *where)
{
    const char *key;
    json_t *item;
    const json_t *properties = json_object_get(schema, "properties");
    if (!properties) return;
    assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
    assert_int_equal(json_object_size(properties), json_object_size(value));
    json_object_foreach((json_t *)value, key, item) {
        const json_t *inner = json_object_get(properties, key);
        if (!inner) fail_msg("the schema has no %s in %s", key, where);
        compare_names(json_is_array(item) ? json_object_get(inner, "items") : inner, json_is_array(item) ? json_array_get(item, 0) : item, key);
    }
}

static void test_schema_names_the_fields(void **state)
{
    (void)state;
    lam_error err;
    size_t size;
    json_t *schema, *value;
    char *text = (char *)test_read_file("docs/manifest.schema.json", &size);
    assert_ok(lam_json_parse(text, size, "schema", &schema, &err), err);
    assert_ok(lam_json_parse(whole, strlen(whole), "manifest", &value, &err), err);
    json_object_set_new(json_object_get(value, "template"), "file", json_string("in the text's place"));
    compare_names(schema, value, "a manifest");
    json_decref(schema);
    json_decref(value);
    free(text);
}

/* ---- writing ---- */

static void test_written_form(void **state)
{
    (void)state;
    char *folder = test_make_folder(), path[600], base[600], one[600], *first, *second;
    lam_manifest *m;
    lam_fault_list faults = {0};
    lam_error err;
    snprintf(base, sizeof base, "%s/in/base.slm", folder);
    snprintf(one, sizeof one, "%s/in/deep/one.slm", folder);
    snprintf(path, sizeof path, "%s/in/deep", folder);
    assert_ok(lam_make_dirs(path, &err), err);
    snprintf(path, sizeof path, "%s/out", folder);
    assert_ok(lam_make_dirs(path, &err), err);
    fixture_write(base, "x", 1);
    fixture_write(one, "x", 1);
    snprintf(path, sizeof path, "%s/out/m.json", folder);
    lam_manifest_adapter adapter = {.digest = B, .name = "ü", .file = one, .weight = -0.25, .rule = LAM_STACK_REPLACE, .waived = true};
    lam_manifest in = {.base_digest = A, .base_file = base, .adapters = &adapter, .n_adapters = 1, .owners = &(lam_owner){"blk.0.attn_q", 0},
                       .n_owners = 1, .module_policies = &(lam_module_policy){"blk.0.attn_k", LAM_POLICY_MATERIALIZE}, .n_module_policies = 1,
                       .kv = LAM_KV_FLOAT32, .memory_budget = 5, .states_template = true, .prompt = "a\nb",
                       .sampling = {.given = LAM_SAMPLING_TEMPERATURE | LAM_SAMPLING_SEED, .temperature = 0.7, .top_k = 3, .seed = 9007199254740991}};
    assert_ok(lam_manifest_json(&in, path, &first, &err), err);
    assert_string_equal(first,
        "{\"adapters\":[{\"digest\":\"" B "\",\"file\":\"../in/deep/one.slm\",\"name\":\"ü\",\"rule\":\"replace\",\"waiver\":{\"adapter_digest\":\"" B
        "\",\"base_digest\":\"" A "\"},\"weight\":-0.25}],\"base\":{\"digest\":\"" A "\",\"file\":\"../in/base.slm\"},\"kv_format\":\"f32\","
        "\"memory_budget\":5,\"module_owners\":{\"blk.0.attn_q\":\"" B "\"},\"module_policies\":{\"blk.0.attn_k\":\"materialize\"},"
        "\"numeric_contract\":\"nc1\",\"policy\":\"dual\",\"prompt\":\"a\\nb\",\"receipts\":[],\"sampling\":{\"seed\":9007199254740991,\"temperature\":0.7},\"template\":null,\"type\":\"lamina.manifest.v0\","
        "\"window_policy\":\"model\"}");
    assert_ok(lam_manifest_write(&in, path, &err), err);
    assert_true(lam_manifest_detect(path));
    assert_false(lam_manifest_detect(base));
    assert_false(lam_manifest_detect(folder));
    assert_ok(lam_manifest_read(path, &m, &faults, &err), err);
    assert_ok(lam_manifest_json(m, path, &second, &err), err); /* what is read is written again */
    assert_string_equal(first, second);
    lam_memory_free(first);
    lam_memory_free(second);
    lam_manifest_free(m);
    in.template_text = "{{ messages }}"; /* a text without its digest, with another's, and as it should be */
    assert_int_equal(lam_manifest_json(&in, path, &first, &err), LAM_E_ARGUMENT);
    in.template_digest = C;
    assert_int_equal(lam_manifest_json(&in, path, &first, &err), LAM_E_ARGUMENT);
    in.template_digest = T;
    assert_ok(lam_manifest_json(&in, path, &first, &err), err);
    assert_non_null(strstr(first, "\"template\":{\"digest\":\"" T "\",\"text\":\"{{ messages }}\"}"));
    lam_memory_free(first);
    adapter.weight = NAN;
    assert_int_not_equal(lam_manifest_json(&in, path, &first, &err), LAM_OK);
    adapter.weight = 1.0, in.base_digest = "x";
    assert_int_equal(lam_manifest_json(&in, path, &first, &err), LAM_E_ARGUMENT);
    in.base_digest = A, in.n_owners = 1, in.owners = &(lam_owner){"blk.0.attn_q", 3};
    assert_int_equal(lam_manifest_json(&in, path, &first, &err), LAM_E_ARGUMENT);
    assert_int_equal(lam_manifest_read(folder, &m, &faults, &err), LAM_E_IO);
    assert_int_equal(lam_manifest_read("nothing.json", &m, &faults, &err), LAM_E_NOT_FOUND);
    test_remove_folder(folder);
}

/* ---- stacks ---- */

struct bench {
    struct fixture f;
    lam_base_info info;
    uint32_t d_v;
    char paths[3][600];
    struct adapter_case *c;
};

static void bench_open(struct bench *b)
{
    fixture_import(&b->f, GQA "q4_0.gguf", NULL, 0);
    fixture_open(&b->f, NULL);
    lam_base_describe(b->f.base, &b->info);
    b->d_v = b->info.n_kv_heads * b->info.head_dim;
    for (size_t i = 0; i < 3; i++) snprintf(b->paths[i], sizeof b->paths[i], "%s/case-%zu.slm", b->f.folder, i);
    b->c = calloc(1, sizeof *b->c);
    assert_non_null(b->c);
}

static void bench_close(struct bench *b)
{
    free(b->c);
    fixture_close(&b->f);
    fixture_remove(&b->f);
}

typedef void (*spoil_fn)(struct adapter_case *c);

static void write_case(struct bench *b, size_t i, unsigned seed, spoil_fn spoil)
{
    case_lora(b->c, b->info.base_digest, b->info.d_model, b->d_v);
    for (size_t t = 0; t < b->c->n; t += 2) /* A of each module */
        for (size_t i = 3; seed && i < 400; i += 12) b->c->tensors[t].bytes[i] ^= 0x80;
    if (spoil) spoil(b->c);
    case_write(b->c, b->paths[i]);
    json_decref(b->c->metadata);
}

static void nan_in_b(struct adapter_case *c) { memcpy(c->tensors[3].bytes + 8, &(float){NAN}, 4); }
static void nan_in_a(struct adapter_case *c) { memcpy(c->tensors[0].bytes + 8, &(float){INFINITY}, 4); }
static void foreign_module(struct adapter_case *c)
{
    json_object_set_new(json_array_get(case_modules(c), 1), "name", json_string("blk.9.attn_v"));
    c->tensors[2].name[4] = c->tensors[3].name[4] = '9';
}
static void no_b(struct adapter_case *c) { c->n--; }
static void turned_a(struct adapter_case *c)
{
    uint32_t rows = c->tensors[0].rows;
    c->tensors[0].rows = c->tensors[0].cols;
    c->tensors[0].cols = rows;
}
static void other_rank(struct adapter_case *c) { json_object_set_new(json_array_get(case_modules(c), 1), "rank", json_integer(2)); }
static void narrow(struct adapter_case *c) { c->tensors[2].cols--; }
static void half_typed(struct adapter_case *c) { c->tensors[1].dtype = LAM_I32; }
static void other_role(struct adapter_case *c) { c->tensors[0].role = LAM_ROLE_K | LAM_PART_A << 16; }
static void twice(struct adapter_case *c) { json_array_append(case_modules(c), json_array_get(case_modules(c), 1)); }
static void unsorted(struct adapter_case *c)
{
    json_t *first = json_incref(json_array_get(case_modules(c), 0));
    json_array_remove(case_modules(c), 0);
    json_array_append_new(case_modules(c), first);
}
static void extra_tensor(struct adapter_case *c) { case_add(c, "blk.0.attn_k", LAM_ROLE_K, LAM_PART_DELTA, 2, 2, 0); }
static void odd_method(struct adapter_case *c) { json_object_set_new(c->metadata, "method", json_string("loha")); }
static void odd_scaling(struct adapter_case *c) { json_object_set_new(json_array_get(case_modules(c), 0), "scaling", json_string("alpha")); }
static void unknown_field(struct adapter_case *c) { json_object_set_new(json_array_get(case_modules(c), 0), "dropout", json_real(0.1)); }
static void unbound(struct adapter_case *c) { json_object_set_new(c->metadata, "bases", json_array()); }
static void other_base(struct adapter_case *c) { json_object_set_new(c->metadata, "bases", json_pack("[s]", A)); }
static void empty(struct adapter_case *c) { json_object_set_new(c->metadata, "modules", json_array()); }
static void two_ways(struct adapter_case *c) { case_add(c, "blk.0.attn_v", LAM_ROLE_V, LAM_PART_IA3_OUTPUT, 1, c->tensors[3].rows, 0); }
static void odd_token(struct adapter_case *c) { json_object_set_new(c->metadata, "activation", json_pack("{s:[i]}", "invocation", -1)); }
/* A sparse delta of v in place of its factors: starts, columns, values. */
static void sparse(struct adapter_case *c, const uint32_t *columns, uint32_t first_end, uint32_t second_end)
{
    uint32_t d_v = c->tensors[3].rows, starts[256];
    json_array_set_new(case_modules(c), 1, json_pack("{s:s}", "name", "blk.0.attn_v"));
    c->n = 2;
    for (uint32_t i = 0; i <= d_v; i++) starts[i] = i == 0 ? 0 : i == 1 ? first_end : second_end;
    struct case_tensor *t = case_add(c, "blk.0.attn_v", LAM_ROLE_V, LAM_PART_COLUMNS, 1, 4, 0);
    t->dtype = LAM_I32;
    memcpy(t->bytes, columns, 16);
    t = case_add(c, "blk.0.attn_v", LAM_ROLE_V, LAM_PART_STARTS, 1, d_v + 1, 0);
    t->dtype = LAM_I32;
    memcpy(t->bytes, starts, (d_v + 1) * 4);
    case_add(c, "blk.0.attn_v", LAM_ROLE_V, LAM_PART_VALUES, 1, 4, 1);
}
static void sparse_sound(struct adapter_case *c) { sparse(c, (const uint32_t[]){0, 3, 1, 2}, 2, 4); }
static void sparse_falls(struct adapter_case *c) { sparse(c, (const uint32_t[]){3, 0, 1, 2}, 2, 4); }
static void sparse_repeats(struct adapter_case *c) { sparse(c, (const uint32_t[]){3, 3, 1, 2}, 2, 4); }
static void sparse_wide(struct adapter_case *c) { sparse(c, (const uint32_t[]){0, 9999, 1, 2}, 2, 4); }
static void sparse_back(struct adapter_case *c) { sparse(c, (const uint32_t[]){0, 1, 2, 3}, 5, 4); }

/* Each is found by the check, and refused by the loader: with the same code, or LAM_E_SHAPE where the check knows more. */
static void test_check_finds_what_the_loader_refuses(void **state)
{
    (void)state;
    static const struct {
        spoil_fn spoil;
        lam_code code, loader;
    } cases[] = {
        {nan_in_b, LAM_E_NON_FINITE, LAM_E_NON_FINITE}, {nan_in_a, LAM_E_NON_FINITE, LAM_E_NON_FINITE},
        {foreign_module, LAM_E_UNMATCHED, LAM_E_UNMATCHED}, {no_b, LAM_E_MISSING_PAIR, LAM_E_MISSING_PAIR},
        {turned_a, LAM_E_TRANSPOSED, LAM_E_SHAPE}, {other_rank, LAM_E_RANK, LAM_E_SHAPE}, {narrow, LAM_E_SHAPE, LAM_E_SHAPE},
        {half_typed, LAM_E_DTYPE, LAM_E_DTYPE}, {other_role, LAM_E_FORMAT, LAM_E_FORMAT}, {twice, LAM_E_DUPLICATE, LAM_E_DUPLICATE},
        {unsorted, LAM_E_ORDER, LAM_E_ORDER}, {extra_tensor, LAM_E_UNMATCHED, LAM_E_UNMATCHED}, {odd_method, LAM_E_METHOD, LAM_E_METHOD},
        {odd_scaling, LAM_E_METHOD, LAM_E_METHOD}, {unknown_field, LAM_E_UNKNOWN_FIELD, LAM_E_UNKNOWN_FIELD},
        {unbound, LAM_E_UNBOUND, LAM_E_UNBOUND}, {other_base, LAM_E_WRONG_BASE, LAM_E_WRONG_BASE}, {empty, LAM_E_UNMATCHED, LAM_E_UNMATCHED},
        {two_ways, LAM_E_CONFLICT, LAM_E_CONFLICT}, {odd_token, LAM_E_TOKEN, LAM_E_TOKEN}, {sparse_falls, LAM_E_FORMAT, LAM_E_FORMAT},
        {sparse_repeats, LAM_E_DUPLICATE, LAM_E_DUPLICATE}, {sparse_wide, LAM_E_OVERFLOW, LAM_E_OVERFLOW},
        {sparse_back, LAM_E_FORMAT, LAM_E_FORMAT}, {NULL, LAM_OK, LAM_OK}, {sparse_sound, LAM_OK, LAM_OK},
    };
    struct bench b;
    bench_open(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_adapter *a = NULL;
        lam_fault_list faults = {0};
        lam_error err;
        write_case(&b, 0, 0, cases[i].spoil);
        lam_manifest m = {.adapters = &(lam_manifest_adapter){.file = "case", .weight = 1.0}, .n_adapters = 1};
        lam_code code = lam_manifest_check(&m, b.f.base_path, (const char *[]){b.paths[0]}, &faults, &err);
        for (size_t k = 0; k < faults.n; k++)
            if (faults.items[k].code != code) fail_msg("case %zu: %s too", i, lam_code_name(faults.items[k].code));
        if (code != cases[i].code)
            fail_msg("case %zu: %zu faults, %s", i, faults.n, faults.n ? lam_code_name(faults.items[0].code) : "none");
        lam_fault_list_release(&faults);
        code = lam_adapter_load(b.f.base, b.paths[0], false, &a, &err);
        if (code != cases[i].loader) fail_msg("case %zu: the loader says %s", i, lam_code_name(code));
        lam_adapter_unload(a);
    }
    bench_close(&b);
}

static void several(struct adapter_case *c)
{
    nan_in_b(c);
    half_typed(c);
    odd_method(c);
    other_base(c);
    json_object_set_new(json_array_get(case_modules(c), 0), "alpha", json_string("four"));
}

static size_t count(const lam_fault_list *faults, const char *subject, lam_code code)
{
    size_t n = 0;
    for (size_t i = 0; i < faults->n; i++) n += faults->items[i].code == code && strstr(faults->items[i].subject, subject) != NULL;
    return n;
}

static void test_all_faults_of_a_stack(void **state)
{
    (void)state;
    struct bench b;
    lam_fault_list faults = {0};
    lam_error err;
    bench_open(&b);
    write_case(&b, 0, 0, several);
    write_case(&b, 1, 0, NULL);
    fixture_write(b.paths[2], "SLM0 and no more", 16);
    lam_manifest_adapter adapters[] = {{.file = "one", .weight = 1.0, .digest = A}, {.file = "two", .weight = NAN}, {.file = "three", .weight = 1.0},
                                       {.file = "two-again", .weight = 1.0}, {.file = "gone", .weight = 1.0}};
    lam_manifest m = {.base_digest = B, .tokenizer_digest = B, .states_template = true, .template_digest = B, .adapters = adapters, .n_adapters = 5,
                      .base_parts = {.config = A}, .owners = (lam_owner[]){{"blk.0.attn_k", 1}, {"blk.7.attn_k", 1}}, .n_owners = 2,
                      .module_policies = &(lam_module_policy){"blk.0.attn_x", LAM_POLICY_DUAL}, .n_module_policies = 1};
    const char *paths[] = {b.paths[0], b.paths[1], b.paths[2], b.paths[1], NULL};
    assert_int_equal(lam_manifest_check(&m, b.f.base_path, paths, &faults, &err), LAM_E_WRONG_BASE);
    static const struct {
        const char *subject;
        lam_code code;
    } expected[] = {
        {"base", LAM_E_WRONG_BASE}, {"base", LAM_E_BASE_CONFIG}, {"tokenizer", LAM_E_TOKENIZER}, {"template", LAM_E_TEMPLATE},
        {"adapter 1, case: method", LAM_E_METHOD}, {"adapter 1, case: bases", LAM_E_WRONG_BASE}, {"adapter 1, case: blk.0.attn_q", LAM_E_FORMAT},
        {"adapter 1, case: blk.0.attn_v.lora_b", LAM_E_NON_FINITE}, {"adapter 1, case", LAM_E_DIGEST}, {"adapter 2, case-2", LAM_E_ARGUMENT},
        {"adapter 3, three", LAM_E_TRUNCATED}, {"adapter 4, case-3", LAM_E_DUPLICATE}, {"owner of blk.0.attn_k", LAM_E_UNMATCHED}, {"owner of blk.7.attn_k", LAM_E_UNMATCHED},
        {"policy of blk.0.attn_x", LAM_E_UNMATCHED},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (count(&faults, expected[i].subject, expected[i].code) == 0)
            fail_msg("%s at %s was not found", lam_code_name(expected[i].code), expected[i].subject);
    lam_fault_list_release(&faults);
    assert_int_equal(lam_manifest_check(&m, "nothing.slm", paths, &faults, &err), LAM_E_NOT_FOUND);
    assert_int_equal(count(&faults, "base", LAM_E_NOT_FOUND), 1);
    lam_fault_list_release(&faults);
    assert_int_not_equal(lam_manifest_check(&m, NULL, paths, &faults, &err), LAM_OK); /* what can be told without a base */
    static const struct {
        const char *subject;
        lam_code code;
        size_t n;
    } alone[] = {{"adapter 1, case", LAM_E_DIGEST, 1}, {"adapter 2, case-2", LAM_E_ARGUMENT, 1}, {"adapter 3, three", LAM_E_TRUNCATED, 1},
                 {"adapter 4, case-3", LAM_E_DUPLICATE, 1}, {"base", LAM_E_NOT_FOUND, 0}, {"owner of blk.7.attn_k", LAM_E_UNMATCHED, 0}};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) assert_int_equal(count(&faults, alone[i].subject, alone[i].code), alone[i].n);
    lam_fault_list_release(&faults);
    bench_close(&b);
}

/* Two adapters that both replace one module: an error that names both and the module, unless it has an owner. */
static void test_owner(void **state)
{
    (void)state;
    struct bench b;
    lam_fault_list faults = {0};
    lam_error err;
    lam_composition *c, *d;
    lam_adapter *a[2];
    bench_open(&b);
    write_case(&b, 0, 0, NULL);
    write_case(&b, 1, 1, NULL);
    for (size_t i = 0; i < 2; i++) assert_ok(lam_adapter_load(b.f.base, b.paths[i], false, &a[i], &err), err);
    lam_manifest_adapter adapters[] = {{.file = "one", .weight = 1.0, .rule = LAM_STACK_REPLACE}, {.file = "two", .weight = 1.0, .rule = LAM_STACK_REPLACE}};
    lam_manifest m = {.adapters = adapters, .n_adapters = 2};
    const char *paths[] = {b.paths[0], b.paths[1]};
    lam_stack_rule rules[] = {LAM_STACK_REPLACE, LAM_STACK_REPLACE};
    lam_compose_options options = {.rules = rules};
    assert_int_equal(lam_manifest_check(&m, b.f.base_path, paths, &faults, &err), LAM_E_CONFLICT);
    assert_int_equal(faults.n, 2); /* q and v */
    assert_string_equal(faults.items[0].subject, "blk.0.attn_q");
    assert_non_null(strstr(faults.items[0].what, "adapter 1, case and adapter 2, case-2 both"));
    lam_fault_list_release(&faults);
    assert_int_equal(lam_compose(b.f.base, a, (double[]){1, 1}, 2, &options, &c, &err), LAM_E_CONFLICT);
    assert_non_null(strstr(err.message, "blk.0.attn_q"));

    lam_owner owners[] = {{"blk.0.attn_q", 0}, {"blk.0.attn_v", 1}};
    m.owners = options.owners = owners;
    m.n_owners = options.n_owners = 1;
    assert_int_equal(lam_manifest_check(&m, b.f.base_path, paths, &faults, &err), LAM_E_CONFLICT);
    assert_int_equal(faults.n, 1); /* v */
    lam_fault_list_release(&faults);
    m.n_owners = options.n_owners = 2;
    assert_ok(lam_manifest_check(&m, b.f.base_path, paths, &faults, &err), err);
    assert_ok(lam_compose(b.f.base, a, (double[]){1, 1}, 2, &options, &c, &err), err);
    owners[1].adapter = 0;
    assert_ok(lam_compose(b.f.base, a, (double[]){1, 1}, 2, &options, &d, &err), err);
    assert_string_not_equal(lam_composition_id(c), lam_composition_id(d));
    char id[LAM_DIGEST_TEXT]; /* from the files alone */
    assert_ok(lam_manifest_id(&m, b.f.base_path, paths, id, &err), err);
    assert_string_equal(id, lam_composition_id(d));
    owners[1].adapter = 1;
    assert_ok(lam_manifest_id(&m, b.f.base_path, paths, id, &err), err);
    assert_string_equal(id, lam_composition_id(c));
    owners[1].module = "blk.0.attn_x";
    assert_int_equal(lam_manifest_id(&m, b.f.base_path, paths, id, &err), LAM_E_UNMATCHED);
    owners[1] = (lam_owner){"blk.0.attn_v", 0};
    uint32_t tokens[12];
    char of_c[LAM_DIGEST_TEXT], of_d[LAM_DIGEST_TEXT];
    fixture_tokens(3, fixture_vocab(&b.f), tokens, 12);
    fixture_digest(c, tokens, 12, of_c);
    fixture_digest(d, tokens, 12, of_d);
    assert_string_not_equal(of_c, of_d);
    lam_composition_free(c);
    lam_composition_free(d);
    adapters[0].weight = 0.0; /* claims nothing */
    m.n_owners = 0;
    assert_ok(lam_manifest_check(&m, b.f.base_path, paths, &faults, &err), err);
    for (size_t i = 0; i < 2; i++) lam_adapter_unload(a[i]);
    bench_close(&b);
}

static void invoked(struct adapter_case *c) { json_object_set_new(c->metadata, "activation", json_pack("{s:[i,i]}", "invocation", 5, 9)); }

/* The id from the files alone is that of the composition: policies, keys and values, a template, an activated adapter, a waiver. */
static void test_id(void **state)
{
    (void)state;
    struct bench b;
    lam_error err;
    lam_adapter *a;
    lam_composition *c;
    char id[LAM_DIGEST_TEXT];
    bench_open(&b);
    lam_module_policy policies[] = {{"blk.0.attn_q", LAM_POLICY_MATERIALIZE}, {"blk.0.attn_v", LAM_POLICY_DUAL}};
    static const spoil_fn changes[] = {NULL, invoked, unbound};
    for (size_t i = 0; i < 3; i++) {
        write_case(&b, 0, 0, changes[i]);
        lam_manifest_adapter adapter = {.file = "one", .weight = 0.5, .rule = i ? LAM_STACK_ADD : LAM_STACK_REPLACE, .waived = i == 2};
        lam_manifest m = {.adapters = &adapter, .n_adapters = 1};
        assert_ok(lam_adapter_load(b.f.base, b.paths[0], adapter.waived, &a, &err), err);
        for (size_t k = 0; k < 4; k++) {
            m.policy = k & 1 ? LAM_POLICY_MATERIALIZE : LAM_POLICY_DUAL;
            m.module_policies = policies;
            m.n_module_policies = k;
            if (k == 3) m.n_module_policies = 2;
            m.kv = (lam_kv)k;
            m.template_text = k == 2 ? "{{ messages }}" : NULL;
            lam_compose_options options = {.kv = m.kv, .policy = m.policy, .module_policies = policies, .n_module_policies = m.n_module_policies,
                                           .chat_template = m.template_text, .rules = &adapter.rule};
            assert_ok(lam_compose(b.f.base, &a, &adapter.weight, 1, &options, &c, &err), err);
            assert_ok(lam_manifest_id(&m, b.f.base_path, (const char *[]){b.paths[0]}, id, &err), err);
            assert_string_equal(id, lam_composition_id(c));
            lam_composition_free(c);
        }
        lam_adapter_unload(a);
        if (i < 2) continue;
        adapter.waived = false;
        assert_int_equal(lam_manifest_id(&m, b.f.base_path, (const char *[]){b.paths[0]}, id, &err), LAM_E_WRONG_BASE);
    }
    bench_close(&b);
}

/* Who claims what without an owner, and how adapters are called. */
static void test_contests(void **state)
{
    (void)state;
    struct bench b;
    lam_error err;
    lam_contest *contests;
    size_t n;
    char names[4][LAM_ADAPTER_NAME];
    bench_open(&b);
    for (size_t i = 0; i < 3; i++) write_case(&b, i, (unsigned)i, NULL);
    lam_manifest_adapter adapters[] = {{.file = "one", .weight = 1.0, .rule = LAM_STACK_REPLACE}, {.file = "two", .weight = 1.0},
                                       {.file = "three", .weight = 1.0, .rule = LAM_STACK_REPLACE}, {.file = "a/case", .name = "four", .weight = 1.0}};
    lam_manifest m = {.adapters = adapters, .n_adapters = 3};
    const char *paths[] = {b.paths[0], b.paths[1], b.paths[2], NULL};
    assert_ok(lam_manifest_contests(&m, b.f.base_path, paths, &contests, &n, &err), err);
    assert_int_equal(n, 2);
    assert_string_equal(contests[0].module, "blk.0.attn_q");
    assert_string_equal(contests[1].module, "blk.0.attn_v");
    assert_true(contests[0].claimants == 5 && contests[1].claimants == 5);
    lam_memory_free(contests);
    m.owners = &(lam_owner){"blk.0.attn_q", 2};
    m.n_owners = 1;
    assert_ok(lam_manifest_contests(&m, b.f.base_path, paths, &contests, &n, &err), err);
    assert_int_equal(n, 1);
    assert_string_equal(contests[0].module, "blk.0.attn_v");
    lam_memory_free(contests);
    adapters[0].rule = LAM_STACK_ADD;
    assert_ok(lam_manifest_contests(&m, b.f.base_path, paths, &contests, &n, &err), err);
    assert_true(n == 0 && !contests);
    assert_int_equal(lam_manifest_contests(&m, "nothing.slm", paths, &contests, &n, &err), LAM_E_NOT_FOUND);
    m.n_adapters = LAM_MANIFEST_MAX_ADAPTERS + 1;
    assert_int_equal(lam_manifest_contests(&m, b.f.base_path, paths, &contests, &n, &err), LAM_E_LIMIT);
    m.n_adapters = 4;
    lam_manifest_names(&m, paths, names); /* the three files say the same of themselves */
    assert_string_equal(names[0], "case");
    assert_string_equal(names[1], "case-2");
    assert_string_equal(names[2], "case-3");
    assert_string_equal(names[3], "four");
    adapters[3].name = NULL;
    lam_manifest_names(&m, paths, names);
    assert_string_equal(names[3], "case-4");
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field), cmocka_unit_test(test_each_fault), cmocka_unit_test(test_all_faults_are_told),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_schema_names_the_fields), cmocka_unit_test(test_written_form),
        cmocka_unit_test(test_encodings), cmocka_unit_test(test_template_file), cmocka_unit_test(test_contests),
        cmocka_unit_test(test_check_finds_what_the_loader_refuses), cmocka_unit_test(test_all_faults_of_a_stack), cmocka_unit_test(test_owner), cmocka_unit_test(test_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
