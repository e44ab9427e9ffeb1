/* Methods of strings, lists, dicts and loops. */
#include "text/template_text.h"
#include "text/template_value.h"

#include <string.h>

struct call {
    struct lam_tpl_run *run;
    const struct method *method;
    struct lam_tpl_value self;
    const struct lam_tpl_args *args;
};

/* fn is NULL for a method that Python has and that is not supported here. */
struct method {
    const char *name;
    lam_code (*fn)(const struct call *call, struct lam_tpl_value *out);
    unsigned variant; /* for functions that serve several methods */
};

enum { LEFT = 1, RIGHT = 2, KEYS = 1, VALUES = 2 };

/* ---- strings ---- */

static lam_code in_case(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    struct lam_str s = {0};
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, NULL, 0, 0, NULL));
    lam_code code = lam_tpl_put_case(run, call->self.text, (enum lam_tpl_case)call->method->variant, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

/* Whether the character at s[0..len) is one of set's, or white space without a set; *size is its length. */
static bool strippable(const char *s, size_t len, const struct lam_tpl_text *set, size_t *size)
{
    uint32_t c = lam_tpl_decode(s, len, size);
    if (!set) return lam_tpl_is_space(c);
    for (size_t i = 0, n; i < set->len; i += n)
        if (lam_tpl_decode(set->s + i, set->len - i, &n) == c) return true;
    return false;
}

static lam_code strip(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"chars"};
    const struct lam_tpl_value *arg;
    struct lam_tpl_text set = {"", 0}, t = call->self.text;
    size_t size, begin = 0, end = t.len;
    unsigned sides = call->method->variant;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 0, &arg));
    LAM_TRY(lam_tpl_arg_text(run, call->method->name, arg, &set));
    const struct lam_tpl_text *chars = arg && arg->kind == LAM_TPL_STRING ? &set : NULL;
    LAM_TRY(lam_tpl_tick(run, t.len / 16 * (1 + set.len / 4)));
    while ((sides & LEFT) && begin < end && strippable(t.s + begin, end - begin, chars, &size)) begin += size;
    while ((sides & RIGHT) && end > begin) {
        size_t at = end - 1;
        while (at > begin && ((unsigned char)t.s[at] & 0xc0) == 0x80) at--;
        if (!strippable(t.s + at, end - at, chars, &size)) break;
        end = at;
    }
    *out = lam_tpl_string((struct lam_tpl_text){t.s + begin, end - begin});
    return LAM_OK;
}

static bool has_affix(struct lam_tpl_text t, struct lam_tpl_text affix, bool at_end)
{
    return affix.len <= t.len && (affix.len == 0 || memcmp(t.s + (at_end ? t.len - affix.len : 0), affix.s, affix.len) == 0);
}

/* startswith and endswith: a string or a tuple of strings. */
static lam_code affix_test(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"affix"};
    const struct lam_tpl_value *affix;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 1, &affix));
    bool yes = false, tuple = affix->kind == LAM_TPL_LIST && affix->list->shape == LAM_TPL_TUPLE;
    if (affix->kind == LAM_TPL_STRING) yes = has_affix(call->self.text, affix->text, call->method->variant == RIGHT);
    else if (!tuple) return lam_tpl_fail(run, "%s needs a string or a tuple of strings, not %s", call->method->name, lam_tpl_type_name(*affix));
    for (size_t i = 0; tuple && i < affix->list->n; i++) {
        if (affix->list->items[i].kind != LAM_TPL_STRING) return lam_tpl_fail(run, "%s needs strings in its tuple", call->method->name);
        yes = yes || has_affix(call->self.text, affix->list->items[i].text, call->method->variant == RIGHT);
    }
    *out = lam_tpl_bool(yes);
    return lam_tpl_tick(run, call->self.text.len / 64 + (tuple ? affix->list->n : 0));
}

static lam_code remove_affix(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"affix"};
    const struct lam_tpl_value *arg;
    struct lam_tpl_text affix = {"", 0};
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 1, &arg));
    LAM_TRY(lam_tpl_arg_text(run, call->method->name, arg, &affix));
    bool at_end = call->method->variant == RIGHT;
    *out = lam_tpl_string(call->self.text);
    if (!has_affix(call->self.text, affix, at_end)) return LAM_OK;
    out->text.len -= affix.len;
    if (!at_end) out->text.s += affix.len;
    return LAM_OK;
}

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

static lam_code split(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"sep", "maxsplit"};
    const struct lam_tpl_value *bound[2];
    struct lam_tpl_text sep = {"", 0};
    int64_t max = -1;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 2, 0, bound));
    LAM_TRY(lam_tpl_arg_text(run, call->method->name, bound[0], &sep));
    LAM_TRY(lam_tpl_arg_int(run, call->method->name, bound[1], &max));
    bool right = call->method->variant == RIGHT;
    bool spaces = !bound[0] || bound[0]->kind == LAM_TPL_NONE;
    if (!spaces && sep.len == 0) return lam_tpl_fail(run, "%s with an empty separator", call->method->name);
    if (spaces && right && max >= 0) return lam_tpl_fail(run, "rsplit on white space with a limit is not supported");
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, 0, out));
    LAM_TRY(lam_tpl_tick_search(run, call->self.text, sep));
    if (spaces) return split_space(run, call->self.text, max, out->list);
    return right ? split_right(run, call->self.text, sep, max, out->list) : split_left(run, call->self.text, sep, max, out->list);
}

