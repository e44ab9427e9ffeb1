/* Any bytes as an .slm file, checksum and root put right so that damage reaches the parser. Zeros stand for the padding
 * before the data section and for the data, so that inputs stay small: an input is the file up to its names' end. */
#include "../tests/slm_seal.h"
#include "base/alloc.h"
#include "format/slm.h"

#include <string.h>

#define FUZZ_FILE_MAX ((size_t)512 << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lam_slm *s;
    size_t len = size;
    if (size >= LAM_SLM_HEADER_BYTES) {
        uint64_t declared = lam_load_u64(data + LAM_SLM_AT_FILE_BYTES);
        if (declared > size && declared <= FUZZ_FILE_MAX) len = (size_t)declared;
    }
    uint8_t *file = lam_alloc_aligned(len);
    if (!file) return 0;
    if (size) memcpy(file, data, size);
    slm_seal(file, len);
    if (lam_slm_open_memory(file, len, &s, NULL) == LAM_OK) {
        volatile unsigned sum = 0;
        for (size_t i = 0; i < s->n_entries; i++) {
            const struct lam_slm_entry *e = &s->entries[i];
            const uint8_t *bytes = lam_slm_tensor_data(s, e);
            if (bytes < file || e->bytes == 0 || bytes + e->bytes > file + len) __builtin_trap();
            sum += bytes[0] + bytes[e->bytes - 1] + (unsigned)s->names[e->name_offset + e->name_len - 1];
        }
        if (s->vocab) sum += s->vocab[0] + s->vocab[s->vocab_bytes - 1];
        for (size_t i = 0; i < s->n_pieces; i++) sum += lam_slm_verify_piece(s, i, NULL) == LAM_OK;
        lam_slm_close(s);
    }
    lam_free_aligned(file);
    return 0;
}
