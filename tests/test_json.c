/* Canonical JSON against RFC 8785's own examples and against tests/data/identity (tools/make_identity_golden.py). */
#include "support.h"

#include "base/json.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void assert_number(uint64_t bits, const char *want)
{
    char got[LAM_JSON_NUMBER];
    lam_json_number(from_bits(bits), got);
    assert_string_equal(got, want);
}

/* RFC 8785, appendix B. */
static void test_rfc_numbers(void **state)
{
    (void)state;
    static const struct { uint64_t bits; const char *text; } samples[] = {
        {0x0000000000000000, "0"},                      {0x8000000000000000, "0"},
        {0x0000000000000001, "5e-324"},                 {0x8000000000000001, "-5e-324"},
        {0x7fefffffffffffff, "1.7976931348623157e+308"},{0xffefffffffffffff, "-1.7976931348623157e+308"},
        {0x4340000000000000, "9007199254740992"},       {0xc340000000000000, "-9007199254740992"},
        {0x4430000000000000, "295147905179352830000"},  {0x44b52d02c7e14af5, "9.999999999999997e+22"},
        {0x44b52d02c7e14af6, "1e+23"},                  {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
        {0x444b1ae4d6e2ef4e, "999999999999999700000"},  {0x444b1ae4d6e2ef4f, "999999999999999900000"},
        {0x444b1ae4d6e2ef50, "1e+21"},                  {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
        {0x3eb0c6f7a0b5ed8d, "0.000001"},               {0x41b3de4355555553, "333333333.3333332"},
        {0x41b3de4355555554, "333333333.33333325"},     {0x41b3de4355555555, "333333333.3333333"},
        {0x41b3de4355555556, "333333333.3333334"},      {0x41b3de4355555557, "333333333.33333343"},
        {0xbecbf647612f3696, "-0.0000033333333333333333"}, {0x43143ff3c1cb0959, "1424953923781206.2"},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) assert_number(samples[i].bits, samples[i].text);
}

/* Integers that not every reader holds exactly. Jansson itself refuses NaN and infinity as values. */
static void test_refused_numbers(void **state)
{
    (void)state;
    static const struct { json_int_t value; lam_code code; } integers[] = {
        {9007199254740991, LAM_OK}, {-9007199254740991, LAM_OK}, {9007199254740992, LAM_E_FORMAT}, {-9007199254740992, LAM_E_FORMAT},
    };
    for (size_t i = 0; i < 4; i++) {
        struct lam_str out = {0};
        lam_error err;
        json_t *value = json_integer(integers[i].value);
        assert_int_equal(lam_json_canonical(value, &out, &err), integers[i].code);
        json_decref(value);
        lam_str_release(&out);
    }
    assert_null(json_real(NAN));
    assert_null(json_real(INFINITY));
}

static void assert_canonical(const char *text, size_t len, const char *want)
{
    struct lam_str out = {0};
    lam_error err;
    json_t *value;
    assert_ok(lam_json_parse(text, len, "test", &value, &err), err);
    assert_ok(lam_json_canonical(value, &out, &err), err);
    assert_string_equal(out.data, want);
    json_decref(value);
    lam_str_release(&out);
}

/* RFC 8785, sections 3.2.2 (with 3.2.4's result) and 3.2.3. */
static void test_rfc_samples(void **state)
{
    (void)state;
    static const char sample[] =
        "{\n  \"numbers\": [333333333.33333329, 1E30, 4.50,\n              2e-3, 0.000000000000000000000000001],\n"
        "  \"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\",\n  \"literals\": [null, true, false]\n}";
    assert_canonical(sample, sizeof sample - 1,
                     "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],"
                     "\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
    static const char sorting[] =
        "{\"\\u20ac\": \"Euro Sign\", \"\\r\": \"Carriage Return\", \"\\ufb33\": \"Hebrew Letter Dalet With Dagesh\", \"1\": \"One\","
        " \"\\ud83d\\ude00\": \"Emoji: Grinning Face\", \"\\u0080\": \"Control\", \"\\u00f6\": \"Latin Small Letter O With Diaeresis\"}";
    assert_canonical(sorting, sizeof sorting - 1,
                     "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\","
                     "\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\",\"\xe2\x82\xac\":\"Euro Sign\","
                     "\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\",\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
}

static void test_golden_numbers(void **state)
{
    (void)state;
    FILE *f = fopen("tests/data/identity/numbers.txt", "r");
    assert_non_null(f);
    unsigned long long bits;
    char want[64];
    size_t n = 0;
    while (fscanf(f, "%llx %63s", &bits, want) == 2) {
        assert_number(bits, want);
        assert_true(strtod(want, NULL) == from_bits(bits));
        n++;
    }
    fclose(f);
    assert_int_equal(n, 2400);
}

/* A program that speaks German gets the same identities. */
static void test_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ru_RU.UTF-8", "pl_PL.UTF-8"};
    size_t i = 0;
    while (i < 5 && !setlocale(LC_ALL, names[i])) i++;
    if (i == 5) skip(); /* none with a decimal comma on this machine */
    assert_number(0x43143ff3c1cb0959, "1424953923781206.2");
    assert_number(0x3fe0000000000000, "0.5");
    setlocale(LC_ALL, "C");
}

static void test_golden_values(void **state)
{
    (void)state;
    size_t size, i;
    lam_error err;
    json_t *pairs, *pair;
    char *text = (char *)test_read_file("tests/data/identity/canonical.json", &size);
    assert_ok(lam_json_parse(text, size, "canonical.json", &pairs, &err), err);
    json_array_foreach(pairs, i, pair) {
        const json_t *in = json_array_get(pair, 0);
        assert_canonical(json_string_value(in), json_string_length(in), json_string_value(json_array_get(pair, 1)));
    }
    assert_int_equal(i, 150);
    json_decref(pairs);
    free(text);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct { const char *text; lam_code code; } bad[] = {
        {"{\"a\":1,\"a\":2}", LAM_E_DUPLICATE}, {"{\"b\":{\"a\":1,\"\\u0061\":2}}", LAM_E_DUPLICATE},
        {"", LAM_E_FORMAT}, {"{", LAM_E_FORMAT}, {"{} x", LAM_E_FORMAT}, {"[1,]", LAM_E_FORMAT}, {"NaN", LAM_E_FORMAT},
        {"[1e999]", LAM_E_FORMAT}, {"\"\xff\"", LAM_E_FORMAT}, {"\"\\ud800\"", LAM_E_FORMAT}, {"01", LAM_E_FORMAT},
    };
    lam_error err;
    json_t *value;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lam_json_parse(bad[i].text, strlen(bad[i].text), "file.json", &value, &err), bad[i].code);
        assert_null(value);
        assert_non_null(strstr(err.message, "file.json"));
    }
    size_t n = 1000000;
    char *deep = malloc(n);
    assert_non_null(deep);
    memset(deep, '[', n);
    assert_int_equal(lam_json_parse(deep, n, "deep", &value, &err), LAM_E_FORMAT);
    free(deep);
    static const char large[] = "[1000000000000000000000000000000,-99999999999999999999,0.12345678901234567890123,\"9999999999999999999999\"]";
    assert_canonical(large, sizeof large - 1,
                     "[1e+30,-100000000000000000000,0.12345678901234568,\"9999999999999999999999\"]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc_numbers),    cmocka_unit_test(test_refused_numbers), cmocka_unit_test(test_rfc_samples),
        cmocka_unit_test(test_golden_numbers), cmocka_unit_test(test_golden_values),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
