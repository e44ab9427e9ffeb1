/* Importing bases: what is read equals what was written, and what is wrong is refused by name. The golden models were made by
 * transformers and the gguf package (tools/golden). */
#define _POSIX_C_SOURCE 200809L /* truncate */

#include "import/import.h"
#include "format/slm.h"
#include "format/vocab.h"
#include "model/arch.h"
#include "source_edit.h"
#include "tensor/tiles.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN "tests/golden/"

static const char *const ggufs[] = {
    "llama-gqa/llama-gqa-f32", "llama-gqa/llama-gqa-q4_0", "llama-gqa/llama-gqa-q4_1", "llama-gqa/llama-gqa-q5_0",
    "llama-gqa/llama-gqa-q5_1", "llama-gqa/llama-gqa-q8_0", "llama-k/llama-k-kmix", "llama-k/llama-k-q2_k",
    "llama-bias/llama-bias-f16", "llama-bias/llama-bias-legacymix", "llama-rope3/llama-rope3-f16", "llama-yarn/llama-yarn-f16",
    "llama-linear/llama-linear-q4_0", "qwen2-tied/qwen2-tied-f16", "qwen2-tied/qwen2-tied-q8_0", "qwen2-k/qwen2-k-kmix",
    "qwen3-k/qwen3-k-kmix", "gemma3-swa/gemma3-swa-bf16", "gemma3-swa/gemma3-swa-q8_0", "gemma3-linear/gemma3-linear-q5_1",
    "gemma3-k/gemma3-k-kmix"};
static const char *const folders[] = {"llama-gqa", "llama-bias", "llama-linear", "llama-rope3", "llama-yarn", "qwen2-tied",
                                      "qwen3-tied", "qwen3-wide", "gemma3-swa", "gemma3-linear", "gemma3-caps"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static char *work; /* a fresh folder for each test */

static int set_up(void **state)
{
    (void)state;
    work = test_make_folder();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_folder(work);
    return 0;
}

static struct lam_slm *import_and_open(const char *source)
{
    lam_error err;
    struct lam_slm *slm;
    char *out = path_in(work, "imported.slm");
    assert_ok(lam_import_base(source, out, NULL, &err), err);
    assert_ok(lam_slm_open(out, &slm, &err), err);
    for (size_t i = 0; i < slm->n_pieces; i++) assert_ok(lam_slm_verify_piece(slm, i, &err), err);
    free(out);
    return slm;
}

/* ---- content ---- */

/* rows of `bytes` each, one after the other, as the source has them. */
static void check_tensor(const struct lam_slm *slm, const char *name, enum lam_dtype dtype, uint64_t cols, uint64_t rows,
                         const uint8_t *data)
{
    const struct lam_slm_entry *e = lam_slm_find(slm, name);
    size_t row_bytes, stride;
    if (!e) fail_msg("%s is missing", name);
    assert_int_equal(e->dtype, dtype);
    assert_int_equal(e->dims[0], cols);
    assert_int_equal(e->dims[1], rows);
    assert_true(lam_dtype_row_bytes(dtype, cols, &row_bytes));
    const uint8_t *stored = lam_slm_tensor_data(slm, e);
    if (!lam_role_is_matrix((enum lam_role)e->role)) {
        assert_int_equal(e->layout, LAM_LAYOUT_PLAIN);
        assert_memory_equal(stored, data, row_bytes);
        return;
    }
    assert_int_equal(e->layout, LAM_LAYOUT_TILE16);
    assert_true(lam_tile_stride(dtype, cols, &stride));
    uint8_t *row = malloc(row_bytes);
    for (uint64_t r = 0; r < rows; r++) {
        lam_untile_row(dtype, cols, stored + r / LAM_TILE_ROWS * stride, r % LAM_TILE_ROWS, row);
        if (memcmp(row, data + r * row_bytes, row_bytes) != 0) fail_msg("%s: row %d differs", name, (int)r);
    }
    free(row);
}

/* Embedding, then layers in order, each from its norm to what it ends with, then the head. */
static void check_order(const struct lam_slm *slm)
{
    for (size_t i = 0; i < slm->n_entries; i++) {
        const struct lam_slm_entry *a = &slm->entries[i];
        if (a->role == LAM_ROLE_EMBEDDING) assert_int_equal(a->offset, 0);
        for (size_t k = 0; k < slm->n_entries; k++) {
            const struct lam_slm_entry *b = &slm->entries[k];
            bool layers = a->layer != LAM_LAYER_NONE && b->layer != LAM_LAYER_NONE;
            if (layers && a->layer < b->layer) assert_true(a->offset < b->offset);
            if (layers && a->layer == b->layer && a->role == LAM_ROLE_ATTN_NORM) assert_true(a->offset <= b->offset);
            if (layers && a->layer == b->layer && a->role == LAM_ROLE_O && b->role == LAM_ROLE_GATE) assert_true(a->offset < b->offset);
            if (a->role == LAM_ROLE_OUTPUT_NORM && b->layer != LAM_LAYER_NONE) assert_true(a->offset > b->offset);
            if (a->role == LAM_ROLE_OUTPUT && b->role == LAM_ROLE_OUTPUT_NORM) assert_true(a->offset > b->offset);
        }
    }
}

static void test_gguf_content(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(ggufs); i++) {
        char path[256];
        lam_error err;
        struct lam_gguf *g;
        snprintf(path, sizeof path, GOLDEN "%s.gguf", ggufs[i]);
        struct lam_slm *slm = import_and_open(path);
        assert_ok(lam_gguf_open(path, &g, &err), err);
        assert_int_equal(slm->kind, LAM_SLM_BASE);
        assert_int_equal(slm->n_entries, g->n_tensors);
        assert_int_equal((slm->flags & LAM_SLM_TIED) != 0, lam_gguf_find_tensor(g, "output.weight") == NULL);
        for (size_t t = 0; t < g->n_tensors; t++)
            check_tensor(slm, g->tensors[t].name, g->tensors[t].dtype, g->tensors[t].dims[0], g->tensors[t].dims[1], g->tensors[t].data);
        check_order(slm);
        struct lam_vocab vocab;
        assert_ok(lam_vocab_open(slm->vocab, slm->vocab_bytes, &vocab, &err), err);
        assert_int_equal(vocab.n_tokens, 288);
        lam_gguf_close(g);
        lam_slm_close(slm);
    }
}

