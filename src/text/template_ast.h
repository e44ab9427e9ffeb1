/* From source to tokens to a tree. The tree and the texts in it live in the template's arena. */
#ifndef LAM_TEXT_TEMPLATE_AST_H
#define LAM_TEXT_TEMPLATE_AST_H

#include "text/template_value.h"

/* ---- tokens ---- */

enum lam_tpl_token_type {
    LAM_TPL_T_DATA, /* text outside of tags */
    LAM_TPL_T_BLOCK_BEGIN,
    LAM_TPL_T_BLOCK_END,
    LAM_TPL_T_PRINT_BEGIN,
    LAM_TPL_T_PRINT_END,
    LAM_TPL_T_NAME,
    LAM_TPL_T_OPERATOR,
    LAM_TPL_T_VALUE, /* a string, integer or float literal */
    LAM_TPL_T_END
};

struct lam_tpl_token {
    enum lam_tpl_token_type type;
    uint32_t line;
    struct lam_tpl_text text;    /* of data, names and operators */
    struct lam_tpl_value value;  /* of literals */
};

/* source[len]: UTF-8 with LF line ends, alive as long as the arena. *out: n tokens, the last of type END; freed
 * by the caller with lam_free. */
lam_code lam_tpl_lex(const char *source, size_t len, struct lam_tpl_arena *arena, struct lam_tpl_token **out,
                     size_t *n, lam_error *err);

/* ---- tree ---- */

enum lam_tpl_node_type {
    /* Statements. */
    LAM_TPL_N_TEXT,     /* value: a string */
    LAM_TPL_N_PRINT,    /* a */
    LAM_TPL_N_IF,       /* items: branches */
    LAM_TPL_N_BRANCH,   /* a: condition, NULL for else; body */
    LAM_TPL_N_FOR,      /* a: target, b: sequence, c: condition or NULL; body; other: the else part */
    LAM_TPL_N_SET,      /* a: target, b: expression */
    LAM_TPL_N_CAPTURE,  /* a: target or NULL to print, b: filters over CAPTURED or NULL; body */
    LAM_TPL_N_MACRO,    /* name; items: PARAM; body; takes_* */
    LAM_TPL_N_CALL_BLOCK, /* a: a CALL, b: a MACRO for its caller */
    LAM_TPL_N_WITH,     /* items: SET, whose expressions see the outer scope; body */
    LAM_TPL_N_BREAK,
    LAM_TPL_N_CONTINUE,
    /* Parts of statements and expressions. */
    LAM_TPL_N_PARAM,    /* name; a: default or NULL */
    LAM_TPL_N_PAIR,     /* a: key, b: value */
    LAM_TPL_N_NAMED,    /* name; a: value */
    LAM_TPL_N_SPREAD,   /* op: '*' or 'P' for **; a */
    LAM_TPL_N_OPERAND,  /* op; a: the right side of a comparison */
    LAM_TPL_N_SLICE,    /* a, b, c: start, stop, step or NULL */
    /* Expressions. */
    LAM_TPL_N_CONSTANT, /* value */
    LAM_TPL_N_CAPTURED, /* the text of the enclosing filter or set block */
    LAM_TPL_N_NAME,     /* name */
    LAM_TPL_N_LIST,     /* items */
    LAM_TPL_N_TUPLE,    /* items */
    LAM_TPL_N_DICT,     /* items: PAIR */
    LAM_TPL_N_ATTRIBUTE, /* a: object; name */
    LAM_TPL_N_ITEM,     /* a: object, b: index or SLICE */
    LAM_TPL_N_CALL,     /* a: callee; items: arguments */
    LAM_TPL_N_FILTER,   /* a: operand; name; items: arguments */
    LAM_TPL_N_TEST,     /* a: operand; name; items: arguments */
    LAM_TPL_N_NOT,      /* a */
    LAM_TPL_N_SIGN,     /* op: '+' or '-'; a */
    LAM_TPL_N_BINARY,   /* op; a, b */
    LAM_TPL_N_CONCAT,   /* items */
    LAM_TPL_N_AND,      /* a, b */
    LAM_TPL_N_OR,       /* a, b */
    LAM_TPL_N_COMPARE,  /* a; items: OPERAND */
    LAM_TPL_N_CHOICE    /* a: condition, b: then, c: else or NULL */
};

/* op of BINARY: + - * / % and 'F' for //, 'P' for **. op of OPERAND: '<' '>' 'l' for <=, 'g' for >=, '=' for ==,
 * '!' for !=, 'i' for in, 'n' for not in. */
struct lam_tpl_node {
    enum lam_tpl_node_type type;
    char op;
    bool takes_caller, takes_varargs, takes_kwargs; /* macros whose body reads these names */
    uint32_t line;
    uint32_t n; /* number of items */
    struct lam_tpl_value value;
    struct lam_tpl_text name;
    struct lam_tpl_node *a, *b, *c;
    struct lam_tpl_node *items, *body, *other; /* heads of lists */
    struct lam_tpl_node *next;                 /* in the list that holds this node */
};

struct lam_template {
    struct lam_tpl_arena arena;
    struct lam_tpl_node *body; /* statements */
};

/* Fills t->body from the tokens of lam_tpl_lex. */
lam_code lam_tpl_parse(struct lam_template *t, const struct lam_tpl_token *tokens, lam_error *err);

#endif
