/* The scalar definition, function by function; variants take from here what they do not speed up. */
#ifndef LAM_KERNELS_SCALAR_H
#define LAM_KERNELS_SCALAR_H

#include "kernels/kernels.h"

bool lam_quantise8_scalar(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half);
bool lam_quantise14_scalar(const float *x, size_t cols, int16_t *q, float *scale);
void lam_gemm_quant_scalar(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);
void lam_gemm_float_scalar(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride,
                           size_t n_rows, float *y, size_t y_stride);
void lam_gemm_q14_scalar(const struct lam_q14_tile *tile, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                         size_t y_stride);
void lam_rms_norm_scalar(const float *x, const float *w, size_t n, float eps, float *y);
void lam_attention_scalar(const struct lam_attention *a);
void lam_silu_mul_scalar(const float *gate, const float *up, size_t n, float *y);
void lam_gelu_mul_scalar(const float *gate, const float *up, size_t n, float *y);

extern const struct lam_kernels lam_kernels_scalar;

#endif
