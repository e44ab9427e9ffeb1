/* Running a tree: statements write text, expressions give values. */
#include "text/template_ast.h"
#include "text/template_scope.h"

enum signal { GO_ON, BREAK, CONTINUE };

static lam_code eval(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                     struct lam_tpl_value *out);
static lam_code exec_body(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          struct lam_str *out, enum signal *signal);

/* Count a step and a level of depth; the caller takes the level back. */
static lam_code enter(struct lam_tpl_run *run, const struct lam_tpl_node *node)
{
    run->line = node->line;
    if (run->depth >= LAM_TPL_MAX_DEPTH)
        return LAM_RAISE(run->err, LAM_E_LIMIT, "template line %u: nested deeper than %d", (unsigned)run->line, LAM_TPL_MAX_DEPTH);
    run->depth++;
    return lam_tpl_tick(run, 1);
}

/* ---- arguments and calls ---- */

static lam_code eval_list(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          enum lam_tpl_shape shape, struct lam_tpl_value *out)
{
    LAM_TRY(lam_tpl_list_new(run, shape, node->n, out));
    for (const struct lam_tpl_node *item = node->items; item; item = item->next) {
        struct lam_tpl_value v;
        LAM_TRY(eval(run, scope, item, &v));
        LAM_TRY(lam_tpl_list_push(run, out->list, v));
    }
    return LAM_OK;
}

static lam_code eval_positional(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                                struct lam_tpl_list *list)
{
    for (const struct lam_tpl_node *item = node->items; item; item = item->next) {
        struct lam_tpl_value v;
        const struct lam_tpl_list *spread;
        if (item->type == LAM_TPL_N_NAMED || (item->type == LAM_TPL_N_SPREAD && item->op == 'P')) continue;
        LAM_TRY(eval(run, scope, item->type == LAM_TPL_N_SPREAD ? item->a : item, &v));
        if (item->type != LAM_TPL_N_SPREAD) {
            LAM_TRY(lam_tpl_list_push(run, list, v));
            continue;
        }
        LAM_TRY(lam_tpl_iterate(run, v, &spread));
        for (size_t i = 0; i < spread->n; i++) LAM_TRY(lam_tpl_list_push(run, list, spread->items[i]));
    }
    return LAM_OK;
}

static lam_code add_named(struct lam_tpl_run *run, struct lam_tpl_dict *named, struct lam_tpl_value key,
                          struct lam_tpl_value value)
{
    const struct lam_tpl_value *old;
    if (key.kind != LAM_TPL_STRING) return lam_tpl_fail(run, "argument names must be strings");
    LAM_TRY(lam_tpl_dict_find(run, named, key, &old));
    if (old) return lam_tpl_fail(run, "the argument '%.*s' is given twice", LAM_TPL_SHOWN(key.text));
    return lam_tpl_dict_set(run, named, key, value);
}

static lam_code eval_named(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                           struct lam_tpl_dict *named)
{
    for (const struct lam_tpl_node *item = node->items; item; item = item->next) {
        struct lam_tpl_value v;
        if (item->type == LAM_TPL_N_NAMED) {
            LAM_TRY(eval(run, scope, item->a, &v));
            LAM_TRY(add_named(run, named, lam_tpl_string(item->name), v));
        } else if (item->type == LAM_TPL_N_SPREAD && item->op == 'P') {
            LAM_TRY(eval(run, scope, item->a, &v));
            if (v.kind != LAM_TPL_DICT) return lam_tpl_fail(run, "** of a value of type %s", lam_tpl_type_name(v));
            for (size_t i = 0; i < v.dict->n; i++) LAM_TRY(add_named(run, named, v.dict->pairs[i].key, v.dict->pairs[i].value));
        }
    }
    return LAM_OK;
}

