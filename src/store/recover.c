#include "store/recover.h"
#include "base/alloc.h"
#include "base/durable.h"
#include "base/os.h"
#include "store/change.h"
#include "store/records.h"

#include <string.h>

static const char *text_of(const json_t *line, const char *key) { return json_string_value(json_object_get(line, key)); }

/* What the last journal line, a beginning, wanted to change. */
static struct lam_change read_change(const json_t *line)
{
    json_int_t generation = json_integer_value(json_object_get(line, "generation"));
    return (struct lam_change){.op = text_of(line, "op") ? text_of(line, "op") : "?", .name = text_of(line, "name"), .from = text_of(line, "from"),
                               .to = text_of(line, "to"), .generation = generation > 0 ? (uint64_t)generation : 0,
                               .seq = (uint64_t)json_integer_value(json_object_get(line, "seq"))};
}

/* The audit may have its line already: the process died between the two. */
static lam_code is_audited(const struct lam_store *s, uint64_t seq, bool *audited, lam_error *err)
{
    struct lam_record_end end;
    lam_code code = lam_record_end_read(s, &lam_audit, &end, err);
    *audited = code == LAM_OK && (uint64_t)json_integer_value(json_object_get(end.last, "journal")) == seq;
    lam_record_end_release(&end);
    return code;
}

static lam_code end_change(const struct lam_store *s, const struct lam_change *c, lam_error *err)
{
    bool done = false, audited = false;
    LAM_TRY(lam_change_is_done(s, c, &done, err));
    LAM_TRY(is_audited(s, c->seq, &audited, err));
    LAM_TRY(lam_sync_folder(s->folder, err)); /* the rename may not have reached the disk */
    const char *outcome = done ? "recovered" : "undone";
    return audited ? lam_change_close(s, c, outcome, err) : lam_change_end(s, c, outcome, NULL, err);
}

/* Half a line that a dying process has left is no line. */
static lam_code cut_torn(const struct lam_store *s, const struct lam_record_file *file, struct lam_record_end *end, lam_error *err)
{
    char *path;
    LAM_TRY(lam_record_end_read(s, file, end, err));
    if (!end->torn) return LAM_OK;
    LAM_TRY(lam_store_path(s, file->name, &path, err));
    lam_code code = lam_cut_file(path, end->bytes, err);
    lam_free(path);
    return code;
}

lam_code lam_store_recover(struct lam_store *s, lam_error *err)
{
    struct lam_record_end journal = {0}, audit = {0};
    lam_code code = cut_torn(s, &lam_audit, &audit, err);
    if (code == LAM_OK) code = cut_torn(s, &lam_journal, &journal, err);
    const char *phase = text_of(journal.last, "phase");
    if (code == LAM_OK && phase && strcmp(phase, "begin") == 0) {
        struct lam_change change = read_change(journal.last);
        code = end_change(s, &change, err);
    }
    lam_record_end_release(&journal);
    lam_record_end_release(&audit);
    return code;
}
