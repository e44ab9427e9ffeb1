#include "kernels/math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Adding and subtracting 1.5·2^23 rounds a float of magnitude below 2^22 to the nearest integer, ties to even. */
#define ROUND32 12582912.0f
#define ROUND64 6755399441055744.0 /* the same for doubles: 1.5·2^52 */

float lam_exp(float x)
{
    if (x < -87.0f) return 0.0f;
    if (x > 88.0f) x = 88.0f;
    /* x = n·ln2 + r, |r| <= ln2/2; ln2 in two parts, the first with 9 bits so that n·part is exact. */
    float n = (x * 0x1.715476p+0f + ROUND32) - ROUND32;
    float r = (x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f;
    /* e^r = 1 + r + r²·p(r); p is a minimax fit of the relative error (3e-9). */
    float p = 0x1.6a234ep-10f;
    p = p * r + 0x1.123a6cp-7f;
    p = p * r + 0x1.5558f4p-5f;
    p = p * r + 0x1.555490p-3f;
    p = p * r + 0x1.fffffcp-2f;
    float e = 1.0f + (r + (r * r) * p);
    uint32_t bits; /* times 2^n: n is in −126..127 here and e in [0.7, 1.42), so the exponent stays normal or 0 */
    memcpy(&bits, &e, sizeof bits);
    bits += (uint32_t)(int32_t)n << 23;
    memcpy(&e, &bits, sizeof e);
    return e;
}

static double scale_by_power_of_two(double x, int n)
{
    uint64_t bits = (uint64_t)(1023 + n) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return x * power;
}

double lam_exp64(double x)
{
    double n = (x * 0x1.71547652b82fep+0 + ROUND64) - ROUND64;
    double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double sum = 1.0; /* Taylor by Horner; |r| <= 0.347, so 14 terms leave 1e-18 */
    for (int k = 14; k >= 1; k--) sum = 1.0 + sum * (r / (double)k);
    return scale_by_power_of_two(sum, (int)n);
}

double lam_log64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double f;
    memcpy(&f, &bits, sizeof f);
    if (f > 0x1.6a09e667f3bcdp+0) { /* sqrt(2) */
        f *= 0.5;
        e++;
    }
    /* log f = 2·atanh(s), s = (f−1)/(f+1), |s| <= 0.1716 */
    double s = (f - 1.0) / (f + 1.0), s2 = s * s, sum = 0.0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * s2 + 1.0 / (double)k;
    return (double)e * 0x1.a39ef35793c76p-33 + ((double)e * 0x1.62e42fee00000p-1 + 2.0 * (s * sum));
}

double lam_tanh64(double x)
{
    double a = x < 0 ? -x : x, t;
    if (a < 1e-4)
        t = a - a * a * a / 3.0; /* the next term is below 2e-21 */
    else if (a > 20.0)
        t = 1.0;
    else
        t = 1.0 - 2.0 / (lam_exp64(2.0 * a) + 1.0);
    return x < 0 ? -t : t;
}

void lam_sincos64(double x, double *sine, double *cosine)
{
    /* x = n·pi/2 + r; pi/2 in three parts, the first of 33 bits so that n·part is exact below 2^20. */
    double n = (x * 0x1.45f306dc9c883p-1 + ROUND64) - ROUND64;
    double r = ((x - n * 0x1.921fb54400000p+0) - n * 0x1.0b4611a600000p-34) - n * 0x1.3198a2e037073p-69;
    double r2 = r * r, s = 1.0, c = 1.0;
    /* Taylor by Horner; |r| <= 0.786 leaves 1e-18. */
    for (int k = 18; k >= 2; k -= 2) s = 1.0 - s * (r2 / (double)(k * (k + 1)));
    for (int k = 19; k >= 1; k -= 2) c = 1.0 - c * (r2 / (double)(k * (k + 1)));
    s = s * r;
    switch ((int64_t)n & 3) {
    case 0: *sine = s; *cosine = c; break;
    case 1: *sine = c; *cosine = -s; break;
    case 2: *sine = -s; *cosine = -c; break;
    default: *sine = -c; *cosine = s; break;
    }
}

float lam_silu(float x) { return x / (1.0f + lam_exp(-x)); }

float lam_gelu_tanh(float x)
{
    float inner = 1.0f + 0.044715f * (x * x);
    float u2 = (x * 1.5957691216f) * inner; /* 2·sqrt(2/pi) */
    return x / (1.0f + lam_exp(-u2));
}

float lam_rms_scale(float v)
{
    float r = 1.0f / sqrtf(v);
    return r > 0.0f ? r : NAN;
}
