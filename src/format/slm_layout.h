/* What the .slm reader and writer share: where things lie. docs/format.md is the specification. */
#ifndef LAM_FORMAT_SLM_LAYOUT_H
#define LAM_FORMAT_SLM_LAYOUT_H

#include "format/merkle.h"
#include "format/slm.h"

/* Byte offsets of the header's fields. */
enum {
    LAM_SLM_AT_MAGIC = 0,            /* 4 bytes */
    LAM_SLM_AT_VERSION = 4,          /* u16 */
    LAM_SLM_AT_KIND = 6,             /* u8 */
    LAM_SLM_AT_LOG2_PIECE = 7,       /* u8 */
    LAM_SLM_AT_FLAGS = 8,            /* u32 */
    LAM_SLM_AT_TENSORS = 12,         /* u32 */
    LAM_SLM_AT_RESIDUALS = 16,       /* u32 */
    LAM_SLM_AT_METADATA_RAW = 20,    /* u32 */
    LAM_SLM_AT_METADATA = 24,        /* u64 */
    LAM_SLM_AT_METADATA_BYTES = 32,  /* u64 */
    LAM_SLM_AT_DIRECTORY = 40,       /* u64 */
    LAM_SLM_AT_DATA = 48,            /* u64 */
    LAM_SLM_AT_DATA_BYTES = 56,      /* u64 */
    LAM_SLM_AT_RESIDUAL = 64,        /* u64 */
    LAM_SLM_AT_PIECES = 72,          /* u64 */
    LAM_SLM_AT_FILE_BYTES = 80,      /* u64 */
    LAM_SLM_AT_FILE_ROOT = 88,       /* 32 bytes */
    LAM_SLM_AT_VOCAB_BYTES = 120,    /* u32 */
    LAM_SLM_AT_CRC = 124             /* u32 */
};

/* Of a record of the residual table. */
enum {
    LAM_SLM_RECORD_AT_OFFSET = 0, /* u64, from the start of the data section */
    LAM_SLM_RECORD_AT_VALUES = 8, /* u32 */
    LAM_SLM_RECORD_AT_ZERO = 12,  /* u32 */
    LAM_SLM_RECORD_BYTES = 16
};

#define LAM_SLM_LOG2_PIECE 22
_Static_assert(LAM_PIECE_BYTES == (size_t)1 << LAM_SLM_LOG2_PIECE, "the header states the Merkle tree's piece size");

/* Bytes of one row (LAM_LAYOUT_PLAIN) or one tile of 16 rows (LAM_LAYOUT_TILE16), and of the whole tensor. Checks number and
 * size of the dimensions too: LAM_E_SHAPE or LAM_E_OVERFLOW naming the tensor. dtype and layout must be known ones. */
lam_code lam_slm_tensor_size(const char *name, size_t name_len, enum lam_dtype dtype, enum lam_slm_layout layout,
                             uint8_t n_dims, const uint32_t dims[4], size_t *unit_bytes, size_t *bytes, lam_error *err);

/* Where a tensor lies that follows one which ends at `end` (in the data section; 0 for the first). False on overflow. */
bool lam_slm_place(size_t end, bool same_layer, size_t *offset);

/* Where the residual table lies behind tensors that end at `end`, and the first residual behind a table of n records; each further one
 * is at the next multiple of 64. False on overflow. */
bool lam_slm_place_residuals(size_t end, size_t n, size_t *table, size_t *first);

/* file_root of a file whose header, metadata, vocabulary and directory with names are given; weights_root[32]. */
struct lam_slm_parts {
    const uint8_t *header;    /* 128 bytes; the file_root and CRC in it are taken as zero */
    const uint8_t *metadata;
    size_t metadata_bytes;
    const uint8_t *vocab;
    size_t vocab_bytes;
    const uint8_t *directory; /* entries, then names */
    size_t directory_bytes;
};
void lam_slm_file_root(const struct lam_slm_parts *parts, const uint8_t weights_root[32], uint8_t out[32]);

/* CRC-32C over the header's bytes before the CRC. */
uint32_t lam_slm_header_crc(const uint8_t header[LAM_SLM_HEADER_BYTES]);

#endif
