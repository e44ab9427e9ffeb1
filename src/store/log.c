/* lam_store_log: the audit for people and programs. */
#include "store/history.h"
#include "store/records.h"

static lam_code take(void *context, const json_t *line, lam_error *err)
{
    if (json_array_append(context, (json_t *)line) == 0) return LAM_OK;
    return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
}

/* The audit next to the journal. A writer may be between the two: what looks wrong is looked at again with writers kept out. */
static lam_code compare(lam_store *s, lam_error *err)
{
    lam_code code = lam_history_check_records(s, err);
    if (code == LAM_OK || s->depth || lam_store_lock_as_is(s, NULL) != LAM_OK) return code;
    code = lam_history_check_records(s, err);
    lam_store_unlock(s);
    return code;
}

lam_code lam_store_log(lam_store *s, char **json, lam_error *err)
{
    struct lam_str text = {0};
    uint64_t n, torn;
    lam_error why;
    json_t *lines = json_array();
    *json = NULL;
    if (!lines) return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    lam_code code = lam_record_walk(s, &lam_audit, take, lines, &n, &torn, err);
    if (code == LAM_OK) code = compare(s, err);
    if (code == LAM_OK || code == LAM_E_STORE_AUDIT || code == LAM_E_STORE_JOURNAL) {
        lam_code written = lam_json_canonical(lines, &text, &why);
        if (written == LAM_OK) *json = text.data;
        else if (err) *err = why;
        if (written != LAM_OK) code = written;
    }
    json_decref(lines);
    return code;
}