static bool ends_line(uint32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static lam_code str_splitlines(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"keepends"};
    const struct lam_tpl_value *keep;
    struct lam_tpl_text t = call->self.text;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 0, &keep));
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

static lam_code str_replace(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"old", "new", "count"};
    const struct lam_tpl_value *bound[3];
    int64_t count = -1;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 3, 2, bound));
    if (bound[0]->kind != LAM_TPL_STRING || bound[1]->kind != LAM_TPL_STRING)
        return lam_tpl_fail(run, "replace needs two strings, not %s and %s", lam_tpl_type_name(*bound[0]), lam_tpl_type_name(*bound[1]));
    LAM_TRY(lam_tpl_arg_int(run, call->method->name, bound[2], &count));
    struct lam_str s = {0};
    lam_code code = replace(run, call->self.text, bound[0]->text, bound[1]->text, count < 0 ? -1 : count, &s);
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

static lam_code str_join(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"iterable"};
    const struct lam_tpl_value *arg;
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 1, &arg));
    LAM_TRY(lam_tpl_iterate(run, *arg, &list));
    struct lam_str s = {0};
    lam_code code = join(run, call->self.text, list, &s);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

/* find and rfind give characters, -1 for none. */
static lam_code find(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"sub"};
    const struct lam_tpl_value *sub;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 1, &sub));
    if (sub->kind != LAM_TPL_STRING) return lam_tpl_fail(run, "%s needs a string, not %s", call->method->name, lam_tpl_type_name(*sub));
    LAM_TRY(lam_tpl_tick_search(run, call->self.text, sub->text));
    struct lam_tpl_text t = call->self.text;
    size_t at = lam_tpl_find(t, sub->text, 0);
    for (size_t next = at; call->method->variant == RIGHT && next <= t.len; next = lam_tpl_find(t, sub->text, next + 1)) at = next;
    *out = lam_tpl_int(at > t.len ? -1 : (int64_t)lam_tpl_count((struct lam_tpl_text){t.s, at}));
    return LAM_OK;
}

static lam_code str_index(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    LAM_TRY(find(call, out));
    return out->i < 0 ? lam_tpl_fail(run, "index: the text is not found") : LAM_OK;
}

static lam_code str_count(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"sub"};
    const struct lam_tpl_value *sub;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 1, &sub));
    if (sub->kind != LAM_TPL_STRING) return lam_tpl_fail(run, "count needs a string, not %s", lam_tpl_type_name(*sub));
    LAM_TRY(lam_tpl_tick_search(run, call->self.text, sub->text));
    int64_t n = 0;
    if (sub->text.len == 0) n = (int64_t)lam_tpl_count(call->self.text) + 1;
    else for (size_t at = 0; (at = lam_tpl_find(call->self.text, sub->text, at)) <= call->self.text.len; at += sub->text.len) n++;
    *out = lam_tpl_int(n);
    return LAM_OK;
}

/* isdigit is told by ASCII alone; other text is refused rather than guessed. */
static lam_code str_isdigit(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, NULL, 0, 0, NULL));
    bool yes = call->self.text.len > 0;
    for (size_t i = 0; i < call->self.text.len; i++) {
        if ((unsigned char)call->self.text.s[i] >= 0x80) return lam_tpl_fail(run, "isdigit of text beyond ASCII is not supported");
        yes = yes && call->self.text.s[i] >= '0' && call->self.text.s[i] <= '9';
    }
    *out = lam_tpl_bool(yes);
    return lam_tpl_tick(run, call->self.text.len / 16);
}

/* ---- dicts, lists, loops ---- */

static lam_code dict_get(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"key", "default"};
    const struct lam_tpl_value *bound[2], *found;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 2, 1, bound));
    *out = bound[1] ? *bound[1] : lam_tpl_none();
    LAM_TRY(lam_tpl_dict_find(run, call->self.dict, *bound[0], &found));
    if (found) *out = *found;
    return LAM_OK;
}

static lam_code view(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, NULL, 0, 0, NULL));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_VIEW, call->self.dict->n, out));
    for (size_t i = 0; i < call->self.dict->n; i++) {
        struct lam_tpl_pair pair = call->self.dict->pairs[i];
        struct lam_tpl_value both;
        if (call->method->variant == (KEYS | VALUES)) {
            LAM_TRY(lam_tpl_list_new(run, LAM_TPL_TUPLE, 2, &both));
            LAM_TRY(lam_tpl_list_push(run, both.list, pair.key));
            LAM_TRY(lam_tpl_list_push(run, both.list, pair.value));
        } else {
            both = call->method->variant == KEYS ? pair.key : pair.value;
        }
        LAM_TRY(lam_tpl_list_push(run, out->list, both));
    }
    return LAM_OK;
}

