/* Tensor roles, as they stand in .slm directories. */
#ifndef LAM_FORMAT_ROLE_H
#define LAM_FORMAT_ROLE_H

#include <stdbool.h>

/* What a tensor is for. The numbers stand in .slm directories: never change one. */
enum lam_role {
    LAM_ROLE_EMBEDDING = 1,
    LAM_ROLE_OUTPUT_NORM = 2,
    LAM_ROLE_OUTPUT = 3,
    LAM_ROLE_ROPE_FACTORS = 4,   /* divides the rotary frequencies (GGUF's rope_freqs) */
    LAM_ROLE_ATTN_NORM = 16,
    LAM_ROLE_Q = 17, LAM_ROLE_K = 18, LAM_ROLE_V = 19, LAM_ROLE_O = 20,
    LAM_ROLE_Q_BIAS = 21, LAM_ROLE_K_BIAS = 22, LAM_ROLE_V_BIAS = 23, LAM_ROLE_O_BIAS = 24,
    LAM_ROLE_Q_NORM = 25, LAM_ROLE_K_NORM = 26,
    LAM_ROLE_POST_ATTN_NORM = 27,
    LAM_ROLE_FFN_NORM = 28,
    LAM_ROLE_GATE = 29, LAM_ROLE_UP = 30, LAM_ROLE_DOWN = 31,
    LAM_ROLE_GATE_BIAS = 32, LAM_ROLE_UP_BIAS = 33, LAM_ROLE_DOWN_BIAS = 34,
    LAM_ROLE_POST_FFN_NORM = 35
};

/* Parts of an adapter's tensors: their role field is the changed tensor's role | part << 16. */
enum lam_adapter_part {
    LAM_PART_A = 1,          /* ".lora_a" [rank, d_in]; for the embedding its transpose, [n_vocab, rank], so that a token is a row */
    LAM_PART_B = 2,          /* ".lora_b" [d_out, rank] */
    LAM_PART_BIAS = 3,       /* ".bias" [d_out]: the new bias, in place of the base's */
    LAM_PART_MAGNITUDE = 4,  /* ".lora_magnitude" [d_out]: DoRA's m */
    LAM_PART_B_BIAS = 5,     /* ".lora_b_bias" [d_out]: added to B (A x) before it is scaled */
    LAM_PART_IA3_OUTPUT = 6, /* ".ia3_output" [d_out]: l of an IA³ module that scales what comes out */
    LAM_PART_IA3_INPUT = 7,  /* ".ia3_input" [d_in]: l of one that scales what goes in */
    LAM_PART_STARTS = 8,     /* ".delta_starts" I32 [d_out + 1]: row r of a sparse delta has values starts[r] .. starts[r + 1] - 1 */
    LAM_PART_COLUMNS = 9,    /* ".delta_columns" I32 [n]: they rise strictly within a row */
    LAM_PART_VALUES = 10,    /* ".delta_values" [n] */
    LAM_PART_DELTA = 11,     /* ".delta" [d_out, d_in]: a dense delta */
    LAM_PART_WEIGHT = 12     /* ".weight" [d_out, d_in] or [n]: a matrix or a norm in place of the base's (PEFT's modules_to_save) */
};

/* What follows the module's name and a dot: "lora_a". */
const char *lam_part_name(enum lam_adapter_part part);

/* "<module>.<part>"; module: 80 bytes at most. */
void lam_part_tensor(const char *module, enum lam_adapter_part part, char out[96]);

/* True for matrices, which are tiled; false for vectors. */
bool lam_role_is_matrix(enum lam_role role);

/* The bias that belongs to a matrix, or 0. */
enum lam_role lam_role_bias(enum lam_role matrix);

#endif
