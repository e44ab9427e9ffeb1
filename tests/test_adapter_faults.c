/* How faults are told: all at once, every tensor by its name in a sorted list, and a message that is never cut within one. */
#define _XOPEN_SOURCE 700
#include "adapter_sources.h"

static void a_list_too_long_says_how_many_are_left(void **state)
{
    (void)state;
    struct lam_str lines = {0};
    for (int i = 0; i < 40; i++)
        assert_true(lam_str_printf(&lines, "%s@model.layers.%d.self_attn.q_proj.lora_A.weight F32 4x64", i ? "\n" : "", 9 + i));
    const char *dir = fresh_folder("case");
    put_config(dir, ONLY_Q);
    put_tensors(dir, lines.data, 0);
    lam_str_release(&lines);
    refused("40 foreign tensors", dir, base_of("llama-gqa"), LAM_E_UNMATCHED,
            "made for another model: it has 49 layers or more, the base 2; tensors that match no module of the base (40): "
            "base_model.model.model.layers.10.self_attn.q_proj.lora_A.weight, base_model.model.model.layers.11.self_attn.q_proj.lora_A.weight, and 38 more");
}

/* Imports what is refused with code: the subjects of its faults of that code in *list, a line each, released by the caller. */
static void subjects_of(const char *dir, const char *base, lam_code code, struct lam_str *list)
{
    struct lam_adapter_report report;
    lam_error err = {0};
    assert_int_equal(lam_import_adapter(dir, base, in_folder("unmatched.slm"), NULL, NULL, &err), code);
    assert_int_equal(lam_import_adapter(dir, base, in_folder("unmatched.slm"), NULL, &report, &err), code);
    assert_true(report.n_faults > 0);
    assert_int_equal(report.faults[0].code, code);
    assert_true(lam_str_puts(list, ""));
    for (size_t i = 0; i < report.n_faults; i++)
        if (report.faults[i].code == code) assert_true(lam_str_printf(list, "%s\n", report.faults[i].subject));
    lam_memory_free(report.faults);
}

static void subjects_are(const char *dir, const char *base, lam_code code, const char *wanted)
{
    struct lam_str list = {0};
    subjects_of(dir, base, code, &list);
    assert_string_equal(list.data, wanted);
    lam_str_release(&list);
}

/* 4 layers of 7 matrices with 2 factors, saved under a multimodal model's prefix, in the reverse order. */
static void every_unmatched_tensor_is_listed(void **state)
{
    (void)state;
    static const char *const modules[] = {"mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "self_attn.k_proj", "self_attn.o_proj",
                                          "self_attn.q_proj", "self_attn.v_proj"}; /* sorted */
    struct lam_str sorted = {0}, lines = {0};
    for (int i = 0; i < 56; i++) {
        const char *module = modules[i / 2 % 7], *factor = i % 2 ? "B" : "A";
        int last = 55 - i;
        assert_true(lam_str_printf(&sorted, "base_model.model.language_model.model.layers.%d.%s.lora_%s.weight\n", i / 14, module, factor));
        assert_true(lam_str_printf(&lines, "%s@language_model.model.layers.%d.%s.lora_%s.weight F32 4x4", i ? "\n" : "", last / 14,
                                   modules[last / 2 % 7], last % 2 ? "B" : "A"));
    }
    const char *dir = fresh_folder("case");
    put_config(dir, ONLY_Q);
    put_tensors(dir, lines.data, 0);
    assert_true(lam_str_puts(&sorted, "model.layers.0.self_attn.q_proj\n")); /* that ONLY_Q means, and that has nothing */
    subjects_are(dir, base_of("llama-gqa"), LAM_E_UNMATCHED, sorted.data);
    lam_str_release(&sorted);
    lam_str_release(&lines);
}

static void modules_and_biases_are_listed_too(void **state)
{
    (void)state;
    const char *dir = fresh_folder("case"), *base = base_of("llama-gqa");
    put_config(dir, "\"r\": 4, \"target_modules\": [\"q_proj\", \"v_proj\", \"k_proj\"]");
    put_tensors(dir, V_PAIR "\n" Q1 ".lora_A.weight F32 4x64\n" Q1 ".lora_B.weight F32 64x4", 0);
    subjects_are(dir, base, LAM_E_UNMATCHED, "model.layers.0.self_attn.k_proj\nmodel.layers.0.self_attn.q_proj\n"
                                             "model.layers.1.self_attn.k_proj\nmodel.layers.1.self_attn.v_proj\n");
    put_config(dir, ONLY_Q);
    put_tensors(dir, V_PAIR "\n" Q_PAIR, 0);
    subjects_are(dir, base, LAM_E_UNMATCHED, "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight\n"
                                             "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight\n");
    put_config(dir, ONLY_Q ", \"bias\": \"all\"");
    put_tensors(dir, V ".bias F32 32\n" Q_PAIR "\n" Q ".base_layer.bias F32 64", 0);
    subjects_are(dir, base, LAM_E_UNMATCHED, "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias\n"
                                             "base_model.model.model.layers.0.self_attn.v_proj.bias\n");
    put_config(dir, ONLY_V);
    put_tensors(dir, V ".lora_A.weight F32 4x64", 0);
    subjects_are(dir, base, LAM_E_MISSING_PAIR, "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight\n");
}

