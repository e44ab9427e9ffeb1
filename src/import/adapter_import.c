#include "import/adapter_import.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/str.h"
#include "base/utf8.h"
#include "format/gguf.h"
#include "format/safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 255 /* bytes */

void lam_adapter_warn(struct lam_adapter_import *import, const char *format, ...)
{
    char *text = import->report->warnings;
    size_t used = strlen(text), room = sizeof import->report->warnings - used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + used, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n + 1 >= room) {
        text[used] = 0;
        return;
    }
    lam_clean_line(text + used);
    strcpy(text + used + n, "\n");
}

/* How many layers a model has at least that has this tensor, in PEFT's names ("layers.7.") or GGUF's ("blk.7."); 0: not in a layer. */
static uint32_t layers_for(const char *tensor)
{
    const char *at = strstr(tensor, "layers.");
    if (at) at += strlen("layers.");
    else if (strncmp(tensor, "blk.", 4) == 0) at = tensor + 4;
    uint32_t layer = 0;
    const char *digit = at;
    for (; digit && *digit >= '0' && *digit <= '9' && layer < 100000; digit++) layer = layer * 10 + (uint32_t)(*digit - '0');
    return digit && digit > at && *digit == '.' ? layer + 1 : 0;
}

lam_code lam_adapter_fault_unmatched(struct lam_adapter_import *import, struct lam_names *tensors, size_t n_tensors, lam_error *err)
{
    static const char what[] = "tensors that match no module of the base";
    char text[180];
    uint32_t n_layers = 0;
    for (size_t i = 0; i < tensors->n; i++) {
        uint32_t n = layers_for(tensors->items[i]);
        if (n > n_layers) n_layers = n;
    }
    if (n_layers > import->config.n_layers)
        snprintf(text, sizeof text, "made for another model: it has %u layers or more, the base %u; %s", n_layers, import->config.n_layers,
                 what);
    else if (tensors->n == n_tensors)
        snprintf(text, sizeof text, "made for another model, or saved under other names: %s", what);
    else
        snprintf(text, sizeof text, "%s", what);
    return lam_names_fault(tensors, &import->faults, LAM_E_UNMATCHED, text, "matches no module of the base", err);
}

bool lam_adapter_has_factor(const struct lam_import_module *m)
{
    return m->parts[LAM_PART_A].tensor || m->parts[LAM_PART_B].tensor;
}

bool lam_adapter_is_changed(const struct lam_import_module *m)
{
    for (int part = 0; part < LAM_N_PARTS; part++)
        if (m->parts[part].tensor) return true;
    return false;
}

lam_code lam_adapter_set_name(struct lam_adapter_import *import, const char *text, size_t len, lam_error *err)
{
    struct lam_str clean = {0};
    bool ok = lam_str_puts(&clean, "") && lam_utf8_append_lossy(&clean, text, len);
    if (!ok) {
        lam_str_release(&clean);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's name");
    }
    for (size_t i = 0; i < clean.len; i++) {
        size_t control = lam_utf8_control((const uint8_t *)clean.data + i, clean.len - i);
        if (control || clean.data[i] == '/') memset(clean.data + i, '_', control ? control : 1);
    }
    size_t n = clean.len < MAX_NAME ? clean.len : MAX_NAME;
    n = lam_utf8_valid_prefix((const uint8_t *)clean.data, n);
    bool usable = n > 0 && !(n <= 2 && memcmp(clean.data, "..", n) == 0);
    lam_free(import->name);
    import->name = usable ? lam_strndup(clean.data, n) : lam_strdup("adapter");
    lam_str_release(&clean);
    return import->name ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's name");
}

static int compare_modules(const void *a, const void *b)
{
    return strcmp((*(struct lam_import_module *const *)a)->name, (*(struct lam_import_module *const *)b)->name);
}

static int compare_to_name(const void *key, const void *item)
{
    return strcmp(key, (*(struct lam_import_module *const *)item)->name);
}

struct lam_import_module *lam_adapter_find_module(const struct lam_adapter_import *import, const char *name)
{
    struct lam_import_module **found =
        bsearch(name, import->by_name, import->n_modules, sizeof *import->by_name, compare_to_name);
    return found ? *found : NULL;
}

struct lam_import_module *lam_adapter_find_kind(const struct lam_adapter_import *import, enum lam_module_kind kind)
{
    for (size_t i = 0; i < import->n_modules; i++)
        if (import->modules[i].kind == kind) return &import->modules[i];
    return NULL;
}

