/* Filters that walk a sequence. */
#include "text/template_text.h"
#include "text/template_value.h"

#include <string.h>

typedef lam_code sequence_fn(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                             struct lam_tpl_value *out);

/* item's attribute along a path with dots, whose numbers are indices. A missing one is `otherwise` if given. */
static lam_code get_path(struct lam_tpl_run *run, struct lam_tpl_value item, struct lam_tpl_value path,
                         const struct lam_tpl_value *otherwise, struct lam_tpl_value *out)
{
    *out = item;
    if (path.kind == LAM_TPL_INT) return lam_tpl_get_item(run, item, path, out);
    if (path.kind != LAM_TPL_STRING) return lam_tpl_fail(run, "an attribute's name must be a string, not %s", lam_tpl_type_name(path));
    for (size_t begin = 0; begin <= path.text.len;) {
        size_t dot = lam_tpl_find(path.text, LAM_TPL_TEXT("."), begin);
        if (dot > path.text.len) dot = path.text.len;
        struct lam_tpl_value key = lam_tpl_string((struct lam_tpl_text){path.text.s + begin, dot - begin});
        int64_t index;
        bool digits = key.text.len > 0;
        for (size_t i = 0; i < key.text.len; i++) digits = digits && key.text.s[i] >= '0' && key.text.s[i] <= '9';
        if (digits && lam_tpl_parse_int(key.text, &index)) key = lam_tpl_int(index);
        LAM_TRY(lam_tpl_get_item(run, *out, key, out));
        if (out->kind == LAM_TPL_UNDEFINED && otherwise) *out = *otherwise;
        begin = dot + 1;
    }
    return LAM_OK;
}

/* For comparisons that don't heed case: strings in lower case, other values as they are. */
static lam_code fold(struct lam_tpl_run *run, struct lam_tpl_value v, bool case_sensitive, struct lam_tpl_value *out)
{
    *out = v;
    if (case_sensitive || v.kind != LAM_TPL_STRING) return LAM_OK;
    struct lam_str s = {0};
    lam_code code = lam_tpl_put_case(run, v.text, LAM_TPL_LOWER, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

/* ---- sorting ---- */

/* Merge sort of items[n] by keys[n], stable; spare_* have the same length. */
static lam_code merge_sort(struct lam_tpl_run *run, struct lam_tpl_value *items, struct lam_tpl_value *keys, size_t n,
                           bool reverse, struct lam_tpl_value *spare_items, struct lam_tpl_value *spare_keys)
{
    if (n < 2) return LAM_OK;
    size_t half = n / 2, a = 0, b = half, k = 0;
    LAM_TRY(merge_sort(run, items, keys, half, reverse, spare_items, spare_keys));
    LAM_TRY(merge_sort(run, items + half, keys + half, n - half, reverse, spare_items, spare_keys));
    while (a < half && b < n) {
        int order = 0;
        LAM_TRY(lam_tpl_compare(run, keys[a], keys[b], &order));
        size_t from = (reverse ? order >= 0 : order <= 0) ? a++ : b++;
        spare_items[k] = items[from];
        spare_keys[k++] = keys[from];
    }
    /* What is left on the right stands where it belongs. */
    memmove(items + k, items + a, (half - a) * sizeof *items);
    memmove(keys + k, keys + a, (half - a) * sizeof *keys);
    memcpy(items, spare_items, k * sizeof *items);
    memcpy(keys, spare_keys, k * sizeof *keys);
    return LAM_OK;
}

/* A sorted copy of items[n] by keys[n], as a list. */
static lam_code sorted(struct lam_tpl_run *run, const struct lam_tpl_list *list, struct lam_tpl_value *keys, bool reverse,
                       struct lam_tpl_value *out)
{
    void *spare;
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, list->n, out));
    for (size_t i = 0; i < list->n; i++) LAM_TRY(lam_tpl_list_push(run, out->list, list->items[i]));
    LAM_TRY(lam_tpl_run_alloc(run, list->n, 2 * sizeof *keys, &spare));
    return merge_sort(run, out->list->items, keys, list->n, reverse, spare, (struct lam_tpl_value *)spare + list->n);
}

/* keys[i] of each member: along a path unless that is NULL, then folded. */
static lam_code make_keys(struct lam_tpl_run *run, const struct lam_tpl_list *list, const struct lam_tpl_value *path,
                          bool case_sensitive, struct lam_tpl_value **out)
{
    void *keys;
    LAM_TRY(lam_tpl_run_alloc(run, list->n, sizeof **out, &keys));
    *out = keys;
    for (size_t i = 0; i < list->n; i++) {
        struct lam_tpl_value key = list->items[i];
        if (path && path->kind != LAM_TPL_NONE) LAM_TRY(get_path(run, list->items[i], *path, NULL, &key));
        LAM_TRY(fold(run, key, case_sensitive, &(*out)[i]));
    }
    return LAM_OK;
}

