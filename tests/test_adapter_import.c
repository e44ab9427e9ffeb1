/* Importing adapters: what PEFT wrote is taken whole, as PEFT means it, and by any path.
 * Models and adapters: tests/golden and tests/data/adapters/peft, by transformers and PEFT. */
#define _XOPEN_SOURCE 700
#include "adapter_sources.h"

#include "tensor/decode.h"

static const struct {
    const char *adapter;
    const char *base;
    size_t n_tensors, n_modules, n_no_effect;
    const char *warning; /* NULL: none */
} golden[] = {
    {"llama-gqa/all-r4", "llama-gqa", 28, 14, 0, NULL}, {"llama-gqa/all-r4", "llama-gqa-f32", 28, 14, 0, NULL},
    {"llama-gqa/all-r4", "llama-gqa-q4_0", 28, 14, 0, NULL}, {"llama-gqa/attention-r8", "llama-gqa", 16, 8, 0, NULL},
    {"llama-gqa/rslora-r64", "llama-gqa", 2, 1, 0, NULL}, {"llama-gqa/plain-r64", "llama-gqa", 2, 1, 0, NULL},
    {"llama-gqa/patterns", "llama-gqa", 12, 6, 0, "rank_pattern: \"^q_proj\" decides for no module\nrank_pattern: \"typo_proj\" "},
    {"llama-gqa/rslora-patterns", "llama-gqa", 8, 4, 0, NULL}, {"llama-gqa/layer-1", "llama-gqa", 4, 2, 0, NULL},
    {"llama-gqa/rank-1", "llama-gqa", 8, 4, 0, NULL}, {"llama-gqa/rank-7", "llama-gqa", 4, 2, 0, NULL},
    {"llama-gqa/rank-12", "llama-gqa", 4, 2, 0, NULL}, {"llama-gqa/fan-in-fan-out", "llama-gqa", 8, 4, 0, "fan_in_fan_out"},
    {"llama-gqa/embed", "llama-gqa", 6, 3, 0, NULL}, {"llama-gqa/head", "llama-gqa", 2, 1, 0, NULL},
    {"llama-gqa/zero-b", "llama-gqa", 4, 2, 2, NULL}, {"llama-gqa/embed-with-base", "llama-gqa", 3, 1, 0, NULL},
    {"llama-gqa/embed-with-base", "llama-gqa-f32", 3, 1, 0, NULL},
    {"llama-bias/all-r4", "llama-bias", 28, 14, 0, NULL}, {"llama-bias/bias-lora-only", "llama-bias", 12, 4, 0, NULL},
    {"llama-bias/bias-lora-only", "llama-bias-f16", 12, 4, 0, NULL}, {"llama-bias/bias-all", "llama-bias", 12, 8, 0, NULL},
    {"llama-rope3/all-r4", "llama-rope3", 28, 14, 0, NULL}, {"qwen2-tied/all-r4", "qwen2-tied", 42, 21, 0, NULL},
    {"qwen2-tied/embed-tied", "qwen2-tied", 2, 1, 0, NULL}, {"qwen2-tied/head-tied", "qwen2-tied", 2, 1, 0, NULL},
    {"qwen3-wide/all-r4", "qwen3-wide", 28, 14, 0, NULL}, {"gemma3-swa/all-r2", "gemma3-swa", 98, 49, 0, NULL},
    {"gemma3-swa/embed", "gemma3-swa", 2, 1, 0, NULL}, {"llama-k/all-r4", "llama-k-kmix", 14, 7, 0, NULL},
    {"gemma3-k/attention-r3", "gemma3-k-kmix", 16, 8, 0, NULL},
};

static void adapters_of_peft_are_taken_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        char source[256];
        snprintf(source, sizeof source, ADAPTERS "%s", golden[i].adapter);
        const char *out = in_folder("golden.slm"), *base = base_of(golden[i].base);
        struct lam_adapter_report r = take(source, base, out);
        assert_int_equal(r.n_tensors, golden[i].n_tensors);
        assert_int_equal(r.n_modules, golden[i].n_modules);
        assert_int_equal(r.n_no_effect, golden[i].n_no_effect);
        assert_int_equal(module_count(out), r.n_modules);
        if (golden[i].warning ? !strstr(r.warnings, golden[i].warning) : r.warnings[0])
            fail_msg("%s: warnings: %s", golden[i].adapter, r.warnings);
        opens_on_base(out, base, &r);
    }
}

