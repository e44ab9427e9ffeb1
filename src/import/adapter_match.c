#define PCRE2_CODE_UNIT_WIDTH 8
#include "import/adapter_match.h"
#include "base/alloc.h"
#include "base/str.h"

#include <pcre2.h>
#include <string.h>

#define MAX_PATTERN 4096        /* bytes of one expression */
#define MAX_ENTRIES 16384       /* entries of a list or a table */
#define MAX_DEPTH 64            /* nested groups */
#define MAX_STEPS 20000000u     /* expression items tried, over all matches of one matcher or table */
#define MATCH_LIMIT 1000000u    /* PCRE2's own count, for one match */
#define HEAP_LIMIT_KIB 65536u

enum form {
    FORM_FULL,      /* re.fullmatch(key) */
    FORM_ENDING,    /* re.match(r"(.*\.)?(key)$") */
    FORM_LAYER,     /* re.match(r"(?:^|.*?\.)key\.(?P<idx>\d+)\.") */
    FORM_ANY_LAYER  /* re.match(r".*?\.[^.]*\.(?P<idx>\d+)\."), no key */
};

struct pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    int index_group; /* of (?P<idx>…), or 0 */
};

/* Python's syntax, cut down to what PCRE2 reads in the same way. */
struct scan {
    const char *text;
    size_t len, at;
    unsigned depth;
};

static lam_code refuse(const struct scan *s, const char *what, lam_error *err)
{
    return LAM_RAISE(err, LAM_E_UNSUPPORTED, "module expression \"%.*s\": %s at byte %zu", (int)(s->len < 200 ? s->len : 200),
                     s->text, what, s->at);
}

static bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static lam_code scan_escape(struct scan *s, bool in_class, lam_error *err)
{
    if (s->at + 1 >= s->len) return refuse(s, "a backslash ends it", err);
    char c = s->text[s->at + 1];
    const char *known = in_class ? "dDwWsSbntrf" : "dDwWsSbBAZntrf";
    if (c == 0 || (is_alnum(c) && !strchr(known, c))) return refuse(s, "an escape that is not supported", err);
    s->at += 2;
    return LAM_OK;
}

static lam_code scan_class(struct scan *s, lam_error *err)
{
    struct scan start = *s;
    s->at++;
    if (s->at < s->len && s->text[s->at] == '^') s->at++;
    if (s->at < s->len && s->text[s->at] == ']') s->at++;
    while (s->at < s->len && s->text[s->at] != ']') {
        char c = s->text[s->at], next = s->at + 1 < s->len ? s->text[s->at + 1] : 0;
        if (c == '\\') {
            LAM_TRY(scan_escape(s, true, err));
            continue;
        }
        if (c == '[' && (next == ':' || next == '.' || next == '=')) return refuse(s, "a POSIX class", err);
        s->at++;
    }
    if (s->at == s->len) return refuse(&start, "a class without an end", err);
    s->at++;
    return LAM_OK;
}

static lam_code scan_group(struct scan *s, lam_error *err)
{
    static const char *const openings[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?P<"};
    if (++s->depth > MAX_DEPTH) return refuse(s, "too many nested groups", err);
    size_t skip = 1;
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        size_t n = strlen(openings[i]);
        if (s->len - s->at >= n && memcmp(s->text + s->at, openings[i], n) == 0) skip = n;
    }
    char next = s->at + 1 < s->len ? s->text[s->at + 1] : 0;
    if (skip == 1 && (next == '?' || next == '*')) return refuse(s, "a group that is not supported", err);
    s->at += skip;
    return LAM_OK;
}

static void skip_digits(struct scan *s)
{
    while (s->at < s->len && s->text[s->at] >= '0' && s->text[s->at] <= '9') s->at++;
}

/* {m}, {m,} or {m,n}; other braces mean different things to different versions. */
static lam_code scan_braces(struct scan *s, lam_error *err)
{
    struct scan start = *s;
    size_t first = ++s->at;
    skip_digits(s);
    bool ok = s->at > first;
    if (ok && s->at < s->len && s->text[s->at] == ',') {
        s->at++;
        skip_digits(s);
    }
    if (!ok || s->at == s->len || s->text[s->at] != '}') return refuse(&start, "braces that are no repeat count", err);
    s->at++;
    return LAM_OK;
}