static lam_code filter_sort(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                            struct lam_tpl_value *out)
{
    static const char *const names[] = {"reverse", "case_sensitive", "attribute"};
    const struct lam_tpl_value *bound[3];
    const struct lam_tpl_list *list;
    struct lam_tpl_value *keys = NULL;
    LAM_TRY(lam_tpl_bind(run, "sort", args, names, 3, 0, bound));
    if (bound[2] && bound[2]->kind == LAM_TPL_STRING && lam_tpl_find(bound[2]->text, LAM_TPL_TEXT(","), 0) <= bound[2]->text.len)
        return lam_tpl_fail(run, "sort by several attributes is not supported");
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    LAM_TRY(make_keys(run, list, bound[2], lam_tpl_arg_bool(bound[1], false), &keys));
    return sorted(run, list, keys, lam_tpl_arg_bool(bound[0], false), out);
}

/* A list of (key, value) tuples. */
static lam_code pairs_of(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_tpl_value *out)
{
    struct lam_tpl_args none = {0};
    struct lam_tpl_method items = {v, LAM_TPL_TEXT("items")};
    return lam_tpl_call_method(run, &items, &none, out);
}

static lam_code filter_dictsort(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                                struct lam_tpl_value *out)
{
    static const char *const names[] = {"case_sensitive", "by", "reverse"};
    const struct lam_tpl_value *bound[3];
    struct lam_tpl_value pairs, *keys = NULL, position;
    struct lam_tpl_text by = LAM_TPL_TEXT("key");
    LAM_TRY(lam_tpl_bind(run, "dictsort", args, names, 3, 0, bound));
    LAM_TRY(lam_tpl_arg_text(run, "dictsort", bound[1], &by));
    if (v.kind != LAM_TPL_DICT) return lam_tpl_fail(run, "dictsort of a value of type %s", lam_tpl_type_name(v));
    if (!lam_tpl_text_is(by, "key") && !lam_tpl_text_is(by, "value")) return lam_tpl_fail(run, "dictsort is by 'key' or 'value'");
    position = lam_tpl_int(lam_tpl_text_is(by, "value"));
    LAM_TRY(pairs_of(run, v, &pairs));
    LAM_TRY(make_keys(run, pairs.list, &position, lam_tpl_arg_bool(bound[0], false), &keys));
    return sorted(run, pairs.list, keys, lam_tpl_arg_bool(bound[2], false), out);
}

static lam_code extreme(struct lam_tpl_run *run, struct lam_tpl_value v, const char *what, const struct lam_tpl_args *args,
                        int wanted, struct lam_tpl_value *out)
{
    static const char *const names[] = {"case_sensitive", "attribute"};
    const struct lam_tpl_value *bound[2];
    const struct lam_tpl_list *list;
    struct lam_tpl_value *keys = NULL;
    size_t best = 0;
    LAM_TRY(lam_tpl_bind(run, what, args, names, 2, 0, bound));
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    LAM_TRY(make_keys(run, list, bound[1], lam_tpl_arg_bool(bound[0], false), &keys));
    for (size_t i = 1; i < list->n; i++) {
        int order = 0;
        LAM_TRY(lam_tpl_compare(run, keys[i], keys[best], &order));
        if (order * wanted > 0) best = i;
    }
    *out = list->n ? list->items[best] : lam_tpl_undefined(LAM_TPL_TEXT("a member of an empty sequence"));
    return LAM_OK;
}

static lam_code filter_min(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    return extreme(run, v, "min", args, -1, out);
}

static lam_code filter_max(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    return extreme(run, v, "max", args, 1, out);
}

static lam_code filter_unique(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                              struct lam_tpl_value *out)
{
    static const char *const names[] = {"case_sensitive", "attribute"};
    const struct lam_tpl_value *bound[2];
    const struct lam_tpl_list *list;
    struct lam_tpl_value *keys = NULL;
    LAM_TRY(lam_tpl_bind(run, "unique", args, names, 2, 0, bound));
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    LAM_TRY(make_keys(run, list, bound[1], lam_tpl_arg_bool(bound[0], false), &keys));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_ITERATOR, 0, out));
    for (size_t i = 0; i < list->n; i++) {
        bool seen = false;
        for (size_t k = 0; k < i && !seen; k++) LAM_TRY(lam_tpl_equal(run, keys[k], keys[i], &seen));
        if (!seen) LAM_TRY(lam_tpl_list_push(run, out->list, list->items[i]));
    }
    return LAM_OK;
}

/* ---- picking ---- */

static lam_code filter_first(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                             struct lam_tpl_value *out)
{
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_bind(run, "first", args, NULL, 0, 0, NULL));
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    *out = list->n ? list->items[0] : lam_tpl_undefined(LAM_TPL_TEXT("the first member of an empty sequence"));
    return LAM_OK;
}

