/* Statements: what stands between {% and %}. */
#include "text/template_parse.h"

static lam_code parse_body(struct lam_tpl_parser *p, const char *const *ends, struct lam_tpl_node **out);

static lam_code tag_ends(struct lam_tpl_parser *p)
{
    if (p->at->type != LAM_TPL_T_BLOCK_END) {
        struct lam_tpl_text t = p->at->text;
        return LAM_TPL_PARSE_FAIL(p, "expected %%}, found '%.*s'", LAM_TPL_SHOWN(t));
    }
    p->at++;
    return LAM_OK;
}

/* The body of a block and its end tag: "%} ... {% name %}". */
static lam_code parse_block(struct lam_tpl_parser *p, const char *end, struct lam_tpl_node **out)
{
    const char *const ends[] = {end, NULL};
    LAM_TRY(tag_ends(p));
    LAM_TRY(parse_body(p, ends, out));
    p->at += 2;
    return tag_ends(p);
}

static lam_code parse_if(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct lam_tpl_node **tail = &node->items;
    bool last = false;
    do {
        struct lam_tpl_node *branch;
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_BRANCH, &branch));
        if (!last) LAM_TRY(lam_tpl_parse_tuple(p, false, &branch->a));
        LAM_TRY(tag_ends(p));
        LAM_TRY(parse_body(p, last ? ends + 2 : ends, &branch->body));
        p->at++;
        *tail = branch;
        tail = &branch->next;
        if (lam_tpl_parse_skip_name(p, "endif")) break;
        last = lam_tpl_parse_is_name(p, "else");
        p->at++;
    } while (true);
    return tag_ends(p);
}

static lam_code parse_for(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    p->loops++;
    LAM_TRY(lam_tpl_parse_target(p, false, &node->a));
    if (!lam_tpl_parse_skip_name(p, "in")) return LAM_TPL_PARSE_FAIL(p, "expected 'in' in a for loop");
    LAM_TRY(lam_tpl_parse_tuple(p, false, &node->b));
    if (lam_tpl_parse_skip_name(p, "if")) LAM_TRY(lam_tpl_parse_expression(p, &node->c));
    if (lam_tpl_parse_is_name(p, "recursive")) return LAM_TPL_PARSE_FAIL(p, "recursive loops are not supported");
    LAM_TRY(tag_ends(p));
    LAM_TRY(parse_body(p, ends, &node->body));
    p->loops--;
    p->at++;
    if (lam_tpl_parse_skip_name(p, "else")) {
        LAM_TRY(tag_ends(p));
        LAM_TRY(parse_body(p, ends + 1, &node->other));
        p->at++;
    }
    p->at++;
    return tag_ends(p);
}

static lam_code parse_set(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    LAM_TRY(lam_tpl_parse_target(p, true, &node->a));
    if (lam_tpl_parse_skip_operator(p, "=")) {
        LAM_TRY(lam_tpl_parse_tuple(p, true, &node->b));
        return tag_ends(p);
    }
    node->type = LAM_TPL_N_CAPTURE;
    if (node->a->type == LAM_TPL_N_TUPLE) return LAM_TPL_PARSE_FAIL(p, "a set block needs one name");
    if (lam_tpl_parse_skip_operator(p, "|")) {
        struct lam_tpl_node *captured;
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_CAPTURED, &captured));
        LAM_TRY(lam_tpl_parse_filters(p, captured, &node->b));
    }
    return parse_block(p, "endset", &node->body);
}

static lam_code parse_filter_block(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    struct lam_tpl_node *captured;
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_CAPTURED, &captured));
    LAM_TRY(lam_tpl_parse_filters(p, captured, &node->b));
    return parse_block(p, "endfilter", &node->body);
}

