/* The default number of threads, from made-up machines: folders with the few files of /sys and /proc that matter. */
#define _XOPEN_SOURCE 700

#include "fixture.h"

#include "base/cpus.h"

#define MOST 64

/* cores and nodes are lists of processors with ';' between them. */
struct machine {
    const char *cores, *nodes;
    const char *group, *group_quota, *outer_quota; /* cgroup's path and cpu.max; of the group around it; NULL: no such file */
    const char *allowed;                           /* list */
    struct lam_cpus want;
};

static const struct machine machines[] = {
    /* two cores, nothing known of them */
    {"", "", NULL, NULL, NULL, "0,1", {2, 2, 1, 2, 0, 2}},
    /* four cores with two hyperthreads each, numbered the two ways that are usual */
    {"0,4;1,5;2,6;3,7", "0-7", NULL, NULL, NULL, "0-7", {8, 4, 1, 4, 0, 4}},
    {"0-1;2-3;4-5;6-7", "0-7", NULL, NULL, NULL, "0-7", {8, 4, 1, 4, 0, 4}},
    /* bound to three of these processors, two of one core */
    {"0-1;2-3;4-5;6-7", "0-7", NULL, NULL, NULL, "2,3,5", {3, 2, 1, 2, 0, 2}},
    /* two nodes; bound to all, to one and a half, to the second */
    {"0,8;1,9;2,10;3,11;4,12;5,13;6,14;7,15", "0-3,8-11;4-7,12-15", NULL, NULL, NULL, "0-15", {16, 8, 2, 4, 0, 4}},
    {"0,8;1,9;2,10;3,11;4,12;5,13;6,14;7,15", "0-3,8-11;4-7,12-15", NULL, NULL, NULL, "2-7", {6, 6, 2, 4, 0, 4}},
    {"0,8;1,9;2,10;3,11;4,12;5,13;6,14;7,15", "0-3,8-11;4-7,12-15", NULL, NULL, NULL, "4-5,12-13", {4, 2, 1, 2, 0, 2}},
    /* a node of memory alone */
    {"0;1", "0-1;", NULL, NULL, NULL, "0-1", {2, 2, 1, 2, 0, 2}},
    /* quotas: none, three processors and a half, less than one, of the group around, more than there is */
    {"0;1;2;3", "0-3", "/", "max 100000", NULL, "0-3", {4, 4, 1, 4, 0, 4}},
    {"0;1;2;3", "0-3", "/a/b", "350000 100000", NULL, "0-3", {4, 4, 1, 4, 3, 3}},
    {"0;1;2;3", "0-3", "/a/b", "20000 100000", NULL, "0-3", {4, 4, 1, 4, 1, 1}},
    {"0;1;2;3", "0-3", "/a/b", "max 100000", "200000 100000", "0-3", {4, 4, 1, 4, 2, 2}},
    {"0;1;2;3", "0-3", "/a/b", "300000 100000", "200000 100000", "0-3", {4, 4, 1, 4, 2, 2}},
    {"0;1;2;3", "0-3", "/a/b", "1600000 100000", NULL, "0-3", {4, 4, 1, 4, 16, 4}},
    /* files that hold something else */
    {"x;1-", "zero", "/a", "much", NULL, "0-1", {2, 2, 1, 2, 0, 2}},
    {"0;1", "0-999999999999", "/a", "100000 0", NULL, "0-1", {2, 2, 1, 2, 0, 2}},
    {"0;1", "0-1", "/a", "99999999999999999999 1", NULL, "0-1", {2, 2, 1, 2, LAM_CPUS_MAX, 2}},
    /* no processor at all */
    {"0;1", "0-1", NULL, NULL, NULL, "", {1, 1, 1, 1, 0, 1}},
};

static void put(const char *root, const char *folder, const char *name, const char *text)
{
    char path[1024];
    lam_error err;
    snprintf(path, sizeof path, "%s%s", root, folder);
    assert_ok(lam_make_dirs(path, &err), err);
    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    fixture_write(path, text, strlen(text));
}

/* Marks the processors of a list; what is no number counts as processor 0. */
static void mark(const char *list, bool marked[MOST])
{
    while (*list && *list != '\n') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (unsigned long i = first; i <= last && i < MOST; i++) marked[i] = true;
        list = end + strcspn(end, ",\n");
        list += *list == ',';
    }
}

/* Item i of a list with ';' between, as a line; false at the end. */
static bool item(const char *list, unsigned i, char line[128])
{
    for (; i; i--) {
        list = strchr(list, ';');
        if (!list) return false;
        list++;
    }
    snprintf(line, 128, "%.*s\n", (int)strcspn(list, ";"), list);
    return true;
}

static void build(const struct machine *m, const char *root)
{
    char folder[256], line[128];
    for (unsigned i = 0; *m->cores && item(m->cores, i, line); i++) {
        bool here[MOST] = {false};
        mark(line, here);
        for (unsigned cpu = 0; cpu < MOST; cpu++) {
            snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu%u/topology", cpu);
            if (here[cpu]) put(root, folder, "thread_siblings_list", line);
        }
    }
    unsigned nodes = 0;
    for (; *m->nodes && item(m->nodes, nodes, line); nodes++) {
        snprintf(folder, sizeof folder, "/sys/devices/system/node/node%u", nodes);
        put(root, folder, "cpulist", line);
    }
    snprintf(line, sizeof line, nodes > 1 ? "0-%u\n" : "0\n", nodes - 1);
    if (nodes) put(root, "/sys/devices/system/node", "online", line);
    if (!m->group) return;
    snprintf(folder, sizeof folder, "4:memory:/other\n0::%s\n", m->group);
    put(root, "/proc/self", "cgroup", folder);
    snprintf(folder, sizeof folder, "/sys/fs/cgroup%s", strcmp(m->group, "/") ? m->group : "");
    snprintf(line, sizeof line, "%s\n", m->group_quota);
    put(root, folder, "cpu.max", line);
    if (m->outer_quota) put(root, "/sys/fs/cgroup/a", "cpu.max", m->outer_quota);
}

static void test_machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct machine *m = &machines[i];
        char *root = test_make_folder();
        bool allowed[MOST] = {false};
        struct lam_cpus got;
        build(m, root);
        mark(m->allowed, allowed);
        lam_cpus_read(root, allowed, MOST, &got);
        test_remove_folder(root);
        if (memcmp(&got, &m->want, sizeof got) != 0)
            fail_msg("machine %zu: %u processors, %u cores, %u nodes, %u cores of one, quota %u, %u threads", i, got.processors,
                     got.cores, got.nodes, got.node_cores, got.quota, got.threads);
    }
}

static void test_here(void **state)
{
    (void)state;
    struct lam_cpus here;
    lam_engine *engine;
    lam_error err;
    lam_cpus_here(&here);
    assert_in_range(here.threads, 1, here.processors);
    assert_in_range(here.cores, 1, here.processors);
    assert_in_range(here.nodes, 1, here.cores);
    assert_ok(lam_engine_new(NULL, &engine, &err), err);
    assert_int_equal(lam_engine_threads(engine), here.threads);
    assert_non_null(strstr(lam_engine_machine(engine), "processor"));
    lam_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_machines), cmocka_unit_test(test_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
