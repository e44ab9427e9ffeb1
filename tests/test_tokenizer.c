/* Text to tokens, against llama.cpp's vectors, Hugging Face tokenizers and sentencepiece (tools/make_tokenizer_golden.py). */
#include "vocab_case.h"

#include "base/json.h"
#include "text/template.h"

#include <pthread.h>

static const struct { const char *file, *golden; unsigned flags; } goldens[] = {
    {"gpt-2.gguf", "gpt-2", LAM_ENCODE_PARSE_SPECIAL}, {"starcoder.gguf", "starcoder", LAM_ENCODE_PARSE_SPECIAL},
    {"gpt-2-small.tokenizer.json", "gpt-2-small", LAM_ENCODE_PARSE_SPECIAL}, {"gpt-2-small.gguf", "gpt-2-small", LAM_ENCODE_PARSE_SPECIAL},
    {"llama2.tokenizer.json", "llama2", LAM_ENCODE_PARSE_SPECIAL}, {"llama3.tokenizer.json", "llama3", LAM_ENCODE_PARSE_SPECIAL},
    {"qwen3.tokenizer.json", "qwen3", LAM_ENCODE_PARSE_SPECIAL}, {"llama-spm.gguf", "llama-spm", 0},
    {"llama2-legacy.tokenizer.json", "llama2-legacy", LAM_ENCODE_PARSE_SPECIAL}, {"llama2-first.tokenizer.json", "llama2-first", LAM_ENCODE_PARSE_SPECIAL},
    {"llama2-split.tokenizer.json", "llama2-split", LAM_ENCODE_PARSE_SPECIAL}, {"llama2-never.tokenizer.json", "llama2-never", LAM_ENCODE_PARSE_SPECIAL},
    {"added-nfc.tokenizer.json", "added-nfc", LAM_ENCODE_PARSE_SPECIAL}, {"added-replace.tokenizer.json", "added-replace", LAM_ENCODE_PARSE_SPECIAL},
    {"added-plain.tokenizer.json", "added-plain", LAM_ENCODE_PARSE_SPECIAL},
    {"split-isolated.tokenizer.json", "split-isolated", LAM_ENCODE_PARSE_SPECIAL}, {"split-isolated-invert.tokenizer.json", "split-isolated-invert", LAM_ENCODE_PARSE_SPECIAL},
    {"split-removed.tokenizer.json", "split-removed", LAM_ENCODE_PARSE_SPECIAL}, {"split-removed-invert.tokenizer.json", "split-removed-invert", LAM_ENCODE_PARSE_SPECIAL},
    {"split-merged_with_previous.tokenizer.json", "split-merged_with_previous", LAM_ENCODE_PARSE_SPECIAL},
    {"split-merged_with_previous-invert.tokenizer.json", "split-merged_with_previous-invert", LAM_ENCODE_PARSE_SPECIAL},
    {"split-merged_with_next.tokenizer.json", "split-merged_with_next", LAM_ENCODE_PARSE_SPECIAL},
    {"split-merged_with_next-invert.tokenizer.json", "split-merged_with_next-invert", LAM_ENCODE_PARSE_SPECIAL},
    {"split-contiguous.tokenizer.json", "split-contiguous", LAM_ENCODE_PARSE_SPECIAL},
    {"split-contiguous-invert.tokenizer.json", "split-contiguous-invert", LAM_ENCODE_PARSE_SPECIAL},
    {"spm-plain.model", "spm-plain", 0}, {"spm-bytes.model", "spm-bytes", 0}, {"spm-user.model", "spm-user", 0}, {"spm-suffix.model", "spm-suffix", 0},
};

static void tokens_are_those_of_the_reference_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        struct vocab_case c;
        struct golden g;
        open_case(goldens[i].file, &c);
        golden_open(&g, goldens[i].golden);
        while (golden_next(&g)) check_tokens(&c, goldens[i].file, g.text, g.text_len, goldens[i].flags, g.tokens, g.n);
        assert_true(g.i > 2000);
        golden_close(&g);
        close_case(&c);
    }
}

/* The tokens of one line of a .out file; advances *at past the line. */
static size_t read_line(const char **at, uint32_t *tokens, size_t cap)
{
    size_t n = 0;
    while (**at && **at != '\n') {
        char *end;
        unsigned long id = strtoul(*at, &end, 10);
        if (end == *at) {
            ++*at;
            continue;
        }
        assert_true(n < cap);
        tokens[n++] = (uint32_t)id;
        *at = end;
    }
    if (**at) ++*at;
    return n;
}

