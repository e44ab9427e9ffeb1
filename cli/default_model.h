/* Which model, if the command line names none. */
#ifndef LAM_CLI_DEFAULT_MODEL_H
#define LAM_CLI_DEFAULT_MODEL_H

#include "options.h"

/* Room for a path that default_model may write. */
#define MODEL_PATH 4096

/* If no -m was given, takes the model from the first of the rest, $LAMINA_MODEL, the store's active composition, what first_launch
 * finds, or the model that ships with Lamina: data/ beside the build folder, ../share/lamina beside an installed program; then says which.
 * least and most: how many of the rest are for other things than the model; another number is a wrong use. A store that is there
 * and damaged is an error. Returns 0, or the exit status after a message: 2 for a wrong use and if there is no model, else 1.
 * path[MODEL_PATH] must live as long as the options. */
int choose_model(struct options *o, size_t least, size_t most, char *path);

#endif