static lam_code check_syntax(const char *text, size_t len, lam_error *err)
{
    struct scan s = {.text = text, .len = len};
    if (len > MAX_PATTERN) return LAM_RAISE(err, LAM_E_LIMIT, "a module expression of %zu bytes; %d are possible", len, MAX_PATTERN);
    while (s.at < len) {
        switch (text[s.at]) {
        case '\\': LAM_TRY(scan_escape(&s, false, err)); break;
        case '[': LAM_TRY(scan_class(&s, err)); break;
        case '(': LAM_TRY(scan_group(&s, err)); break;
        case '{': LAM_TRY(scan_braces(&s, err)); break;
        case ')':
            if (s.depth-- == 0) return refuse(&s, "a ')' without its '('", err);
            s.at++;
            break;
        default: s.at++;
        }
    }
    return s.depth ? refuse(&s, "a '(' without its ')'", err) : LAM_OK;
}

static bool put_form(struct lam_str *out, enum form form, const char *key, size_t len)
{
    static const char *const before[] = {"", "(.*\\.)?(", "(?:^|.*?\\.)", ".*?\\.[^.]*"};
    static const char *const after[] = {"", ")$", "\\.(?P<idx>\\d+)\\.", "\\.(?P<idx>\\d+)\\."};
    return lam_str_puts(out, before[form]) && lam_str_append(out, key, len) && lam_str_puts(out, after[form]);
}

static void pattern_release(struct pattern *p)
{
    pcre2_match_data_free(p->data);
    pcre2_code_free(p->code);
    *p = (struct pattern){0};
}

static lam_code pattern_compile(struct pattern *p, enum form form, const char *key, size_t len, lam_error *err)
{
    LAM_TRY(check_syntax(key, len, err));
    struct lam_str text = {0};
    if (!put_form(&text, form, key, len)) {
        lam_str_release(&text);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "module expression");
    }
    uint32_t options = PCRE2_UTF | PCRE2_ANCHORED | PCRE2_AUTO_CALLOUT | (form == FORM_FULL ? PCRE2_ENDANCHORED : 0);
    int number = 0;
    PCRE2_SIZE where = 0;
    p->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len, options, &number, &where, NULL);
    lam_str_release(&text);
    if (!p->code)
        return LAM_RAISE(err, number == PCRE2_ERROR_HEAP_FAILED ? LAM_E_NO_MEMORY : LAM_E_FORMAT,
                         "module expression \"%.*s\": PCRE2 error %d", (int)(len < 200 ? len : 200), key, number);
    p->data = pcre2_match_data_create_from_pattern(p->code, NULL);
    if (!p->data) return LAM_RAISE(err, LAM_E_NO_MEMORY, "module expression");
    if (form >= FORM_LAYER) p->index_group = pcre2_substring_number_from_name(p->code, (PCRE2_SPTR)"idx");
    return LAM_OK;
}

/* What the matches of one owner share: limits and the count of steps. */
struct runner {
    pcre2_match_context *context;
    uint64_t steps;
};

static int count_step(pcre2_callout_block *block, void *context)
{
    (void)block;
    return ++((struct runner *)context)->steps > MAX_STEPS ? PCRE2_ERROR_CALLOUT : 0;
}

static lam_code runner_init(struct runner *r, lam_error *err)
{
    r->context = pcre2_match_context_create(NULL);
    if (!r->context) return LAM_RAISE(err, LAM_E_NO_MEMORY, "module expressions");
    pcre2_set_match_limit(r->context, MATCH_LIMIT);
    pcre2_set_heap_limit(r->context, HEAP_LIMIT_KIB);
    pcre2_set_callout(r->context, count_step, r);
    return LAM_OK;
}

