/* json.dumps of a template value. */
#include "text/template_text.h"
#include "text/template_value.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct writer {
    struct lam_tpl_run *run;
    const struct lam_tpl_json_style *style;
    struct lam_str *s;
};

static lam_code put_text(struct writer *w, struct lam_tpl_text t)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    LAM_TRY(lam_tpl_puts(w->run, w->s, "\""));
    LAM_TRY(lam_tpl_tick(w->run, t.len / 4));
    size_t plain = 0; /* bytes before i that need no escape and are not written yet */
    for (size_t i = 0, size; i < t.len; i += size) {
        uint32_t c = lam_tpl_decode(t.s + i, t.len - i, &size);
        const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;
        if (!known && c >= 0x20 && (c < 0x7f || !w->style->ascii)) {
            plain += size;
            continue;
        }
        char escape[16];
        LAM_TRY(lam_tpl_put(w->run, w->s, t.s + i - plain, plain));
        plain = 0;
        if (known) snprintf(escape, sizeof escape, "\\%c", to[known - from]);
        else if (c < 0x10000) snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
        else snprintf(escape, sizeof escape, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)), (unsigned)(0xdc00 + (c & 0x3ff)));
        LAM_TRY(lam_tpl_puts(w->run, w->s, escape));
    }
    LAM_TRY(lam_tpl_put(w->run, w->s, t.s + t.len - plain, plain));
    return lam_tpl_puts(w->run, w->s, "\"");
}

static lam_code new_line(struct writer *w, unsigned depth)
{
    if (!w->style->has_indent) return LAM_OK;
    LAM_TRY(lam_tpl_puts(w->run, w->s, "\n"));
    for (unsigned i = 0; i < depth; i++) LAM_TRY(lam_tpl_put(w->run, w->s, w->style->indent.s, w->style->indent.len));
    return LAM_OK;
}

static lam_code put_value(struct writer *w, struct lam_tpl_value v, unsigned depth);

static lam_code put_list(struct writer *w, const struct lam_tpl_list *list, unsigned depth)
{
    if (list->n == 0) return lam_tpl_puts(w->run, w->s, "[]");
    LAM_TRY(lam_tpl_puts(w->run, w->s, "["));
    for (size_t i = 0; i < list->n; i++) {
        if (i) LAM_TRY(lam_tpl_put(w->run, w->s, w->style->item_separator.s, w->style->item_separator.len));
        LAM_TRY(new_line(w, depth + 1));
        LAM_TRY(put_value(w, list->items[i], depth + 1));
    }
    LAM_TRY(new_line(w, depth));
    return lam_tpl_puts(w->run, w->s, "]");
}

static lam_code put_scalar(struct writer *w, struct lam_tpl_value v)
{
    if (v.kind == LAM_TPL_NONE) return lam_tpl_puts(w->run, w->s, "null");
    if (v.kind == LAM_TPL_BOOL) return lam_tpl_puts(w->run, w->s, v.b ? "true" : "false");
    if (v.kind == LAM_TPL_FLOAT && !isfinite(v.f))
        return lam_tpl_puts(w->run, w->s, isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
    return lam_tpl_repr(w->run, v, w->s);
}

static lam_code put_key(struct writer *w, struct lam_tpl_value key)
{
    if (key.kind == LAM_TPL_STRING) return put_text(w, key.text);
    LAM_TRY(lam_tpl_puts(w->run, w->s, "\""));
    LAM_TRY(put_scalar(w, key));
    return lam_tpl_puts(w->run, w->s, "\"");
}

/* Strings by code point, which is the order of their bytes. */
static int pair_order(const void *a, const void *b)
{
    const struct lam_tpl_text *x = &((const struct lam_tpl_pair *)a)->key.text, *y = &((const struct lam_tpl_pair *)b)->key.text;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = n ? memcmp(x->s, y->s, n) : 0;
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static lam_code put_pairs(struct writer *w, const struct lam_tpl_pair *pairs, size_t n, unsigned depth)
{
    LAM_TRY(lam_tpl_puts(w->run, w->s, "{"));
    for (size_t i = 0; i < n; i++) {
        if (i) LAM_TRY(lam_tpl_put(w->run, w->s, w->style->item_separator.s, w->style->item_separator.len));
        LAM_TRY(new_line(w, depth + 1));
        LAM_TRY(put_key(w, pairs[i].key));
        LAM_TRY(lam_tpl_put(w->run, w->s, w->style->key_separator.s, w->style->key_separator.len));
        LAM_TRY(put_value(w, pairs[i].value, depth + 1));
    }
    LAM_TRY(new_line(w, depth));
    return lam_tpl_puts(w->run, w->s, "}");
}

static lam_code put_dict(struct writer *w, const struct lam_tpl_dict *dict, unsigned depth)
{
    if (dict->n == 0) return lam_tpl_puts(w->run, w->s, "{}");
    if (!w->style->sort_keys) return put_pairs(w, dict->pairs, dict->n, depth);
    for (size_t i = 0; i < dict->n; i++)
        if (dict->pairs[i].key.kind != LAM_TPL_STRING)
            return lam_tpl_fail(w->run, "tojson(sort_keys) with keys other than strings is not supported");
    struct lam_tpl_pair *sorted = lam_alloc(dict->n, sizeof *sorted);
    if (!sorted) return lam_tpl_no_memory(w->run);
    memcpy(sorted, dict->pairs, dict->n * sizeof *sorted);
    qsort(sorted, dict->n, sizeof *sorted, pair_order);
    lam_code code = put_pairs(w, sorted, dict->n, depth);
    lam_free(sorted);
    return code;
}

static lam_code put_value(struct writer *w, struct lam_tpl_value v, unsigned depth)
{
    if (depth > LAM_TPL_MAX_VALUE_DEPTH)
        return lam_tpl_fail(w->run, "values nested deeper than %d", LAM_TPL_MAX_VALUE_DEPTH);
    LAM_TRY(lam_tpl_tick(w->run, 1));
    switch (v.kind) {
    case LAM_TPL_NONE: case LAM_TPL_BOOL: case LAM_TPL_INT: case LAM_TPL_FLOAT: return put_scalar(w, v);
    case LAM_TPL_STRING: return put_text(w, v.text);
    case LAM_TPL_DICT: return put_dict(w, v.dict, depth);
    case LAM_TPL_LIST: {
        const struct lam_tpl_list *list;
        LAM_TRY(lam_tpl_iterate(w->run, v, &list));
        return put_list(w, list, depth);
    }
    default: return lam_tpl_fail(w->run, "tojson of a value of type %s", lam_tpl_type_name(v));
    }
}

lam_code lam_tpl_to_json(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_json_style *style,
                         struct lam_str *s)
{
    struct writer w = {run, style, s};
    return put_value(&w, v, 0);
}