/* The arguments of a call, filter or test, and a caller unless that is NULL. */
static lam_code eval_arguments(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                               const struct lam_tpl_value *caller, struct lam_tpl_args *out)
{
    struct lam_tpl_value list, named;
    *out = (struct lam_tpl_args){0};
    if (!node->items && !caller) return LAM_OK;
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, node->n, &list));
    LAM_TRY(lam_tpl_dict_new(run, 0, &named));
    LAM_TRY(eval_positional(run, scope, node, list.list));
    LAM_TRY(eval_named(run, scope, node, named.dict));
    if (caller) LAM_TRY(add_named(run, named.dict, lam_tpl_string(LAM_TPL_TEXT("caller")), *caller));
    out->n = list.list->n;
    out->n_named = named.dict->n;
    void *names = NULL;
    if (out->n_named) LAM_TRY(lam_tpl_run_alloc(run, out->n_named, sizeof *out->names, &names));
    for (size_t i = 0; i < out->n_named; i++) {
        ((struct lam_tpl_text *)names)[i] = named.dict->pairs[i].key.text;
        LAM_TRY(lam_tpl_list_push(run, list.list, named.dict->pairs[i].value));
    }
    out->names = names;
    out->values = list.list->items;
    return LAM_OK;
}

/* Run a body into a value. */
static lam_code capture(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *body,
                        struct lam_tpl_value *out, enum signal *signal)
{
    struct lam_str s = {0};
    lam_code code = exec_body(run, scope, body, &s, signal);
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

static lam_code no_argument(struct lam_tpl_run *run, const struct lam_tpl_node *macro, struct lam_tpl_text name)
{
    return lam_tpl_fail(run, "the macro %.*s has no argument '%.*s'", LAM_TPL_SHOWN(macro->name), LAM_TPL_SHOWN(name));
}

/* Bind what the parameters don't take: caller, kwargs and varargs. used[i]: the i-th named argument is taken. */
static lam_code bind_special(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *macro,
                             const struct lam_tpl_args *args, const bool *used)
{
    struct lam_tpl_value kwargs, varargs, caller = lam_tpl_undefined(LAM_TPL_TEXT("caller"));
    LAM_TRY(lam_tpl_dict_new(run, 0, &kwargs));
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_TUPLE, 0, &varargs));
    for (size_t i = 0; i < args->n_named; i++) {
        struct lam_tpl_value v = args->values[args->n + i];
        if (used[i]) continue;
        if (macro->takes_caller && lam_tpl_text_is(args->names[i], "caller")) caller = v;
        else if (macro->takes_kwargs) LAM_TRY(lam_tpl_dict_set(run, kwargs.dict, lam_tpl_string(args->names[i]), v));
        else return no_argument(run, macro, args->names[i]);
    }
    if (args->n > macro->n && !macro->takes_varargs)
        return lam_tpl_fail(run, "the macro %.*s takes %u arguments, not %zu", LAM_TPL_SHOWN(macro->name), (unsigned)macro->n, args->n);
    for (size_t i = macro->n; i < args->n; i++) LAM_TRY(lam_tpl_list_push(run, varargs.list, args->values[i]));
    if (macro->takes_caller) LAM_TRY(lam_tpl_scope_set(run, scope, LAM_TPL_TEXT("caller"), caller));
    if (macro->takes_kwargs) LAM_TRY(lam_tpl_scope_set(run, scope, LAM_TPL_TEXT("kwargs"), kwargs));
    if (macro->takes_varargs) LAM_TRY(lam_tpl_scope_set(run, scope, LAM_TPL_TEXT("varargs"), varargs));
    return LAM_OK;
}

static lam_code call_macro(struct lam_tpl_run *run, const struct lam_tpl_macro *macro, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    struct lam_tpl_scope *scope;
    enum signal signal = GO_ON;
    void *used;
    size_t i = 0;
    LAM_TRY(lam_tpl_scope_new(run, macro->scope, &scope));
    LAM_TRY(lam_tpl_run_alloc(run, args->n_named, sizeof(bool), &used));
    for (const struct lam_tpl_node *param = macro->node->items; param; param = param->next, i++) {
        struct lam_tpl_value v = lam_tpl_undefined(param->name);
        size_t k = i < args->n ? args->n_named : 0;
        while (k < args->n_named && !lam_tpl_text_equal(args->names[k], param->name)) k++;
        if (i < args->n) v = args->values[i];
        else if (k < args->n_named) v = args->values[args->n + k];
        else if (param->a) LAM_TRY(eval(run, scope, param->a, &v));
        if (k < args->n_named) ((bool *)used)[k] = true;
        LAM_TRY(lam_tpl_scope_set(run, scope, param->name, v));
    }
    LAM_TRY(bind_special(run, scope, macro->node, args, used));
    return capture(run, scope, macro->node->body, out, &signal);
}