static void check_folder(const char *name)
{
    char folder[256];
    lam_error err;
    struct lam_safetensors *st;
    uint32_t layer;
    snprintf(folder, sizeof folder, GOLDEN "%s", name);
    struct lam_slm *slm = import_and_open(folder);
    char *single = path_in(folder, "model.safetensors"), *index = path_in(folder, "model.safetensors.index.json");
    assert_ok(lam_st_open(lam_path_exists(single) ? single : index, &st, &err), err);
    json_t *config = json_object_get(slm->metadata, "config");
    const char *arch_name = json_string_value(json_object_get(config, "architecture"));
    const struct lam_arch *arch = lam_arch_by_name(arch_name, strlen(arch_name));
    assert_int_equal(slm->n_entries, st->n_tensors);
    for (size_t t = 0; t < st->n_tensors; t++) {
        const struct lam_st_tensor *from = &st->tensors[t];
        char gguf_name[64];
        const struct lam_tensor_spec *spec = lam_arch_match_hf(arch, from->name, &layer);
        lam_tensor_name(spec, layer, gguf_name);
        uint64_t rows = from->n_dims == 2 ? from->dims[0] : 1, cols = from->dims[from->n_dims - 1];
        check_tensor(slm, gguf_name, from->dtype, cols, rows, from->data);
    }
    check_order(slm);
    lam_st_close(st);
    lam_slm_close(slm);
    free(single);
    free(index);
}

static void test_folder_content(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(folders); i++) check_folder(folders[i]);
}

static void test_metadata(void **state)
{
    (void)state;
    const struct source_edit none = {0};
    edit_folder(GOLDEN "qwen2-tied", work, &none, NULL);
    set_config(work, "generation_config.json", "do_sample", json_true());
    set_config(work, "generation_config.json", "temperature", json_real(0.7));
    set_config(work, "generation_config.json", "top_k", json_integer(20));
    set_config(work, "generation_config.json", "repetition_penalty", json_real(1.05));
    char *card = path_in(work, "README.md");
    write_file(card, "---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: other\n", 53);
    struct lam_slm *slm = import_and_open(work);
    json_t *sampling = json_object_get(slm->metadata, "sampling"), *source = json_object_get(slm->metadata, "source");
    assert_true(json_number_value(json_object_get(sampling, "temperature")) == 0.7);
    assert_true(json_number_value(json_object_get(sampling, "top_k")) == 20);
    assert_true(json_number_value(json_object_get(sampling, "repeat_penalty")) == 1.05);
    assert_string_equal(json_string_value(json_object_get(source, "format")), "safetensors");
    assert_string_equal(json_string_value(json_object_get(source, "licence")), "apache-2.0");
    assert_string_equal(json_string_value(json_object_get(source, "file")), lam_path_base(work));
    json_t *tokenizer = json_load_file(GOLDEN "qwen2-tied/tokenizer_config.json", 0, NULL);
    assert_true(json_equal(json_object_get(slm->metadata, "chat_template"), json_object_get(tokenizer, "chat_template")));
    json_decref(tokenizer);
    lam_slm_close(slm);
    free(card);
    /* A file of its own comes first. */
    char *jinja = path_in(work, "chat_template.jinja");
    write_file(jinja, "{{ 'own' }}", 11);
    slm = import_and_open(work);
    assert_string_equal(json_string_value(json_object_get(slm->metadata, "chat_template")), "{{ 'own' }}");
    lam_slm_close(slm);
    free(jinja);
}

