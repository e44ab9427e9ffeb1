/* Expressions, with Jinja2's precedence: or, and, not, comparison, + -, ~, * / // %, **, sign, filters and tests. */
#include "text/template_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

lam_code lam_tpl_parse_fail(struct lam_tpl_parser *p, uint32_t line, const char *format, ...)
{
    char message[300];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return LAM_RAISE(p->err, LAM_E_TEMPLATE, "template line %u: %s", (unsigned)line, message);
}

lam_code lam_tpl_parse_enter(struct lam_tpl_parser *p)
{
    if (p->depth >= LAM_TPL_MAX_NESTING)
        return LAM_RAISE(p->err, LAM_E_LIMIT, "template line %u: nested deeper than %d", (unsigned)p->at->line, LAM_TPL_MAX_NESTING);
    p->depth++;
    return LAM_OK;
}

lam_code lam_tpl_parse_node(struct lam_tpl_parser *p, enum lam_tpl_node_type type, struct lam_tpl_node **out)
{
    struct lam_tpl_node *node = lam_tpl_arena_alloc(p->arena, sizeof *node);
    *out = node;
    if (!node) return LAM_RAISE(p->err, LAM_E_NO_MEMORY, "no memory for a template's tree");
    node->type = type;
    node->line = p->at->line;
    return LAM_OK;
}

bool lam_tpl_parse_is_name(const struct lam_tpl_parser *p, const char *name)
{
    return p->at->type == LAM_TPL_T_NAME && lam_tpl_text_is(p->at->text, name);
}

bool lam_tpl_parse_is_operator(const struct lam_tpl_parser *p, const char *op)
{
    return p->at->type == LAM_TPL_T_OPERATOR && lam_tpl_text_is(p->at->text, op);
}

bool lam_tpl_parse_skip_name(struct lam_tpl_parser *p, const char *name)
{
    bool hit = lam_tpl_parse_is_name(p, name);
    p->at += hit;
    return hit;
}

bool lam_tpl_parse_skip_operator(struct lam_tpl_parser *p, const char *op)
{
    bool hit = lam_tpl_parse_is_operator(p, op);
    p->at += hit;
    return hit;
}

/* What the next token looks like, for messages. */
static struct lam_tpl_text shown(const struct lam_tpl_parser *p)
{
    switch (p->at->type) {
    case LAM_TPL_T_NAME: case LAM_TPL_T_OPERATOR: return p->at->text.len < 60 ? p->at->text : LAM_TPL_TEXT("a long name");
    case LAM_TPL_T_VALUE: return LAM_TPL_TEXT("a literal");
    case LAM_TPL_T_END: return LAM_TPL_TEXT("the end of the template");
    case LAM_TPL_T_DATA: return LAM_TPL_TEXT("text");
    default: return LAM_TPL_TEXT("the end of the tag");
    }
}

static lam_code unexpected(struct lam_tpl_parser *p, const char *wanted)
{
    struct lam_tpl_text t = shown(p);
    return LAM_TPL_PARSE_FAIL(p, "expected %s, found %.*s", wanted, (int)t.len, t.s);
}

lam_code lam_tpl_parse_expect(struct lam_tpl_parser *p, const char *op)
{
    char wanted[16];
    if (lam_tpl_parse_skip_operator(p, op)) return LAM_OK;
    snprintf(wanted, sizeof wanted, "'%s'", op);
    return unexpected(p, wanted);
}

lam_code lam_tpl_parse_any_name(struct lam_tpl_parser *p, struct lam_tpl_text *out)
{
    if (p->at->type != LAM_TPL_T_NAME) return unexpected(p, "a name");
    *out = (p->at++)->text;
    return LAM_OK;
}

static void append(struct lam_tpl_node *parent, struct lam_tpl_node ***tail, struct lam_tpl_node *item)
{
    **tail = item;
    *tail = &item->next;
    parent->n++;
}

/* ---- primary expressions ---- */

