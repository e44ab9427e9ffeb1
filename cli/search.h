/* Where the parts of a manifest lie. */
#ifndef LAM_CLI_SEARCH_H
#define LAM_CLI_SEARCH_H

#include "stack.h"

/* Puts a path that can be opened behind the base and each adapter of s->made, which was read from o->model: the file that the manifest names if
 * it is there; else, in the manifest's folder and those of --search, a .slm of the part's digest, or what has the file's name and
 * is no .slm (its digest is compared when it is opened). Goes on after a part that is nowhere: s->missing has them all, each with its digest and
 * the folders, s->no_base and s->no_adapter tell which, and LAM_E_NOT_FOUND is returned. */
lam_code search_parts(const struct options *o, struct stack *s, lam_error *err);
/* Every folder of --search can be read: else LAM_E_NOT_FOUND, LAM_E_IO. */
lam_code check_folders(const struct options *o, lam_error *err);
/* Whether the file's name ends so. */
bool is_slm(const char *name);

#endif
