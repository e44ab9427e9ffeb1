/* PEFT adapter folders: adapter_config.json and adapter_model.safetensors.
 *
 * Keys are "base_model.model." + the module's name + one of
 *   .lora_A.weight  .lora_B.weight          of a linear layer, A [rank, d_in], B [d_out, rank]
 *   .lora_embedding_A  .lora_embedding_B    of the embedding, A [rank, n_vocab], B [d_model, rank]
 *   .base_layer.bias                        the new bias of an adapted module (.bias before PEFT 0.6)
 *   .bias                                   the new bias of another module, with bias = "all"
 * with the adapter's name after lora_A, lora_B, … in files that were not written by save_pretrained.
 * A head or an embedding in whole (".weight", ".base_layer.weight": PEFT's save_embedding_layers) is taken only if its values are
 * the base's own; it then changes nothing. */
#include "base/alloc.h"
#include "format/safetensors.h"
#include "import/adapter_import.h"
#include "import/adapter_peft_config.h"
#include "tensor/decode.h"
#include "tensor/tiles.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "base_model.model."

struct peft {
    struct lam_adapter_import *import;
    const char *folder;
    struct lam_peft_config config;
    struct lam_import_module **by_hf_name; /* n_modules, sorted by hf_name; owned */
    const char *adapter;                   /* the name that stands in the keys, adapter_len bytes */
    size_t adapter_len;
    bool adapter_known;
    struct lam_names unmatched;            /* tensors */
};

static int compare_hf_names(const void *a, const void *b)
{
    return strcmp((*(struct lam_import_module *const *)a)->hf_name, (*(struct lam_import_module *const *)b)->hf_name);
}

