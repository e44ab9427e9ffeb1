/* Keys of adapter_model.safetensors are "base_model.model." + the module's name + one of
 *   .lora_A.weight  .lora_B.weight          of a linear layer, A [rank, d_in], B [d_out, rank]
 *   .lora_B.bias                            lora_bias, [d_out]
 *   .lora_magnitude_vector                  DoRA's m, [d_out]
 *   .lora_embedding_A  .lora_embedding_B    of the embedding, A [rank, n_vocab], B [d_model, rank]
 *   .ia3_l                                  IA³'s vector, [d_out, 1], or [1, d_in] of a feed-forward module
 *   .token_adapter.trainable_tokens_delta   trainable_token_indices: the new rows of the embedding or the head
 *   .base_layer.bias                        the new bias of an adapted module (.bias before PEFT 0.6)
 *   .bias                                   the new bias of another module, with bias = "all" or modules_to_save
 *   .weight  .base_layer.weight             a whole matrix or norm: modules_to_save, or save_embedding_layers
 * with the adapter's name after lora_A, lora_B, … in files that were not written by save_pretrained. */
#include "base/alloc.h"
#include "format/safetensors.h"
#include "import/adapter_import.h"
#include "import/adapter_peft_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "base_model.model."

struct keys {
    struct lam_adapter_import *import;
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
static struct lam_import_module *find_module(const struct keys *k, const char *name, size_t len)
{
    size_t low = 0, high = k->import->n_modules;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *other = k->by_hf_name[middle]->hf_name;
        int order = strncmp(name, other, len);
        if (order == 0 && other[len] == 0) return k->by_hf_name[middle];
        if (order > 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* Cuts a key into its module and what follows the module's dot; NULL if no module of the base is meant. */
static struct lam_import_module *split_key(const struct keys *k, const char *key, const char **rest)
{
    if (strncmp(key, PREFIX, strlen(PREFIX)) != 0) return NULL;
    key += strlen(PREFIX);
    for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.')) {
        struct lam_import_module *m = find_module(k, key, (size_t)(dot - key));
        if (!m) continue;
        *rest = dot + 1;
        return m;
    }
    return NULL;
}

/* True if rest is what + ending, perhaps with ".<adapter's name>" between; *name is then NULL or the name. */
static bool is_part(const char *rest, const char *what, const char *ending, const char **name, size_t *name_len)
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

static lam_code check_adapter_name(struct keys *k, const char *tensor, const char *name, size_t len, lam_error *err)
{
    if (!k->adapter_known) {
        k->adapter_known = true;
        k->adapter = name;
        k->adapter_len = len;
    }
    if (!k->adapter == !name && k->adapter_len == len && (len == 0 || memcmp(k->adapter, name, len) == 0)) return LAM_OK;
    int shown = (int)(len < 60 ? len : 60), before = (int)(k->adapter_len < 60 ? k->adapter_len : 60);
    return lam_faults_add(&k->import->faults, err, LAM_E_DUPLICATE, tensor,
                          "belongs to adapter \"%.*s\", the ones before to \"%.*s\"; a file holds one", shown, name ? name : "", before,
                          k->adapter ? k->adapter : "");
}

static lam_code set_part(struct keys *k, struct lam_part *part, const struct lam_st_tensor *t, lam_error *err)
{
    if (part->tensor)
        return lam_faults_add(&k->import->faults, err, LAM_E_DUPLICATE, t->name, "is the same one as %.200s", part->tensor);
    *part = (struct lam_part){.tensor = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = t->data,
                              .rows = t->n_dims == 2 ? t->dims[0] : 1, .cols = t->n_dims ? t->dims[t->n_dims == 2 ? 1 : 0] : 1};
    return LAM_OK;
}

/* What may follow a module's name, by the kinds of modules that can have it; longer endings first. */
enum { OF_LINEAR = 1, OF_EMBEDDING = 2, OF_NORM = 4, OF_MATRIX = OF_LINEAR | OF_EMBEDDING, OF_ANY = OF_MATRIX | OF_NORM };

static const struct part_key {
    const char *what, *ending;
    int of;
    enum lam_adapter_part part;
    bool named; /* the adapter's name may stand between */
} part_keys[] = {
    {"lora_A", ".weight", OF_LINEAR, LAM_PART_A, true}, {"lora_B", ".weight", OF_LINEAR, LAM_PART_B, true},
    {"lora_B", ".bias", OF_LINEAR, LAM_PART_B_BIAS, true},
    {"lora_embedding_A", "", OF_EMBEDDING, LAM_PART_A, true}, {"lora_embedding_B", "", OF_EMBEDDING, LAM_PART_B, true},
    {"lora_magnitude_vector", ".weight", OF_LINEAR, LAM_PART_MAGNITUDE, true},
    {"lora_magnitude_vector", "", OF_LINEAR, LAM_PART_MAGNITUDE, true},
    {"ia3_l", "", OF_LINEAR, LAM_PART_IA3_OUTPUT, true},
    {"token_adapter.trainable_tokens_delta", "", OF_MATRIX, LAM_PART_VALUES, true},
    {"base_layer.bias", "", OF_ANY, LAM_PART_BIAS, false}, {"bias", "", OF_ANY, LAM_PART_BIAS, false},
    {"base_layer.weight", "", OF_ANY, LAM_PART_WEIGHT, false}, {"weight", "", OF_ANY, LAM_PART_WEIGHT, false},
};

static bool fits_kind(enum lam_module_kind kind, int of)
{
    return of & (kind == LAM_MODULE_NORM ? OF_NORM : kind == LAM_MODULE_EMBEDDING ? OF_EMBEDDING : OF_LINEAR);
}

/* Tensors that other variants of LoRA leave; their configuration should have said so. */
static const char *variant_of(const char *rest)
{
    static const struct {
        const char *beginning, *field;
    } variants[] = {{"lora_diag", "kasa_config"}, {"lora_velora", "velora_config"}, {"parametrizations", "target_parameters"},
                    {"lora_magnitude_vector", "use_dora"}, {"lora_embedding_magnitude", "use_dora"}};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (strncmp(rest, variants[i].beginning, strlen(variants[i].beginning)) == 0) return variants[i].field;
    return NULL;
}

static lam_code take_tensor(struct keys *k, const struct lam_st_tensor *t, lam_error *err)
{
    const char *rest, *name;
    size_t len;
    struct lam_import_module *m = split_key(k, t->name, &rest);
    for (size_t i = 0; m && i < sizeof part_keys / sizeof *part_keys; i++) {
        const struct part_key *key = &part_keys[i];
        if (!fits_kind(m->kind, key->of) || !is_part(rest, key->what, key->ending, &name, &len) || (name && !key->named)) continue;
        if (key->named) LAM_TRY(check_adapter_name(k, t->name, name, len, err));
        return set_part(k, &m->parts[key->part], t, err);
    }
    const char *variant = m ? variant_of(rest) : NULL;
    if (!variant) return lam_names_add(&k->unmatched, t->name, err);
    return lam_faults_add(&k->import->faults, err, LAM_E_METHOD, t->name, "belongs to %s; Lamina does not support that here", variant);
}

static lam_code take_all(struct keys *k, const struct lam_safetensors *file, lam_error *err)
{
    size_t n = k->import->n_modules;
    k->by_hf_name = lam_alloc(n, sizeof *k->by_hf_name);
    if (!k->by_hf_name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu modules", n);
    memcpy(k->by_hf_name, k->import->by_name, n * sizeof *k->by_hf_name);
    qsort(k->by_hf_name, n, sizeof *k->by_hf_name, compare_hf_names);
    for (size_t i = 0; i < file->n_tensors; i++) LAM_TRY(take_tensor(k, &file->tensors[i], err));
    return lam_adapter_fault_unmatched(k->import, &k->unmatched, file->n_tensors, err);
}

lam_code lam_adapter_take_peft(struct lam_adapter_import *import, const struct lam_safetensors *file, lam_error *err)
{
    struct keys k = {.import = import};
    lam_code code = take_all(&k, file, err);
    lam_names_release(&k.unmatched);
    lam_free(k.by_hf_name);
    return code;
}
