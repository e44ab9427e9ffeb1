#include "format/json_members.h"

#include <stdbool.h>

struct scan {
    const char *at, *end;
};

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void skip_space(struct scan *s)
{
    while (s->at < s->end && is_space(*s->at)) s->at++;
}

/* The character at hand after white space, 0 at the end. */
static char peek(struct scan *s)
{
    skip_space(s);
    return s->at < s->end ? *s->at : 0;
}

/* Moves behind the string that starts at the cursor. */
static bool skip_string(struct scan *s)
{
    for (s->at++; s->at < s->end; s->at++) {
        if (*s->at == '\\') s->at++;
        else if (*s->at == '"') {
            s->at++;
            return true;
        }
    }
    s->at = s->end; /* a backslash may have stepped past it */
    return false;
}

/* Moves behind the value that starts at the cursor: to the comma or bracket that ends it. */
static bool skip_value(struct scan *s)
{
    size_t depth = 0;
    while (s->at < s->end) {
        char c = *s->at;
        if (depth == 0 && (c == ',' || c == '}' || c == ']')) return true;
        if (c == '"') {
            if (!skip_string(s)) return false;
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        s->at++;
    }
    return false;
}

static lam_code one_member(struct scan *s, const char *what, lam_json_member_fn fn, void *context, lam_error *err)
{
    const char *raw_name = s->at;
    if (!skip_string(s)) return LAM_RAISE(err, LAM_E_FORMAT, "%s: JSON ends within a string", what);
    size_t raw_len = (size_t)(s->at - raw_name);
    if (peek(s) != ':') return LAM_RAISE(err, LAM_E_FORMAT, "%s: JSON: no ':' after a name", what);
    s->at++;
    skip_space(s);
    const char *value = s->at;
    if (!skip_value(s)) return LAM_RAISE(err, LAM_E_FORMAT, "%s: JSON ends within a value", what);
    size_t value_len = (size_t)(s->at - value);
    while (value_len && is_space(value[value_len - 1])) value_len--;
    json_t *name;
    LAM_TRY(lam_json_parse(raw_name, raw_len, what, &name, err));
    lam_code code = fn(context, json_string_value(name), json_string_length(name), value, value_len, err);
    json_decref(name);
    return code;
}

lam_code lam_json_each_member(const char *text, size_t len, const char *what, lam_json_member_fn fn, void *context,
                              lam_error *err)
{
    if (len == 0) return LAM_RAISE(err, LAM_E_FORMAT, "%s: empty", what); /* text may be NULL then */
    struct scan s = {text, text + len};
    if (peek(&s) != '{') return LAM_RAISE(err, LAM_E_FORMAT, "%s: not a JSON object", what);
    s.at++;
    if (peek(&s) == '}') s.at++;
    else
        for (bool more = true; more; s.at++) {
            if (peek(&s) != '"') return LAM_RAISE(err, LAM_E_FORMAT, "%s: JSON: a name is expected", what);
            LAM_TRY(one_member(&s, what, fn, context, err));
            char c = peek(&s);
            if (c != ',' && c != '}') return LAM_RAISE(err, LAM_E_FORMAT, "%s: JSON: ',' or '}' is expected", what);
            more = c == ',';
        }
    skip_space(&s);
    return s.at == s.end ? LAM_OK : LAM_RAISE(err, LAM_E_FORMAT, "%s: text follows the JSON object", what);
}
