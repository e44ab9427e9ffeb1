#include "base/utf8.h"
#include "text/regex.h"

#include <string.h>

/* Spelled out because PCRE2's own \s and \w change between its versions and differ from Unicode's White_Space. */
#define SPACE_ITEMS "\\x{9}-\\x{d}\\x{85}\\p{Z}"
/* Oniguruma's \w: alphabetic (letters, letter numbers, circled letters), marks, decimal digits, connectors. */
#define WORD_ITEMS "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

#define MAX_DEPTH 32

struct translator {
    const char *pattern;
    size_t len, at;
    struct lam_str *out;
    lam_error *err;
    bool caseless[MAX_DEPTH]; /* by group depth */
    int depth;
};

static lam_code refuse(struct translator *t, const char *what)
{
    return LAM_RAISE(t->err, LAM_E_PRETOKENIZER, "pre-tokenizer expression: %s at byte %zu of \"%.*s\" is not supported", what,
                     t->at, (int)(t->len < 200 ? t->len : 200), t->pattern);
}

static lam_code put(struct translator *t, const char *text)
{
    return lam_str_puts(t->out, text) ? LAM_OK : LAM_RAISE(t->err, LAM_E_NO_MEMORY, "pre-tokenizer expression");
}

static lam_code put_literal(struct translator *t, uint32_t cp)
{
    bool plain = (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9') || cp == ' ';
    bool ok = plain ? lam_str_putc(t->out, (char)cp) : lam_str_printf(t->out, "\\x{%x}", (unsigned)cp);
    return ok ? LAM_OK : LAM_RAISE(t->err, LAM_E_NO_MEMORY, "pre-tokenizer expression");
}

static bool starts(const struct translator *t, const char *text)
{
    size_t n = strlen(text);
    return t->len - t->at >= n && memcmp(t->pattern + t->at, text, n) == 0;
}

static uint32_t next_char(struct translator *t)
{
    uint32_t cp;
    bool valid;
    t->at += lam_utf8_decode((const uint8_t *)t->pattern + t->at, t->len - t->at, &cp, &valid);
    return cp;
}

static bool is_category(const char *name, size_t len)
{
    static const char *const categories[] = {
        "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe",
        "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp"};
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strlen(categories[i]) == len && memcmp(categories[i], name, len) == 0) return true;
    return false;
}

