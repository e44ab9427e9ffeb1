/* The dependency graph of a decoder whose blocks follow one another: which operators a cached row of K and V is a function of.
 * K and V of layer L at a position depend on that layer's norm before the attention, its K and V and K's norm, and on everything of
 * every earlier layer, at this position and (through attention) at all before it. The head, the last norm and the last layer's Q, O
 * and feed-forward part reach the logits alone. */
#ifndef LAM_CACHE_CLOSURE_H
#define LAM_CACHE_CLOSURE_H

#include "format/role.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Changes whenever the graph does. */
#define LAM_GRAPH_REVISION "serial_v1"

/* True if K or V of layer cached_layer depends on the tensor of this role in this layer (any, outside of layers). */
bool lam_closure_reaches(enum lam_role role, uint32_t layer, uint32_t cached_layer);

/* The same for what is computed of a row beside its logits (the hidden state), and for its logits. */
bool lam_closure_reaches_logits(enum lam_role role);

/* Names of the projections that a cached row depends on in its own layer, and in earlier ones: sorted, NULL at the end. */
#define LAM_PROJECTIONS 5
void lam_closure_projections(bool earlier, const char *out[LAM_PROJECTIONS + 1]);

#endif
