/* The vocabulary section: bounds, digest, imports' refusals, and the way back to GGUF. */
#include "vocab_case.h"

#include "base/str.h"
#include "text/detok.h"

#define TINY_HEAD "{\"version\":\"1.0\",\"added_tokens\":["
#define TINY_MODEL "\"model\":{\"type\":\"BPE\",\"unk_token\":null,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120ab\":4},\"merges\":[\"a b\",[\"\\u0120\",\"ab\"]]}}"
#define BYTES_PRE "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
static const char tiny[] = TINY_HEAD "{\"id\":5,\"content\":\"<x>\",\"special\":true}]," BYTES_PRE TINY_MODEL;

static lam_code import_text(const char *text, uint8_t **section, size_t *len, lam_error *err)
{
    struct lam_vocab_source source = {text, strlen(text)};
    return lam_vocab_import_hf(&source, NULL, NULL, section, len, err);
}

static void digest_of(const uint8_t *section, size_t len, uint8_t out[32])
{
    struct lam_vocab v;
    lam_error err = {0};
    assert_ok(lam_vocab_open(section, len, &v, &err), err);
    assert_ok(lam_vocab_digest(&v, out, &err), err);
}

static void gguf_and_tokenizer_json_have_one_digest(void **state)
{
    (void)state;
    struct vocab_case a, b;
    uint8_t x[32], y[32];
    open_case("gpt-2-small.gguf", &a);
    open_case("gpt-2-small.tokenizer.json", &b);
    digest_of(a.section, a.section_len, x);
    digest_of(b.section, b.section_len, y);
    assert_memory_equal(x, y, 32);
    close_case(&a);
    open_case("starcoder.gguf", &a);
    digest_of(a.section, a.section_len, x);
    assert_memory_not_equal(x, y, 32);
    close_case(&a);
    close_case(&b);
}

/* Every change of what a tokenizer does changes the digest. */
static void the_digest_covers_the_content(void **state)
{
    (void)state;
    static const char *const variants[] = {
        tiny,
        TINY_HEAD "{\"id\":5,\"content\":\"<y>\",\"special\":true}]," BYTES_PRE TINY_MODEL,
        TINY_HEAD "{\"id\":5,\"content\":\"<x>\",\"special\":true,\"rstrip\":true}]," BYTES_PRE TINY_MODEL,
        TINY_HEAD "]," BYTES_PRE TINY_MODEL,
        TINY_HEAD "{\"id\":5,\"content\":\"<x>\",\"special\":true}],\"normalizer\":{\"type\":\"NFC\"}," BYTES_PRE TINY_MODEL,
        TINY_HEAD "{\"id\":5,\"content\":\"<x>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
                  "\"decoder\":{\"type\":\"ByteLevel\"}," TINY_MODEL,
        TINY_HEAD "{\"id\":5,\"content\":\"<x>\",\"special\":true}]," BYTES_PRE
                  "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120ab\":4},\"merges\":[[\"\\u0120\",\"ab\"],\"a b\"]}}",
        TINY_HEAD "{\"id\":5,\"content\":\"<x>\",\"special\":true}]," BYTES_PRE
                  "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120ab\":4},\"merges\":[\"a b\",[\"\\u0120\",\"ab\"]]}}"};
    enum { N = sizeof variants / sizeof *variants };
    uint8_t digests[N][32];
    for (int i = 0; i < N; i++) {
        lam_error err = {0};
        uint8_t *section, *again;
        size_t len, again_len;
        assert_ok(import_text(variants[i], &section, &len, &err), err);
        assert_ok(import_text(variants[i], &again, &again_len, &err), err);
        assert_int_equal(len, again_len);
        assert_memory_equal(section, again, len);
        digest_of(section, len, digests[i]);
        for (int k = 0; k < i; k++) assert_memory_not_equal(digests[i], digests[k], 32);
        lam_free_aligned(section);
        lam_free_aligned(again);
    }
}

