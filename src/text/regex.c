#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include "base/alloc.h"

#include <pcre2.h>

/* Backtracking steps for one match, and the memory for them (KiB). Real expressions need a few steps per character;
 * the limits make a hostile one an error. */
#define MATCH_LIMIT 20000000u
#define HEAP_LIMIT_KIB (256u * 1024u)

struct lam_regex {
    pcre2_code *code;
};

struct lam_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
};

lam_code lam_regex_compile(const char *pattern, size_t len, struct lam_regex **out, lam_error *err)
{
    struct lam_str translated = {0};
    lam_code code = lam_regex_translate(pattern, len, &translated, err);
    struct lam_regex *r = code == LAM_OK ? lam_alloc(1, sizeof *r) : NULL;
    if (code == LAM_OK && !r) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "pre-tokenizer expression");
    if (code == LAM_OK) {
        int number;
        PCRE2_SIZE where;
        r->code = pcre2_compile((PCRE2_SPTR)(translated.data ? translated.data : ""), translated.len, PCRE2_UTF | PCRE2_UCP,
                                &number, &where, NULL);
        if (!r->code)
            code = LAM_RAISE(err, LAM_E_PRETOKENIZER, "pre-tokenizer expression \"%.*s\": PCRE2 error %d at %zu of its form",
                             (int)(len < 200 ? len : 200), pattern, number, (size_t)where);
    }
    if (code == LAM_OK) {
        uint32_t matches_empty = 0;
        pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
        if (matches_empty)
            code = LAM_RAISE(err, LAM_E_PRETOKENIZER, "pre-tokenizer expression \"%.*s\" matches empty text",
                             (int)(len < 200 ? len : 200), pattern);
    }
    lam_str_release(&translated);
    if (code != LAM_OK) {
        lam_regex_free(r);
        return code;
    }
    *out = r;
    return LAM_OK;
}

void lam_regex_free(struct lam_regex *r)
{
    if (!r) return;
    pcre2_code_free(r->code);
    lam_free(r);
}

lam_code lam_matcher_new(struct lam_matcher **out, lam_error *err)
{
    struct lam_matcher *m = lam_alloc(1, sizeof *m);
    if (m) {
        m->data = pcre2_match_data_create(1, NULL);
        m->context = pcre2_match_context_create(NULL);
    }
    if (!m || !m->data || !m->context) {
        lam_matcher_free(m);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "pre-tokenizer scratch");
    }
    pcre2_set_match_limit(m->context, MATCH_LIMIT);
    pcre2_set_heap_limit(m->context, HEAP_LIMIT_KIB);
    *out = m;
    return LAM_OK;
}

void lam_matcher_free(struct lam_matcher *m)
{
    if (!m) return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    lam_free(m);
}

lam_code lam_regex_find(const struct lam_regex *r, struct lam_matcher *m, const char *text, size_t len, size_t from,
                        bool *found, size_t *start, size_t *end, lam_error *err)
{
    int rc = pcre2_match(r->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    *found = rc >= 0;
    if (rc >= 0) {
        const PCRE2_SIZE *ovector = pcre2_get_ovector_pointer(m->data);
        *start = ovector[0];
        *end = ovector[1];
        return LAM_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH) return LAM_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return LAM_RAISE(err, LAM_E_NO_MEMORY, "pre-tokenizer match");
    return LAM_RAISE(err, LAM_E_LIMIT, "pre-tokenizer expression: PCRE2 gave up (%d) at byte %zu of %zu", rc, from, len);
}