/* Nothing changes a list or dict, so it is its own copy. */
static lam_code copy(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    *out = call->self;
    return lam_tpl_bind(run, call->method->name, call->args, NULL, 0, 0, NULL);
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

static lam_code list_count(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"value"};
    const struct lam_tpl_value *item;
    size_t at;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 1, &item));
    *out = lam_tpl_int(0);
    for (size_t from = 0;; from = at + 1, out->i++) {
        LAM_TRY(find_member(run, call->self.list, from, *item, &at));
        if (at >= call->self.list->n) return LAM_OK;
    }
}

static lam_code list_index(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    static const char *const names[] = {"value"};
    const struct lam_tpl_value *item;
    size_t at = 0;
    LAM_TRY(lam_tpl_bind(run, call->method->name, call->args, names, 1, 1, &item));
    LAM_TRY(find_member(run, call->self.list, 0, *item, &at));
    if (at == call->self.list->n) return lam_tpl_fail(run, "index: the value is not in the list");
    *out = lam_tpl_int((int64_t)at);
    return LAM_OK;
}

static lam_code loop_cycle(const struct call *call, struct lam_tpl_value *out)
{
    struct lam_tpl_run *run = call->run;
    if (call->args->n == 0 || call->args->n_named) return lam_tpl_fail(run, "loop.cycle needs values");
    *out = call->args->values[call->self.loop->index % call->args->n];
    return LAM_OK;
}

/* ---- lookup ---- */

static const struct method string_methods[] = {
    {"upper", in_case, LAM_TPL_UPPER}, {"lower", in_case, LAM_TPL_LOWER}, {"title", in_case, LAM_TPL_TITLE},
    {"capitalize", in_case, LAM_TPL_CAPITALIZE}, {"strip", strip, LEFT | RIGHT}, {"lstrip", strip, LEFT},
    {"rstrip", strip, RIGHT}, {"startswith", affix_test, LEFT}, {"endswith", affix_test, RIGHT},
    {"removeprefix", remove_affix, LEFT}, {"removesuffix", remove_affix, RIGHT}, {"split", split, LEFT},
    {"rsplit", split, RIGHT}, {"splitlines", str_splitlines, 0}, {"replace", str_replace, 0},
    {"join", str_join, 0}, {"find", find, LEFT}, {"rfind", find, RIGHT}, {"index", str_index, LEFT},
    {"count", str_count, 0}, {"isdigit", str_isdigit, 0}, {"casefold", NULL, 0}, {"center", NULL, 0},
    {"encode", NULL, 0}, {"expandtabs", NULL, 0}, {"format", NULL, 0}, {"format_map", NULL, 0},
    {"isalnum", NULL, 0}, {"isalpha", NULL, 0}, {"isascii", NULL, 0}, {"isdecimal", NULL, 0},
    {"isidentifier", NULL, 0}, {"islower", NULL, 0}, {"isnumeric", NULL, 0}, {"isprintable", NULL, 0},
    {"isspace", NULL, 0}, {"istitle", NULL, 0}, {"isupper", NULL, 0}, {"ljust", NULL, 0},
    {"maketrans", NULL, 0}, {"partition", NULL, 0}, {"rindex", NULL, 0}, {"rjust", NULL, 0},
    {"rpartition", NULL, 0}, {"swapcase", NULL, 0}, {"translate", NULL, 0}, {"zfill", NULL, 0}, {NULL, NULL, 0}};

static const struct method list_methods[] = {
    {"copy", copy, 0}, {"count", list_count, 0}, {"index", list_index, 0}, {"append", NULL, 0},
    {"clear", NULL, 0}, {"extend", NULL, 0}, {"insert", NULL, 0}, {"pop", NULL, 0}, {"remove", NULL, 0},
    {"reverse", NULL, 0}, {"sort", NULL, 0}, {NULL, NULL, 0}};

static const struct method tuple_methods[] = {
    {"count", list_count, 0}, {"index", list_index, 0}, {NULL, NULL, 0}};

static const struct method dict_methods[] = {
    {"get", dict_get, 0}, {"items", view, KEYS | VALUES}, {"keys", view, KEYS}, {"values", view, VALUES},
    {"copy", copy, 0}, {"clear", NULL, 0}, {"fromkeys", NULL, 0}, {"pop", NULL, 0}, {"popitem", NULL, 0},
    {"setdefault", NULL, 0}, {"update", NULL, 0}, {NULL, NULL, 0}};

static const struct method loop_methods[] = {
    {"cycle", loop_cycle, 0}, {"changed", NULL, 0}, {NULL, NULL, 0}};

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
    return entry->fn(&(struct call){run, entry, method->self, args}, out);
}
