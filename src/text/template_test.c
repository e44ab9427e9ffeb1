/* Tests: what stands behind "is". */
#include "text/template_text.h"
#include "text/template_value.h"

typedef lam_code test_fn(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out);

static bool is_lower_case(struct lam_tpl_text t, int wanted)
{
    bool any = false;
    for (size_t i = 0, size; i < t.len; i += size) {
        int c = lam_tpl_case_of(lam_tpl_decode(t.s + i, t.len - i, &size));
        if (c == -wanted) return false;
        any = any || c == wanted;
    }
    return any;
}

static lam_code in_case(struct lam_tpl_run *run, struct lam_tpl_value v, int wanted, bool *out)
{
    struct lam_tpl_text t = {"", 0};
    LAM_TRY(lam_tpl_to_text(run, v, &t));
    *out = is_lower_case(t, wanted);
    return lam_tpl_tick(run, t.len / 4);
}

/* Tests that look at the value alone; false in *known when name is none of them. */
static lam_code plain_test(struct lam_tpl_run *run, struct lam_tpl_text name, struct lam_tpl_value v, bool *out, bool *known)
{
    bool list = v.kind == LAM_TPL_LIST, sequence = list && v.list->shape <= LAM_TPL_TUPLE;
    *known = true;
    if (lam_tpl_text_is(name, "defined")) *out = v.kind != LAM_TPL_UNDEFINED;
    else if (lam_tpl_text_is(name, "undefined")) *out = v.kind == LAM_TPL_UNDEFINED;
    else if (lam_tpl_text_is(name, "none")) *out = v.kind == LAM_TPL_NONE;
    else if (lam_tpl_text_is(name, "boolean")) *out = v.kind == LAM_TPL_BOOL;
    else if (lam_tpl_text_is(name, "true")) *out = v.kind == LAM_TPL_BOOL && v.b;
    else if (lam_tpl_text_is(name, "false")) *out = v.kind == LAM_TPL_BOOL && !v.b;
    else if (lam_tpl_text_is(name, "integer")) *out = v.kind == LAM_TPL_INT;
    else if (lam_tpl_text_is(name, "float")) *out = v.kind == LAM_TPL_FLOAT;
    else if (lam_tpl_text_is(name, "number")) *out = lam_tpl_is_number(v);
    else if (lam_tpl_text_is(name, "string")) *out = v.kind == LAM_TPL_STRING;
    else if (lam_tpl_text_is(name, "mapping")) *out = v.kind == LAM_TPL_DICT;
    else if (lam_tpl_text_is(name, "iterable"))
        *out = list || v.kind == LAM_TPL_STRING || v.kind == LAM_TPL_DICT || v.kind == LAM_TPL_UNDEFINED || v.kind == LAM_TPL_LOOP;
    else if (lam_tpl_text_is(name, "sequence"))
        *out = sequence || v.kind == LAM_TPL_STRING || v.kind == LAM_TPL_DICT || v.kind == LAM_TPL_UNDEFINED;
    else if (lam_tpl_text_is(name, "callable"))
        *out = v.kind == LAM_TPL_MACRO || v.kind == LAM_TPL_FUNCTION || v.kind == LAM_TPL_METHOD || v.kind == LAM_TPL_LOOP || v.kind == LAM_TPL_UNDEFINED;
    else if (lam_tpl_text_is(name, "lower")) return in_case(run, v, -1, out);
    else if (lam_tpl_text_is(name, "upper")) return in_case(run, v, 1, out);
    else *known = false;
    return LAM_OK;
}

static lam_code remainder_is(struct lam_tpl_run *run, struct lam_tpl_value v, int64_t divisor, int64_t wanted, bool *out)
{
    struct lam_tpl_value rest, zero = lam_tpl_int(wanted);
    LAM_TRY(lam_tpl_binary(run, '%', v, lam_tpl_int(divisor), &rest));
    return lam_tpl_equal(run, rest, zero, out);
}

