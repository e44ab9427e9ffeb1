/* Saying that an adapter lies over a base that it is not bound to. */
#ifndef LAM_CLI_WAIVED_H
#define LAM_CLI_WAIVED_H

#include "open.h"

#include <jansson.h>
#include <stdio.h>

/* The names of the waived adapters; a new reference. */
json_t *waived_names(const struct opened *all);
/* A line for each. */
void print_waived(FILE *to, const struct opened *all);

#endif
