/* Any bytes as a GGUF file; what opens is read to its end. */
#include "format/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lam_gguf *g;
    if (lam_gguf_open_memory(data, size, &g, NULL) != LAM_OK) return 0;
    volatile double sum = 0;
    for (size_t i = 0; i < g->n_kvs; i++) {
        const struct lam_gguf_kv *kv = &g->kvs[i];
        const uint8_t *at = kv->value;
        const char *text;
        size_t len;
        double item;
        while (lam_gguf_next_string(kv, &at, &text, &len))
            if (len) sum += text[0] + text[len - 1];
        for (uint64_t k = 0; k < kv->count; k++)
            if (lam_gguf_item_f64(kv, k, &item, NULL) == LAM_OK) sum += item != 0;
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct lam_gguf_tensor *t = &g->tensors[i];
        if (lam_gguf_find_tensor(g, t->name) != t) __builtin_trap();
        sum += t->data[0] + t->data[t->bytes - 1];
    }
    lam_gguf_close(g);
    return 0;
}
