/* Adapters written file by file, and imported on bases of tests/golden: what the tests of importing adapters share. */
#ifndef LAM_TESTS_ADAPTER_SOURCES_H
#define LAM_TESTS_ADAPTER_SOURCES_H

#include "support.h"

#include "base/alloc.h"
#include "base/cursor.h"
#include "base/files.h"
#include "base/os.h"
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

/* The path of a name in it; lasts until the tests end. */
static inline const char *in_folder(const char *name)
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
static inline const char *base_of(const char *name)
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

static inline int make_folder(void **state)
{
    (void)state;
    folder = test_make_folder();
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    test_remove_folder(folder);
    return 0;
}

/* Imports, or fails the test. */
static inline struct lam_adapter_report take(const char *source, const char *base, const char *out)
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
static inline void refused(const char *label, const char *source, const char *base, lam_code wanted, const char *named)
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

static inline void write_text(const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
}

static inline void put_file(const char *dir, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_text(path, text, strlen(text));
}

static inline void copy_file(const char *from, const char *dir, const char *name)
{
    size_t size;
    uint8_t *bytes = test_read_file(from, &size);
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_text(path, (const char *)bytes, size);
    free(bytes);
}

/* A text file with the first `old` replaced. */
static inline void copy_edited(const char *from, const char *dir, const char *name, const char *old, const char *fresh)
{
    char *text = (char *)test_read_file(from, NULL), *at = strstr(text, old);
    assert_non_null(at);
    struct lam_str edited = {0};
    assert_true(lam_str_append(&edited, text, (size_t)(at - text)) && lam_str_puts(&edited, fresh) && lam_str_puts(&edited, at + strlen(old)));
    put_file(dir, name, edited.data);
    lam_str_release(&edited);
    free(text);
}

/* A fresh adapter folder with one of the names below. */
static inline const char *fresh_folder(const char *name)
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

static inline void put_config(const char *dir, const char *members)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"lora_alpha\": 8, %s}", members);
    put_file(dir, "adapter_config.json", text);
}

static inline size_t item_size(const char *dtype)
{
    return strcmp(dtype, "F64") == 0 ? 8 : strcmp(dtype, "F32") == 0 ? 4 : 2;
}

static inline void put_item(char *at, const char *dtype, uint32_t f32_bits)
{
    if (strcmp(dtype, "F32") == 0) lam_store_u32((uint8_t *)at, f32_bits);
    else if (strcmp(dtype, "BF16") == 0) lam_store_u16((uint8_t *)at, (uint16_t)(f32_bits >> 16));
    else memset(at, 0, item_size(dtype)); /* F16 0, F64 0 */
}

/* adapter_model.safetensors from lines "<key> <dtype> <rows>x<cols>" or "<key> <dtype> <n>", perhaps with " nan@<index>",
 * " inf@<index>", " zero" or " one"; "@" at the beginning of a key stands for "base_model.model.". cut bytes are taken off its end. */
static inline void put_tensors(const char *dir, const char *lines, size_t cut)
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

static inline size_t module_count(const char *slm)
{
    lam_error err = {0};
    struct lam_slm *s;
    assert_ok(lam_slm_open(slm, &s, &err), err);
    size_t n = json_array_size(json_object_get(s->metadata, "modules"));
    lam_slm_close(s);
    return n;
}

/* What was written opens on its base, and the digest that the import told is the adapter's. */
static inline void opens_on_base(const char *slm, const char *base, const struct lam_adapter_report *report)
{
    lam_error err = {0};
    struct lam_model *model;
    struct lam_adapter *adapter;
    assert_ok(lam_model_open(base, NULL, &model, &err), err);
    assert_ok(lam_adapter_open(slm, &model->targets, false, &adapter, &err), err);
    assert_int_equal(adapter->n_modules, report->n_modules);
    assert_string_equal(adapter->digest, report->digest);
    lam_adapter_free(adapter);
    lam_model_close(model);
}

/* Modules of llama-gqa, as put_tensors and put_config take them. */
#define Q "@model.layers.0.self_attn.q_proj"
#define V "@model.layers.0.self_attn.v_proj"
#define K "@model.layers.0.self_attn.k_proj"
#define Q1 "@model.layers.1.self_attn.q_proj"
#define ONLY_Q "\"r\": 4, \"target_modules\": [\"layers.0.self_attn.q_proj\"]"
#define ONLY_V "\"r\": 4, \"target_modules\": [\"layers.0.self_attn.v_proj\"]"
#define Q_PAIR Q ".lora_A.weight F32 4x64\n" Q ".lora_B.weight F32 64x4"
#define V_PAIR V ".lora_A.weight F32 4x64\n" V ".lora_B.weight F32 32x4"
#define IA3_V "\"target_modules\": [\"layers.0.self_attn.v_proj\"], \"feedforward_modules\": []"

#endif
