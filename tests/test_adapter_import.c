/* Importing adapters: what PEFT and llama.cpp wrote is taken whole, everything else is refused with its own code and leaves no file.
 * Models and adapters: tests/golden, by transformers, PEFT and llama.cpp's converters. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "base/alloc.h"
#include "base/cursor.h"
#include "base/files.h"
#include "base/os.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "format/slm.h"
#include "import/import.h"
#include "model/model.h"
#include "tensor/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN "tests/golden/"
#define ADAPTERS GOLDEN "adapters/"

static char *folder; /* of this run: bases, written adapters */

/* The path of a name in it; lasts until the tests end. */
static const char *in_folder(const char *name)
{
    static char *paths[128];
    static size_t n;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (size_t i = 0; i < n; i++)
        if (strcmp(paths[i], path) == 0) return paths[i];
    assert_true(n < sizeof paths / sizeof *paths);
    paths[n] = strdup(path);
    assert_non_null(paths[n]);
    return paths[n++];
}

/* The imported base, "llama-gqa" or "llama-gqa-f32" (from its GGUF); made once. */
static const char *base_of(const char *name)
{
    char file[128], source[256];
    snprintf(file, sizeof file, "base-%s.slm", name);
    const char *path = in_folder(file), *dash = strrchr(name, '-');
    if (lam_path_exists(path)) return path;
    snprintf(source, sizeof source, GOLDEN "%s", name);
    if (!lam_path_is_dir(source)) snprintf(source, sizeof source, GOLDEN "%.*s/%s.gguf", (int)(dash - name), name, name);
    lam_error err = {0};
    assert_ok(lam_import_base(source, path, NULL, &err), err);
    return path;
}

static int make_all(void **state)
{
    (void)state;
    folder = test_make_folder();
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    test_remove_folder(folder);
    return 0;
}

/* Imports, or fails the test. */
static struct lam_adapter_report take(const char *source, const char *base, const char *out)
{
    struct lam_adapter_report report;
    lam_error err = {0};
    lam_code code = lam_import_adapter(source, base, out, NULL, &report, &err);
    if (code != LAM_OK) fail_msg("%s on %s: %s %s", source, base, lam_code_name(code), err.message);
    assert_true(report.n_tensors > 0);
    assert_int_equal(report.n_tensors, report.n_applied);
    return report;
}

/* Fails unless the import fails with code, names what is wrong, and leaves nothing in its folder. */
static void refused(const char *label, const char *source, const char *base, lam_code wanted, const char *named)
{
    const char *out_folder = in_folder("refused"), *out = in_folder("refused/out.slm");
    struct lam_adapter_report report;
    lam_error err = {0};
    assert_ok(lam_make_dirs(out_folder, &err), err);
    lam_code code = lam_import_adapter(source, base, out, NULL, &report, &err);
    if (code != wanted || err.code != wanted || !strstr(err.message, named))
        fail_msg("%s: %s %s; wanted %s and \"%s\"", label, lam_code_name(code), err.message, lam_code_name(wanted), named);
    if (report.n_faults && report.faults[0].code != wanted) fail_msg("%s: the first fault is another one", label);
    lam_memory_free(report.faults);
    char **names;
    size_t n;
    assert_ok(lam_list_dir(out_folder, &names, &n, &err), err);
    if (n) fail_msg("%s: %s is left", label, names[0]);
    lam_free_names(names, n);
}

static void write_text(const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
}

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_text(path, text, strlen(text));
}

/* A fresh adapter folder with one of the names below. */
static const char *fresh_folder(const char *name)
{
    const char *path = in_folder(name);
    char file[600];
    lam_error err = {0};
    static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "added_tokens.json",
                                        "tokenizer.json", "tokenizer_config.json", "vocab.json", "chat_template.jinja"};
    assert_ok(lam_make_dirs(path, &err), err);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(file, sizeof file, "%s/%s", path, files[i]);
        lam_remove_file(file, NULL);
    }
    return path;
}

static void put_config(const char *dir, const char *members)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"lora_alpha\": 8, %s}", members);
    put_file(dir, "adapter_config.json", text);
}

