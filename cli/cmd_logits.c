/* lamina logits: a digest of the logits at every position, or the logits themselves. */
#include "commands.h"
#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sink {
    const struct options *o;
    const uint32_t *tokens;
    FILE *file;      /* raw float32, or NULL */
    json_t *list;    /* with --json */
    char *digests;   /* of all positions, one after the other */
    size_t n_digests;
    bool write_failed;
};

static bool take(void *context, size_t position, const float *logits, size_t n_vocab)
{
    struct sink *s = context;
    char *digest = s->digests + position * LAM_DIGEST_TEXT;
    lam_digest_bytes(logits, n_vocab * sizeof *logits, digest);
    s->n_digests = position + 1;
    if (s->file && fwrite(logits, sizeof *logits, n_vocab, s->file) != n_vocab) s->write_failed = true;
    if (s->o->json)
        json_array_append_new(s->list, json_pack("{s:I,s:I,s:s}", "position", (json_int_t)position, "token",
                                                 (json_int_t)s->tokens[position], "digest", digest));
    else if (!s->file && !s->o->quiet)
        printf("%6zu %8u %s\n", position, s->tokens[position], digest);
    return !s->write_failed;
}

static int finish(const struct options *o, const struct opened *all, struct sink *s, size_t n)
{
    char whole[LAM_DIGEST_TEXT];
    lam_digest_bytes(s->digests, s->n_digests * LAM_DIGEST_TEXT, whole);
    if (o->json)
        return print_json(json_pack("{s:s,s:s,s:s,s:I,s:O}", "composition_id", lam_composition_id(all->composition), "isa",
                                    lam_engine_isa(all->engine), "digest", whole, "positions", (json_int_t)n, "logits", s->list));
    printf("all %zu positions %s\ncomposition %s\n", n, whole, lam_composition_id(all->composition));
    if (s->file) printf("%s: %zu rows of %u float32\n", o->output, n, all->info.n_vocab);
    return 0;
}

static int run(struct options *o, struct opened *all, const uint32_t *tokens, size_t n)
{
    lam_error err;
    lam_session *session = NULL;
    struct sink s = {.o = o, .tokens = tokens, .list = json_array(), .digests = calloc(n, LAM_DIGEST_TEXT)};
    int status = 1;
    if (o->output && !(s.file = fopen(o->output, "wb"))) {
        status = usage("%s: %s", o->output, strerror(errno));
    } else if (lam_session_new(all->composition, o->context ? o->context : n, &session, &err) != LAM_OK ||
               lam_session_feed(session, tokens, n, take, &s, &err) != LAM_OK) {
        status = s.write_failed ? usage("%s: %s", o->output, strerror(errno)) : report(o, &err);
    } else {
        status = finish(o, all, &s, n);
    }
    if (s.file && fclose(s.file) != 0 && status == 0) status = usage("%s: %s", o->output, strerror(errno));
    lam_session_free(session);
    free(s.digests);
    json_decref(s.list);
    return status;
}

int cmd_logits(struct options *o)
{
    lam_error err;
    struct opened all;
    uint32_t *tokens = NULL;
    size_t n = 0;
    if (!options_take_model(o)) return 2;
    if (!o->prompt && !o->token_ids) return usage("logits of what? give -p TEXT or --token-ids LIST");
    lam_code code = open_all(o, &all, &err);
    bool chat = code == LAM_OK && all.info.has_chat_template && !o->raw;
    if (code == LAM_OK) code = prompt_tokens(o, &all, o->prompt, chat, &tokens, &n, &err);
    int status = code == LAM_OK ? run(o, &all, tokens, n) : report(o, &err);
    lam_memory_free(tokens);
    close_all(&all);
    return status;
}