static void a_wrong_index_has_no_digest(void **state)
{
    (void)state;
    lam_error err = {0};
    uint8_t *section, digest[32];
    size_t len;
    struct lam_vocab v;
    assert_ok(import_text(tiny, &section, &len, &err), err);
    assert_ok(lam_vocab_open(section, len, &v, &err), err);
    const uint32_t *const indexes[] = {v.token_index, v.merge_index};
    const uint32_t slots[] = {v.token_slots, v.merge_slots};
    for (int i = 0; i < 2; i++)
        for (uint32_t slot = 0; slot < slots[i]; slot++) {
            uint32_t *at = (uint32_t *)(section + ((const uint8_t *)(indexes[i] + slot) - section)), old = *at;
            if (old == 0) continue;
            *at = 0;
            assert_ok(lam_vocab_open(section, len, &v, &err), err);
            assert_int_equal(lam_vocab_digest(&v, digest, &err), LAM_E_FORMAT);
            *at = old;
        }
    lam_free_aligned(section);
}

static void cut_and_changed_sections_are_refused_or_harmless(void **state)
{
    (void)state;
    lam_error err = {0};
    uint8_t *section;
    size_t len;
    struct lam_vocab v;
    assert_ok(import_text(tiny, &section, &len, &err), err);
    uint8_t *copy = lam_alloc_aligned(len + 8);
    assert_non_null(copy);
    memcpy(copy, section, len);
    for (size_t cut = 0; cut < len; cut++) assert_int_not_equal(lam_vocab_open(copy, cut, &v, &err), LAM_OK);
    assert_int_equal(lam_vocab_open(copy, len + 8, &v, &err), LAM_E_GAP);
    assert_int_equal(lam_vocab_open(copy, len - 8, &v, &err), LAM_E_TRUNCATED);
    assert_int_equal(lam_vocab_open(copy + 4, len, &v, &err), LAM_E_ALIGNMENT);
    copy[0] ^= 1;
    assert_int_equal(lam_vocab_open(copy, len, &v, &err), LAM_E_MAGIC);
    copy[0] ^= 1;
    copy[4] = 1;
    assert_int_equal(lam_vocab_open(copy, len, &v, &err), LAM_E_VERSION);
    copy[4] = 0;
    copy[6] = 9;
    assert_int_equal(lam_vocab_open(copy, len, &v, &err), LAM_E_UNKNOWN_FIELD);
    copy[6] = section[6];
    copy[11] = 0x80;
    assert_int_equal(lam_vocab_open(copy, len, &v, &err), LAM_E_UNKNOWN_FIELD);
    copy[11] = 0;
    uint64_t seed = 3;
    size_t opened = 0;
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, section, len);
        for (int k = 1 + (int)(test_random(&seed) % 3); k > 0; k--) copy[test_random(&seed) % len] = (uint8_t)test_random(&seed);
        struct lam_tokenizer *t;
        if (lam_vocab_open(copy, len, &v, NULL) != LAM_OK || lam_tokenizer_new(&v, &t, NULL) != LAM_OK) continue;
        opened++;
        uint32_t *tokens;
        size_t n;
        struct lam_str out = {0};
        if (lam_tokenizer_encode(t, "ab ab<x>b \xC3\xA9", 12, LAM_ENCODE_PARSE_SPECIAL, &tokens, &n, NULL) == LAM_OK) {
            for (size_t i = 0; i < n; i++) assert_true(tokens[i] < v.n_tokens);
            (void)lam_detokenize(&v, tokens, n, LAM_DETOK_SPECIAL, &out, NULL);
            lam_free(tokens);
        }
        lam_str_release(&out);
        lam_tokenizer_free(t);
    }
    assert_true(opened > 100);
    lam_free_aligned(copy);
    lam_free_aligned(section);
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    static const struct { const char *text; lam_code code; const char *names; } cases[] = {
        {TINY_HEAD "]," BYTES_PRE "\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", LAM_E_UNSUPPORTED, "Unigram"},
        {TINY_HEAD "]," BYTES_PRE "\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", LAM_E_UNSUPPORTED, "WordPiece"},
        {TINY_HEAD "]," BYTES_PRE "\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}", LAM_E_UNSUPPORTED, "dropout"},
        {TINY_HEAD "]," BYTES_PRE "\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},\"merges\":[]}}", LAM_E_UNSUPPORTED, "end_of_word_suffix"},
        {TINY_HEAD "]," BYTES_PRE "\"model\":{\"type\":\"BPE\",\"novelty\":1,\"vocab\":{\"a\":0},\"merges\":[]}}", LAM_E_UNKNOWN_FIELD, "novelty"},
        {TINY_HEAD "],\"novelty\":1," BYTES_PRE TINY_MODEL, LAM_E_UNKNOWN_FIELD, "novelty"},
        {TINY_HEAD "{\"id\":5,\"content\":\"<x>\",\"sticky\":true}]," BYTES_PRE TINY_MODEL, LAM_E_UNKNOWN_FIELD, "sticky"},
        {TINY_HEAD "{\"id\":5,\"content\":\"\"}]," BYTES_PRE TINY_MODEL, LAM_E_FORMAT, "5"},
        {TINY_HEAD "{\"id\":1,\"content\":\"<x>\"}]," BYTES_PRE TINY_MODEL, LAM_E_DUPLICATE, "<x>"},
        {TINY_HEAD "{\"id\":99999999,\"content\":\"<x>\"}]," BYTES_PRE TINY_MODEL, LAM_E_TOKEN, "99999999"},
        {TINY_HEAD "],\"normalizer\":{\"type\":\"Lowercase\"}," BYTES_PRE TINY_MODEL, LAM_E_UNSUPPORTED, "Lowercase"},
        {TINY_HEAD "],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},\"content\":\"\"}," BYTES_PRE TINY_MODEL, LAM_E_UNSUPPORTED, "Replace"},
        {TINY_HEAD "],\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," TINY_MODEL, LAM_E_PRETOKENIZER, "BertPreTokenizer"},
        {TINY_HEAD "],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"decoder\":{\"type\":\"ByteLevel\"}," TINY_MODEL, LAM_E_PRETOKENIZER, "add_prefix_space"},
        {TINY_HEAD "],\"decoder\":{\"type\":\"WordPiece\"}," TINY_MODEL, LAM_E_UNSUPPORTED, "WordPiece"},
        {TINY_HEAD "],\"post_processor\":{\"type\":\"BertProcessing\"}," BYTES_PRE TINY_MODEL, LAM_E_UNSUPPORTED, "BertProcessing"},
        {TINY_HEAD "]," BYTES_PRE "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a z\"]}}", LAM_E_TOKEN, "z"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_error err = {0};
        uint8_t *section;
        size_t len;
        assert_int_equal(import_text(cases[i].text, &section, &len, &err), cases[i].code);
        if (!strstr(err.message, cases[i].names)) fail_msg("\"%s\" does not name %s", err.message, cases[i].names);
    }
}