/* *index: what (?P<idx>…) matched, -1 if it took no part. May be NULL. */
static lam_code pattern_match(const struct pattern *p, struct runner *r, const char *name, bool *matched, int64_t *index,
                              lam_error *err)
{
    int rc = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, p->data, r->context);
    *matched = rc > 0;
    if (rc == PCRE2_ERROR_NOMEMORY) return LAM_RAISE(err, LAM_E_NO_MEMORY, "module expression");
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return LAM_RAISE(err, LAM_E_LIMIT, "a module expression takes too many steps on %s (PCRE2 %d)", name, rc);
    if (rc <= 0 || !index) return LAM_OK;
    *index = -1;
    const PCRE2_SIZE *group = pcre2_get_ovector_pointer(p->data) + 2 * p->index_group;
    if (p->index_group <= 0 || p->index_group >= rc || group[0] == PCRE2_UNSET) return LAM_OK;
    int64_t n = 0;
    for (PCRE2_SIZE i = group[0]; i < group[1] && n < UINT32_MAX; i++) n = n * 10 + (name[i] - '0');
    *index = n;
    return LAM_OK;
}

struct lam_module_match {
    struct lam_module_rules rules;
    bool all_linear, by_layer;
    bool *used, *saved;               /* of a target list's entries, of modules_to_save's */
    struct pattern target, exclude, feedforward; /* code is NULL where the rule is no expression */
    struct pattern *layers;
    size_t n_layers;
    struct runner runner;
};

static const json_t *present(const json_t *value) { return json_is_null(value) ? NULL : value; }

static lam_code check_list(const json_t *list, const char *field, lam_error *err)
{
    if (json_array_size(list) > MAX_ENTRIES) return LAM_RAISE(err, LAM_E_LIMIT, "%s has %zu entries", field, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i))) return LAM_RAISE(err, LAM_E_FORMAT, "%s[%zu] is not a string", field, i);
    return LAM_OK;
}

/* A list of strings is kept as it is; a string becomes an expression, unless it is empty and that means absent. */
static lam_code init_names(const json_t *value, const char *field, struct pattern *p, lam_error *err)
{
    if (!value) return LAM_OK;
    if (json_is_array(value)) return check_list(value, field, err);
    if (!json_is_string(value)) return LAM_RAISE(err, LAM_E_FORMAT, "%s is neither a list nor a string", field);
    return pattern_compile(p, FORM_FULL, json_string_value(value), json_string_length(value), err);
}

static lam_code init_layer_numbers(struct lam_module_match *m, lam_error *err)
{
    const json_t *layers = m->rules.layers_to_transform;
    m->by_layer = json_is_integer(layers) || json_array_size(layers) > 0;
    if (layers && !json_is_integer(layers) && !json_is_array(layers))
        return LAM_RAISE(err, LAM_E_FORMAT, "layers_to_transform is neither a number nor a list");
    if (json_array_size(layers) > MAX_ENTRIES) return LAM_RAISE(err, LAM_E_LIMIT, "layers_to_transform has too many entries");
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (!json_is_integer(json_array_get(layers, i)))
            return LAM_RAISE(err, LAM_E_FORMAT, "layers_to_transform[%zu] is not a layer number", i);
    return LAM_OK;
}

