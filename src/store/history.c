#include "store/history.h"
#include "store/active.h"
#include "store/records.h"

#include <stdio.h>
#include <string.h>

struct change {
    uint64_t seq;              /* of its beginning; 0: none */
    uint64_t generation;       /* 0: no switch */
    char to[LAM_DIGEST_TEXT];  /* "": then nothing is active */
};

struct history {
    struct change open;        /* begun and not ended */
    struct change switched;    /* the last switch that took place */
    uint64_t n_ended, last_ended; /* changes of the journal; the beginning of the last one */
    uint64_t n_told, last_told;   /* the audit's lines on changes of a journal; the beginning of the last one */
};

static uint64_t number(const json_t *line, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(line, key));
    return value > 0 ? (uint64_t)value : 0;
}

static bool is(const json_t *line, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(line, key));
    return value && strcmp(value, text) == 0;
}

static lam_code take_journal(void *context, const json_t *line, lam_error *err)
{
    struct history *h = context;
    const char *to = json_string_value(json_object_get(line, "to"));
    (void)err;
    if (is(line, "phase", "begin")) {
        h->open = (struct change){.seq = number(line, "seq"), .generation = number(line, "generation")};
        snprintf(h->open.to, sizeof h->open.to, "%s", to ? to : "");
    } else if (number(line, "begin") == h->open.seq) {
        if (h->open.generation && (is(line, "outcome", "done") || is(line, "outcome", "recovered"))) h->switched = h->open;
        h->last_ended = h->open.seq;
        h->n_ended++;
        h->open = (struct change){0};
    }
    return LAM_OK;
}

static lam_code take_audit(void *context, const json_t *line, lam_error *err)
{
    struct history *h = context;
    uint64_t seq = number(line, "journal");
    (void)err;
    if (!seq) return LAM_OK; /* nothing was begun */
    h->last_told = seq;
    h->n_told++;
    return LAM_OK;
}

lam_code lam_history_check_records(const struct lam_store *s, lam_error *err)
{
    struct history h = {0};
    uint64_t n, torn;
    LAM_TRY(lam_record_walk(s, &lam_journal, take_journal, &h, &n, &torn, err));
    LAM_TRY(lam_record_walk(s, &lam_audit, take_audit, &h, &n, &torn, err));
    bool being_told = h.open.seq && h.last_told == h.open.seq; /* its audit line is written before its end */
    if (h.n_told < h.n_ended + being_told || (h.last_told < h.last_ended))
        return LAM_RAISE(err, LAM_E_STORE_AUDIT, LAM_STORE_AUDIT ": tells of %llu changes, the last is line %llu of the journal; that has %llu, the last is line %llu",
                         (unsigned long long)h.n_told, (unsigned long long)h.last_told, (unsigned long long)h.n_ended,
                         (unsigned long long)h.last_ended);
    if (h.last_told == h.last_ended || being_told) return LAM_OK;
    return LAM_RAISE(err, LAM_E_STORE_JOURNAL, LAM_STORE_JOURNAL ": its last change is line %llu, " LAM_STORE_AUDIT " tells of one on line %llu",
                     (unsigned long long)h.last_ended, (unsigned long long)h.last_told);
}

static bool made(const struct change *c, const struct lam_active *active)
{
    if (!c->to[0]) return active->generation == 0;
    return active->generation == c->generation && strcmp(active->manifest, c->to) == 0;
}

lam_code lam_history_check_active(const struct lam_store *s, lam_error *err)
{
    struct history h = {0};
    struct lam_active active;
    uint64_t n, torn;
    LAM_TRY(lam_record_walk(s, &lam_journal, take_journal, &h, &n, &torn, err));
    LAM_TRY(lam_active_read(s, &active, err));
    if (!h.switched.generation || made(&h.switched, &active) || (h.open.generation && made(&h.open, &active))) return LAM_OK;
    return LAM_RAISE(err, LAM_E_STORE_ACTIVE, LAM_STORE_ACTIVE " says generation %llu, manifest %s; the journal's last switch is generation %llu, %s",
                     (unsigned long long)active.generation, active.manifest[0] ? active.manifest : "none",
                     (unsigned long long)h.switched.generation, h.switched.to[0] ? h.switched.to : "none");
}
