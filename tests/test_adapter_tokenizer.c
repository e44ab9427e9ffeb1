/* A tokenizer or chat template in an adapter's folder must be the base's, unless the caller accepts another. */
#define _XOPEN_SOURCE 700
#include "adapter_sources.h"

static void a_tokenizer_must_be_the_bases(void **state)
{
    (void)state;
    static const char *const bases[] = {"llama-gqa", "llama-gqa-f32"};
    for (int i = 0; i < 2; i++) {
        const char *dir = fresh_folder("tokenizer"), *base = base_of(bases[i]);
        put_config(dir, ONLY_V);
        put_tensors(dir, V_PAIR, 0);
        struct lam_adapter_report wanted = take(dir, base, in_folder("tokenizer.slm"));
        copy_file(GOLDEN "llama-gqa/tokenizer.json", dir, "tokenizer.json");
        copy_file(GOLDEN "llama-gqa/tokenizer_config.json", dir, "tokenizer_config.json");
        struct lam_adapter_report r = take(dir, base, in_folder("tokenizer.slm"));
        assert_string_equal(r.digest, wanted.digest);
        put_file(dir, "added_tokens.json", "{\"<|extra|>\": 288}");
        refused("an added token", dir, base, LAM_E_TOKENIZER, "<|extra|>");
        put_file(dir, "added_tokens.json", "{}");
        take(dir, base, in_folder("tokenizer.slm"));
        put_file(dir, "tokenizer_config.json", "{\"added_tokens_decoder\": {\"288\": {\"content\": \"[PAD]\"}}}");
        refused("an added token", dir, base, LAM_E_TOKENIZER, "[PAD]");
        copy_file(GOLDEN "llama-gqa/tokenizer_config.json", dir, "tokenizer_config.json");
        copy_edited(GOLDEN "llama-gqa/tokenizer.json", dir, "tokenizer.json", "\"added_tokens\": [",
                    "\"added_tokens\": [{\"id\": 288, \"content\": \"[PAD]\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                    "\"normalized\": false, \"special\": true},");
        refused("a token more", dir, base, LAM_E_TOKENIZER, "[PAD]");
        copy_file(GOLDEN "qwen3-wide/tokenizer.json", dir, "tokenizer.json");
        refused("another tokenizer", dir, base, LAM_E_TOKENIZER, "tokenizer");
        put_file(dir, "tokenizer.json", "{}");
        refused("no tokenizer", dir, base, LAM_E_TOKENIZER, "cannot be compared");
        dir = fresh_folder("tokenizer");
        put_config(dir, ONLY_V);
        put_tensors(dir, V_PAIR, 0);
        put_file(dir, "vocab.json", "{}");
        refused("a vocabulary alone", dir, base, LAM_E_TOKENIZER, "vocab.json");
    }
}

static json_t *source_of(const char *slm)
{
    lam_error err = {0};
    struct lam_slm *s;
    assert_ok(lam_slm_open(slm, &s, &err), err);
    json_t *source = json_deep_copy(json_object_get(s->metadata, "source"));
    lam_slm_close(s);
    return source;
}

/* The folder of the base with a chat template, which the golden ones lack: out[600] is the base made of it. */
static const char *base_with_template(const char *template)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    const char *dir = in_folder("with-template"), *path = in_folder("with-template.slm");
    lam_error err = {0};
    assert_ok(lam_make_dirs(dir, &err), err);
    for (size_t i = 0; i < 3; i++) {
        char from[256];
        snprintf(from, sizeof from, GOLDEN "llama-gqa/%s", files[i]);
        copy_file(from, dir, files[i]);
    }
    put_file(dir, "chat_template.jinja", template);
    assert_ok(lam_import_base(dir, path, NULL, &err), err);
    return path;
}

static void a_template_must_be_the_bases(void **state)
{
    (void)state;
    const char *dir = fresh_folder("template"), *base = base_with_template("{{ messages }}\n"), *out = in_folder("template.slm");
    put_config(dir, ONLY_V);
    put_tensors(dir, V_PAIR, 0);
    put_file(dir, "chat_template.jinja", "{{ messages }}");
    take(dir, base, out);
    put_file(dir, "chat_template.jinja", "{{ message }}");
    refused("another template", dir, base, LAM_E_TEMPLATE, "chat_template.jinja: the adapter was trained with another chat template than the base's "
            "(13 and 14 bytes, other from byte 10 on)");
    refused("a template, the base has none", dir, base_of("llama-gqa"), LAM_E_TEMPLATE, "the base has none");
    put_file(dir, "tokenizer_config.json", "{\"chat_template\": \"{{ messages }}\"}");
    refused("the file counts", dir, base, LAM_E_TEMPLATE, "chat_template.jinja");
    dir = fresh_folder("template");
    put_config(dir, ONLY_V);
    put_tensors(dir, V_PAIR, 0);
    put_file(dir, "tokenizer_config.json", "{\"chat_template\": \"{{ messages }}\"}");
    take(dir, base, out);
    put_file(dir, "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": \"y\"}]}");
    refused("one of several", dir, base, LAM_E_TEMPLATE, "(1 and 14 bytes, other from byte 0 on)");
}

/* What differs is told, and stands in the provenance; the adapter is the same one otherwise. */
static void another_tokenizer_can_be_accepted(void **state)
{
    (void)state;
    const char *dir = fresh_folder("accepted"), *base = base_of("llama-gqa"), *out = in_folder("accepted.slm");
    struct lam_import_options accept = {.accept_tokenizer = true};
    struct lam_adapter_report report;
    lam_error err = {0};
    put_config(dir, ONLY_V);
    put_tensors(dir, V_PAIR, 0);
    struct lam_adapter_report plain = take(dir, base, out);
    assert_ok(lam_import_adapter(dir, base, out, &accept, &report, &err), err); /* nothing to accept */
    json_t *source = source_of(out);
    assert_null(json_object_get(source, "accepted"));
    json_decref(source);
    put_file(dir, "added_tokens.json", "{\"<|extra|>\": 288}");
    put_file(dir, "chat_template.jinja", "{{ x }}");
    assert_int_equal(lam_import_adapter(dir, base, out, NULL, &report, &err), LAM_E_TOKENIZER);
    assert_int_equal(report.n_faults, 2);
    lam_memory_free(report.faults);
    assert_ok(lam_import_adapter(dir, base, out, &accept, &report, &err), err);
    assert_string_equal(report.digest, plain.digest);
    assert_non_null(strstr(report.warnings, "accepted: added_tokens.json: token \"<|extra|>\" (288) is not the base's\naccepted: chat_template.jinja: "));
    source = source_of(out);
    const json_t *accepted = json_object_get(source, "accepted");
    assert_int_equal(json_array_size(accepted), 2);
    assert_string_equal(json_string_value(json_array_get(accepted, 0)), "added_tokens.json: token \"<|extra|>\" (288) is not the base's");
    json_decref(source);
    put_config(dir, "\"r\": 4, \"target_modules\": [\"embed_tokens\"]"); /* a resized embedding never fits */
    put_tensors(dir, "@model.embed_tokens.lora_embedding_A F32 4x289\n@model.embed_tokens.lora_embedding_B F32 64x4", 0);
    assert_int_equal(lam_import_adapter(dir, base, out, &accept, NULL, &err), LAM_E_TOKENIZER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tokenizer_must_be_the_bases), cmocka_unit_test(a_template_must_be_the_bases),
        cmocka_unit_test(another_tokenizer_can_be_accepted),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