static lam_code call_value(struct lam_tpl_run *run, struct lam_tpl_value callee, const struct lam_tpl_args *args,
                           struct lam_tpl_value *out)
{
    switch (callee.kind) {
    case LAM_TPL_MACRO: return call_macro(run, callee.macro, args, out);
    case LAM_TPL_METHOD: return lam_tpl_call_method(run, callee.method, args, out);
    case LAM_TPL_FUNCTION: return lam_tpl_call_function(run, callee.function, args, out);
    case LAM_TPL_UNDEFINED:
        return lam_tpl_fail(run, "'%.*s' is undefined and can't be called", LAM_TPL_SHOWN(callee.text));
    default: return lam_tpl_fail(run, "a value of type %s can't be called", lam_tpl_type_name(callee));
    }
}

static lam_code eval_call(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          const struct lam_tpl_value *caller, struct lam_tpl_value *out)
{
    struct lam_tpl_value callee;
    struct lam_tpl_args args;
    LAM_TRY(eval(run, scope, node->a, &callee));
    LAM_TRY(eval_arguments(run, scope, node, caller, &args));
    run->line = node->line;
    return call_value(run, callee, &args, out);
}

/* ---- expressions ---- */

static lam_code eval_dict(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          struct lam_tpl_value *out)
{
    LAM_TRY(lam_tpl_dict_new(run, node->n, out));
    for (const struct lam_tpl_node *pair = node->items; pair; pair = pair->next) {
        struct lam_tpl_value key, value;
        LAM_TRY(eval(run, scope, pair->a, &key));
        LAM_TRY(eval(run, scope, pair->b, &value));
        LAM_TRY(lam_tpl_dict_set(run, out->dict, key, value));
    }
    return LAM_OK;
}

static lam_code eval_item(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          struct lam_tpl_value *out)
{
    struct lam_tpl_value object, key;
    LAM_TRY(eval(run, scope, node->a, &object));
    if (node->b->type != LAM_TPL_N_SLICE) {
        LAM_TRY(eval(run, scope, node->b, &key));
        return lam_tpl_get_item(run, object, key, out);
    }
    const struct lam_tpl_node *parts[3] = {node->b->a, node->b->b, node->b->c};
    struct lam_tpl_value bounds[3];
    for (int i = 0; i < 3; i++) {
        bounds[i] = lam_tpl_none();
        if (parts[i]) LAM_TRY(eval(run, scope, parts[i], &bounds[i]));
    }
    return lam_tpl_get_slice(run, object, bounds, out);
}

static lam_code eval_concat(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                            struct lam_tpl_value *out)
{
    struct lam_str s = {0};
    lam_code code = LAM_OK;
    for (const struct lam_tpl_node *item = node->items; item && code == LAM_OK; item = item->next) {
        struct lam_tpl_value v;
        code = eval(run, scope, item, &v);
        if (code == LAM_OK) code = lam_tpl_print(run, v, &s);
    }
    if (code == LAM_OK) code = lam_tpl_string_copy(run, s.data, s.len, out);
    lam_str_release(&s);
    return code;
}

static lam_code holds(struct lam_tpl_run *run, char op, struct lam_tpl_value a, struct lam_tpl_value b, bool *out)
{
    int order;
    switch (op) {
    case '=': return lam_tpl_equal(run, a, b, out);
    case '!': LAM_TRY(lam_tpl_equal(run, a, b, out)); *out = !*out; return LAM_OK;
    case 'i': return lam_tpl_contains(run, b, a, out);
    case 'n': LAM_TRY(lam_tpl_contains(run, b, a, out)); *out = !*out; return LAM_OK;
    default: break;
    }
    LAM_TRY(lam_tpl_compare(run, a, b, &order));
    *out = op == '<' ? order < 0 : op == '>' ? order > 0 : op == 'l' ? order <= 0 : order >= 0;
    return LAM_OK;
}

static lam_code eval_compare(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                             struct lam_tpl_value *out)
{
    struct lam_tpl_value left, right;
    bool yes = true;
    LAM_TRY(eval(run, scope, node->a, &left));
    for (const struct lam_tpl_node *operand = node->items; operand && yes; operand = operand->next) {
        LAM_TRY(eval(run, scope, operand->a, &right));
        LAM_TRY(holds(run, operand->op, left, right, &yes));
        left = right;
    }
    *out = lam_tpl_bool(yes);
    return LAM_OK;
}

