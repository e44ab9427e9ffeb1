#include "import/adapter_faults.h"
#include "base/alloc.h"
#include "lamina/lamina.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUBJECT_BYTES 250 /* longer names are cut: a hostile file's would fill the message */

struct lam_fault_record {
    lam_code code;
    size_t subject, what; /* where they begin in the text */
};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "a list of faults"); }

static lam_code add_record(struct lam_faults *f, lam_code code, const char *subject, const char *what, lam_error *err)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        struct lam_fault_record *items = lam_realloc(f->items, cap, sizeof *items);
        if (!items) return no_memory(err);
        f->items = items;
        f->cap = cap;
    }
    struct lam_fault_record r = {.code = code, .subject = f->text.len};
    if (!lam_str_puts(&f->text, subject) || !lam_str_putc(&f->text, 0)) return no_memory(err);
    r.what = f->text.len;
    if (!lam_str_puts(&f->text, what) || !lam_str_putc(&f->text, 0)) return no_memory(err);
    f->items[f->n++] = r;
    return LAM_OK;
}

/* subject as one clean line: out[SUBJECT_BYTES + 4]. */
static void clean_subject(const char *subject, char *out)
{
    snprintf(out, SUBJECT_BYTES + 1, "%s", subject);
    if (strlen(subject) > SUBJECT_BYTES) strcpy(out + SUBJECT_BYTES, "…");
    lam_clean_line(out);
}

static lam_code add(struct lam_faults *f, lam_code code, const char *subject, const char *what, lam_error *err)
{
    char clean[SUBJECT_BYTES + 4];
    clean_subject(subject, clean);
    if (f->n == 0) LAM_RAISE(&f->first, code, "%s: %s", clean, what);
    return add_record(f, code, clean, what, err);
}

lam_code lam_faults_add(struct lam_faults *f, lam_error *err, lam_code code, const char *subject, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    lam_clean_line(what);
    return add(f, code, subject, what, err);
}

lam_code lam_faults_take(struct lam_faults *f, const char *subject, const lam_error *fault, lam_error *err)
{
    if (fault->code != LAM_E_NO_MEMORY && fault->code != LAM_E_IO) return add(f, fault->code, subject, fault->message, err);
    if (err) *err = *fault;
    return fault->code;
}

lam_code lam_faults_raise(const struct lam_faults *f, lam_error *err)
{
    if (f->n == 0) return LAM_OK;
    if (err) *err = f->first;
    return f->first.code;
}

struct lam_fault *lam_faults_list(const struct lam_faults *f)
{
    size_t bytes;
    if (f->n == 0 || !lam_mul_size(f->n, sizeof(struct lam_fault), &bytes) || !lam_add_size(bytes, f->text.len, &bytes)) return NULL;
    struct lam_fault *list = lam_alloc(1, bytes);
    if (!list) return NULL;
    char *text = (char *)(list + f->n);
    memcpy(text, f->text.data, f->text.len);
    for (size_t i = 0; i < f->n; i++)
        list[i] = (struct lam_fault){.code = f->items[i].code, .subject = text + f->items[i].subject, .what = text + f->items[i].what};
    return list;
}

void lam_faults_release(struct lam_faults *f)
{
    lam_free(f->items);
    lam_str_release(&f->text);
    *f = (struct lam_faults){0};
}

lam_code lam_names_add(struct lam_names *names, const char *name, lam_error *err)
{
    if (names->n == names->cap) {
        size_t cap = names->cap ? names->cap * 2 : 16;
        const char **items = lam_realloc(names->items, cap, sizeof *items);
        if (!items) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a list of %zu names", cap);
        names->items = items;
        names->cap = cap;
    }
    names->items[names->n++] = name;
    return LAM_OK;
}

void lam_names_release(struct lam_names *names)
{
    lam_free(names->items);
    *names = (struct lam_names){0};
}

static int compare_texts(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

#define MOST_NAMES 3
#define BRIEF_BYTES 240 /* of an error message's 512: callers put paths before it */

/* The names that fit a line, in full, and how many more there are. */
static lam_code summarise(const struct lam_names *names, lam_code code, const char *summary, lam_error *err)
{
    char list[BRIEF_BYTES];
    size_t used = 0, i = 0, head = strlen(summary), room = head < sizeof list ? sizeof list - head : 0;
    for (; i < names->n && i < MOST_NAMES; i++) {
        size_t gap = i ? 2 : 0, len = strlen(names->items[i]);
        if (used + gap + len + 1 > room) break;
        memcpy(list + used, ", ", gap);
        memcpy(list + used + gap, names->items[i], len + 1);
        used += gap + len;
    }
    if (i == names->n) return LAM_RAISE(err, code, "%s (%zu): %s", summary, names->n, list);
    if (i > 0) return LAM_RAISE(err, code, "%s (%zu): %s, and %zu more", summary, names->n, list, names->n - i);
    char clean[SUBJECT_BYTES + 4];
    clean_subject(names->items[0], clean);
    if (names->n == 1) return LAM_RAISE(err, code, "%s (1): %s", summary, clean);
    return LAM_RAISE(err, code, "%s (%zu): %s, and %zu more", summary, names->n, clean, names->n - 1);
}

lam_code lam_names_fault(struct lam_names *names, struct lam_faults *f, lam_code code, const char *summary, const char *what,
                         lam_error *err)
{
    if (names->n == 0) return LAM_OK;
    bool first = f->n == 0;
    qsort(names->items, names->n, sizeof *names->items, compare_texts);
    for (size_t i = 0; i < names->n; i++) LAM_TRY(lam_faults_add(f, err, code, names->items[i], "%s", what));
    if (first) summarise(names, code, summary, &f->first);
    return LAM_OK;
}
