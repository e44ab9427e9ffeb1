#include "store/sources.h"
#include "base/alloc.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_FAILURES 6    /* of a source in a row */
#define FIRST_WAIT 0.1     /* seconds after a failure; each further one doubles it */
#define MOST_WAIT 5.0

/* A connection, and the range that it is at. */
struct slot {
    struct lam_http_request request;
    struct lam_source *source;      /* of the bytes so far; NULL: none yet */
    const struct lam_source *avoid; /* sent wrong bytes for this range */
    uint8_t *buffer;                /* owned */
    size_t range, had;              /* had: bytes that were there when the request began */
    double begun;
    bool taken, under_way, mixed;   /* mixed: bytes of several sources */
};

struct fetch {
    struct lam_sources *s;
    const struct lam_range *ranges;
    size_t n, next, n_done;
    struct slot slots[LAM_MOST_CONNECTIONS];
    size_t n_slots;
    lam_range_fn accept;
    void *context;
};

void lam_sources_say(const struct lam_sources *s, const char *format, ...)
{
    char line[600];
    va_list args;
    if (!s->say) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    s->say(s->say_context, line);
}

static void give_up(struct lam_sources *s, struct lam_source *source, const lam_error *why)
{
    if (source->out) return;
    source->out = true;
    LAM_RAISE(&s->last, why->code, "%.200s: %.290s", source->url, why->message);
    lam_sources_say(s, "%s: %s (%s); this source is not used any more", source->url, why->message, lam_code_name(why->code));
}

static bool may_ask(const struct lam_sources *s, const struct lam_source *c) { return !c->out && (!s->only || s->only == c); }

/* The least busy source that may be asked now. A range that has bytes stays with its source while that lasts. */
static struct lam_source *choose_source(struct lam_sources *s, const struct slot *t, double now)
{
    struct lam_source *best = NULL;
    bool others = false;
    for (size_t i = 0; i < s->n; i++) others |= may_ask(s, &s->list[i]) && &s->list[i] != t->avoid;
    if (t->source && t->request.got && !t->source->out) return t->source->wait_until <= now ? t->source : NULL;
    for (size_t i = 0; i < s->n; i++) {
        struct lam_source *c = &s->list[i];
        if (!may_ask(s, c) || c->wait_until > now || (others && c == t->avoid)) continue;
        if (!best || c->n_active < best->n_active) best = c;
    }
    return best;
}

static lam_code begin(struct fetch *f, struct slot *t, struct lam_source *source, double now, lam_error *err)
{
    const struct lam_range *range = &f->ranges[t->range];
    size_t got = t->request.got;
    if (got && t->source != source) t->mixed = true;
    t->source = source;
    t->had = got;
    t->begun = now;
    t->request = (struct lam_http_request){.url = source->url, .user = source->user, .headers = {source->authorization},
                                           .from = range->from + got,
                                           .bytes = range->bytes - got, .buffer = t->buffer, .room = range->bytes, .got = got,
                                           .etag = source->etag[0] ? source->etag : NULL, .total = f->s->total, .owner = t};
    LAM_TRY(lam_http_start(f->s->http, &t->request, err));
    t->under_way = true;
    source->n_active++;
    return LAM_OK;
}

/* Gives every idle connection something to do. */
static lam_code begin_all(struct fetch *f, lam_error *err)
{
    double now = lam_now();
    size_t n_alive = 0;
    for (size_t i = 0; i < f->s->n; i++) n_alive += may_ask(f->s, &f->s->list[i]);
    if (n_alive == 0) return LAM_RAISE(err, f->s->last.code, "%s", f->s->last.message);
    for (size_t i = 0; i < f->n_slots; i++) {
        struct slot *t = &f->slots[i];
        if (t->under_way) continue;
        if (!t->taken) {
            if (f->next == f->n) continue;
            uint8_t *buffer = lam_realloc(t->buffer, f->ranges[f->next].bytes, 1);
            if (!buffer) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu bytes to fetch", f->ranges[f->next].bytes);
            *t = (struct slot){.buffer = buffer, .range = f->next++, .taken = true};
        }
        struct lam_source *source = choose_source(f->s, t, now);
        if (source) LAM_TRY(begin(f, t, source, now, err));
    }
    return LAM_OK;
}

/* A failure that may pass: of the network, or of a server that is busy. */
static bool may_pass(const struct lam_http_request *r)
{
    long status = r->answer.status;
    return r->code == LAM_OK || r->code == LAM_E_NETWORK || (r->code == LAM_E_HTTP &&
                                                             (status >= 500 || status == 429 || status == 408));
}

/* Connections of one source break together: what began before the last failure does not count again. */
static void count_failure(struct lam_sources *s, struct slot *t)
{
    struct lam_source *source = t->source;
    double now = lam_now(), wait = FIRST_WAIT;
    lam_error why = t->request.why;
    if (t->request.code == LAM_OK) LAM_RAISE(&why, LAM_E_NETWORK, "the connection ended early");
    if (t->request.got > t->had) source->n_failures = 0;
    else if (t->begun >= source->failed) source->n_failures++;
    source->failed = now;
    for (unsigned i = 1; i < source->n_failures && wait < MOST_WAIT; i++) wait *= 2.0;
    source->wait_until = now + wait;
    if (source->n_failures >= MOST_FAILURES) give_up(s, source, &why);
}