static const struct {
    const char *name;       /* NULL: not in the file */
    uint32_t rank;
    double alpha;
    const char *scaling;
} wanted_patterns[] = {
    /* By hand from adapter_config.json with PEFT's rules: r 2, lora_alpha 4; first match wins, in the file's order. */
    {"blk.0.attn_q", 3, 12, "alpha/r"}, {"blk.0.attn_v", 7, 4, "alpha/r"}, {"blk.0.ffn_down", 2, 4, "alpha/r"},
    {"blk.1.attn_q", 3, 40, "alpha/r"}, {"blk.1.attn_v", 2, 1, "alpha/r"}, {"blk.1.ffn_down", 2, 4, "alpha/r"},
}, wanted_rslora[] = {
    {"blk.0.attn_k", 7, 4, "alpha/sqrt(r)"}, {"blk.0.ffn_up", 2, 6, "alpha/sqrt(r)"},
    {"blk.1.attn_k", 7, 4, "alpha/sqrt(r)"}, {"blk.1.ffn_up", 2, 4, "alpha/sqrt(r)"},
};

static void ranks_and_alphas_follow_the_patterns(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        const char *out = in_folder("patterns.slm");
        take(which ? ADAPTERS "llama-gqa/rslora-patterns" : ADAPTERS "llama-gqa/patterns", base_of("llama-gqa"), out);
        lam_error err = {0};
        struct lam_slm *s;
        assert_ok(lam_slm_open(out, &s, &err), err);
        const json_t *modules = json_object_get(s->metadata, "modules");
        size_t n = which ? 4 : 6;
        assert_int_equal(json_array_size(modules), n);
        for (size_t i = 0; i < n; i++) {
            const json_t *m = json_array_get(modules, i);
            assert_string_equal(json_string_value(json_object_get(m, "name")), which ? wanted_rslora[i].name : wanted_patterns[i].name);
            assert_int_equal(json_integer_value(json_object_get(m, "rank")), which ? wanted_rslora[i].rank : wanted_patterns[i].rank);
            assert_true(json_number_value(json_object_get(m, "alpha")) == (which ? wanted_rslora[i].alpha : wanted_patterns[i].alpha));
            assert_string_equal(json_string_value(json_object_get(m, "scaling")), which ? wanted_rslora[i].scaling : wanted_patterns[i].scaling);
        }
        lam_slm_close(s);
    }
}

/* Values of a tensor of the file as float32 (indices: int32) in row order. */
static void digest_values(const struct lam_slm *s, const struct lam_slm_entry *e, char out[LAM_DIGEST_TEXT])
{
    size_t n = (size_t)e->dims[0] * e->dims[1];
    const uint8_t *data = lam_slm_tensor_data(s, e);
    if (e->dtype == LAM_I32) {
        lam_digest_bytes(data, 4 * n, out);
        return;
    }
    float *values = calloc(n, sizeof *values);
    assert_non_null(values);
    lam_decode_row(e->dtype, data, n, values);
    lam_digest_bytes(values, 4 * n, out);
    free(values);
}

static void check_tensors(const char *label, const char *slm, const json_t *wanted)
{
    lam_error err = {0};
    struct lam_slm *s;
    const char *name;
    json_t *told;
    assert_ok(lam_slm_open(slm, &s, &err), err);
    json_object_foreach((json_t *)wanted, name, told) {
        const struct lam_slm_entry *e = lam_slm_find(s, name);
        const json_t *dims = json_object_get(told, "dims");
        char digest[LAM_DIGEST_TEXT];
        if (!e) fail_msg("%s: no %s", label, name);
        assert_int_equal(e->n_dims, json_array_size(dims));
        for (size_t i = 0; i < e->n_dims; i++) assert_int_equal(e->dims[i], json_integer_value(json_array_get(dims, i)));
        digest_values(s, e, digest);
        if (strcmp(digest + strlen("sha256:"), json_string_value(json_object_get(told, "sha256"))) != 0)
            fail_msg("%s: %s has other values", label, name);
    }
    for (size_t i = 0; i < s->n_entries; i++) {
        snprintf(err.message, sizeof err.message, "%.*s", (int)s->entries[i].name_len, s->names + s->entries[i].name_offset);
        if (!json_object_get(wanted, err.message)) fail_msg("%s: %s is one too many", label, err.message);
    }
    lam_slm_close(s);
}