static void llama_cpp_vectors(void **state)
{
    (void)state;
    static const struct { const char *name, *file; } vectors[] = {
        {"gpt-2", "gpt-2.gguf"}, {"llama-spm", "llama-spm.gguf"}, {"phi-3", "phi-3.gguf"}, {"deepseek-llm", "deepseek-llm.gguf"},
        {"deepseek-coder", "deepseek-coder.gguf"}, {"falcon", "falcon.gguf"}, {"starcoder", "starcoder.gguf"}, {"refact", "refact.gguf"},
        {"mpt", "mpt.gguf"}, {"llama-bpe", "llama3.tokenizer.json"}, {"qwen2", "qwen3.tokenizer.json"}, {"deepseek-r1-qwen", "qwen3.tokenizer.json"}};
    static const char separator[] = "\n__ggml_vocab_test__\n";
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        char path[256];
        size_t len;
        struct vocab_case c;
        open_case(vectors[i].file, &c);
        snprintf(path, sizeof path, VOCAB_DATA "%s.inp", vectors[i].name);
        char *inputs = (char *)test_read_file(path, &len);
        snprintf(path, sizeof path, VOCAB_DATA "%s.out", vectors[i].name);
        char *outputs = (char *)test_read_file(path, &len);
        const char *out = outputs;
        size_t tests = 0;
        for (char *in = inputs, *next; in; in = next, tests++) {
            uint32_t tokens[1024];
            char *end = strstr(in, separator);
            next = end ? end + strlen(separator) : NULL;
            size_t n = read_line(&out, tokens, 1024);
            if (!end && *in == 0) break;
            check_tokens(&c, vectors[i].name, in, end ? (size_t)(end - in) : strlen(in), 0, tokens, n);
        }
        assert_true(tests >= 46);
        free(inputs);
        free(outputs);
        close_case(&c);
    }
}

static void exactly_one_bos_begins(void **state)
{
    (void)state;
    struct vocab_case c;
    open_case("llama-spm.gguf", &c);
    /* sentencepiece: "Hello" is 15043, BOS 1 */
    static const uint32_t hello[] = {1, 15043}, alone[] = {1};
    const unsigned both = LAM_ENCODE_ADD_SPECIAL | LAM_ENCODE_PARSE_SPECIAL;
    check_tokens(&c, "bos", "Hello", 5, both, hello, 2);
    check_tokens(&c, "bos", "<s>Hello", 8, both, hello, 2);
    check_tokens(&c, "bos", "<s><s>Hello", 11, both, hello, 2);
    check_tokens(&c, "bos", "", 0, both, alone, 1);
    check_tokens(&c, "bos", "<s>", 3, both, alone, 1);
    check_tokens(&c, "bos", "Hello", 5, LAM_ENCODE_PARSE_SPECIAL, hello + 1, 1);
    /* Not parsed, "<s>" is text: ▁< s > by sentencepiece. */
    static const uint32_t text[] = {1, 529, 29879, 29958};
    check_tokens(&c, "bos", "<s>", 3, LAM_ENCODE_ADD_SPECIAL, text, 4);
    close_case(&c);

    open_case("qwen3.tokenizer.json", &c); /* has no BOS */
    static const uint32_t qwen[] = {9707};
    check_tokens(&c, "no bos", "Hello", 5, both, qwen, 1);
    close_case(&c);
}

static json_t *field_cases(void)
{
    size_t size;
    char *text = (char *)test_read_file(VOCAB_DATA "field.json", &size);
    json_t *cases = json_loadb(text, size, 0, NULL);
    free(text);
    assert_true(json_array_size(cases) == 3);
    return cases;
}

