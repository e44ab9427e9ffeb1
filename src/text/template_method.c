/* Methods of strings, lists, dicts and loops. */
#include "text/template_text.h"
#include "text/template_value.h"

#include <string.h>

typedef lam_code method_fn(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out);

/* ---- strings ---- */

static lam_code in_case(struct lam_tpl_run *run, struct lam_tpl_value self, const char *what,
                        const struct lam_tpl_args *args, enum lam_tpl_case to, struct lam_tpl_value *out)
{
    struct lam_str s = {0};
    LAM_TRY(lam_tpl_bind(run, what, args, NULL, 0, 0, NULL));
    lam_code code = lam_tpl_put_case(run, self.text, to, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

static lam_code str_upper(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return in_case(r, v, "upper", a, LAM_TPL_UPPER, out); }
static lam_code str_lower(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return in_case(r, v, "lower", a, LAM_TPL_LOWER, out); }
static lam_code str_title(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return in_case(r, v, "title", a, LAM_TPL_TITLE, out); }
static lam_code str_capitalize(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return in_case(r, v, "capitalize", a, LAM_TPL_CAPITALIZE, out); }

/* Whether the character at s[0..len) is one of set's, or white space without a set; *size is its length. */
static bool strippable(const char *s, size_t len, const struct lam_tpl_text *set, size_t *size)
{
    uint32_t c = lam_tpl_decode(s, len, size);
    if (!set) return lam_tpl_is_space(c);
    for (size_t i = 0, n; i < set->len; i += n)
        if (lam_tpl_decode(set->s + i, set->len - i, &n) == c) return true;
    return false;
}

static lam_code strip(struct lam_tpl_run *run, struct lam_tpl_value self, const char *what,
                      const struct lam_tpl_args *args, bool left, bool right, struct lam_tpl_value *out)
{
    static const char *const names[] = {"chars"};
    const struct lam_tpl_value *arg;
    struct lam_tpl_text set = {"", 0}, t = self.text;
    size_t size, begin = 0, end = t.len;
    LAM_TRY(lam_tpl_bind(run, what, args, names, 1, 0, &arg));
    LAM_TRY(lam_tpl_arg_text(run, what, arg, &set));
    const struct lam_tpl_text *chars = arg && arg->kind == LAM_TPL_STRING ? &set : NULL;
    while (left && begin < end && strippable(t.s + begin, end - begin, chars, &size)) begin += size;
    while (right && end > begin) {
        size_t at = end - 1;
        while (at > begin && ((unsigned char)t.s[at] & 0xc0) == 0x80) at--;
        if (!strippable(t.s + at, end - at, chars, &size)) break;
        end = at;
    }
    LAM_TRY(lam_tpl_tick(run, (t.len - (end - begin)) / 16 * (1 + set.len / 4)));
    *out = lam_tpl_string((struct lam_tpl_text){t.s + begin, end - begin});
    return LAM_OK;
}

static lam_code str_strip(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return strip(r, v, "strip", a, true, true, out); }
static lam_code str_lstrip(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return strip(r, v, "lstrip", a, true, false, out); }
static lam_code str_rstrip(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return strip(r, v, "rstrip", a, false, true, out); }

static bool has_affix(struct lam_tpl_text t, struct lam_tpl_text affix, bool at_end)
{
    return affix.len <= t.len && (affix.len == 0 || memcmp(t.s + (at_end ? t.len - affix.len : 0), affix.s, affix.len) == 0);
}

/* startswith and endswith: a string or a tuple of strings. */
static lam_code affix_test(struct lam_tpl_run *run, struct lam_tpl_value self, const char *what,
                           const struct lam_tpl_args *args, bool at_end, struct lam_tpl_value *out)
{
    static const char *const names[] = {"affix"};
    const struct lam_tpl_value *affix;
    LAM_TRY(lam_tpl_bind(run, what, args, names, 1, 1, &affix));
    bool yes = false, tuple = affix->kind == LAM_TPL_LIST && affix->list->shape == LAM_TPL_TUPLE;
    if (affix->kind == LAM_TPL_STRING) yes = has_affix(self.text, affix->text, at_end);
    else if (!tuple) return lam_tpl_fail(run, "%s needs a string or a tuple of strings, not %s", what, lam_tpl_type_name(*affix));
    for (size_t i = 0; tuple && i < affix->list->n; i++) {
        if (affix->list->items[i].kind != LAM_TPL_STRING) return lam_tpl_fail(run, "%s needs strings in its tuple", what);
        yes = yes || has_affix(self.text, affix->list->items[i].text, at_end);
    }
    *out = lam_tpl_bool(yes);
    return lam_tpl_tick(run, self.text.len / 64 + (tuple ? affix->list->n : 0));
}

static lam_code str_startswith(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return affix_test(r, v, "startswith", a, false, out); }
static lam_code str_endswith(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return affix_test(r, v, "endswith", a, true, out); }

static lam_code remove_affix(struct lam_tpl_run *run, struct lam_tpl_value self, const char *what,
                             const struct lam_tpl_args *args, bool at_end, struct lam_tpl_value *out)
{
    static const char *const names[] = {"affix"};
    const struct lam_tpl_value *arg;
    struct lam_tpl_text affix = {"", 0};
    LAM_TRY(lam_tpl_bind(run, what, args, names, 1, 1, &arg));
    LAM_TRY(lam_tpl_arg_text(run, what, arg, &affix));
    *out = lam_tpl_string(self.text);
    if (!has_affix(self.text, affix, at_end)) return LAM_OK;
    out->text.len -= affix.len;
    if (!at_end) out->text.s += affix.len;
    return LAM_OK;
}

static lam_code str_removeprefix(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return remove_affix(r, v, "removeprefix", a, false, out); }
static lam_code str_removesuffix(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return remove_affix(r, v, "removesuffix", a, true, out); }

static lam_code push_text(struct lam_tpl_run *run, struct lam_tpl_list *list, const char *s, size_t len)
{
    return lam_tpl_list_push(run, list, lam_tpl_string((struct lam_tpl_text){s, len}));
}

/* Runs of white space separate; max < 0: no limit. */
static lam_code split_space(struct lam_tpl_run *run, struct lam_tpl_text t, int64_t max, struct lam_tpl_list *list)
{
    size_t at = lam_tpl_leading_space(t), size;
    while (at < t.len) {
        size_t begin = at;
        if (max >= 0 && (int64_t)list->n >= max) return push_text(run, list, t.s + begin, t.len - begin);
        while (at < t.len && !lam_tpl_is_space(lam_tpl_decode(t.s + at, t.len - at, &size))) at += size;
        LAM_TRY(push_text(run, list, t.s + begin, at - begin));
        at += lam_tpl_leading_space((struct lam_tpl_text){t.s + at, t.len - at});
    }
    return LAM_OK;
}

static lam_code split_left(struct lam_tpl_run *run, struct lam_tpl_text t, struct lam_tpl_text sep, int64_t max,
                           struct lam_tpl_list *list)
{
    size_t begin = 0, hit;
    while ((max < 0 || (int64_t)list->n < max) && (hit = lam_tpl_find(t, sep, begin)) <= t.len) {
        LAM_TRY(push_text(run, list, t.s + begin, hit - begin));
        begin = hit + sep.len;
    }
    return push_text(run, list, t.s + begin, t.len - begin);
}

static lam_code split_right(struct lam_tpl_run *run, struct lam_tpl_text t, struct lam_tpl_text sep, int64_t max,
                            struct lam_tpl_list *list)
{
    size_t end = t.len, at = t.len;
    while (at >= sep.len && (max < 0 || (int64_t)list->n < max)) {
        if (memcmp(t.s + at - sep.len, sep.s, sep.len) != 0) {
            at--;
            continue;
        }
        LAM_TRY(push_text(run, list, t.s + at, end - at));
        end = at = at - sep.len;
    }
    LAM_TRY(push_text(run, list, t.s, end));
    for (size_t i = 0, k = list->n - 1; i < k; i++, k--) {
        struct lam_tpl_value swap = list->items[i];
        list->items[i] = list->items[k];
        list->items[k] = swap;
    }
    return LAM_OK;
}

static lam_code split(struct lam_tpl_run *run, struct lam_tpl_value self, const char *what,
                      const struct lam_tpl_args *args, bool right, struct lam_tpl_value *out)
{
    static const char *const names[] = {"sep", "maxsplit"};
    const struct lam_tpl_value *bound[2];
    struct lam_tpl_text sep = {"", 0};
    int64_t max = -1;
    LAM_TRY(lam_tpl_bind(run, what, args, names, 2, 0, bound));
    LAM_TRY(lam_tpl_arg_text(run, what, bound[0], &sep));
    LAM_TRY(lam_tpl_arg_int(run, what, bound[1], &max));
    bool spaces = !bound[0] || bound[0]->kind == LAM_TPL_NONE;
    if (!spaces && sep.len == 0) return lam_tpl_fail(run, "%s with an empty separator", what);
    if (spaces && right && max >= 0) return lam_tpl_fail(run, "rsplit on white space with a limit is not supported");
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, 0, out));
    LAM_TRY(lam_tpl_tick_search(run, self.text, sep));
    if (spaces) return split_space(run, self.text, max, out->list);
    return right ? split_right(run, self.text, sep, max, out->list) : split_left(run, self.text, sep, max, out->list);
}

