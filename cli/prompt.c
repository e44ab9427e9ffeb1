#define _POSIX_C_SOURCE 200809L

#include "prompt.h"

#include "progress.h"
#include "report.h"
#include "suggest.h"

#include "lamina/reuse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static lam_code read_stream(FILE *f, const char *name, struct text *out, lam_error *err)
{
    size_t room = 1 << 16, n = 0;
    char *block = malloc(room);
    while (block) {
        n += fread(block + n, 1, room - n - 1, f);
        if (n + 1 < room) break;
        char *bigger = realloc(block, room *= 2);
        if (!bigger) free(block);
        block = bigger;
    }
    if (!block) return fail_memory(err);
    if (ferror(f)) {
        free(block);
        return fail(err, LAM_E_IO, "%s: %s", name, errno ? strerror(errno) : "cannot be read");
    }
    block[n] = 0;
    *out = (struct text){block, n};
    return LAM_OK;
}

lam_code read_whole(const char *path, struct text *out, lam_error *err)
{
    errno = 0;
    if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", out, err);
    FILE *f = fopen(path, "rb");
    if (!f) return fail(err, errno == ENOENT ? LAM_E_NOT_FOUND : LAM_E_IO, "%s: %s", path, strerror(errno));
    lam_code code = read_stream(f, path, out, err);
    fclose(f);
    return code;
}

lam_code given_or_input(const char *given, struct text *out, lam_error *err)
{
    if (!given) return read_whole("-", out, err);
    out->len = strlen(given);
    out->bytes = malloc(out->len + 1);
    if (!out->bytes) return fail_memory(err);
    memcpy(out->bytes, given, out->len + 1);
    return LAM_OK;
}

#define BLANKS " \n\t\r"

/* *c is moved behind one id and what separates it from the next: blanks, or one comma among them, behind which there must be one. */
static bool parse_id(const char **c, uint32_t *id)
{
    char *end;
    if (**c < '0' || **c > '9') return false;
    errno = 0;
    unsigned long long value = strtoull(*c, &end, 10);
    if (errno || value > UINT32_MAX) return false;
    const char *next = end + strspn(end, BLANKS);
    bool comma = *next == ',';
    if (comma) next += 1 + strspn(next + 1, BLANKS);
    if (comma ? !*next : *next && next == end) return false;
    *id = (uint32_t)value;
    *c = next;
    return true;
}

lam_code parse_token_ids(const char *list, struct tokens *out, lam_error *err)
{
    *out = (struct tokens){.ids = malloc((strlen(list) / 2 + 1) * sizeof *out->ids)};
    if (!out->ids) return fail_memory(err);
    for (const char *c = list + strspn(list, BLANKS); *c;)
        if (!parse_id(&c, &out->ids[out->n++])) return fail(err, LAM_E_ARGUMENT, "\"%.40s\" is not a list of token ids such as 1,2,3", c);
    return LAM_OK;
}

bool uses_template(const struct options *o, const struct opened *all) { return lam_composition_template_digest(all->composition) && !o->raw; }

bool check_prompt_options(const struct options *o)
{
    if (o->prompt && o->token_ids) return usage(o, "--prompt and --token-ids exclude each other"), false;
    if (o->system && o->raw) return usage(o, "--system and --raw exclude each other: a system message needs the chat template"), false;
    if (o->system && o->token_ids) return usage(o, "--system and --token-ids exclude each other"), false;
    return true;
}

static lam_code chat_tokens(const struct options *o, const struct opened *all, const struct text *text, struct tokens *out, lam_error *err)
{
    lam_message messages[2];
    size_t count = 0;
    char *formatted;
    if (strlen(text->bytes) != text->len)
        return fail(err, LAM_E_ARGUMENT, "the prompt holds a zero byte (byte %zu of %zu); --raw takes it", strlen(text->bytes), text->len);
    if (all->stack.m->prompt) messages[count++] = (lam_message){"system", all->stack.m->prompt};
    messages[count++] = (lam_message){"user", text->bytes};
    lam_code code = lam_chat_format(all->composition, messages, count, true, &formatted, err);
    if (code == LAM_E_UTF8) return fail(err, code, "the prompt is not UTF-8, which a chat template needs; --raw puts U+FFFD for what is none");
    if (code == LAM_E_TEMPLATE) hint(err, "--raw takes the text as it is");
    if (code != LAM_OK) return code;
    unsigned flags = (o->restore_session ? 0 : LAM_TOKENIZE_SPECIAL) | LAM_TOKENIZE_CONTROL;
    code = lam_tokenize(all->base, formatted, strlen(formatted), flags, &out->ids, &out->n, err);
    lam_memory_free(formatted);
    return code;
}

/* Bytes of the character at s[0..n), n >= 1, or 0 if it is not well-formed (Unicode 15.0, table 3-7). */
static size_t character_length(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    unsigned char least = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80, most = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (len > n || (len > 1 && (s[1] < least || s[1] > most))) return 0;
    for (size_t i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xbf) return 0;
    return len;
}