static lam_code filter_last(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                            struct lam_tpl_value *out)
{
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_bind(run, "last", args, NULL, 0, 0, NULL));
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    *out = list->n ? list->items[list->n - 1] : lam_tpl_undefined(LAM_TPL_TEXT("the last member of an empty sequence"));
    return LAM_OK;
}

static lam_code filter_list(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                            struct lam_tpl_value *out)
{
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_bind(run, "list", args, NULL, 0, 0, NULL));
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, list->n, out));
    for (size_t i = 0; i < list->n; i++) LAM_TRY(lam_tpl_list_push(run, out->list, list->items[i]));
    return LAM_OK;
}

static lam_code filter_items(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                             struct lam_tpl_value *out)
{
    LAM_TRY(lam_tpl_bind(run, "items", args, NULL, 0, 0, NULL));
    if (v.kind == LAM_TPL_UNDEFINED) return lam_tpl_list_new(run, LAM_TPL_ITERATOR, 0, out);
    if (v.kind != LAM_TPL_DICT) return lam_tpl_fail(run, "items of a value of type %s", lam_tpl_type_name(v));
    LAM_TRY(pairs_of(run, v, out));
    out->list->shape = LAM_TPL_ITERATOR;
    return LAM_OK;
}

static lam_code filter_reverse(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                               struct lam_tpl_value *out)
{
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_bind(run, "reverse", args, NULL, 0, 0, NULL));
    if (v.kind == LAM_TPL_STRING) {
        struct lam_tpl_value bounds[3] = {lam_tpl_none(), lam_tpl_none(), lam_tpl_int(-1)};
        return lam_tpl_get_slice(run, v, bounds, out);
    }
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_ITERATOR, list->n, out));
    for (size_t i = list->n; i > 0; i--) LAM_TRY(lam_tpl_list_push(run, out->list, list->items[i - 1]));
    return LAM_OK;
}

static lam_code put_joined(struct lam_tpl_run *run, const struct lam_tpl_list *list, struct lam_tpl_text separator,
                           const struct lam_tpl_value *path, struct lam_str *s)
{
    for (size_t i = 0; i < list->n; i++) {
        struct lam_tpl_value item = list->items[i];
        if (path && path->kind != LAM_TPL_NONE) LAM_TRY(get_path(run, list->items[i], *path, NULL, &item));
        if (i) LAM_TRY(lam_tpl_put(run, s, separator.s, separator.len));
        LAM_TRY(lam_tpl_tick(run, 1));
        LAM_TRY(lam_tpl_print(run, item, s));
    }
    return LAM_OK;
}

static lam_code filter_join(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                            struct lam_tpl_value *out)
{
    static const char *const names[] = {"d", "attribute"};
    const struct lam_tpl_value *bound[2];
    const struct lam_tpl_list *list;
    struct lam_tpl_text separator = {"", 0};
    LAM_TRY(lam_tpl_bind(run, "join", args, names, 2, 0, bound));
    if (bound[0]) LAM_TRY(lam_tpl_to_text(run, *bound[0], &separator));
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    struct lam_str s = {0};
    lam_code code = put_joined(run, list, separator, bound[1], &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

static lam_code filter_sum(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    static const char *const names[] = {"attribute", "start"};
    const struct lam_tpl_value *bound[2];
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_bind(run, "sum", args, names, 2, 0, bound));
    LAM_TRY(lam_tpl_iterate(run, v, &list));
    if (bound[1] && !lam_tpl_is_number(*bound[1]) && bound[1]->kind != LAM_TPL_LIST)
        return lam_tpl_fail(run, "sum from a value of type %s", lam_tpl_type_name(*bound[1]));
    struct lam_tpl_value total = bound[1] ? *bound[1] : lam_tpl_int(0);
    for (size_t i = 0; i < list->n; i++) {
        struct lam_tpl_value item = list->items[i], next;
        if (bound[0] && bound[0]->kind != LAM_TPL_NONE) LAM_TRY(get_path(run, list->items[i], *bound[0], NULL, &item));
        LAM_TRY(lam_tpl_binary(run, '+', total, item, &next));
        total = next;
    }
    *out = total;
    return LAM_OK;
}

/* ---- map, select and their like ---- */

/* These take any value that is false for an empty sequence. */
static lam_code iterate_true(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_list **out)
{
    return lam_tpl_iterate(run, lam_tpl_truth(v) ? v : lam_tpl_undefined(LAM_TPL_TEXT("")), out);
}

/* The arguments behind the first n positional ones. */
static struct lam_tpl_args rest(const struct lam_tpl_args *args, size_t n)
{
    struct lam_tpl_args out = *args;
    out.n -= n;
    if (n) out.values += n;
    return out;
}

static lam_code name_argument(struct lam_tpl_run *run, const char *what, const struct lam_tpl_args *args, size_t i,
                              struct lam_tpl_text *out)
{
    if (i >= args->n || args->values[i].kind != LAM_TPL_STRING) return lam_tpl_fail(run, "%s needs a name", what);
    *out = args->values[i].text;
    return LAM_OK;
}

static lam_code map_attribute(struct lam_tpl_run *run, const struct lam_tpl_list *list, const struct lam_tpl_args *args,
                              struct lam_tpl_list *out)
{
    static const char *const names[] = {"attribute", "default"};
    const struct lam_tpl_value *bound[2];
    LAM_TRY(lam_tpl_bind(run, "map", args, names, 2, 1, bound));
    for (size_t i = 0; i < list->n; i++) {
        struct lam_tpl_value v;
        LAM_TRY(get_path(run, list->items[i], *bound[0], bound[1], &v));
        LAM_TRY(lam_tpl_list_push(run, out, v));
    }
    return LAM_OK;
}

static lam_code filter_map(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    const struct lam_tpl_list *list;
    struct lam_tpl_text name;
    LAM_TRY(iterate_true(run, v, &list));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_ITERATOR, list->n, out));
    if (args->n == 0) return map_attribute(run, list, args, out->list);
    LAM_TRY(name_argument(run, "map", args, 0, &name));
    struct lam_tpl_args inner = rest(args, 1);
    for (size_t i = 0; i < list->n; i++) {
        struct lam_tpl_value mapped;
        LAM_TRY(lam_tpl_apply_filter(run, name, list->items[i], &inner, &mapped));
        LAM_TRY(lam_tpl_list_push(run, out->list, mapped));
    }
    return LAM_OK;
}