/* Items up to `close`, with an optional trailing comma. */
static lam_code parse_items(struct lam_tpl_parser *p, enum lam_tpl_node_type type, const char *close,
                            struct lam_tpl_node **out)
{
    LAM_TRY(lam_tpl_parse_node(p, type, out));
    struct lam_tpl_node **tail = &(*out)->items, *item;
    while (!lam_tpl_parse_is_operator(p, close)) {
        if ((*out)->n) {
            LAM_TRY(lam_tpl_parse_expect(p, ","));
            if (lam_tpl_parse_is_operator(p, close)) break;
        }
        if (type == LAM_TPL_N_DICT) {
            LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_PAIR, &item));
            LAM_TRY(lam_tpl_parse_expression(p, &item->a));
            LAM_TRY(lam_tpl_parse_expect(p, ":"));
            LAM_TRY(lam_tpl_parse_expression(p, &item->b));
        } else {
            LAM_TRY(lam_tpl_parse_expression(p, &item));
        }
        append(*out, &tail, item);
    }
    return lam_tpl_parse_expect(p, close);
}

static lam_code parse_parenthesis(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    if (lam_tpl_parse_is_operator(p, ")")) LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_TUPLE, out));
    else LAM_TRY(lam_tpl_parse_tuple(p, true, out));
    return lam_tpl_parse_expect(p, ")");
}

/* Adjacent string literals are one. */
static lam_code parse_literal(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_CONSTANT, out));
    struct lam_tpl_value first = (p->at++)->value;
    const struct lam_tpl_token *end = p->at;
    size_t len = first.text.len;
    (*out)->value = first;
    if (first.kind != LAM_TPL_STRING) return LAM_OK;
    for (; end->type == LAM_TPL_T_VALUE && end->value.kind == LAM_TPL_STRING; end++) len += end->value.text.len;
    if (end == p->at) return LAM_OK;
    char *joined = lam_tpl_arena_alloc(p->arena, len);
    if (!joined) return LAM_RAISE(p->err, LAM_E_NO_MEMORY, "no memory for a template's string");
    (*out)->value.text = (struct lam_tpl_text){joined, len};
    for (p->at--; p->at < end; p->at++) {
        if (p->at->value.text.len) memcpy(joined, p->at->value.text.s, p->at->value.text.len);
        joined += p->at->value.text.len;
    }
    return LAM_OK;
}

static lam_code parse_name(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    struct lam_tpl_text name = p->at->text;
    if (lam_tpl_text_is(name, "self")) return LAM_TPL_PARSE_FAIL(p, "the variable self is not supported");
    bool yes = lam_tpl_text_is(name, "true") || lam_tpl_text_is(name, "True");
    bool no = lam_tpl_text_is(name, "false") || lam_tpl_text_is(name, "False");
    bool none = lam_tpl_text_is(name, "none") || lam_tpl_text_is(name, "None");
    LAM_TRY(lam_tpl_parse_node(p, yes || no || none ? LAM_TPL_N_CONSTANT : LAM_TPL_N_NAME, out));
    p->at++;
    (*out)->name = name;
    (*out)->value = none ? lam_tpl_none() : lam_tpl_bool(yes);
    p->saw_caller |= lam_tpl_text_is(name, "caller");
    p->saw_varargs |= lam_tpl_text_is(name, "varargs");
    p->saw_kwargs |= lam_tpl_text_is(name, "kwargs");
    return LAM_OK;
}

static lam_code parse_primary(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    if (p->at->type == LAM_TPL_T_NAME) return parse_name(p, out);
    if (p->at->type == LAM_TPL_T_VALUE) return parse_literal(p, out);
    if (lam_tpl_parse_skip_operator(p, "(")) return parse_parenthesis(p, out);
    if (lam_tpl_parse_skip_operator(p, "[")) return parse_items(p, LAM_TPL_N_LIST, "]", out);
    if (lam_tpl_parse_skip_operator(p, "{")) return parse_items(p, LAM_TPL_N_DICT, "}", out);
    return unexpected(p, "an expression");
}