static size_t item_size(const char *dtype)
{
    return strcmp(dtype, "F64") == 0 ? 8 : strcmp(dtype, "F32") == 0 ? 4 : 2;
}

static void put_item(char *at, const char *dtype, uint32_t f32_bits)
{
    if (strcmp(dtype, "F32") == 0) lam_store_u32((uint8_t *)at, f32_bits);
    else if (strcmp(dtype, "BF16") == 0) lam_store_u16((uint8_t *)at, (uint16_t)(f32_bits >> 16));
    else memset(at, 0, item_size(dtype)); /* F16 0, F64 0 */
}

/* adapter_model.safetensors from lines "<key> <dtype> <rows>x<cols>" or "<key> <dtype> <n>", perhaps with " nan@<index>",
 * " inf@<index>", " zero" or " one"; "@" at the beginning of a key stands for "base_model.model.". cut bytes are taken off its end. */
static void put_tensors(const char *dir, const char *lines, size_t cut)
{
    struct lam_str header = {0}, data = {0};
    uint64_t random = 1;
    assert_true(lam_str_puts(&header, "{"));
    for (const char *line = lines; *line;) {
        char key[512], dtype[8], shape[32], extra[32] = "";
        const char *end = strchr(line, '\n');
        size_t len = end ? (size_t)(end - line) : strlen(line);
        char one[640];
        snprintf(one, sizeof one, "%.*s", (int)len, line);
        assert_true(sscanf(one, "%511s %7s %31s %31s", key, dtype, shape, extra) >= 3);
        unsigned rows = 1, cols = 0, marked = 0;
        bool matrix = sscanf(shape, "%ux%u", &rows, &cols) == 2;
        size_t n = matrix ? (size_t)rows * cols : rows, begin = data.len;
        for (size_t i = 0; i < n; i++) {
            char item[8];
            float value = 0.25f * test_random_float(&random);
            uint32_t bits;
            memcpy(&bits, &value, 4);
            if (strcmp(extra, "zero") == 0) bits = 0;
            if (strcmp(extra, "one") == 0) bits = 0x3f800000;
            if (sscanf(extra, "nan@%u", &marked) == 1 && i == marked) bits = 0x7fc00000;
            if (sscanf(extra, "inf@%u", &marked) == 1 && i == marked) bits = 0xff800000;
            put_item(item, dtype, bits);
            assert_true(lam_str_append(&data, item, item_size(dtype)));
        }
        char dims[40];
        if (matrix) snprintf(dims, sizeof dims, "%u,%u", rows, cols);
        else snprintf(dims, sizeof dims, "%u", rows);
        assert_true(lam_str_printf(&header, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                                   header.len > 1 ? "," : "", key[0] == '@' ? "base_model.model." : "", key + (key[0] == '@'), dtype,
                                   dims, begin, data.len));
        line = end ? end + 1 : line + len;
    }
    assert_true(lam_str_puts(&header, "}"));
    struct lam_str file = {0};
    uint8_t size[8];
    lam_store_u64(size, header.len);
    assert_true(lam_str_append(&file, size, 8) && lam_str_append(&file, header.data, header.len));
    if (data.len) assert_true(lam_str_append(&file, data.data, data.len));
    char path[600];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    write_text(path, file.data, file.len - cut);
    lam_str_release(&header);
    lam_str_release(&data);
    lam_str_release(&file);
}

static size_t module_count(const char *slm)
{
    lam_error err = {0};
    struct lam_slm *s;
    assert_ok(lam_slm_open(slm, &s, &err), err);
    size_t n = json_array_size(json_object_get(s->metadata, "modules"));
    lam_slm_close(s);
    return n;
}

/* What was written opens on its base, and the digest that the import told is the adapter's. */
static void opens_on_base(const char *slm, const char *base, const struct lam_adapter_report *report)
{
    lam_error err = {0};
    struct lam_model *model;
    struct lam_adapter *adapter;
    assert_ok(lam_model_open(base, &model, &err), err);
    assert_ok(lam_adapter_open(slm, &model->targets, false, &adapter, &err), err);
    assert_int_equal(adapter->n_modules, report->n_modules);
    assert_string_equal(adapter->digest, report->digest);
    lam_adapter_free(adapter);
    lam_model_close(model);
}

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