/* ---- refusals ---- */

/* The import fails with this code and a message that has `says`, and leaves nothing. */
static void refuse(const char *source, lam_code code, const char *says)
{
    lam_error err = {0};
    char *folder = path_in(work, "out"), *out = path_in(folder, "out.slm");
    assert_ok(lam_make_dirs(folder, &err), err);
    lam_code got = lam_import_base(source, out, NULL, &err);
    if (got != code || !strstr(err.message, says))
        fail_msg("%s: %s (%s), not %s with \"%s\"", source, lam_code_name(got), err.message, lam_code_name(code), says);
    assert_int_equal(count_files(folder), 0);
    free(folder);
    free(out);
}

struct refusal {
    const char *from;
    struct source_edit edit;
    lam_code code;
    const char *says;
};

#define F32_NAN .poison_len = 4, .poison_bytes = {0, 0, 0xc0, 0x7f}
#define F32_INF .poison_len = 4, .poison_bytes = {0, 0, 0x80, 0xff}
#define F16_NAN .poison_len = 2, .poison_bytes = {0, 0x7e}
#define F16_INF .poison_len = 2, .poison_bytes = {0, 0x7c}

static const struct refusal gguf_refusals[] = {
    {"llama-gqa/llama-gqa-f32", {.drop = "blk.1.ffn_up.weight"}, LAM_E_MISSING_TENSOR, "blk.1.ffn_up.weight"},
    {"llama-gqa/llama-gqa-f32", {.drop = "output_norm.weight"}, LAM_E_MISSING_TENSOR, "output_norm.weight"},
    {"llama-gqa/llama-gqa-f32", {.drop = "token_embd.weight"}, LAM_E_MISSING_TENSOR, "token_embd.weight"},
    {"qwen2-tied/qwen2-tied-f16", {.drop = "blk.0.attn_k.bias"}, LAM_E_MISSING_TENSOR, "blk.0.attn_k.bias"},
    {"llama-bias/llama-bias-f16", {.drop = "blk.1.attn_k.bias"}, LAM_E_MISSING_TENSOR, "attn_k.bias is in 1 of 2 layers"},
    {"llama-gqa/llama-gqa-f32", {.copy = "blk.1.attn_q.weight", .copy_to = "blk.1.attn_qkv.weight"}, LAM_E_EXTRA_TENSOR, "blk.1.attn_qkv.weight"},
    {"llama-gqa/llama-gqa-f32", {.copy = "blk.1.attn_q.weight", .copy_to = "blk.2.attn_q.weight"}, LAM_E_EXTRA_TENSOR, "blk.2.attn_q.weight"},
    {"qwen2-tied/qwen2-tied-f16", {.copy = "output_norm.weight", .copy_to = "rope_freqs.weight"}, LAM_E_EXTRA_TENSOR, "rope_freqs.weight"},
    {"llama-gqa/llama-gqa-f32", {.reshape = "blk.0.attn_k.weight", .shape = {32, 64}}, LAM_E_SHAPE, "blk.0.attn_k.weight has the shape [32, 64, 1, 1], the configuration asks for [64, 32, 1, 1]"},
    {"llama-gqa/llama-gqa-f32", {.reshape = "blk.0.attn_norm.weight", .shape = {32, 1}}, LAM_E_SHAPE, "blk.0.attn_norm.weight has the shape [32,"},
    {"llama-gqa/llama-gqa-q4_0", {.retype = "blk.1.ffn_norm.weight", .dtype = LAM_Q8_0}, LAM_E_DTYPE, "blk.1.ffn_norm.weight: a vector of type Q8_0"},
    {"llama-gqa/llama-gqa-f32", {.poison = "blk.1.attn_norm.weight", .poison_at = 12, F32_NAN}, LAM_E_NON_FINITE, "blk.1.attn_norm.weight: row 0"},
    {"llama-gqa/llama-gqa-f32", {.poison = "token_embd.weight", .poison_at = 287 * 64 * 4, F32_INF}, LAM_E_NON_FINITE, "token_embd.weight: row 287"},
    {"llama-gqa/llama-gqa-q4_0", {.poison = "blk.0.attn_q.weight", .poison_at = 17 * 36, F16_NAN}, LAM_E_NON_FINITE, "blk.0.attn_q.weight: row 17"},
    {"llama-gqa/llama-gqa-q8_0", {.poison = "blk.1.attn_v.weight", .poison_at = 68 + 34, F16_INF}, LAM_E_NON_FINITE, "blk.1.attn_v.weight: row 1 "},
    {"llama-gqa/llama-gqa-f32", {.reshape = "token_embd.weight", .shape = {64, 287}}, LAM_E_TOKEN, "288 tokens, the embedding has 287 rows"},
    {"llama-gqa/llama-gqa-f32", {.set_text_key = "general.architecture", .set_text = "mamba"}, LAM_E_ARCHITECTURE, "mamba"},
    {"llama-gqa/llama-gqa-f32", {.set_text_key = "general.type", .set_text = "mmproj"}, LAM_E_UNSUPPORTED, "general.type is mmproj"},
    {"llama-gqa/llama-gqa-f32", {.set_text_key = "general.type", .set_text = "adapter"}, LAM_E_ARGUMENT, "is an adapter"},
    {"llama-gqa/llama-gqa-f32", {.set_key = "llama.expert_count", .set_value = 8}, LAM_E_UNSUPPORTED, "llama.expert_count is 8"},
    {"llama-gqa/llama-gqa-f32", {.set_key = "llama.attention.sliding_window", .set_value = 64}, LAM_E_UNSUPPORTED, "sliding_window"},
    {"llama-gqa/llama-gqa-f32", {.set_key = "llama.new_thing", .set_value = 1}, LAM_E_UNKNOWN_FIELD, "llama.new_thing"},
    {"llama-gqa/llama-gqa-f32", {.set_key = "llama.rope.dimension_count", .set_value = 8}, LAM_E_UNSUPPORTED, "rope.dimension_count"},
    {"llama-gqa/llama-gqa-f32", {.set_key = "llama.block_count", .set_value = 3}, LAM_E_MISSING_TENSOR, "blk.2."},
    {"llama-gqa/llama-gqa-f32", {.drop_key = "llama.block_count"}, LAM_E_NOT_FOUND, "llama.block_count"},
    {"llama-gqa/llama-gqa-f32", {.drop_key = "general.architecture"}, LAM_E_NOT_FOUND, "general.architecture"},
    {"llama-rope3/llama-rope3-f16", {.set_text_key = "tokenizer.ggml.pre", .set_text = "nobody"}, LAM_E_PRETOKENIZER, "nobody"},
};

