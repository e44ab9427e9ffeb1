/* Tokens, and everything about white space around tags: trim_blocks, lstrip_blocks, '-' and '+'. */
#include "text/template_ast.h"
#include "text/template_text.h"

#include "base/alloc.h"

#include <string.h>

struct lexer {
    const char *s;
    size_t len, at;
    uint32_t line;        /* of counted_to */
    size_t counted_to;
    struct lam_tpl_arena *arena;
    struct lam_tpl_token *tokens;
    size_t n, cap;
    lam_error *err;
};

/* Line of a byte at or after the last one asked for. */
static uint32_t line_at(struct lexer *x, size_t at)
{
    for (; x->counted_to < at; x->counted_to++) x->line += x->s[x->counted_to] == '\n';
    return x->line;
}

/* FAIL(x, "format", line, ...) */
#define FAIL(x, ...) LAM_RAISE((x)->err, LAM_E_TEMPLATE, "template line %u: " __VA_ARGS__)

static lam_code push(struct lexer *x, struct lam_tpl_token token)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 256;
        struct lam_tpl_token *grown = lam_realloc(x->tokens, cap, sizeof *grown);
        if (!grown) return LAM_RAISE(x->err, LAM_E_NO_MEMORY, "no memory for a template's tokens");
        x->tokens = grown;
        x->cap = cap;
    }
    x->tokens[x->n++] = token;
    return LAM_OK;
}

static bool starts(const struct lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);
    return x->len - at >= n && memcmp(x->s + at, text, n) == 0;
}

