/* Any bytes as an .slm file, checksum and root put right so that damage reaches the parser. So that inputs stay small, an input is the
 * file up to its names' end, then its data section; zeros stand for the padding between the two and for what is missing. */
#include "../tests/slm_seal.h"
#include "base/alloc.h"
#include "format/slm.h"

#include <string.h>

#define FUZZ_FILE_MAX ((size_t)512 << 10)
#define FUZZ_ROW_MAX ((uint32_t)1 << 20)

/* Where the names end, if the header's directory lies within the input; else its size. */
static size_t names_end(const uint8_t *data, size_t size)
{
    uint64_t directory = lam_load_u64(data + LAM_SLM_AT_DIRECTORY), n = lam_load_u32(data + LAM_SLM_AT_TENSORS);
    if (directory > size || n > (size - directory) / LAM_SLM_ENTRY_BYTES) return size;
    uint64_t end = directory + n * LAM_SLM_ENTRY_BYTES;
    for (uint64_t i = 0; i < n; i++) end += lam_load_u16(data + directory + i * LAM_SLM_ENTRY_BYTES + 4);
    return end < size ? (size_t)end : size;
}

/* file[len], zeroed, from the input: what stands behind the names goes where the header puts the data section. */
static void unfold(const uint8_t *data, size_t size, uint8_t *file, size_t len)
{
    size_t head = size < LAM_SLM_HEADER_BYTES || len == size ? size : names_end(data, size);
    if (size) memcpy(file, data, head);
    if (head == size) return;
    uint64_t data_at = lam_load_u64(data + LAM_SLM_AT_DATA);
    if (data_at < head || data_at > len) return;
    size_t room = len - (size_t)data_at, rest = size - head;
    memcpy(file + data_at, data + head, rest < room ? rest : room);
}

/* Adds a residual to a row as the model does; what the check let through must fit. */
static void use_residual(const struct lam_slm *s, const struct lam_slm_entry *e)
{
    struct lam_residual r;
    if (lam_slm_residual(s, e, &r, NULL) != LAM_OK || r.n == 0 || e->dims[0] > FUZZ_ROW_MAX) return;
    float *row = lam_alloc(e->dims[0], sizeof *row);
    for (size_t i = 0; row && i < e->dims[1]; i++) lam_residual_add_row(&r, i, row);
    lam_free(row);
}

/* What lies before the data, alone, as a download has it first. What is good with its data is good without. */
static void use_head(const uint8_t *file, size_t len, bool whole_is_good)
{
    uint64_t head, declared;
    struct lam_slm_head out;
    if (len < LAM_SLM_HEADER_BYTES || lam_slm_head_bytes(file, &head, &declared, NULL) != LAM_OK || head > len) {
        if (whole_is_good) __builtin_trap();
        return;
    }
    uint8_t *copy = lam_alloc_aligned((size_t)head);
    if (!copy) return;
    memcpy(copy, file, (size_t)head);
    bool good = lam_slm_head_read(copy, (size_t)head, &out, NULL) == LAM_OK;
    if (whole_is_good && !good) __builtin_trap();
    if (good && (out.leaves + 32 * out.n_pieces > copy + head || out.head_bytes + out.data_bytes != out.file_bytes)) __builtin_trap();
    lam_free_aligned(copy);
}

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
    unfold(data, size, file, len);
    slm_seal(file, len);
    bool good = lam_slm_open_memory(file, len, &s, NULL) == LAM_OK;
    use_head(file, len, good);
    if (good) {
        volatile unsigned sum = 0;
        for (size_t i = 0; i < s->n_entries; i++) {
            const struct lam_slm_entry *e = &s->entries[i];
            const uint8_t *bytes = lam_slm_tensor_data(s, e);
            if (bytes < file || e->bytes == 0 || bytes + e->bytes > file + len) __builtin_trap();
            sum += bytes[0] + bytes[e->bytes - 1] + (unsigned)s->names[e->name_offset + e->name_len - 1];
            use_residual(s, e);
        }
        if (s->vocab) sum += s->vocab[0] + s->vocab[s->vocab_bytes - 1];
        for (size_t i = 0; i < s->n_pieces; i++) sum += lam_slm_verify_piece(s, i, NULL) == LAM_OK;
        lam_slm_close(s);
    }
    lam_free_aligned(file);
    return 0;
}