static lam_code str_split(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return split(r, v, "split", a, false, out); }
static lam_code str_rsplit(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return split(r, v, "rsplit", a, true, out); }

static bool ends_line(uint32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static lam_code str_splitlines(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                               struct lam_tpl_value *out)
{
    static const char *const names[] = {"keepends"};
    const struct lam_tpl_value *keep;
    struct lam_tpl_text t = self.text;
    LAM_TRY(lam_tpl_bind(run, "splitlines", args, names, 1, 0, &keep));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, 0, out));
    LAM_TRY(lam_tpl_tick(run, t.len / 8));
    size_t begin = 0, size;
    for (size_t i = 0; i < t.len; i += size) {
        if (!ends_line(lam_tpl_decode(t.s + i, t.len - i, &size))) continue;
        if (t.s[i] == '\r' && i + 1 < t.len && t.s[i + 1] == '\n') size = 2;
        LAM_TRY(push_text(run, out->list, t.s + begin, i - begin + (lam_tpl_arg_bool(keep, false) ? size : 0)));
        begin = i + size;
    }
    return begin < t.len ? push_text(run, out->list, t.s + begin, t.len - begin) : LAM_OK;
}

static lam_code replace(struct lam_tpl_run *run, struct lam_tpl_text t, struct lam_tpl_text from,
                        struct lam_tpl_text to, int64_t count, struct lam_str *s)
{
    size_t at = 0;
    LAM_TRY(lam_tpl_tick_search(run, t, from));
    for (int64_t i = 0; i != count; i++) {
        size_t hit = lam_tpl_find(t, from, at), size = from.len;
        if (hit > t.len) break;
        LAM_TRY(lam_tpl_tick(run, 1));
        LAM_TRY(lam_tpl_put(run, s, t.s + at, hit - at));
        LAM_TRY(lam_tpl_put(run, s, to.s, to.len));
        at = hit + from.len;
        if (from.len) continue;
        if (at == t.len) return LAM_OK; /* an empty `from` stands before each character and at the end */
        lam_tpl_decode(t.s + at, t.len - at, &size);
        LAM_TRY(lam_tpl_put(run, s, t.s + at, size));
        at += size;
    }
    return lam_tpl_put(run, s, t.s + at, t.len - at);
}