static void test_gguf_refusals(void **state)
{
    (void)state;
    char *path = path_in(work, "edited.gguf");
    for (size_t i = 0; i < COUNT(gguf_refusals); i++) {
        char from[256];
        snprintf(from, sizeof from, GOLDEN "%s.gguf", gguf_refusals[i].from);
        edit_gguf(from, path, &gguf_refusals[i].edit, NULL);
        refuse(path, gguf_refusals[i].code, gguf_refusals[i].says);
    }
    free(path);
}

static const struct refusal folder_refusals[] = {
    {"llama-gqa", {.drop = "model.layers.0.self_attn.o_proj.weight"}, LAM_E_MISSING_TENSOR, "blk.0.attn_output.weight"},
    {"llama-gqa", {.drop = "lm_head.weight"}, LAM_E_MISSING_TENSOR, "output.weight"},
    {"llama-bias", {.drop = "model.layers.0.self_attn.v_proj.bias"}, LAM_E_MISSING_TENSOR, "attn_v.bias is in 1 of 2 layers"},
    {"llama-gqa", {.copy = "model.norm.weight", .copy_to = "model.layers.0.self_attn.q_proj.bias"}, LAM_E_EXTRA_TENSOR, "attention_bias is not true"},
    {"llama-gqa", {.copy = "lm_head.weight", .copy_to = "score.weight"}, LAM_E_EXTRA_TENSOR, "score.weight"},
    {"llama-gqa", {.copy = "model.norm.weight", .copy_to = "rope_freqs.weight"}, LAM_E_EXTRA_TENSOR, "rope_freqs.weight"},
    {"llama-gqa", {.copy = "model.norm.weight", .copy_to = "norm.weight"}, LAM_E_DUPLICATE, "norm.weight"},
    {"llama-gqa", {.copy = "model.norm.weight", .copy_to = "model.layers.2.input_layernorm.weight"}, LAM_E_EXTRA_TENSOR, "model.layers.2.input_layernorm.weight"},
    {"llama-gqa", {.reshape = "model.layers.1.self_attn.k_proj.weight", .shape = {32, 64}}, LAM_E_SHAPE, "model.layers.1.self_attn.k_proj.weight has the shape [32, 64, 1, 1]"},
    {"llama-gqa", {.reshape = "model.layers.1.mlp.down_proj.weight", .shape = {108, 63}}, LAM_E_SHAPE, "model.layers.1.mlp.down_proj.weight has the shape [108, 63, 1, 1], the configuration asks for [108, 64, 1, 1]"},
    {"llama-gqa", {.poison = "model.layers.1.post_attention_layernorm.weight", F32_NAN}, LAM_E_NON_FINITE, "model.layers.1.post_attention_layernorm.weight: row 0"},
    {"llama-gqa", {.poison = "model.layers.0.mlp.up_proj.weight", .poison_at = 107 * 64 * 4 + 252, F32_INF}, LAM_E_NON_FINITE, "up_proj.weight: row 107"},
    {"llama-bias", {.poison = "model.layers.0.self_attn.q_proj.bias", .poison_at = 126, F16_NAN}, LAM_E_NON_FINITE, "model.layers.0.self_attn.q_proj.bias"},
    {"qwen2-tied", {.copy = "model.embed_tokens.weight", .copy_to = "lm_head.weight", .poison = "lm_head.weight", .poison_len = 1, .poison_bytes = {1}}, LAM_E_CONFLICT, "lm_head.weight"},
    {"llama-gqa", {.reshape = "model.embed_tokens.weight", .shape = {64, 287}}, LAM_E_SHAPE, "model.embed_tokens.weight"},
};

