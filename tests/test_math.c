/* nc1's elementary functions against mpmath (tests/data/math/golden.txt, made by tools/make_math_golden.py). The bounds follow
 * from the written order of operations, u being 2^-24 or 2^-53, half an ulp of 1:
 *   exp     polynomial 3e-9, rounding of r and of r + r²p a quarter ulp each, last sum half: 1.1 ulp; bound 2 ulp
 *   exp64   last sum half an ulp, product a quarter, inner sum half, r a quarter: 1.5 ulp; bound 3 ulp
 *   log64   f+1, quotient, series, product, then two sums: each at most u relative: 6 u; bound 8 u relative
 *   tanh64  1 − 2/(E+1): E's 3 ulp count at most half, quotient and difference 2.5 u: 6e-16; bound 1e-15 absolute
 *   sincos  reduction exact below 2^20·pi/2, r and the series a few u: bound 1e-15; above, n·pi/2 rounds: x·2u more
 *   silu    exp 2 ulp (4 u) at most, sum and quotient 2 u: bound 6 u relative
 *   gelu    u2 has 7 roundings and a constant: e^−u2 is off by 8 u |u2| besides silu's 6 u */
#include "support.h"

#include "kernels/math.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef double bound_fn(double x, double y); /* greatest allowed distance from y = f(x) */

static const double u32 = 0x1p-24, u64 = 0x1p-53;

static double ulp32(double y) { return ldexp(1.0, ilogb(y) - 23); }
static double ulp64(double y) { return ldexp(1.0, ilogb(y) - 52); }

static double bound_exp(double x, double y) { return (void)x, 2.0 * ulp32(y); }
static double bound_exp64(double x, double y) { return (void)x, 3.0 * ulp64(y); }
static double bound_log64(double x, double y) { return (void)x, 8.0 * u64 * fabs(y); }
static double bound_tanh64(double x, double y) { return (void)x, (void)y, 1e-15; }
static double bound_sincos(double x, double y) { return (void)y, 1e-15 + (x < 0x1p20 ? 0.0 : x * 2.0 * u64); }
static double bound_silu(double x, double y) { return (void)x, 6.0 * u32 * fabs(y); }
static double bound_gelu(double x, double y)
{
    double u2 = 2.0 * sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    return (6.0 + 8.0 * fabs(u2)) * u32 * fabs(y);
}

static double call_exp(double x) { return (double)lam_exp((float)x); }
static double call_silu(double x) { return (double)lam_silu((float)x); }
static double call_gelu(double x) { return (double)lam_gelu_tanh((float)x); }
static double call_sin(double x)
{
    double s, c;
    lam_sincos64(x, &s, &c);
    return s;
}
static double call_cos(double x)
{
    double s, c;
    lam_sincos64(x, &s, &c);
    return c;
}

/* Every line of that name in golden.txt. */
static void check(const char *name, double (*f)(double), bound_fn *bound)
{
    size_t n = 0;
    char *golden = (char *)test_read_file("tests/data/math/golden.txt", NULL);
    for (char *line = golden; *line; line = strchr(line, '\n') + 1) {
        char key[16];
        double x, y;
        assert_int_equal(sscanf(line, "%15s %la %la", key, &x, &y), 3);
        if (strcmp(key, name) != 0) continue;
        n++;
        double got = f(x);
        if (!(fabs(got - y) <= bound(x, y)) && got != y)
            fail_msg("%s(%a) is %a, mpmath %a, off by %g, bound %g", name, x, got, y, fabs(got - y), bound(x, y));
    }
    assert_true(n >= 120);
    free(golden);
}

static void test_exp(void **state)
{
    (void)state;
    check("exp", call_exp, bound_exp);
    assert_true(lam_exp(0.0f) == 1.0f && lam_exp(-0.0f) == 1.0f);
    assert_true(lam_exp(-87.5f) == 0.0f && !signbit(lam_exp(-87.5f)) && lam_exp(-INFINITY) == 0.0f);
    assert_true(lam_exp(88.0f) == lam_exp(1e30f) && lam_exp(88.0f) == lam_exp(INFINITY) && isfinite(lam_exp(88.0f)));
}

static void test_exp64(void **state)
{
    (void)state;
    check("exp64", lam_exp64, bound_exp64);
}

static void test_log64(void **state)
{
    (void)state;
    check("log64", lam_log64, bound_log64);
    assert_true(lam_log64(1.0) == 0.0);
}

static void test_tanh64(void **state)
{
    (void)state;
    check("tanh64", lam_tanh64, bound_tanh64);
    for (double x = 0x1p-40; x < 100.0; x *= 1.37) assert_true(lam_tanh64(-x) == -lam_tanh64(x) && lam_tanh64(x) <= 1.0);
}

static void test_sincos64(void **state)
{
    (void)state;
    check("sin64", call_sin, bound_sincos);
    check("cos64", call_cos, bound_sincos);
}

static void test_silu(void **state)
{
    (void)state;
    check("silu", call_silu, bound_silu);
}

static void test_gelu(void **state)
{
    (void)state;
    check("gelu", call_gelu, bound_gelu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),      cmocka_unit_test(test_exp64), cmocka_unit_test(test_log64), cmocka_unit_test(test_tanh64),
        cmocka_unit_test(test_sincos64), cmocka_unit_test(test_silu),  cmocka_unit_test(test_gelu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