static bool is_empty(const json_t *value)
{
    return !value || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static lam_code init_layer_patterns(struct lam_module_match *m, lam_error *err)
{
    const json_t *value = m->rules.layers_pattern;
    if (value && !json_is_array(value) && !json_is_string(value))
        return LAM_RAISE(err, LAM_E_FORMAT, "layers_pattern is neither a list nor a string");
    if (!is_empty(value) && !m->rules.layers_to_transform)
        return LAM_RAISE(err, LAM_E_FORMAT, "layers_pattern without layers_to_transform");
    if (json_is_array(value)) LAM_TRY(check_list(value, "layers_pattern", err));
    m->n_layers = json_is_array(value) && !is_empty(value) ? json_array_size(value) : 1;
    m->layers = lam_alloc(m->n_layers, sizeof *m->layers);
    if (!m->layers) return LAM_RAISE(err, LAM_E_NO_MEMORY, "layers_pattern");
    if (is_empty(value)) return pattern_compile(&m->layers[0], FORM_ANY_LAYER, "", 0, err);
    for (size_t i = 0; i < m->n_layers; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        LAM_TRY(pattern_compile(&m->layers[i], FORM_LAYER, json_string_value(one), json_string_length(one), err));
    }
    return LAM_OK;
}

/* PEFT takes the entries as expressions when it decides what is no target, and as endings when it decides what is saved: only names of
 * modules mean the same in both. */
static lam_code init_saved(struct lam_module_match *m, lam_error *err)
{
    const json_t *list = m->rules.modules_to_save;
    if (list && !json_is_array(list)) return LAM_RAISE(err, LAM_E_FORMAT, "modules_to_save is not a list");
    LAM_TRY(check_list(list, "modules_to_save", err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t len = json_string_length(json_array_get(list, i));
        for (size_t k = 0; k < len; k++)
            if (!is_alnum(name[k]) && name[k] != '_' && name[k] != '.')
                return LAM_RAISE(err, LAM_E_UNSUPPORTED, "modules_to_save[%zu] is \"%.100s\", which is no module's name", i, name);
        if (len == 0) return LAM_RAISE(err, LAM_E_UNSUPPORTED, "modules_to_save[%zu] is empty", i);
    }
    m->saved = lam_alloc(json_array_size(list), sizeof *m->saved);
    return m->saved ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "modules_to_save");
}

static bool is_all_linear(const json_t *value)
{
    static const char wanted[] = "all-linear";
    const char *text = json_string_value(value);
    if (!text || json_string_length(value) != sizeof wanted - 1) return false;
    for (size_t i = 0; wanted[i]; i++)
        if ((text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]) != wanted[i]) return false;
    return true;
}

static lam_code match_init(struct lam_module_match *m, lam_error *err)
{
    struct lam_module_rules *r = &m->rules;
    r->target_modules = present(r->target_modules);
    r->exclude_modules = present(r->exclude_modules);
    r->layers_to_transform = present(r->layers_to_transform);
    r->layers_pattern = present(r->layers_pattern);
    r->modules_to_save = present(r->modules_to_save);
    r->feedforward_modules = present(r->feedforward_modules);
    if (is_empty(r->exclude_modules)) r->exclude_modules = NULL;
    if (json_is_string(r->target_modules) && (r->layers_to_transform || r->layers_pattern))
        return LAM_RAISE(err, LAM_E_FORMAT, "%s cannot be combined with target_modules as one string",
                         r->layers_to_transform ? "layers_to_transform" : "layers_pattern");
    m->all_linear = is_all_linear(r->target_modules);
    if (!m->all_linear) LAM_TRY(init_names(r->target_modules, "target_modules", &m->target, err));
    LAM_TRY(init_names(r->exclude_modules, "exclude_modules", &m->exclude, err));
    LAM_TRY(init_names(r->feedforward_modules, "feedforward_modules", &m->feedforward, err));
    LAM_TRY(init_saved(m, err));
    LAM_TRY(init_layer_numbers(m, err));
    LAM_TRY(init_layer_patterns(m, err));
    m->used = lam_alloc(json_array_size(r->target_modules), sizeof *m->used);
    if (!m->used) return LAM_RAISE(err, LAM_E_NO_MEMORY, "target_modules");
    return runner_init(&m->runner, err);
}

lam_code lam_module_match_new(const struct lam_module_rules *rules, struct lam_module_match **out, lam_error *err)
{
    *out = NULL;
    struct lam_module_match *m = lam_alloc(1, sizeof *m);
    if (!m) return LAM_RAISE(err, LAM_E_NO_MEMORY, "target_modules");
    m->rules = *rules;
    lam_code code = match_init(m, err);
    if (code == LAM_OK) *out = m;
    else lam_module_match_free(m);
    return code;
}

void lam_module_match_free(struct lam_module_match *m)
{
    if (!m) return;
    pattern_release(&m->target);
    pattern_release(&m->exclude);
    pattern_release(&m->feedforward);
    for (size_t i = 0; m->layers && i < m->n_layers; i++) pattern_release(&m->layers[i]);
    pcre2_match_context_free(m->runner.context);
    lam_free(m->layers);
    lam_free(m->used);
    lam_free(m->saved);
    lam_free(m);
}

enum ending { NO_ENDING, ENDS_WITH, IS_WHOLE };

