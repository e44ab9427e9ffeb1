/* References to the store (lamina/store.h), where a model or an adapter is named and no file is called so. A reference is resolved once, when it is
 * opened; what it meant then is held. */
#ifndef LAM_CLI_HELD_H
#define LAM_CLI_HELD_H

#include "options.h"

#include "lamina/manifest.h"

struct held;

enum held_kind { HELD_MODEL, HELD_ADAPTER };
/* *out is NULL if text is a file's name, or if there is no store to look into: then it is a file's name all the same. HELD_MODEL takes a base or a
 * composition. Errors of lam_store_open, of lam_store_open_item, LAM_E_ARGUMENT for the other kind. */
lam_code held_open(const struct options *o, const char *text, enum held_kind kind, struct held **out, lam_error *err);
/* The .slm of a base or an adapter; of a composition its base. NULL for NULL. */
const char *held_path(const struct held *h);
/* Of a composition, its files paths to open; else NULL. */
const lam_manifest *held_manifest(const struct held *h);
/* Notes in the store that this model ran, for the time when none is named. NULL is allowed; a store that cannot be written to stays as it is. */
void held_note_used(const struct options *o, const struct held *h);
/* NULL is allowed. */
void held_close(struct held *h);

/* The active composition's manifest digest: what a model may be called by. *generation is 0 if none is active, or if there is no store. A store that is
 * there and damaged is an error: those of lam_store_open and lam_store_active. */
lam_code held_active(const struct options *o, char digest[LAM_DIGEST_TEXT], uint64_t *generation, lam_error *err);

#endif
