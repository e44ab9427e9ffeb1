/* Adapters that are no adapters of this base: each fault has its own code, names what is wrong, and leaves no file. */
#define _XOPEN_SOURCE 700
#include "adapter_sources.h"

#define PREFIXED "base_model.model.language_model.model.layers.0.self_attn.q_proj"

static const struct {
    const char *label, *config, *tensors;
    lam_code code;
    const char *named;
    const char *base; /* NULL: llama-gqa */
} cases[] = {
    {"another prefix", ONLY_Q, PREFIXED ".lora_B.weight F32 64x4\n" PREFIXED ".lora_A.weight F32 4x64", LAM_E_UNMATCHED,
     "tensors that match no module of the base (2): " PREFIXED ".lora_A.weight, and 1 more", NULL},
    {"no prefix", ONLY_Q, "model.layers.0.self_attn.q_proj.lora_A.weight F32 4x64\nmodel.layers.0.self_attn.q_proj.lora_B.weight F32 64x4",
     LAM_E_UNMATCHED, "model.layers.0.self_attn.q_proj.lora_A.weight, model", NULL},
    {"one foreign layer", "\"r\": 4, \"target_modules\": [\"q_proj\"]",
     Q_PAIR "\n@model.layers.9.self_attn.q_proj.lora_A.weight F32 4x64\n@model.layers.9.self_attn.q_proj.lora_B.weight F32 64x4",
     LAM_E_UNMATCHED, "made for another model: it has 10 layers or more, the base 2; tensors that match no module of the base (2): "
     "base_model.model.model.layers.9.", NULL},
    {"half of the modules", "\"r\": 4, \"target_modules\": [\"q_proj\"]", Q_PAIR, LAM_E_UNMATCHED,
     "made for another model: it has 1 layer, the base 2; modules that adapter_config.json means, without tensors (1): "
     "model.layers.1.self_attn.q_proj", NULL},
    {"a module of a layer that has others", "\"r\": 4, \"target_modules\": [\"q_proj\", \"layers.0.self_attn.v_proj\"]",
     Q_PAIR "\n" Q1 ".lora_A.weight F32 4x64\n" Q1 ".lora_B.weight F32 64x4", LAM_E_UNMATCHED,
     "modules that adapter_config.json means, without tensors (1): model.layers.0.self_attn.v_proj", NULL},
    {"outside of the targets", ONLY_Q, Q_PAIR "\n" V_PAIR, LAM_E_UNMATCHED,
     "tensors of modules that adapter_config.json does not mean (2): base_model.model.model.layers.0.self_attn.v_proj.lora_A", NULL},
    {"no targets", "\"target_modules\": []", Q_PAIR, LAM_E_UNMATCHED, "does not mean", NULL},
    {"a norm as target", "\"r\": 4, \"target_modules\": [\"layers.0.self_attn.q_proj\", \"model.norm\"]", Q_PAIR, LAM_E_UNMATCHED, "model.norm",
     NULL},
    {"no tensors", ONLY_Q, Q ".x F32 1", LAM_E_UNMATCHED, "q_proj.x", NULL},
    {"stray rope factors", ONLY_Q, Q_PAIR "\nrope_freqs.weight F32 8", LAM_E_UNMATCHED, "rope_freqs.weight", NULL},
    {"a distilgpt2 adapter", "\"r\": 8, \"fan_in_fan_out\": true, \"target_modules\": [\"c_attn\"]",
     "@transformer.h.0.attn.c_attn.lora_A.weight F32 8x16\n@transformer.h.0.attn.c_attn.lora_B.weight F32 48x8", LAM_E_UNMATCHED,
     "made for another model, or saved under other names: tensors that match no module of the base (2): base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", NULL},
    {"transposed, square", ONLY_Q, Q ".lora_A.weight F32 64x4\n" Q ".lora_B.weight F32 4x64", LAM_E_TRANSPOSED, "A [64, 4] and B [4, 64]", NULL},
    {"transposed", ONLY_V, V ".lora_A.weight F32 64x4\n" V ".lora_B.weight F32 4x32", LAM_E_TRANSPOSED, "attn_v", NULL},
    {"B transposed", ONLY_V, V ".lora_A.weight F32 4x64\n" V ".lora_B.weight F32 4x32", LAM_E_TRANSPOSED_B, "of which B is transposed", NULL},
    {"A transposed", ONLY_V, V ".lora_A.weight F32 64x4\n" V ".lora_B.weight F32 32x4", LAM_E_TRANSPOSED, "of which A is transposed", NULL},
    {"ambiguous", "\"r\": 64, \"target_modules\": [\"layers.0.self_attn.q_proj\"]", Q ".lora_A.weight F32 64x64\n" Q ".lora_B.weight F32 64x64",
     LAM_E_AMBIGUOUS, "square (64)", NULL},
    {"wrong width", ONLY_V, V ".lora_A.weight F32 4x60\n" V ".lora_B.weight F32 32x4", LAM_E_SHAPE, "A [4, 60] and B [32, 4]; blk.0.attn_v takes A "
     "[rank, 64] and B [32, rank]", NULL},
    {"another width in every module", "\"r\": 4, \"target_modules\": [\"q_proj\"]",
     Q ".lora_A.weight F32 4x576\n" Q ".lora_B.weight F32 576x4\n" Q1 ".lora_A.weight F32 4x576\n" Q1 ".lora_B.weight F32 576x4", LAM_E_SHAPE,
     "made for another model: 2 of its 2 modules have other shapes than the base's. base_model.model.model.layers.0.self_attn.q_proj.lora_A", NULL},
    {"another width in one module", "\"r\": 4, \"target_modules\": [\"q_proj\"]",
     Q_PAIR "\n" Q1 ".lora_A.weight F32 4x576\n" Q1 ".lora_B.weight F32 576x4", LAM_E_SHAPE, "1 of its 2 modules", NULL},
    {"a vector as factor", ONLY_V, V ".lora_A.weight F32 256\n" V ".lora_B.weight F32 32x4", LAM_E_SHAPE, "1 dimensions", NULL},
    {"A without B", ONLY_V, V ".lora_A.weight F32 4x64", LAM_E_MISSING_PAIR, "v_proj.lora_A.weight", NULL},
    {"B without A", ONLY_V, V ".lora_B.weight F32 32x4", LAM_E_MISSING_PAIR, "v_proj.lora_B.weight", NULL},
    {"rank 0", ONLY_V, V ".lora_A.weight F32 0x64\n" V ".lora_B.weight F32 32x0", LAM_E_RANK, "rank 0", NULL},
    {"ranks disagree", ONLY_V, V ".lora_A.weight F32 4x64\n" V ".lora_B.weight F32 32x5", LAM_E_RANK, "A has rank 4, B has rank 5", NULL},
    {"another rank than configured", "\"r\": 8, \"target_modules\": [\"layers.0.self_attn.v_proj\"]", V_PAIR, LAM_E_RANK,
     "rank 4, the configuration says 8", NULL},
    {"another rank than its pattern", ONLY_V ", \"rank_pattern\": {\"v_proj\": 6}", V_PAIR, LAM_E_RANK, "the configuration says 6", NULL},
    {"NaN in A", ONLY_V, V ".lora_A.weight F32 4x64 nan@130\n" V ".lora_B.weight F32 32x4", LAM_E_NON_FINITE,
     "v_proj.lora_A.weight: element 130 (row 2, column 2)", NULL},
    {"infinity in B", ONLY_V, V ".lora_A.weight BF16 4x64\n" V ".lora_B.weight BF16 32x4 inf@127", LAM_E_NON_FINITE,
     "v_proj.lora_B.weight: element 127 (row 31, column 3)", NULL},
    {"NaN in the last layer only", "\"r\": 4, \"target_modules\": [\"q_proj\"]",
     Q_PAIR "\n" Q1 ".lora_A.weight F32 4x64\n" Q1 ".lora_B.weight F32 64x4 nan@0", LAM_E_NON_FINITE, "layers.1.self_attn.q_proj.lora_B.weight: element 0 ", NULL},
    {"NaN in a bias", ONLY_Q ", \"bias\": \"lora_only\"", Q_PAIR "\n" Q ".base_layer.bias F32 64 nan@5", LAM_E_NON_FINITE, "element 5 ", "llama-bias"},
    {"float64", ONLY_V, V ".lora_A.weight F64 4x64\n" V ".lora_B.weight F32 32x4", LAM_E_DTYPE, "F64", NULL},
    {"more tokens in an embedding", "\"r\": 4, \"target_modules\": [\"embed_tokens\"]",
     "@model.embed_tokens.lora_embedding_A F32 4x290\n@model.embed_tokens.lora_embedding_B F32 64x4", LAM_E_TOKENIZER, "290 tokens, the base has 288", NULL},
    {"more tokens in a head", "\"r\": 4, \"target_modules\": [\"lm_head\"]",
     "@lm_head.lora_A.weight F32 4x64\n@lm_head.lora_B.weight F32 290x4", LAM_E_TOKENIZER, "290 tokens, the base has 288", NULL},
    {"a resized embedding", ONLY_V, V_PAIR "\n@model.embed_tokens.weight F32 290x64", LAM_E_TOKENIZER, "embed_tokens.weight: has 290 rows, the base has 288 tokens", NULL},
    {"another norm", ONLY_V, V_PAIR "\n@model.norm.weight F32 64", LAM_E_UNMATCHED, "does not mean (1): base_model.model.model.norm.weight", NULL},
    {"a whole matrix", ONLY_V, V_PAIR "\n" Q ".weight F32 64x64", LAM_E_UNMATCHED, "q_proj.weight", NULL},
    {"a saved module without its tensor", ONLY_V ", \"modules_to_save\": [\"model.norm\"]", V_PAIR, LAM_E_UNMATCHED, "without tensors (1): model.norm", NULL},
    {"a saved matrix turned", ONLY_V ", \"modules_to_save\": [\"layers.0.self_attn.k_proj\"]", V_PAIR "\n" K ".weight F32 64x32", LAM_E_TRANSPOSED,
     "k_proj.weight: is [64, 32]; blk.0.attn_k takes [32, 64]", NULL},
    {"a saved norm of another length", ONLY_V ", \"modules_to_save\": [\"model.norm\"]", V_PAIR "\n@model.norm.weight F32 63", LAM_E_SHAPE,
     "norm.weight: is [1, 63]; output_norm takes [1, 64]", NULL},
    {"a saved norm that is a matrix", ONLY_V ", \"modules_to_save\": [\"model.norm\"]", V_PAIR "\n@model.norm.weight F32 1x64", LAM_E_SHAPE, "norm.weight", NULL},
    {"a saved norm with NaN", ONLY_V ", \"modules_to_save\": [\"model.norm\"]", V_PAIR "\n@model.norm.weight F32 64 nan@63", LAM_E_NON_FINITE,
     "norm.weight: element 63", NULL},
    {"two heads of a tied base", ONLY_Q, Q_PAIR "\n@lm_head.weight F32 288x64\n@model.embed_tokens.weight F32 288x64", LAM_E_CONFLICT,
     "the base has one matrix for both", "qwen2-tied"},
    {"tied factors", "\"r\": 4, \"ensure_weight_tying\": true, \"target_modules\": [\"embed_tokens\"]",
     "@model.embed_tokens.lora_embedding_A F32 4x288\n@model.embed_tokens.lora_embedding_B F32 64x4", LAM_E_METHOD,
     "ensure_weight_tying ties the factors", "qwen2-tied"},
    {"a magnitude without DoRA", ONLY_Q, Q_PAIR "\n" Q ".lora_magnitude_vector F32 64", LAM_E_METHOD, "use_dora", NULL},
    {"DoRA without a magnitude", ONLY_Q ", \"use_dora\": true", Q_PAIR, LAM_E_MISSING_PAIR, "q_proj: use_dora is set", NULL},
    {"a short magnitude", ONLY_Q ", \"use_dora\": true", Q_PAIR "\n" Q ".lora_magnitude_vector F32 63", LAM_E_SHAPE,
     "is 1 by 63; the magnitude of blk.0.attn_q takes 64", NULL},
    {"a magnitude with infinity", ONLY_Q ", \"use_dora\": true", Q_PAIR "\n" Q ".lora_magnitude_vector F32 64 inf@1", LAM_E_NON_FINITE, "element 1 ", NULL},
    {"DoRA on an embedding", "\"r\": 4, \"use_dora\": true, \"target_modules\": [\"embed_tokens\"]",
     "@model.embed_tokens.lora_embedding_A F32 4x288\n@model.embed_tokens.lora_embedding_B F32 64x4\n@model.embed_tokens.lora_magnitude_vector F32 64",
     LAM_E_METHOD, "use_dora", NULL},
    {"a bias of B", ONLY_Q, Q_PAIR "\n" Q ".lora_B.bias F32 64", LAM_E_METHOD, "lora_bias", NULL},
    {"no bias of B", ONLY_Q ", \"lora_bias\": true", Q_PAIR, LAM_E_MISSING_PAIR, "q_proj: lora_bias is set", NULL},
    {"a long bias of B", ONLY_Q ", \"lora_bias\": true", Q_PAIR "\n" Q ".lora_B.bias F32 65", LAM_E_SHAPE, "the bias of B of blk.0.attn_q takes 64", NULL},
    {"an activated embedding", "\"r\": 4, \"alora_invocation_tokens\": [3], \"target_modules\": [\"embed_tokens\"]",
     "@model.embed_tokens.lora_embedding_A F32 4x288\n@model.embed_tokens.lora_embedding_B F32 64x4", LAM_E_METHOD,
     "model.embed_tokens: alora_invocation_tokens on an embedding", NULL},
    {"an invocation of other tokens", ONLY_V ", \"alora_invocation_tokens\": [3, 288]", V_PAIR, LAM_E_TOKENIZER, "token 288 (number 1); the base has 288", NULL},
    {"IA3's vector in a LoRA", ONLY_V, V_PAIR "\n" V ".ia3_l F32 32x1", LAM_E_METHOD, "ia3_l: belongs to IA3", NULL},
    {"rows of tokens that nothing tells", ONLY_V, V_PAIR "\n@model.embed_tokens.token_adapter.trainable_tokens_delta F32 2x64", LAM_E_METHOD,
     "belongs to trainable_token_indices", NULL},
    {"tokens without rows", ONLY_V ", \"trainable_token_indices\": [3]", V_PAIR, LAM_E_UNMATCHED, "model.embed_tokens: trainable_token_indices", NULL},
    {"more rows than tokens", ONLY_V ", \"trainable_token_indices\": [3]", V_PAIR "\n@model.embed_tokens.token_adapter.trainable_tokens_delta F32 2x64",
     LAM_E_SHAPE, "is 2 by 64; trainable_token_indices has 1 tokens of 64 values", NULL},
    {"a row of an added token", ONLY_V ", \"trainable_token_indices\": [288]", V_PAIR "\n@model.embed_tokens.token_adapter.trainable_tokens_delta F32 1x64",
     LAM_E_TOKENIZER, "is for token 288", NULL},
    {"a token twice", ONLY_V ", \"trainable_token_indices\": [3, 3]", V_PAIR "\n@model.embed_tokens.token_adapter.trainable_tokens_delta F32 2x64",
     LAM_E_DUPLICATE, "two rows for token 3", NULL},
    {"a row with NaN", ONLY_V ", \"trainable_token_indices\": [3]", V_PAIR "\n@model.embed_tokens.token_adapter.trainable_tokens_delta F32 1x64 nan@2",
     LAM_E_NON_FINITE, "trainable_tokens_delta: element 2", NULL},
    {"tokens of another module", ONLY_V ", \"trainable_token_indices\": {\"q_proj\": [3]}", V_PAIR, LAM_E_METHOD, "q_proj: trainable_token_indices", NULL},
    {"tokens of an adapted embedding", "\"r\": 4, \"target_modules\": [\"embed_tokens\"], \"trainable_token_indices\": [3]",
     "@model.embed_tokens.lora_embedding_A F32 4x288\n@model.embed_tokens.lora_embedding_B F32 64x4\n"
     "@model.embed_tokens.token_adapter.trainable_tokens_delta F32 1x64", LAM_E_METHOD, "together with another change", NULL},
    {"embedding factors of a linear layer", ONLY_Q, Q ".lora_embedding_A F32 4x64\n" Q ".lora_embedding_B F32 64x4", LAM_E_UNMATCHED, "lora_embedding_A", NULL},
    {"a bias that the base lacks", ONLY_Q ", \"bias\": \"lora_only\"", Q_PAIR "\n" Q ".base_layer.bias F32 64", LAM_E_UNMATCHED, "has no bias", NULL},
    {"a bias of a norm", ONLY_Q ", \"bias\": \"all\"", Q_PAIR "\n@model.norm.bias F32 64", LAM_E_UNMATCHED, "has no bias", NULL},
    {"a bias though none is asked for", ONLY_Q, Q_PAIR "\n" Q ".base_layer.bias F32 64", LAM_E_UNMATCHED, "base_layer.bias", "llama-bias"},
    {"a bias of a module that is no target", ONLY_Q ", \"bias\": \"lora_only\"", Q_PAIR "\n" V ".bias F32 32", LAM_E_UNMATCHED, "v_proj.bias", "llama-bias"},
    {"a short bias", ONLY_Q ", \"bias\": \"all\"", Q_PAIR "\n" V ".bias F32 31", LAM_E_SHAPE, "v_proj.bias", "llama-bias"},
    {"one bias twice", ONLY_Q ", \"bias\": \"all\"", Q_PAIR "\n" Q ".bias F32 64\n" Q ".base_layer.bias F32 64", LAM_E_DUPLICATE, "q_proj.bias", "llama-bias"},
    {"two adapters", ONLY_Q, Q ".lora_A.one.weight F32 4x64\n" Q ".lora_B.two.weight F32 64x4", LAM_E_DUPLICATE, "\"two\"", NULL},
    {"an adapter without a name", ONLY_Q, Q ".lora_A..weight F32 4x64\n" Q ".lora_B..weight F32 64x4", LAM_E_UNMATCHED, "lora_A..weight", NULL},
    {"a name with a dot", ONLY_Q, Q ".lora_A.a.b.weight F32 4x64\n" Q ".lora_B.a.b.weight F32 64x4", LAM_E_UNMATCHED, "lora_A.a.b.weight", NULL},
    {"an unknown field", ONLY_V ", \"alpha\": 16", V_PAIR, LAM_E_UNKNOWN_FIELD, "alpha", NULL},
    {"another variant", "\"use_qalora\": true", V_PAIR, LAM_E_METHOD, "use_qalora", NULL},
};