static lam_code eval_filter(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                            struct lam_tpl_value *out)
{
    struct lam_tpl_value operand;
    struct lam_tpl_args args;
    LAM_TRY(eval(run, scope, node->a, &operand));
    LAM_TRY(eval_arguments(run, scope, node, NULL, &args));
    run->line = node->line;
    return lam_tpl_apply_filter(run, node->name, operand, &args, out);
}

static lam_code eval_test(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          struct lam_tpl_value *out)
{
    struct lam_tpl_value operand;
    struct lam_tpl_args args;
    bool yes;
    LAM_TRY(eval(run, scope, node->a, &operand));
    LAM_TRY(eval_arguments(run, scope, node, NULL, &args));
    run->line = node->line;
    LAM_TRY(lam_tpl_apply_test(run, node->name, operand, &args, &yes));
    *out = lam_tpl_bool(yes);
    return LAM_OK;
}

static lam_code eval_logic(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                           struct lam_tpl_value *out)
{
    struct lam_tpl_value v;
    LAM_TRY(eval(run, scope, node->a, &v));
    bool truth = lam_tpl_truth(v);
    if (node->type == LAM_TPL_N_NOT) v = lam_tpl_bool(!truth);
    else if (truth == (node->type == LAM_TPL_N_AND)) return eval(run, scope, node->b, out);
    *out = v;
    return LAM_OK;
}

static lam_code eval_choice(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                            struct lam_tpl_value *out)
{
    struct lam_tpl_value condition;
    LAM_TRY(eval(run, scope, node->a, &condition));
    if (lam_tpl_truth(condition)) return eval(run, scope, node->b, out);
    if (node->c) return eval(run, scope, node->c, out);
    *out = lam_tpl_undefined(LAM_TPL_TEXT("an if without else"));
    return LAM_OK;
}

static lam_code eval_binary(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                            struct lam_tpl_value *out)
{
    struct lam_tpl_value a, b;
    LAM_TRY(eval(run, scope, node->a, &a));
    LAM_TRY(eval(run, scope, node->b, &b));
    run->line = node->line;
    return lam_tpl_binary(run, node->op, a, b, out);
}

static lam_code eval_attribute(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                               struct lam_tpl_value *out)
{
    struct lam_tpl_value object;
    LAM_TRY(eval(run, scope, node->a, &object));
    return lam_tpl_get_attribute(run, object, node->name, out);
}

static lam_code eval_sign(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          struct lam_tpl_value *out)
{
    struct lam_tpl_value v;
    LAM_TRY(eval(run, scope, node->a, &v));
    return lam_tpl_sign(run, node->op, v, out);
}

static lam_code eval(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                     struct lam_tpl_value *out)
{
    LAM_TRY(enter(run, node));
    *out = lam_tpl_none();
    lam_code code = LAM_OK;
    switch (node->type) {
    case LAM_TPL_N_CONSTANT: *out = node->value; break;
    case LAM_TPL_N_CAPTURED: *out = run->captured; break;
    case LAM_TPL_N_NAME: code = lam_tpl_scope_get(run, scope, node->name, out); break;
    case LAM_TPL_N_LIST: code = eval_list(run, scope, node, LAM_TPL_PLAIN_LIST, out); break;
    case LAM_TPL_N_TUPLE: code = eval_list(run, scope, node, LAM_TPL_TUPLE, out); break;
    case LAM_TPL_N_DICT: code = eval_dict(run, scope, node, out); break;
    case LAM_TPL_N_ATTRIBUTE: code = eval_attribute(run, scope, node, out); break;
    case LAM_TPL_N_ITEM: code = eval_item(run, scope, node, out); break;
    case LAM_TPL_N_CALL: code = eval_call(run, scope, node, NULL, out); break;
    case LAM_TPL_N_FILTER: code = eval_filter(run, scope, node, out); break;
    case LAM_TPL_N_TEST: code = eval_test(run, scope, node, out); break;
    case LAM_TPL_N_NOT: case LAM_TPL_N_AND: case LAM_TPL_N_OR: code = eval_logic(run, scope, node, out); break;
    case LAM_TPL_N_SIGN: code = eval_sign(run, scope, node, out); break;
    case LAM_TPL_N_BINARY: code = eval_binary(run, scope, node, out); break;
    case LAM_TPL_N_CONCAT: code = eval_concat(run, scope, node, out); break;
    case LAM_TPL_N_COMPARE: code = eval_compare(run, scope, node, out); break;
    case LAM_TPL_N_CHOICE: code = eval_choice(run, scope, node, out); break;
    default: code = lam_tpl_fail(run, "a statement where an expression belongs"); break;
    }
    run->depth--;
    return code;
}

