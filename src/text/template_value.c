#include "text/template_value.h"
#include "text/template_text.h"

#include "base/alloc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- memory ---- */

#define BLOCK_BYTES ((size_t)64 << 10)

struct lam_tpl_block {
    struct lam_tpl_block *next;
    size_t used, size; /* bytes of memory[] */
    max_align_t memory[];
};

void *lam_tpl_arena_alloc(struct lam_tpl_arena *arena, size_t bytes)
{
    size_t need;
    if (!lam_round_up(bytes ? bytes : 1, _Alignof(max_align_t), &need)) return NULL;
    struct lam_tpl_block *block = arena->blocks;
    if (!block || block->size - block->used < need) {
        /* A large request gets a block of its own behind the current one, which keeps its free end. */
        size_t size = need > BLOCK_BYTES / 4 ? need : BLOCK_BYTES, total;
        if (!lam_add_size(size, sizeof *block, &total)) return NULL;
        struct lam_tpl_block *fresh = lam_alloc(total, 1);
        if (!fresh) return NULL;
        fresh->size = size;
        if (block && size == need) {
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            arena->blocks = fresh;
        }
        block = fresh;
    }
    void *out = (char *)block->memory + block->used;
    block->used += need;
    arena->used += need;
    return out;
}

void lam_tpl_arena_release(struct lam_tpl_arena *arena)
{
    while (arena->blocks) {
        struct lam_tpl_block *next = arena->blocks->next;
        lam_free(arena->blocks);
        arena->blocks = next;
    }
    arena->used = 0;
}

/* ---- bounds and errors ---- */

lam_code lam_tpl_fail(struct lam_tpl_run *run, const char *format, ...)
{
    char message[400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    /* Don't leave half a character where the message was cut. */
    size_t len = n < 0 ? 0 : (size_t)n < sizeof message ? (size_t)n : sizeof message - 1;
    message[lam_tpl_invalid_utf8(message, len)] = 0;
    return LAM_RAISE(run->err, LAM_E_TEMPLATE, "template line %u: %s", (unsigned)run->line, message);
}

lam_code lam_tpl_no_memory(struct lam_tpl_run *run)
{
    return LAM_RAISE(run->err, LAM_E_NO_MEMORY, "template line %u: no memory", (unsigned)run->line);
}

lam_code lam_tpl_tick(struct lam_tpl_run *run, size_t steps)
{
    if (steps > LAM_TPL_MAX_STEPS - run->steps)
        return LAM_RAISE(run->err, LAM_E_LIMIT, "template line %u: more than %llu steps", (unsigned)run->line,
                         (unsigned long long)LAM_TPL_MAX_STEPS);
    run->steps += steps;
    return LAM_OK;
}

lam_code lam_tpl_charge(struct lam_tpl_run *run, size_t bytes)
{
    if (bytes > LAM_TPL_MAX_MEMORY - run->memory)
        return LAM_RAISE(run->err, LAM_E_LIMIT, "template line %u: more than %zu bytes of memory", (unsigned)run->line,
                         LAM_TPL_MAX_MEMORY);
    run->memory += bytes;
    return lam_tpl_tick(run, bytes / 16);
}

lam_code lam_tpl_put(struct lam_tpl_run *run, struct lam_str *s, const char *bytes, size_t len)
{
    if (len > LAM_TPL_MAX_TEXT || s->len > LAM_TPL_MAX_TEXT - len)
        return LAM_RAISE(run->err, LAM_E_LIMIT, "template line %u: a text longer than %zu bytes", (unsigned)run->line,
                         LAM_TPL_MAX_TEXT);
    LAM_TRY(lam_tpl_charge(run, len));
    return lam_str_append(s, bytes, len) ? LAM_OK : lam_tpl_no_memory(run);
}

lam_code lam_tpl_puts(struct lam_tpl_run *run, struct lam_str *s, const char *text)
{
    return lam_tpl_put(run, s, text, strlen(text));
}

lam_code lam_tpl_run_alloc(struct lam_tpl_run *run, size_t count, size_t size, void **out)
{
    size_t bytes;
    if (!lam_mul_size(count, size, &bytes)) bytes = SIZE_MAX;
    LAM_TRY(lam_tpl_charge(run, bytes));
    *out = lam_tpl_arena_alloc(&run->arena, bytes);
    return *out ? LAM_OK : lam_tpl_no_memory(run);
}

/* ---- making ---- */

bool lam_tpl_text_is(struct lam_tpl_text a, const char *b) { return a.len == strlen(b) && memcmp(a.s, b, a.len) == 0; }

bool lam_tpl_text_equal(struct lam_tpl_text a, struct lam_tpl_text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.s, b.s, a.len) == 0);
}

