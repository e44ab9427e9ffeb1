/* LoRA adapters in llama.cpp's GGUF form: the same adapter as PEFT's, tensor by tensor, and refused by code what is not one.
 * Adapters: tests/golden, by PEFT and llama.cpp's converter. */
#define _XOPEN_SOURCE 700
#include "adapter_sources.h"

#include "format/gguf.h"
#include "format/safetensors.h"

static const char *const twins[][3] = { /* adapter, base from Hugging Face's files, base from GGUF */
    {"llama-gqa/all-r4", "llama-gqa", "llama-gqa-q4_0"}, {"llama-gqa/embed", "llama-gqa", "llama-gqa-f32"},
    {"llama-gqa/head", "llama-gqa", "llama-gqa-q8_0"}, {"llama-rope3/all-r4", "llama-rope3", "llama-rope3-f16"},
    {"qwen2-tied/all-r4", "qwen2-tied", "qwen2-tied-f16"}, {"qwen3-wide/all-r4", "qwen3-wide", "qwen3-wide-f16"},
    {"gemma3-swa/all-r2", "gemma3-swa", "gemma3-swa-bf16"},
};

static void same_tensors(const char *a, const char *b)
{
    lam_error err = {0};
    struct lam_slm *left, *right;
    assert_ok(lam_slm_open(a, &left, &err), err);
    assert_ok(lam_slm_open(b, &right, &err), err);
    assert_int_equal(left->data_bytes, right->data_bytes);
    assert_memory_equal(left->data, right->data, left->data_bytes);
    lam_slm_close(left);
    lam_slm_close(right);
}

static void peft_and_gguf_give_the_same_adapter(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        for (int base = 1; base < 3; base++) {
            char source[256];
            snprintf(source, sizeof source, ADAPTERS "%s", twins[i][0]);
            struct lam_adapter_report peft = take(source, base_of(twins[i][base]), in_folder("peft.slm"));
            strcat(source, ".gguf");
            struct lam_adapter_report gguf = take(source, base_of(twins[i][base]), in_folder("gguf.slm"));
            assert_string_equal(peft.digest, gguf.digest);
            same_tensors(in_folder("peft.slm"), in_folder("gguf.slm"));
            opens_on_base(in_folder("gguf.slm"), base_of(twins[i][base]), &gguf);
        }
}

/* On a base from GGUF the tensors of a PEFT adapter are, byte for byte, what llama.cpp's converter made of it. */
static void tensors_equal_llama_cpps_conversion(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        char source[256], name[96];
        lam_error err = {0};
        struct lam_slm *s;
        struct lam_gguf *g;
        snprintf(source, sizeof source, ADAPTERS "%s", twins[i][0]);
        take(source, base_of(twins[i][2]), in_folder("converted.slm"));
        strcat(source, ".gguf");
        assert_ok(lam_slm_open(in_folder("converted.slm"), &s, &err), err);
        assert_ok(lam_gguf_open(source, &g, &err), err);
        assert_int_equal(s->n_entries, g->n_tensors);
        for (size_t k = 0; k < g->n_tensors; k++) {
            const struct lam_gguf_tensor *t = &g->tensors[k];
            const char *weight = strstr(t->name, ".weight");
            snprintf(name, sizeof name, "%.*s%s", (int)(weight - t->name), t->name, weight + strlen(".weight"));
            const struct lam_slm_entry *e = lam_slm_find(s, name);
            assert_non_null(e);
            assert_int_equal(e->bytes, t->bytes);
            assert_int_equal(e->dims[0], t->dims[0]);
            assert_int_equal(e->dims[1], t->dims[1]);
            assert_memory_equal(lam_slm_tensor_data(s, e), t->data, t->bytes);
        }
        lam_gguf_close(g);
        lam_slm_close(s);
    }
}

/* On a base from Hugging Face's files nothing moves, on one from GGUF the new bias of q lies pairwise:
 * llama.cpp's permute is reshape(n_head, 2, d/2).swapaxes(1, 2). */
