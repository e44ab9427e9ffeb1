/* Where a model comes from when none was named and none is active. */
#ifndef LAM_CLI_FIRST_LAUNCH_H
#define LAM_CLI_FIRST_LAUNCH_H

#include "options.h"

enum first_launch {
    FIRST_LAUNCH_NONE,   /* nothing is to be had */
    FIRST_LAUNCH_FOUND,
    FIRST_LAUNCH_FAILED  /* with a message: by Ctrl-C, or the store's index cannot be read */
};
/* The model of the store that ran last, else the last that it got, whatever the network has; else, for `run`, the default of the seed
 * (lam_seed_default), which becomes the active composition. Says what it does, and why it could not. digest: what the model may be called by. */
enum first_launch first_launch(const struct options *o, char digest[LAM_DIGEST_TEXT]);

#endif
