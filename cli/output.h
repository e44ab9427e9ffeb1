/* Checks before anything is written to a file that the user named. */
#ifndef LAM_CLI_OUTPUT_H
#define LAM_CLI_OUTPUT_H

#include "report.h"

/* LAM_E_CONFLICT if path is source (the same file by any name), or a file that is there within source, a folder. */
lam_code check_not_source(const char *path, const char *source, lam_error *err);
/* For what is renamed into place: LAM_E_ARGUMENT if something that is no plain file is there; a rename would take its place. */
lam_code check_replaceable(const char *path, lam_error *err);
/* Removes what a failed command left at path, if it is a plain file. */
void remove_partial(const char *path);
/* Bytes of a file, 0 if it cannot be told. */
double file_bytes(const char *path);

#endif
