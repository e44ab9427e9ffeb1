#define _POSIX_C_SOURCE 200809L

#include "report.h"

#include "process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int output_errno; /* of the first failed write to standard output */
static lam_fault *listed; /* [n_listed], owned with their texts */
static size_t n_listed;

/* As the library does with messages (lam_clean_line). */
void make_printable(char *text)
{
    for (unsigned char *c = (unsigned char *)text; c && *c; c++) {
        bool separator = c[0] == 0xe2 && c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae, isolate = c[0] == 0xe2 && c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9;
        size_t n = *c < 0x20 || *c == 0x7f ? 1 : c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0 ? 2 : separator || isolate ? 3 : 0;
        memset(c, '?', n);
    }
}

static json_t *printable_members(const json_t *object)
{
    json_t *copy = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)object, key, value) {
        char *name = strdup(key);
        make_printable(name);
        if (!name || json_object_set_new(copy, name, printable(value)) != 0) {
            json_decref(copy);
            copy = NULL;
        }
        free(name);
    }
    return copy;
}

json_t *printable(const json_t *value)
{
    if (json_is_object(value)) return printable_members(value);
    if (json_is_array(value)) {
        json_t *copy = json_array();
        for (size_t i = 0; copy && i < json_array_size(value); i++)
            if (json_array_append_new(copy, printable(json_array_get(value, i))) != 0) {
                json_decref(copy);
                copy = NULL;
            }
        return copy;
    }
    if (!json_is_string(value)) return json_deep_copy(value);
    char *text = strdup(json_string_value(value));
    make_printable(text);
    json_t *copy = text ? json_string(text) : NULL;
    free(text);
    return copy;
}

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool colours(FILE *file)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(file)) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

lam_code fail(lam_error *err, lam_code code, const char *format, ...)
{
    va_list args;
    *err = (lam_error){.code = code, .file = __FILE__, .line = __LINE__};
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

lam_code fail_memory(lam_error *err) { return fail(err, LAM_E_NO_MEMORY, "out of memory"); }

/* text with a '?' for each byte that is not printable ASCII, as messages show bytes that are no UTF-8: out[512]. */
static const char *plain_text(const char *text, char out[512])
{
    size_t n = 0;
    for (; text[n] && n < 511; n++) out[n] = (unsigned char)text[n] < 0x20 || (unsigned char)text[n] >= 0x7f ? '?' : text[n];
    out[n] = 0;
    return out;
}

lam_code about(lam_error *err, const char *path)
{
    char message[512], name[512];
    if (strstr(plain_text(err->message, message), plain_text(path, name))) return err->code;
    lam_error whole = *err;
    snprintf(whole.message, sizeof whole.message, "%.250s: %.259s", path, err->message);
    *err = whole;
    return err->code;
}

void behind(lam_error *err, const char *text)
{
    size_t len = strlen(err->message);
    snprintf(err->message + len, sizeof err->message - len, "%s", text);
}

void hint(lam_error *err, const char *help)
{
    behind(err, "; ");
    behind(err, help);
}

/* The message; if it quotes bytes that are not UTF-8, with a '?' for each that is not ASCII. */
static json_t *message_json(const lam_error *err)
{
    char plain[512];
    json_t *message = json_string(err->message);
    return message ? message : json_string(plain_text(err->message, plain));
}

static char *copy_text(const char *text)
{
    char *copy = malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

static void forget_faults(void)
{
    for (size_t i = 0; i < n_listed; i++) {
        free((char *)listed[i].subject);
        free((char *)listed[i].what);
    }
    free(listed);
    listed = NULL;
    n_listed = 0;
}

void list_faults(const lam_fault *faults, size_t n)
{
    forget_faults();
    listed = n ? calloc(n, sizeof *listed) : NULL;
    for (size_t i = 0; listed && i < n; i++) {
        char *subject = copy_text(faults[i].subject), *what = copy_text(faults[i].what);
        if (subject && what) {
            listed[n_listed++] = (lam_fault){faults[i].code, subject, what};
        } else {
            free(subject);
            free(what);
        }
    }
}

json_t *faults_json(const lam_fault *faults, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:i,s:s,s:s,s:s}", "code", faults[i].code, "name", lam_code_name(faults[i].code), "subject",
                                              faults[i].subject, "message", faults[i].what));
    return list;
}

void print_faults(FILE *to, const lam_fault *faults, size_t n)
{
    int code_width = 0, width = 0;
    for (size_t i = 0; i < n; i++) {
        int code = (int)strlen(lam_code_name(faults[i].code)), len = (int)strlen(faults[i].subject);
        if (code > code_width) code_width = code;
        if (len > width) width = len;
    }
    if (width > 60) width = 60; /* longer ones push what follows to the right */
    for (size_t i = 0; i < n; i++)
        fprintf(to, "  %-*s  %-*s  %s\n", code_width, lam_code_name(faults[i].code), width, faults[i].subject, faults[i].what);
}

static json_t *error_json(const lam_error *err)
{
    json_t *error = json_pack("{s:i,s:s,s:o}", "code", err->code, "name", lam_code_name(err->code), "message", message_json(err));
    if (error && n_listed) json_object_set_new(error, "faults", faults_json(listed, n_listed));
    return error;
}

static void print_error(const struct options *o, const lam_error *err)
{
    if (o->json) {
        print_json(o, json_pack("{s:o}", "error", error_json(err)));
        return;
    }
    bool colour = colours(stderr);
    fflush(stdout);
    fprintf(stderr, "%slamina:%s %s", colour ? "\033[1;31m" : "", colour ? "\033[0m" : "", err->message);
}

int report(const struct options *o, const lam_error *err)
{
    print_error(o, err);
    if (!o->json) fprintf(stderr, " (%s)\n", lam_code_name(err->code));
    if (!o->json && n_listed > 1) print_faults(stderr, listed, n_listed);
    forget_faults();
    return 1;
}

int usage(const struct options *o, const char *format, ...)
{
    va_list args;
    lam_error err = {.code = LAM_E_ARGUMENT};
    va_start(args, format);
    vsnprintf(err.message, sizeof err.message, format, args);
    va_end(args);
    print_error(o, &err);
    if (!o->json) fprintf(stderr, "\nlamina %s%s--help tells more.\n", o->command ? o->command : "", o->command ? " " : "");
    return 2;
}

void note(const struct options *o, const char *format, ...)
{
    va_list args;
    if (o->quiet || o->json) return;
    fflush(stdout);
    fputs("lamina: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\n", stderr);
}

int print_json(const struct options *o, json_t *value)
{
    lam_error err;
    char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    if (!text) {
        fail(&err, LAM_E_UTF8, "the result holds text that is not UTF-8, which JSON cannot carry");
        return report(o, &err);
    }
    puts(text);
    free(text);
    return 0;
}

bool print_now(const char *text)
{
    if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return true;
    if (!output_errno) output_errno = errno;
    return false;
}

int close_output(int status)
{
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) != 0) {
        if (!output_errno) output_errno = errno;
        failed = true;
    }
    if (!failed || process_signal()) return status;
    fprintf(stderr, "lamina: standard output: %s (%s)\n", output_errno ? strerror(output_errno) : "cannot be written",
            lam_code_name(output_errno == ENOSPC ? LAM_E_NO_SPACE : LAM_E_IO));
    return status ? status : 1;
}
