#define _POSIX_C_SOURCE 200809L /* gmtime_r */

#include "store/change.h"
#include "base/os.h"
#include "base/process.h"
#include "store/active.h"
#include "store/index.h"
#include "store/records.h"

#include <string.h>
#include <time.h>

lam_code lam_change_begin(const struct lam_store *s, struct lam_change *c, lam_error *err)
{
    json_t *line = json_pack("{s:s,s:s,s:s*,s:s*,s:s*}", "op", c->op, "phase", "begin", "name", c->name, "from", c->from, "to", c->to);
    line = lam_json_whole(line, line && c->generation ? json_object_set_new(line, "generation", json_integer((json_int_t)c->generation)) : !line);
    return lam_record_append(s, &lam_journal, line, &c->seq, err);
}

/* Now, as RFC 3339 writes it. It orders nothing: clocks go back. */
static void now_text(char out[32])
{
    time_t now = (time_t)lam_unix_time();
    struct tm utc;
    if (!gmtime_r(&now, &utc) || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) strcpy(out, "?");
}

static json_t *audit_line(const struct lam_store *s, const struct lam_change *c, const char *outcome, const lam_error *why)
{
    char when[32], who[400];
    now_text(when);
    lam_process_user(who, sizeof who);
    json_t *line = json_pack("{s:s,s:s,s:I,s:s,s:s*,s:s*,s:s*,s:s*,s:s}", "at", when, "by", who, "pid", (json_int_t)lam_process_number(), "op",
                             c->op, "name", c->name, "from", c->from, "to", c->to, "reason", s->reason, "outcome", outcome);
    int failed = !line;
    if (line && c->seq) failed |= json_object_set_new(line, "journal", json_integer((json_int_t)c->seq));
    if (line && c->generation) failed |= json_object_set_new(line, "generation", json_integer((json_int_t)c->generation));
    if (line && why) failed |= json_object_set_new(line, "error", json_pack("{s:s,s:s}", "code", lam_code_name(why->code), "message", why->message));
    return lam_json_whole(line, failed);
}

lam_code lam_change_is_done(const struct lam_store *s, const struct lam_change *c, bool *done, lam_error *err)
{
    struct lam_active active;
    struct lam_index index;
    *done = false; /* without name and generation it may be done again */
    if (c->generation) {
        LAM_TRY(lam_active_read(s, &active, err));
        *done = active.generation == c->generation && c->to && strcmp(active.manifest, c->to) == 0;
    } else if (c->name) {
        LAM_TRY(lam_index_read(s, &index, err));
        const struct lam_index_entry *e = lam_index_find(&index, c->name);
        *done = c->to ? e && strcmp(e->manifest.digest, c->to) == 0 : !e;
        lam_index_release(&index);
    }
    return LAM_OK;
}

lam_code lam_change_close(const struct lam_store *s, const struct lam_change *c, const char *outcome, lam_error *err)
{
    json_t *line = json_pack("{s:s,s:s,s:s,s:I}", "op", c->op, "phase", "end", "outcome", outcome, "begin", (json_int_t)c->seq);
    return lam_record_append(s, &lam_journal, line, NULL, err);
}

lam_code lam_change_end(const struct lam_store *s, const struct lam_change *c, const char *outcome, const lam_error *why, lam_error *err)
{
    LAM_TRY(lam_record_append(s, &lam_audit, audit_line(s, c, outcome, why), NULL, err));
    return c->seq ? lam_change_close(s, c, outcome, err) : LAM_OK;
}

lam_code lam_change_failed(struct lam_store *s, const struct lam_change *c, const lam_error *why)
{
    bool done = false;
    if (why->code == LAM_E_CANCELLED && !c->seq) return why->code; /* also where it did not want to wait for the lock */
    if (lam_store_lock(s, NULL) != LAM_OK) return why->code;
    if (!c->seq || lam_change_is_done(s, c, &done, NULL) == LAM_OK) lam_change_end(s, c, done ? "done" : "failed", why, NULL);
    lam_store_unlock(s);
    return why->code;
}