struct lam_tpl_value lam_tpl_undefined(struct lam_tpl_text name)
{
    return (struct lam_tpl_value){.kind = LAM_TPL_UNDEFINED, .text = name};
}

struct lam_tpl_value lam_tpl_none(void) { return (struct lam_tpl_value){.kind = LAM_TPL_NONE}; }
struct lam_tpl_value lam_tpl_bool(bool b) { return (struct lam_tpl_value){.kind = LAM_TPL_BOOL, .b = b}; }
struct lam_tpl_value lam_tpl_int(int64_t i) { return (struct lam_tpl_value){.kind = LAM_TPL_INT, .i = i}; }
struct lam_tpl_value lam_tpl_float(double f) { return (struct lam_tpl_value){.kind = LAM_TPL_FLOAT, .f = f}; }

struct lam_tpl_value lam_tpl_string(struct lam_tpl_text text)
{
    return (struct lam_tpl_value){.kind = LAM_TPL_STRING, .text = text};
}

lam_code lam_tpl_string_copy(struct lam_tpl_run *run, const char *bytes, size_t len, struct lam_tpl_value *out)
{
    void *copy;
    if (len > LAM_TPL_MAX_TEXT)
        return LAM_RAISE(run->err, LAM_E_LIMIT, "template line %u: a text of %zu bytes", (unsigned)run->line, len);
    LAM_TRY(lam_tpl_run_alloc(run, len, 1, &copy));
    if (len) memcpy(copy, bytes, len);
    *out = lam_tpl_string((struct lam_tpl_text){copy, len});
    return LAM_OK;
}

lam_code lam_tpl_list_new(struct lam_tpl_run *run, enum lam_tpl_shape shape, size_t cap, struct lam_tpl_value *out)
{
    void *list, *items = NULL;
    LAM_TRY(lam_tpl_run_alloc(run, 1, sizeof(struct lam_tpl_list), &list));
    if (cap) LAM_TRY(lam_tpl_run_alloc(run, cap, sizeof(struct lam_tpl_value), &items));
    *(struct lam_tpl_list *)list = (struct lam_tpl_list){.shape = shape, .cap = cap, .items = items};
    *out = (struct lam_tpl_value){.kind = LAM_TPL_LIST, .list = list};
    return LAM_OK;
}

lam_code lam_tpl_list_push(struct lam_tpl_run *run, struct lam_tpl_list *list, struct lam_tpl_value item)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4;
        void *items;
        LAM_TRY(lam_tpl_run_alloc(run, cap, sizeof *list->items, &items));
        if (list->n) memcpy(items, list->items, list->n * sizeof *list->items);
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = item;
    return LAM_OK;
}

lam_code lam_tpl_dict_new(struct lam_tpl_run *run, size_t cap, struct lam_tpl_value *out)
{
    void *dict, *pairs = NULL;
    LAM_TRY(lam_tpl_run_alloc(run, 1, sizeof(struct lam_tpl_dict), &dict));
    if (cap) LAM_TRY(lam_tpl_run_alloc(run, cap, sizeof(struct lam_tpl_pair), &pairs));
    *(struct lam_tpl_dict *)dict = (struct lam_tpl_dict){.cap = cap, .pairs = pairs};
    *out = (struct lam_tpl_value){.kind = LAM_TPL_DICT, .dict = dict};
    return LAM_OK;
}