static void test_folder_refusals(void **state)
{
    (void)state;
    char *folder = path_in(work, "model");
    lam_error err;
    for (size_t i = 0; i < COUNT(folder_refusals); i++) {
        char from[256];
        snprintf(from, sizeof from, GOLDEN "%s", folder_refusals[i].from);
        assert_ok(lam_make_dirs(folder, &err), err);
        edit_folder(from, folder, &folder_refusals[i].edit, NULL);
        refuse(folder, folder_refusals[i].code, folder_refusals[i].says);
        test_remove_folder(strdup(folder));
    }
    free(folder);
}

static void test_config_refusals(void **state)
{
    (void)state;
    struct {
        const char *from, *key;
        json_t *value;
        lam_code code;
        const char *says;
    } cases[] = {
        {"llama-gqa", "model_type", json_string("mamba"), LAM_E_ARCHITECTURE, "mamba"},
        {"llama-gqa", "hidden_act", json_string("relu"), LAM_E_UNSUPPORTED, "relu"},
        {"llama-gqa", "attention_bias", json_true(), LAM_E_MISSING_TENSOR, "attention_bias is true, but no layer has self_attn.q_proj.bias"},
        {"llama-gqa", "mlp_bias", json_true(), LAM_E_MISSING_TENSOR, "mlp_bias is true"},
        {"llama-gqa", "num_local_experts", json_integer(8), LAM_E_UNKNOWN_FIELD, "num_local_experts"},
        {"llama-gqa", "quantization_config", json_pack("{s:s}", "quant_method", "gptq"), LAM_E_UNSUPPORTED, "quantization_config"},
        {"llama-gqa", "partial_rotary_factor", json_real(0.5), LAM_E_UNSUPPORTED, "partial_rotary_factor"},
        {"llama-gqa", "rope_scaling", json_pack("{s:s,s:f}", "rope_type", "dynamic", "factor", 2.0), LAM_E_UNSUPPORTED, "dynamic"},
        {"llama-gqa", "sliding_window", json_integer(64), LAM_E_UNSUPPORTED, "sliding window"},
        {"llama-gqa", "num_attention_heads", json_integer(0), LAM_E_FORMAT, "heads"},
        {"llama-gqa", "vocab_size", json_integer(289), LAM_E_SHAPE, "asks for [64, 289, 1, 1]"},
        {"qwen2-tied", "use_sliding_window", json_true(), LAM_E_UNSUPPORTED, "sliding window"},
        {"gemma3-swa", "use_bidirectional_attention", json_true(), LAM_E_UNSUPPORTED, "use_bidirectional_attention"},
    };
    const struct source_edit none = {0};
    char *folder = path_in(work, "model");
    lam_error err;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char from[256];
        snprintf(from, sizeof from, GOLDEN "%s", cases[i].from);
        assert_ok(lam_make_dirs(folder, &err), err);
        edit_folder(from, folder, &none, NULL);
        set_config(folder, "config.json", cases[i].key, cases[i].value);
        refuse(folder, cases[i].code, cases[i].says);
        test_remove_folder(strdup(folder));
    }
    free(folder);
}