static void biases_follow_the_rows(void **state)
{
    (void)state;
    enum { HEADS = 4, D = 16 };
    lam_error err = {0};
    struct lam_safetensors *source;
    struct lam_slm *plain, *pairs;
    take(ADAPTERS "llama-bias/bias-lora-only", base_of("llama-bias"), in_folder("bias-hf.slm"));
    take(ADAPTERS "llama-bias/bias-lora-only", base_of("llama-bias-f16"), in_folder("bias-gguf.slm"));
    assert_ok(lam_st_open(ADAPTERS "llama-bias/bias-lora-only/adapter_model.safetensors", &source, &err), err);
    assert_ok(lam_slm_open(in_folder("bias-hf.slm"), &plain, &err), err);
    assert_ok(lam_slm_open(in_folder("bias-gguf.slm"), &pairs, &err), err);
    const struct lam_st_tensor *q = lam_st_find(source, "base_model.model.model.layers.1.self_attn.q_proj.base_layer.bias");
    const struct lam_st_tensor *o = lam_st_find(source, "base_model.model.model.layers.1.self_attn.o_proj.base_layer.bias");
    assert_non_null(q);
    assert_int_equal(q->dims[0], HEADS * D);
    const uint8_t *hf = lam_slm_tensor_data(plain, lam_slm_find(plain, "blk.1.attn_q.bias"));
    const uint8_t *gguf = lam_slm_tensor_data(pairs, lam_slm_find(pairs, "blk.1.attn_q.bias"));
    assert_memory_equal(hf, q->data, q->bytes);
    for (int h = 0; h < HEADS; h++)
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < D / 2; i++)
                assert_memory_equal(gguf + 4 * (h * D + i * 2 + j), q->data + 4 * (h * D + j * D / 2 + i), 4);
    assert_memory_equal(lam_slm_tensor_data(pairs, lam_slm_find(pairs, "blk.1.attn_output.bias")), o->data, o->bytes);
    lam_slm_close(plain);
    lam_slm_close(pairs);
    lam_st_close(source);
}

/* llama.cpp's form. */
struct gguf_spec {
    const char *architecture, *type;
    float alpha;          /* negative: no key */
    const char *name;     /* general.name; NULL: no key */
    const char *extra;    /* one more key, with the value 1 */
    const char *tensors;  /* "<name> <dtype> <row length>x<rows>", lines */
};

static lam_code fill_small(void *context, size_t index, uint8_t *buffer, size_t bytes, lam_error *err)
{
    (void)context, (void)index, (void)err;
    memset(buffer, 0, bytes); /* zero is finite in every type */
    return LAM_OK;
}

/* A row length by 1 row is a vector. */
static void put_gguf_tensors(struct lam_gguf_out *o, const char *lines)
{
    lam_error err = {0};
    for (const char *line = lines; *line;) {
        char name[128], dtype[16];
        unsigned long long cols = 1, rows = 1;
        assert_int_equal(sscanf(line, "%127s %15s %llux%llu", name, dtype, &cols, &rows), 4);
        assert_ok(lam_gguf_out_tensor(o, name, lam_dtype_by_name(dtype)->dtype, rows == 1 ? 1 : 2, (uint64_t[4]){cols, rows, 1, 1}, &err), err);
        const char *end = strchr(line, '\n');
        line = end ? end + 1 : line + strlen(line);
    }
}

static const char *put_gguf(const struct gguf_spec *spec)
{
    const char *path = in_folder("written.gguf");
    lam_error err = {0};
    struct lam_gguf_out *o;
    assert_ok(lam_gguf_out_new(&o, &err), err);
    assert_ok(lam_gguf_out_string(o, "general.architecture", spec->architecture, strlen(spec->architecture), &err), err);
    assert_ok(lam_gguf_out_string(o, "general.type", "adapter", 7, &err), err);
    assert_ok(lam_gguf_out_string(o, "adapter.type", spec->type, strlen(spec->type), &err), err);
    if (spec->alpha >= 0) assert_ok(lam_gguf_out_f32(o, "adapter.lora.alpha", spec->alpha, &err), err);
    if (spec->name) assert_ok(lam_gguf_out_string(o, "general.name", spec->name, strlen(spec->name), &err), err);
    if (spec->extra) assert_ok(lam_gguf_out_u32(o, spec->extra, 1, &err), err);
    put_gguf_tensors(o, spec->tensors);
    assert_ok(lam_gguf_out_write(o, path, fill_small, NULL, &err), err);
    lam_gguf_out_free(o);
    return path;
}

#define GQ "blk.0.attn_q.weight"
#define GV "blk.0.attn_v.weight"
#define GV_PAIR GV ".lora_a F32 64x4\n" GV ".lora_b F32 4x32"

