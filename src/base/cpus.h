/* How many threads are worth starting: decoding waits for memory, so two hyperthreads of a core are no faster than one, and each of
 * its barriers waits for the slowest thread, so threads beyond a CPU quota or on a far NUMA node slow all others down. */
#ifndef LAM_BASE_CPUS_H
#define LAM_BASE_CPUS_H

#include <stdbool.h>
#include <stddef.h>

#define LAM_CPUS_MAX 4096

struct lam_cpus {
    unsigned processors; /* that this process may run on */
    unsigned cores;      /* to which these belong */
    unsigned nodes;      /* NUMA nodes to which these belong */
    unsigned node_cores; /* of these cores, those of the node that has the most */
    unsigned quota;      /* whole processors that the control group's quota is worth, 1 at least; 0: no quota */
    unsigned threads;    /* the default: node_cores, or the quota if that is less */
};

/* root: "" for this machine, or a folder with a copy of /sys/devices/system, /sys/fs/cgroup and /proc/self/cgroup. What
 * cannot be read there is taken for a core of its own, one node, no quota. allowed[n]: the processors that this process may run on;
 * none is taken for one. */
void lam_cpus_read(const char *root, const bool *allowed, size_t n, struct lam_cpus *out);

/* This process on this machine. */
void lam_cpus_here(struct lam_cpus *out);

/* The processor that this thread is on at the moment; negative where the system cannot tell. */
int lam_cpu_now(void);

#endif
