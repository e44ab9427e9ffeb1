/* llama.cpp's LoRA GGUF: general.type "adapter", adapter.type "lora", tensors "<the base's tensor>.lora_a" [rank, d_in] and
 * ".lora_b" [d_out, rank], for the embedding A transposed, [n_vocab, rank], and whole norms "<name>_norm.weight", which the converter
 * keeps and llama.cpp does not apply (llama.cpp, convert_lora_to_gguf.py and src/llama-adapter.cpp). The scale is
 * adapter.lora.alpha / rank, or 1 if alpha is 0 or missing. An activated LoRA has adapter.alora.invocation_tokens, uint32. */
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/os.h"
#include "format/gguf.h"
#include "import/adapter_import.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define INVOCATION "adapter.alora.invocation_tokens"

static bool key_is(const struct lam_gguf_kv *kv, const char *text)
{
    return kv->key_len == strlen(text) && memcmp(kv->key, text, kv->key_len) == 0;
}

static bool key_begins(const struct lam_gguf_kv *kv, const char *text)
{
    return kv->key_len >= strlen(text) && memcmp(kv->key, text, strlen(text)) == 0;
}

static bool text_is(const char *text, size_t len, const char *wanted)
{
    return len == strlen(wanted) && memcmp(text, wanted, len) == 0;
}

/* Everything that is no description must be known. */
static lam_code check_keys(struct lam_adapter_import *import, const struct lam_gguf *g, lam_error *err)
{
    for (size_t i = 0; i < g->n_kvs; i++) {
        const struct lam_gguf_kv *kv = &g->kvs[i];
        char key[201];
        snprintf(key, sizeof key, "%.*s", (int)(kv->key_len < 200 ? kv->key_len : 200), kv->key);
        if (key_begins(kv, "general.") || key_is(kv, "adapter.type") || key_is(kv, "adapter.lora.alpha") ||
            key_is(kv, "adapter.lora.task_name") || key_is(kv, INVOCATION))
            continue;
        if (key_is(kv, "adapter.lora.prompt_prefix"))
            lam_adapter_warn(import, "adapter.lora.prompt_prefix is not put in front of prompts");
        else if (key_begins(kv, "tokenizer."))
            LAM_TRY(lam_faults_add(&import->faults, err, LAM_E_TOKENIZER, key, "the adapter has a tokenizer of its own"));
        else
            LAM_TRY(lam_faults_add(&import->faults, err, LAM_E_UNKNOWN_FIELD, key, "an unknown key, which may change results"));
    }
    return LAM_OK;
}

static lam_code read_invocation(struct lam_adapter_import *import, const struct lam_gguf *g, lam_error *err)
{
    const struct lam_gguf_kv *kv = lam_gguf_find(g, INVOCATION);
    if (!kv) return LAM_OK;
    if (kv->type != LAM_GGUF_ARRAY || kv->item_type != LAM_GGUF_U32)
        return lam_faults_add(&import->faults, err, LAM_E_FORMAT, INVOCATION, "is not an array of uint32");
    if (kv->count == 0) return LAM_OK; /* llama.cpp: no activated LoRA */
    import->invocation = kv->count <= SIZE_MAX ? lam_alloc((size_t)kv->count, sizeof *import->invocation) : NULL;
    if (!import->invocation) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%llu tokens of an invocation", (unsigned long long)kv->count);
    import->n_invocation = (size_t)kv->count;
    for (size_t i = 0; i < import->n_invocation; i++) import->invocation[i] = lam_load_u32(kv->value + 4 * i);
    return LAM_OK;
}

static lam_code check_metadata(struct lam_adapter_import *import, const struct lam_gguf *g, lam_error *err)
{
    const char *text = "";
    size_t len = 0;
    LAM_TRY(lam_gguf_string(g, "adapter.type", true, &text, &len, err));
    if (!text_is(text, len, "lora"))
        LAM_TRY(lam_faults_add(&import->faults, err, LAM_E_METHOD, "adapter.type", "is %.*s; Lamina supports lora",
                               (int)(len < 100 ? len : 100), text));
    LAM_TRY(lam_gguf_string(g, "general.architecture", true, &text, &len, err));
    if (!text_is(text, len, import->config.arch->name))
        LAM_TRY(lam_faults_add(&import->faults, err, LAM_E_WRONG_BASE, "general.architecture",
                               "is %.*s, the base's is %s: made for another model", (int)(len < 100 ? len : 100), text,
                               import->config.arch->name));
    LAM_TRY(check_keys(import, g, err));
    LAM_TRY(read_invocation(import, g, err));
    return lam_faults_raise(&import->faults, err);
}