/* Faults of every stage in one adapter: all are told, the first one's code is the call's. */
static void all_faults_are_told_at_once(void **state)
{
    (void)state;
    static const struct {
        lam_code code;
        const char *subject, *what;
    } wanted[] = {
        {LAM_E_TOKENIZER, "added_tokens.json", "token \"<|extra|>\" (288) is not the base's"},
        {LAM_E_UNMATCHED, "base_model.model.model.layers.9.mlp.up_proj.lora_A.weight", "matches no module of the base"},
        {LAM_E_UNMATCHED, "base_model.model.model.layers.0.mlp.up_proj.weight", "its module is not one that adapter_config.json means"},
        {LAM_E_UNMATCHED, "model.layers.1.self_attn.q_proj", "adapter_config.json means it, and it has no tensors"},
        {LAM_E_MISSING_PAIR, "base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight", "its other factor is missing"},
        {LAM_E_SHAPE, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
         "factors A [4, 60] and B [64, 4]; blk.0.attn_q takes A [rank, 64] and B [64, rank]"},
        {LAM_E_RANK, "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", "A has rank 4, B has rank 5"},
        {LAM_E_TRANSPOSED, "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight",
         "factors A [64, 4] and B [4, 32] are transposed; blk.0.attn_v takes A [rank, 64] and B [32, rank]"},
        {LAM_E_NON_FINITE, "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight", "element 127 (row 31, column 3) is NaN or infinite"},
    };
    const char *dir = fresh_folder("case");
    put_config(dir, "\"r\": 4, \"target_modules\": [\"q_proj\", \"k_proj\", \"v_proj\"]");
    put_file(dir, "added_tokens.json", "{\"<|extra|>\": 288}");
    put_tensors(dir, "@model.layers.9.mlp.up_proj.lora_A.weight F32 4x64\n@model.layers.0.mlp.up_proj.weight F32 108x64\n"
                Q ".lora_A.weight F32 4x60\n" Q ".lora_B.weight F32 64x4\n" V ".lora_A.weight F32 64x4\n" V ".lora_B.weight F32 4x32\n"
                K ".lora_A.weight F32 4x64\n" K ".lora_B.weight F32 32x5\n@model.layers.1.self_attn.k_proj.lora_A.weight F32 4x64\n"
                "@model.layers.1.self_attn.v_proj.lora_A.weight F32 4x64\n@model.layers.1.self_attn.v_proj.lora_B.weight F32 32x4 nan@127", 0);
    struct lam_adapter_report report;
    lam_error err = {0};
    assert_int_equal(lam_import_adapter(dir, base_of("llama-gqa"), in_folder("faults.slm"), NULL, &report, &err), LAM_E_TOKENIZER);
    assert_non_null(strstr(err.message, "added_tokens.json: token \"<|extra|>\" (288)"));
    for (size_t i = 0; i < report.n_faults && i < sizeof wanted / sizeof *wanted; i++) {
        const struct lam_fault *f = &report.faults[i];
        if (f->code != wanted[i].code || strcmp(f->subject, wanted[i].subject) != 0 || strcmp(f->what, wanted[i].what) != 0)
            fail_msg("fault %zu is %s %s: %s", i, lam_code_name(f->code), f->subject, f->what);
    }
    assert_int_equal(report.n_faults, sizeof wanted / sizeof *wanted);
    lam_memory_free(report.faults);
}

/* Three names of 150 bytes do not fit a message: as many as do are there in full. */
static void a_message_is_never_cut_within_a_name(void **state)
{
    (void)state;
    struct lam_str lines = {0};
    for (int i = 0; i < 3; i++)
        assert_true(lam_str_printf(&lines, "%s@model.layers.%d.%0110d.end F32 1", i ? "\n" : "", 7 + i, 0));
    const char *dir = fresh_folder("case");
    put_config(dir, ONLY_Q);
    put_tensors(dir, lines.data, 0);
    lam_str_release(&lines);
    refused("3 long names", dir, base_of("llama-gqa"), LAM_E_UNMATCHED, "0.end, and 2 more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_too_long_says_how_many_are_left), cmocka_unit_test(every_unmatched_tensor_is_listed),
        cmocka_unit_test(modules_and_biases_are_listed_too), cmocka_unit_test(all_faults_are_told_at_once),
        cmocka_unit_test(a_message_is_never_cut_within_a_name),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
