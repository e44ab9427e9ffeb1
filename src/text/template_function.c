/* Arguments of calls, and the global functions. */
#include "text/template_text.h"
#include "text/template_value.h"

#include <stdio.h>
#include <string.h>

/* ---- arguments ---- */

lam_code lam_tpl_bind(struct lam_tpl_run *run, const char *what, const struct lam_tpl_args *args,
                      const char *const *names, size_t n, size_t needed, const struct lam_tpl_value **out)
{
    if (args->n > n) return lam_tpl_fail(run, "%s takes %zu arguments at most, not %zu", what, n, args->n);
    for (size_t i = 0; i < n; i++) out[i] = i < args->n ? &args->values[i] : NULL;
    for (size_t k = 0; k < args->n_named; k++) {
        size_t i = 0;
        while (i < n && !lam_tpl_text_is(args->names[k], names[i])) i++;
        if (i == n) return lam_tpl_fail(run, "%s has no argument '%.*s'", what, LAM_TPL_SHOWN(args->names[k]));
        if (out[i]) return lam_tpl_fail(run, "%s got the argument '%s' twice", what, names[i]);
        out[i] = &args->values[args->n + k];
    }
    for (size_t i = 0; i < needed; i++)
        if (!out[i]) return lam_tpl_fail(run, "%s lacks its argument '%s'", what, names[i]);
    return LAM_OK;
}

lam_code lam_tpl_arg_text(struct lam_tpl_run *run, const char *what, const struct lam_tpl_value *arg,
                          struct lam_tpl_text *out)
{
    if (!arg || arg->kind == LAM_TPL_NONE) return LAM_OK;
    if (arg->kind != LAM_TPL_STRING) return lam_tpl_fail(run, "%s needs a string, not %s", what, lam_tpl_type_name(*arg));
    *out = arg->text;
    return LAM_OK;
}

lam_code lam_tpl_arg_int(struct lam_tpl_run *run, const char *what, const struct lam_tpl_value *arg, int64_t *out)
{
    if (!arg || arg->kind == LAM_TPL_NONE) return LAM_OK;
    if (arg->kind != LAM_TPL_INT && arg->kind != LAM_TPL_BOOL)
        return lam_tpl_fail(run, "%s needs an integer, not %s", what, lam_tpl_type_name(*arg));
    *out = lam_tpl_as_int(*arg);
    return LAM_OK;
}

bool lam_tpl_arg_bool(const struct lam_tpl_value *arg, bool otherwise) { return arg ? lam_tpl_truth(*arg) : otherwise; }

/* ---- functions ---- */

static lam_code call_range(struct lam_tpl_run *run, const struct lam_tpl_args *args, struct lam_tpl_value *out)
{
    int64_t bounds[3] = {0, 0, 1}; /* start, stop, step */
    if (args->n_named || args->n < 1 || args->n > 3) return lam_tpl_fail(run, "range takes one to three arguments");
    for (size_t i = 0; i < args->n; i++) {
        if (args->values[i].kind != LAM_TPL_INT && args->values[i].kind != LAM_TPL_BOOL)
            return lam_tpl_fail(run, "range needs integers, not %s", lam_tpl_type_name(args->values[i]));
        bounds[args->n == 1 ? 1 : i] = lam_tpl_as_int(args->values[i]);
    }
    if (bounds[2] == 0) return lam_tpl_fail(run, "range with step 0");
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_VIEW, 0, out));
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1];) {
        if (out->list->n == LAM_TPL_MAX_RANGE) return lam_tpl_fail(run, "a range of more than %d members", LAM_TPL_MAX_RANGE);
        LAM_TRY(lam_tpl_list_push(run, out->list, lam_tpl_int(i)));
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    return LAM_OK;
}

/* dict(...) and namespace(...): a dict or pairs, then named members. */
static lam_code call_dict(struct lam_tpl_run *run, const char *what, const struct lam_tpl_args *args,
                          struct lam_tpl_value *out)
{
    if (args->n > 1) return lam_tpl_fail(run, "%s takes one positional argument at most", what);
    LAM_TRY(lam_tpl_dict_new(run, args->n_named, out));
    if (args->n && args->values[0].kind == LAM_TPL_DICT) {
        const struct lam_tpl_dict *source = args->values[0].dict;
        for (size_t i = 0; i < source->n; i++) LAM_TRY(lam_tpl_dict_set(run, out->dict, source->pairs[i].key, source->pairs[i].value));
    } else if (args->n) {
        const struct lam_tpl_list *source, *pair;
        LAM_TRY(lam_tpl_iterate(run, args->values[0], &source));
        for (size_t i = 0; i < source->n; i++) {
            LAM_TRY(lam_tpl_iterate(run, source->items[i], &pair));
            if (pair->n != 2) return lam_tpl_fail(run, "%s needs pairs of a key and a value", what);
            LAM_TRY(lam_tpl_dict_set(run, out->dict, pair->items[0], pair->items[1]));
        }
    }
    for (size_t i = 0; i < args->n_named; i++)
        LAM_TRY(lam_tpl_dict_set(run, out->dict, lam_tpl_string(args->names[i]), args->values[args->n + i]));
    return LAM_OK;
}

