/* Chat templates against other programs: @huggingface/jinja 0.5.11 (expected-hf-jinja.json, golden-hf-jinja.json) and
 * Jinja2 3.1.6 as transformers sets it up (the others). Where the two differ, Jinja2 is right: models were
 * trained on what it rendered. tools/make_template_*.{py,mjs} wrote all but the first file. */
#include "text/template.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/data/templates/"
/* 2026-11-29 12:34:56, the clock of conversations.json and the day of expected-hf-jinja.json. */
#define CLOCK 1795955696

static json_t *load(const char *name)
{
    char path[200];
    json_error_t error;
    snprintf(path, sizeof path, FOLDER "%s", name);
    json_t *json = json_load_file(path, 0, &error);
    if (!json) fail_msg("%s: %s", path, error.text);
    return json;
}

static struct lam_str read_template(const char *name)
{
    char path[200], bytes[4096];
    struct lam_str text = {0};
    size_t n;
    snprintf(path, sizeof path, FOLDER "%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("no file %s", path);
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0) assert_true(lam_str_append(&text, bytes, n));
    fclose(f);
    return text;
}

/* Compile and render; *out is released by the caller. */
static lam_code render(const char *source, size_t len, const json_t *variables, struct lam_str *out, lam_error *err)
{
    struct lam_template *t;
    memset(err, 0, sizeof *err);
    lam_code code = lam_template_compile(source, len, &t, err);
    if (code != LAM_OK) assert_null(t);
    else code = lam_template_render(t, variables, out, err);
    lam_template_free(t);
    if (code != LAM_OK) {
        assert_int_equal(err->code, code);
        assert_true(err->message[0]);
        assert_int_equal(out->len, 0);
    }
    return code;
}

static bool same_text(const struct lam_str *got, const json_t *expected)
{
    return got->len == json_string_length(expected) && (got->len == 0 || memcmp(got->data, json_string_value(expected), got->len) == 0);
}

