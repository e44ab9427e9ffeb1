/* object.name, object[key] and object[a:b:c]. Jinja looks for a method before a key in the first form and for a
 * key before a method in the second. */
#include "text/template_text.h"
#include "text/template_value.h"

static lam_code fail_undefined(struct lam_tpl_run *run, struct lam_tpl_text name)
{
    return lam_tpl_fail(run, "'%.*s' is undefined", LAM_TPL_SHOWN(name));
}

static lam_code bind_method(struct lam_tpl_run *run, struct lam_tpl_value self, struct lam_tpl_text name,
                            struct lam_tpl_value *out)
{
    void *method;
    LAM_TRY(lam_tpl_run_alloc(run, 1, sizeof *out->method, &method));
    *out = (struct lam_tpl_value){.kind = LAM_TPL_METHOD, .method = method};
    *out->method = (struct lam_tpl_method){self, name};
    return LAM_OK;
}

static struct lam_tpl_value loop_attribute(const struct lam_tpl_loop *loop, struct lam_tpl_text name)
{
    size_t i = loop->index, n = loop->items->n;
    if (lam_tpl_text_is(name, "index")) return lam_tpl_int((int64_t)i + 1);
    if (lam_tpl_text_is(name, "index0")) return lam_tpl_int((int64_t)i);
    if (lam_tpl_text_is(name, "revindex")) return lam_tpl_int((int64_t)(n - i));
    if (lam_tpl_text_is(name, "revindex0")) return lam_tpl_int((int64_t)(n - i) - 1);
    if (lam_tpl_text_is(name, "first")) return lam_tpl_bool(i == 0);
    if (lam_tpl_text_is(name, "last")) return lam_tpl_bool(i + 1 == n);
    if (lam_tpl_text_is(name, "length")) return lam_tpl_int((int64_t)n);
    if (lam_tpl_text_is(name, "depth")) return lam_tpl_int(1);
    if (lam_tpl_text_is(name, "depth0")) return lam_tpl_int(0);
    if (lam_tpl_text_is(name, "previtem") && i > 0) return loop->items->items[i - 1];
    if (lam_tpl_text_is(name, "nextitem") && i + 1 < n) return loop->items->items[i + 1];
    return lam_tpl_undefined(name);
}

static lam_code get_key(struct lam_tpl_run *run, const struct lam_tpl_dict *dict, struct lam_tpl_value key,
                        struct lam_tpl_value *out)
{
    const struct lam_tpl_value *found;
    LAM_TRY(lam_tpl_dict_find(run, dict, key, &found));
    *out = found ? *found : lam_tpl_undefined(key.kind == LAM_TPL_STRING ? key.text : LAM_TPL_TEXT("an item"));
    return LAM_OK;
}

lam_code lam_tpl_get_attribute(struct lam_tpl_run *run, struct lam_tpl_value object, struct lam_tpl_text name,
                               struct lam_tpl_value *out)
{
    bool method;
    switch (object.kind) {
    case LAM_TPL_UNDEFINED: return fail_undefined(run, object.text);
    case LAM_TPL_NAMESPACE: return get_key(run, object.dict, lam_tpl_string(name), out);
    case LAM_TPL_MACRO: return lam_tpl_fail(run, "an attribute of a macro is not supported");
    default: break;
    }
    LAM_TRY(lam_tpl_find_method(run, object, name, &method));
    if (method) return bind_method(run, object, name, out);
    if (object.kind == LAM_TPL_DICT) return get_key(run, object.dict, lam_tpl_string(name), out);
    *out = object.kind == LAM_TPL_LOOP ? loop_attribute(object.loop, name) : lam_tpl_undefined(name);
    return LAM_OK;
}

/* The character or member at an index, which counts from the end when negative. */
static void get_index(struct lam_tpl_value object, int64_t index, struct lam_tpl_value *out)
{
    *out = lam_tpl_undefined(LAM_TPL_TEXT("an item"));
    if (object.kind == LAM_TPL_LIST) {
        int64_t n = (int64_t)object.list->n;
        if (index < 0) index += n;
        if (index >= 0 && index < n) *out = object.list->items[index];
        return;
    }
    if (index < 0) index += (int64_t)lam_tpl_count(object.text);
    if (index < 0) return;
    size_t size, at = lam_tpl_offset(object.text, (size_t)index);
    if (at == object.text.len) return;
    lam_tpl_decode(object.text.s + at, object.text.len - at, &size);
    *out = lam_tpl_string((struct lam_tpl_text){object.text.s + at, size});
}

