/* The store's two append-only files, a JSON object a line: `journal`, what is being changed, and `audit.jsonl`, who changed what. Each line
 * holds its number ("seq", from 1), the SHA-256 of the line before it ("before"; of no bytes in the first), and of itself without
 * this member ("check"). A line is whole once its line end is there: what follows the last one is torn, and is cut. */
#ifndef LAM_STORE_RECORDS_H
#define LAM_STORE_RECORDS_H

#include "store/store.h"

struct lam_record_file {
    const char *name;
    lam_code damaged;  /* what a line is that does not follow from the one before it */
};
extern const struct lam_record_file lam_journal, lam_audit;

/* The last line. */
struct lam_record_end {
    json_t *last;      /* owned; NULL: there is none */
    uint64_t seq;      /* 0: there is none */
    char hash[LAM_DIGEST_TEXT];
    uint64_t bytes;    /* up to its end */
    uint64_t torn;     /* bytes behind it */
};

/* Reads the last line, and no other. file->damaged if it is no record. */
lam_code lam_record_end_read(const struct lam_store *s, const struct lam_record_file *file, struct lam_record_end *out, lam_error *err);
void lam_record_end_release(struct lam_record_end *end);

/* Appends line, an object that is taken over (NULL: memory was lacking), and waits until it is on the disk. What is torn is cut before.
 * *seq (may be NULL) gets its number. The store must be locked. */
lam_code lam_record_append(const struct lam_store *s, const struct lam_record_file *file, json_t *line, uint64_t *seq, lam_error *err);

/* Calls each (may be NULL) with every line; borrowed during the call. file->damaged names the first line that is broken, *n are
 * those before it; bytes behind the last line are no fault, *torn tells them. */
typedef lam_code (*lam_record_fn)(void *context, const json_t *line, lam_error *err);
lam_code lam_record_walk(const struct lam_store *s, const struct lam_record_file *file, lam_record_fn each, void *context, uint64_t *n,
                         uint64_t *torn, lam_error *err);

#endif