/* Copies text without its ending ".weight"; false if it does not end so. */
static bool copy_module_name(char *out, size_t size, const char *text)
{
    size_t len = strlen(text), ending = strlen(".weight");
    if (len <= ending || strcmp(text + len - ending, ".weight") != 0 || len - ending >= size) return false;
    memcpy(out, text, len - ending);
    out[len - ending] = 0;
    return true;
}

static enum lam_module_kind kind_of(enum lam_role role)
{
    if (role == LAM_ROLE_EMBEDDING) return LAM_MODULE_EMBEDDING;
    if (role == LAM_ROLE_OUTPUT) return LAM_MODULE_HEAD;
    return lam_role_is_matrix(role) ? LAM_MODULE_LINEAR : LAM_MODULE_NORM;
}

static void add_module(struct lam_adapter_import *import, const struct lam_tensor_spec *spec, uint32_t layer)
{
    struct lam_import_module *m = &import->modules[import->n_modules];
    char text[96];
    lam_tensor_name(spec, layer, text);
    if (!spec->hf || !copy_module_name(m->name, sizeof m->name, text)) return; /* biases and rotary factors are no modules */
    if (spec->in_layer) snprintf(text, sizeof text, "model.layers.%u.%s", layer, spec->hf);
    else snprintf(text, sizeof text, "%s%s", spec->role == LAM_ROLE_OUTPUT ? "" : "model.", spec->hf);
    if (!copy_module_name(m->hf_name, sizeof m->hf_name, text)) return;
    uint32_t rows, cols;
    lam_role_shape(&import->config, spec->role, &rows, &cols);
    m->role = spec->role;
    m->kind = kind_of(spec->role);
    m->layer = layer;
    m->d_in = m->kind == LAM_MODULE_EMBEDDING ? rows : cols;
    m->d_out = m->kind == LAM_MODULE_EMBEDDING ? cols : rows;
    snprintf(text, sizeof text, "%s.bias", m->name);
    m->has_bias = lam_role_bias(m->role) && lam_slm_find(import->base, text);
    import->n_modules++;
}

/* The embedding, the layers, then what comes after them. */
static lam_code list_modules(struct lam_adapter_import *import, lam_error *err)
{
    const struct lam_arch *arch = import->config.arch;
    size_t most = (size_t)(import->config.n_layers + 1) * arch->n_tensors;
    import->modules = lam_alloc(most, sizeof *import->modules);
    import->by_name = lam_alloc(most, sizeof *import->by_name);
    if (!import->modules || !import->by_name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu modules", most);
    for (size_t i = 0; i < arch->n_tensors; i++)
        if (arch->tensors[i].role == LAM_ROLE_EMBEDDING) add_module(import, &arch->tensors[i], LAM_LAYER_NONE);
    for (uint32_t layer = 0; layer < import->config.n_layers; layer++)
        for (size_t i = 0; i < arch->n_tensors; i++)
            if (arch->tensors[i].in_layer) add_module(import, &arch->tensors[i], layer);
    for (size_t i = 0; i < arch->n_tensors; i++)
        if (!arch->tensors[i].in_layer && arch->tensors[i].role != LAM_ROLE_EMBEDDING)
            add_module(import, &arch->tensors[i], LAM_LAYER_NONE);
    for (size_t i = 0; i < import->n_modules; i++) import->by_name[i] = &import->modules[i];
    qsort(import->by_name, import->n_modules, sizeof *import->by_name, compare_modules);
    return LAM_OK;
}

static lam_code open_base(struct lam_adapter_import *import, lam_error *err)
{
    LAM_TRY(lam_slm_open(import->base_path, &import->base, err));
    if (import->base->kind != LAM_SLM_BASE) return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is an adapter, not a base", import->base_path);
    LAM_TRY(lam_config_from_json(json_object_get(import->base->metadata, "config"), &import->config, err));
    return list_modules(import, err);
}

static bool is_peft_file(const char *path)
{
    static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(lam_path_base(path), files[i]) == 0) return true;
    return false;
}

/* A copy of the folder that path lies in; NULL when memory is lacking. */
static char *folder_of(const char *path)
{
    const char *name = lam_path_base(path);
    if (name == path) return lam_strdup(".");
    return lam_strndup(path, name == path + 1 ? 1 : (size_t)(name - path - 1));
}

