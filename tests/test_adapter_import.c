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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN "tests/golden/"
#define ADAPTERS GOLDEN "adapters/"

static char *folder; /* of this run: bases, written adapters */

static const char *in_folder(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 512, "%s/%s", folder, name);
    return path;
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

/* Imports; the report is also returned through a static. */
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
                                        "tokenizer.json", "tokenizer_config.json", "vocab.json"};
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
 * " inf@<index>" or " zero"; "@" at the beginning of a key stands for "base_model.model.". cut bytes are taken off its end. */
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
        /* The golden folders name the base by its folder's name, as does the import. */
        bool from_folder = !strpbrk(strstr(base, "base-") + 5, "_") && lam_path_is_dir(GOLDEN "llama-gqa");
        if (golden[i].warning && !strstr(r.warnings, golden[i].warning)) fail_msg("%s: warnings: %s", golden[i].adapter, r.warnings);
        if (!golden[i].warning && from_folder && strstr(r.warnings, "pattern")) fail_msg("%s: warnings: %s", golden[i].adapter, r.warnings);
        opens_on_base(out, base, &r);
    }
}
