/* No store: a WebAssembly engine has no locks and no durable files. */
#include "held.h"

#include "commands.h"
#include "report.h"

int cmd_store(struct options *o) { return usage(o, "the WebAssembly build has no store"); }

lam_code held_open(const struct options *o, const char *text, enum held_kind kind, struct held **out, lam_error *err)
{
    (void)o, (void)text, (void)kind, (void)err;
    *out = NULL;
    return LAM_OK;
}

const char *held_path(const struct held *h) { return (void)h, NULL; }
const lam_manifest *held_manifest(const struct held *h) { return (void)h, NULL; }
void held_note_used(const struct options *o, const struct held *h) { (void)o, (void)h; }
void held_close(struct held *h) { (void)h; }

lam_code held_active(const struct options *o, char digest[LAM_DIGEST_TEXT], uint64_t *generation, lam_error *err)
{
    (void)o, (void)digest, (void)err;
    *generation = 0;
    return LAM_OK;
}