#define Q "@model.layers.0.self_attn.q_proj"
#define V "@model.layers.0.self_attn.v_proj"
#define K "@model.layers.0.self_attn.k_proj"
#define Q1 "@model.layers.1.self_attn.q_proj"
#define ONLY_Q "\"r\": 4, \"target_modules\": [\"layers.0.self_attn.q_proj\"]"
#define ONLY_V "\"r\": 4, \"target_modules\": [\"layers.0.self_attn.v_proj\"]"
#define Q_PAIR Q ".lora_A.weight F32 4x64\n" Q ".lora_B.weight F32 64x4"
#define V_PAIR V ".lora_A.weight F32 4x64\n" V ".lora_B.weight F32 32x4"
#define IA3_V "\"target_modules\": [\"layers.0.self_attn.v_proj\"], \"feedforward_modules\": []"
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

static void copy_file(const char *from, const char *dir, const char *name)
{
    size_t size;
    uint8_t *bytes = test_read_file(from, &size);
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_text(path, (const char *)bytes, size);
    free(bytes);
}

/* A text file with the first `old` replaced. */
static void copy_edited(const char *from, const char *dir, const char *name, const char *old, const char *fresh)
{
    char *text = (char *)test_read_file(from, NULL), *at = strstr(text, old);
    assert_non_null(at);
    struct lam_str edited = {0};
    assert_true(lam_str_append(&edited, text, (size_t)(at - text)) && lam_str_puts(&edited, fresh) && lam_str_puts(&edited, at + strlen(old)));
    put_file(dir, name, edited.data);
    lam_str_release(&edited);
    free(text);
}

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
        cmocka_unit_test(adapters_of_peft_are_taken_whole), cmocka_unit_test(every_method_is_what_peft_makes_of_it),
        cmocka_unit_test(whole_embeddings_go_where_peft_puts_them), cmocka_unit_test(copies_of_the_base_are_dropped_and_counted),
        cmocka_unit_test(any_rank_is_taken), cmocka_unit_test(what_has_no_effect_is_counted),
        cmocka_unit_test(faults_of_ia3_are_refused_by_code), cmocka_unit_test(a_template_must_be_the_bases),
        cmocka_unit_test(another_tokenizer_can_be_accepted), cmocka_unit_test(norms_and_invocations_of_a_gguf_are_taken),
        cmocka_unit_test(ranks_and_alphas_follow_the_patterns),
        cmocka_unit_test(peft_and_gguf_give_the_same_adapter), cmocka_unit_test(tensors_equal_llama_cpps_conversion),
        cmocka_unit_test(biases_follow_the_rows), cmocka_unit_test(faults_are_refused_by_code_and_leave_nothing),
        cmocka_unit_test(a_list_too_long_says_how_many_are_left), cmocka_unit_test(a_message_is_never_cut_within_a_name),
        cmocka_unit_test(every_unmatched_tensor_is_listed), cmocka_unit_test(modules_and_biases_are_listed_too),
        cmocka_unit_test(all_faults_are_told_at_once),
        cmocka_unit_test(golden_refusals_name_the_reason),
        cmocka_unit_test(files_and_folders_are_refused_precisely), cmocka_unit_test(limits_and_cancelling_leave_nothing),
        cmocka_unit_test(paths_and_key_names_do_not_matter), cmocka_unit_test(an_import_is_deterministic),
        cmocka_unit_test(factors_keep_their_types), cmocka_unit_test(a_tokenizer_must_be_the_bases),
        cmocka_unit_test(ggufs_are_refused_by_code), cmocka_unit_test(alpha_0_in_a_gguf_means_scale_1),
        cmocka_unit_test(names_are_cleaned), cmocka_unit_test(another_base_name_is_a_warning),
    };
    return cmocka_run_group_tests(tests, make_all, remove_all);
}
