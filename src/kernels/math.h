/* nc1's own elementary functions: a written order of operations, no C library, the same bits everywhere
 * (docs/numeric.md, "Functions"). Accuracy was measured against mpmath; see tests/test_math.c. */
#ifndef LAM_KERNELS_MATH_H
#define LAM_KERNELS_MATH_H

/* e^x in float32: clamped at 88, +0 below −87. x is not NaN. */
float lam_exp(float x);

/* e^x in float64 for |x| <= 700. */
double lam_exp64(double x);

/* Natural logarithm in float64; x positive and normal. */
double lam_log64(double x);

/* tanh in float64. */
double lam_tanh64(double x);

/* sin and cos in float64, 0 <= x < 2^31. */
void lam_sincos64(double x, double *sine, double *cosine);

/* x / (1 + e^−x) */
float lam_silu(float x);

/* x / (1 + e^−2u), u = sqrt(2/pi)·(x + 0.044715·x³): GELU in its tanh form. */
float lam_gelu_tanh(float x);

/* 1 / sqrt(v), v the mean square plus epsilon of a norm. NaN where v is not finite: the sum of squares left the range, and a scale of
 * zero would hide it. */
float lam_rms_scale(float v);

#endif