/* ---- statements ---- */

static lam_code assign(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *target,
                       struct lam_tpl_value value);

static lam_code assign_tuple(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *target,
                             struct lam_tpl_value value)
{
    const struct lam_tpl_list *list;
    LAM_TRY(lam_tpl_iterate(run, value, &list));
    if (list->n != target->n) return lam_tpl_fail(run, "%zu values for %u names", list->n, (unsigned)target->n);
    size_t i = 0;
    for (const struct lam_tpl_node *item = target->items; item; item = item->next)
        LAM_TRY(assign(run, scope, item, list->items[i++]));
    return LAM_OK;
}

/* Recursion is bounded by the nesting of the source. */
static lam_code assign(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *target,
                       struct lam_tpl_value value)
{
    struct lam_tpl_value object;
    if (target->type == LAM_TPL_N_NAME) return lam_tpl_scope_set(run, scope, target->name, value);
    if (target->type == LAM_TPL_N_TUPLE) return assign_tuple(run, scope, target, value);
    LAM_TRY(eval(run, scope, target->a, &object));
    if (object.kind != LAM_TPL_NAMESPACE)
        return lam_tpl_fail(run, "can't assign an attribute of a value of type %s: not a namespace", lam_tpl_type_name(object));
    return lam_tpl_dict_set(run, object.dict, lam_tpl_string(target->name), value);
}

/* The items that the loop's condition lets through. */
static lam_code loop_items(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                           const struct lam_tpl_list **out)
{
    struct lam_tpl_value sequence, kept, yes;
    const struct lam_tpl_list *all;
    LAM_TRY(eval(run, scope, node->b, &sequence));
    run->line = node->line;
    LAM_TRY(lam_tpl_iterate(run, sequence, &all));
    *out = all;
    if (!node->c) return LAM_OK;
    LAM_TRY(lam_tpl_list_new(run, LAM_TPL_PLAIN_LIST, 0, &kept));
    struct lam_tpl_scope *inner = NULL;
    for (size_t i = 0; i < all->n; i++) {
        LAM_TRY(lam_tpl_scope_renew(run, scope, &inner));
        LAM_TRY(assign(run, inner, node->a, all->items[i]));
        LAM_TRY(eval(run, inner, node->c, &yes));
        if (lam_tpl_truth(yes)) LAM_TRY(lam_tpl_list_push(run, kept.list, all->items[i]));
    }
    *out = kept.list;
    return LAM_OK;
}

static lam_code exec_for(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                         struct lam_str *out, enum signal *signal)
{
    const struct lam_tpl_list *items;
    struct lam_tpl_scope *inner = NULL;
    struct lam_tpl_value loop = {.kind = LAM_TPL_LOOP};
    bool completed = false; /* an iteration ran to its end; as in Jinja2, else the else part is due */
    void *state;
    LAM_TRY(loop_items(run, scope, node, &items));
    LAM_TRY(lam_tpl_run_alloc(run, 1, sizeof *loop.loop, &state));
    loop.loop = state;
    loop.loop->items = items;
    for (size_t i = 0; i < items->n; i++) {
        enum signal inside = GO_ON;
        loop.loop->index = i;
        LAM_TRY(lam_tpl_tick(run, 1));
        LAM_TRY(lam_tpl_scope_renew(run, scope, &inner));
        LAM_TRY(lam_tpl_scope_set(run, inner, LAM_TPL_TEXT("loop"), loop));
        LAM_TRY(assign(run, inner, node->a, items->items[i]));
        LAM_TRY(exec_body(run, inner, node->body, out, &inside));
        completed = completed || inside == GO_ON;
        if (inside == BREAK) break;
    }
    if (completed || !node->other) return LAM_OK;
    LAM_TRY(lam_tpl_scope_new(run, scope, &inner));
    return exec_body(run, inner, node->other, out, signal);
}

static lam_code exec_if(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                        struct lam_str *out, enum signal *signal)
{
    for (const struct lam_tpl_node *branch = node->items; branch; branch = branch->next) {
        struct lam_tpl_value condition = lam_tpl_bool(true);
        if (branch->a) LAM_TRY(eval(run, scope, branch->a, &condition));
        if (lam_tpl_truth(condition)) return exec_body(run, scope, branch->body, out, signal);
    }
    return LAM_OK;
}