void note_replaced(const struct options *o, const struct text *text)
{
    size_t bad = 0;
    for (size_t at = 0; at < text->len;) {
        size_t n = character_length((const unsigned char *)text->bytes + at, text->len - at);
        if (n == 0) bad++;
        at += n ? n : 1;
    }
    if (bad) note(o, "%zu of %zu bytes of the text are no UTF-8; U+FFFD stands in their place", bad, text->len);
}

lam_code check_system(const struct options *o, const struct opened *all, lam_error *err)
{
    if (!all->stack.m->prompt || o->raw || o->token_ids || lam_composition_template_digest(all->composition)) return LAM_OK;
    return fail(err, LAM_E_TEMPLATE, "%s has no chat template, so there is no place for %s", all->info.name,
                o->system ? "--system" : "the manifest's prompt");
}

lam_code read_prompt(const struct options *o, const struct opened *all, struct text *text, struct tokens *out, lam_error *err)
{
    bool input = !o->prompt && !o->token_ids;
    lam_code code = check_system(o, all, err);
    if (code == LAM_OK) code = given_or_input(o->token_ids ? "" : o->prompt, text, err);
    if (code != LAM_OK) return code;
    if (input && text->len && text->bytes[text->len - 1] == '\n') text->bytes[--text->len] = 0;
    bool more = o->restore_session != NULL; /* the text goes on: it has begun already, and need not be longer */
    if (input && text->len == 0 && !more) return fail(err, LAM_E_ARGUMENT, "the prompt is empty: standard input held no text");
    if (more && !o->token_ids && text->len == 0) return LAM_OK;
    if (o->token_ids) code = parse_token_ids(o->token_ids, out, err);
    else if (uses_template(o, all)) code = chat_tokens(o, all, text, out, err);
    else {
        note_replaced(o, text);
        code = lam_tokenize(all->base, text->bytes, text->len, more ? 0 : LAM_TOKENIZE_SPECIAL, &out->ids, &out->n, err);
    }
    if (code != LAM_OK || out->n) return code;
    return fail(err, LAM_E_ARGUMENT, "the prompt is empty, and %s begins with no token of its own", all->info.name);
}

/* Of the text behind the ':', or 0. */
static size_t draft_length(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return *text >= '1' && *text <= '9' && !*end && n <= LAM_MAX_DRAFT ? n : 0;
}

bool draft_options(const struct options *o, lam_generate_options *out)
{
    static const char *const names[] = {"lookup", "base", NULL};
    static const lam_draft drafts[] = {LAM_DRAFT_LOOKUP, LAM_DRAFT_BASE};
    char meant[SUGGESTION];
    *out = (lam_generate_options){0};
    if (!o->draft) return true;
    size_t len = strcspn(o->draft, ":");
    for (size_t i = 0; names[i]; i++)
        if (strlen(names[i]) == len && memcmp(names[i], o->draft, len) == 0) out->draft = drafts[i];
    if (o->draft[len]) out->n_draft = draft_length(o->draft + len + 1);
    if (out->draft != LAM_DRAFT_NONE && (out->n_draft || !o->draft[len])) return true;
    usage(o, "--draft is lookup or base, perhaps with :N, N from 1 to %d%s", LAM_MAX_DRAFT, did_you_mean(o->draft, ":", names, meant));
    return false;
}

struct feeding {
    struct progress progress;
    size_t done, total;
};

/* A lam_feed_progress_fn. */
static bool prompt_step(void *context, size_t done, size_t total)
{
    struct feeding *f = context;
    f->done = done;
    f->total = total;
    return progress_step(&f->progress, "prompt", done, total) || done == total;
}

lam_code explain_feed(lam_error *err)
{
    bool missing = err->code == LAM_E_INVOCATION || err->code == LAM_E_INVOCATION_CUT || err->code == LAM_E_BASE_FALLBACK;
    if (missing) hint(err, "--allow-base lets the base answer in its place");
    return err->code;
}

lam_code feed_prompt(const struct options *o, lam_session *session, const uint32_t *tokens, size_t n, lam_error *err)
{
    struct feeding f = {.done = 0};
    size_t used = lam_session_length(session), context = lam_session_context(session);
    if (n > context - used)
        return fail(err, LAM_E_CONTEXT, "the prompt has %zu tokens, the context room for %zu (-c sets it)", used + n, context);
    lam_session_allow_base(session, o->allow_base);
    progress_begin(&f.progress, o, true);
    lam_code code = lam_session_prefill(session, tokens, n, prompt_step, &f, err);
    progress_end(&f.progress);
    if (code == LAM_E_CANCELLED) return fail(err, code, "stopped after %zu of %zu tokens of the prompt", f.done, f.total);
    return code == LAM_OK ? LAM_OK : explain_feed(err);
}