static size_t space_at(const struct lexer *x, size_t at)
{
    return lam_tpl_leading_space((struct lam_tpl_text){x->s + at, x->len - at});
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Push the text from begin to end as the tag that follows leaves it. sign: '-', '+' or 0; tag: '%', '#' or '{'. */
static lam_code push_data(struct lexer *x, size_t begin, size_t end, char sign, char tag)
{
    struct lam_tpl_text text = {x->s + begin, end - begin};
    uint32_t line = line_at(x, begin);
    if (sign == '-') {
        text.len -= lam_tpl_trailing_space(text);
    } else if (sign != '+' && tag != '{') {
        size_t from = end;
        while (from > begin && x->s[from - 1] != '\n') from--;
        bool line_start = from > begin || begin == 0 || x->s[begin - 1] == '\n';
        if (line_start && space_at(&(struct lexer){.s = x->s, .len = end}, from) == end - from) text.len = from - begin;
    }
    if (text.len == 0) return LAM_OK;
    return push(x, (struct lam_tpl_token){.type = LAM_TPL_T_DATA, .line = line, .text = text});
}

/* If at is the end of a tag that closes with `close` ("%}", "}}" or "#}"), perhaps signed: its length with the
 * white space that it swallows, else 0. */
static size_t tag_end(const struct lexer *x, size_t at, const char *close)
{
    bool signed_end = at < x->len && (x->s[at] == '-' || (x->s[at] == '+' && close[0] != '}'));
    if (!starts(x, at + signed_end, close)) return 0;
    size_t after = at + signed_end + 2;
    if (signed_end) return x->s[at] == '-' ? after + space_at(x, after) - at : 3;
    if (close[0] != '}' && after < x->len && x->s[after] == '\n') after++;
    return after - at;
}

/* ---- inside tags ---- */

static lam_code lex_escape(struct lexer *x, size_t *at, uint32_t line, struct lam_str *out, bool *ok)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = x->s[*at + 1];
    const char *known = c ? strchr(from, c) : NULL;
    unsigned digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, base = 16;
    *ok = true;
    if (known) {
        *at += 2;
        *ok = lam_str_putc(out, to[known - from]);
        return LAM_OK;
    }
    if (c == '\n') {
        *at += 2;
        return LAM_OK;
    }
    if (c == 'N') return FAIL(x, "the escape \\N is not supported", line);
    size_t i = *at + 2;
    if (c >= '0' && c <= '7') digits = 3, base = 8, i--;
    if (!digits) { /* an unknown escape stands for itself */
        *at += 1;
        *ok = lam_str_putc(out, '\\');
        return LAM_OK;
    }
    uint32_t code = 0;
    unsigned n = 0;
    for (; n < digits && i < x->len; n++, i++) {
        char d = x->s[i];
        unsigned v = is_digit(d) ? (unsigned)(d - '0') : d >= 'a' && d <= 'f' ? (unsigned)(d - 'a' + 10)
                   : d >= 'A' && d <= 'F' ? (unsigned)(d - 'A' + 10) : 99;
        if (v >= base) break;
        code = code * base + v;
    }
    if ((base == 16 && n < digits) || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return FAIL(x, "a bad \\%c escape in a string", line, c);
    char bytes[4];
    *at = i;
    *ok = lam_str_append(out, bytes, lam_tpl_encode(code, bytes));
    return LAM_OK;
}

static lam_code unescape(struct lexer *x, size_t begin, size_t end, uint32_t line, struct lam_str *out)
{
    bool ok = true;
    for (size_t i = begin; i < end && ok;) {
        if (x->s[i] == '\\') LAM_TRY(lex_escape(x, &i, line, out, &ok));
        else ok = lam_str_putc(out, x->s[i++]);
    }
    return ok ? LAM_OK : LAM_RAISE(x->err, LAM_E_NO_MEMORY, "no memory for a template's string");
}

static lam_code lex_string(struct lexer *x)
{
    size_t begin = x->at + 1, end = begin;
    char quote = x->s[x->at];
    uint32_t line = line_at(x, x->at);
    bool escapes = false;
    while (end < x->len && x->s[end] != quote) {
        bool escape = x->s[end] == '\\';
        escapes |= escape;
        end += escape ? 2 : 1;
    }
    if (end >= x->len) return FAIL(x, "a string without its closing %c", line, quote);
    x->at = end + 1;
    struct lam_tpl_text text = {x->s + begin, end - begin};
    if (escapes) {
        struct lam_str out = {0};
        lam_code code = unescape(x, begin, end, line, &out);
        char *copy = code == LAM_OK ? lam_tpl_arena_alloc(x->arena, out.len) : NULL;
        if (copy && out.len) memcpy(copy, out.data, out.len);
        text = (struct lam_tpl_text){copy, out.len};
        lam_str_release(&out);
        if (code != LAM_OK) return code;
        if (!copy) return LAM_RAISE(x->err, LAM_E_NO_MEMORY, "no memory for a template's string");
    }
    return push(x, (struct lam_tpl_token){.type = LAM_TPL_T_VALUE, .line = line, .value = lam_tpl_string(text)});
}

static lam_code lex_number(struct lexer *x)
{
    size_t end = x->at;
    uint32_t line = line_at(x, x->at);
    bool fraction = false;
    while (end < x->len && is_digit(x->s[end])) end++;
    /* After a dot the number is an index, as in a.0.1. */
    if (x->at == 0 || x->s[x->at - 1] != '.') {
        if (end + 1 < x->len && x->s[end] == '.' && is_digit(x->s[end + 1])) {
            fraction = true;
            for (end++; end < x->len && is_digit(x->s[end]);) end++;
        }
        size_t e = end + 1;
        if (end < x->len && (x->s[end] == 'e' || x->s[end] == 'E')) {
            if (e < x->len && (x->s[e] == '+' || x->s[e] == '-')) e++;
            if (e < x->len && is_digit(x->s[e])) {
                fraction = true;
                for (end = e; end < x->len && is_digit(x->s[end]);) end++;
            }
        }
    }
    struct lam_tpl_text text = {x->s + x->at, end - x->at};
    struct lam_tpl_value value = {.kind = fraction ? LAM_TPL_FLOAT : LAM_TPL_INT};
    bool ok = fraction ? lam_tpl_parse_float(text, &value.f) : lam_tpl_parse_int(text, &value.i);
    if (!ok || (end < x->len && is_word(x->s[end])) || (!fraction && text.len > 1 && text.s[0] == '0'))
        return FAIL(x, "the number %.*s is not supported", line, (int)(text.len < 40 ? text.len : 40), text.s);
    x->at = end;
    return push(x, (struct lam_tpl_token){.type = LAM_TPL_T_VALUE, .line = line, .value = value});
}

static lam_code lex_operator(struct lexer *x)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    uint32_t line = line_at(x, x->at);
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (starts(x, x->at, two[i])) n = 2;
    if (n == 1 && (x->s[x->at] == 0 || !strchr("+-*/%~[](){}<>=.:|,", x->s[x->at])))
        return FAIL(x, "unexpected character (byte 0x%02x)", line, (unsigned char)x->s[x->at]);
    struct lam_tpl_text text = {x->s + x->at, n};
    x->at += n;
    return push(x, (struct lam_tpl_token){.type = LAM_TPL_T_OPERATOR, .line = line, .text = text});
}

