#define _POSIX_C_SOURCE 200809L
#define _GNU_SOURCE 1 /* sched affinity is Linux's */

#include "base/cpus.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_ROOM 4096

/* The first line of root/path that begins with start, into line[size], without its end. False if there is none. */
static bool find_line(const char *root, const char *path, const char *start, char *line, size_t size)
{
    char whole[PATH_ROOM];
    int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    FILE *file = n > 0 && (size_t)n < sizeof whole ? fopen(whole, "r") : NULL;
    bool found = false;
    while (file && !found && fgets(line, (int)size, file)) found = strncmp(line, start, strlen(start)) == 0;
    if (file) fclose(file);
    if (found) line[strcspn(line, "\n")] = 0;
    return found;
}

static bool read_line(const char *root, const char *path, char *line, size_t size) { return find_line(root, path, "", line, size); }

/* The next range of a list such as "0-3,8,10-11". False at its end or where it is no list. */
static bool next_range(const char **list, unsigned long *first, unsigned long *last)
{
    char *end;
    if (**list < '0' || **list > '9') return false;
    *first = *last = strtoul(*list, &end, 10);
    if (*end == '-') *last = strtoul(end + 1, &end, 10);
    *list = *end == ',' ? end + 1 : end;
    return *last >= *first && *last < LAM_CPUS_MAX;
}

/* A core is called by the lowest of its processors. */
static unsigned core_of(const char *root, unsigned cpu)
{
    char path[96], line[1024];
    const char *list = line;
    unsigned long first, last;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    return read_line(root, path, line, sizeof line) && next_range(&list, &first, &last) ? (unsigned)first : cpu;
}

/* Cores among the processors that are marked. */
static unsigned count_cores(const char *root, const bool *marked, size_t n)
{
    bool seen[LAM_CPUS_MAX] = {false};
    unsigned cores = 0;
    for (unsigned cpu = 0; cpu < n; cpu++) {
        unsigned core = marked[cpu] ? core_of(root, cpu) : 0;
        if (!marked[cpu] || seen[core]) continue;
        seen[core] = true;
        cores++;
    }
    return cores;
}

static void read_node(const char *root, unsigned node, const bool *allowed, size_t n, struct lam_cpus *out)
{
    char path[96], line[4096];
    const char *list = line;
    bool here[LAM_CPUS_MAX] = {false};
    unsigned long first, last;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
    if (!read_line(root, path, line, sizeof line)) return;
    while (next_range(&list, &first, &last))
        for (unsigned long cpu = first; cpu <= last && cpu < n; cpu++) here[cpu] = allowed[cpu];
    unsigned cores = count_cores(root, here, n);
    out->nodes += cores > 0;
    if (cores > out->node_cores) out->node_cores = cores;
}

static void read_nodes(const char *root, const bool *allowed, size_t n, struct lam_cpus *out)
{
    char line[4096];
    const char *list = line;
    unsigned long first, last;
    if (read_line(root, "/sys/devices/system/node/online", line, sizeof line))
        while (next_range(&list, &first, &last))
            for (unsigned long node = first; node <= last; node++) read_node(root, (unsigned)node, allowed, n, out);
    if (out->nodes) return;
    out->nodes = 1;
    out->node_cores = out->cores;
}

/* "QUOTA PERIOD" in microseconds, or "max PERIOD". A fraction of a processor is not worth a thread that all others wait for. */
static unsigned parse_quota(const char *line)
{
    char *end;
    unsigned long quota = strtoul(line, &end, 10), period = end != line && *end == ' ' ? strtoul(end + 1, NULL, 10) : 0;
    if (period == 0) return 0;
    unsigned long whole = quota / period;
    return whole < 1 ? 1 : whole > LAM_CPUS_MAX ? LAM_CPUS_MAX : (unsigned)whole;
}

/* The least quota of the group and of those around it (cgroup v2: the line "0::/path"). */
static unsigned read_quota(const char *root)
{
    char group[1024], path[1200], line[64];
    unsigned least = 0;
    if (!find_line(root, "/proc/self/cgroup", "0::/", group, sizeof group)) return 0;
    char *name = group + 3;
    if (!name[1]) *name = 0;
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", name);
        unsigned quota = read_line(root, path, line, sizeof line) ? parse_quota(line) : 0;
        if (quota && (!least || quota < least)) least = quota;
        char *slash = strrchr(name, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

void lam_cpus_read(const char *root, const bool *allowed, size_t n, struct lam_cpus *out)
{
    *out = (struct lam_cpus){0};
    if (n > LAM_CPUS_MAX) n = LAM_CPUS_MAX;
    for (size_t cpu = 0; cpu < n; cpu++) out->processors += allowed[cpu];
    if (out->processors == 0) {
        *out = (struct lam_cpus){.processors = 1, .cores = 1, .nodes = 1, .node_cores = 1, .threads = 1};
        return;
    }
    out->cores = count_cores(root, allowed, n);
    read_nodes(root, allowed, n, out);
    out->quota = read_quota(root);
    out->threads = out->quota && out->quota < out->node_cores ? out->quota : out->node_cores;
}

void lam_cpus_here(struct lam_cpus *out)
{
    bool allowed[LAM_CPUS_MAX] = {false};
    cpu_set_t set[LAM_CPUS_MAX / CPU_SETSIZE];
    memset(set, 0, sizeof set);
    if (sched_getaffinity(0, sizeof set, set) == 0)
        for (size_t cpu = 0; cpu < LAM_CPUS_MAX; cpu++) allowed[cpu] = CPU_ISSET_S(cpu, sizeof set, set);
    lam_cpus_read("", allowed, LAM_CPUS_MAX, out);
}

int lam_cpu_now(void) { return sched_getcpu(); }
