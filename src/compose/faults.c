#include "compose/faults.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>

#define MOST_FAULTS 1000

static void keep(lam_fault_list *f, lam_code code, const char *subject, const char *message)
{
    lam_fault *more = f->n < MOST_FAULTS ? lam_realloc(f->items, f->n + 1, sizeof *more) : NULL;
    if (more) f->items = more;
    char *about = more ? lam_strdup(subject) : NULL, *what = more ? lam_strdup(message) : NULL;
    if (!about || !what) {
        lam_free(about);
        lam_free(what);
        f->n_more++;
        return;
    }
    lam_clean_line(about);
    lam_clean_line(what);
    f->items[f->n++] = (lam_fault){.code = code, .subject = about, .what = what};
}

void lam_fault_list_add(lam_fault_list *f, lam_code code, const char *subject, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    keep(f, code, subject, message);
}

void lam_fault_list_add_error(lam_fault_list *f, const char *subject, const lam_error *err) { keep(f, err->code, subject, err->message); }

void lam_fault_list_release(lam_fault_list *f)
{
    for (size_t i = 0; i < f->n; i++) {
        lam_free((char *)f->items[i].subject);
        lam_free((char *)f->items[i].what);
    }
    lam_free(f->items);
    *f = (lam_fault_list){0};
}

lam_code lam_fault_list_error(const lam_fault_list *f, const char *what, lam_error *err)
{
    size_t n = f->n + f->n_more;
    if (n == 0) return LAM_OK;
    if (f->n == 0) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%.200s: %zu faults, and no memory to tell them", what, n);
    const lam_fault *first = &f->items[0];
    if (n == 1) return LAM_RAISE(err, first->code, "%.150s: %.100s: %s", what, first->subject, first->what);
    return LAM_RAISE(err, first->code, "%.150s: %zu faults; the first: %.100s: %s", what, n, first->subject, first->what);
}