static lam_code set_part(struct lam_adapter_import *import, struct lam_part *part, const struct lam_gguf_tensor *t, bool by_column,
                         lam_error *err)
{
    if (!lam_dtype_is_float(t->dtype))
        return lam_faults_add(&import->faults, err, LAM_E_DTYPE, t->name, "has type %s; F32, F16 and BF16 are possible",
                              lam_dtype_info(t->dtype)->name);
    if (part->tensor) return lam_faults_add(&import->faults, err, LAM_E_DUPLICATE, t->name, "occurs twice");
    *part = (struct lam_part){.tensor = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .rows = t->dims[1], .cols = t->dims[0],
                              .by_column = by_column, .data = t->data};
    return LAM_OK;
}

static lam_code take_tensor(struct lam_adapter_import *import, const struct lam_gguf_tensor *t, struct lam_names *unmatched,
                            lam_error *err)
{
    static const struct {
        const char *ending;
        enum lam_adapter_part part;
    } endings[] = {{".weight.lora_a", LAM_PART_A}, {".weight.lora_b", LAM_PART_B}, {".weight", LAM_PART_WEIGHT}};
    size_t len = strlen(t->name);
    char name[64];
    for (int i = 0; i < 3; i++) {
        size_t tail = strlen(endings[i].ending);
        if (len <= tail || len - tail >= sizeof name || strcmp(t->name + len - tail, endings[i].ending) != 0) continue;
        memcpy(name, t->name, len - tail);
        name[len - tail] = 0;
        struct lam_import_module *m = lam_adapter_find_module(import, name);
        if (!m || (m->kind == LAM_MODULE_NORM) != (endings[i].part == LAM_PART_WEIGHT)) break;
        return set_part(import, &m->parts[endings[i].part], t, endings[i].part == LAM_PART_A && m->kind == LAM_MODULE_EMBEDDING, err);
    }
    return lam_names_add(unmatched, t->name, err);
}

/* llama.cpp's own loader passes over norms, so its output lacks them. */
static void warn_of_norms(struct lam_adapter_import *import)
{
    size_t n = 0;
    for (size_t i = 0; i < import->n_modules; i++) n += import->modules[i].parts[LAM_PART_WEIGHT].tensor != NULL;
    if (n) lam_adapter_warn(import, "%zu norms take the place of the base's; llama.cpp leaves them out", n);
}

static lam_code take_tensors(struct lam_adapter_import *import, const struct lam_gguf *g, lam_error *err)
{
    struct lam_names unmatched = {0};
    lam_code code = LAM_OK;
    for (size_t i = 0; i < g->n_tensors && code == LAM_OK; i++) code = take_tensor(import, &g->tensors[i], &unmatched, err);
    if (code == LAM_OK) code = lam_adapter_fault_unmatched(import, &unmatched, g->n_tensors, err);
    lam_names_release(&unmatched);
    if (code == LAM_OK) warn_of_norms(import);
    return code;
}

/* alpha 0 or none: llama.cpp scales by 1, which alpha = rank says. */
static lam_code set_alpha(struct lam_adapter_import *import, const struct lam_gguf *g, lam_error *err)
{
    float alpha = 0.0f;
    LAM_TRY(lam_gguf_f32(g, "adapter.lora.alpha", false, &alpha, err));
    if (alpha - alpha != 0.0f) return LAM_RAISE(err, LAM_E_NON_FINITE, "adapter.lora.alpha is not finite");
    if (alpha == 0.0f) lam_adapter_warn(import, "adapter.lora.alpha is 0 or missing: the scale is 1");
    for (size_t i = 0; i < import->n_modules; i++) {
        struct lam_import_module *m = &import->modules[i];
        uint64_t rank = m->parts[LAM_PART_B].tensor ? m->parts[LAM_PART_B].cols : 0; /* checked later */
        m->alpha = alpha != 0.0f ? (double)alpha : (double)rank;
    }
    return LAM_OK;
}

/* general.name, or else the file's name without its ending. */
static lam_code set_name(struct lam_adapter_import *import, const struct lam_gguf *g, const char *path, lam_error *err)
{
    const char *name = lam_path_base(path);
    size_t len = strlen(name);
    if (len > 5 && strcmp(name + len - 5, ".gguf") == 0) len -= 5;
    LAM_TRY(lam_gguf_string(g, "general.name", false, &name, &len, err));
    LAM_TRY(lam_adapter_set_name(import, name, len, err));
    import->source = json_pack("{s:s}", "format", "gguf");
    return import->source ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the adapter's provenance");
}

lam_code lam_adapter_read_gguf(struct lam_adapter_import *import, const char *path, struct lam_gguf **file, lam_error *err)
{
    LAM_TRY(lam_gguf_open(path, file, err));
    LAM_TRY(check_metadata(import, *file, err));
    LAM_TRY(take_tensors(import, *file, err));
    LAM_TRY(set_alpha(import, *file, err));
    import->rows_interleaved = import->config.arch->gguf_rope_interleaved;
    return set_name(import, *file, path, err);
}