static lam_code str_replace(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                            struct lam_tpl_value *out)
{
    static const char *const names[] = {"old", "new", "count"};
    const struct lam_tpl_value *bound[3];
    int64_t count = -1;
    LAM_TRY(lam_tpl_bind(run, "replace", args, names, 3, 2, bound));
    if (bound[0]->kind != LAM_TPL_STRING || bound[1]->kind != LAM_TPL_STRING)
        return lam_tpl_fail(run, "replace needs two strings, not %s and %s", lam_tpl_type_name(*bound[0]), lam_tpl_type_name(*bound[1]));
    LAM_TRY(lam_tpl_arg_int(run, "replace", bound[2], &count));
    struct lam_str s = {0};
    lam_code code = replace(run, self.text, bound[0]->text, bound[1]->text, count < 0 ? -1 : count, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

static lam_code join(struct lam_tpl_run *run, struct lam_tpl_text sep, const struct lam_tpl_list *list, struct lam_str *s)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i].kind != LAM_TPL_STRING)
            return lam_tpl_fail(run, "join needs strings, not %s", lam_tpl_type_name(list->items[i]));
        if (i) LAM_TRY(lam_tpl_put(run, s, sep.s, sep.len));
        LAM_TRY(lam_tpl_put(run, s, list->items[i].text.s, list->items[i].text.len));
        LAM_TRY(lam_tpl_tick(run, 1));
    }
    return LAM_OK;
}