static lam_code dict_append(struct lam_tpl_run *run, struct lam_tpl_dict *dict, struct lam_tpl_value key,
                            struct lam_tpl_value value)
{
    if (dict->n == dict->cap) {
        size_t cap = dict->cap ? dict->cap * 2 : 4;
        void *pairs;
        LAM_TRY(lam_tpl_run_alloc(run, cap, sizeof *dict->pairs, &pairs));
        if (dict->n) memcpy(pairs, dict->pairs, dict->n * sizeof *dict->pairs);
        dict->pairs = pairs;
        dict->cap = cap;
    }
    dict->pairs[dict->n++] = (struct lam_tpl_pair){key, value};
    return LAM_OK;
}

static lam_code check_key(struct lam_tpl_run *run, struct lam_tpl_value key)
{
    if (key.kind >= LAM_TPL_NONE && key.kind <= LAM_TPL_STRING) return LAM_OK;
    return lam_tpl_fail(run, "a value of type %s as a dict key is not supported", lam_tpl_type_name(key));
}

lam_code lam_tpl_dict_find(struct lam_tpl_run *run, const struct lam_tpl_dict *dict, struct lam_tpl_value key,
                           const struct lam_tpl_value **out)
{
    *out = NULL;
    if (key.kind == LAM_TPL_UNDEFINED) return LAM_OK;
    LAM_TRY(check_key(run, key));
    LAM_TRY(lam_tpl_tick(run, dict->n / 16 + 1));
    for (size_t i = 0; i < dict->n && !*out; i++) {
        bool equal;
        LAM_TRY(lam_tpl_equal(run, dict->pairs[i].key, key, &equal));
        if (equal) *out = &dict->pairs[i].value;
    }
    return LAM_OK;
}

lam_code lam_tpl_dict_set(struct lam_tpl_run *run, struct lam_tpl_dict *dict, struct lam_tpl_value key,
                          struct lam_tpl_value value)
{
    const struct lam_tpl_value *old;
    LAM_TRY(check_key(run, key));
    LAM_TRY(lam_tpl_dict_find(run, dict, key, &old));
    if (!old) return dict_append(run, dict, key, value);
    *(struct lam_tpl_value *)old = value;
    return LAM_OK;
}

static lam_code json_text(struct lam_tpl_run *run, const char *s, size_t len, struct lam_tpl_value *out)
{
    if (lam_tpl_invalid_utf8(s, len) != len)
        return LAM_RAISE(run->err, LAM_E_UTF8, "a template variable holds text that is not UTF-8");
    *out = lam_tpl_string((struct lam_tpl_text){s, len});
    return lam_tpl_tick(run, len / 16);
}

static lam_code from_json(struct lam_tpl_run *run, const json_t *json, unsigned depth, struct lam_tpl_value *out)
{
    if (depth > LAM_TPL_MAX_VALUE_DEPTH)
        return LAM_RAISE(run->err, LAM_E_LIMIT, "a template variable is nested deeper than %d", LAM_TPL_MAX_VALUE_DEPTH);
    LAM_TRY(lam_tpl_tick(run, 1));
    switch (json_typeof(json)) {
    case JSON_NULL: *out = lam_tpl_none(); return LAM_OK;
    case JSON_TRUE: *out = lam_tpl_bool(true); return LAM_OK;
    case JSON_FALSE: *out = lam_tpl_bool(false); return LAM_OK;
    case JSON_INTEGER: *out = lam_tpl_int(json_integer_value(json)); return LAM_OK;
    case JSON_REAL: *out = lam_tpl_float(json_real_value(json)); return LAM_OK;
    case JSON_STRING: return json_text(run, json_string_value(json), json_string_length(json), out);
    case JSON_ARRAY:
        LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, json_array_size(json), out));
        for (size_t i = 0; i < json_array_size(json); i++) {
            struct lam_tpl_value item;
            LAM_TRY(from_json(run, json_array_get(json, i), depth + 1, &item));
            LAM_TRY(lam_tpl_list_push(run, out->list, item));
        }
        return LAM_OK;
    case JSON_OBJECT: break;
    }
    LAM_TRY(lam_tpl_dict_new(run, json_object_size(json), out));
    /* The iterator's interface lacks const; nothing is changed. */
    json_t *object = (json_t *)(uintptr_t)json;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        struct lam_tpl_value key, value;
        LAM_TRY(json_text(run, json_object_iter_key(at), strlen(json_object_iter_key(at)), &key));
        LAM_TRY(from_json(run, json_object_iter_value(at), depth + 1, &value));
        LAM_TRY(dict_append(run, out->dict, key, value));
    }
    return LAM_OK;
}