/* Whether name is entry, or ends with "." entry. */
static enum ending compare_ending(const char *name, const char *entry, size_t len)
{
    size_t n = strlen(name);
    if (len > n || memcmp(name + n - len, entry, len) != 0) return NO_ENDING;
    if (len == n) return IS_WHOLE;
    return name[n - len - 1] == '.' ? ENDS_WITH : NO_ENDING;
}

/* Every entry is looked at, so that used tells which ones matched anything. */
static enum ending find_in_list(const json_t *list, const char *name, bool *used)
{
    enum ending best = NO_ENDING;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        enum ending e = compare_ending(name, json_string_value(entry), json_string_length(entry));
        if (e != NO_ENDING && used) used[i] = true;
        if (e > best) best = e;
    }
    return best;
}

/* PEFT's own targets of LoRA for all these architectures (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING). */
static const char *const lora_targets[] = {"q_proj", "v_proj", NULL};

static enum ending find_default(const char *const *defaults, const char *name)
{
    enum ending best = NO_ENDING;
    for (size_t i = 0; defaults[i]; i++) {
        enum ending e = compare_ending(name, defaults[i], strlen(defaults[i]));
        if (e > best) best = e;
    }
    return best;
}

/* Whether name has entry between dots, its ends counting as such. */
static bool has_part(const char *name, const char *entry, size_t len)
{
    for (const char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
        if (strncmp(at, entry, len) == 0 && (at[len] == 0 || at[len] == '.')) return true;
    return false;
}

static lam_code is_excluded(struct lam_module_match *m, const char *name, bool *excluded, lam_error *err)
{
    const json_t *saved = m->rules.modules_to_save;
    *excluded = false;
    for (size_t i = 0; i < json_array_size(saved) && !*excluded; i++) {
        const json_t *entry = json_array_get(saved, i);
        *excluded = has_part(name, json_string_value(entry), json_string_length(entry));
    }
    if (*excluded) return LAM_OK;
    if (m->exclude.code) return pattern_match(&m->exclude, &m->runner, name, excluded, NULL, err);
    *excluded = find_in_list(m->rules.exclude_modules, name, NULL) != NO_ENDING;
    return LAM_OK;
}

static bool has_layer(const json_t *layers, int64_t index)
{
    if (index < 0) return false;
    if (json_is_integer(layers)) return json_integer_value(layers) == index;
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (json_integer_value(json_array_get(layers, i)) == index) return true;
    return false;
}

static lam_code is_wanted_layer(struct lam_module_match *m, const char *name, bool *wanted, lam_error *err)
{
    int64_t index = -1;
    bool matched = false;
    for (size_t i = 0; i < m->n_layers && !matched; i++)
        LAM_TRY(pattern_match(&m->layers[i], &m->runner, name, &matched, &index, err));
    *wanted = matched && has_layer(m->rules.layers_to_transform, index);
    return LAM_OK;
}

lam_code lam_module_match_find(struct lam_module_match *m, const char *module, enum lam_module_kind kind, bool *targeted,
                               lam_error *err)
{
    bool excluded;
    *targeted = false;
    LAM_TRY(is_excluded(m, module, &excluded, err));
    if (excluded) return LAM_OK;
    if (m->target.code) return pattern_match(&m->target, &m->runner, module, targeted, NULL, err);
    if (m->all_linear) {
        *targeted = kind == LAM_MODULE_LINEAR;
        return LAM_OK;
    }
    const char *const *defaults = m->rules.defaults ? m->rules.defaults : lora_targets;
    enum ending e = m->rules.target_modules ? find_in_list(m->rules.target_modules, module, m->used) : find_default(defaults, module);
    *targeted = e != NO_ENDING;
    /* A module that is named in full is taken whatever its layer. */
    return e == ENDS_WITH && m->by_layer ? is_wanted_layer(m, module, targeted, err) : LAM_OK;
}

const char *lam_module_match_unused(const struct lam_module_match *m, size_t i)
{
    const json_t *list = m->rules.target_modules;
    for (size_t k = 0; k < json_array_size(list); k++)
        if (!m->used[k] && i-- == 0) return json_string_value(json_array_get(list, k));
    return NULL;
}

/* name, or its beginning up to a dot, ends with entry. */
static bool saves(const char *name, const char *entry, size_t len)
{
    size_t n = strlen(name);
    for (size_t end = len; end <= n; end++)
        if ((name[end] == 0 || name[end] == '.') && memcmp(name + end - len, entry, len) == 0) return true;
    return false;
}

bool lam_module_match_saved(struct lam_module_match *m, const char *module)
{
    bool saved = false;
    for (size_t i = 0; i < json_array_size(m->rules.modules_to_save); i++) {
        const json_t *entry = json_array_get(m->rules.modules_to_save, i);
        if (!saves(module, json_string_value(entry), json_string_length(entry))) continue;
        m->saved[i] = saved = true;
    }
    return saved;
}

const char *lam_module_match_unsaved(const struct lam_module_match *m, size_t i)
{
    const json_t *list = m->rules.modules_to_save;
    for (size_t k = 0; k < json_array_size(list); k++)
        if (!m->saved[k] && i-- == 0) return json_string_value(json_array_get(list, k));
    return NULL;
}

lam_code lam_module_match_feedforward(struct lam_module_match *m, const char *module, bool *feedforward, lam_error *err)
{
    const json_t *list = m->rules.feedforward_modules;
    size_t n = strlen(module);
    *feedforward = false;
    if (m->feedforward.code) return pattern_match(&m->feedforward, &m->runner, module, feedforward, NULL, err);
    if (!list) *feedforward = compare_ending(module, "down_proj", strlen("down_proj")) != NO_ENDING;
    for (size_t i = 0; i < json_array_size(list) && !*feedforward; i++) { /* PEFT's endswith: dots don't count */
        size_t len = json_string_length(json_array_get(list, i));
        *feedforward = len <= n && memcmp(module + n - len, json_string_value(json_array_get(list, i)), len) == 0;
    }
    return LAM_OK;
}

struct entry {
    const char *key;
    const json_t *value;
    struct pattern pattern;
    bool used;
};

struct lam_pattern_table {
    struct entry *entries;
    size_t n;
    struct runner runner;
};

static lam_code table_init(struct lam_pattern_table *t, const json_t *object, const char *name, lam_error *err)
{
    object = present(object);
    if (object && !json_is_object(object)) return LAM_RAISE(err, LAM_E_FORMAT, "%s is not an object", name);
    size_t n = json_object_size(object);
    if (n > MAX_ENTRIES) return LAM_RAISE(err, LAM_E_LIMIT, "%s has %zu entries", name, n);
    t->entries = lam_alloc(n, sizeof *t->entries);
    if (!t->entries) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s", name);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        struct entry *e = &t->entries[t->n++];
        *e = (struct entry){.key = key, .value = value};
        LAM_TRY(pattern_compile(&e->pattern, FORM_ENDING, key, strlen(key), err));
    }
    return runner_init(&t->runner, err);
}

