/* Any bytes as a safetensors file. Unless the first byte is odd, the header's length is put right first: up to the last brace and
 * the spaces behind it. */
#include "base/cursor.h"
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lam_safetensors *s;
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) return 0;
    if (size) memcpy(copy, data, size);
    if (size > 8 && data[0] % 2 == 0) {
        size_t end = size;
        while (end > 8 && data[end - 1] != '}') end--;
        while (end < size && data[end] == ' ') end++;
        lam_store_u64(copy, end - 8);
    }
    if (lam_st_open_memory(copy, size, &s, NULL) == LAM_OK) {
        volatile unsigned sum = 0;
        for (size_t i = 0; i < s->n_tensors; i++) {
            const struct lam_st_tensor *t = &s->tensors[i];
            if (lam_st_find(s, t->name) != t) __builtin_trap();
            if (t->bytes) sum += t->data[0] + t->data[t->bytes - 1];
        }
        lam_st_close(s);
    }
    free(copy);
    return 0;
}
