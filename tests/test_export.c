/* Bases back to GGUF: what came from GGUF must be the same file again; what came from Hugging Face must be what llama.cpp's
 * converter gives (the golden twins were compared with it). */
#include "base/cursor.h"
#include "format/slm.h"
#include "import/import.h"
#include "model/config.h"
#include "source_edit.h"

#include <math.h>

#define GOLDEN "tests/golden/"
#define COUNT(array) (sizeof(array) / sizeof *(array))

static char *work, *base, *exported; /* a fresh folder for each test, and two paths in it */

static int set_up(void **state)
{
    (void)state;
    work = test_make_folder();
    base = path_in(work, "base.slm");
    exported = path_in(work, "exported.gguf");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_folder(work);
    free(base);
    free(exported);
    return 0;
}

static void round_trip(const char *source)
{
    lam_error err;
    assert_ok(lam_import_base(source, base, NULL, &err), err);
    assert_ok(lam_export_gguf(base, exported, NULL, &err), err);
}

/* ---- from GGUF ---- */

static void test_same_file(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama-gqa/llama-gqa-f32", "llama-gqa/llama-gqa-q4_0", "llama-gqa/llama-gqa-q4_1", "llama-gqa/llama-gqa-q5_0",
        "llama-gqa/llama-gqa-q5_1", "llama-gqa/llama-gqa-q8_0", "llama-k/llama-k-kmix", "llama-k/llama-k-q2_k",
        "llama-bias/llama-bias-f16", "llama-bias/llama-bias-legacymix", "llama-rope3/llama-rope3-f16",
        "llama-rope3/llama-rope3-q8_0", "llama-yarn/llama-yarn-f16", "llama-linear/llama-linear-q4_0",
        "qwen2-tied/qwen2-tied-f16", "qwen2-tied/qwen2-tied-q8_0", "qwen2-k/qwen2-k-kmix", "qwen3-k/qwen3-k-kmix",
        "qwen3-tied/qwen3-tied-bf16", "qwen3-tied/qwen3-tied-q4_1", "qwen3-wide/qwen3-wide-f16",
        "qwen3-wide/qwen3-wide-legacymix", "gemma3-swa/gemma3-swa-bf16", "gemma3-swa/gemma3-swa-q8_0",
        "gemma3-linear/gemma3-linear-q5_1", "gemma3-k/gemma3-k-kmix"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[256];
        snprintf(path, sizeof path, GOLDEN "%s.gguf", names[i]);
        round_trip(path);
        assert_same_files(path, exported);
    }
}

