#include "transfer.h"

static void say(void *context, const char *line)
{
    struct transfer *t = context;
    if (t->lines) json_array_append_new(t->lines, json_string(line));
    if (t->progress.drawn) fprintf(stderr, "\r\033[K");
    t->progress.drawn = false;
    note(t->o, "%s", line);
}

lam_code transfer_begin(struct transfer *t, const struct options *o, lam_error *err)
{
    *t = (struct transfer){.o = o, .lines = json_array()};
    progress_begin(&t->progress, o, false);
    t->options = (lam_transfer_options){
        .sources = o->sources.items, .n_sources = o->sources.n, .user = o->user, .cacert = o->cacert, .trust = o->trust,
        .connections = (unsigned)count_or(o->connections, 0), .plain_http = o->plain_http, .progress = progress_step,
        .progress_context = &t->progress, .say = say, .say_context = t,
    };
    return read_bytes("limit-rate", o->limit_rate, &t->options.limit_rate, err);
}

void transfer_end(struct transfer *t)
{
    progress_end(&t->progress);
    json_decref(t->lines);
    t->lines = NULL;
}

json_t *transfer_json(const struct transfer *t, const lam_transfer_report *r)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s*,s:I,s:I,s:I,s:I,s:O}", "kind", lam_store_kind_name(r->kind), "name", r->name, "digest",
                     r->digest, "root",
                     r->root, "trust", r->origin ? lam_root_origin_name(r->origin) : NULL, "bytes", (json_int_t)r->bytes, "moved",
                     (json_int_t)r->moved, "blobs", (json_int_t)r->n_blobs, "had", (json_int_t)r->n_had, "said", t->lines);
}

lam_code open_store(const struct options *o, bool create, lam_store **out, lam_error *err)
{
    lam_store_options options = {.folder = o->store};
    return lam_store_open(&options, create, out, err);
}
