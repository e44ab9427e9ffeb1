/* Telling a caller how far work has come, at most some 20 times a second, and room on the disk. */
#ifndef LAM_IMPORT_PROGRESS_H
#define LAM_IMPORT_PROGRESS_H

#include "import/import.h"

struct lam_progress {
    const struct lam_import_options *options; /* may be NULL */
    const char *stage;
    uint64_t done, total; /* bytes */
    double last;          /* when the callback was called */
};

/* bytes more are done; 0 to begin with. LAM_E_CANCELLED if the callback says so. */
lam_code lam_progress_add(struct lam_progress *p, uint64_t bytes, lam_error *err);

/* LAM_E_LIMIT if a file of `bytes` passes options->max_bytes, LAM_E_NO_SPACE if the folder of out_path lacks them. */
lam_code lam_check_room(const char *out_path, uint64_t bytes, const struct lam_import_options *options, lam_error *err);

#endif