lam_code lam_tpl_from_json(struct lam_tpl_run *run, const json_t *json, struct lam_tpl_value *out)
{
    return from_json(run, json, 0, out);
}

/* ---- asking ---- */

const char *lam_tpl_type_name(struct lam_tpl_value v)
{
    switch (v.kind) {
    case LAM_TPL_UNDEFINED: return "undefined";
    case LAM_TPL_NONE: return "none";
    case LAM_TPL_BOOL: return "bool";
    case LAM_TPL_INT: return "int";
    case LAM_TPL_FLOAT: return "float";
    case LAM_TPL_STRING: return "string";
    case LAM_TPL_LIST: return v.list->shape == LAM_TPL_PLAIN_LIST ? "list" : v.list->shape == LAM_TPL_TUPLE ? "tuple" : "lazy sequence";
    case LAM_TPL_DICT: return "dict";
    case LAM_TPL_NAMESPACE: return "namespace";
    case LAM_TPL_LOOP: return "loop";
    case LAM_TPL_MACRO: return "macro";
    case LAM_TPL_FUNCTION: return "function";
    case LAM_TPL_METHOD: return "method";
    }
    return "?";
}

bool lam_tpl_truth(struct lam_tpl_value v)
{
    switch (v.kind) {
    case LAM_TPL_UNDEFINED: case LAM_TPL_NONE: return false;
    case LAM_TPL_BOOL: return v.b;
    case LAM_TPL_INT: return v.i != 0;
    case LAM_TPL_FLOAT: return v.f != 0;
    case LAM_TPL_STRING: return v.text.len != 0;
    case LAM_TPL_LIST: return v.list->n != 0 || v.list->shape == LAM_TPL_ITERATOR;
    case LAM_TPL_DICT: return v.dict->n != 0;
    default: return true;
    }
}

bool lam_tpl_is_number(struct lam_tpl_value v) { return v.kind >= LAM_TPL_BOOL && v.kind <= LAM_TPL_FLOAT; }
int64_t lam_tpl_as_int(struct lam_tpl_value v) { return v.kind == LAM_TPL_BOOL ? v.b : v.i; }
double lam_tpl_as_double(struct lam_tpl_value v) { return v.kind == LAM_TPL_FLOAT ? v.f : (double)lam_tpl_as_int(v); }

