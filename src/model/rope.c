#include "model/rope.h"
#include "kernels/math.h"

#include <math.h>

#define PI 3.14159265358979323846

/* Llama 3.1's rule: long wavelengths are stretched by factor, short ones kept, those between blended. */
static double scale_llama3(const struct lam_rope *r, double frequency)
{
    double wavelength = 2.0 * PI / frequency;
    if (wavelength < r->original_context / r->high_freq_factor) return frequency;
    if (wavelength > r->original_context / r->low_freq_factor) return frequency / r->factor;
    double smooth = (r->original_context / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1.0 - smooth) * frequency / r->factor + smooth * frequency;
}

/* The dimension whose frequency turns `rotations` times within the original context (arXiv:2309.00071, eq. 17 solved for d). */
static double yarn_dimension(const struct lam_rope *r, uint32_t head_dim, double rotations)
{
    return head_dim * lam_log64(r->original_context / (rotations * 2.0 * PI)) / (2.0 * lam_log64(r->theta));
}

static double scale_yarn(const struct lam_rope *r, uint32_t head_dim, uint32_t i, double frequency)
{
    double low = floor(yarn_dimension(r, head_dim, r->beta_fast)), high = ceil(yarn_dimension(r, head_dim, r->beta_slow));
    if (low < 0.0) low = 0.0;
    if (high > head_dim - 1.0) high = head_dim - 1.0;
    if (low == high) high += 0.001;
    double ramp = ((double)i - low) / (high - low);
    ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
    return frequency / r->factor * ramp + frequency * (1.0 - ramp);
}

void lam_rope_frequencies(const struct lam_rope *r, uint32_t head_dim, const float *factors, float *inv_freq)
{
    double log_theta = lam_log64(r->theta);
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        double frequency = lam_exp64(-2.0 * (double)i / (double)head_dim * log_theta);
        switch (r->scaling) {
        case LAM_ROPE_PLAIN: break;
        case LAM_ROPE_LINEAR: frequency = frequency / r->factor; break;
        case LAM_ROPE_LLAMA3: frequency = scale_llama3(r, frequency); break;
        case LAM_ROPE_YARN: frequency = scale_yarn(r, head_dim, i, frequency); break;
        }
        if (factors) frequency = frequency / (double)factors[i];
        inv_freq[i] = (float)frequency;
    }
}

void lam_rope_angles(const struct lam_rope *r, const float *inv_freq, size_t n, size_t position, float *cosine, float *sine)
{
    for (size_t i = 0; i < n; i++) {
        double s, c;
        lam_sincos64((double)position * (double)inv_freq[i], &s, &c);
        cosine[i] = (float)(c * r->attention_factor);
        sine[i] = (float)(s * r->attention_factor);
    }
}
