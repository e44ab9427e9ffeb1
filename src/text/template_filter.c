/* Filters that work on one value. */
#include "text/template_text.h"
#include "text/template_value.h"

#include <math.h>
#include <string.h>

typedef lam_code filter_fn(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out);

/* Make a string of what `code` left in *s, and release it. */
static lam_code finish(struct lam_tpl_run *run, lam_code code, struct lam_str *s, struct lam_tpl_value *out)
{
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s->data, s->len, out);
    lam_str_release(s);
    return code;
}

/* A method of str, applied to str(v). */
static lam_code by_method(struct lam_tpl_run *run, struct lam_tpl_value v, const char *name,
                          const struct lam_tpl_args *args, struct lam_tpl_value *out)
{
    struct lam_tpl_text text = {"", 0};
    LAM_TRY(lam_tpl_to_text(run, v, &text));
    struct lam_tpl_method method = {lam_tpl_string(text), {name, strlen(name)}};
    return lam_tpl_call_method(run, &method, args, out);
}

static lam_code filter_replace(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                               struct lam_tpl_value *out)
{
    static const char *const names[] = {"old", "new", "count"};
    const struct lam_tpl_value *bound[3];
    struct lam_tpl_value values[3] = {lam_tpl_none(), lam_tpl_none(), lam_tpl_none()};
    LAM_TRY(lam_tpl_bind(run, "replace", args, names, 3, 2, bound));
    for (int i = 0; i < 2; i++) {
        struct lam_tpl_text text = {"", 0};
        LAM_TRY(lam_tpl_to_text(run, *bound[i], &text));
        values[i] = lam_tpl_string(text);
    }
    if (bound[2]) values[2] = *bound[2];
    struct lam_tpl_args positional = {.n = 3, .values = values};
    return by_method(run, v, "replace", &positional, out);
}

/* Jinja's title: words begin behind white space and - ( { [ <. */
static lam_code put_title(struct lam_tpl_run *run, struct lam_tpl_text t, struct lam_str *s)
{
    bool first = true;
    size_t size, begin = 0;
    for (size_t i = 0; i <= t.len; i += size) {
        uint32_t c = i < t.len ? lam_tpl_decode(t.s + i, t.len - i, &size) : ' ';
        bool between = c < 0x80 ? lam_tpl_is_space(c) || strchr("-({[<", (int)c) : lam_tpl_is_space(c);
        if (i == t.len) size = 1;
        if (!between && first) {
            struct lam_tpl_text initial = {t.s + i, size};
            LAM_TRY(lam_tpl_put_case(run, initial, LAM_TPL_UPPER, s));
            begin = i + size;
        } else if (between) {
            if (!first) LAM_TRY(lam_tpl_put_case(run, (struct lam_tpl_text){t.s + begin, i - begin}, LAM_TPL_LOWER, s));
            if (i < t.len) LAM_TRY(lam_tpl_put(run, s, t.s + i, size));
        }
        first = between;
    }
    return LAM_OK;
}

static lam_code filter_title(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                             struct lam_tpl_value *out)
{
    struct lam_tpl_text text = {"", 0};
    struct lam_str s = {0};
    LAM_TRY(lam_tpl_bind(run, "title", args, NULL, 0, 0, NULL));
    LAM_TRY(lam_tpl_to_text(run, v, &text));
    return finish(run, put_title(run, text, &s), &s, out);
}

static lam_code put_indented(struct lam_tpl_run *run, struct lam_tpl_text text, struct lam_tpl_text indent, bool first,
                             bool blank, struct lam_str *s)
{
    struct lam_tpl_value lines, with_end;
    struct lam_str ended = {0};
    struct lam_tpl_args none = {0};
    /* Jinja adds a line end, so that one at the end of the text survives. */
    lam_code code = lam_tpl_put(run, &ended, text.s, text.len);
    if (code == LAM_OK) code = lam_tpl_put(run, &ended, "\n", 1);
    LAM_TRY(finish(run, code, &ended, &with_end));
    struct lam_tpl_method split = {with_end, LAM_TPL_TEXT("splitlines")};
    LAM_TRY(lam_tpl_call_method(run, &split, &none, &lines));
    for (size_t i = 0; i < lines.list->n; i++) {
        struct lam_tpl_text line = lines.list->items[i].text;
        if (i) LAM_TRY(lam_tpl_put(run, s, "\n", 1));
        if (i ? blank || line.len : first) LAM_TRY(lam_tpl_put(run, s, indent.s, indent.len));
        LAM_TRY(lam_tpl_put(run, s, line.s, line.len));
    }
    return LAM_OK;
}

/* A number of spaces or a text, as the argument of indent and tojson(indent). */
static lam_code indent_text(struct lam_tpl_run *run, const char *what, const struct lam_tpl_value *arg,
                            struct lam_tpl_text *out)
{
    static const char spaces[] = "                                                                ";
    int64_t width = 0;
    if (arg->kind == LAM_TPL_STRING) return lam_tpl_arg_text(run, what, arg, out);
    LAM_TRY(lam_tpl_arg_int(run, what, arg, &width));
    if (width > (int64_t)sizeof spaces - 1) return lam_tpl_fail(run, "%s by more than %zu spaces is not supported", what, sizeof spaces - 1);
    *out = (struct lam_tpl_text){spaces, width < 0 ? 0 : (size_t)width};
    return LAM_OK;
}