static lam_code str_join(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                         struct lam_tpl_value *out)
{
    static const char *const names[] = {"iterable"};
    const struct lam_tpl_value *arg;
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_bind(run, "join", args, names, 1, 1, &arg));
    LAM_TRY(lam_tpl_iterate(run, *arg, &list));
    struct lam_str s = {0};
    lam_code code = join(run, self.text, list, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

/* find and rfind give characters, -1 for none. */
static lam_code find(struct lam_tpl_run *run, struct lam_tpl_value self, const char *what,
                     const struct lam_tpl_args *args, bool last, struct lam_tpl_value *out)
{
    static const char *const names[] = {"sub"};
    const struct lam_tpl_value *sub;
    LAM_TRY(lam_tpl_bind(run, what, args, names, 1, 1, &sub));
    if (sub->kind != LAM_TPL_STRING) return lam_tpl_fail(run, "%s needs a string, not %s", what, lam_tpl_type_name(*sub));
    LAM_TRY(lam_tpl_tick_search(run, self.text, sub->text));
    size_t at = lam_tpl_find(self.text, sub->text, 0);
    if (at <= self.text.len && last && sub->text.len == 0) at = self.text.len;
    for (size_t next = at; last && sub->text.len && next <= self.text.len; next = lam_tpl_find(self.text, sub->text, next + 1)) at = next;
    *out = lam_tpl_int(at > self.text.len ? -1 : (int64_t)lam_tpl_count((struct lam_tpl_text){self.text.s, at}));
    return LAM_OK;
}

static lam_code str_find(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return find(r, v, "find", a, false, out); }
static lam_code str_rfind(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return find(r, v, "rfind", a, true, out); }

static lam_code str_index(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                          struct lam_tpl_value *out)
{
    LAM_TRY(find(run, self, "index", args, false, out));
    return out->i < 0 ? lam_tpl_fail(run, "index: the text is not found") : LAM_OK;
}

static lam_code str_count(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                          struct lam_tpl_value *out)
{
    static const char *const names[] = {"sub"};
    const struct lam_tpl_value *sub;
    LAM_TRY(lam_tpl_bind(run, "count", args, names, 1, 1, &sub));
    if (sub->kind != LAM_TPL_STRING) return lam_tpl_fail(run, "count needs a string, not %s", lam_tpl_type_name(*sub));
    LAM_TRY(lam_tpl_tick_search(run, self.text, sub->text));
    int64_t n = 0;
    if (sub->text.len == 0) n = (int64_t)lam_tpl_count(self.text) + 1;
    else for (size_t at = 0; (at = lam_tpl_find(self.text, sub->text, at)) <= self.text.len; at += sub->text.len) n++;
    *out = lam_tpl_int(n);
    return LAM_OK;
}

/* isdigit is told by ASCII alone; other text is refused rather than guessed. */
static lam_code str_isdigit(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                            struct lam_tpl_value *out)
{
    LAM_TRY(lam_tpl_bind(run, "isdigit", args, NULL, 0, 0, NULL));
    bool yes = self.text.len > 0;
    for (size_t i = 0; i < self.text.len; i++) {
        if ((unsigned char)self.text.s[i] >= 0x80) return lam_tpl_fail(run, "isdigit of text beyond ASCII is not supported");
        yes = yes && self.text.s[i] >= '0' && self.text.s[i] <= '9';
    }
    *out = lam_tpl_bool(yes);
    return lam_tpl_tick(run, self.text.len / 16);
}

/* ---- dicts, lists, loops ---- */

static lam_code dict_get(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                         struct lam_tpl_value *out)
{
    static const char *const names[] = {"key", "default"};
    const struct lam_tpl_value *bound[2], *found;
    LAM_TRY(lam_tpl_bind(run, "get", args, names, 2, 1, bound));
    *out = bound[1] ? *bound[1] : lam_tpl_none();
    LAM_TRY(lam_tpl_dict_find(run, self.dict, *bound[0], &found));
    if (found) *out = *found;
    return LAM_OK;
}

static lam_code view(struct lam_tpl_run *run, struct lam_tpl_value self, const char *what,
                     const struct lam_tpl_args *args, bool keys, bool values, struct lam_tpl_value *out)
{
    LAM_TRY(lam_tpl_bind(run, what, args, NULL, 0, 0, NULL));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_VIEW, self.dict->n, out));
    for (size_t i = 0; i < self.dict->n; i++) {
        struct lam_tpl_pair pair = self.dict->pairs[i];
        struct lam_tpl_value both;
        if (keys && values) {
            LAM_TRY(lam_tpl_list_new(run, LAM_TPL_TUPLE, 2, &both));
            LAM_TRY(lam_tpl_list_push(run, both.list, pair.key));
            LAM_TRY(lam_tpl_list_push(run, both.list, pair.value));
        } else {
            both = keys ? pair.key : pair.value;
        }
        LAM_TRY(lam_tpl_list_push(run, out->list, both));
    }
    return LAM_OK;
}

