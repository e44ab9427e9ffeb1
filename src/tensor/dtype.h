/* Element and block types. The numbers stand in .slm directories: below 128 they are GGUF's (ggml_type), from 128 on Lamina's
 * own, which no GGUF file can hold. */
#ifndef LAM_TENSOR_DTYPE_H
#define LAM_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lam_dtype {
    LAM_F32 = 0,
    LAM_F16 = 1,
    LAM_Q4_0 = 2,
    LAM_Q4_1 = 3,
    LAM_Q5_0 = 6,
    LAM_Q5_1 = 7,
    LAM_Q8_0 = 8,
    LAM_Q2_K = 10,
    LAM_Q3_K = 11,
    LAM_Q4_K = 12,
    LAM_Q5_K = 13,
    LAM_Q6_K = 14,
    LAM_I32 = 26,    /* indices of sparse deltas; never a weight */
    LAM_BF16 = 30,
    LAM_Q4_64 = 128
};

/* One interleaved field of a block: `size` bytes at `offset`, cut into units of `unit` bytes. In a row tile
 * unit u of row 0, of row 1, … of row 15 lie side by side. */
struct lam_field {
    uint16_t offset, size, unit; /* bytes */
};

struct lam_dtype_info {
    enum lam_dtype dtype;
    const char *name;            /* GGUF's: "Q4_K" */
    uint16_t block_elements;     /* weights in a block: 1, 32, 64 or 256 */
    uint16_t block_bytes;
    uint8_t n_fields;
    struct lam_field fields[4];  /* in tile order: scales first; together they cover the block */
};

/* NULL for a number that is not in the list above. */
const struct lam_dtype_info *lam_dtype_info(uint32_t dtype);

/* By name ("F16", "Q4_K"); NULL if unknown. */
const struct lam_dtype_info *lam_dtype_by_name(const char *name);

/* True for the types of weights that a GGUF file can hold. */
bool lam_dtype_in_gguf(enum lam_dtype dtype);

/* True for Q*: weights that are multiplied in exact integers. */
bool lam_dtype_is_quantised(enum lam_dtype dtype);

/* True for F32, F16 and BF16. */
bool lam_dtype_is_float(enum lam_dtype dtype);

/* Bytes of one row of `elements` weights in GGUF's own (untiled) form. False if elements is not a multiple of the
 * block or the size overflows. */
bool lam_dtype_row_bytes(enum lam_dtype dtype, uint64_t elements, size_t *bytes);

#endif
