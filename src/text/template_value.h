/* The values of a running template, the memory that holds them, and the bounds that keep a hostile template
 * from hanging or exhausting the machine. Values are immutable but for namespaces; all of them live in the
 * run's arena and die together, so that cycles through a namespace cost nothing. */
#ifndef LAM_TEXT_TEMPLATE_VALUE_H
#define LAM_TEXT_TEMPLATE_VALUE_H

#include "base/error.h"
#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest template source. The longest chat templates in use have some 30 kB. */
#define LAM_TPL_MAX_SOURCE ((size_t)1 << 20)
/* Nesting of blocks and of expressions in the source; the parser recurses this deep. Real ones stay below 30. */
#define LAM_TPL_MAX_NESTING 100
/* Nesting of evaluation, macro calls included: some 40 levels of a recursive macro, in under 384 kB
 * of stack (measured on x86-64 with -O2). */
#define LAM_TPL_MAX_DEPTH 512
/* Nesting of lists and dicts, for everything that walks a value. JSON schemas of tools stay below 20. */
#define LAM_TPL_MAX_VALUE_DEPTH 100
/* Evaluated nodes, plus 1 for each 16 bytes touched: a few seconds. Real chats need 10^4 to 10^6. */
#define LAM_TPL_MAX_STEPS ((uint64_t)50 * 1000 * 1000)
/* Bytes in values, garbage included, and in text under construction. A chat of 10^6 tokens has some 5 MB. */
#define LAM_TPL_MAX_MEMORY ((size_t)256 << 20)
/* Longest single string, the rendered prompt included. */
#define LAM_TPL_MAX_TEXT ((size_t)64 << 20)
/* Longest range(), as in Jinja2's sandbox. */
#define LAM_TPL_MAX_RANGE 100000

/* ---- memory ---- */

struct lam_tpl_arena {
    struct lam_tpl_block *blocks; /* newest first; owned */
    size_t used;                  /* bytes handed out, from all blocks */
};

/* Zeroed and aligned for any value; NULL when memory is lacking. */
void *lam_tpl_arena_alloc(struct lam_tpl_arena *arena, size_t bytes);
void lam_tpl_arena_release(struct lam_tpl_arena *arena);

/* ---- values ---- */

/* len bytes of UTF-8 that somebody else keeps alive; not zero-terminated. */
struct lam_tpl_text {
    const char *s;
    size_t len;
};

#define LAM_TPL_TEXT(literal) ((struct lam_tpl_text){(literal), sizeof(literal) - 1})

/* Arguments for "%.*s" that show the begin of a text in a message. */
#define LAM_TPL_SHOWN(text) (int)((text).len < 100 ? (text).len : 100), ((text).s ? (text).s : "")

bool lam_tpl_text_is(struct lam_tpl_text a, const char *b);
bool lam_tpl_text_equal(struct lam_tpl_text a, struct lam_tpl_text b);

enum lam_tpl_kind {
    LAM_TPL_UNDEFINED, /* text: what was looked up, for messages */
    LAM_TPL_NONE,
    LAM_TPL_BOOL,
    LAM_TPL_INT,
    LAM_TPL_FLOAT,
    LAM_TPL_STRING,
    LAM_TPL_LIST,
    LAM_TPL_DICT,
    LAM_TPL_NAMESPACE, /* dict: its attributes */
    LAM_TPL_LOOP,
    LAM_TPL_MACRO,
    LAM_TPL_FUNCTION, /* a global function */
    LAM_TPL_METHOD    /* a method bound to its object */
};

struct lam_tpl_value {
    enum lam_tpl_kind kind;
    bool markup; /* a string from the filter safe: + escapes the other side for HTML */
    union {
        bool b;
        int64_t i;
        double f;
        struct lam_tpl_text text;
        struct lam_tpl_list *list;
        struct lam_tpl_dict *dict;
        struct lam_tpl_loop *loop;
        struct lam_tpl_macro *macro;
        struct lam_tpl_method *method;
        enum lam_tpl_function {
            LAM_TPL_RANGE,
            LAM_TPL_DICT_OF,
            LAM_TPL_NAMESPACE_OF,
            LAM_TPL_RAISE,
            LAM_TPL_STRFTIME
        } function;
    };
};

enum lam_tpl_shape {
    LAM_TPL_PLAIN_LIST,
    LAM_TPL_TUPLE,
    LAM_TPL_VIEW,    /* keys(), values(), items(), range(): can be walked again and again, can't be printed */
    LAM_TPL_ITERATOR /* map, select ...: always true, empty once it was walked, can't be printed */
};

struct lam_tpl_list {
    enum lam_tpl_shape shape;
    bool consumed; /* iterators only */
    size_t n, cap;
    struct lam_tpl_value *items; /* [n] */
};