/* Of IA3: PEFT's vector is [d_out, 1], or [1, d_in] of a feed-forward module. */
static const struct {
    const char *label, *config, *tensors;
    lam_code code;
    const char *named;
} ia3_cases[] = {
    {"the other way round", IA3_V, V ".ia3_l F32 1x64", LAM_E_TRANSPOSED, "is [1, 64] and scales what goes into blk.0.attn_v; feedforward_modules "
     "says that it scales what comes out"},
    {"the other way round, feed-forward", "\"target_modules\": [\"layers.0.self_attn.v_proj\"], \"feedforward_modules\": [\"v_proj\"]",
     V ".ia3_l F32 32x1", LAM_E_TRANSPOSED, "feedforward_modules says that it scales what goes in"},
    {"another width", IA3_V, V ".ia3_l F32 31x1", LAM_E_SHAPE, "is [31, 1]; blk.0.attn_v takes [32, 1]"},
    {"one dimension", IA3_V, V ".ia3_l F32 32", LAM_E_SHAPE, "blk.0.attn_v takes [32, 1]"},
    {"not finite", IA3_V, V ".ia3_l F32 32x1 nan@31", LAM_E_NON_FINITE, "v_proj.ia3_l: element 31"},
    {"no tensor", IA3_V, Q ".ia3_l F32 64x1", LAM_E_UNMATCHED, "does not mean (1): base_model.model.model.layers.0.self_attn.q_proj.ia3_l"},
    {"factors", IA3_V, V ".ia3_l F32 32x1\n" V_PAIR, LAM_E_METHOD, "belongs to LORA"},
    {"a norm", "\"target_modules\": [\"model.norm\"], \"feedforward_modules\": []", "@model.norm.ia3_l F32 64x1", LAM_E_UNMATCHED, "norm.ia3_l"},
    {"an embedding", "\"target_modules\": [\"embed_tokens\"], \"feedforward_modules\": []", "@model.embed_tokens.ia3_l F32 64x1", LAM_E_UNMATCHED, "ia3_l"},
};