static void check_metadata(const char *slm, const json_t *wanted)
{
    lam_error err = {0};
    struct lam_slm *s;
    assert_ok(lam_slm_open(slm, &s, &err), err);
    const json_t *invocation = json_object_get(json_object_get(s->metadata, "activation"), "invocation"), *told = json_object_get(wanted, "invocation");
    assert_string_equal(json_string_value(json_object_get(s->metadata, "method")), json_string_value(json_object_get(wanted, "method")));
    assert_true(json_is_null(told) ? !invocation : json_equal((json_t *)invocation, (json_t *)told));
    lam_slm_close(s);
}

/* What PEFT wrote becomes what the model that PEFT loads from it computes with, on bases from both kinds of files: every method, whole
 * matrices of tied and untied models, norms that Gemma's two kinds of files hold differently, rows in pairs. */
static void every_method_is_what_peft_makes_of_it(void **state)
{
    (void)state;
    size_t size, n = 0;
    char *text = (char *)test_read_file("tests/data/adapters/peft/expected.json", &size);
    json_t *expected = json_loadb(text, size, 0, NULL), *one, *tensors;
    const char *adapter, *base;
    free(text);
    json_object_foreach(expected, adapter, one)
        json_object_foreach(json_object_get(one, "tensors"), base, tensors) {
            char source[256];
            snprintf(source, sizeof source, "tests/data/adapters/peft/%s", adapter);
            const char *out = in_folder("method.slm");
            struct lam_adapter_report r = take(source, base_of(base), out);
            check_tensors(adapter, out, tensors);
            check_metadata(out, one);
            opens_on_base(out, base_of(base), &r);
            n++;
        }
    assert_true(n > 20);
    json_decref(expected);
}

static bool stop(void *context, const char *stage, uint64_t done, uint64_t total)
{
    (void)context, (void)stage;
    return done < total;
}

static void limits_and_cancelling_leave_nothing(void **state)
{
    (void)state;
    lam_error err = {0};
    const char *out = in_folder("stopped.slm");
    struct lam_import_options options = {.max_bytes = 1000};
    assert_int_equal(lam_import_adapter(ADAPTERS "llama-gqa/head", base_of("llama-gqa"), out, &options, NULL, &err), LAM_E_LIMIT);
    assert_false(lam_path_exists(out));
    options = (struct lam_import_options){.progress = stop};
    assert_int_equal(lam_import_adapter(ADAPTERS "llama-gqa/head", base_of("llama-gqa"), out, &options, NULL, &err), LAM_E_CANCELLED);
    assert_false(lam_path_exists(out));
    take(ADAPTERS "llama-gqa/head", base_of("llama-gqa"), out);
}

static bool has_tensor(const char *slm, const char *name)
{
    lam_error err = {0};
    struct lam_slm *s;
    assert_ok(lam_slm_open(slm, &s, &err), err);
    bool there = lam_slm_find(s, name) != NULL;
    lam_slm_close(s);
    return there;
}

/* A whole embedding or head that modules_to_save does not name is what save_embedding_layers writes, and PEFT loads it into the base's
 * own tensor: into both places of a tied base, into one of an untied base. */
static void whole_embeddings_go_where_peft_puts_them(void **state)
{
    (void)state;
    static const struct {
        const char *base, *key, *members;
        bool embedding, head;
        size_t n_tensors;
    } whole[] = {
        {"llama-gqa", "@model.embed_tokens.weight", "", true, false, 3}, {"llama-gqa", "@lm_head.weight", "", false, true, 3},
        {"llama-gqa-q4_0", "@model.embed_tokens.weight", "", true, false, 3}, {"qwen2-tied", "@model.embed_tokens.weight", "", true, true, 3},
        {"qwen2-tied", "@lm_head.weight", "", true, true, 3}, {"qwen2-tied-q8_0", "@model.embed_tokens.base_layer.weight", "", true, true, 3},
        {"qwen2-tied", "@model.embed_tokens.weight", ", \"modules_to_save\": [\"embed_tokens\"]", true, false, 3},
        {"qwen2-tied", "@lm_head.weight", ", \"modules_to_save\": [\"lm_head\"]", false, true, 3},
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        const char *dir = fresh_folder("whole"), *out = in_folder("whole.slm"), *base = base_of(whole[i].base);
        char lines[512], members[256];
        snprintf(lines, sizeof lines, Q_PAIR "\n%s F32 288x64", whole[i].key);
        snprintf(members, sizeof members, ONLY_Q "%s", whole[i].members);
        put_config(dir, members);
        put_tensors(dir, lines, 0);
        struct lam_adapter_report r = take(dir, base, out);
        assert_int_equal(r.n_tensors, whole[i].n_tensors);
        assert_int_equal(has_tensor(out, "token_embd.weight"), whole[i].embedding);
        assert_int_equal(has_tensor(out, "output.weight"), whole[i].head);
        assert_true(!strstr(r.warnings, "takes the place of the base's") == (whole[i].members[0] != 0));
        opens_on_base(out, base, &r);
    }
}

