/* What lam_inspect tells, for people. */
#ifndef LAM_CLI_DESCRIBE_H
#define LAM_CLI_DESCRIBE_H

#include <jansson.h>
#include <stdbool.h>

/* Prints the object: a title line, then "key value" lines; every tensor with list_tensors. It must hold the tensors in any case. */
void describe(const json_t *object, bool list_tensors);
/* One line: "47 tensors: 31 Q8_0, 11 F32, 5 F16". */
void describe_types(const json_t *object, char *out, size_t room);

#endif
