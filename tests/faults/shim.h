/* Faults on purpose: the linker puts these in front of the system's calls (-Wl,--wrap=open …, see the Makefile), and the n-th one made fails,
 * or is the last that the process makes. */
#ifndef LAM_TESTS_FAULTS_SHIM_H
#define LAM_TESTS_FAULTS_SHIM_H

#include <stdbool.h>
#include <stddef.h>

enum fault_mode {
    FAULT_COUNT, /* nothing fails */
    FAULT_FAIL,  /* the call fails with .error, those after it succeed */
    FAULT_KILL,  /* the process ends before the call */
    FAULT_TORN,  /* the process ends after the call, of which a write got half of its bytes */
    FAULT_POWER  /* the process ends before the call, and files lose what no fsync has taken to the disk */
};
#define FAULT_EXIT 77 /* the status of a process that was ended so */

struct faults {
    enum fault_mode mode;
    bool memory;          /* allocations count; else calls that touch files or mappings */
    long at;              /* the call that it happens to, from 1; 0: none */
    int error;            /* errno */
    bool on;
    long counted;         /* calls since it was switched on */
    const char *hit;      /* the name of the call that it happened to */
    long late_renames;    /* of files with bytes that no fsync had taken to the disk */
    size_t unsynced;      /* folders in which a name changed since their last fsync */
};
extern struct faults faults;

/* Switches it on, with all counts at 0. */
void faults_begin(enum fault_mode mode, bool memory, long at, int error);
void faults_end(void);

/* What the clock tells, in seconds from the true time. */
extern long faults_clock;

#endif