/* Keys that nothing reads, with every type and with values that JSON cannot hold. */
static void add_odd_keys(struct lam_gguf_out *o)
{
    static const struct {
        const char *key;
        enum lam_gguf_type type, item;
        uint64_t count;
        const char *bytes;
        size_t len;
    } odd[] = {
        {"odd.u8", LAM_GGUF_U8, LAM_GGUF_U8, 1, "\377", 1},
        {"odd.i8", LAM_GGUF_I8, LAM_GGUF_I8, 1, "\200", 1},
        {"odd.u16", LAM_GGUF_U16, LAM_GGUF_U16, 1, "\377\377", 2},
        {"odd.i16", LAM_GGUF_I16, LAM_GGUF_I16, 1, "\0\200", 2},
        {"odd.i32", LAM_GGUF_I32, LAM_GGUF_I32, 1, "\0\0\0\200", 4},
        {"odd.u64", LAM_GGUF_U64, LAM_GGUF_U64, 1, "\377\377\377\377\377\377\377\377", 8},
        {"odd.u64.53", LAM_GGUF_U64, LAM_GGUF_U64, 1, "\1\0\0\0\0\0\040\0", 8},
        {"odd.i64", LAM_GGUF_I64, LAM_GGUF_I64, 1, "\0\0\0\0\0\0\0\200", 8},
        {"odd.f32.nan", LAM_GGUF_F32, LAM_GGUF_F32, 1, "\1\2\300\177", 4},
        {"odd.f32.-0", LAM_GGUF_F32, LAM_GGUF_F32, 1, "\0\0\0\200", 4},
        {"odd.f32.subnormal", LAM_GGUF_F32, LAM_GGUF_F32, 1, "\1\0\0\0", 4},
        {"odd.f32.inf", LAM_GGUF_F32, LAM_GGUF_F32, 1, "\0\0\200\377", 4},
        {"odd.f64", LAM_GGUF_F64, LAM_GGUF_F64, 1, "\232\231\231\231\231\231\271\077", 8},
        {"odd.f64.max", LAM_GGUF_F64, LAM_GGUF_F64, 1, "\377\377\377\377\377\377\357\177", 8},
        {"odd.bool", LAM_GGUF_BOOL, LAM_GGUF_BOOL, 1, "\1", 1},
        {"odd.text.latin1", LAM_GGUF_STRING, LAM_GGUF_STRING, 1, "\3\0\0\0\0\0\0\0a\351b", 11},
        {"odd.text.nul", LAM_GGUF_STRING, LAM_GGUF_STRING, 1, "\3\0\0\0\0\0\0\0a\0b", 11},
        {"odd.text.empty", LAM_GGUF_STRING, LAM_GGUF_STRING, 1, "\0\0\0\0\0\0\0\0", 8},
        {"odd.list.empty", LAM_GGUF_ARRAY, LAM_GGUF_I16, 0, "", 0},
        {"odd.list.bool", LAM_GGUF_ARRAY, LAM_GGUF_BOOL, 3, "\1\0\1", 3},
        {"odd.list.f32", LAM_GGUF_ARRAY, LAM_GGUF_F32, 2, "\0\0\200\077\0\0\300\177", 8},
        {"odd.list.u64", LAM_GGUF_ARRAY, LAM_GGUF_U64, 1, "\377\377\377\377\377\377\377\377", 8},
        {"odd.list.text", LAM_GGUF_ARRAY, LAM_GGUF_STRING, 2, "\1\0\0\0\0\0\0\0\351\1\0\0\0\0\0\0\0x", 18},
        {"odd.list.words", LAM_GGUF_ARRAY, LAM_GGUF_STRING, 2, "\1\0\0\0\0\0\0\0y\1\0\0\0\0\0\0\0x", 18},
        {"tokenizer.chat_template", LAM_GGUF_STRING, LAM_GGUF_STRING, 1, "\2\0\0\0\0\0\0\0{}", 10},
    };
    lam_error err;
    for (size_t i = 0; i < COUNT(odd); i++)
        assert_ok(lam_gguf_out_kv(o, odd[i].key, strlen(odd[i].key), odd[i].type, odd[i].item, odd[i].count, odd[i].bytes,
                                  odd[i].len, &err), err);
    assert_ok(lam_gguf_out_u32(o, "general.alignment", 256, &err), err);
}

static void test_odd_keys(void **state)
{
    (void)state;
    const struct source_edit none = {0};
    char *path = path_in(work, "odd.gguf");
    edit_gguf(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", path, &none, add_odd_keys);
    round_trip(path);
    assert_same_files(path, exported);
    free(path);
}

/* Scores and types that the vocabulary section would not give back stay in the metadata. */
static void add_scores(struct lam_gguf_out *o)
{
    lam_error err;
    uint8_t scores[288 * 4];
    for (uint32_t i = 0; i < 288; i++) lam_store_u32(scores + 4 * i, 0x3f800000u + i);
    assert_ok(lam_gguf_out_kv(o, "tokenizer.ggml.scores", 21, LAM_GGUF_ARRAY, LAM_GGUF_F32, 288, scores, sizeof scores, &err), err);
}

static void test_unused_arrays(void **state)
{
    (void)state;
    const struct source_edit none = {0};
    char *path = path_in(work, "scores.gguf");
    edit_gguf(GOLDEN "qwen2-tied/qwen2-tied-f16.gguf", path, &none, add_scores);
    round_trip(path);
    assert_same_files(path, exported);
    free(path);
}

/* ---- from Hugging Face ---- */

static void compare_tensors(const struct lam_gguf *a, const struct lam_gguf *b)
{
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct lam_gguf_tensor *x = &a->tensors[i], *y = lam_gguf_find_tensor(b, x->name);
        if (!y) fail_msg("%s is missing", x->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->n_dims, y->n_dims);
        assert_memory_equal(x->dims, y->dims, sizeof x->dims);
        if (strcmp(x->name, "rope_freqs.weight") != 0) {
            if (memcmp(x->data, y->data, x->bytes) != 0) fail_msg("%s differs", x->name);
            continue;
        }
        /* The converter computes these in float32. */
        for (size_t k = 0; k < x->dims[0]; k++) {
            float p, q;
            memcpy(&p, x->data + 4 * k, 4);
            memcpy(&q, y->data + 4 * k, 4);
            assert_true(fabsf(p - q) <= 2e-6f * fabsf(q));
        }
    }
}