/* Order of two numbers: exact between integers, by value otherwise; 2 when one is not a number. */
static int number_order(struct lam_tpl_value a, struct lam_tpl_value b)
{
    if (a.kind != LAM_TPL_FLOAT && b.kind != LAM_TPL_FLOAT) {
        int64_t x = lam_tpl_as_int(a), y = lam_tpl_as_int(b);
        return (x > y) - (x < y);
    }
    double x = lam_tpl_as_double(a), y = lam_tpl_as_double(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static int text_order(struct lam_tpl_text a, struct lam_tpl_text b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.s, b.s, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static lam_code equal_at(struct lam_tpl_run *run, struct lam_tpl_value a, struct lam_tpl_value b, unsigned depth,
                         bool *out);

static lam_code equal_lists(struct lam_tpl_run *run, const struct lam_tpl_list *a, const struct lam_tpl_list *b,
                            unsigned depth, bool *out)
{
    *out = a == b;
    if (*out || a->shape != b->shape || a->n != b->n) return LAM_OK;
    if (a->shape > LAM_TPL_TUPLE) return lam_tpl_fail(run, "comparing lazy sequences is not supported");
    *out = true;
    for (size_t i = 0; i < a->n && *out; i++) LAM_TRY(equal_at(run, a->items[i], b->items[i], depth + 1, out));
    return LAM_OK;
}

static lam_code equal_dicts(struct lam_tpl_run *run, const struct lam_tpl_dict *a, const struct lam_tpl_dict *b,
                            unsigned depth, bool *out)
{
    *out = a == b;
    if (*out || a->n != b->n) return LAM_OK;
    *out = true;
    for (size_t i = 0; i < a->n && *out; i++) {
        const struct lam_tpl_value *other;
        LAM_TRY(lam_tpl_dict_find(run, b, a->pairs[i].key, &other));
        if (other) LAM_TRY(equal_at(run, a->pairs[i].value, *other, depth + 1, out));
        else *out = false;
    }
    return LAM_OK;
}

static lam_code equal_at(struct lam_tpl_run *run, struct lam_tpl_value a, struct lam_tpl_value b, unsigned depth,
                         bool *out)
{
    if (depth > LAM_TPL_MAX_VALUE_DEPTH) return lam_tpl_fail(run, "values nested deeper than %d", LAM_TPL_MAX_VALUE_DEPTH);
    LAM_TRY(lam_tpl_tick(run, 1));
    if (lam_tpl_is_number(a) && lam_tpl_is_number(b)) {
        *out = number_order(a, b) == 0;
        return LAM_OK;
    }
    *out = false;
    if (a.kind != b.kind) return LAM_OK;
    switch (a.kind) {
    case LAM_TPL_UNDEFINED: case LAM_TPL_NONE: *out = true; return LAM_OK;
    case LAM_TPL_STRING:
        *out = lam_tpl_text_equal(a.text, b.text);
        return lam_tpl_tick(run, a.text.len == b.text.len ? a.text.len / 16 : 0);
    case LAM_TPL_LIST: return equal_lists(run, a.list, b.list, depth, out);
    case LAM_TPL_DICT: return equal_dicts(run, a.dict, b.dict, depth, out);
    case LAM_TPL_NAMESPACE: *out = a.dict == b.dict; return LAM_OK;
    case LAM_TPL_LOOP: *out = a.loop == b.loop; return LAM_OK;
    case LAM_TPL_MACRO: *out = a.macro == b.macro; return LAM_OK;
    case LAM_TPL_FUNCTION: *out = a.function == b.function; return LAM_OK;
    default: return lam_tpl_fail(run, "comparing methods is not supported");
    }
}

lam_code lam_tpl_equal(struct lam_tpl_run *run, struct lam_tpl_value a, struct lam_tpl_value b, bool *out)
{
    return equal_at(run, a, b, 0, out);
}

static lam_code compare_at(struct lam_tpl_run *run, struct lam_tpl_value a, struct lam_tpl_value b, unsigned depth,
                           int *out)
{
    if (depth > LAM_TPL_MAX_VALUE_DEPTH) return lam_tpl_fail(run, "values nested deeper than %d", LAM_TPL_MAX_VALUE_DEPTH);
    LAM_TRY(lam_tpl_tick(run, 1));
    if (lam_tpl_is_number(a) && lam_tpl_is_number(b)) {
        *out = number_order(a, b);
        return *out == 2 ? lam_tpl_fail(run, "ordering nan is not supported") : LAM_OK;
    }
    if (a.kind == LAM_TPL_STRING && b.kind == LAM_TPL_STRING) {
        *out = text_order(a.text, b.text);
        return lam_tpl_tick(run, (a.text.len < b.text.len ? a.text.len : b.text.len) / 16);
    }
    if (a.kind == LAM_TPL_LIST && b.kind == LAM_TPL_LIST && a.list->shape == b.list->shape &&
        a.list->shape <= LAM_TPL_TUPLE) {
        size_t n = a.list->n < b.list->n ? a.list->n : b.list->n;
        for (size_t i = 0; i < n; i++) {
            bool equal;
            LAM_TRY(equal_at(run, a.list->items[i], b.list->items[i], depth + 1, &equal));
            if (!equal) return compare_at(run, a.list->items[i], b.list->items[i], depth + 1, out);
        }
        *out = (a.list->n > b.list->n) - (a.list->n < b.list->n);
        return LAM_OK;
    }
    return lam_tpl_fail(run, "no order between %s and %s", lam_tpl_type_name(a), lam_tpl_type_name(b));
}

lam_code lam_tpl_compare(struct lam_tpl_run *run, struct lam_tpl_value a, struct lam_tpl_value b, int *out)
{
    return compare_at(run, a, b, 0, out);
}

lam_code lam_tpl_tick_search(struct lam_tpl_run *run, struct lam_tpl_text t, struct lam_tpl_text needle)
{
    /* In the worst case the needle is compared at each byte; neither length passes LAM_TPL_MAX_TEXT. */
    return lam_tpl_tick(run, t.len / 16 + t.len / 256 * (needle.len / 16));
}

lam_code lam_tpl_contains(struct lam_tpl_run *run, struct lam_tpl_value container, struct lam_tpl_value item, bool *out)
{
    if (container.kind == LAM_TPL_STRING) {
        if (item.kind != LAM_TPL_STRING)
            return lam_tpl_fail(run, "'in' of a string needs a string, not %s", lam_tpl_type_name(item));
        LAM_TRY(lam_tpl_tick_search(run, container.text, item.text));
        *out = lam_tpl_find(container.text, item.text, 0) <= container.text.len;
        return LAM_OK;
    }
    if (container.kind == LAM_TPL_DICT) {
        const struct lam_tpl_value *found;
        LAM_TRY(lam_tpl_dict_find(run, container.dict, item, &found));
        *out = found != NULL;
        return LAM_OK;
    }
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_iterate(run, container, &list));
    *out = false;
    for (size_t i = 0; i < list->n && !*out; i++) LAM_TRY(lam_tpl_equal(run, list->items[i], item, out));
    return LAM_OK;
}

lam_code lam_tpl_length(struct lam_tpl_run *run, struct lam_tpl_value v, size_t *out)
{
    switch (v.kind) {
    case LAM_TPL_UNDEFINED: *out = 0; return LAM_OK;
    case LAM_TPL_STRING: *out = lam_tpl_count(v.text); return lam_tpl_tick(run, v.text.len / 16);
    case LAM_TPL_LIST: *out = v.list->n; return LAM_OK;
    case LAM_TPL_DICT: *out = v.dict->n; return LAM_OK;
    case LAM_TPL_LOOP: *out = v.loop->items->n; return LAM_OK;
    default: return lam_tpl_fail(run, "a value of type %s has no length", lam_tpl_type_name(v));
    }
}

static const struct lam_tpl_list empty_list;

lam_code lam_tpl_iterate(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_list **out)
{
    struct lam_tpl_value list;
    *out = &empty_list;
    switch (v.kind) {
    case LAM_TPL_UNDEFINED: return LAM_OK;
    case LAM_TPL_LIST:
        if (v.list->shape == LAM_TPL_ITERATOR) {
            if (v.list->consumed) return LAM_OK;
            v.list->consumed = true;
        }
        *out = v.list;
        return lam_tpl_tick(run, v.list->n / 16);
    case LAM_TPL_DICT:
        LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, v.dict->n, &list));
        for (size_t i = 0; i < v.dict->n; i++) LAM_TRY(lam_tpl_list_push(run, list.list, v.dict->pairs[i].key));
        *out = list.list;
        return LAM_OK;
    case LAM_TPL_STRING:
        LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, lam_tpl_count(v.text), &list));
        for (size_t i = 0, size; i < v.text.len; i += size) {
            lam_tpl_decode(v.text.s + i, v.text.len - i, &size);
            LAM_TRY(lam_tpl_list_push(run, list.list, lam_tpl_string((struct lam_tpl_text){v.text.s + i, size})));
        }
        *out = list.list;
        return LAM_OK;
    default: return lam_tpl_fail(run, "a value of type %s can't be iterated", lam_tpl_type_name(v));
    }
}