static lam_code parse_parameters(struct lam_tpl_parser *p, struct lam_tpl_node *macro)
{
    struct lam_tpl_node **tail = &macro->items;
    LAM_TRY(lam_tpl_parse_expect(p, "("));
    while (!lam_tpl_parse_is_operator(p, ")")) {
        struct lam_tpl_node *param;
        if (macro->n) LAM_TRY(lam_tpl_parse_expect(p, ","));
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_PARAM, &param));
        LAM_TRY(lam_tpl_parse_any_name(p, &param->name));
        for (struct lam_tpl_node *other = macro->items; other; other = other->next) {
            if (lam_tpl_text_equal(other->name, param->name)) return LAM_TPL_PARSE_FAIL(p, "a macro with two parameters of one name");
            if (other->a && !lam_tpl_parse_is_operator(p, "=")) return LAM_TPL_PARSE_FAIL(p, "a parameter without default behind one with");
        }
        if (lam_tpl_parse_skip_operator(p, "=")) LAM_TRY(lam_tpl_parse_expression(p, &param->a));
        *tail = param;
        tail = &param->next;
        macro->n++;
    }
    return lam_tpl_parse_expect(p, ")");
}

/* The body of a macro or call block. What it reads decides which special arguments the macro takes. */
static lam_code parse_macro_body(struct lam_tpl_parser *p, struct lam_tpl_node *macro, const char *end)
{
    struct lam_tpl_parser outer = *p;
    p->saw_caller = p->saw_varargs = p->saw_kwargs = false;
    p->loops = 0;
    LAM_TRY(parse_block(p, end, &macro->body));
    macro->takes_caller = p->saw_caller;
    macro->takes_varargs = p->saw_varargs;
    macro->takes_kwargs = p->saw_kwargs;
    for (struct lam_tpl_node *param = macro->items; param; param = param->next) {
        if (lam_tpl_text_is(param->name, "caller")) return lam_tpl_parse_fail(p, param->line, "a parameter named caller is not supported");
        if (lam_tpl_text_is(param->name, "varargs")) macro->takes_varargs = false;
        if (lam_tpl_text_is(param->name, "kwargs")) macro->takes_kwargs = false;
    }
    p->saw_caller |= outer.saw_caller;
    p->saw_varargs |= outer.saw_varargs;
    p->saw_kwargs |= outer.saw_kwargs;
    p->loops = outer.loops;
    return LAM_OK;
}

static lam_code parse_macro(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    LAM_TRY(lam_tpl_parse_any_name(p, &node->name));
    LAM_TRY(parse_parameters(p, node));
    return parse_macro_body(p, node, "endmacro");
}

static lam_code parse_call_block(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_MACRO, &node->b));
    node->b->name = LAM_TPL_TEXT("caller");
    if (lam_tpl_parse_is_operator(p, "(")) LAM_TRY(parse_parameters(p, node->b));
    LAM_TRY(lam_tpl_parse_expression(p, &node->a));
    if (node->a->type != LAM_TPL_N_CALL) return LAM_TPL_PARSE_FAIL(p, "expected a call");
    return parse_macro_body(p, node->b, "endcall");
}

static lam_code parse_with(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    struct lam_tpl_node **tail = &node->items;
    while (p->at->type != LAM_TPL_T_BLOCK_END) {
        struct lam_tpl_node *set;
        if (node->items) LAM_TRY(lam_tpl_parse_expect(p, ","));
        LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_SET, &set));
        LAM_TRY(lam_tpl_parse_target(p, false, &set->a));
        LAM_TRY(lam_tpl_parse_expect(p, "="));
        LAM_TRY(lam_tpl_parse_expression(p, &set->b));
        *tail = set;
        tail = &set->next;
    }
    return parse_block(p, "endwith", &node->body);
}

/* The generation tag marks text for training; rendered, it is a scope of its own. */
static lam_code parse_generation(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    return parse_block(p, "endgeneration", &node->body);
}