static void test_incomplete_folders(void **state)
{
    (void)state;
    const struct source_edit none = {0};
    lam_error err;
    char *folder = path_in(work, "model"), *weights = path_in(folder, "model.safetensors"), *pickle = path_in(folder, "pytorch_model.bin");
    assert_ok(lam_make_dirs(folder, &err), err);
    refuse(folder, LAM_E_MAGIC, "config.json");
    edit_folder(GOLDEN "llama-gqa", folder, &none, "tokenizer.json");
    refuse(folder, LAM_E_NOT_FOUND, "tokenizer");
    remove(weights);
    refuse(folder, LAM_E_NOT_FOUND, "model.safetensors");
    write_file(pickle, "PK\003\004", 4);
    refuse(folder, LAM_E_UNSUPPORTED, "pickle");
    refuse(pickle, LAM_E_MAGIC, "zip");
    refuse(GOLDEN "llama-gqa/model.safetensors", LAM_E_MAGIC, "folder");
    refuse(GOLDEN "nobody", LAM_E_NOT_FOUND, "nobody");
    free(folder);
    free(weights);
    free(pickle);
}

/* ---- equal sources ---- */

static void root_of(const char *source, uint8_t root[32])
{
    struct lam_slm *slm = import_and_open(source);
    memcpy(root, slm->weights_root, 32);
    lam_slm_close(slm);
}

static void test_stored_tied_head(void **state)
{
    (void)state;
    const struct source_edit stored = {.copy = "model.embed_tokens.weight", .copy_to = "lm_head.weight"};
    uint8_t a[32], b[32];
    edit_folder(GOLDEN "qwen2-tied", work, &stored, NULL);
    root_of(GOLDEN "qwen2-tied", a);
    root_of(work, b);
    assert_memory_equal(a, b, 32);
}

static void test_rotary_buffers(void **state)
{
    (void)state;
    const struct source_edit buffer = {.copy = "model.norm.weight", .copy_to = "model.layers.0.self_attn.rotary_emb.inv_freq"};
    uint8_t a[32], b[32];
    edit_folder(GOLDEN "llama-gqa", work, &buffer, NULL);
    root_of(GOLDEN "llama-gqa", a);
    root_of(work, b);
    assert_memory_equal(a, b, 32);
}

static void test_shards(void **state)
{
    (void)state;
    const struct source_edit none = {0};
    uint8_t a[32], b[32];
    edit_folder(GOLDEN "llama-bias", work, &none, NULL);
    root_of(GOLDEN "llama-bias", a);
    root_of(work, b);
    assert_memory_equal(a, b, 32);
}

static void test_split_gguf(void **state)
{
    (void)state;
    uint8_t a[32], b[32];
    for (unsigned part = 1; part <= 3; part++) {
        const struct source_edit split = {.part = part, .n_parts = 3};
        char name[64];
        snprintf(name, sizeof name, "model-%05u-of-00003.gguf", part);
        char *path = path_in(work, name);
        edit_gguf(GOLDEN "llama-k/llama-k-kmix.gguf", path, &split, NULL);
        free(path);
    }
    char *first = path_in(work, "model-00001-of-00003.gguf");
    root_of(GOLDEN "llama-k/llama-k-kmix.gguf", a);
    root_of(first, b);
    assert_memory_equal(a, b, 32);
    free(first);
}

static void test_deterministic(void **state)
{
    (void)state;
    lam_error err;
    char *a = path_in(work, "a.slm"), *b = path_in(work, "b.slm");
    static const char *const sources[] = {GOLDEN "gemma3-k/gemma3-k-kmix.gguf", GOLDEN "llama-bias", GOLDEN "qwen2-tied"};
    for (size_t i = 0; i < COUNT(sources); i++) {
        assert_ok(lam_import_base(sources[i], a, NULL, &err), err);
        assert_ok(lam_import_base(sources[i], b, NULL, &err), err);
        assert_same_files(a, b);
    }
    free(a);
    free(b);
}

/* ---- progress, limits ---- */

struct watcher {
    uint64_t last, total;
    unsigned calls, cancel_at; /* 0: never */
};

static bool watch(void *context, const char *stage, uint64_t done, uint64_t total)
{
    struct watcher *w = context;
    assert_string_equal(stage, "import");
    assert_true(done >= w->last && done <= total);
    assert_true(w->calls == 0 || total == w->total);
    w->last = done;
    w->total = total;
    return ++w->calls != w->cancel_at;
}

