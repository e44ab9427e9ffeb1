/* lamina logits: a digest of the logits at every position, or the logits themselves. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "default_model.h"
#include "output.h"
#include "progress.h"
#include "prompt.h"
#include "report.h"
#include "waived.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sink {
    const struct options *o;
    struct tokens tokens;
    struct output output; /* raw float32; without a file: none is asked for */
    json_t *list;    /* with --json */
    char *digests;   /* of all positions, one after the other */
    int write_errno; /* of a failed write, else 0 */
    struct progress progress;
};

static bool take(void *context, size_t position, const float *logits, size_t n_vocab)
{
    struct sink *s = context;
    char *digest = s->digests + position * LAM_DIGEST_TEXT;
    lam_digest_bytes(logits, n_vocab * sizeof *logits, digest);
    bool written = !s->output.file || fwrite(logits, sizeof *logits, n_vocab, s->output.file) == n_vocab;
    if (!written) s->write_errno = errno ? errno : EIO;
    if (s->o->json)
        json_array_append_new(s->list, json_pack("{s:I,s:I,s:s}", "position", (json_int_t)position, "token",
                                                 (json_int_t)s->tokens.ids[position], "digest", digest));
    else if (!s->output.file && !s->o->quiet)
        printf("%6zu %8u %s\n", position, s->tokens.ids[position], digest);
    bool more = progress_step(&s->progress, "logits", position + 1, s->tokens.n);
    return more && !s->write_errno && !ferror(stdout);
}

static int finish(const struct options *o, const struct opened *all, const struct sink *s)
{
    char whole[LAM_DIGEST_TEXT];
    size_t n = s->tokens.n;
    lam_digest_bytes(s->digests, n * LAM_DIGEST_TEXT, whole);
    if (o->json)
        return print_json(o, json_pack("{s:s,s:s,s:s,s:s,s:o,s:s,s:s,s:I,s:I,s:O}", "composition_id", lam_composition_id(all->composition),
                                       "standing", standing(all),
                                       "kv_format", lam_composition_kv_format(all->composition), "bytes",
                                       bytes_state(o), "waived",
                                       waived_names(all), "isa",
                                       lam_engine_isa(all->engine), "digest", whole, "positions", (json_int_t)n, "vocabulary",
                                       (json_int_t)all->info.n_vocab, "logits", s->list));
    printf("all %zu positions %s\ncomposition %s\n", n, whole, lam_composition_id(all->composition));
    print_standing(stdout, all, 0);
    print_kv_format(stdout, o, all);
    if (o->verify == LAM_VERIFY_OFF) printf("bytes unverified\n");
    print_waived(stdout, all);
    if (o->output) note(o, "%s: %zu rows of %u float32", o->output, n, all->info.n_vocab);
    return 0;
}

static lam_code fail_write(const struct sink *s, lam_error *err)
{
    return fail(err, s->write_errno == ENOSPC ? LAM_E_NO_SPACE : LAM_E_IO, "%s: %s", s->o->output, strerror(s->write_errno));
}

static lam_code open_output(struct sink *s, const struct opened *all, lam_error *err)
{
    const struct options *o = s->o;
    if (!o->output) return LAM_OK;
    lam_code code = check_not_source(o->output, o->model, err);
    if (code == LAM_OK) code = check_not_read(o, all, o->output, err);
    return code == LAM_OK ? output_open(o->output, &s->output, err) : code;
}

static lam_code run(struct sink *s, const struct opened *all, lam_error *err)
{
    lam_session *session = NULL;
    size_t n = s->tokens.n;
    lam_code code = lam_session_new(all->composition, (size_t)count_or(s->o->context, n), &session, err);
    s->list = json_array();
    s->digests = calloc(n, LAM_DIGEST_TEXT);
    if (code == LAM_OK && !(s->list && s->digests)) code = fail_memory(err);
    if (code == LAM_OK) code = open_output(s, all, err);
    if (code == LAM_OK) {
        lam_session_allow_base(session, s->o->allow_base);
        progress_begin(&s->progress, s->o, true);
        code = lam_session_feed(session, s->tokens.ids, n, take, s, err);
        progress_end(&s->progress);
        if (code != LAM_OK) explain_feed(err);
    }
    if (s->write_errno) code = fail_write(s, err);
    code = output_close(&s->output, code, err);
    lam_session_free(session);
    return code;
}

int cmd_logits(struct options *o)
{
    lam_error err;
    struct opened all;
    struct text text = {0};
    struct sink s = {.o = o};
    char path[MODEL_PATH];
    if (!check_prompt_options(o)) return 2;
    if (!o->prompt && !o->token_ids && isatty(STDIN_FILENO)) return usage(o, "logits of what? give -p TEXT or --token-ids LIST");
    int failed = choose_model(o, 0, 0, path);
    if (failed) return failed;
    lam_code code = open_all(o, &all, &err);
    if (code == LAM_OK) code = read_prompt(o, &all, &text, &s.tokens, &err);
    if (code == LAM_OK) code = run(&s, &all, &err);
    int status = code == LAM_OK ? finish(o, &all, &s) : ferror(stdout) ? 1 : report(o, &err);
    free(text.bytes);
    free(s.digests);
    json_decref(s.list);
    lam_memory_free(s.tokens.ids);
    close_all(&all);
    return status;
}