/* Expressions are refused when the tokenizer is made. */
static void expressions_are_run_exactly_or_refused(void **state)
{
    (void)state;
    static const struct { const char *expression; bool runs; } cases[] = {
        {"\\\\p{L}+|\\\\s", true}, {"(?:a|b)+?x", true}, {"[^\\\\s\\\\p{L}]{1,3}", true}, {"(?i:'s)", true}, {"\\\\p{Han}+", true},
        {"(a)\\\\1", false}, {"(?<=a)b", false}, {"(*LIMIT_MATCH=1)a", false}, {"(?R)", false}, {"(?C1)a", false}, {"\\\\p{Emoji}", false},
        {"a*", false}, {"a{2,1}?", false}, {"[a&&b]", false}, {"[[a]b]", false}, {"[b-a]", false}, {"^a", false}, {"\\\\ba", false}, {"(a", false},
        {"a)", false}, {"[a", false}, {"a\\\\", false}, {"(?i:[a-z])", false}, {"\\\\x{110000}", false}, {"a**", false}, {"\\\\Qa", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_error err = {0};
        struct lam_str text = {0};
        uint8_t *section;
        size_t len;
        struct lam_vocab v;
        struct lam_tokenizer *t;
        assert_true(lam_str_printf(&text, "%s],\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                                   "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
                                   "\"decoder\":{\"type\":\"ByteLevel\"},%s", TINY_HEAD, cases[i].expression, TINY_MODEL));
        assert_ok(import_text(text.data, &section, &len, &err), err);
        assert_ok(lam_vocab_open(section, len, &v, &err), err);
        lam_code code = lam_tokenizer_new(&v, &t, &err);
        if (code != (cases[i].runs ? LAM_OK : LAM_E_PRETOKENIZER)) fail_msg("%s: %s", cases[i].expression, lam_code_name(code));
        if (code == LAM_OK) lam_tokenizer_free(t);
        lam_free_aligned(section);
        lam_str_release(&text);
    }
}

/* A GGUF in memory with the keys that put adds. */
static uint8_t *make_gguf(lam_code (*put)(struct lam_gguf_out *, const void *, lam_error *), const void *context, size_t *len)
{
    lam_error err = {0};
    struct lam_gguf_out *o;
    char *folder = test_make_folder(), path[512];
    snprintf(path, sizeof path, "%s/v.gguf", folder);
    assert_ok(lam_gguf_out_new(&o, &err), err);
    assert_ok(lam_gguf_out_string(o, "general.architecture", "llama", 5, &err), err);
    assert_ok(put(o, context, &err), err);
    assert_ok(lam_gguf_out_write(o, path, NULL, NULL, &err), err);
    lam_gguf_out_free(o);
    uint8_t *bytes = test_read_file(path, len);
    test_remove_folder(folder);
    return bytes;
}

static lam_code put_vocab(struct lam_gguf_out *o, const void *context, lam_error *err) { return lam_vocab_export_gguf(context, o, err); }

static void export_and_import_give_the_same_section(void **state)
{
    (void)state;
    static const char *const files[] = {"gpt-2-small.gguf", "gpt-2-small.tokenizer.json", "llama-spm.gguf", "phi-3.gguf", "qwen3.tokenizer.json", "spm-user.model", "deepseek-llm.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        lam_error err = {0};
        struct vocab_case c;
        uint8_t *section, x[32], y[32];
        size_t len, section_len;
        open_case(files[i], &c);
        uint8_t *bytes = make_gguf(put_vocab, &c.vocab, &len);
        assert_ok(import_bytes("x.gguf", bytes, len, &section, &section_len, &err), err);
        digest_of(c.section, c.section_len, x);
        digest_of(section, section_len, y);
        assert_memory_equal(x, y, 32);
        if (strstr(files[i], ".gguf")) {
            assert_int_equal(section_len, c.section_len);
            assert_memory_equal(section, c.section, section_len);
        }
        lam_free_aligned(section);
        free(bytes);
        close_case(&c);
    }
}

/* qwen2 stands for NFC too, as Qwen's tokenizers have it; the same expression without NFC is deepseek-r1-qwen. */
static void the_exported_pre_tokenizer_means_the_same(void **state)
{
    (void)state;
    static const struct { const char *file, *pre; } cases[] = {
        {"gpt-2-small.tokenizer.json", "smollm"}, {"qwen3.tokenizer.json", "qwen2"}, {NULL, "deepseek-r1-qwen"},
        {"llama3.tokenizer.json", "llama-bpe"}, {"deepseek-llm.gguf", "deepseek-llm"}, {"refact.gguf", "refact"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_error err = {0};
        struct vocab_case c = {0};
        size_t len;
        if (cases[i].file) {
            open_case(cases[i].file, &c);
        } else {
            uint8_t *json = test_read_file("tests/golden/qwen2-tied/tokenizer.json", &len);
            assert_ok(import_bytes("x.json", json, len, &c.section, &c.section_len, &err), err);
            free(json);
            open_section(&c);
        }
        struct lam_gguf *g;
        const char *pre;
        size_t pre_len;
        uint8_t *bytes = make_gguf(put_vocab, &c.vocab, &len);
        assert_ok(lam_gguf_open_memory(bytes, len, &g, &err), err);
        assert_ok(lam_gguf_string(g, "tokenizer.ggml.pre", true, &pre, &pre_len, &err), err);
        assert_int_equal(pre_len, strlen(cases[i].pre));
        assert_memory_equal(pre, cases[i].pre, pre_len);
        lam_gguf_close(g);
        free(bytes);
        close_case(&c);
    }
}

static void put_string_array(struct lam_gguf_out *o, const char *key, const char *const *items, size_t n)
{
    lam_error err = {0};
    struct lam_str raw = {0};
    for (size_t i = 0; i < n; i++) {
        uint8_t head[8];
        lam_store_u64(head, strlen(items[i]));
        assert_true(lam_str_append(&raw, head, 8) && lam_str_puts(&raw, items[i]));
    }
    assert_ok(lam_gguf_out_kv(o, key, strlen(key), LAM_GGUF_ARRAY, LAM_GGUF_STRING, n, raw.data, raw.len, &err), err);
    lam_str_release(&raw);
}

/* context: tokenizer.ggml.pre, NULL for none */
static lam_code put_small(struct lam_gguf_out *o, const void *context, lam_error *err)
{
    static const char *const tokens[] = {"a", "b", "ab"}, *const merges[] = {"a b"};
    LAM_TRY(lam_gguf_out_string(o, "tokenizer.ggml.model", "gpt2", 4, err));
    if (context) LAM_TRY(lam_gguf_out_string(o, "tokenizer.ggml.pre", context, strlen(context), err));
    put_string_array(o, "tokenizer.ggml.tokens", tokens, 3);
    put_string_array(o, "tokenizer.ggml.merges", merges, 1);
    return LAM_OK;
}

static void an_unknown_pre_tokenizer_is_never_guessed(void **state)
{
    (void)state;
    static const struct { const char *pre; lam_code code; const char *names; } cases[] = {
        {"gpt-2", LAM_OK, ""}, {"brand-new", LAM_E_PRETOKENIZER, "brand-new"}, {"default", LAM_E_PRETOKENIZER, "default"}, {NULL, LAM_E_PRETOKENIZER, "tokenizer.ggml.pre"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_error err = {0};
        uint8_t *section;
        size_t len, section_len;
        uint8_t *bytes = make_gguf(put_small, cases[i].pre, &len);
        assert_int_equal(import_bytes("x.gguf", bytes, len, &section, &section_len, &err), cases[i].code);
        if (cases[i].code == LAM_OK) lam_free_aligned(section);
        else assert_non_null(strstr(err.message, cases[i].names));
        free(bytes);
    }
}

static void tokenizer_model_survives_no_cut(void **state)
{
    (void)state;
    size_t len, section_len, refused = 0;
    uint8_t *bytes = read_zst("spm-user.model", &len), *section;
    uint64_t seed = 5;
    for (int round = 0; round < 3000; round++) {
        size_t cut = round < 200 ? (size_t)round : test_random(&seed) % len;
        lam_code code = import_bytes("x.model", bytes, cut, &section, &section_len, NULL);
        refused += code != LAM_OK;
        if (code == LAM_OK) lam_free_aligned(section);
    }
    assert_true(refused > 2900);
    lam_free_aligned(bytes);
}

static void end_of_generation_tokens(void **state)
{
    (void)state;
    struct vocab_case c;
    open_case("qwen3.tokenizer.json", &c);
    assert_true(lam_vocab_is_eog(&c.vocab, 151645)); /* <|im_end|> */
    assert_true(lam_vocab_is_eog(&c.vocab, 151643)); /* <|endoftext|> */
    assert_false(lam_vocab_is_eog(&c.vocab, 151644)); /* <|im_start|> */
    close_case(&c);
    lam_error err = {0};
    uint8_t *section;
    size_t len;
    struct lam_vocab v;
    struct lam_vocab_source source = {tiny, strlen(tiny)}, generation = {"{\"eos_token_id\":[5,2]}", 22}, config = {"{\"eos_token\":\"<x>\",\"model_max_length\":1000000000000000019884624838656}", 70};
    assert_ok(lam_vocab_import_hf(&source, &config, &generation, &section, &len, &err), err);
    assert_ok(lam_vocab_open(section, len, &v, &err), err);
    assert_int_equal(v.ids.eos, 5);
    assert_true(lam_vocab_is_eog(&v, 5) && lam_vocab_is_eog(&v, 2) && !lam_vocab_is_eog(&v, 1));
    lam_free_aligned(section);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_and_tokenizer_json_have_one_digest),
        cmocka_unit_test(the_digest_covers_the_content),
        cmocka_unit_test(a_wrong_index_has_no_digest),
        cmocka_unit_test(cut_and_changed_sections_are_refused_or_harmless),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(expressions_are_run_exactly_or_refused),
        cmocka_unit_test(export_and_import_give_the_same_section),
        cmocka_unit_test(the_exported_pre_tokenizer_means_the_same),
        cmocka_unit_test(an_unknown_pre_tokenizer_is_never_guessed),
        cmocka_unit_test(tokenizer_model_survives_no_cut),
        cmocka_unit_test(end_of_generation_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