static bool is_script(const char *name, size_t len)
{
    static const char *const scripts[] = {"Han", "Hiragana", "Katakana", "Hangul", "Latin", "Greek", "Cyrillic",
                                          "Arabic", "Hebrew", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Devanagari"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strlen(scripts[i]) == len && memcmp(scripts[i], name, len) == 0) return true;
    return false;
}

/* After "\p" or "\P": {Name} or {^Name}. A bare script name would mean Script_Extensions to PCRE2. */
static lam_code property(struct translator *t, bool negated)
{
    const char *open = t->pattern + t->at;
    const char *close = t->at < t->len && *open == '{' ? memchr(open, '}', t->len - t->at) : NULL;
    if (!close) return refuse(t, "a property without braces");
    const char *name = open + 1;
    if (name < close && *name == '^') {
        negated = !negated;
        name++;
    }
    size_t len = (size_t)(close - name);
    bool script = is_script(name, len);
    if (!script && !is_category(name, len)) return refuse(t, "a Unicode property that is neither category nor known script");
    t->at += (size_t)(close - open) + 1;
    if (!lam_str_printf(t->out, "\\%c{%s%.*s}", negated ? 'P' : 'p', script ? "sc:" : "", (int)len, name))
        return LAM_RAISE(t->err, LAM_E_NO_MEMORY, "pre-tokenizer expression");
    return LAM_OK;
}

static bool hex_value(const char *digits, size_t n, uint32_t *out)
{
    uint32_t value = 0;
    if (n == 0 || n > 6) return false;
    for (size_t i = 0; i < n; i++) {
        char c = digits[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return false;
        value = value * 16 + (uint32_t)digit;
    }
    *out = value;
    return value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
}

/* After "\x" or "\u": HH, HHHH or {H...}. */
static lam_code hex_escape(struct translator *t, size_t digits, uint32_t *cp)
{
    if (t->at < t->len && t->pattern[t->at] == '{') {
        const char *open = t->pattern + t->at;
        const char *close = memchr(open, '}', t->len - t->at);
        if (!close || !hex_value(open + 1, (size_t)(close - open - 1), cp)) return refuse(t, "a hexadecimal escape");
        t->at += (size_t)(close - open) + 1;
        return LAM_OK;
    }
    if (t->len - t->at < digits || !hex_value(t->pattern + t->at, digits, cp)) return refuse(t, "a hexadecimal escape");
    t->at += digits;
    return LAM_OK;
}

/* One escape; t->at is after the backslash. Either *literal = true and *cp is the character, or its class was written.
 * in_class: within brackets, where negated shorthands cannot be spelled out. */
static lam_code escape(struct translator *t, bool in_class, bool *literal, uint32_t *cp)
{
    if (t->at >= t->len) return refuse(t, "a backslash at the end");
    char c = t->pattern[t->at++];
    *literal = false;
    switch (c) {
    case 'p': return property(t, false);
    case 'P': return property(t, true);
    case 's': return put(t, in_class ? SPACE_ITEMS : "[" SPACE_ITEMS "]");
    case 'd': return put(t, "\\p{Nd}");
    case 'w': return put(t, in_class ? WORD_ITEMS : "[" WORD_ITEMS "]");
    case 'D': return put(t, "\\P{Nd}");
    case 'S': return in_class ? refuse(t, "\\S in a class") : put(t, "[^" SPACE_ITEMS "]");
    case 'W': return in_class ? refuse(t, "\\W in a class") : put(t, "[^" WORD_ITEMS "]");
    default: break;
    }
    *literal = true;
    switch (c) {
    case 'n': *cp = '\n'; return LAM_OK;
    case 'r': *cp = '\r'; return LAM_OK;
    case 't': *cp = '\t'; return LAM_OK;
    case 'f': *cp = '\f'; return LAM_OK;
    case 'v': *cp = '\v'; return LAM_OK;
    case 'x': return hex_escape(t, 2, cp);
    case 'u': return hex_escape(t, 4, cp);
    default: break;
    }
    bool punctuation = c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
    if (!punctuation && c != ' ') {
        t->at--;
        return refuse(t, "an escape");
    }
    *cp = (uint32_t)c;
    return LAM_OK;
}

/* One item of a class; as escape(). */
static lam_code class_item(struct translator *t, bool *literal, uint32_t *cp)
{
    if (starts(t, "\\")) {
        t->at++;
        return escape(t, true, literal, cp);
    }
    if (starts(t, "[") || starts(t, "&&")) return refuse(t, "a nested or intersected class");
    *literal = true;
    *cp = next_char(t);
    return LAM_OK;
}

/* After '['. */
static lam_code class_body(struct translator *t)
{
    LAM_TRY(put(t, "["));
    if (starts(t, "^")) {
        t->at++;
        LAM_TRY(put(t, "^"));
    }
    if (starts(t, "]")) return refuse(t, "an empty class");
    while (t->at < t->len && t->pattern[t->at] != ']') {
        bool literal;
        uint32_t first, last;
        LAM_TRY(class_item(t, &literal, &first));
        if (!literal) {
            if (starts(t, "-") && t->at + 1 < t->len && t->pattern[t->at + 1] != ']') return refuse(t, "a range from a class");
            continue;
        }
        LAM_TRY(put_literal(t, first));
        if (!starts(t, "-") || t->at + 1 >= t->len || t->pattern[t->at + 1] == ']') continue;
        t->at++;
        LAM_TRY(class_item(t, &literal, &last));
        if (!literal || last < first) return refuse(t, "a range");
        LAM_TRY(put(t, "-"));
        LAM_TRY(put_literal(t, last));
    }
    if (t->at >= t->len) return refuse(t, "an unclosed class");
    t->at++;
    return put(t, "]");
}

/* After '('. */
static lam_code open_group(struct translator *t)
{
    static const struct { const char *text; bool caseless; } heads[] = {
        {"?:", false}, {"?i:", true}, {"?=", false}, {"?!", false}, {"?>", false}};
    if (t->depth + 1 >= MAX_DEPTH) return refuse(t, "nesting this deep");
    bool caseless = t->caseless[t->depth];
    const char *head = "?:"; /* captures are of no use here */
    if (starts(t, "?") || starts(t, "*")) {
        size_t i = 0;
        while (i < sizeof heads / sizeof *heads && !starts(t, heads[i].text)) i++;
        if (i == sizeof heads / sizeof *heads) return refuse(t, "a group");
        head = heads[i].text;
        caseless = caseless || heads[i].caseless;
        t->at += strlen(head);
    }
    t->caseless[++t->depth] = caseless;
    LAM_TRY(put(t, "("));
    return put(t, head);
}

/* After '{': {m}, {m,} or {m,n}, all numbers at most 999. */
static lam_code repetition(struct translator *t)
{
    size_t start = t->at;
    bool ok = t->at < t->len && t->pattern[t->at] >= '0' && t->pattern[t->at] <= '9';
    int commas = 0, digits = 0;
    for (; ok && t->at < t->len && t->pattern[t->at] != '}'; t->at++) {
        char c = t->pattern[t->at];
        if (c == ',') {
            commas++;
            digits = 0;
        } else {
            digits++;
        }
        ok = (c == ',' || (c >= '0' && c <= '9')) && commas <= 1 && digits <= 3;
    }
    if (!ok || t->at >= t->len) return refuse(t, "a repetition");
    t->at++;
    if (!lam_str_printf(t->out, "{%.*s", (int)(t->at - start), t->pattern + start))
        return LAM_RAISE(t->err, LAM_E_NO_MEMORY, "pre-tokenizer expression");
    /* {m,n}+ and {m,n}? mean other things in the two syntaxes. */
    return starts(t, "+") || starts(t, "?") || starts(t, "*") || starts(t, "{") ? refuse(t, "a repetition of a repetition") : LAM_OK;
}

/* A '?', '*' or '+' that was consumed, with its lazy or possessive suffix. */
static lam_code quantifier(struct translator *t, char c)
{
    char text[3] = {c, 0, 0};
    if (starts(t, "?") || starts(t, "+")) text[1] = t->pattern[t->at++];
    if (starts(t, "?") || starts(t, "+") || starts(t, "*") || starts(t, "{")) return refuse(t, "a repetition of a repetition");
    return put(t, text);
}

static lam_code item(struct translator *t)
{
    uint32_t cp = next_char(t);
    bool literal = true;
    switch (cp) {
    case '|': return put(t, "|");
    case '(': return open_group(t);
    case ')':
        if (t->depth == 0) return refuse(t, "an unopened ')'");
        t->depth--;
        return put(t, ")");
    case '{': return repetition(t);
    case '?': case '*': case '+': return quantifier(t, (char)cp);
    case '$': return put(t, "(?=\\x{a}|\\z)");
    case '^': return refuse(t, "'^'");
    case ']': return refuse(t, "an unopened ']'");
    default: break;
    }
    bool caseless = t->caseless[t->depth];
    if (cp == '[' || cp == '.') {
        if (caseless) return refuse(t, "a class without regard to case");
        return cp == '[' ? class_body(t) : put(t, "[^\\x{a}]");
    }
    if (cp == '\\') {
        LAM_TRY(escape(t, false, &literal, &cp));
        if (!literal) return caseless ? refuse(t, "a class without regard to case") : LAM_OK;
    }
    return put_literal(t, cp);
}

lam_code lam_regex_translate(const char *pattern, size_t len, struct lam_str *out, lam_error *err)
{
    struct translator t = {.pattern = pattern, .len = len, .out = out, .err = err};
    if (lam_utf8_valid_prefix((const uint8_t *)pattern, len) != len)
        return LAM_RAISE(err, LAM_E_PRETOKENIZER, "pre-tokenizer expression that is not UTF-8");
    while (t.at < t.len) LAM_TRY(item(&t));
    if (t.depth > 0) return refuse(&t, "an unclosed group");
    return LAM_OK;
}
