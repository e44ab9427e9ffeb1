#include "store/exchange.h"
#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_CONNECTIONS 4

static bool tick(void *context)
{
    const struct lam_exchange *t = context;
    return !t->o->progress || t->o->progress(t->o->progress_context, "ask", 0, 0);
}

static lam_code check_options(const lam_transfer_options *o, lam_error *err)
{
    if (o->connections > LAM_MOST_CONNECTIONS)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%u connections; %d at most", o->connections, LAM_MOST_CONNECTIONS);
    if (o->n_sources >= LAM_MOST_SOURCES)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%zu more sources; %d at most", o->n_sources, LAM_MOST_SOURCES - 1);
    return LAM_OK;
}

lam_code lam_exchange_open(struct lam_exchange *t, struct lam_store *store, const char *reference,
                           const lam_transfer_options *options, lam_error *err)
{
    static const lam_transfer_options none = {0};
    *t = (struct lam_exchange){.store = store, .o = options ? options : &none};
    unsigned connections = t->o->connections ? t->o->connections : DEFAULT_CONNECTIONS;
    struct lam_http_options http = {.cacert = t->o->cacert, .limit_rate = t->o->limit_rate ? t->o->limit_rate / connections + 1 : 0};
    LAM_TRY(check_options(t->o, err));
    LAM_TRY(lam_reference_parse(reference, t->o->plain_http, &t->reference, err));
    LAM_TRY(lam_http_new(&http, &t->http, err));
    bool registry = t->reference.kind == LAM_REFERENCE_REGISTRY;
    t->remote = (struct lam_remote){.http = t->http, .server = registry ? t->reference.server : NULL, .host = t->reference.host,
                                    .repository = t->reference.name, .index = t->reference.url, .tick = tick, .tick_context = t};
    return lam_remote_login(&t->remote, t->o->user, err);
}

void lam_exchange_close(struct lam_exchange *t)
{
    lam_remote_release(&t->remote);
    lam_free(t->sources);
    lam_http_free(t->http);
    lam_reference_release(&t->reference);
}

void lam_exchange_say(const struct lam_exchange *t, const char *format, ...)
{
    char line[600];
    va_list args;
    if (!t->o->say) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    lam_clean_line(line);
    t->o->say(t->o->say_context, line);
}

lam_code lam_exchange_sources(struct lam_exchange *t, const char *url, lam_error *err)
{
    lam_free(t->sources);
    t->sources = lam_alloc(1, sizeof *t->sources);
    if (!t->sources) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    *t->sources = (struct lam_sources){.http = t->http, .n = 1, .connections = t->o->connections ? t->o->connections : DEFAULT_CONNECTIONS,
                                       .progress = t->o->progress, .progress_context = t->o->progress_context, .say = t->o->say,
                                       .say_context = t->o->say_context};
    struct lam_source *first = &t->sources->list[0];
    first->url = url;
    if (t->remote.server) {
        first->authorization = t->remote.authorization.len ? t->remote.authorization.data : NULL;
        t->sources->renew = lam_remote_renew;
        t->sources->renew_context = &t->remote;
    } else if (t->remote.user.len) {
        first->user = t->remote.user.data;
    }
    return LAM_OK;
}