/* The module that name[len] is, or NULL. */
static struct lam_import_module *find_module(const struct peft *p, const char *name, size_t len)
{
    size_t low = 0, high = p->import->n_modules;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *other = p->by_hf_name[middle]->hf_name;
        int order = strncmp(name, other, len);
        if (order == 0 && other[len] == 0) return p->by_hf_name[middle];
        if (order > 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* Cuts a key into its module and what follows the module's dot; NULL if no module of the base is meant. */
static struct lam_import_module *split_key(const struct peft *p, const char *key, const char **rest)
{
    if (strncmp(key, PREFIX, strlen(PREFIX)) != 0) return NULL;
    key += strlen(PREFIX);
    for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.')) {
        struct lam_import_module *m = find_module(p, key, (size_t)(dot - key));
        if (!m) continue;
        *rest = dot + 1;
        return m;
    }
    return NULL;
}

/* True if rest is what + ending, perhaps with ".<adapter's name>" between; *name is then NULL or the name. */
static bool is_factor(const char *rest, const char *what, const char *ending, const char **name, size_t *name_len)
{
    size_t len = strlen(rest), head = strlen(what), tail = strlen(ending);
    *name = NULL;
    *name_len = 0;
    if (len < head + tail || strncmp(rest, what, head) != 0 || strcmp(rest + len - tail, ending) != 0) return false;
    size_t between = len - head - tail;
    if (between == 0) return true;
    if (between < 2 || rest[head] != '.' || memchr(rest + head + 1, '.', between - 1)) return false;
    *name = rest + head + 1;
    *name_len = between - 1;
    return true;
}

static lam_code check_adapter_name(struct peft *p, const char *tensor, const char *name, size_t len, lam_error *err)
{
    if (!p->adapter_known) {
        p->adapter_known = true;
        p->adapter = name;
        p->adapter_len = len;
    }
    if (!p->adapter == !name && p->adapter_len == len && (len == 0 || memcmp(p->adapter, name, len) == 0)) return LAM_OK;
    int shown = (int)(len < 60 ? len : 60), before = (int)(p->adapter_len < 60 ? p->adapter_len : 60);
    return LAM_RAISE(err, LAM_E_DUPLICATE, "tensor %.150s belongs to adapter \"%.*s\", the ones before to \"%.*s\"; a file holds one",
                     tensor, shown, name ? name : "", before, p->adapter ? p->adapter : "");
}

static lam_code set_part(struct lam_part *part, const struct lam_st_tensor *t, lam_error *err)
{
    if (part->tensor) return LAM_RAISE(err, LAM_E_DUPLICATE, "tensors %.150s and %.150s are the same one", part->tensor, t->name);
    *part = (struct lam_part){.tensor = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = t->data,
                              .rows = t->n_dims == 2 ? t->dims[0] : 1, .cols = t->n_dims ? t->dims[t->n_dims == 2 ? 1 : 0] : 1};
    return LAM_OK;
}

/* Whether values[n_rows, cols] of the tensor are the base's. */
static lam_code equals_base(const struct lam_adapter_import *import, const struct lam_st_tensor *t, const struct lam_slm_entry *e,
                            bool *equal, lam_error *err)
{
    size_t cols = e->dims[0], stride = 0, base_bytes = 0, own_bytes = 0;
    lam_tile_stride(e->dtype, cols, &stride);
    lam_dtype_row_bytes(e->dtype, cols, &base_bytes);
    lam_dtype_row_bytes(t->dtype, cols, &own_bytes);
    uint8_t *row = lam_alloc(base_bytes, 1);
    float *a = lam_alloc(cols, sizeof *a), *b = lam_alloc(cols, sizeof *b);
    struct lam_residual residual;
    *equal = row && a && b;
    lam_code code = *equal ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a row of %zu", cols);
    if (*equal) code = lam_slm_residual(import->base, e, &residual, err);
    *equal &= code == LAM_OK;
    for (size_t r = 0; *equal && r < e->dims[1]; r++) {
        lam_untile_row(e->dtype, cols, lam_slm_tensor_data(import->base, e) + r / LAM_TILE_ROWS * stride, r % LAM_TILE_ROWS, row);
        lam_decode_row(e->dtype, row, cols, a);
        lam_residual_add_row(&residual, r, a);
        lam_decode_row(t->dtype, t->data + r * own_bytes, cols, b);
        for (size_t i = 0; i < cols; i++) *equal &= a[i] == b[i];
    }
    lam_free(row);
    lam_free(a);
    lam_free(b);
    return code;
}

/* A whole matrix or norm in the file. */
static lam_code take_copy(struct peft *p, const struct lam_import_module *m, const struct lam_st_tensor *t, lam_error *err)
{
    struct lam_adapter_import *import = p->import;
    bool embedding = m->kind == LAM_MODULE_EMBEDDING, head = m->kind == LAM_MODULE_HEAD;
    const struct lam_slm_entry *e = NULL;
    bool equal = false;
    if (embedding || head)
        e = lam_slm_find(import->base, head && !import->config.tied ? "output.weight" : "token_embd.weight");
    if (e && t->n_dims == 2 && t->dims[0] != e->dims[1] && t->dims[1] == e->dims[0])
        return LAM_RAISE(err, LAM_E_TOKENIZER, "tensor %.200s has %" PRIu64 " rows, the base has %u tokens", t->name, t->dims[0],
                         e->dims[1]);
    if (e && t->n_dims == 2 && t->dims[0] == e->dims[1] && t->dims[1] == e->dims[0] && e->layout == LAM_LAYOUT_TILE16)
        LAM_TRY(equals_base(import, t, e, &equal, err));
    if (!equal)
        return LAM_RAISE(err, LAM_E_METHOD, "tensor %.200s replaces %s of the base%s; Lamina does not support that yet", t->name,
                         m->name, e ? " by other values (save_embedding_layers, modules_to_save)" : " (modules_to_save)");
    import->n_copies++;
    return LAM_OK;
}

/* Tensors that other variants of LoRA leave; their configuration should have said so. */
static lam_code refuse_variant(const struct lam_st_tensor *t, const char *rest, lam_error *err)
{
    static const struct {
        const char *beginning, *field;
    } variants[] = {{"lora_magnitude_vector", "use_dora"}, {"modules_to_save", "modules_to_save"}, {"ia3_l", "IA3"},
                    {"trainable_tokens", "trainable_token_indices"}, {"token_adapter", "trainable_token_indices"},
                    {"lora_diag", "kasa_config"}, {"lora_velora", "velora_config"}, {"parametrizations", "target_parameters"}};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (strncmp(rest, variants[i].beginning, strlen(variants[i].beginning)) == 0)
            return LAM_RAISE(err, LAM_E_METHOD, "tensor %.200s belongs to %s; Lamina does not support that yet", t->name,
                             variants[i].field);
    const char *name;
    size_t len;
    if (is_factor(rest, "lora_B", ".bias", &name, &len) || is_factor(rest, "lora_A", ".bias", &name, &len))
        return LAM_RAISE(err, LAM_E_METHOD, "tensor %.200s belongs to lora_bias; Lamina does not support that yet", t->name);
    return LAM_OK;
}

static lam_code take_tensor(struct peft *p, const struct lam_st_tensor *t, lam_error *err)
{
    const char *rest, *name;
    size_t len;
    struct lam_import_module *m = split_key(p, t->name, &rest);
    if (!m) return lam_names_add(&p->unmatched, t->name, err);
    bool embedding = m->kind == LAM_MODULE_EMBEDDING;
    bool is_a = is_factor(rest, embedding ? "lora_embedding_A" : "lora_A", embedding ? "" : ".weight", &name, &len);
    bool is_b = !is_a && is_factor(rest, embedding ? "lora_embedding_B" : "lora_B", embedding ? "" : ".weight", &name, &len);
    if ((is_a || is_b) && m->kind != LAM_MODULE_NORM) {
        LAM_TRY(check_adapter_name(p, t->name, name, len, err));
        return set_part(is_a ? &m->a : &m->b, t, err);
    }
    if (strcmp(rest, "base_layer.bias") == 0 || strcmp(rest, "bias") == 0) return set_part(&m->bias, t, err);
    if (strcmp(rest, "base_layer.weight") == 0 || strcmp(rest, "weight") == 0) return take_copy(p, m, t, err);
    LAM_TRY(refuse_variant(t, rest, err));
    return lam_names_add(&p->unmatched, t->name, err);
}

static lam_code take_tensors(struct peft *p, const struct lam_safetensors *file, lam_error *err)
{
    size_t n = p->import->n_modules;
    p->by_hf_name = lam_alloc(n, sizeof *p->by_hf_name);
    if (!p->by_hf_name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu modules", n);
    memcpy(p->by_hf_name, p->import->by_name, n * sizeof *p->by_hf_name);
    qsort(p->by_hf_name, n, sizeof *p->by_hf_name, compare_hf_names);
    for (size_t i = 0; i < file->n_tensors; i++) LAM_TRY(take_tensor(p, &file->tensors[i], err));
    if (p->unmatched.n == 0) return LAM_OK;
    return lam_adapter_raise_unmatched(p->import, &p->unmatched, file->n_tensors, err);
}

/* Which modules the configuration means, with their ranks, against which ones the file has. */
struct targeting {
    struct lam_names outside; /* tensors of modules that the configuration does not mean */
    struct lam_names empty;   /* modules that it means, without tensors */
    uint32_t n_layers;        /* the last layer with tensors, plus 1 */
    uint32_t first_empty;     /* the first layer of a module in empty; LAM_LAYER_NONE: none of them is in a layer */
};

static bool may_have_bias(enum lam_peft_bias bias, bool targeted)
{
    return bias == LAM_PEFT_BIAS_ALL || (bias == LAM_PEFT_BIAS_LORA_ONLY && targeted);
}

static lam_code target_module(struct peft *p, struct lam_import_module *m, struct targeting *t, lam_error *err)
{
    bool targeted;
    LAM_TRY(lam_module_match_find(p->config.modules, m->hf_name, m->kind, &targeted, err));
    bool has_factor = m->a.tensor || m->b.tensor, wants_bias = may_have_bias(p->config.bias, targeted);
    if (!targeted && m->a.tensor) LAM_TRY(lam_names_add(&t->outside, m->a.tensor, err));
    if (!targeted && m->b.tensor) LAM_TRY(lam_names_add(&t->outside, m->b.tensor, err));
    if (m->bias.tensor && !wants_bias) LAM_TRY(lam_names_add(&t->outside, m->bias.tensor, err));
    if (targeted && !has_factor) {
        LAM_TRY(lam_names_add(&t->empty, m->hf_name, err));
        if (m->layer < t->first_empty) t->first_empty = m->layer;
    }
    if (has_factor && m->layer != LAM_LAYER_NONE && m->layer >= t->n_layers) t->n_layers = m->layer + 1;
    if (m->has_bias && !m->bias.tensor && wants_bias)
        lam_adapter_warn(p->import, "%s: the file has no bias for it, the base's stays", m->hf_name);
    if (!targeted) return LAM_OK;
    m->rank_stabilised = p->config.rank_stabilised;
    return lam_peft_config_module(&p->config, m->hf_name, &m->rank, &m->alpha, err);
}

static lam_code target_modules(struct peft *p, struct targeting *t, lam_error *err)
{
    for (size_t i = 0; i < p->import->n_modules; i++) LAM_TRY(target_module(p, &p->import->modules[i], t, err));
    if (t->outside.n)
        return lam_names_raise(p->import, &t->outside, LAM_E_UNMATCHED, "tensors of modules that adapter_config.json does not mean", err);
    if (t->empty.n == 0) return LAM_OK;
    static const char what[] = "modules that adapter_config.json means, without tensors";
    char text[180];
    if (t->n_layers > 0 && t->first_empty != LAM_LAYER_NONE && t->first_empty >= t->n_layers)
        snprintf(text, sizeof text, "made for another model: it has %u layer%s, the base %u; %s", t->n_layers, t->n_layers == 1 ? "" : "s",
                 p->import->config.n_layers, what);
    else
        snprintf(text, sizeof text, "%s", what);
    return lam_names_raise(p->import, &t->empty, LAM_E_UNMATCHED, text, err);
}

/* What PEFT passes over in silence or with a warning. */
static void warn(struct peft *p)
{
    struct lam_adapter_import *import = p->import;
    const char *text = NULL;
    for (size_t i = 0; (text = lam_module_match_unused(p->config.modules, i)); i++)
        lam_adapter_warn(import, "target_modules: \"%.100s\" matches no module", text);
    for (size_t i = 0; (text = lam_pattern_table_unused(p->config.rank_pattern, i)); i++)
        lam_adapter_warn(import, "rank_pattern: \"%.100s\" decides for no module", text);
    for (size_t i = 0; (text = lam_pattern_table_unused(p->config.alpha_pattern, i)); i++)
        lam_adapter_warn(import, "alpha_pattern: \"%.100s\" decides for no module", text);
    if (p->config.fan_in_fan_out)
        lam_adapter_warn(import, "fan_in_fan_out is true, which has no effect on linear layers (PEFT resets it)");
    if (p->config.alpha == 0.0) lam_adapter_warn(import, "lora_alpha is 0: no effect, except where alpha_pattern says otherwise");
    const char *base = json_string_value(json_object_get(json_object_get(import->base->metadata, "source"), "name"));
    if (p->config.base && base && strcmp(lam_path_base(p->config.base), base) != 0)
        lam_adapter_warn(import, "base_model_name_or_path is \"%.100s\", this base is \"%.100s\"", p->config.base, base);
}

static lam_code read_config(struct peft *p, lam_error *err)
{
    char *path = lam_path_join(p->folder, "adapter_config.json");
    struct lam_mapping m;
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "path of adapter_config.json");
    lam_code code = lam_map_file(path, &m, err);
    lam_free(path);
    if (code != LAM_OK) return code;
    code = lam_peft_config_parse(m.data ? (const char *)m.data : "", m.size, "adapter_config.json", &p->config, err);
    lam_unmap_file(&m);
    return code;
}

static lam_code open_tensors(const char *folder, struct lam_safetensors **file, lam_error *err)
{
    char *path = lam_path_join(folder, "adapter_model.safetensors"), *pickle = lam_path_join(folder, "adapter_model.bin");
    lam_code code = path && pickle ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "path of adapter_model.safetensors");
    if (code == LAM_OK && !lam_path_exists(path) && lam_path_exists(pickle))
        code = LAM_RAISE(err, LAM_E_UNSUPPORTED, "%s is a Python pickle, which could run code; save the adapter as safetensors",
                         pickle);
    if (code == LAM_OK) code = lam_st_open(path, file, err);
    lam_free(path);
    lam_free(pickle);
    return code;
}