static lam_code dict_items(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return view(r, v, "items", a, true, true, out); }
static lam_code dict_keys(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return view(r, v, "keys", a, true, false, out); }
static lam_code dict_values(struct lam_tpl_run *r, struct lam_tpl_value v, const struct lam_tpl_args *a, struct lam_tpl_value *out) { return view(r, v, "values", a, false, true, out); }

/* Nothing changes a list or dict, so it is its own copy. */
static lam_code copy(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                     struct lam_tpl_value *out)
{
    *out = self;
    return lam_tpl_bind(run, "copy", args, NULL, 0, 0, NULL);
}

/* Position of the first equal member from `from` on, or list->n. */
static lam_code find_member(struct lam_tpl_run *run, const struct lam_tpl_list *list, size_t from,
                            struct lam_tpl_value item, size_t *out)
{
    for (*out = from; *out < list->n; ++*out) {
        bool equal;
        LAM_TRY(lam_tpl_equal(run, list->items[*out], item, &equal));
        if (equal) break;
    }
    return LAM_OK;
}

static lam_code list_count(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    static const char *const names[] = {"value"};
    const struct lam_tpl_value *item;
    size_t at;
    LAM_TRY(lam_tpl_bind(run, "count", args, names, 1, 1, &item));
    *out = lam_tpl_int(0);
    for (size_t from = 0;; from = at + 1, out->i++) {
        LAM_TRY(find_member(run, self.list, from, *item, &at));
        if (at >= self.list->n) return LAM_OK;
    }
}

static lam_code list_index(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    static const char *const names[] = {"value"};
    const struct lam_tpl_value *item;
    size_t at = 0;
    LAM_TRY(lam_tpl_bind(run, "index", args, names, 1, 1, &item));
    LAM_TRY(find_member(run, self.list, 0, *item, &at));
    if (at == self.list->n) return lam_tpl_fail(run, "index: the value is not in the list");
    *out = lam_tpl_int((int64_t)at);
    return LAM_OK;
}

