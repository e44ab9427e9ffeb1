/* Files that the user named to be written. */
#ifndef LAM_CLI_OUTPUT_H
#define LAM_CLI_OUTPUT_H

#include "report.h"

#include <stdio.h>

/* LAM_E_CONFLICT if path is source (the same file by any name), or a file that is there within source, a folder. */
lam_code check_not_source(const char *path, const char *source, lam_error *err);
/* For what is renamed into place, before work is done for it: LAM_E_ARGUMENT if something that is no plain file is there, whose place a rename
 * would take; LAM_E_NOT_FOUND, LAM_E_IO if no file can be made in its folder. */
lam_code check_replaceable(const char *path, lam_error *err);
/* LAM_E_ARGUMENT if the name ends as files of another format than what is written (".slm", ".gguf"). */
lam_code check_ending(const char *path, const char *written, lam_error *err);
/* Where the ending decides what is written: LAM_E_ARGUMENT for another one. */
lam_code check_slm_or_gguf(const char *path, lam_error *err);

/* A file that takes its place when it is whole, under a name of its own until then. A device or a pipe is written to as it is. */
struct output {
    const char *path; /* borrowed */
    FILE *file;
    char *temporary;  /* of the library; NULL: path itself is open */
};

lam_code output_open(const char *path, struct output *out, lam_error *err);
/* Closes it, and puts it in its place if all is well so far (code) and was written; else nothing is left of it. Does nothing if out->file
 * is NULL. */
lam_code output_close(struct output *out, lam_code code, lam_error *err);

/* Bytes of a file, 0 if it cannot be told. */
double file_bytes(const char *path);

#endif
