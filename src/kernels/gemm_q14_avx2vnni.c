/* The table of the variant with AVX-VNNI, and its 14-bit products; what has no use for the instructions is the AVX2 variant's. */
#include "kernels/gemm_q14_256.h"

INLINE __m256i add_pair(__m256i sum, __m256i a, __m256i b) { return _mm256_dpwssd_avx_epi32(sum, a, b); }

static void add_q14_vnni(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                         size_t y_stride)
{
    add_q14(tiles, x, first, n_rows, y, y_stride);
}

const struct lam_kernels lam_kernels_avx2vnni = {
    .name = "avx2-vnni",
    .quantise8 = lam_quantise8_avx2,
    .quantise14 = lam_quantise14_avx2,
    .gemm_quant = lam_gemm_quant_avx2vnni,
    .gemm_float = lam_gemm_float_avx2,
    .add_q14 = add_q14_vnni,
    .rms_norm = lam_rms_norm_avx2,
    .attention = lam_attention_avx2,
    .kv_store = lam_kv_store_avx2,
    .rotate = lam_rotate_avx2,
    .silu_mul = lam_silu_mul_avx2,
    .gelu_mul = lam_gelu_mul_avx2,
};