static void ggufs_are_refused_by_code(void **state)
{
    (void)state;
    static const struct {
        struct gguf_spec spec;
        lam_code code;
        const char *named;
    } ggufs[] = {
        {{"qwen2", "lora", 8, NULL, NULL, GV_PAIR}, LAM_E_WRONG_BASE, "qwen2"},
        {{"llama", "control_vector", 8, NULL, NULL, GV_PAIR}, LAM_E_METHOD, "control_vector"},
        {{"llama", "lora", 8, NULL, "adapter.alora.invocation_tokens", GV_PAIR}, LAM_E_FORMAT, "adapter.alora.invocation_tokens: is not an array"},
        {{"llama", "lora", 8, NULL, "adapter.alora.x", GV_PAIR}, LAM_E_UNKNOWN_FIELD, "adapter.alora.x"},
        {{"llama", "lora", 8, NULL, "adapter.lora.use_dora", GV_PAIR}, LAM_E_UNKNOWN_FIELD, "adapter.lora.use_dora"},
        {{"llama", "lora", 8, NULL, "llama.block_count", GV_PAIR}, LAM_E_UNKNOWN_FIELD, "llama.block_count"},
        {{"llama", "lora", 8, NULL, "tokenizer.ggml.tokens", GV_PAIR}, LAM_E_TOKENIZER, "tokenizer.ggml.tokens"},
        {{"llama", "lora", 8, NULL, NULL, GV ".lora_a F32 64x4"}, LAM_E_MISSING_PAIR, "attn_v.weight.lora_a"},
        {{"llama", "lora", 8, NULL, NULL, GV ".lora_a F32 4x64\n" GV ".lora_b F32 32x4"}, LAM_E_TRANSPOSED, "attn_v"},
        {{"llama", "lora", 8, NULL, NULL, GQ ".lora_a F32 4x64\n" GQ ".lora_b F32 64x4"}, LAM_E_TRANSPOSED, "attn_q"},
        {{"llama", "lora", 8, NULL, NULL, GQ ".lora_a F32 64x64\n" GQ ".lora_b F32 64x64"}, LAM_E_AMBIGUOUS, "attn_q"},
        {{"llama", "lora", 8, NULL, NULL, GV ".lora_a F32 60x4\n" GV ".lora_b F32 4x32"}, LAM_E_SHAPE, "A [4, 60] and B [32, 4]"},
        {{"llama", "lora", 8, NULL, NULL, GV ".lora_a F32 64x4\n" GV ".lora_b F32 5x32"}, LAM_E_RANK, "A has rank 4, B has rank 5"},
        {{"llama", "lora", 8, NULL, NULL, GV ".lora_a Q8_0 64x4\n" GV ".lora_b F32 4x32"}, LAM_E_DTYPE, "Q8_0"},
        {{"llama", "lora", 8, NULL, NULL, GV_PAIR "\nblk.0.attn_norm.weight F32 63x1"}, LAM_E_SHAPE, "blk.0.attn_norm.weight: is [1, 63]"},
        {{"llama", "lora", 8, NULL, NULL, GV_PAIR "\nblk.0.attn_q.weight F32 64x64"}, LAM_E_UNMATCHED, "blk.0.attn_q.weight"},
        {{"llama", "lora", 8, NULL, NULL, GV_PAIR "\ntoken_embd.weight F32 64x288"}, LAM_E_UNMATCHED, "token_embd.weight"},
        {{"llama", "lora", 8, NULL, NULL, GV_PAIR "\noutput.weight F32 64x288"}, LAM_E_UNMATCHED, "output.weight"},
        {{"llama", "lora", 8, NULL, NULL, GV_PAIR "\nblk.7.attn_v.weight.lora_a F32 64x4\nblk.7.attn_v.weight.lora_b F32 4x32"},
         LAM_E_UNMATCHED, "it has 8 layers or more, the base 2; tensors that match no module of the base (2): blk.7.attn_v.weight.lora_a, blk.7.attn_v.weight.lora_b"},
        {{"llama", "lora", 8, NULL, NULL, GV_PAIR "\nrope_freqs.weight F32 8x1"}, LAM_E_UNMATCHED, "rope_freqs.weight"},
        {{"llama", "lora", 8, NULL, NULL, "token_embd.weight.lora_a F32 4x290\ntoken_embd.weight.lora_b F32 4x64"}, LAM_E_TOKENIZER, "290"},
    };
    for (size_t i = 0; i < sizeof ggufs / sizeof *ggufs; i++)
        refused(ggufs[i].named, put_gguf(&ggufs[i].spec), base_of("llama-gqa"), ggufs[i].code, ggufs[i].named);
}