static void test_progress(void **state)
{
    (void)state;
    lam_error err;
    struct watcher w = {0};
    struct lam_import_options options = {.progress = watch, .progress_context = &w};
    char *out = path_in(work, "out.slm");
    struct lam_gguf *g;
    uint64_t bytes = 0;
    assert_ok(lam_gguf_open(GOLDEN "llama-k/llama-k-kmix.gguf", &g, &err), err);
    for (size_t i = 0; i < g->n_tensors; i++) bytes += g->tensors[i].bytes;
    lam_gguf_close(g);
    assert_ok(lam_import_base(GOLDEN "llama-k/llama-k-kmix.gguf", out, &options, &err), err);
    assert_int_equal(w.last, bytes);
    assert_int_equal(w.total, bytes);
    assert_true(w.calls >= 2);
    remove(out);
    for (unsigned at = 1; at <= 2; at++) {
        w = (struct watcher){.cancel_at = at};
        assert_int_equal(lam_import_base(GOLDEN "llama-k/llama-k-kmix.gguf", out, &options, &err), LAM_E_CANCELLED);
        assert_int_equal(w.calls, at);
        assert_int_equal(count_files(work), 0);
    }
    free(out);
}

/* A source written while it is read is not what was checked. */
static bool write_source(void *context, const char *stage, uint64_t done, uint64_t total)
{
    (void)stage, (void)total;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    if (done == 0) assert_int_equal(utimensat(AT_FDCWD, context, times, 0), 0);
    return true;
}

static void test_changed_source(void **state)
{
    (void)state;
    lam_error err;
    char *source = path_in(work, "source.gguf"), *out = path_in(work, "out.slm");
    struct lam_import_options options = {.progress = write_source, .progress_context = source};
    copy_file(GOLDEN "llama-k/llama-k-kmix.gguf", source);
    assert_int_equal(lam_import_base(source, out, &options, &err), LAM_E_CHANGED);
    assert_int_equal(count_files(work), 1);
    free(source);
    free(out);
}

static void test_size_limit(void **state)
{
    (void)state;
    lam_error err;
    struct lam_file_info info;
    char *out = path_in(work, "out.slm");
    struct lam_import_options options = {.max_bytes = 100000};
    assert_int_equal(lam_import_base(GOLDEN "llama-k/llama-k-kmix.gguf", out, &options, &err), LAM_E_LIMIT);
    assert_non_null(strstr(err.message, "100000"));
    assert_int_equal(count_files(work), 0);
    options.max_bytes = 10000000;
    assert_ok(lam_import_base(GOLDEN "llama-k/llama-k-kmix.gguf", out, &options, &err), err);
    assert_ok(lam_file_info(out, &info, &err), err);
    assert_true(info.size <= options.max_bytes);
    free(out);
}

static void patch_u32(uint8_t *kvs, const struct lam_gguf *g, const char *key, uint32_t value)
{
    const struct lam_gguf_kv *kv = lam_gguf_find(g, key);
    assert_non_null(kv);
    lam_store_u32(kvs + (kv->value - (const uint8_t *)g->kvs[0].key), value);
}

/* The keys of the golden model, with the sizes of c; owned by the caller. */
static uint8_t *wide_keys(const struct lam_gguf *g, const struct lam_config *c, size_t *len)
{
    const struct lam_gguf_kv *last = &g->kvs[g->n_kvs - 1];
    const uint8_t *first = (const uint8_t *)g->kvs[0].key;
    *len = (size_t)(last->value + last->value_bytes - first);
    uint8_t *keys = malloc(*len);
    assert_non_null(keys);
    memcpy(keys, first, *len);
    patch_u32(keys, g, "llama.embedding_length", c->d_model);
    patch_u32(keys, g, "llama.attention.head_count", c->n_heads);
    patch_u32(keys, g, "llama.attention.head_count_kv", c->n_kv_heads);
    patch_u32(keys, g, "llama.rope.dimension_count", c->head_dim);
    return keys;
}

static void put_u32(FILE *f, uint32_t value) { fwrite(&value, sizeof value, 1, f); }
static void put_u64(FILE *f, uint64_t value) { fwrite(&value, sizeof value, 1, f); }

/* A GGUF of c's sizes whose data is a hole. */
static bool write_sparse(const char *path, const struct lam_gguf *g, const struct lam_config *c)
{
    size_t len;
    uint64_t offset = 0;
    uint8_t *keys = wide_keys(g, c, &len);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite("GGUF", 1, 4, f);
    put_u32(f, 3);
    put_u64(f, g->n_tensors);
    put_u64(f, g->n_kvs);
    put_u64(f, g->kvs[0].key_len);
    fwrite(keys, 1, len, f);
    for (size_t i = 0; i < g->n_tensors; i++) {
        uint32_t layer, rows, cols;
        lam_role_shape(c, lam_arch_match_gguf(c->arch, g->tensors[i].name, &layer)->role, &rows, &cols);
        put_u64(f, strlen(g->tensors[i].name));
        fwrite(g->tensors[i].name, 1, strlen(g->tensors[i].name), f);
        put_u32(f, g->tensors[i].n_dims);
        put_u64(f, cols);
        if (g->tensors[i].n_dims == 2) put_u64(f, rows);
        put_u32(f, LAM_F32);
        put_u64(f, offset);
        offset += (uint64_t)rows * cols * 4; /* a multiple of 32: rows or cols are */
    }
    long header = (ftell(f) + 31) / 32 * 32;
    fclose(f);
    free(keys);
    return truncate(path, (off_t)((uint64_t)header + offset)) == 0;
}