/* path without slashes at its end, or the folder of one of a PEFT adapter's files (or of what such a link leads to). */
static lam_code clean_path(const char *path, char **out, bool *is_peft, lam_error *err)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    char *clean = lam_strndup(path, len), *real = NULL, *config = NULL, *folder = NULL;
    lam_code code = clean ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    *is_peft = false;
    *out = clean;
    if (code != LAM_OK || lam_path_is_dir(clean) || !lam_path_exists(clean)) return code;
    code = lam_real_path(clean, &real, err);
    folder = folder_of(clean);
    config = folder ? lam_path_join(folder, "adapter_config.json") : NULL;
    if (code == LAM_OK && !config) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    if (code == LAM_OK && is_peft_file(real) && !(is_peft_file(clean) && lam_path_exists(config))) {
        lam_free(folder);
        folder = folder_of(real);
        *is_peft = true;
    }
    if (code == LAM_OK && (*is_peft || is_peft_file(clean))) {
        *is_peft = true;
        lam_free(clean);
        *out = folder;
        folder = NULL;
        if (!*out) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    }
    lam_free(folder);
    lam_free(config);
    lam_free(real);
    return code;
}

/* Reads, checks and writes; all that is wrong with the adapter is known before the first fault is raised. */
static lam_code import_source(struct lam_adapter_import *import, const char *path, enum lam_source_kind kind, const char *out_path,
                              const struct lam_import_options *options, lam_error *err)
{
    struct lam_safetensors *tensors = NULL;
    struct lam_gguf *gguf = NULL;
    lam_code code = kind == LAM_SOURCE_PEFT_ADAPTER ? lam_adapter_read_peft(import, path, &tensors, err)
                                                    : lam_adapter_read_gguf(import, path, &gguf, err);
    if (code == LAM_OK) code = lam_adapter_check(import, err);
    if (code == LAM_OK) code = lam_faults_raise(&import->faults, err);
    if (code == LAM_OK) code = lam_adapter_drop_copies(import, err);
    if (code == LAM_OK) code = lam_adapter_write(import, out_path, options, err);
    lam_st_close(tensors);
    lam_gguf_close(gguf);
    return code;
}

static lam_code import_from(struct lam_adapter_import *import, const char *path, bool is_peft, const char *out_path,
                            const struct lam_import_options *options, lam_error *err)
{
    enum lam_source_kind kind = LAM_SOURCE_PEFT_ADAPTER;
    if (!is_peft) LAM_TRY(lam_source_detect(path, &kind, err));
    if (kind == LAM_SOURCE_SLM_ADAPTER) return lam_adapter_bind(path, import->base_path, out_path, options, import->report, err);
    if (kind != LAM_SOURCE_PEFT_ADAPTER && kind != LAM_SOURCE_GGUF_ADAPTER) return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is a model, not an adapter", path);
    LAM_TRY(open_base(import, err));
    import->accept_tokenizer = options && options->accept_tokenizer;
    return import_source(import, path, kind, out_path, options, err);
}

static void release(struct lam_adapter_import *import)
{
    lam_slm_close(import->base);
    lam_free(import->modules);
    lam_free(import->by_name);
    lam_free(import->invocation);
    for (size_t i = 0; i < sizeof import->made / sizeof *import->made; i++) lam_free(import->made[i]);
    lam_free(import->name);
    json_decref(import->source);
    lam_faults_release(&import->faults);
}

lam_code lam_import_adapter(const char *source, const char *base_path, const char *out_path,
                            const struct lam_import_options *options, struct lam_adapter_report *report, lam_error *err)
{
    struct lam_adapter_report unused;
    struct lam_adapter_import import = {.base_path = base_path, .method = "lora", .report = report ? report : &unused};
    *import.report = (struct lam_adapter_report){0};
    bool is_peft;
    char *path;
    if (options && options->quantise) return LAM_RAISE(err, LAM_E_ARGUMENT, "an adapter is not quantised: its factors stay as they are");
    lam_code code = clean_path(source, &path, &is_peft, err);
    if (code == LAM_OK) code = import_from(&import, path, is_peft, out_path, options, err);
    if (report && code != LAM_OK && code == import.faults.first.code) report->faults = lam_faults_list(&import.faults);
    if (report && report->faults) report->n_faults = import.faults.n;
    release(&import);
    lam_free(path);
    return code;
}