static lam_code filter_indent(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                              struct lam_tpl_value *out)
{
    static const char *const names[] = {"width", "first", "blank"};
    const struct lam_tpl_value *bound[3];
    struct lam_tpl_text indent = LAM_TPL_TEXT("    ");
    struct lam_str s = {0};
    LAM_TRY(lam_tpl_bind(run, "indent", args, names, 3, 0, bound));
    if (v.kind != LAM_TPL_STRING) return lam_tpl_fail(run, "indent needs a string, not %s", lam_tpl_type_name(v));
    if (bound[0]) LAM_TRY(indent_text(run, "indent", bound[0], &indent));
    return finish(run, put_indented(run, v.text, indent, lam_tpl_arg_bool(bound[1], false), lam_tpl_arg_bool(bound[2], false), &s), &s, out);
}

static lam_code filter_string(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                              struct lam_tpl_value *out)
{
    struct lam_tpl_text text = {"", 0};
    LAM_TRY(lam_tpl_bind(run, "string", args, NULL, 0, 0, NULL));
    LAM_TRY(lam_tpl_to_text(run, v, &text));
    *out = v.kind == LAM_TPL_STRING ? v : lam_tpl_string(text);
    return LAM_OK;
}

static lam_code filter_safe(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                            struct lam_tpl_value *out)
{
    LAM_TRY(filter_string(run, v, args, out));
    out->markup = true;
    return LAM_OK;
}

static lam_code filter_default(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                               struct lam_tpl_value *out)
{
    static const char *const names[] = {"default_value", "boolean"};
    const struct lam_tpl_value *bound[2];
    LAM_TRY(lam_tpl_bind(run, "default", args, names, 2, 0, bound));
    bool missing = v.kind == LAM_TPL_UNDEFINED || (lam_tpl_arg_bool(bound[1], false) && !lam_tpl_truth(v));
    *out = !missing ? v : bound[0] ? *bound[0] : lam_tpl_string(LAM_TPL_TEXT(""));
    return LAM_OK;
}

static lam_code filter_length(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                              struct lam_tpl_value *out)
{
    size_t n = 0;
    LAM_TRY(lam_tpl_bind(run, "length", args, NULL, 0, 0, NULL));
    LAM_TRY(lam_tpl_length(run, v, &n));
    *out = lam_tpl_int((int64_t)n);
    return LAM_OK;
}

static lam_code filter_abs(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    LAM_TRY(lam_tpl_bind(run, "abs", args, NULL, 0, 0, NULL));
    bool negative = v.kind == LAM_TPL_FLOAT ? signbit(v.f) != 0 : lam_tpl_is_number(v) && lam_tpl_as_int(v) < 0;
    return lam_tpl_sign(run, negative ? '-' : '+', v, out);
}

static lam_code filter_int(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    static const char *const names[] = {"default", "base"};
    const struct lam_tpl_value *bound[2];
    double f = 0;
    LAM_TRY(lam_tpl_bind(run, "int", args, names, 2, 0, bound));
    if (bound[1] && !(bound[1]->kind == LAM_TPL_INT && bound[1]->i == 10)) return lam_tpl_fail(run, "int with a base is not supported");
    if (v.kind == LAM_TPL_UNDEFINED) return lam_tpl_fail(run, "int of an undefined value");
    *out = bound[0] ? *bound[0] : lam_tpl_int(0);
    if (v.kind == LAM_TPL_INT || v.kind == LAM_TPL_BOOL) *out = lam_tpl_int(lam_tpl_as_int(v));
    else if (v.kind == LAM_TPL_STRING && lam_tpl_parse_int(v.text, &out->i)) *out = lam_tpl_int(out->i);
    else {
        if (v.kind == LAM_TPL_FLOAT) f = v.f;
        else if (v.kind != LAM_TPL_STRING || !lam_tpl_parse_float(v.text, &f)) {
            *out = bound[0] ? *bound[0] : lam_tpl_int(0);
            return LAM_OK;
        }
        if (!(f > -9.2e18 && f < 9.2e18)) return lam_tpl_fail(run, "int of a number beyond the range of 64 bits");
        *out = lam_tpl_int((int64_t)f);
    }
    return LAM_OK;
}

static lam_code filter_float(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                             struct lam_tpl_value *out)
{
    static const char *const names[] = {"default"};
    const struct lam_tpl_value *otherwise;
    double f = 0;
    LAM_TRY(lam_tpl_bind(run, "float", args, names, 1, 0, &otherwise));
    if (v.kind == LAM_TPL_UNDEFINED) return lam_tpl_fail(run, "float of an undefined value");
    if (lam_tpl_is_number(v)) *out = lam_tpl_float(lam_tpl_as_double(v));
    else if (v.kind == LAM_TPL_STRING && lam_tpl_parse_float(v.text, &f)) *out = lam_tpl_float(f);
    else *out = otherwise ? *otherwise : lam_tpl_float(0);
    return LAM_OK;
}