static lam_code set_provenance(struct peft *p, lam_error *err)
{
    LAM_TRY(lam_adapter_set_name(p->import, lam_path_base(p->folder), strlen(lam_path_base(p->folder)), err));
    json_t *source = p->import->source = json_pack("{s:s}", "format", "peft");
    bool ok = source != NULL;
    if (p->config.base) ok = ok && json_object_set_new(source, "base_model", json_string(p->config.base)) == 0;
    if (p->config.version) ok = ok && json_object_set_new(source, "peft_version", json_string(p->config.version)) == 0;
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's provenance");
}

static lam_code read_all(struct peft *p, struct lam_safetensors **file, lam_error *err)
{
    p->import->rows_interleaved = p->import->config.arch->hf_rope_interleaved;
    LAM_TRY(read_config(p, err));
    LAM_TRY(open_tensors(p->folder, file, err));
    LAM_TRY(lam_adapter_check_tokenizer(p->folder, p->import->base, err));
    LAM_TRY(take_tensors(p, *file, err));
    struct targeting t = {.first_empty = LAM_LAYER_NONE};
    lam_code code = target_modules(p, &t, err);
    lam_names_release(&t.outside);
    lam_names_release(&t.empty);
    if (code != LAM_OK) return code;
    warn(p);
    return set_provenance(p, err);
}

lam_code lam_adapter_read_peft(struct lam_adapter_import *import, const char *folder, struct lam_safetensors **file, lam_error *err)
{
    struct peft p = {.import = import, .folder = folder};
    lam_code code = read_all(&p, file, err);
    lam_peft_config_release(&p.config);
    lam_names_release(&p.unmatched);
    lam_free(p.by_hf_name);
    return code;
}