/* ---- printing ---- */

static lam_code repr_text(struct lam_tpl_run *run, struct lam_tpl_text t, struct lam_str *s)
{
    bool single = memchr(t.s ? t.s : "", '\'', t.len), twofold = memchr(t.s ? t.s : "", '"', t.len);
    const char *quote = single && !twofold ? "\"" : "'";
    LAM_TRY(lam_tpl_puts(run, s, quote));
    for (size_t i = 0, size; i < t.len; i += size) {
        uint32_t c = lam_tpl_decode(t.s + i, t.len - i, &size);
        char escape[16];
        if (c == '\n') strcpy(escape, "\\n");
        else if (c == '\r') strcpy(escape, "\\r");
        else if (c == '\t') strcpy(escape, "\\t");
        else if (c == '\\' || c == (uint32_t)quote[0]) snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (lam_tpl_is_printable(c)) {
            LAM_TRY(lam_tpl_put(run, s, t.s + i, size));
            continue;
        } else snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        LAM_TRY(lam_tpl_puts(run, s, escape));
    }
    LAM_TRY(lam_tpl_tick(run, t.len / 4));
    return lam_tpl_puts(run, s, quote);
}

static lam_code repr_at(struct lam_tpl_run *run, struct lam_tpl_value v, unsigned depth, struct lam_str *s);