static lam_code loop_cycle(struct lam_tpl_run *run, struct lam_tpl_value self, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    if (args->n == 0 || args->n_named) return lam_tpl_fail(run, "loop.cycle needs values");
    *out = args->values[self.loop->index % args->n];
    return LAM_OK;
}

/* ---- lookup ---- */

/* fn is NULL for a method that Python has and that is not supported here. */
struct method {
    const char *name;
    method_fn *fn;
};

static const struct method string_methods[] = {
    {"upper", str_upper}, {"lower", str_lower}, {"title", str_title}, {"capitalize", str_capitalize},
    {"strip", str_strip}, {"lstrip", str_lstrip}, {"rstrip", str_rstrip}, {"startswith", str_startswith},
    {"endswith", str_endswith}, {"removeprefix", str_removeprefix}, {"removesuffix", str_removesuffix},
    {"split", str_split}, {"rsplit", str_rsplit}, {"splitlines", str_splitlines}, {"replace", str_replace},
    {"join", str_join}, {"find", str_find}, {"rfind", str_rfind}, {"index", str_index}, {"count", str_count},
    {"isdigit", str_isdigit},
    {"casefold", NULL}, {"center", NULL}, {"encode", NULL}, {"expandtabs", NULL}, {"format", NULL},
    {"format_map", NULL}, {"isalnum", NULL}, {"isalpha", NULL}, {"isascii", NULL}, {"isdecimal", NULL},
    {"isidentifier", NULL}, {"islower", NULL}, {"isnumeric", NULL}, {"isprintable", NULL}, {"isspace", NULL},
    {"istitle", NULL}, {"isupper", NULL}, {"ljust", NULL}, {"maketrans", NULL}, {"partition", NULL},
    {"rindex", NULL}, {"rjust", NULL}, {"rpartition", NULL}, {"swapcase", NULL}, {"translate", NULL}, {"zfill", NULL},
    {NULL, NULL}};

static const struct method list_methods[] = {
    {"copy", copy}, {"count", list_count}, {"index", list_index}, {"append", NULL}, {"clear", NULL}, {"extend", NULL},
    {"insert", NULL}, {"pop", NULL}, {"remove", NULL}, {"reverse", NULL}, {"sort", NULL}, {NULL, NULL}};

static const struct method tuple_methods[] = {{"count", list_count}, {"index", list_index}, {NULL, NULL}};

static const struct method dict_methods[] = {
    {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"copy", copy},
    {"clear", NULL}, {"fromkeys", NULL}, {"pop", NULL}, {"popitem", NULL}, {"setdefault", NULL}, {"update", NULL}, {NULL, NULL}};

static const struct method loop_methods[] = {{"cycle", loop_cycle}, {"changed", NULL}, {NULL, NULL}};

static const struct method *find_entry(struct lam_tpl_value v, struct lam_tpl_text name)
{
    const struct method *at;
    switch (v.kind) {
    case LAM_TPL_STRING: at = string_methods; break;
    case LAM_TPL_DICT: at = dict_methods; break;
    case LAM_TPL_LOOP: at = loop_methods; break;
    case LAM_TPL_LIST:
        if (v.list->shape > LAM_TPL_TUPLE) return NULL;
        at = v.list->shape == LAM_TPL_TUPLE ? tuple_methods : list_methods;
        break;
    default: return NULL;
    }
    for (; at->name; at++)
        if (lam_tpl_text_is(name, at->name)) return at;
    return NULL;
}

lam_code lam_tpl_find_method(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_tpl_text name, bool *found)
{
    const struct method *entry = find_entry(v, name);
    *found = entry != NULL;
    if (!entry || entry->fn) return LAM_OK;
    return lam_tpl_fail(run, "the method %s of a %s is not supported", entry->name, lam_tpl_type_name(v));
}

lam_code lam_tpl_call_method(struct lam_tpl_run *run, const struct lam_tpl_method *method,
                             const struct lam_tpl_args *args, struct lam_tpl_value *out)
{
    const struct method *entry = find_entry(method->self, method->name);
    return entry->fn(run, method->self, args, out);
}
