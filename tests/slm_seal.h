/* Makes a damaged .slm pass its checksum and file_root, so that tests and fuzzing reach what lies behind them. */
#ifndef LAM_TESTS_SLM_SEAL_H
#define LAM_TESTS_SLM_SEAL_H

#include "base/cursor.h"
#include "format/slm_layout.h"

#include <stddef.h>
#include <stdint.h>

/* Whole sections only: what the header puts outside of file[len] is left out of the root, which then is as wrong as it was. */
static inline void slm_seal(uint8_t *file, size_t len)
{
    if (len < LAM_SLM_HEADER_BYTES) return;
    uint64_t metadata = lam_load_u64(file + LAM_SLM_AT_METADATA), metadata_bytes = lam_load_u64(file + LAM_SLM_AT_METADATA_BYTES);
    uint64_t directory = lam_load_u64(file + LAM_SLM_AT_DIRECTORY), n = lam_load_u32(file + LAM_SLM_AT_TENSORS);
    uint64_t vocab_bytes = lam_load_u32(file + LAM_SLM_AT_VOCAB_BYTES), data_bytes = lam_load_u64(file + LAM_SLM_AT_DATA_BYTES);
    uint64_t pieces = data_bytes / LAM_PIECE_BYTES + (data_bytes % LAM_PIECE_BYTES != 0), names = 0;
    struct lam_slm_parts parts = {.header = file};
    uint8_t root[32];
    if (metadata <= len && metadata_bytes <= len - metadata) {
        parts.metadata = file + metadata;
        parts.metadata_bytes = (size_t)metadata_bytes;
        uint64_t vocab = (metadata + metadata_bytes + 63) / 64 * 64;
        if (vocab <= len && vocab_bytes <= len - vocab) {
            parts.vocab = file + vocab;
            parts.vocab_bytes = (size_t)vocab_bytes;
        }
    }
    if (directory <= len && n * LAM_SLM_ENTRY_BYTES <= len - directory) {
        for (uint64_t i = 0; i < n; i++) names += lam_load_u16(file + directory + i * LAM_SLM_ENTRY_BYTES + 4);
        if (names <= len - directory - n * LAM_SLM_ENTRY_BYTES) {
            parts.directory = file + directory;
            parts.directory_bytes = (size_t)(n * LAM_SLM_ENTRY_BYTES + names);
        }
    }
    if (pieces <= (len - LAM_SLM_HEADER_BYTES) / 32) {
        lam_merkle_root(file + LAM_SLM_HEADER_BYTES, (size_t)pieces, root);
        lam_slm_file_root(&parts, root, file + LAM_SLM_AT_FILE_ROOT);
    }
    lam_store_u32(file + LAM_SLM_AT_CRC, lam_slm_header_crc(file));
}

#endif
