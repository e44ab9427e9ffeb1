/* What is wrong with an adapter: all of it is collected before the import fails with the first fault's code. */
#ifndef LAM_IMPORT_ADAPTER_FAULTS_H
#define LAM_IMPORT_ADAPTER_FAULTS_H

#include "base/error.h"
#include "base/str.h"

#include <stddef.h>

struct lam_fault; /* lamina/lamina.h */

struct lam_faults {
    struct lam_fault_record *items; /* owned */
    size_t n, cap;
    struct lam_str text;            /* subjects and what is wrong with them, zero-terminated */
    lam_error first;                /* "<subject>: <what>", or the summary of a list */
};

/* One more. subject: a tensor, module, field or file of the source. Returns LAM_OK or LAM_E_NO_MEMORY. */
lam_code lam_faults_add(struct lam_faults *f, lam_error *err, lam_code code, const char *subject, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The failure of a check of subject, its message being what is wrong: collected, and LAM_OK returned. What is no fault of the adapter
 * (LAM_E_NO_MEMORY, LAM_E_IO) goes to err. */
lam_code lam_faults_take(struct lam_faults *f, const char *subject, const lam_error *fault, lam_error *err);

/* LAM_OK if there is none, else the first. */
lam_code lam_faults_raise(const struct lam_faults *f, lam_error *err);

/* The list for lam_adapter_report: one block, freed with lam_free; NULL if there is none or memory is lacking. */
struct lam_fault *lam_faults_list(const struct lam_faults *f);

void lam_faults_release(struct lam_faults *f);

/* Names that have one fault in common. */
struct lam_names {
    const char **items; /* borrowed; the array is owned */
    size_t n, cap;
};
lam_code lam_names_add(struct lam_names *names, const char *name, lam_error *err);
void lam_names_release(struct lam_names *names);

/* A fault for each name, sorted. The error of the first one is "<summary> (<count>): a, b, c": three names at most and not too long
 * a line, then how many more there are. summary: 180 bytes at most. */
lam_code lam_names_fault(struct lam_names *names, struct lam_faults *f, lam_code code, const char *summary, const char *what,
                         lam_error *err);

#endif