static const char *string_at(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

/* The ids of a list, from the skip-th on, are those of text. */
static void check_list(const struct vocab_case *c, const char *name, const char *text, size_t len, unsigned flags, const json_t *list, size_t skip)
{
    uint32_t ids[512];
    size_t n = json_array_size(list);
    assert_true(n <= 512 && skip <= n);
    for (size_t i = skip; i < n; i++) ids[i - skip] = (uint32_t)json_integer_value(json_array_get(list, i));
    check_tokens(c, name, text, len, flags, ids, n - skip);
}

/* Control tokens beside words, white space at both ends, CJK, emoji, added tokens, by transformers (tools/golden/field_tokens.py). Where the
 * text already begins with BOS, transformers begins with two; here it is one. */
static void texts_that_are_cut_wrongly_elsewhere(void **state)
{
    (void)state;
    json_t *cases = field_cases(), *one, *text;
    size_t i, k;
    json_array_foreach(cases, i, one) {
        const char *name = string_at(one, "tokenizer"), *bos = string_at(one, "bos");
        char file[64];
        struct vocab_case c;
        snprintf(file, sizeof file, "%s.tokenizer.json", name);
        open_case(file, &c);
        assert_true(json_array_size(json_object_get(one, "texts")) > 20);
        json_array_foreach(json_object_get(one, "texts"), k, text) {
            const char *t = string_at(text, "text");
            const json_t *plain = json_object_get(text, "plain"), *begun = json_object_get(text, "begun");
            bool twice = bos && strncmp(t, bos, strlen(bos)) == 0 && json_array_size(begun) > json_array_size(plain);
            check_list(&c, name, t, strlen(t), LAM_ENCODE_PARSE_SPECIAL, plain, 0);
            check_list(&c, name, t, strlen(t), LAM_ENCODE_PARSE_SPECIAL | LAM_ENCODE_ADD_SPECIAL, begun, twice);
        }
        close_case(&c);
    }
    json_decref(cases);
}

static struct lam_template *template_of(const json_t *one)
{
    struct lam_template *t;
    lam_error err = {0};
    char path[256], *text = NULL;
    const char *source = string_at(one, "inline");
    snprintf(path, sizeof path, "tests/data/templates/%s", source ? "" : string_at(one, "template"));
    if (!source) source = text = (char *)test_read_file(path, NULL);
    assert_ok(lam_template_compile(source, strlen(source), &t, &err), err);
    free(text);
    return t;
}

/* The tokens of apply_chat_template, though the caller asks for BOS and the template writes it, too. */
static void chats_begin_with_one_bos(void **state)
{
    (void)state;
    json_t *cases = field_cases(), *one, *chat;
    size_t i, k;
    json_array_foreach(cases, i, one) {
        const char *name = string_at(one, "tokenizer"), *bos = string_at(one, "bos");
        char file[64];
        struct vocab_case c;
        struct lam_template *t = template_of(one);
        lam_error err = {0};
        snprintf(file, sizeof file, "%s.tokenizer.json", name);
        open_case(file, &c);
        json_array_foreach(json_object_get(one, "chats"), k, chat) {
            json_t *variables = json_pack("{s:O,s:b,s:s}", "messages", json_object_get(chat, "messages"), "add_generation_prompt", 1, "bos_token",
                                          bos ? bos : "");
            struct lam_str text = {0};
            assert_ok(lam_template_render(t, variables, &text, &err), err);
            check_list(&c, name, text.data, text.len, LAM_ENCODE_PARSE_SPECIAL | LAM_ENCODE_ADD_SPECIAL, json_object_get(chat, "tokens"), 0);
            lam_str_release(&text);
            json_decref(variables);
        }
        lam_template_free(t);
        close_case(&c);
    }
    json_decref(cases);
}

static void control_tokens_of_users_stay_text(void **state)
{
    (void)state;
    struct vocab_case c;
    open_case("qwen3.tokenizer.json", &c);
    lam_error err = {0};
    uint32_t *tokens;
    size_t n;
    uint32_t control = lam_vocab_find_text(&c.vocab, "<|im_start|>", 12), think = lam_vocab_find_text(&c.vocab, "<think>", 7);
    assert_int_equal(control, 151644);
    assert_int_equal(think, 151667);
    assert_ok(lam_tokenizer_encode(c.tokenizer, "a<|im_start|>b<think>", 21, 0, &tokens, &n, &err), err);
    bool found_think = false;
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(tokens[i], control);
        found_think = found_think || tokens[i] == think;
    }
    assert_true(found_think); /* user-defined: always */
    lam_free(tokens);
    close_case(&c);
}

struct job {
    const struct vocab_case *c;
    struct golden g;
    bool ok;
};

static void *encode_all(void *arg)
{
    struct job *job = arg;
    job->ok = true;
    while (golden_next(&job->g)) {
        uint32_t *tokens;
        size_t n;
        lam_code code = lam_tokenizer_encode(job->c->tokenizer, (const char *)job->g.text, job->g.text_len, LAM_ENCODE_PARSE_SPECIAL, &tokens, &n, NULL);
        if (code != LAM_OK) {
            job->ok = false;
            break;
        }
        job->ok = job->ok && n == job->g.n && (n == 0 || memcmp(tokens, job->g.tokens, 4 * n) == 0);
        lam_free(tokens);
    }
    return NULL;
}

static void several_threads_share_a_tokenizer(void **state)
{
    (void)state;
    struct vocab_case c;
    struct job jobs[4];
    pthread_t threads[4];
    open_case("gpt-2-small.gguf", &c);
    for (int i = 0; i < 4; i++) {
        jobs[i].c = &c;
        golden_open(&jobs[i].g, "gpt-2-small");
        assert_int_equal(pthread_create(&threads[i], NULL, encode_all, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(jobs[i].ok);
        golden_close(&jobs[i].g);
    }
    close_case(&c);
}

static void a_long_text_takes_no_quadratic_time(void **state)
{
    (void)state;
    static const char *const files[] = {"gpt-2.gguf", "llama-spm.gguf", "spm-user.model", "gpt-2-small.gguf"};
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct vocab_case c;
        open_case(files[i], &c);
        for (const char *fill = "a \n\xE4"; *fill; fill++) {
            lam_error err = {0};
            uint32_t *tokens;
            size_t n;
            memset(text, *fill, SIZE);
            text[SIZE - 1] = 'x';
            double start = lam_now();
            assert_ok(lam_tokenizer_encode(c.tokenizer, text, SIZE, 0, &tokens, &n, &err), err);
            assert_true(lam_now() - start < 60); /* seconds; quadratic time would be hours */
            lam_free(tokens);
        }
        close_case(&c);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_the_reference_programs),
        cmocka_unit_test(llama_cpp_vectors),
        cmocka_unit_test(exactly_one_bos_begins),
        cmocka_unit_test(texts_that_are_cut_wrongly_elsewhere),
        cmocka_unit_test(chats_begin_with_one_bos),
        cmocka_unit_test(control_tokens_of_users_stay_text),
        cmocka_unit_test(several_threads_share_a_tokenizer),
        cmocka_unit_test(a_long_text_takes_no_quadratic_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