static lam_code parse_jump(struct lam_tpl_parser *p, struct lam_tpl_node *node)
{
    (void)node;
    if (p->loops == 0) return LAM_TPL_PARSE_FAIL(p, "break or continue outside of a loop");
    return tag_ends(p);
}

static lam_code parse_statement(struct lam_tpl_parser *p, struct lam_tpl_node **out)
{
    static const struct {
        const char *name;
        enum lam_tpl_node_type type;
        lam_code (*parse)(struct lam_tpl_parser *, struct lam_tpl_node *);
    } statements[] = {
        {"if", LAM_TPL_N_IF, parse_if},             {"for", LAM_TPL_N_FOR, parse_for},
        {"set", LAM_TPL_N_SET, parse_set},          {"macro", LAM_TPL_N_MACRO, parse_macro},
        {"call", LAM_TPL_N_CALL_BLOCK, parse_call_block}, {"filter", LAM_TPL_N_CAPTURE, parse_filter_block},
        {"with", LAM_TPL_N_WITH, parse_with},       {"generation", LAM_TPL_N_WITH, parse_generation},
        {"break", LAM_TPL_N_BREAK, parse_jump},     {"continue", LAM_TPL_N_CONTINUE, parse_jump},
    };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!lam_tpl_parse_skip_name(p, statements[i].name)) continue;
        LAM_TRY(lam_tpl_parse_node(p, statements[i].type, out));
        LAM_TRY(lam_tpl_parse_enter(p));
        LAM_TRY(statements[i].parse(p, *out));
        p->depth--;
        return LAM_OK;
    }
    struct lam_tpl_text t = p->at->text;
    if (p->at->type != LAM_TPL_T_NAME) return LAM_TPL_PARSE_FAIL(p, "expected a statement");
    return LAM_TPL_PARSE_FAIL(p, "the statement '%.*s' is not supported here", LAM_TPL_SHOWN(t));
}

static bool is_one_of(const struct lam_tpl_token *name, const char *const *ends)
{
    for (; *ends; ends++)
        if (name->type == LAM_TPL_T_NAME && lam_tpl_text_is(name->text, *ends)) return true;
    return false;
}

/* Nodes up to a tag that begins with one of `ends` (NULL at the end), which is not passed. No ends: up to the
 * end of the template. */
static lam_code parse_body(struct lam_tpl_parser *p, const char *const *ends, struct lam_tpl_node **out)
{
    struct lam_tpl_node **tail = out;
    for (;; tail = &(*tail)->next) {
        switch (p->at->type) {
        case LAM_TPL_T_DATA:
            LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_TEXT, tail));
            (*tail)->value = lam_tpl_string((p->at++)->text);
            break;
        case LAM_TPL_T_PRINT_BEGIN:
            p->at++;
            LAM_TRY(lam_tpl_parse_node(p, LAM_TPL_N_PRINT, tail));
            LAM_TRY(lam_tpl_parse_tuple(p, true, &(*tail)->a));
            if (p->at->type != LAM_TPL_T_PRINT_END) {
                struct lam_tpl_text t = p->at->text;
                return LAM_TPL_PARSE_FAIL(p, "expected }}, found '%.*s'", LAM_TPL_SHOWN(t));
            }
            p->at++;
            break;
        case LAM_TPL_T_BLOCK_BEGIN:
            if (is_one_of(p->at + 1, ends)) return LAM_OK;
            p->at++;
            LAM_TRY(parse_statement(p, tail));
            break;
        default:
            if (!*ends) return LAM_OK;
            return LAM_TPL_PARSE_FAIL(p, "the template ends without '%s'", ends[0]);
        }
    }
}

lam_code lam_tpl_parse(struct lam_template *t, const struct lam_tpl_token *tokens, lam_error *err)
{
    static const char *const no_ends[] = {NULL};
    struct lam_tpl_parser p = {.at = tokens, .arena = &t->arena, .err = err};
    return parse_body(&p, no_ends, &t->body);
}