static lam_code filter_tojson(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                              struct lam_tpl_value *out)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    const struct lam_tpl_value *bound[4];
    LAM_TRY(lam_tpl_bind(run, "tojson", args, names, 4, 0, bound));
    struct lam_tpl_json_style style = {.ascii = lam_tpl_arg_bool(bound[0], false), .sort_keys = lam_tpl_arg_bool(bound[3], false)};
    style.has_indent = bound[1] && bound[1]->kind != LAM_TPL_NONE;
    if (style.has_indent) LAM_TRY(indent_text(run, "tojson(indent)", bound[1], &style.indent));
    style.item_separator = style.has_indent ? LAM_TPL_TEXT(",") : LAM_TPL_TEXT(", ");
    style.key_separator = LAM_TPL_TEXT(": ");
    if (bound[2] && bound[2]->kind != LAM_TPL_NONE) {
        const struct lam_tpl_list *both;
        LAM_TRY(lam_tpl_iterate(run, *bound[2], &both));
        if (both->n != 2 || both->items[0].kind != LAM_TPL_STRING || both->items[1].kind != LAM_TPL_STRING)
            return lam_tpl_fail(run, "tojson(separators) needs two strings");
        style.item_separator = both->items[0].text;
        style.key_separator = both->items[1].text;
    }
    struct lam_str s = {0};
    return finish(run, lam_tpl_to_json(run, v, &style, &s), &s, out);
}

static lam_code filter_round(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                             struct lam_tpl_value *out)
{
    static const char *const names[] = {"precision", "method"};
    const struct lam_tpl_value *bound[2];
    int64_t precision = 0;
    struct lam_tpl_text method = LAM_TPL_TEXT("common");
    LAM_TRY(lam_tpl_bind(run, "round", args, names, 2, 0, bound));
    LAM_TRY(lam_tpl_arg_int(run, "round", bound[0], &precision));
    LAM_TRY(lam_tpl_arg_text(run, "round", bound[1], &method));
    if (!lam_tpl_is_number(v)) return lam_tpl_fail(run, "round of a value of type %s", lam_tpl_type_name(v));
    if (precision != 0) return lam_tpl_fail(run, "round to decimal places is not supported");
    double f = lam_tpl_as_double(v), below = floor(f);
    if (lam_tpl_text_is(method, "ceil")) *out = lam_tpl_float(ceil(f) + 0.0);
    else if (lam_tpl_text_is(method, "floor")) *out = lam_tpl_float(below + 0.0);
    else if (!lam_tpl_text_is(method, "common")) return lam_tpl_fail(run, "round by this method is not supported");
    else if (v.kind != LAM_TPL_FLOAT) *out = lam_tpl_int(lam_tpl_as_int(v));
    else *out = lam_tpl_float(copysign(f - below == 0.5 ? 2 * floor(f / 2 + 0.5) : round(f), f)); /* halves go to the even side */
    return LAM_OK;
}

/* fn is NULL where the filter is the method of str(v) that `method` names. */
static const struct {
    const char *name, *method;
    filter_fn *fn;
} filters[] = {
    {"capitalize", "capitalize", NULL}, {"lower", "lower", NULL}, {"trim", "strip", NULL}, {"upper", "upper", NULL},
    {"abs", NULL, filter_abs}, {"count", NULL, filter_length}, {"d", NULL, filter_default},
    {"default", NULL, filter_default}, {"float", NULL, filter_float}, {"indent", NULL, filter_indent},
    {"int", NULL, filter_int}, {"length", NULL, filter_length}, {"replace", NULL, filter_replace},
    {"round", NULL, filter_round}, {"safe", NULL, filter_safe}, {"string", NULL, filter_string},
    {"title", NULL, filter_title}, {"tojson", NULL, filter_tojson},
};

/* *found is false when name is no filter. */
static lam_code apply(struct lam_tpl_run *run, struct lam_tpl_text name, struct lam_tpl_value v,
                      const struct lam_tpl_args *args, struct lam_tpl_value *out, bool *found)
{
    *found = true;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (lam_tpl_text_is(name, filters[i].name))
            return filters[i].fn ? filters[i].fn(run, v, args, out) : by_method(run, v, filters[i].method, args, out);
    return lam_tpl_apply_sequence_filter(run, name, v, args, out, found);
}

lam_code lam_tpl_apply_filter(struct lam_tpl_run *run, struct lam_tpl_text name, struct lam_tpl_value v,
                              const struct lam_tpl_args *args, struct lam_tpl_value *out)
{
    bool found;
    LAM_TRY(lam_tpl_tick(run, 1));
    /* map('map', ...) comes back here. */
    if (run->depth >= LAM_TPL_MAX_DEPTH) return lam_tpl_fail(run, "filters nested deeper than %d", LAM_TPL_MAX_DEPTH);
    run->depth++;
    LAM_TRY(apply(run, name, v, args, out, &found));
    run->depth--;
    return found ? LAM_OK : lam_tpl_fail(run, "the filter '%.*s' is not supported", LAM_TPL_SHOWN(name));
}