/* A copy that a quantised base cannot equal stands in its place, where the base that it was taken from needs none. */
static void copies_of_the_base_are_dropped_and_counted(void **state)
{
    (void)state;
    const char *out = in_folder("copies.slm");
    struct lam_adapter_report same = take(ADAPTERS "llama-gqa/embed-with-base", base_of("llama-gqa"), out);
    assert_int_equal(same.n_tensors, 3);
    assert_false(has_tensor(out, "token_embd.weight"));
    struct lam_adapter_report other = take(ADAPTERS "llama-gqa/embed-with-base", base_of("llama-gqa-q4_0"), out);
    assert_int_equal(other.n_tensors, 3);
    assert_true(has_tensor(out, "token_embd.weight"));
    assert_non_null(strstr(other.warnings, "embed_tokens.base_layer.weight: takes the place of the base's"));
}

static void any_rank_is_taken(void **state)
{
    (void)state;
    static const unsigned ranks[] = {1, 3, 7, 12, 64, 256, 512};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *dir = fresh_folder("ranked"), *out = in_folder("ranked.slm");
        char lines[256], members[128];
        snprintf(members, sizeof members, "\"r\": %u, \"target_modules\": [\"layers.0.self_attn.v_proj\"]", ranks[i]);
        snprintf(lines, sizeof lines, V ".lora_A.weight F32 %ux64\n" V ".lora_B.weight F32 32x%u", ranks[i], ranks[i]);
        put_config(dir, members);
        put_tensors(dir, lines, 0);
        struct lam_adapter_report r = take(dir, base_of("llama-gqa"), out);
        opens_on_base(out, base_of("llama-gqa"), &r);
    }
}

/* An l of ones and a B of zeros change nothing; a bias of B, a magnitude and a new norm may. */
static void what_has_no_effect_is_counted(void **state)
{
    (void)state;
    const char *dir = fresh_folder("effect"), *out = in_folder("effect.slm"), *base = base_of("llama-gqa");
    put_config(dir, ONLY_V ", \"lora_bias\": true");
    put_tensors(dir, V ".lora_A.weight F32 4x64\n" V ".lora_B.weight F32 32x4 zero\n" V ".lora_B.bias F32 32 zero", 0);
    assert_int_equal(take(dir, base, out).n_no_effect, 1);
    put_tensors(dir, V ".lora_A.weight F32 4x64\n" V ".lora_B.weight F32 32x4 zero\n" V ".lora_B.bias F32 32", 0);
    assert_int_equal(take(dir, base, out).n_no_effect, 0);
    put_config(dir, ONLY_V ", \"use_dora\": true");
    put_tensors(dir, V ".lora_A.weight F32 4x64\n" V ".lora_B.weight F32 32x4 zero\n" V ".lora_magnitude_vector F32 32", 0);
    assert_int_equal(take(dir, base, out).n_no_effect, 0);
    put_file(dir, "adapter_config.json", "{\"peft_type\": \"IA3\", " IA3_V "}");
    put_tensors(dir, V ".ia3_l F32 32x1 one", 0);
    assert_int_equal(take(dir, base, out).n_no_effect, 1);
    put_tensors(dir, V ".ia3_l F32 32x1", 0);
    assert_int_equal(take(dir, base, out).n_no_effect, 0);
}