static const char *string_at(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

/* ---- the renderings of @huggingface/jinja ---- */

/* Variables of a case in expected-hf-jinja.json. */
static json_t *case_variables(const json_t *all, const json_t *one)
{
    json_t *conversation = json_object_get(json_object_get(all, "conversations"), string_at(one, "conversation"));
    return json_pack("{s:O, s:O, s:O, s:O, s:I}", "messages", conversation,
                     "add_generation_prompt", json_object_get(one, "add_generation_prompt"),
                     "bos_token", json_object_get(one, "bos_token"), "eos_token", json_object_get(one, "eos_token"),
                     "strftime_now", (json_int_t)CLOCK);
}

/* All 186 that succeed are equal; the 34 that fail there do what Jinja2 does (expected-jinja2.json). */
static void test_hf_jinja(void **state)
{
    (void)state;
    json_t *all = load("expected-hf-jinja.json"), *failed = load("expected-jinja2.json"), *one;
    size_t i, equal = 0, refused = 0, next_failed = 0, by_jinja2 = 0;
    json_array_foreach(json_object_get(all, "cases"), i, one) {
        json_t *variables = case_variables(all, one), *expected = json_object_get(one, "expected");
        struct lam_str source = read_template(string_at(one, "template")), out = {0};
        lam_error err;
        lam_code code = render(source.data, source.len, variables, &out, &err);
        if (!expected) {
            json_t *jinja2 = json_array_get(failed, next_failed++);
            assert_string_equal(string_at(jinja2, "template"), string_at(one, "template"));
            expected = json_object_get(jinja2, "text");
            by_jinja2 += expected != NULL;
        } else {
            equal++;
        }
        if (expected && (code != LAM_OK || !same_text(&out, expected)))
            fail_msg("%s, %s: %s", string_at(one, "template"), string_at(one, "conversation"), code ? err.message : out.data);
        if (!expected) {
            assert_int_equal(code, LAM_E_TEMPLATE);
            refused++;
        }
        lam_str_release(&source);
        lam_str_release(&out);
        json_decref(variables);
    }
    assert_int_equal(equal, 186);
    assert_int_equal(by_jinja2, 24);
    assert_int_equal(refused, 10);
    json_decref(all);
    json_decref(failed);
}

/* ---- every template with every conversation ---- */

/* What Jinja2 refuses and we don't: it can't make JSON of a lazy sequence, @huggingface/jinja can. */
static bool lazy_json(const char *file, const json_t *jinja2)
{
    return strcmp(file, "llama-cpp-deepseek-r1.jinja") == 0 && strstr(string_at(jinja2, "error"), "generator is not JSON serializable");
}

static void check_conversation(const char *file, const struct lam_str *source, const char *name, json_t *variables,
                               const json_t *jinja2, const json_t *hf)
{
    struct lam_str out = {0};
    lam_error err;
    const json_t *expected = json_object_get(jinja2, "text");
    json_object_set_new(variables, "strftime_now", json_integer(CLOCK));
    lam_code code = render(source->data, source->len, variables, &out, &err);
    if (!expected && lazy_json(file, jinja2)) expected = json_object_get(hf, "text");
    if (expected ? code != LAM_OK || !same_text(&out, expected) : code != LAM_E_TEMPLATE)
        fail_msg("%s, %s: %s", file, name, code ? err.message : out.data);
    lam_str_release(&out);
}

static void test_conversations(void **state)
{
    (void)state;
    json_t *conversations = load("conversations.json"), *jinja2 = load("golden-jinja2.json"), *hf = load("golden-hf-jinja.json");
    json_t *results, *variables;
    const char *file, *name;
    size_t n = 0;
    json_object_foreach(jinja2, file, results) {
        struct lam_str source = read_template(file);
        json_object_foreach(json_object_get(conversations, "conversations"), name, variables) {
            const json_t *other = json_object_get(json_object_get(hf, file), name);
            check_conversation(file, &source, name, variables, json_object_get(results, name), other);
            n++;
        }
        lam_str_release(&source);
    }
    assert_int_equal(n, 55 * 25);
    json_decref(conversations);
    json_decref(jinja2);
    json_decref(hf);
}

/* ---- the language, piece by piece ---- */

static void test_snippets(void **state)
{
    (void)state;
    json_t *golden = load("golden-snippets.json"), *one, *variables = json_object_get(golden, "variables");
    size_t i, n = 0;
    json_object_set_new(variables, "strftime_now", json_integer(CLOCK));
    json_array_foreach(json_object_get(golden, "snippets"), i, one) {
        json_t *source = json_object_get(one, "source"), *expected = json_object_get(one, "text");
        struct lam_str out = {0};
        lam_error err;
        lam_code code = render(json_string_value(source), json_string_length(source), variables, &out, &err);
        if (expected ? code != LAM_OK || !same_text(&out, expected) : code != LAM_E_TEMPLATE)
            fail_msg("%s: %s", json_string_value(source), code ? err.message : out.data);
        lam_str_release(&out);
        n++;
    }
    assert_true(n > 250);
    json_decref(golden);
}

static void test_dates(void **state)
{
    (void)state;
    json_t *golden = load("golden-snippets.json"), *one;
    size_t i;
    json_array_foreach(json_object_get(golden, "dates"), i, one) {
        json_t *variables = json_pack("{s:O, s:O}", "strftime_now", json_object_get(one, "seconds"), "format", json_object_get(golden, "format"));
        struct lam_str out = {0};
        lam_error err;
        const char source[] = "{{ strftime_now(format) }}";
        assert_int_equal(render(source, strlen(source), variables, &out, &err), LAM_OK);
        assert_string_equal(out.data, string_at(one, "text"));
        lam_str_release(&out);
        json_decref(variables);
    }
    assert_true(i > 15);
    json_decref(golden);
}

/* ---- errors name the construct and its line ---- */

static void expect_error(const char *source, lam_code expected, const char *message)
{
    json_t *variables = json_pack("{s:s, s:[i, i], s:{s:i}, s:n}", "s", "text", "l", 1, 2, "d", "k", 1, "n");
    struct lam_str out = {0};
    lam_error err;
    lam_code code = render(source, strlen(source), variables, &out, &err);
    if (code != expected || !strstr(err.message, message)) fail_msg("%s: code %d, %s", source, code, code ? err.message : out.data);
    lam_str_release(&out);
    json_decref(variables);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct { const char *source, *message; } refused[] = {
        {"a\nb\n{% include 'x' %}", "template line 3: the statement 'include' is not supported"},
        {"{% extends 'x' %}", "line 1: the statement 'extends'"},
        {"{% import 'x' as y %}", "the statement 'import'"},
        {"{% from 'x' import y %}", "the statement 'from'"},
        {"{% block x %}{% endblock %}", "the statement 'block'"},
        {"{% autoescape true %}{% endautoescape %}", "the statement 'autoescape'"},
        {"{% do x %}", "the statement 'do'"},
        {"{% for x in l recursive %}{% endfor %}", "recursive loops"},
        {"\n\n{{ s\n|nonesuch }}", "line 4: the filter 'nonesuch'"},
        {"{{ s is nonesuch }}", "the test 'nonesuch'"},
        {"\n{{ s.zfill(3) }}", "line 2: the method zfill of a string"},
        {"{{ l.append(1) }}", "the method append of a list"},
        {"{{ d.pop('k') }}", "the method pop of a dict"},
        {"{{ '%s' % 5 }}", "formatting a string"},
        {"{{ s[] }}", "expected an expression"},
        {"{{ d.items }}", "printing a method"},
        {"{{ d.items() }}", "printing a lazy sequence"},
        {"{{ l|map('string') }}", "printing a lazy sequence"},
        {"{{ range }}", "printing a function"},
        {"{% macro f() %}{% endmacro %}{{ f }}", "printing a macro"},
        {"{{ f.name }}{% macro f() %}{% endmacro %}", "'f' is undefined"},
        {"{{ self.x }}", "the variable self"},
        {"{% raw %}x", "raw without endraw"},
        {"{{ 0x1f }}", "the number 0"},
        {"{{ 99999999999999999999 }}", "the number 99999999999999999999"},
        {"{{ 9223372036854775807 + 1 }}", "beyond the range of 64 bits"},
        {"{{ 3 ** 99 }}", "beyond the range of 64 bits"},
        {"{{ '\\N{DASH}' }}", "the escape \\N"},
        {"{{ '\\ud800' }}", "a bad \\u escape"},
        {"{{ l|sort(attribute='a,b') }}", "several attributes"},
        {"{{ 1.25|round(1) }}", "decimal places"},
        {"\n{{ strftime_now('%Y') }}", "line 2: strftime_now needs a clock"},
        {"{% if true %}\n\n{{ raise_exception('My reason: ' ~ s) }}{% endif %}", "template line 3: My reason: text"},
        {"{{ raise_exception('a\nb') }}", "a?b"},
        {"\n{{ nosuch.x }}", "line 2: 'nosuch' is undefined"},
        {"{{ d.nosuch.x }}", "'nosuch' is undefined"},
        {"{{ n + 1 }}", "no operation + between none and int"},
        {"{{ s + nosuch }}", "'nosuch' is undefined"},
        {"{{ nosuch() }}", "'nosuch' is undefined and can't be called"},
        {"{% for x in n %}{% endfor %}", "a value of type none can't be iterated"},
        {"{{ s.split(1) }}", "split needs a string, not int"},
        {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "the macro f takes 1 arguments, not 2"},
        {"x\n{% if true %}", "line 2: the template ends without 'elif'"},
        {"x\n{{ 'abc", "line 2: a string without its closing '"},
        {"x\n\n{# abc", "line 3: a comment without"},
        {"{% if true }}x", "unexpected '}'"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) expect_error(refused[i].source, LAM_E_TEMPLATE, refused[i].message);
}

/* ---- bounds ---- */

/* begin, then middle count times, then end. */
static void expect_limit(const char *begin, const char *middle, size_t count, const char *end, lam_code expected, const char *message)
{
    struct lam_str source = {0};
    assert_true(lam_str_puts(&source, begin));
    for (size_t i = 0; i < count; i++) assert_true(lam_str_puts(&source, middle));
    assert_true(lam_str_puts(&source, end));
    expect_error(source.data, expected, message);
    lam_str_release(&source);
}

static void test_bounds(void **state)
{
    (void)state;
    /* steps */
    expect_error("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", LAM_E_LIMIT, "");
    expect_error("{% set x = 'a' * 8000000 %}{% for i in range(100000) %}{{ 'aaaaaaaab' in x }}{% endfor %}", LAM_E_LIMIT, "steps");
    expect_error("{% set x = 'a' * 4000000 %}{{ ('a' * 2000000 ~ 'b') in x }}", LAM_E_LIMIT, "steps");
    expect_error("{% set x = range(100000)|list %}{{ x|unique|list|length }}", LAM_E_LIMIT, "steps");
    /* memory and text */
    expect_limit("{% set x = 'abcdefgh' %}", "{% set x = x ~ x %}", 64, "{{ x }}", LAM_E_LIMIT, "");
    expect_limit("{% set x = [1] %}", "{% set x = x + x %}", 64, "{{ x }}", LAM_E_LIMIT, "memory");
    expect_error("{{ 'abc' * 1000000000000 }}", LAM_E_LIMIT, "");
    expect_error("{{ [0] * 1000000000000 }}", LAM_E_LIMIT, "");
    expect_error("{% set x = 'a' * 1000 %}{{ x.replace('', x).replace('', x) }}", LAM_E_LIMIT, "");
    expect_error("{% set x = ['a' * 1000] * 1000 %}{{ (x * 100)|join }}", LAM_E_LIMIT, "");
    expect_error("{% for a in range(100000) %}{{ 'a' * 10000 }}{% endfor %}", LAM_E_LIMIT, "");
    /* depth */
    expect_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", LAM_E_LIMIT, "nested deeper");
    expect_error("{% macro f(x=f()) %}{% endmacro %}{{ f() }}", LAM_E_LIMIT, "nested deeper");
    expect_limit("{{ ", "(", 60, "1)))))))))))))))))))))))))))))))))))))))))))))))))))))))))))) }}", LAM_E_LIMIT, "nested deeper");
    expect_limit("{{ ", "(", 100000, "1", LAM_E_TEMPLATE, "brackets nested deeper");
    expect_limit("{{ ", "not ", 100000, "1 }}", LAM_E_LIMIT, "nested deeper");
    expect_limit("{{ ", "- ", 100000, "1 }}", LAM_E_LIMIT, "nested deeper");
    expect_limit("{{ ", "1 if 1 else ", 50000, "1 }}", LAM_E_LIMIT, "nested deeper");
    expect_limit("", "{% if 1 %}", 50000, "", LAM_E_LIMIT, "nested deeper");
    expect_limit("{{ 1", " + 1", 50000, " }}", LAM_E_LIMIT, "nested deeper");
    expect_limit("{{ s", "|trim", 50000, " }}", LAM_E_LIMIT, "nested deeper");
    expect_limit("{{ s", ".x", 50000, " }}", LAM_E_LIMIT, "nested deeper");
    expect_error("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}", LAM_E_TEMPLATE, "nested deeper");
    expect_error("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", LAM_E_TEMPLATE, "nested deeper");
    expect_error("{% set ns = namespace(x=[], y=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}", LAM_E_TEMPLATE, "nested deeper");
    expect_error("{% set ns = namespace(x=['a']) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|map(*(['map'] * 999 + ['upper']))|list }}",
                 LAM_E_TEMPLATE, "filters nested deeper");
    expect_error("{% for i in range(100001) %}{% endfor %}", LAM_E_TEMPLATE, "a range of more than 100000");
    /* Chains within the bounds work. */
    json_t *variables = json_object();
    struct lam_str source = {0}, out = {0};
    lam_error err;
    lam_str_puts(&source, "{{ 'a'");
    for (int i = 0; i < 300; i++) lam_str_puts(&source, " + 'a'");
    lam_str_puts(&source, " }}");
    assert_int_equal(render(source.data, source.len, variables, &out, &err), LAM_OK);
    assert_int_equal(out.len, 301);
    lam_str_release(&source);
    lam_str_release(&out);
    json_decref(variables);
}

static void test_deep_variables(void **state)
{
    (void)state;
    json_t *variables = json_object(), *deep = json_array();
    for (int i = 0; i < 5000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    json_object_set_new(variables, "x", deep);
    struct lam_str out = {0};
    lam_error err;
    assert_int_equal(render("a", 1, variables, &out, &err), LAM_E_LIMIT);
    json_decref(variables);
}

/* ---- the interface ---- */

static void test_interface(void **state)
{
    (void)state;
    json_t *variables = json_pack("{s:s%}", "text", "a\0b", (size_t)3), *list = json_array();
    struct lam_str out = {0};
    struct lam_template *t;
    lam_error err;
    assert_int_equal(lam_template_compile("\xff", 1, &t, &err), LAM_E_UTF8);
    assert_null(t);
    assert_int_equal(lam_template_compile("{{", 2, &t, NULL), LAM_E_TEMPLATE);
    assert_int_equal(lam_template_compile("", 0, &t, &err), LAM_OK);
    assert_int_equal(lam_template_render(t, variables, &out, &err), LAM_OK);
    assert_int_equal(out.len, 0);
    assert_int_equal(lam_template_render(t, list, &out, &err), LAM_E_ARGUMENT);
    assert_int_equal(lam_template_render(t, NULL, &out, &err), LAM_E_ARGUMENT);
    lam_template_free(t);
    lam_template_free(NULL);

    /* Text with a zero byte passes; output is appended; an error leaves it alone. */
    assert_int_equal(lam_template_compile("<{{ text }}>{{ nosuch.x if stop }}", 34, &t, &err), LAM_OK);
    assert_int_equal(lam_template_render(t, variables, &out, &err), LAM_OK);
    assert_int_equal(lam_template_render(t, variables, &out, &err), LAM_OK);
    assert_int_equal(out.len, 10);
    assert_memory_equal(out.data, "<a\0b><a\0b>", 10);
    json_object_set_new(variables, "stop", json_true());
    assert_int_equal(lam_template_render(t, variables, &out, NULL), LAM_E_TEMPLATE);
    assert_int_equal(out.len, 10);
    lam_template_free(t);
    lam_str_release(&out);
    json_decref(variables);
    json_decref(list);
}

static void test_broken_variables(void **state)
{
    (void)state;
    json_t *variables = json_object();
    struct lam_str out = {0};
    lam_error err;
    json_object_set_new(variables, "x", json_stringn_nocheck("\xc3(", 2));
    assert_int_equal(render("{{ x }}", 7, variables, &out, &err), LAM_E_UTF8);
    json_decref(variables);
}

/* Every prefix of a real template either compiles or is refused; none reads past its end. */
static void test_prefixes(void **state)
{
    (void)state;
    static const char *const files[] = {"Qwen-Qwen3-0.6B.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja", "google-gemma-2-2b-it.jinja"};
    json_t *variables = json_object();
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct lam_str source = read_template(files[f]);
        for (size_t len = 0; len < source.len; len++) {
            char *exact = lam_strndup(source.data, len); /* so that a sanitizer sees an over-read */
            struct lam_str out = {0};
            lam_error err;
            render(exact, len, variables, &out, &err);
            lam_free(exact);
            lam_str_release(&out);
        }
        lam_str_release(&source);
    }
    json_decref(variables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf_jinja),      cmocka_unit_test(test_conversations), cmocka_unit_test(test_snippets),
        cmocka_unit_test(test_dates),         cmocka_unit_test(test_refused),       cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_deep_variables), cmocka_unit_test(test_interface),    cmocka_unit_test(test_broken_variables),
        cmocka_unit_test(test_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