/* Tokens up to the end of a tag that closes with "%}" or "}}". */
static lam_code lex_tag(struct lexer *x, const char *close, enum lam_tpl_token_type end_type)
{
    char open[LAM_TPL_MAX_NESTING]; /* the brackets that are open */
    size_t n_open = 0, size;
    for (;;) {
        x->at += space_at(x, x->at);
        uint32_t line = line_at(x, x->at);
        if (x->at >= x->len) return FAIL(x, "a tag without its closing %s", line, close);
        if (n_open == 0 && (size = tag_end(x, x->at, close)) != 0) {
            x->at += size;
            return push(x, (struct lam_tpl_token){.type = end_type, .line = line});
        }
        char c = x->s[x->at];
        if (c == '(' || c == '[' || c == '{') {
            if (n_open == sizeof open) return FAIL(x, "brackets nested deeper than %zu", line, sizeof open);
            open[n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (n_open == 0 || open[--n_open] != c) return FAIL(x, "unexpected '%c'", line, c);
        }
        if (c == '\'' || c == '"') {
            LAM_TRY(lex_string(x));
        } else if (is_digit(c)) {
            LAM_TRY(lex_number(x));
        } else if (is_word(c)) {
            size_t begin = x->at;
            while (x->at < x->len && is_word(x->s[x->at])) x->at++;
            struct lam_tpl_text text = {x->s + begin, x->at - begin};
            LAM_TRY(push(x, (struct lam_tpl_token){.type = LAM_TPL_T_NAME, .line = line, .text = text}));
        } else {
            LAM_TRY(lex_operator(x));
        }
    }
}

/* ---- outside tags ---- */

static lam_code lex_comment(struct lexer *x)
{
    uint32_t line = line_at(x, x->at);
    size_t begin = x->at, end = begin;
    while (end + 1 < x->len && !starts(x, end, "#}")) end++;
    if (end + 1 >= x->len) return FAIL(x, "a comment without its closing #}", line);
    if (end > begin && (x->s[end - 1] == '-' || x->s[end - 1] == '+')) end--;
    x->at = end + tag_end(x, end, "#}");
    return LAM_OK;
}

/* If a raw tag stands at x->at (behind "{%" and its sign), the offset of its text, else 0. */
static size_t raw_begin(const struct lexer *x, const char *name)
{
    size_t at = x->at + space_at(x, x->at), n = strlen(name);
    if (!starts(x, at, name)) return 0;
    at += n;
    at += space_at(x, at);
    return starts(x, at, "%}") || starts(x, at, "-%}") || starts(x, at, "+%}") ? at : 0;
}

static lam_code lex_raw(struct lexer *x, size_t begin)
{
    uint32_t line = line_at(x, begin);
    if (x->s[begin] == '+') return FAIL(x, "raw +%%} is not supported", line);
    begin += x->s[begin] == '-' ? tag_end(x, begin, "%}") : 2;
    for (size_t at = begin; at + 1 < x->len; at++) {
        if (!starts(x, at, "{%")) continue;
        char sign = at + 2 < x->len && (x->s[at + 2] == '-' || x->s[at + 2] == '+') ? x->s[at + 2] : 0;
        x->at = at + 2 + (sign != 0);
        size_t end = raw_begin(x, "endraw");
        if (!end) continue;
        x->at = end + tag_end(x, end, "%}");
        return push_data(x, begin, at, sign, '%');
    }
    return FAIL(x, "raw without endraw", line);
}

static lam_code lex_all(struct lexer *x)
{
    while (x->at < x->len) {
        size_t begin = x->at, tag = begin;
        while (tag < x->len && !starts(x, tag, "{%") && !starts(x, tag, "{{") && !starts(x, tag, "{#")) tag++;
        if (tag == x->len) {
            x->at = tag;
            LAM_TRY(push_data(x, begin, tag, '+', 0));
            break;
        }
        char kind = x->s[tag + 1], sign = tag + 2 < x->len ? x->s[tag + 2] : 0;
        if (sign != '-' && sign != '+') sign = 0;
        LAM_TRY(push_data(x, begin, tag, sign, kind));
        x->at = tag + 2 + (sign != 0);
        uint32_t line = line_at(x, tag);
        size_t raw = kind == '%' ? raw_begin(x, "raw") : 0;
        if (kind == '#') {
            LAM_TRY(lex_comment(x));
        } else if (raw) {
            LAM_TRY(lex_raw(x, raw));
        } else if (kind == '%') {
            LAM_TRY(push(x, (struct lam_tpl_token){.type = LAM_TPL_T_BLOCK_BEGIN, .line = line}));
            LAM_TRY(lex_tag(x, "%}", LAM_TPL_T_BLOCK_END));
        } else {
            LAM_TRY(push(x, (struct lam_tpl_token){.type = LAM_TPL_T_PRINT_BEGIN, .line = line}));
            LAM_TRY(lex_tag(x, "}}", LAM_TPL_T_PRINT_END));
        }
    }
    return push(x, (struct lam_tpl_token){.type = LAM_TPL_T_END, .line = line_at(x, x->len)});
}

lam_code lam_tpl_lex(const char *source, size_t len, struct lam_tpl_arena *arena, struct lam_tpl_token **out,
                     size_t *n, lam_error *err)
{
    struct lexer x = {.s = source, .len = len, .line = 1, .arena = arena, .err = err};
    lam_code code = lex_all(&x);
    if (code != LAM_OK) {
        lam_free(x.tokens);
        return code;
    }
    *out = x.tokens;
    *n = x.n;
    return LAM_OK;
}
