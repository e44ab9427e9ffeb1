/* A WebAssembly program has one thread. */
#include "base/cpus.h"

void lam_cpus_here(struct lam_cpus *out)
{
    *out = (struct lam_cpus){.processors = 1, .cores = 1, .nodes = 1, .node_cores = 1, .threads = 1};
}

int lam_cpu_now(void) { return -1; }