/* ---- postfix: attributes, items, calls, filters, tests ---- */

/* One argument; *stage: 0 positional, 1 after *, 2 after a named one, 3 after **. */
static lam_code parse_argument(struct lam_tpl_parser *p, int *stage, struct lam_tpl_node **out)
{
    bool star = lam_tpl_parse_is_operator(p, "*"), two_stars = lam_tpl_parse_is_operator(p, "**");
    bool named = p->at->type == LAM_TPL_T_NAME && p->at[1].type == LAM_TPL_T_OPERATOR && lam_tpl_text_is(p->at[1].text, "=");
    int kind = two_stars ? 3 : named ? 2 : star ? 1 : 0;
    if (kind < *stage || (*stage == kind && (kind == 1 || kind == 3)) )
        return LAM_TPL_PARSE_FAIL(p, "arguments in the wrong order");
    *stage = kind;
    if (kind == 0) return lam_tpl_parse_expression(p, out);
    LAM_TRY(lam_tpl_parse_node(p, named ? LAM_TPL_N_NAMED : LAM_TPL_N_SPREAD, out));
    (*out)->op = two_stars ? 'P' : '*';
    (*out)->name = p->at->text;
    p->at += named ? 2 : 1;
    return lam_tpl_parse_expression(p, &(*out)->a);
}

static lam_code parse_arguments(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    struct lam_tpl_node **tail = &node->items, *item;
    int stage = 0;
    LAM_TRY(lam_tpl_parse_expect(p, "("));
    while (!lam_tpl_parse_is_operator(p, ")")) {
        if (node->n) {
            LAM_TRY(lam_tpl_parse_expect(p, ","));
            if (lam_tpl_parse_is_operator(p, ")")) break;
        }
        LAM_TRY(parse_argument(p, &stage, &item));
        append(node, &tail, item);
    }
    return lam_tpl_parse_expect(p, ")");
}

/* What stands between brackets: an expression, a tuple or a slice. */
static lam_code parse_subscript(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    struct lam_tpl_node *slice, *first = NULL;
    if (!lam_tpl_parse_is_operator(p, ":")) LAM_TRY(lam_tpl_parse_expression(p, &first));
    if (!lam_tpl_parse_skip_operator(p, ":")) {
        *out = first;
        return lam_tpl_parse_expect(p, "]");
    }
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_SLICE, &slice));
    slice->a = first;
    if (!lam_tpl_parse_is_operator(p, ":") && !lam_tpl_parse_is_operator(p, "]")) LAM_TRY(lam_tpl_parse_expression(p, &slice->b));
    if (lam_tpl_parse_skip_operator(p, ":") && !lam_tpl_parse_is_operator(p, "]")) LAM_TRY(lam_tpl_parse_expression(p, &slice->c));
    *out = slice;
    return lam_tpl_parse_expect(p, "]");
}

static lam_code parse_dot(struct lam_tpl_parser *p, struct lam_tpl_node *object, struct lam_tpl_node **out)
{
    if (p->at->type == LAM_TPL_T_VALUE && p->at->value.kind == LAM_TPL_INT) {
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_ITEM, out));
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_CONSTANT, &(*out)->b));
        (*out)->b->value = (p->at++)->value;
    } else {
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_ATTRIBUTE, out));
        LAM_TRY(lam_tpl_parse_any_name(p, &(*out)->name));
    }
    (*out)->a = object;
    return LAM_OK;
}

static lam_code parse_postfix(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    for (;;) {
        struct lam_tpl_node *object = *out;
        if (lam_tpl_parse_skip_operator(p, ".")) {
            LAM_TRY(parse_dot(p, object, out));
        } else if (lam_tpl_parse_is_operator(p, "[")) {
            LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_ITEM, out));
            p->at++;
            (*out)->a = object;
            LAM_TRY(parse_subscript(p, &(*out)->b));
        } else if (lam_tpl_parse_is_operator(p, "(")) {
            LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_CALL, out));
            (*out)->a = object;
            LAM_TRY(parse_arguments(p, *out));
        } else {
            return LAM_OK;
        }
    }
}