static void faults_of_ia3_are_refused_by_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ia3_cases / sizeof *ia3_cases; i++) {
        const char *dir = fresh_folder("case");
        char text[512];
        snprintf(text, sizeof text, "{\"peft_type\": \"IA3\", %s}", ia3_cases[i].config);
        put_file(dir, "adapter_config.json", text);
        put_tensors(dir, ia3_cases[i].tensors, 0);
        refused(ia3_cases[i].label, dir, base_of("llama-gqa"), ia3_cases[i].code, ia3_cases[i].named);
    }
}

static void faults_are_refused_by_code_and_leave_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *dir = fresh_folder("case");
        put_config(dir, cases[i].config);
        put_tensors(dir, cases[i].tensors, 0);
        refused(cases[i].label, dir, base_of(cases[i].base ? cases[i].base : "llama-gqa"), cases[i].code, cases[i].named);
    }
}

static void golden_refusals_name_the_reason(void **state)
{
    (void)state;
    refused("target_parameters", ADAPTERS "llama-gqa/target-parameters", base_of("llama-gqa"), LAM_E_METHOD, "target_parameters");
    refused("another architecture", ADAPTERS "qwen2-tied/all-r4", base_of("llama-gqa"), LAM_E_UNMATCHED, "it has 3 layers or more, the base 2");
    refused("another architecture", ADAPTERS "qwen2-tied/all-r4.gguf", base_of("llama-gqa"), LAM_E_WRONG_BASE, "qwen2");
}