lam_code lam_tpl_get_item(struct lam_tpl_run *run, struct lam_tpl_value object, struct lam_tpl_value key,
                          struct lam_tpl_value *out)
{
    *out = lam_tpl_undefined(LAM_TPL_TEXT("an item"));
    if (object.kind == LAM_TPL_UNDEFINED) return fail_undefined(run, object.text);
    if (object.kind == LAM_TPL_DICT && key.kind >= LAM_TPL_NONE && key.kind <= LAM_TPL_STRING) {
        const struct lam_tpl_value *found;
        LAM_TRY(lam_tpl_dict_find(run, object.dict, key, &found));
        if (found) {
            *out = *found;
            return LAM_OK;
        }
    }
    bool index = key.kind == LAM_TPL_INT || key.kind == LAM_TPL_BOOL;
    if (index && object.kind == LAM_TPL_STRING) LAM_TRY(lam_tpl_tick(run, object.text.len / 16));
    if (index && (object.kind == LAM_TPL_STRING || object.kind == LAM_TPL_LIST)) get_index(object, lam_tpl_as_int(key), out);
    return key.kind == LAM_TPL_STRING ? lam_tpl_get_attribute(run, object, key.text, out) : LAM_OK;
}

/* Python's indices of a slice: resolve bounds[3] against n members into the first index, step and count. */
static lam_code slice_indices(struct lam_tpl_run *run, const struct lam_tpl_value *bounds, int64_t n, int64_t *first,
                              int64_t *step, int64_t *count)
{
    *step = 1;
    LAM_TRY(lam_tpl_arg_int(run, "a slice", &bounds[2], step));
    if (*step == 0) return lam_tpl_fail(run, "a slice with step 0");
    if (*step > n) *step = n + 1;
    if (*step < -n) *step = -n - 1;
    int64_t low = *step > 0 ? 0 : -1, high = *step > 0 ? n : n - 1;
    int64_t ends[2] = {*step > 0 ? low : high, *step > 0 ? high : low};
    for (int i = 0; i < 2; i++) {
        if (bounds[i].kind == LAM_TPL_NONE) continue;
        LAM_TRY(lam_tpl_arg_int(run, "a slice", &bounds[i], &ends[i]));
        if (ends[i] < 0) ends[i] = ends[i] + n < low ? low : ends[i] + n;
        if (ends[i] > high) ends[i] = high;
    }
    int64_t span = *step > 0 ? ends[1] - ends[0] : ends[0] - ends[1], stride = *step > 0 ? *step : -*step;
    *first = ends[0];
    *count = span > 0 ? (span + stride - 1) / stride : 0;
    return LAM_OK;
}

/* Characters by index; contiguous ones are a view of the text. */
static lam_code slice_text(struct lam_tpl_run *run, struct lam_tpl_text t, int64_t first, int64_t step, int64_t count,
                           struct lam_tpl_value *out)
{
    if (count == 0 || step == 1) {
        size_t begin = lam_tpl_offset(t, (size_t)(count ? first : 0));
        struct lam_tpl_text rest = {t.s + begin, t.len - begin};
        rest.len = count ? lam_tpl_offset(rest, (size_t)count) : 0;
        *out = lam_tpl_string(rest);
        return LAM_OK;
    }
    const struct lam_tpl_list *characters;
    struct lam_str s = {0};
    lam_code code = lam_tpl_iterate(run, lam_tpl_string(t), &characters);
    for (int64_t i = 0; i < count && code == LAM_OK; i++) {
        struct lam_tpl_text c = characters->items[first + i * step].text;
        code = lam_tpl_put(run, &s, c.s, c.len);
    }
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

lam_code lam_tpl_get_slice(struct lam_tpl_run *run, struct lam_tpl_value object, const struct lam_tpl_value *bounds,
                           struct lam_tpl_value *out)
{
    int64_t first = 0, step = 1, count = 0;
    size_t n;
    if (object.kind == LAM_TPL_UNDEFINED) return fail_undefined(run, object.text);
    if (object.kind != LAM_TPL_LIST && object.kind != LAM_TPL_STRING)
        return lam_tpl_fail(run, "a slice of a value of type %s", lam_tpl_type_name(object));
    LAM_TRY(lam_tpl_length(run, object, &n));
    LAM_TRY(slice_indices(run, bounds, (int64_t)n, &first, &step, &count));
    if (object.kind == LAM_TPL_STRING) return slice_text(run, object.text, first, step, count, out);
    LAM_TRY(lam_tpl_list_new(run, object.list->shape == LAM_TPL_TUPLE ? LAM_TPL_TUPLE : LAM_TPL_PLAIN_LIST, (size_t)count, out));
    for (int64_t i = 0; i < count; i++) LAM_TRY(lam_tpl_list_push(run, out->list, object.list->items[first + i * step]));
    return LAM_OK;
}