/* attribute: the first argument is a path to look at, not the test. */
static lam_code select_items(struct lam_tpl_run *run, struct lam_tpl_value v, const char *what,
                             const struct lam_tpl_args *args, bool attribute, bool keep, struct lam_tpl_value *out)
{
    const struct lam_tpl_list *list;
    struct lam_tpl_text test = {"", 0};
    size_t skipped = attribute;
    if (attribute && args->n == 0) return lam_tpl_fail(run, "%s needs an attribute", what);
    bool tested = args->n > skipped;
    if (tested) LAM_TRY(name_argument(run, what, args, skipped++, &test));
    struct lam_tpl_args inner = rest(args, skipped);
    LAM_TRY(iterate_true(run, v, &list));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_ITERATOR, 0, out));
    for (size_t i = 0; i < list->n; i++) {
        struct lam_tpl_value subject = list->items[i];
        bool yes;
        LAM_TRY(lam_tpl_tick(run, 1));
        if (attribute) LAM_TRY(get_path(run, list->items[i], args->values[0], NULL, &subject));
        if (tested) LAM_TRY(lam_tpl_apply_test(run, test, subject, &inner, &yes));
        else yes = lam_tpl_truth(subject);
        if (yes == keep) LAM_TRY(lam_tpl_list_push(run, out->list, list->items[i]));
    }
    return LAM_OK;
}

static lam_code filter_select(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                              struct lam_tpl_value *out)
{
    return select_items(run, v, "select", args, false, true, out);
}

static lam_code filter_reject(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                              struct lam_tpl_value *out)
{
    return select_items(run, v, "reject", args, false, false, out);
}

static lam_code filter_selectattr(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                                  struct lam_tpl_value *out)
{
    return select_items(run, v, "selectattr", args, true, true, out);
}

static lam_code filter_rejectattr(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_args *args,
                                  struct lam_tpl_value *out)
{
    return select_items(run, v, "rejectattr", args, true, false, out);
}

static const struct {
    const char *name;
    sequence_fn *fn;
} filters[] = {
    {"dictsort", filter_dictsort}, {"first", filter_first}, {"items", filter_items}, {"join", filter_join},
    {"last", filter_last}, {"list", filter_list}, {"map", filter_map}, {"max", filter_max}, {"min", filter_min},
    {"reject", filter_reject}, {"rejectattr", filter_rejectattr}, {"reverse", filter_reverse},
    {"select", filter_select}, {"selectattr", filter_selectattr}, {"sort", filter_sort}, {"sum", filter_sum},
    {"unique", filter_unique},
};

lam_code lam_tpl_apply_sequence_filter(struct lam_tpl_run *run, struct lam_tpl_text name, struct lam_tpl_value v,
                                       const struct lam_tpl_args *args, struct lam_tpl_value *out, bool *found)
{
    *found = true;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (lam_tpl_text_is(name, filters[i].name)) return filters[i].fn(run, v, args, out);
    *found = false;
    return LAM_OK;
}