lam_code lam_tpl_parse_filters(struct lam_tpl_parser *p, struct lam_tpl_node *operand, struct lam_tpl_node **out)
{
    do {
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_FILTER, out));
        (*out)->a = operand;
        operand = *out;
        LAM_TRY(lam_tpl_parse_any_name(p, &(*out)->name));
        if (lam_tpl_parse_is_operator(p, ".")) return LAM_TPL_PARSE_FAIL(p, "a filter name with a dot is not supported");
        if (lam_tpl_parse_is_operator(p, "(")) LAM_TRY(parse_arguments(p, *out));
    } while (lam_tpl_parse_skip_operator(p, "|"));
    return LAM_OK;
}

/* Whether the token behind a test's name begins an argument without parentheses. */
static bool begins_argument(const struct lam_tpl_parser *p)
{
    static const char *const words[] = {"else", "or", "and", "if", "is", "in", "not"};
    if (p->at->type == LAM_TPL_T_VALUE) return true;
    if (p->at->type == LAM_TPL_T_OPERATOR) return lam_tpl_parse_is_operator(p, "[") || lam_tpl_parse_is_operator(p, "{");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (lam_tpl_parse_is_name(p, words[i])) return false;
    return p->at->type == LAM_TPL_T_NAME;
}

static lam_code parse_test(struct lam_tpl_parser *p, struct lam_tpl_node *operand, struct lam_tpl_node **out)
{
    struct lam_tpl_node *test;
    bool negated = lam_tpl_parse_skip_name(p, "not");
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_TEST, &test));
    test->a = operand;
    LAM_TRY(lam_tpl_parse_any_name(p, &test->name));
    if (lam_tpl_parse_is_operator(p, "(")) {
        LAM_TRY(parse_arguments(p, test));
    } else if (begins_argument(p)) {
        LAM_TRY(parse_primary(p, &test->items));
        LAM_TRY(parse_postfix(p, &test->items));
        test->n = 1;
    }
    *out = test;
    if (!negated) return LAM_OK;
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_NOT, out));
    (*out)->a = test;
    return LAM_OK;
}

/* ---- operators, from the tightest to the loosest ---- */

static lam_code parse_unary(struct lam_tpl_parser *p, bool filters, struct lam_tpl_node **out)
{
    LAM_TRY(lam_tpl_parse_enter(p));
    if (lam_tpl_parse_is_operator(p, "-") || lam_tpl_parse_is_operator(p, "+")) {
        struct lam_tpl_node *sign;
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_SIGN, &sign));
        sign->op = (p->at++)->text.s[0];
        LAM_TRY(parse_unary(p, false, &sign->a));
        *out = sign;
    } else {
        LAM_TRY(parse_primary(p, out));
    }
    LAM_TRY(parse_postfix(p, out));
    while (filters) {
        if (lam_tpl_parse_skip_operator(p, "|")) LAM_TRY(lam_tpl_parse_filters(p, *out, out));
        else if (lam_tpl_parse_skip_name(p, "is")) LAM_TRY(parse_test(p, *out, out));
        else if (lam_tpl_parse_is_operator(p, "(")) LAM_TRY(parse_postfix(p, out));
        else break;
    }
    p->depth--;
    return LAM_OK;
}

static lam_code binary(struct lam_tpl_parser *p, enum lam_tpl_node_type type, char op, struct lam_tpl_node **left)
{
    struct lam_tpl_node *node;
    LAM_TRY(lam_tpl_parse_node(p, type, &node));
    node->op = op;
    node->a = *left;
    *left = node;
    p->at++;
    return LAM_OK;
}

