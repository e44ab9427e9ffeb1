/* Variables. A scope sees its own names, then those of the scopes around it. */
#ifndef LAM_TEXT_TEMPLATE_SCOPE_H
#define LAM_TEXT_TEMPLATE_SCOPE_H

#include "text/template_value.h"

struct lam_tpl_scope {
    struct lam_tpl_scope *parent; /* NULL for the outermost one, which holds the caller's variables */
    bool captured; /* a macro was defined in it or in a scope within, so it must outlive its loop's iteration */
    size_t n, cap;
    struct lam_tpl_variable {
        struct lam_tpl_text name;
        struct lam_tpl_value value;
    } *variables; /* [n] */
};

lam_code lam_tpl_scope_new(struct lam_tpl_run *run, struct lam_tpl_scope *parent, struct lam_tpl_scope **out);
/* An empty scope for the next iteration of a loop: *scope again unless that is NULL or captured. */
lam_code lam_tpl_scope_renew(struct lam_tpl_run *run, struct lam_tpl_scope *parent, struct lam_tpl_scope **scope);
lam_code lam_tpl_scope_set(struct lam_tpl_run *run, struct lam_tpl_scope *scope, struct lam_tpl_text name,
                           struct lam_tpl_value value);
/* The variable, or else the global function of that name, or else undefined. */
lam_code lam_tpl_scope_get(struct lam_tpl_run *run, const struct lam_tpl_scope *scope, struct lam_tpl_text name,
                           struct lam_tpl_value *out);

/* Run statements; their text is appended to *out. */
lam_code lam_tpl_execute(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *body,
                         struct lam_str *out);

#endif
