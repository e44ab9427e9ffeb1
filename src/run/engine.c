#include "base/alloc.h"
#include "base/cpus.h"
#include "base/os.h"
#include "run/objects.h"

#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_MAX_ROWS 64
#define MOST_ROWS 65536

const char *lam_version(void) { return LAM_VERSION; }
void lam_memory_free(void *block) { lam_free(block); }

lam_code lam_output_create(const char *path, char **name, int *fd, lam_error *err) { return lam_temporary_create(path, name, fd, err); }

void lam_digest_bytes(const void *bytes, size_t len, char out[LAM_DIGEST_TEXT])
{
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256(bytes, len, digest);
    lam_digest_text(digest, out);
}

static void engine_release(struct lam_engine *e)
{
    lam_prefix_free(e->prefix);
    lam_pool_free(e->pool);
    lam_free(e);
}

/* "16 processors, 8 cores, 2 NUMA nodes, quota 3" */
static void describe_machine(const struct lam_cpus *cpus, char *out, size_t size)
{
    int n = snprintf(out, size, "%u processor%s, %u core%s, %u NUMA node%s", cpus->processors, cpus->processors == 1 ? "" : "s",
                     cpus->cores, cpus->cores == 1 ? "" : "s", cpus->nodes, cpus->nodes == 1 ? "" : "s");
    if (cpus->quota) snprintf(out + n, size - (size_t)n, ", quota %u", cpus->quota);
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
    struct lam_cpus cpus;
    lam_cpus_here(&cpus);
    describe_machine(&cpus, e->machine, sizeof e->machine);
    e->budget.limit = options->budget;
    e->max_rows = options->max_rows ? options->max_rows : DEFAULT_MAX_ROWS;
    lam_code code = lam_kernels_pick(options->isa ? options->isa : getenv("LAMINA_ISA"), &e->kernels, err);
    if (code == LAM_OK) code = lam_pool_new(options->threads ? options->threads : cpus.threads, &e->pool, err);
    if (code == LAM_OK && options->prefix_cache) code = lam_prefix_new(options->prefix_cache, &e->prefix, err);
    if (code == LAM_OK) *out = e;
    else engine_release(e);
    return code;
}

void lam_engine_free(lam_engine *e)
{
    if (e && atomic_fetch_sub(&e->holders, 1) == 1) engine_release(e);
}

const char *lam_engine_isa(const lam_engine *e) { return e->kernels->name; }
const char *lam_engine_machine(const lam_engine *e) { return e->machine; }
void lam_engine_memory(const lam_engine *e, lam_memory *out)
{
    *out = (lam_memory){.limit = e->budget.limit, .used = atomic_load(&e->budget.used), .peak = atomic_load(&e->budget.peak)};
}

unsigned lam_engine_threads(const lam_engine *e) { return lam_pool_threads(e->pool); }
