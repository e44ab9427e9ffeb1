/* What a program takes beside what it asks for: measured, one set for each system (footprint_posix.c, footprint_wasi.c). */
#ifndef LAM_BASE_FOOTPRINT_H
#define LAM_BASE_FOOTPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lam_footprint {
    size_t process;      /* the program and its libraries, before anything is opened */
    size_t thread;       /* of a thread's stack, while kernels run on it */
    size_t tokenizer;    /* compiled expressions, a template's tree */
    size_t opening;      /* the zstd decoder and other libraries' scratch, while a file is opened */
    size_t kept;         /* of what is freed, at most so much stays with the process */
    size_t large, page;  /* blocks from `large` bytes on take whole pages of their own */
    size_t header;       /* in front of every block */
    bool files_in_memory; /* files are read into memory, not mapped */
};

const struct lam_footprint *lam_footprint_here(void);

#endif
