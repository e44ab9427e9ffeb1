#include "text/template.h"

#include "text/template_ast.h"
#include "text/template_scope.h"
#include "text/template_text.h"

#include "base/alloc.h"

/* The source as Jinja reads it: LF line ends, without the last one. */
static lam_code normalized_source(struct lam_template *t, const char *source, size_t len,
                                  struct lam_tpl_text *out, lam_error *err)
{
    char *copy = lam_tpl_arena_alloc(&t->arena, len);
    size_t n = 0;
    if (!copy) return LAM_RAISE(err, LAM_E_NO_MEMORY, "no memory for a template of %zu bytes", len);
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') continue;
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n && copy[n - 1] == '\n') n--;
    *out = (struct lam_tpl_text){copy, n};
    return LAM_OK;
}

static lam_code compile(struct lam_template *t, const char *source, size_t len, lam_error *err)
{
    struct lam_tpl_text text = {"", 0};
    struct lam_tpl_token *tokens;
    size_t n;
    LAM_TRY(normalized_source(t, source, len, &text, err));
    LAM_TRY(lam_tpl_lex(text.s, text.len, &t->arena, &tokens, &n, err));
    lam_code code = lam_tpl_parse(t, tokens, err);
    lam_free(tokens);
    return code;
}

lam_code lam_template_compile(const char *source, size_t len, struct lam_template **out, lam_error *err)
{
    *out = NULL;
    if (len > LAM_TPL_MAX_SOURCE)
        return LAM_RAISE(err, LAM_E_LIMIT, "a template of %zu bytes; the limit is %zu", len, LAM_TPL_MAX_SOURCE);
    size_t bad = lam_tpl_invalid_utf8(source, len);
    if (bad != len) return LAM_RAISE(err, LAM_E_UTF8, "the template is not UTF-8 at byte %zu", bad);
    struct lam_template *t = lam_alloc(1, sizeof *t);
    if (!t) return LAM_RAISE(err, LAM_E_NO_MEMORY, "no memory for a template");
    lam_code code = compile(t, source, len, err);
    if (code == LAM_OK) *out = t;
    else lam_template_free(t);
    return code;
}

void lam_template_free(struct lam_template *t)
{
    if (!t) return;
    lam_tpl_arena_release(&t->arena);
    lam_free(t);
}

static lam_code render(struct lam_tpl_run *run, const struct lam_template *t, const json_t *variables,
                       struct lam_str *out)
{
    struct lam_tpl_scope *globals, *scope;
    struct lam_tpl_value object;
    LAM_TRY(lam_tpl_from_json(run, variables, &object));
    LAM_TRY(lam_tpl_scope_new(run, NULL, &globals));
    for (size_t i = 0; i < object.dict->n; i++) {
        const struct lam_tpl_pair *pair = &object.dict->pairs[i];
        if (lam_tpl_text_is(pair->key.text, "strftime_now") && pair->value.kind == LAM_TPL_INT) {
            run->has_clock = true;
            run->clock = pair->value.i;
        } else {
            LAM_TRY(lam_tpl_scope_set(run, globals, pair->key.text, pair->value));
        }
    }
    LAM_TRY(lam_tpl_scope_new(run, globals, &scope));
    return lam_tpl_execute(run, scope, t->body, out);
}

lam_code lam_template_render(const struct lam_template *t, const json_t *variables, struct lam_str *out, lam_error *err)
{
    if (!json_is_object(variables)) return LAM_RAISE(err, LAM_E_ARGUMENT, "a template's variables must be an object");
    struct lam_tpl_run run = {.err = err};
    struct lam_str text = {0};
    lam_code code = render(&run, t, variables, &text);
    if (code == LAM_OK && !lam_str_append(out, text.data ? text.data : "", text.len))
        code = LAM_RAISE(err, LAM_E_NO_MEMORY, "no memory for a rendered template");
    lam_str_release(&text);
    lam_tpl_arena_release(&run.arena);
    return code;
}
