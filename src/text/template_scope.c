#include "text/template_scope.h"

#include <string.h>

lam_code lam_tpl_scope_new(struct lam_tpl_run *run, struct lam_tpl_scope *parent, struct lam_tpl_scope **out)
{
    void *scope;
    LAM_TRY(lam_tpl_run_alloc(run, 1, sizeof **out, &scope));
    *out = scope;
    (*out)->parent = parent;
    return LAM_OK;
}

lam_code lam_tpl_scope_renew(struct lam_tpl_run *run, struct lam_tpl_scope *parent, struct lam_tpl_scope **scope)
{
    if (!*scope || (*scope)->captured) return lam_tpl_scope_new(run, parent, scope);
    (*scope)->n = 0;
    return LAM_OK;
}

static struct lam_tpl_variable *find(const struct lam_tpl_scope *scope, struct lam_tpl_text name)
{
    for (size_t i = 0; i < scope->n; i++)
        if (lam_tpl_text_equal(scope->variables[i].name, name)) return &scope->variables[i];
    return NULL;
}

lam_code lam_tpl_scope_set(struct lam_tpl_run *run, struct lam_tpl_scope *scope, struct lam_tpl_text name,
                           struct lam_tpl_value value)
{
    LAM_TRY(lam_tpl_tick(run, 1 + scope->n / 16));
    struct lam_tpl_variable *old = find(scope, name);
    if (old) {
        old->value = value;
        return LAM_OK;
    }
    if (scope->n == scope->cap) {
        size_t cap = scope->cap ? scope->cap * 2 : 4;
        void *variables;
        LAM_TRY(lam_tpl_run_alloc(run, cap, sizeof *scope->variables, &variables));
        if (scope->n) memcpy(variables, scope->variables, scope->n * sizeof *scope->variables);
        scope->variables = variables;
        scope->cap = cap;
    }
    scope->variables[scope->n++] = (struct lam_tpl_variable){name, value};
    return LAM_OK;
}

lam_code lam_tpl_scope_get(struct lam_tpl_run *run, const struct lam_tpl_scope *scope, struct lam_tpl_text name,
                           struct lam_tpl_value *out)
{
    static const char *const functions[] = {
        [LAM_TPL_RANGE] = "range", [LAM_TPL_DICT_OF] = "dict", [LAM_TPL_NAMESPACE_OF] = "namespace",
        [LAM_TPL_RAISE] = "raise_exception", [LAM_TPL_STRFTIME] = "strftime_now"};
    for (; scope; scope = scope->parent) {
        LAM_TRY(lam_tpl_tick(run, 1 + scope->n / 16));
        const struct lam_tpl_variable *found = find(scope, name);
        if (found) {
            *out = found->value;
            return LAM_OK;
        }
    }
    *out = lam_tpl_undefined(name);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (lam_tpl_text_is(name, functions[i]))
            *out = (struct lam_tpl_value){.kind = LAM_TPL_FUNCTION, .function = (enum lam_tpl_function)i};
    return LAM_OK;
}