/* llama.cpp scales by 1 where alpha is 0 or missing (llama-adapter.h, get_scale). */
static void alpha_0_in_a_gguf_means_scale_1(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct gguf_spec spec = {"llama", "lora", i ? -1.0f : 0.0f, NULL, NULL, GV_PAIR};
        lam_error err = {0};
        struct lam_slm *s;
        struct lam_adapter_report r = take(put_gguf(&spec), base_of("llama-gqa"), in_folder("alpha.slm"));
        assert_non_null(strstr(r.warnings, "the scale is 1"));
        assert_ok(lam_slm_open(in_folder("alpha.slm"), &s, &err), err);
        const json_t *m = json_array_get(json_object_get(s->metadata, "modules"), 0);
        assert_true(json_number_value(json_object_get(m, "alpha")) == json_number_value(json_object_get(m, "rank")));
        lam_slm_close(s);
    }
}

/* The peculiar tensors and the keys of llama.cpp's loader: norms in place of the base's, an invocation of uint32. */
static void norms_and_invocations_of_a_gguf_are_taken(void **state)
{
    (void)state;
    static const char tensors[] = GV_PAIR "\nblk.1.ffn_norm.weight F32 64x1";
    const char *path = in_folder("activated.gguf"), *out = in_folder("activated.slm");
    const uint32_t tokens[] = {20, 21, 287};
    lam_error err = {0};
    for (size_t n = 0; n <= 3; n += 3) {
        struct lam_gguf_out *o;
        assert_ok(lam_gguf_out_new(&o, &err), err);
        assert_ok(lam_gguf_out_string(o, "general.architecture", "llama", 5, &err), err);
        assert_ok(lam_gguf_out_string(o, "general.type", "adapter", 7, &err), err);
        assert_ok(lam_gguf_out_string(o, "adapter.type", "lora", 4, &err), err);
        assert_ok(lam_gguf_out_f32(o, "adapter.lora.alpha", 8, &err), err);
        assert_ok(lam_gguf_out_kv(o, "adapter.alora.invocation_tokens", 31, LAM_GGUF_ARRAY, LAM_GGUF_U32, n, tokens, 4 * n, &err), err);
        put_gguf_tensors(o, tensors);
        assert_ok(lam_gguf_out_write(o, path, fill_small, NULL, &err), err);
        lam_gguf_out_free(o);
        struct lam_adapter_report r = take(path, base_of("llama-gqa"), out);
        assert_int_equal(r.n_tensors, 3);
        assert_non_null(strstr(r.warnings, "1 norms take the place of the base's; llama.cpp leaves them out"));
        struct lam_slm *s;
        assert_ok(lam_slm_open(out, &s, &err), err);
        const json_t *invocation = json_object_get(json_object_get(s->metadata, "activation"), "invocation");
        assert_int_equal(json_array_size(invocation), n);
        for (size_t i = 0; i < n; i++) assert_int_equal(json_integer_value(json_array_get(invocation, i)), tokens[i]);
        assert_non_null(lam_slm_find(s, "blk.1.ffn_norm.weight"));
        lam_slm_close(s);
    }
}

static void names_are_cleaned(void **state)
{
    (void)state;
    static char long_name[4097];
    memset(long_name, 'x', 4096);
    memcpy(long_name + 254, "\xc3\xa9", 2); /* straddles the limit of 255 bytes */
    const struct {
        const char *given, *wanted;
    } names[] = {{"lora", "lora"}, {"../x", ".._x"}, {"", "adapter"}, {".", "adapter"}, {"..", "adapter"}, {"...", "..."},
                 {"a\nb\tc\x7f", "a_b_c_"}, {"\xc3\xa9t\xc3\xa9 \xe6\xbc\xa2", "\xc3\xa9t\xc3\xa9 \xe6\xbc\xa2"},
                 {"a\xff" "b", "a\xef\xbf\xbd" "b"}, {long_name, NULL}, {NULL, "written"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gguf_spec spec = {"llama", "lora", 8, names[i].given, NULL, GV_PAIR};
        lam_error err = {0};
        struct lam_slm *s;
        take(put_gguf(&spec), base_of("llama-gqa"), in_folder("name.slm"));
        assert_ok(lam_slm_open(in_folder("name.slm"), &s, &err), err);
        const char *got = json_string_value(json_object_get(s->metadata, "name"));
        if (names[i].wanted) assert_string_equal(got, names[i].wanted);
        else assert_int_equal(strlen(got), 254);
        lam_slm_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peft_and_gguf_give_the_same_adapter), cmocka_unit_test(tensors_equal_llama_cpps_conversion),
        cmocka_unit_test(biases_follow_the_rows), cmocka_unit_test(ggufs_are_refused_by_code),
        cmocka_unit_test(alpha_0_in_a_gguf_means_scale_1), cmocka_unit_test(norms_and_invocations_of_a_gguf_are_taken),
        cmocka_unit_test(names_are_cleaned),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
