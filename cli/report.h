/* What the program says: errors, JSON, and whether standard output took it. */
#ifndef LAM_CLI_REPORT_H
#define LAM_CLI_REPORT_H

#include "options.h"

#include <jansson.h>
#include <stdio.h>

/* Prints the error, with --json as an object with code, name and message on standard output. Returns the exit status, 1. */
int report(const struct options *o, const lam_error *err);
/* What the next report shows as a table below its error if it is more than one, with --json as its array "faults"; n 0: nothing. Copied. */
void list_faults(const lam_fault *faults, size_t n);
/* The same as an array of objects, and as a table. */
json_t *faults_json(const lam_fault *faults, size_t n);
void print_faults(FILE *to, const lam_fault *faults, size_t n);
/* The same for a wrong use of the command line: 2. */
int usage(const struct options *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line on standard error that is no error; nothing with --quiet or --json. */
void note(const struct options *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fills *err and returns code. */
lam_code fail(lam_error *err, lam_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
lam_code fail_memory(lam_error *err);
/* Puts "path: " in front of a message that does not name path. Returns err->code. */
lam_code about(lam_error *err, const char *path);

/* Puts what helps behind a message: "; help". */
void hint(lam_error *err, const char *help);
/* The same for a text that has its ';', or is empty. */
void behind(lam_error *err, const char *text);

/* Prints value and a line end, and releases it. NULL, as json_pack gives for text that is not UTF-8, is an error. Returns the exit
 * status. */
int print_json(const struct options *o, json_t *value);

/* Writes text to standard output at once. False if that failed; close_output will say why. */
bool print_now(const char *text);
/* The exit status once all of standard output is written: 1, with a message, if it could not be. */
int close_output(int status);

/* Whether to colour what goes to file: a terminal, and neither NO_COLOR nor TERM=dumb. */
bool colours(FILE *file);

/* Puts '?' in place of what no line may have: control characters, separators of lines, overrides of the direction of writing. NULL: nothing. */
void make_printable(char *text);
/* A copy whose texts and names are so. NULL without memory. */
json_t *printable(const json_t *value);

double now_seconds(void);

#endif