/* The same adapter, whatever path leads to it and whatever its name in the keys is. */
static void paths_and_key_names_do_not_matter(void **state)
{
    (void)state;
    const char *base = base_of("llama-gqa"), *out = in_folder("same.slm"), *plain = fresh_folder("an adapter");
    put_config(plain, ONLY_V);
    put_tensors(plain, V_PAIR, 0);
    struct lam_adapter_report wanted = take(plain, base, out);
    static const char *const ways[] = {"an adapter/", "an adapter///", "an adapter/adapter_config.json", "an adapter/adapter_model.safetensors",
                                       "link", "link/", "link/adapter_config.json", "tensors-link"};
    char target[600];
    assert_int_equal(symlink("an adapter", in_folder("link")), 0);
    snprintf(target, sizeof target, "%s/adapter_model.safetensors", plain);
    assert_int_equal(symlink(target, in_folder("tensors-link")), 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct lam_adapter_report r = take(in_folder(ways[i]), base, out);
        assert_string_equal(r.digest, wanted.digest);
    }
    static const char *const names[] = {"default", "lora", "weight", "lora_A", "base", "base_layer", "\xc3\xa9t\xc3\xa9"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *dir = fresh_folder("named");
        char lines[512];
        snprintf(lines, sizeof lines, V ".lora_A.%s.weight F32 4x64\n" V ".lora_B.%s.weight F32 32x4", names[i], names[i]);
        put_config(dir, ONLY_V);
        put_tensors(dir, lines, 0);
        struct lam_adapter_report r = take(dir, base, out);
        assert_string_equal(r.digest, wanted.digest);
    }
}

static void an_import_is_deterministic(void **state)
{
    (void)state;
    take(ADAPTERS "llama-gqa/all-r4", base_of("llama-gqa"), in_folder("one.slm"));
    take(ADAPTERS "llama-gqa/all-r4", base_of("llama-gqa"), in_folder("two.slm"));
    size_t a_size, b_size;
    uint8_t *a = test_read_file(in_folder("one.slm"), &a_size), *b = test_read_file(in_folder("two.slm"), &b_size);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    free(a);
    free(b);
}

static void factors_keep_their_types(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "F16", "BF16"};
    static const enum lam_dtype dtypes[] = {LAM_F32, LAM_F16, LAM_BF16};
    for (int i = 0; i < 3; i++) {
        char lines[512];
        lam_error err = {0};
        struct lam_slm *s;
        const char *dir = fresh_folder("typed"), *out = in_folder("typed.slm");
        snprintf(lines, sizeof lines, V ".lora_A.weight %s 4x64\n" V ".lora_B.weight F32 32x4", types[i]);
        put_config(dir, ONLY_V);
        put_tensors(dir, lines, 0);
        struct lam_adapter_report r = take(dir, base_of("llama-gqa"), out);
        opens_on_base(out, base_of("llama-gqa"), &r);
        assert_ok(lam_slm_open(out, &s, &err), err);
        assert_int_equal(lam_slm_find(s, "blk.0.attn_v.lora_a")->dtype, dtypes[i]);
        assert_int_equal(lam_slm_find(s, "blk.0.attn_v.lora_b")->dtype, LAM_F32);
        lam_slm_close(s);
    }
}

static void another_base_name_is_a_warning(void **state)
{
    (void)state;
    const char *dir = fresh_folder("based");
    put_tensors(dir, V_PAIR, 0);
    put_config(dir, ONLY_V ", \"base_model_name_or_path\": \"some/where/llama-gqa\"");
    struct lam_adapter_report same = take(dir, base_of("llama-gqa"), in_folder("based.slm"));
    assert_string_equal(same.warnings, "");
    put_config(dir, ONLY_V ", \"base_model_name_or_path\": \"/no/such/path\"");
    struct lam_adapter_report other = take(dir, base_of("llama-gqa"), in_folder("based.slm"));
    assert_non_null(strstr(other.warnings, "/no/such/path"));
    assert_string_equal(same.digest, other.digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_of_peft_are_taken_whole), cmocka_unit_test(ranks_and_alphas_follow_the_patterns),
        cmocka_unit_test(every_method_is_what_peft_makes_of_it), cmocka_unit_test(limits_and_cancelling_leave_nothing),
        cmocka_unit_test(whole_embeddings_go_where_peft_puts_them), cmocka_unit_test(copies_of_the_base_are_dropped_and_counted),
        cmocka_unit_test(any_rank_is_taken), cmocka_unit_test(what_has_no_effect_is_counted),
        cmocka_unit_test(paths_and_key_names_do_not_matter), cmocka_unit_test(an_import_is_deterministic),
        cmocka_unit_test(factors_keep_their_types), cmocka_unit_test(another_base_name_is_a_warning),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