static void files_and_folders_are_refused_precisely(void **state)
{
    (void)state;
    const char *dir = fresh_folder("case"), *base = base_of("llama-gqa");
    refused("nothing there", in_folder("nothing"), base, LAM_E_NOT_FOUND, "nothing");
    refused("an empty folder", dir, base, LAM_E_MAGIC, "adapter_config.json");
    put_config(dir, ONLY_V);
    refused("no tensors", dir, base, LAM_E_NOT_FOUND, "adapter_model.safetensors");
    put_file(dir, "adapter_model.bin", "PK\003\004");
    refused("a pickle", dir, base, LAM_E_UNSUPPORTED, "adapter_model.bin is a Python pickle");
    char pickle[600];
    snprintf(pickle, sizeof pickle, "%s/adapter_model.bin", dir);
    refused("the pickle itself", pickle, base, LAM_E_UNSUPPORTED, "adapter_model.bin is a Python pickle");
    put_tensors(dir, V_PAIR, 1);
    refused("one byte short", dir, base, LAM_E_TRUNCATED, "v_proj.lora_B.weight");
    put_tensors(dir, V_PAIR, 0);
    put_file(dir, "adapter_config.json", "{\"peft_type\": \"LORA\"");
    refused("half a configuration", dir, base, LAM_E_FORMAT, "adapter_config.json");
    put_file(dir, "adapter_config.json", "{\"lora_parameters\": {\"rank\": 8, \"scale\": 2.0}, \"lora_layers\": 2, \"model\": \"m\"}");
    refused("MLX's layout", dir, base, LAM_E_METHOD, "MLX");
    static const char overlap[] = "{\"base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],"
                                  "\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[4,12]}}";
    char bytes[sizeof overlap + 20] = {0};
    lam_store_u64((uint8_t *)bytes, sizeof overlap - 1);
    memcpy(bytes + 8, overlap, sizeof overlap - 1);
    char path[600];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    write_text(path, bytes, 8 + sizeof overlap - 1 + 12);
    put_config(dir, ONLY_V);
    refused("overlapping tensors", dir, base, LAM_E_OVERLAP, "tensor b");
    refused("a model", GOLDEN "llama-gqa", base, LAM_E_ARGUMENT, "not an adapter");
    refused("a GGUF model", GOLDEN "llama-gqa/llama-gqa-f32.gguf", base, LAM_E_ARGUMENT, "not an adapter");
    refused("a base", base, base, LAM_E_ARGUMENT, "not an adapter");
    take(ADAPTERS "llama-gqa/head", base, in_folder("adapter.slm"));
    refused("an imported adapter", in_folder("adapter.slm"), base, LAM_E_ARGUMENT, "already");
    refused("an adapter as base", ADAPTERS "llama-gqa/head", in_folder("adapter.slm"), LAM_E_ARGUMENT, "not a base");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_of_ia3_are_refused_by_code), cmocka_unit_test(faults_are_refused_by_code_and_leave_nothing),
        cmocka_unit_test(golden_refusals_name_the_reason), cmocka_unit_test(files_and_folders_are_refused_precisely),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
