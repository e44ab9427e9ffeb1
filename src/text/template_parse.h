/* What the two halves of the parser, statements and expressions, share. */
#ifndef LAM_TEXT_TEMPLATE_PARSE_H
#define LAM_TEXT_TEMPLATE_PARSE_H

#include "text/template_ast.h"

struct lam_tpl_parser {
    const struct lam_tpl_token *at; /* the next token; the last one is END and never passed */
    struct lam_tpl_arena *arena;
    unsigned depth, loops; /* nesting: of everything; of loops, within the current macro */
    bool saw_caller, saw_varargs, saw_kwargs; /* names read since the macro at hand began */
    lam_error *err;
};

/* LAM_E_TEMPLATE with the line of the next token. */
#define LAM_TPL_PARSE_FAIL(p, ...) lam_tpl_parse_fail((p), (p)->at->line, __VA_ARGS__)
lam_code lam_tpl_parse_fail(struct lam_tpl_parser *p, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Count a level of nesting; the caller takes it back from p->depth when it is done. */
lam_code lam_tpl_parse_enter(struct lam_tpl_parser *p);
lam_code lam_tpl_parse_node(struct lam_tpl_parser *p, enum lam_tpl_node_type type, struct lam_tpl_node **out);

bool lam_tpl_parse_is_name(const struct lam_tpl_parser *p, const char *name);
bool lam_tpl_parse_is_operator(const struct lam_tpl_parser *p, const char *op);
/* Pass the token if it is this one. */
bool lam_tpl_parse_skip_name(struct lam_tpl_parser *p, const char *name);
bool lam_tpl_parse_skip_operator(struct lam_tpl_parser *p, const char *op);
/* Pass the token, which must be this operator or any name. */
lam_code lam_tpl_parse_expect(struct lam_tpl_parser *p, const char *op);
lam_code lam_tpl_parse_any_name(struct lam_tpl_parser *p, struct lam_tpl_text *out);

/* One expression. */
lam_code lam_tpl_parse_expression(struct lam_tpl_parser *p, struct lam_tpl_node **out);
/* One expression without "a if b". */
lam_code lam_tpl_parse_no_choice(struct lam_tpl_parser *p, struct lam_tpl_node **out);
/* Expressions with commas between them are a tuple. */
lam_code lam_tpl_parse_tuple(struct lam_tpl_parser *p, bool choice, struct lam_tpl_node **out);
/* The name and arguments of a filter, and any further ones behind '|', over operand. */
lam_code lam_tpl_parse_filters(struct lam_tpl_parser *p, struct lam_tpl_node *operand, struct lam_tpl_node **out);
/* Names, or a tuple of them; with `namespaced`, also one attribute. */
lam_code lam_tpl_parse_target(struct lam_tpl_parser *p, bool namespaced, struct lam_tpl_node **out);

#endif