static void compare_configs(const struct lam_gguf *a, const struct lam_gguf *b)
{
    struct lam_config x, y;
    lam_error err;
    assert_ok(lam_config_from_gguf(a, &x, &err), err);
    assert_ok(lam_config_from_gguf(b, &y, &err), err);
    json_t *p = lam_config_to_json(&x), *q = lam_config_to_json(&y);
    if (!json_equal(p, q)) fail_msg("%s\n%s", json_dumps(p, JSON_SORT_KEYS), json_dumps(q, JSON_SORT_KEYS));
    json_decref(p);
    json_decref(q);
}

static void compare_vocabularies(const struct lam_gguf *a, const struct lam_gguf *b)
{
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                                       "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id",
                                       "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_bos_token"};
    for (size_t i = 0; i < COUNT(keys); i++) {
        const struct lam_gguf_kv *x = lam_gguf_find(a, keys[i]), *y = lam_gguf_find(b, keys[i]);
        if (!x) continue;
        if (!y || x->type != y->type || x->item_type != y->item_type || x->count != y->count ||
            x->value_bytes != y->value_bytes || memcmp(x->value, y->value, x->value_bytes) != 0)
            fail_msg("%s differs", keys[i]);
    }
}

/* tokenizer: a tokenizer.model to use in place of the folder's tokenizer.json, or NULL. */
static void compare_with_twin(const char *model, const char *twin, const char *tokenizer)
{
    const struct source_edit none = {0};
    lam_error err;
    char from[256], to[256];
    char *folder = path_in(work, model), *spm = path_in(folder, "tokenizer.model");
    struct lam_gguf *a, *b;
    snprintf(from, sizeof from, GOLDEN "%s", model);
    snprintf(to, sizeof to, GOLDEN "%s/%s-%s.gguf", model, model, twin);
    assert_ok(lam_make_dirs(folder, &err), err);
    edit_folder(from, folder, &none, tokenizer ? "tokenizer.json" : NULL);
    if (tokenizer) {
        copy_file(tokenizer, spm);
        char *settings = path_in(folder, "tokenizer_config.json");
        snprintf(from, sizeof from, "%.*s/tokenizer_config.json", (int)(lam_path_base(tokenizer) - tokenizer - 1), tokenizer);
        copy_file(from, settings);
        free(settings);
    }
    round_trip(folder);
    assert_ok(lam_gguf_open(to, &a, &err), err);
    assert_ok(lam_gguf_open(exported, &b, &err), err);
    compare_tensors(a, b);
    compare_configs(a, b);
    if (!tokenizer || strstr(tokenizer, model)) compare_vocabularies(a, b);
    lam_gguf_close(a);
    lam_gguf_close(b);
    free(folder);
    free(spm);
}

#define LLAMA_SPM GOLDEN "llama-bias/tokenizer.model"

static void test_twins(void **state)
{
    (void)state;
    compare_with_twin("llama-bias", "f16", NULL);
    compare_with_twin("qwen3-tied", "bf16", NULL);
    compare_with_twin("qwen3-wide", "f16", NULL);
    compare_with_twin("gemma3-swa", "bf16", GOLDEN "gemma3-swa/tokenizer.model");
    compare_with_twin("llama-gqa", "f32", LLAMA_SPM);
    compare_with_twin("llama-yarn", "f16", LLAMA_SPM);
    compare_with_twin("llama-rope3", "f16", LLAMA_SPM);
}

/* llama.cpp wants a token for every row of the embedding. */
static void test_padded_vocabulary(void **state)
{
    (void)state;
    const struct source_edit wider = {.reshape = "model.embed_tokens.weight", .shape = {64, 300},
                                      .retype = "model.embed_tokens.weight", .dtype = LAM_BF16};
    lam_error err;
    struct lam_gguf *g;
    char *folder = path_in(work, "model");
    assert_ok(lam_make_dirs(folder, &err), err);
    edit_folder(GOLDEN "qwen3-tied", folder, &wider, NULL);
    set_config(folder, "config.json", "vocab_size", json_integer(300));
    round_trip(folder);
    assert_ok(lam_gguf_open(exported, &g, &err), err);
    const struct lam_gguf_kv *tokens = lam_gguf_find(g, "tokenizer.ggml.tokens"), *types = lam_gguf_find(g, "tokenizer.ggml.token_type");
    assert_int_equal(tokens->count, 300);
    assert_int_equal(types->count, 300);
    assert_int_equal(lam_load_u32(types->value + 4 * 299), 5);
    const uint8_t *at = tokens->value;
    const char *text;
    size_t len;
    for (int i = 0; i < 289; i++) assert_true(lam_gguf_next_string(tokens, &at, &text, &len));
    assert_int_equal(len, 8);
    assert_memory_equal(text, "[PAD288]", 8);
    lam_gguf_close(g);
    assert_ok(lam_import_base(exported, base, NULL, &err), err);
    free(folder);
}