static lam_code test_odd(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    (void)arg;
    return remainder_is(run, v, 2, 1, out);
}

static lam_code test_even(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    (void)arg;
    return remainder_is(run, v, 2, 0, out);
}

static lam_code test_divisible(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    if (arg->kind != LAM_TPL_INT) return lam_tpl_fail(run, "divisibleby needs an integer, not %s", lam_tpl_type_name(*arg));
    return remainder_is(run, v, arg->i, 0, out);
}

static lam_code test_eq(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    return lam_tpl_equal(run, v, *arg, out);
}

static lam_code test_ne(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    LAM_TRY(lam_tpl_equal(run, v, *arg, out));
    *out = !*out;
    return LAM_OK;
}

static lam_code test_in(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    return lam_tpl_contains(run, *arg, v, out);
}

static lam_code test_lt(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    int order = 0;
    LAM_TRY(lam_tpl_compare(run, v, *arg, &order));
    *out = order < 0;
    return LAM_OK;
}

static lam_code test_gt(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    return test_lt(run, *arg, &v, out);
}

static lam_code test_le(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    LAM_TRY(test_lt(run, *arg, &v, out));
    *out = !*out;
    return LAM_OK;
}

static lam_code test_ge(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    LAM_TRY(test_lt(run, v, arg, out));
    *out = !*out;
    return LAM_OK;
}

/* Identity, which Python has for none and the truth values; of other values it depends on the interpreter. */
static lam_code test_sameas(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_value *arg, bool *out)
{
    bool known = v.kind == LAM_TPL_NONE || v.kind == LAM_TPL_BOOL || arg->kind == LAM_TPL_NONE || arg->kind == LAM_TPL_BOOL;
    if (!known) return lam_tpl_fail(run, "sameas of a %s and a %s is not supported", lam_tpl_type_name(v), lam_tpl_type_name(*arg));
    *out = v.kind == arg->kind && (v.kind == LAM_TPL_NONE || v.b == arg->b);
    return LAM_OK;
}

static const struct {
    const char *name;
    size_t n_args;
    test_fn *fn;
} tests[] = {
    {"odd", 0, test_odd}, {"even", 0, test_even}, {"divisibleby", 1, test_divisible}, {"in", 1, test_in},
    {"eq", 1, test_eq}, {"equalto", 1, test_eq}, {"==", 1, test_eq}, {"ne", 1, test_ne}, {"!=", 1, test_ne},
    {"lt", 1, test_lt}, {"lessthan", 1, test_lt}, {"<", 1, test_lt}, {"le", 1, test_le}, {"<=", 1, test_le},
    {"gt", 1, test_gt}, {"greaterthan", 1, test_gt}, {">", 1, test_gt}, {"ge", 1, test_ge}, {">=", 1, test_ge},
    {"sameas", 1, test_sameas},
};

lam_code lam_tpl_apply_test(struct lam_tpl_run *run, struct lam_tpl_text name, struct lam_tpl_value v,
                            const struct lam_tpl_args *args, bool *out)
{
    bool known = false;
    LAM_TRY(lam_tpl_tick(run, 1));
    *out = false;
    LAM_TRY(plain_test(run, name, v, out, &known));
    if (known && args->n + args->n_named) return lam_tpl_fail(run, "the test '%.*s' takes no argument", LAM_TPL_SHOWN(name));
    for (size_t i = 0; !known && i < sizeof tests / sizeof *tests; i++) {
        if (!lam_tpl_text_is(name, tests[i].name)) continue;
        if (args->n != tests[i].n_args || args->n_named)
            return lam_tpl_fail(run, "the test '%.*s' takes %zu arguments", LAM_TPL_SHOWN(name), tests[i].n_args);
        return tests[i].fn(run, v, args->values, out);
    }
    return known ? LAM_OK : lam_tpl_fail(run, "the test '%.*s' is not supported", LAM_TPL_SHOWN(name));
}
