#include "base/alloc.h"
#include "base/os.h"
#include "run/objects.h"

#include <stdlib.h>

#define DEFAULT_MAX_ROWS 64
#define MOST_ROWS 65536

const char *lam_version(void) { return LAM_VERSION; }
void lam_memory_free(void *block) { lam_free(block); }

void lam_digest_bytes(const void *bytes, size_t len, char out[LAM_DIGEST_TEXT])
{
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256(bytes, len, digest);
    lam_digest_text(digest, out);
}

static void engine_release(struct lam_engine *e)
{
    lam_pool_free(e->pool);
    lam_free(e);
}

lam_code lam_engine_new(const lam_engine_options *options, lam_engine **out, lam_error *err)
{
    const lam_engine_options defaults = {0};
    if (!options) options = &defaults;
    *out = NULL;
    if (options->max_rows > MOST_ROWS)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%zu rows in a forward pass: 1 to %d are possible", options->max_rows, MOST_ROWS);
    struct lam_engine *e = lam_alloc(1, sizeof *e);
    if (!e) return LAM_RAISE(err, LAM_E_NO_MEMORY, "an engine");
    e->holders = 1;
    e->max_rows = options->max_rows ? options->max_rows : DEFAULT_MAX_ROWS;
    lam_code code = lam_kernels_pick(options->isa ? options->isa : getenv("LAMINA_ISA"), &e->kernels, err);
    if (code == LAM_OK) code = lam_pool_new(options->threads ? options->threads : lam_cpu_count(), &e->pool, err);
    if (code == LAM_OK) *out = e;
    else engine_release(e);
    return code;
}

void lam_engine_free(lam_engine *e)
{
    if (e && atomic_fetch_sub(&e->holders, 1) == 1) engine_release(e);
}

const char *lam_engine_isa(const lam_engine *e) { return e->kernels->name; }
unsigned lam_engine_threads(const lam_engine *e) { return lam_pool_threads(e->pool); }