/* The source wants another login. Requests that began before the last one are no reason for the next. */
static lam_code renew(struct lam_sources *s, struct slot *t)
{
    struct lam_source *source = t->source;
    lam_error why = t->request.why;
    if (t->begun < source->renewed_at) return LAM_OK;
    bool again = !source->renewed && s->renew(s->renew_context, source, &t->request.answer, &why) == LAM_OK;
    if (!again) give_up(s, source, &why);
    source->renewed = true;
    source->renewed_at = lam_now();
    return LAM_OK;
}

static lam_code take_failure(struct fetch *f, struct slot *t, lam_error *err)
{
    struct lam_sources *s = f->s;
    struct lam_http_request *r = &t->request;
    if (r->code == LAM_E_NO_MEMORY) return LAM_RAISE(err, r->code, "%s", r->why.message);
    if (may_pass(r)) {
        count_failure(s, t);
        return LAM_OK;
    }
    if (r->code == LAM_E_LOGIN && s->renew) return renew(s, t);
    give_up(s, t->source, &r->why);
    return LAM_OK;
}

bool lam_sources_blameless(lam_code code)
{
    return code == LAM_E_NO_MEMORY || code == LAM_E_IO || code == LAM_E_NO_SPACE || code == LAM_E_CANCELLED;
}

/* All bytes of a range are there. */
static lam_code take_range(struct fetch *f, struct slot *t, lam_error *err)
{
    struct lam_source *source = t->source;
    lam_error why;
    lam_code code = f->accept(f->context, t->range, t->buffer, t->request.got, &why);
    source->n_failures = 0;
    source->renewed = false;
    if (code == LAM_OK) {
        t->taken = false;
        f->n_done++;
        f->s->done += t->request.got;
        return LAM_OK;
    }
    if (lam_sources_blameless(code)) return LAM_RAISE(err, code, "%s", why.message);
    t->request.got = 0;
    t->avoid = t->mixed ? NULL : source;
    if (t->mixed) {
        t->mixed = false; /* nobody knows whose bytes were wrong: once more, from one */
        return LAM_OK;
    }
    if (++source->n_faults >= LAM_MOST_FAULTS || code != LAM_E_DIGEST) give_up(f->s, source, &why);
    else lam_sources_say(f->s, "%s: %s (%s); it is fetched again", source->url, why.message, lam_code_name(code));
    return LAM_OK;
}

static lam_code take_done(struct fetch *f, struct lam_http_request *r, lam_error *err)
{
    struct slot *t = r->owner;
    t->under_way = false;
    t->source->n_active--;
    f->s->fetched += r->got - t->had;
    if (!t->source->etag[0] && r->got > t->had) memcpy(t->source->etag, r->answer.etag, sizeof t->source->etag);
    const struct lam_range *range = &f->ranges[t->range];
    if (r->code == LAM_OK && r->got == range->bytes) return take_range(f, t, err);
    if (r->code == LAM_OK && r->total < range->from + range->bytes)
        r->code = LAM_RAISE(&r->why, LAM_E_HTTP_LENGTH, "the server's file has %" PRIu64 " bytes, %" PRIu64 " are needed", r->total,
                            range->from + range->bytes);
    return take_failure(f, t, err);
}

static lam_code tell_progress(const struct fetch *f, lam_error *err)
{
    struct lam_sources *s = f->s;
    uint64_t coming = 0;
    for (size_t i = 0; i < f->n_slots; i++)
        if (f->slots[i].taken) coming += f->slots[i].request.got;
    if (!s->progress || s->progress(s->progress_context, "fetch", s->done + coming, s->of)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_CANCELLED, "stopped; the same command goes on from here");
}

static lam_code run(struct fetch *f, lam_error *err)
{
    while (f->n_done < f->n) {
        LAM_TRY(begin_all(f, err));
        struct lam_http_request *r = lam_http_wait(f->s->http, 0.05);
        if (r) LAM_TRY(take_done(f, r, err));
        LAM_TRY(tell_progress(f, err));
    }
    return LAM_OK;
}

lam_code lam_sources_fetch(struct lam_sources *s, const struct lam_range *ranges, size_t n, lam_range_fn accept, void *context,
                           lam_error *err)
{
    struct fetch *f = lam_alloc(1, sizeof *f);
    if (!f) return LAM_RAISE(err, LAM_E_NO_MEMORY, "fetch");
    *f = (struct fetch){.s = s, .ranges = ranges, .n = n, .accept = accept, .context = context};
    f->n_slots = n < s->connections ? n : s->connections;
    lam_code code = run(f, err);
    for (size_t i = 0; i < f->n_slots; i++) {
        if (f->slots[i].under_way) {
            lam_http_stop(s->http, &f->slots[i].request);
            f->slots[i].source->n_active--;
        }
        lam_free(f->slots[i].buffer);
    }
    lam_free(f);
    return code;
}