static lam_code repr_list(struct lam_tpl_run *run, const struct lam_tpl_list *list, unsigned depth, struct lam_str *s)
{
    bool tuple = list->shape == LAM_TPL_TUPLE;
    LAM_TRY(lam_tpl_puts(run, s, tuple ? "(" : "["));
    for (size_t i = 0; i < list->n; i++) {
        if (i) LAM_TRY(lam_tpl_puts(run, s, ", "));
        LAM_TRY(repr_at(run, list->items[i], depth + 1, s));
    }
    return lam_tpl_puts(run, s, !tuple ? "]" : list->n == 1 ? ",)" : ")");
}

static lam_code repr_dict(struct lam_tpl_run *run, const struct lam_tpl_dict *dict, unsigned depth, struct lam_str *s)
{
    LAM_TRY(lam_tpl_puts(run, s, "{"));
    for (size_t i = 0; i < dict->n; i++) {
        if (i) LAM_TRY(lam_tpl_puts(run, s, ", "));
        LAM_TRY(repr_at(run, dict->pairs[i].key, depth + 1, s));
        LAM_TRY(lam_tpl_puts(run, s, ": "));
        LAM_TRY(repr_at(run, dict->pairs[i].value, depth + 1, s));
    }
    return lam_tpl_puts(run, s, "}");
}

static lam_code repr_at(struct lam_tpl_run *run, struct lam_tpl_value v, unsigned depth, struct lam_str *s)
{
    char number[40];
    if (depth > LAM_TPL_MAX_VALUE_DEPTH) return lam_tpl_fail(run, "values nested deeper than %d", LAM_TPL_MAX_VALUE_DEPTH);
    LAM_TRY(lam_tpl_tick(run, 1));
    switch (v.kind) {
    case LAM_TPL_UNDEFINED: return lam_tpl_puts(run, s, "Undefined");
    case LAM_TPL_NONE: return lam_tpl_puts(run, s, "None");
    case LAM_TPL_BOOL: return lam_tpl_puts(run, s, v.b ? "True" : "False");
    case LAM_TPL_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.i);
        return lam_tpl_puts(run, s, number);
    case LAM_TPL_FLOAT:
        lam_tpl_float_repr(v.f, number);
        return lam_tpl_puts(run, s, number);
    case LAM_TPL_STRING: return repr_text(run, v.text, s);
    case LAM_TPL_DICT: return repr_dict(run, v.dict, depth, s);
    case LAM_TPL_LIST:
        if (v.list->shape <= LAM_TPL_TUPLE) return repr_list(run, v.list, depth, s);
        break;
    default: break;
    }
    return lam_tpl_fail(run, "printing a %s is not supported", lam_tpl_type_name(v));
}

lam_code lam_tpl_repr(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_str *s) { return repr_at(run, v, 0, s); }

lam_code lam_tpl_print(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_str *s)
{
    if (v.kind == LAM_TPL_STRING) return lam_tpl_put(run, s, v.text.s, v.text.len);
    return v.kind == LAM_TPL_UNDEFINED ? LAM_OK : repr_at(run, v, 0, s);
}

lam_code lam_tpl_to_text(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_tpl_text *out)
{
    if (v.kind == LAM_TPL_STRING) {
        *out = v.text;
        return LAM_OK;
    }
    struct lam_str s = {0};
    struct lam_tpl_value copy;
    lam_code code = lam_tpl_print(run, v, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, &copy);
    lam_str_release(&s);
    if (code == LAM_OK) *out = copy.text;
    return code;
}