struct lam_tpl_dict {
    size_t n, cap;
    struct lam_tpl_pair *pairs; /* [n], in order of insertion, keys unique */
};

struct lam_tpl_pair {
    struct lam_tpl_value key, value; /* key: none, bool, int, float, string */
};

struct lam_tpl_loop {
    size_t index; /* from 0 */
    const struct lam_tpl_list *items;
};

struct lam_tpl_macro {
    const struct lam_tpl_node *node; /* a MACRO node */
    struct lam_tpl_scope *scope;     /* where it was defined */
};

struct lam_tpl_method {
    struct lam_tpl_value self;
    struct lam_tpl_text name;
};

/* ---- one rendering ---- */

struct lam_tpl_run {
    struct lam_tpl_arena arena;
    uint64_t steps;      /* done so far */
    size_t memory;       /* charged so far, in bytes */
    unsigned depth;      /* of evaluation now */
    uint32_t line;       /* of the node under evaluation, from 1 */
    bool has_clock;
    int64_t clock;       /* local seconds since 1970-01-01 00:00 */
    struct lam_tpl_value captured; /* text that the filters of a filter or set block work on */
    lam_error *err;
};

/* Raise LAM_E_TEMPLATE with "template line N: " before the message. */
lam_code lam_tpl_fail(struct lam_tpl_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
lam_code lam_tpl_no_memory(struct lam_tpl_run *run);

/* Count steps or bytes; LAM_E_LIMIT beyond the bound. */
lam_code lam_tpl_tick(struct lam_tpl_run *run, size_t steps);
lam_code lam_tpl_charge(struct lam_tpl_run *run, size_t bytes);

/* Append to text under construction, within the bounds. */
lam_code lam_tpl_put(struct lam_tpl_run *run, struct lam_str *s, const char *bytes, size_t len);
lam_code lam_tpl_puts(struct lam_tpl_run *run, struct lam_str *s, const char *text);

/* count * size zeroed bytes of the run's arena, within the bounds. */
lam_code lam_tpl_run_alloc(struct lam_tpl_run *run, size_t count, size_t size, void **out);

/* ---- making values ---- */

struct lam_tpl_value lam_tpl_undefined(struct lam_tpl_text name);
struct lam_tpl_value lam_tpl_none(void);
struct lam_tpl_value lam_tpl_bool(bool b);
struct lam_tpl_value lam_tpl_int(int64_t i);
struct lam_tpl_value lam_tpl_float(double f);
/* The bytes are borrowed: they must live as long as the run. */
struct lam_tpl_value lam_tpl_string(struct lam_tpl_text text);
/* The bytes are copied into the arena. */
lam_code lam_tpl_string_copy(struct lam_tpl_run *run, const char *bytes, size_t len, struct lam_tpl_value *out);
/* An empty list or dict with room for cap members. */
lam_code lam_tpl_list_new(struct lam_tpl_run *run, enum lam_tpl_shape shape, size_t cap, struct lam_tpl_value *out);
lam_code lam_tpl_list_push(struct lam_tpl_run *run, struct lam_tpl_list *list, struct lam_tpl_value item);
lam_code lam_tpl_dict_new(struct lam_tpl_run *run, size_t cap, struct lam_tpl_value *out);
/* Replace or append. */
lam_code lam_tpl_dict_set(struct lam_tpl_run *run, struct lam_tpl_dict *dict, struct lam_tpl_value key,
                          struct lam_tpl_value value);
/* *out is NULL when there is no such key. */
lam_code lam_tpl_dict_find(struct lam_tpl_run *run, const struct lam_tpl_dict *dict, struct lam_tpl_value key,
                           const struct lam_tpl_value **out);
lam_code lam_tpl_from_json(struct lam_tpl_run *run, const json_t *json, struct lam_tpl_value *out);

/* ---- asking values ---- */

/* Python's name of the type, for messages. */
const char *lam_tpl_type_name(struct lam_tpl_value v);
bool lam_tpl_truth(struct lam_tpl_value v);
bool lam_tpl_is_number(struct lam_tpl_value v); /* bool, int or float */
double lam_tpl_as_double(struct lam_tpl_value number);
int64_t lam_tpl_as_int(struct lam_tpl_value number); /* of a bool or int */
lam_code lam_tpl_equal(struct lam_tpl_run *run, struct lam_tpl_value a, struct lam_tpl_value b, bool *out);
/* *out is below, equal to or above 0; an error when the two have no order. */
lam_code lam_tpl_compare(struct lam_tpl_run *run, struct lam_tpl_value a, struct lam_tpl_value b, int *out);
lam_code lam_tpl_contains(struct lam_tpl_run *run, struct lam_tpl_value container, struct lam_tpl_value item,
                          bool *out);
lam_code lam_tpl_length(struct lam_tpl_run *run, struct lam_tpl_value v, size_t *out);
/* The members to walk: of a list itself, of a dict its keys, of a string its characters. Uses up an iterator. */
lam_code lam_tpl_iterate(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_list **out);
/* Python's str(v) and repr(v), appended. */
lam_code lam_tpl_print(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_str *s);
lam_code lam_tpl_repr(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_str *s);
/* str(v) as a text that lives as long as the run. */
lam_code lam_tpl_to_text(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_tpl_text *out);

/* ---- operators ---- */

/* a op b, with op as in a BINARY node. */
lam_code lam_tpl_binary(struct lam_tpl_run *run, char op, struct lam_tpl_value a, struct lam_tpl_value b,
                        struct lam_tpl_value *out);
/* +a or -a. */
lam_code lam_tpl_sign(struct lam_tpl_run *run, char op, struct lam_tpl_value a, struct lam_tpl_value *out);

/* ---- JSON ---- */

struct lam_tpl_json_style {
    struct lam_tpl_text indent, item_separator, key_separator;
    bool has_indent, ascii, sort_keys;
};

lam_code lam_tpl_to_json(struct lam_tpl_run *run, struct lam_tpl_value v, const struct lam_tpl_json_style *style,
                         struct lam_str *s);

/* ---- attributes, items, methods, functions ---- */

/* object.name and object[key], undefined when there is none. */
lam_code lam_tpl_get_attribute(struct lam_tpl_run *run, struct lam_tpl_value object, struct lam_tpl_text name,
                               struct lam_tpl_value *out);
lam_code lam_tpl_get_item(struct lam_tpl_run *run, struct lam_tpl_value object, struct lam_tpl_value key,
                          struct lam_tpl_value *out);
/* bounds[3]: start, stop, step; none stands for absent. */
lam_code lam_tpl_get_slice(struct lam_tpl_run *run, struct lam_tpl_value object,
                           const struct lam_tpl_value *bounds, struct lam_tpl_value *out);

/* The arguments of a call: positional ones, then named ones. */
struct lam_tpl_args {
    size_t n, n_named;
    const struct lam_tpl_value *values;     /* [n + n_named] */
    const struct lam_tpl_text *names;       /* [n_named] */
};

/* Lay args out along names[n], NULL in out[i] where the i-th is not given; the first `needed` must be.
 * what: the callee, for messages. */
lam_code lam_tpl_bind(struct lam_tpl_run *run, const char *what, const struct lam_tpl_args *args,
                      const char *const *names, size_t n, size_t needed, const struct lam_tpl_value **out);
/* An argument that must be a string, an integer or a truth value; *out keeps its default when arg is NULL (or
 * none, for the first two). */
lam_code lam_tpl_arg_text(struct lam_tpl_run *run, const char *what, const struct lam_tpl_value *arg,
                          struct lam_tpl_text *out);
lam_code lam_tpl_arg_int(struct lam_tpl_run *run, const char *what, const struct lam_tpl_value *arg, int64_t *out);
bool lam_tpl_arg_bool(const struct lam_tpl_value *arg, bool otherwise);

/* Charge for a search of needle through all of t. */
lam_code lam_tpl_tick_search(struct lam_tpl_run *run, struct lam_tpl_text t, struct lam_tpl_text needle);

/* Whether objects of v's kind have a method of that name; an error when Python has it and we don't. */
lam_code lam_tpl_find_method(struct lam_tpl_run *run, struct lam_tpl_value v, struct lam_tpl_text name, bool *found);
lam_code lam_tpl_call_method(struct lam_tpl_run *run, const struct lam_tpl_method *method,
                             const struct lam_tpl_args *args, struct lam_tpl_value *out);
lam_code lam_tpl_call_function(struct lam_tpl_run *run, enum lam_tpl_function function,
                               const struct lam_tpl_args *args, struct lam_tpl_value *out);
lam_code lam_tpl_apply_filter(struct lam_tpl_run *run, struct lam_tpl_text name, struct lam_tpl_value v,
                              const struct lam_tpl_args *args, struct lam_tpl_value *out);
lam_code lam_tpl_apply_test(struct lam_tpl_run *run, struct lam_tpl_text name, struct lam_tpl_value v,
                            const struct lam_tpl_args *args, bool *out);
/* The filters that take other filters, tests or attributes. *found is false when name is none of them. */
lam_code lam_tpl_apply_sequence_filter(struct lam_tpl_run *run, struct lam_tpl_text name, struct lam_tpl_value v,
                                       const struct lam_tpl_args *args, struct lam_tpl_value *out, bool *found);

#endif
