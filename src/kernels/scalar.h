/* The scalar definition, function by function; variants take from here what they do not speed up. */
#ifndef LAM_KERNELS_SCALAR_H
#define LAM_KERNELS_SCALAR_H

#include "kernels/kernels.h"

bool lam_quantise8_scalar(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half);
bool lam_quantise14_scalar(const float *x, size_t cols, int16_t *q, float *scale);
void lam_gemm_quant_scalar(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);
void lam_gemm_float_scalar(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride,
                           size_t n_rows, float *y, size_t y_stride);
void lam_add_q14_scalar(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                        size_t y_stride);
void lam_rms_norm_scalar(const float *x, const float *w, size_t n, float eps, float *y);
void lam_attention_scalar(const struct lam_attention *a);
bool lam_kv_store_scalar(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part);
void lam_rotate_scalar(float *x, size_t n, const float *cosine, const float *sine, bool interleaved);
void lam_silu_mul_scalar(const float *gate, const float *up, size_t n, float *y);
void lam_gelu_mul_scalar(const float *gate, const float *up, size_t n, float *y);

/* The fixed binary tree over 16 lanes, in place: 8+8, 4+4, 2+2, 1+1. */
float lam_tree16(float lane[16]);

/* Nearest integer, ties to even, of |v| < 2^22. */
static inline int32_t lam_round_even(float v) { return (int32_t)((v + 12582912.0f) - 12582912.0f); }

extern const struct lam_kernels lam_kernels_scalar;

#endif
