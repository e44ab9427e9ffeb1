/* Tokens to text: whole, as a stream, and token by token. */
#include "vocab_case.h"

#include "base/utf8.h"
#include "text/detok.h"

static const struct { const char *file, *golden; } cases[] = {
    {"gpt-2.gguf", "gpt-2"}, {"starcoder.gguf", "starcoder"}, {"gpt-2-small.gguf", "gpt-2-small"}, {"llama3.tokenizer.json", "llama3"},
    {"qwen3.tokenizer.json", "qwen3"}, {"llama2.tokenizer.json", "llama2"}, {"llama2-first.tokenizer.json", "llama2-first"},
    {"llama2-never.tokenizer.json", "llama2-never"}, {"llama-spm.gguf", "llama-spm"}, {"spm-bytes.model", "spm-bytes"},
    {"spm-user.model", "spm-user"}};

/* Push one token at a time: every output is whole characters. Ends with the flush. */
static void stream(const struct vocab_case *c, const uint32_t *tokens, size_t n, struct lam_str *out)
{
    lam_error err = {0};
    struct lam_detok d;
    struct lam_str part = {0};
    lam_detok_init(&d, &c->vocab, LAM_DETOK_START | LAM_DETOK_SPECIAL);
    for (size_t i = 0; i <= n; i++) {
        lam_str_clear(&part);
        if (i < n) assert_ok(lam_detok_push(&d, tokens[i], &part, &err), err);
        else assert_ok(lam_detok_flush(&d, &part, &err), err);
        assert_int_equal(lam_utf8_valid_prefix((const uint8_t *)part.data, part.len), part.len);
        assert_true(lam_str_append(out, part.data, part.len));
    }
    lam_str_release(&part);
}

static void texts_are_those_of_the_reference_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vocab_case c;
        struct golden g;
        size_t compared = 0;
        open_case(cases[i].file, &c);
        golden_open(&g, cases[i].golden);
        while (golden_next(&g)) {
            struct lam_str out = {0}, same = {0};
            stream(&c, g.tokens, g.n, &out);
            assert_true(lam_utf8_append_lossy(&same, g.text, g.text_len));
            const char *expected = g.decoded ? (const char *)g.decoded : same.data;
            size_t len = g.decoded ? g.decoded_len : same.len;
            if (g.decoded_len != GOLDEN_NOT_COMPARED) {
                if (out.len != len || (len > 0 && memcmp(out.data, expected, len) != 0))
                    fail_msg("%s: \"%.*s\" for \"%.*s\"", cases[i].file, (int)out.len, out.data, (int)len, expected);
                compared++;
            }
            lam_str_release(&out);
            lam_str_release(&same);
        }
        assert_true(compared > 1000);
        golden_close(&g);
        close_case(&c);
    }
}

/* decode(encode(x)) = x for what the vocabulary can write: any UTF-8 for byte-level ones without a normaliser. */
static void text_survives_the_round_trip(void **state)
{
    (void)state;
    static const char *const files[] = {"gpt-2.gguf", "llama3.tokenizer.json", "deepseek-llm.gguf", "llama-spm.gguf", "spm-user.model"};
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct vocab_case c;
        open_case(files[i], &c);
        for (int round = 0; round < 2000; round++) {
            struct lam_str text = {0}, back = {0};
            size_t size = 1 + test_random(&seed) % 40;
            while (text.len < size) {
                static const uint32_t limits[] = {0x80, 0x800, 0x3000, 0x30000};
                uint32_t cp = (uint32_t)(test_random(&seed) % limits[test_random(&seed) % 4]);
                uint8_t utf8[4];
                /* U+2581 is a space to SentencePiece. */
                if (cp == 0 || cp == 0x2581 || (cp >= 0xD800 && cp < 0xE000)) continue;
                assert_true(lam_str_append(&text, utf8, lam_utf8_encode(cp, utf8)));
            }
            lam_error err = {0};
            uint32_t *tokens;
            size_t n;
            assert_ok(lam_tokenizer_encode(c.tokenizer, text.data, text.len, 0, &tokens, &n, &err), err);
            assert_ok(lam_detokenize(&c.vocab, tokens, n, LAM_DETOK_START, &back, &err), err);
            if (back.len != text.len || memcmp(back.data, text.data, text.len) != 0)
                fail_msg("%s: \"%.*s\" came back as \"%s\"", files[i], (int)text.len, text.data, back.data);
            lam_free(tokens);
            lam_str_release(&text);
            lam_str_release(&back);
        }
        close_case(&c);
    }
}

static uint32_t byte_token(const struct vocab_case *c, unsigned byte)
{
    assert_int_not_equal(c->vocab.byte_ids[byte], LAM_TOKEN_NONE);
    return c->vocab.byte_ids[byte];
}

static void expect(const struct vocab_case *c, const uint32_t *tokens, size_t n, unsigned flags, const char *expected)
{
    lam_error err = {0};
    struct lam_str out = {0};
    assert_ok(lam_detokenize(&c->vocab, tokens, n, flags, &out, &err), err);
    assert_string_equal(out.data ? out.data : "", expected);
    lam_str_release(&out);
}

static void broken_bytes_become_replacement_characters(void **state)
{
    (void)state;
    struct vocab_case c;
    open_case("gpt-2.gguf", &c);
    /* Python: bytes.decode("utf-8", "replace") */
    const uint32_t cut[] = {byte_token(&c, 0xE2), byte_token(&c, 0x82), byte_token(&c, 'a'), byte_token(&c, 0xFF)};
    expect(&c, cut, 4, 0, "\xEF\xBF\xBD" "a\xEF\xBF\xBD");
    expect(&c, cut, 2, 0, "\xEF\xBF\xBD");
    close_case(&c);
    open_case("llama-spm.gguf", &c);
    /* sentencepiece 0.2.3: decode([ids of <0xE2>, <0x82>, <0x61>, <0xFF>]) */
    const uint32_t bytes[] = {byte_token(&c, 0xE2), byte_token(&c, 0x82), byte_token(&c, 'a'), byte_token(&c, 0xFF)};
    expect(&c, bytes, 4, 0, "\xEF\xBF\xBD\xEF\xBF\xBD" "a\xEF\xBF\xBD");
    const uint32_t emoji[] = {byte_token(&c, 0xF0), byte_token(&c, 0x9F), byte_token(&c, 0xA6), byte_token(&c, 0x99)};
    expect(&c, emoji, 4, 0, "\xF0\x9F\xA6\x99");
    close_case(&c);
}

static void the_first_space_goes_only_at_the_start(void **state)
{
    (void)state;
    struct vocab_case c;
    open_case("llama-spm.gguf", &c);
    const uint32_t hello[] = {1, 15043, 15043}; /* <s> ▁Hello ▁Hello */
    expect(&c, hello, 3, LAM_DETOK_START, "Hello Hello");
    expect(&c, hello + 1, 1, 0, " Hello");
    expect(&c, hello, 2, LAM_DETOK_SPECIAL, "<s> Hello");
    lam_error err = {0};
    struct lam_str out = {0};
    assert_int_equal(lam_detokenize(&c.vocab, (const uint32_t[]){32000}, 1, 0, &out, &err), LAM_E_TOKEN);
    assert_ok(lam_token_bytes(&c.vocab, 15043, &out, &err), err);
    assert_string_equal(out.data, " Hello");
    lam_str_release(&out);
    close_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_the_reference_programs),
        cmocka_unit_test(text_survives_the_round_trip),
        cmocka_unit_test(broken_bytes_become_replacement_characters),
        cmocka_unit_test(the_first_space_goes_only_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