static lam_code parse_power(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    LAM_TRY(parse_unary(p, true, out));
    while (lam_tpl_parse_is_operator(p, "**")) {
        LAM_TRY(binary(p, LAM_TPL_N_BINARY, 'P', out));
        LAM_TRY(parse_unary(p, true, &(*out)->b));
    }
    return LAM_OK;
}

static lam_code parse_product(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    LAM_TRY(parse_power(p, out));
    for (;;) {
        char op = lam_tpl_parse_is_operator(p, "*") ? '*' : lam_tpl_parse_is_operator(p, "/") ? '/' :
                  lam_tpl_parse_is_operator(p, "//") ? 'F' : lam_tpl_parse_is_operator(p, "%") ? '%' : 0;
        if (!op) return LAM_OK;
        LAM_TRY(binary(p, LAM_TPL_N_BINARY, op, out));
        LAM_TRY(parse_power(p, &(*out)->b));
    }
}

static lam_code parse_concat(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    struct lam_tpl_node *first;
    LAM_TRY(parse_product(p, &first));
    *out = first;
    if (!lam_tpl_parse_is_operator(p, "~")) return LAM_OK;
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_CONCAT, out));
    struct lam_tpl_node **tail = &(*out)->items;
    append(*out, &tail, first);
    while (lam_tpl_parse_skip_operator(p, "~")) {
        struct lam_tpl_node *item;
        LAM_TRY(parse_product(p, &item));
        append(*out, &tail, item);
    }
    return LAM_OK;
}

static lam_code parse_sum(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    LAM_TRY(parse_concat(p, out));
    while (lam_tpl_parse_is_operator(p, "+") || lam_tpl_parse_is_operator(p, "-")) {
        LAM_TRY(binary(p, LAM_TPL_N_BINARY, p->at->text.s[0], out));
        LAM_TRY(parse_concat(p, &(*out)->b));
    }
    return LAM_OK;
}

/* Pass a comparison operator; 0 when there is none. */
static char skip_comparison(struct lam_tpl_parser *p)
{
    static const struct { const char *text; char op; } ops[] = {
        {"==", '='}, {"!=", '!'}, {"<=", 'l'}, {">=", 'g'}, {"<", '<'}, {">", '>'}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (lam_tpl_parse_skip_operator(p, ops[i].text)) return ops[i].op;
    if (lam_tpl_parse_skip_name(p, "in")) return 'i';
    if (lam_tpl_parse_is_name(p, "not") && p->at[1].type == LAM_TPL_T_NAME && lam_tpl_text_is(p->at[1].text, "in")) {
        p->at += 2;
        return 'n';
    }
    return 0;
}

static lam_code parse_comparison(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    struct lam_tpl_node **tail = NULL;
    LAM_TRY(parse_sum(p, out));
    for (;;) {
        struct lam_tpl_node *operand, *first = *out;
        char op = skip_comparison(p);
        if (!op) return LAM_OK;
        if (!tail) {
            LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_COMPARE, out));
            (*out)->a = first;
            tail = &(*out)->items;
        }
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_OPERAND, &operand));
        operand->op = op;
        LAM_TRY(parse_sum(p, &operand->a));
        append(*out, &tail, operand);
    }
}

static lam_code parse_not(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    if (!lam_tpl_parse_is_name(p, "not")) return parse_comparison(p, out);
    LAM_TRY(lam_tpl_parse_enter(p));
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_NOT, out));
    p->at++;
    LAM_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return LAM_OK;
}

static lam_code parse_and(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    LAM_TRY(parse_not(p, out));
    while (lam_tpl_parse_is_name(p, "and")) {
        LAM_TRY(binary(p, LAM_TPL_N_AND, 0, out));
        LAM_TRY(parse_not(p, &(*out)->b));
    }
    return LAM_OK;
}

lam_code lam_tpl_parse_no_choice(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    LAM_TRY(parse_and(p, out));
    while (lam_tpl_parse_is_name(p, "or")) {
        LAM_TRY(binary(p, LAM_TPL_N_OR, 0, out));
        LAM_TRY(parse_and(p, &(*out)->b));
    }
    return LAM_OK;
}