static lam_code call_raise(struct lam_tpl_run *run, const struct lam_tpl_args *args)
{
    static const char *const names[] = {"message"};
    const struct lam_tpl_value *message;
    struct lam_tpl_text text;
    LAM_TRY(lam_tpl_bind(run, "raise_exception", args, names, 1, 1, &message));
    LAM_TRY(lam_tpl_to_text(run, *message, &text));
    return lam_tpl_fail(run, "%.*s", (int)(text.len < 400 ? text.len : 400), text.s);
}

/* ---- strftime ---- */

struct date {
    int64_t year;
    int month, day, weekday, yearday; /* month and day from 1; weekday from 0 for Sunday; yearday from 1 */
    int hour, minute, second;
};

static struct date date_of(int64_t seconds)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) rest += 86400, days--;
    struct date d = {.weekday = (int)(((days + 4) % 7 + 7) % 7),
                     .hour = (int)(rest / 3600), .minute = (int)(rest / 60 % 60), .second = (int)(rest % 60)};
    /* Whole periods of 400 years have 146097 days; within one, years are counted off. */
    int64_t periods = days / 146097, day = days % 146097;
    if (day < 0) day += 146097, periods--;
    d.year = 1970 + periods * 400;
    bool leap;
    for (;; d.year++) {
        leap = (d.year % 4 == 0 && d.year % 100 != 0) || d.year % 400 == 0;
        if (day < 365 + leap) break;
        day -= 365 + leap;
    }
    d.yearday = (int)day + 1;
    for (d.month = 12; day < before[d.month - 1] + (leap && d.month > 2);) d.month--;
    d.day = (int)day - before[d.month - 1] - (leap && d.month > 2) + 1;
    return d;
}

static lam_code put_date_part(struct lam_tpl_run *run, const struct date *d, char code, bool padded, struct lam_str *s)
{
    static const char *const months[] = {"January", "February", "March", "April", "May", "June", "July", "August",
                                         "September", "October", "November", "December"};
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    char number[24];
    int value, width = 2, hour12 = d->hour % 12 ? d->hour % 12 : 12;
    switch (code) {
    case 'b': return lam_tpl_put(run, s, months[d->month - 1], 3);
    case 'B': return lam_tpl_puts(run, s, months[d->month - 1]);
    case 'a': return lam_tpl_put(run, s, days[d->weekday], 3);
    case 'A': return lam_tpl_puts(run, s, days[d->weekday]);
    case 'p': return lam_tpl_puts(run, s, d->hour < 12 ? "AM" : "PM");
    case '%': return lam_tpl_puts(run, s, "%");
    case 'Y': value = (int)d->year; width = 4; break;
    case 'y': value = (int)(d->year % 100); break;
    case 'm': value = d->month; break;
    case 'd': value = d->day; break;
    case 'j': value = d->yearday; width = 3; break;
    case 'H': value = d->hour; break;
    case 'I': value = hour12; break;
    case 'M': value = d->minute; break;
    case 'S': value = d->second; break;
    default: return lam_tpl_fail(run, "strftime_now: %%%c is not supported", code >= 0x20 && code < 0x7f ? code : '?');
    }
    snprintf(number, sizeof number, "%0*d", padded ? width : 1, value);
    return lam_tpl_puts(run, s, number);
}

static lam_code put_date(struct lam_tpl_run *run, struct lam_tpl_text format, struct lam_str *s)
{
    struct date d = date_of(run->clock);
    if (d.year < 1000 || d.year > 9999) return lam_tpl_fail(run, "strftime_now: a clock outside of the years 1000 to 9999");
    for (size_t i = 0; i < format.len; i++) {
        if (format.s[i] != '%') {
            LAM_TRY(lam_tpl_put(run, s, format.s + i, 1));
            continue;
        }
        bool padded = i + 1 >= format.len || format.s[i + 1] != '-';
        i += padded ? 1 : 2;
        LAM_TRY(put_date_part(run, &d, i < format.len ? format.s[i] : 0, padded, s));
    }
    return LAM_OK;
}

static lam_code call_strftime(struct lam_tpl_run *run, const struct lam_tpl_args *args, struct lam_tpl_value *out)
{
    static const char *const names[] = {"format"};
    const struct lam_tpl_value *format;
    struct lam_tpl_text text = {"", 0};
    LAM_TRY(lam_tpl_bind(run, "strftime_now", args, names, 1, 1, &format));
    LAM_TRY(lam_tpl_arg_text(run, "strftime_now", format, &text));
    if (!run->has_clock) return lam_tpl_fail(run, "strftime_now needs a clock, and none was given");
    struct lam_str s = {0};
    lam_code code = put_date(run, text, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

lam_code lam_tpl_call_function(struct lam_tpl_run *run, enum lam_tpl_function function, const struct lam_tpl_args *args,
                               struct lam_tpl_value *out)
{
    switch (function) {
    case LAM_TPL_RANGE: return call_range(run, args, out);
    case LAM_TPL_DICT_OF: return call_dict(run, "dict", args, out);
    case LAM_TPL_NAMESPACE_OF:
        LAM_TRY(call_dict(run, "namespace", args, out));
        out->kind = LAM_TPL_NAMESPACE;
        return LAM_OK;
    case LAM_TPL_RAISE: return call_raise(run, args);
    case LAM_TPL_STRFTIME: return call_strftime(run, args, out);
    }
    return lam_tpl_fail(run, "an unknown function");
}