lam_code lam_pattern_table_new(const json_t *object, const char *name, struct lam_pattern_table **out, lam_error *err)
{
    *out = NULL;
    struct lam_pattern_table *t = lam_alloc(1, sizeof *t);
    if (!t) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s", name);
    lam_code code = table_init(t, object, name, err);
    if (code == LAM_OK) *out = t;
    else lam_pattern_table_free(t);
    return code;
}

void lam_pattern_table_free(struct lam_pattern_table *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n; i++) pattern_release(&t->entries[i].pattern);
    pcre2_match_context_free(t->runner.context);
    lam_free(t->entries);
    lam_free(t);
}

lam_code lam_pattern_table_find(struct lam_pattern_table *t, const char *module, const json_t **value, lam_error *err)
{
    *value = NULL;
    for (size_t i = 0; i < t->n; i++) {
        bool matched;
        LAM_TRY(pattern_match(&t->entries[i].pattern, &t->runner, module, &matched, NULL, err));
        if (!matched) continue;
        t->entries[i].used = true;
        *value = t->entries[i].value;
        return LAM_OK;
    }
    return LAM_OK;
}

const char *lam_pattern_table_unused(const struct lam_pattern_table *t, size_t i)
{
    for (size_t k = 0; k < t->n; k++)
        if (!t->entries[k].used && i-- == 0) return t->entries[k].key;
    return NULL;
}
