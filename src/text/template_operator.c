/* Arithmetic and concatenation, with Python's rules. */
#include "text/template_value.h"

#include <math.h>
#include <string.h>

static lam_code bad_operands(struct lam_tpl_run *run, char op, struct lam_tpl_value a, struct lam_tpl_value b)
{
    const char *name = op == 'F' ? "//" : op == 'P' ? "**" : (char[2]){op, 0};
    if (a.kind == LAM_TPL_UNDEFINED || b.kind == LAM_TPL_UNDEFINED) {
        struct lam_tpl_text t = a.kind == LAM_TPL_UNDEFINED ? a.text : b.text;
        return lam_tpl_fail(run, "'%.*s' is undefined, in an operation %s", LAM_TPL_SHOWN(t), name);
    }
    return lam_tpl_fail(run, "no operation %s between %s and %s", name, lam_tpl_type_name(a), lam_tpl_type_name(b));
}

static lam_code overflow(struct lam_tpl_run *run) { return lam_tpl_fail(run, "a number beyond the range of 64 bits"); }

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static lam_code int_power(struct lam_tpl_run *run, int64_t a, int64_t b, struct lam_tpl_value *out)
{
    int64_t result = 1;
    if (a == 0 || a == 1 || a == -1) {
        *out = lam_tpl_int(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
        return LAM_OK;
    }
    for (int64_t i = 0; i < b; i++) /* ends within 63 rounds: |a| > 1 */
        if (__builtin_mul_overflow(result, a, &result)) return overflow(run);
    *out = lam_tpl_int(result);
    return LAM_OK;
}

static lam_code int_binary(struct lam_tpl_run *run, char op, int64_t a, int64_t b, struct lam_tpl_value *out)
{
    int64_t r = 0;
    if ((op == '/' || op == 'F' || op == '%') && b == 0) return lam_tpl_fail(run, "division by zero");
    switch (op) {
    case '+': if (__builtin_add_overflow(a, b, &r)) return overflow(run); break;
    case '-': if (__builtin_sub_overflow(a, b, &r)) return overflow(run); break;
    case '*': if (__builtin_mul_overflow(a, b, &r)) return overflow(run); break;
    case 'F':
        if (a == INT64_MIN && b == -1) return overflow(run);
        r = floor_div(a, b);
        break;
    case '%':
        r = b == -1 ? 0 : a % b;
        if (r != 0 && (r < 0) != (b < 0)) r += b;
        break;
    case '/':
        *out = lam_tpl_float((double)a / (double)b);
        return LAM_OK;
    default: return int_power(run, a, b, out);
    }
    *out = lam_tpl_int(r);
    return LAM_OK;
}

static lam_code float_binary(struct lam_tpl_run *run, char op, double a, double b, struct lam_tpl_value *out)
{
    double r = 0, rest, quotient;
    if ((op == '/' || op == 'F' || op == '%') && b == 0) return lam_tpl_fail(run, "division by zero");
    switch (op) {
    case '+': r = a + b; break;
    case '-': r = a - b; break;
    case '*': r = a * b; break;
    case '/': r = a / b; break;
    case 'P':
        if (a == 0 && b < 0) return lam_tpl_fail(run, "zero to a negative power");
        r = pow(a, b);
        if (!isfinite(r) && isfinite(a) && isfinite(b)) return lam_tpl_fail(run, "a power that is no finite real number");
        break;
    default:
        rest = fmod(a, b);
        if (rest != 0 && (b < 0) != (rest < 0)) rest += b;
        if (op == '%') {
            r = rest != 0 ? rest : copysign(0, b);
            break;
        }
        quotient = (a - rest) / b;
        r = floor(quotient);
        if (quotient - r > 0.5) r += 1;
        if (quotient == 0) r = copysign(0, a / b);
    }
    *out = lam_tpl_float(r);
    return LAM_OK;
}

static lam_code put_escaped(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_str *s)
{
    if (v.markup) return lam_tpl_put(run, s, v.text.s, v.text.len);
    for (size_t i = 0; i < v.text.len; i++) {
        char c = v.text.s[i];
        const char *entity = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '\'' ? "&#39;" : c == '"' ? "&#34;" : NULL;
        LAM_TRY(entity ? lam_tpl_puts(run, s, entity) : lam_tpl_put(run, s, &c, 1));
    }
    return lam_tpl_tick(run, v.text.len / 4);
}

static lam_code add_texts(struct lam_tpl_run *run, struct lam_tpl_value a, struct lam_tpl_value b,
                          struct lam_tpl_value *out)
{
    struct lam_str s = {0};
    bool markup = a.markup || b.markup;
    if (!markup) a.markup = b.markup = true; /* nothing to escape */
    lam_code code = put_escaped(run, a, &s);
    if (code == LAM_OK) code = put_escaped(run, b, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    if (code == LAM_OK) out->markup = markup;
    return code;
}

static lam_code add_lists(struct lam_tpl_run *run, const struct lam_tpl_list *a, const struct lam_tpl_list *b,
                          struct lam_tpl_value *out)
{
    LAM_TRY(lam_tpl_list_new(run, a->shape, a->n + b->n, out));
    if (a->n) memcpy(out->list->items, a->items, a->n * sizeof *a->items);
    if (b->n) memcpy(out->list->items + a->n, b->items, b->n * sizeof *b->items);
    out->list->n = a->n + b->n;
    return LAM_OK;
}

static lam_code repeat(struct lam_tpl_run *run, struct lam_tpl_value v, int64_t count, struct lam_tpl_value *out)
{
    if (count < 0) count = 0;
    if (v.kind == LAM_TPL_LIST) {
        LAM_TRY(lam_tpl_list_new(run, v.list->shape, 0, out));
        for (int64_t i = 0; i < count && v.list->n; i++)
            for (size_t k = 0; k < v.list->n; k++) LAM_TRY(lam_tpl_list_push(run, out->list, v.list->items[k]));
        return LAM_OK;
    }
    struct lam_str s = {0};
    lam_code code = LAM_OK;
    for (int64_t i = 0; i < count && v.text.len && code == LAM_OK; i++) {
        code = lam_tpl_tick(run, 1);
        if (code == LAM_OK) code = lam_tpl_put(run, &s, v.text.s, v.text.len);
    }
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

static bool is_sequence(struct lam_tpl_value v)
{
    return v.kind == LAM_TPL_STRING || (v.kind == LAM_TPL_LIST && v.list->shape <= LAM_TPL_TUPLE);
}

lam_code lam_tpl_binary(struct lam_tpl_run *run, char op, struct lam_tpl_value a, struct lam_tpl_value b,
                        struct lam_tpl_value *out)
{
    bool a_int = a.kind == LAM_TPL_INT || a.kind == LAM_TPL_BOOL, b_int = b.kind == LAM_TPL_INT || b.kind == LAM_TPL_BOOL;
    if (a_int && b_int && (op != 'P' || lam_tpl_as_int(b) >= 0))
        return int_binary(run, op, lam_tpl_as_int(a), lam_tpl_as_int(b), out);
    if (lam_tpl_is_number(a) && lam_tpl_is_number(b))
        return float_binary(run, op, lam_tpl_as_double(a), lam_tpl_as_double(b), out);
    if (op == '+' && a.kind == LAM_TPL_STRING && b.kind == LAM_TPL_STRING) return add_texts(run, a, b, out);
    if (op == '+' && a.kind == LAM_TPL_LIST && b.kind == LAM_TPL_LIST && is_sequence(a) && a.list->shape == b.list->shape)
        return add_lists(run, a.list, b.list, out);
    if (op == '*' && is_sequence(a) && b_int) return repeat(run, a, lam_tpl_as_int(b), out);
    if (op == '*' && a_int && is_sequence(b)) return repeat(run, b, lam_tpl_as_int(a), out);
    if (op == '%' && a.kind == LAM_TPL_STRING) return lam_tpl_fail(run, "formatting a string with %% is not supported");
    return bad_operands(run, op, a, b);
}

lam_code lam_tpl_sign(struct lam_tpl_run *run, char op, struct lam_tpl_value a, struct lam_tpl_value *out)
{
    if (a.kind == LAM_TPL_FLOAT) *out = lam_tpl_float(op == '-' ? -a.f : a.f);
    else if (!lam_tpl_is_number(a)) return lam_tpl_fail(run, "no sign for a value of type %s", lam_tpl_type_name(a));
    else if (lam_tpl_as_int(a) == INT64_MIN) return overflow(run);
    else *out = lam_tpl_int(op == '-' ? -lam_tpl_as_int(a) : lam_tpl_as_int(a));
    return LAM_OK;
}