lam_code lam_tpl_parse_expression(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    LAM_TRY(lam_tpl_parse_enter(p));
    LAM_TRY(lam_tpl_parse_no_choice(p, out));
    while (lam_tpl_parse_is_name(p, "if")) {
        struct lam_tpl_node *choice;
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_CHOICE, &choice));
        p->at++;
        choice->b = *out;
        LAM_TRY(lam_tpl_parse_no_choice(p, &choice->a));
        if (lam_tpl_parse_skip_name(p, "else")) LAM_TRY(lam_tpl_parse_expression(p, &choice->c));
        *out = choice;
    }
    p->depth--;
    return LAM_OK;
}

/* Whether the next token can't begin a further member of a tuple. */
static bool tuple_ends(const struct lam_tpl_parser *p)
{
    return p->at->type == LAM_TPL_T_BLOCK_END || p->at->type == LAM_TPL_T_PRINT_END ||
           lam_tpl_parse_is_operator(p, ")") || lam_tpl_parse_is_operator(p, "=") || lam_tpl_parse_is_name(p, "in");
}

lam_code lam_tpl_parse_tuple(struct lam_tpl_parser *p, bool choice, struct lam_tpl_node **out)
{
    struct lam_tpl_node *item;
    LAM_TRY(choice ? lam_tpl_parse_expression(p, &item) : lam_tpl_parse_no_choice(p, &item));
    *out = item;
    if (!lam_tpl_parse_is_operator(p, ",")) return LAM_OK;
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_TUPLE, out));
    struct lam_tpl_node **tail = &(*out)->items;
    append(*out, &tail, item);
    while (lam_tpl_parse_skip_operator(p, ",") && !tuple_ends(p)) {
        LAM_TRY(choice ? lam_tpl_parse_expression(p, &item) : lam_tpl_parse_no_choice(p, &item));
        append(*out, &tail, item);
    }
    return LAM_OK;
}

static lam_code parse_one_target(struct lam_tpl_parser *p, bool namespaced, struct lam_tpl_node **out)
{
    if (lam_tpl_parse_skip_operator(p, "(")) {
        LAM_TRY(lam_tpl_parse_enter(p));
        LAM_TRY(lam_tpl_parse_target(p, false, out));
        p->depth--;
        return lam_tpl_parse_expect(p, ")");
    }
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None", "in", "if", "else", "not", "and", "or", "is"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (lam_tpl_parse_is_name(p, reserved[i])) return LAM_TPL_PARSE_FAIL(p, "can't assign to '%s'", reserved[i]);
    if (p->loops && lam_tpl_parse_is_name(p, "loop")) return LAM_TPL_PARSE_FAIL(p, "can't assign to 'loop' in a loop");
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_NAME, out));
    LAM_TRY(lam_tpl_parse_any_name(p, &(*out)->name));
    if (!namespaced || !lam_tpl_parse_skip_operator(p, ".")) return LAM_OK;
    struct lam_tpl_node *object = *out;
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_ATTRIBUTE, out));
    (*out)->a = object;
    return lam_tpl_parse_any_name(p, &(*out)->name);
}

lam_code lam_tpl_parse_target(struct lam_tpl_parser *p, bool namespaced, struct lam_tpl_node **out)
{
    struct lam_tpl_node *item;
    LAM_TRY(parse_one_target(p, namespaced, &item));
    *out = item;
    if (!lam_tpl_parse_is_operator(p, ",")) return LAM_OK;
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_TUPLE, out));
    struct lam_tpl_node **tail = &(*out)->items;
    append(*out, &tail, item);
    while (lam_tpl_parse_skip_operator(p, ",") && !tuple_ends(p)) {
        LAM_TRY(parse_one_target(p, namespaced, &item));
        append(*out, &tail, item);
    }
    return LAM_OK;
}