/* A sparse file stands for a model larger than the disk: only its header is ever read. */
static void test_no_space(void **state)
{
    (void)state;
    lam_error err;
    struct lam_gguf *g;
    char *path = path_in(work, "huge.gguf");
    uint64_t room = lam_disk_free(work), row_bytes = 65536 * 4, rows = room / row_bytes / 2 + 1024;
    struct lam_config c = {.arch = &lam_arch_llama, .n_layers = 2, .d_model = 65536, .n_heads = 1024, .n_kv_heads = 1024,
                           .head_dim = 64, .d_ff = 108, .n_vocab = (uint32_t)rows};
    if (room == UINT64_MAX || rows > 1u << 22) skip();
    assert_ok(lam_gguf_open(GOLDEN "llama-gqa/llama-gqa-f32.gguf", &g, &err), err);
    bool written = write_sparse(path, g, &c);
    lam_gguf_close(g);
    if (!written) skip(); /* no sparse files here */
    refuse(path, LAM_E_NO_SPACE, "bytes are needed");
    free(path);
}

/* ---- detection ---- */

static void detects(const char *path, enum lam_source_kind kind)
{
    lam_error err;
    enum lam_source_kind got;
    assert_ok(lam_source_detect(path, &got, &err), err);
    assert_int_equal(got, kind);
}

static void test_detect(void **state)
{
    (void)state;
    lam_error err;
    enum lam_source_kind kind;
    char *out = path_in(work, "x.slm"), *other = path_in(work, "other");
    detects(GOLDEN "llama-k/llama-k-kmix.gguf", LAM_SOURCE_GGUF_MODEL);
    detects(GOLDEN "adapters/llama-gqa/all-r4.gguf", LAM_SOURCE_GGUF_ADAPTER);
    detects(GOLDEN "adapters/llama-gqa/all-r4", LAM_SOURCE_PEFT_ADAPTER);
    detects(GOLDEN "llama-gqa", LAM_SOURCE_HF_MODEL);
    assert_ok(lam_import_base(GOLDEN "llama-gqa", out, NULL, &err), err);
    detects(out, LAM_SOURCE_SLM_BASE);
    assert_int_equal(lam_import_base(out, other, NULL, &err), LAM_E_ARGUMENT);
    static const struct {
        const char *bytes;
        size_t len;
        lam_code code;
    } strangers[] = {{"", 0, LAM_E_MAGIC}, {"GGU", 3, LAM_E_MAGIC}, {"SLM1aaaaaaaaaaaa", 16, LAM_E_LEGACY}, {"SLM2", 4, LAM_E_LEGACY},
                     {"SLM0", 4, LAM_E_TRUNCATED}, {"SLM0\0\0\7\26", 8, LAM_E_FORMAT}, {"GGUF", 4, LAM_E_TRUNCATED},
                     {"ggjtaaaa", 8, LAM_E_MAGIC}, {"hello, world", 12, LAM_E_MAGIC}};
    for (size_t i = 0; i < COUNT(strangers); i++) {
        write_file(other, strangers[i].bytes, strangers[i].len);
        assert_int_equal(lam_source_detect(other, &kind, &err), strangers[i].code);
    }
    write_file(other, "hello, world", 12);
    lam_source_detect(other, &kind, &err);
    assert_non_null(strstr(err.message, "68 65 6c 6c"));
    assert_int_equal(lam_source_detect(work, &kind, &err), LAM_E_MAGIC);
    assert_int_equal(lam_source_detect("tests/nobody", &kind, &err), LAM_E_NOT_FOUND);
    free(out);
    free(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_gguf_content), TEST(test_folder_content), TEST(test_metadata), TEST(test_gguf_refusals), TEST(test_folder_refusals),
        TEST(test_config_refusals), TEST(test_incomplete_folders), TEST(test_stored_tied_head), TEST(test_rotary_buffers),
        TEST(test_shards), TEST(test_split_gguf), TEST(test_deterministic), TEST(test_progress), TEST(test_changed_source), TEST(test_size_limit),
        TEST(test_no_space), TEST(test_detect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