/* ---- refusals ---- */

static void refuse_export(lam_code code, const char *says)
{
    lam_error err = {0};
    char *folder = path_in(work, "out"), *out = path_in(folder, "x.gguf");
    assert_ok(lam_make_dirs(folder, &err), err);
    lam_code got = lam_export_gguf(base, out, NULL, &err);
    if (got != code || !strstr(err.message, says))
        fail_msg("%s (%s), not %s with \"%s\"", lam_code_name(got), err.message, lam_code_name(code), says);
    assert_int_equal(count_files(folder), 0);
    free(folder);
    free(out);
}

static void test_what_gguf_cannot_say(void **state)
{
    (void)state;
    const struct source_edit none = {0};
    lam_error err;
    char *folder = path_in(work, "model");
    assert_ok(lam_make_dirs(folder, &err), err);
    edit_folder(GOLDEN "gemma3-caps", folder, &none, "tokenizer.json");
    assert_ok(lam_import_base(folder, base, NULL, &err), err);
    refuse_export(LAM_E_UNSUPPORTED, "attention scale");
    set_config(folder, "config.json", "query_pre_attn_scalar", json_integer(32));
    set_config(folder, "config.json", "layer_types", json_pack("[s,s,s]", "full_attention", "sliding_attention", "sliding_attention"));
    assert_ok(lam_import_base(folder, base, NULL, &err), err);
    refuse_export(LAM_E_UNSUPPORTED, "period");
    set_config(folder, "config.json", "layer_types", json_null());
    round_trip(folder); /* a period of 3 can be said, and so can the final soft-cap */
    struct lam_gguf *g;
    uint32_t period = 0;
    float cap = 0;
    assert_ok(lam_gguf_open(exported, &g, &err), err);
    assert_ok(lam_gguf_u32(g, "gemma3.attention.sliding_window_pattern", true, &period, &err), err);
    assert_ok(lam_gguf_f32(g, "gemma3.final_logit_softcapping", true, &cap, &err), err);
    assert_int_equal(period, 3);
    assert_true(cap == 6.0f);
    lam_gguf_close(g);
    free(folder);
}

static void test_damaged_base(void **state)
{
    (void)state;
    lam_error err;
    size_t len;
    struct lam_slm *slm;
    assert_ok(lam_import_base(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", base, NULL, &err), err);
    assert_ok(lam_slm_open(base, &slm, &err), err);
    size_t at = (size_t)(slm->data - slm->file.data) + slm->data_bytes / 2;
    lam_slm_close(slm);
    uint8_t *bytes = test_read_file(base, &len);
    bytes[at] ^= 1;
    write_file(base, bytes, len);
    refuse_export(LAM_E_DIGEST, "piece");
    free(bytes);
    assert_int_equal(lam_export_gguf(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", exported, NULL, &err), LAM_E_MAGIC);
}

static bool stop(void *context, const char *stage, uint64_t done, uint64_t total)
{
    unsigned *calls = context;
    assert_string_equal(stage, "export");
    assert_true(done <= total);
    return ++*calls < 2;
}

static void test_cancel_and_limit(void **state)
{
    (void)state;
    lam_error err;
    unsigned calls = 0;
    struct lam_import_options options = {.progress = stop, .progress_context = &calls};
    assert_ok(lam_import_base(GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", base, NULL, &err), err);
    assert_int_equal(lam_export_gguf(base, exported, &options, &err), LAM_E_CANCELLED);
    assert_int_equal(calls, 2);
    options = (struct lam_import_options){.max_bytes = 1000};
    assert_int_equal(lam_export_gguf(base, exported, &options, &err), LAM_E_LIMIT);
    assert_int_equal(count_files(work), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_same_file), TEST(test_odd_keys), TEST(test_unused_arrays), TEST(test_twins), TEST(test_padded_vocabulary),
        TEST(test_what_gguf_cannot_say), TEST(test_damaged_base), TEST(test_cancel_and_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