static lam_code exec_capture(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                             struct lam_str *out, enum signal *signal)
{
    struct lam_tpl_scope *inner;
    struct lam_tpl_value v;
    LAM_TRY(lam_tpl_scope_new(run, scope, &inner));
    LAM_TRY(capture(run, inner, node->body, &v, signal));
    if (*signal != GO_ON) return LAM_OK;
    if (node->b) {
        struct lam_tpl_value outer = run->captured;
        run->captured = v;
        LAM_TRY(eval(run, scope, node->b, &v));
        run->captured = outer;
    }
    return node->a ? assign(run, scope, node->a, v) : lam_tpl_print(run, v, out);
}

static lam_code make_macro(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                           struct lam_tpl_value *out)
{
    void *macro;
    LAM_TRY(lam_tpl_run_alloc(run, 1, sizeof *out->macro, &macro));
    *out = (struct lam_tpl_value){.kind = LAM_TPL_MACRO, .macro = macro};
    out->macro->node = node;
    out->macro->scope = scope;
    for (; scope && !scope->captured; scope = scope->parent) scope->captured = true;
    return LAM_OK;
}

static lam_code exec_macro(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node)
{
    struct lam_tpl_value macro;
    LAM_TRY(make_macro(run, scope, node, &macro));
    return lam_tpl_scope_set(run, scope, node->name, macro);
}

static lam_code exec_call_block(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                                struct lam_str *out)
{
    struct lam_tpl_value caller, v;
    LAM_TRY(make_macro(run, scope, node->b, &caller));
    LAM_TRY(eval_call(run, scope, node->a, &caller, &v));
    return lam_tpl_print(run, v, out);
}

static lam_code exec_with(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          struct lam_str *out, enum signal *signal)
{
    struct lam_tpl_scope *inner;
    LAM_TRY(lam_tpl_scope_new(run, scope, &inner));
    for (const struct lam_tpl_node *set = node->items; set; set = set->next) {
        struct lam_tpl_value v;
        LAM_TRY(eval(run, scope, set->b, &v));
        LAM_TRY(assign(run, inner, set->a, v));
    }
    return exec_body(run, inner, node->body, out, signal);
}

static lam_code exec(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                     struct lam_str *out, enum signal *signal)
{
    struct lam_tpl_value v;
    switch (node->type) {
    case LAM_TPL_N_TEXT: return lam_tpl_put(run, out, node->value.text.s, node->value.text.len);
    case LAM_TPL_N_PRINT:
        LAM_TRY(eval(run, scope, node->a, &v));
        run->line = node->line;
        return lam_tpl_print(run, v, out);
    case LAM_TPL_N_SET:
        LAM_TRY(eval(run, scope, node->b, &v));
        run->line = node->line;
        return assign(run, scope, node->a, v);
    case LAM_TPL_N_IF: return exec_if(run, scope, node, out, signal);
    case LAM_TPL_N_FOR: return exec_for(run, scope, node, out, signal);
    case LAM_TPL_N_CAPTURE: return exec_capture(run, scope, node, out, signal);
    case LAM_TPL_N_MACRO: return exec_macro(run, scope, node);
    case LAM_TPL_N_CALL_BLOCK: return exec_call_block(run, scope, node, out);
    case LAM_TPL_N_WITH: return exec_with(run, scope, node, out, signal);
    case LAM_TPL_N_BREAK: *signal = BREAK; return LAM_OK;
    case LAM_TPL_N_CONTINUE: *signal = CONTINUE; return LAM_OK;
    default: return lam_tpl_fail(run, "an expression where a statement belongs");
    }
}

/* The nodes of a list up to its end or to a break or continue. */
static lam_code exec_body(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *node,
                          struct lam_str *out, enum signal *signal)
{
    for (; node && *signal == GO_ON; node = node->next) {
        LAM_TRY(enter(run, node));
        LAM_TRY(exec(run, scope, node, out, signal));
        run->depth--;
    }
    return LAM_OK;
}

lam_code lam_tpl_execute(struct lam_tpl_run *run, struct lam_tpl_scope *scope, const struct lam_tpl_node *body,
                         struct lam_str *out)
{
    enum signal signal = GO_ON;
    return exec_body(run, scope, body, out, &signal);
}
