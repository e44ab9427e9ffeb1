/* From what the user gave to tokens in a session. */
#ifndef LAM_CLI_PROMPT_H
#define LAM_CLI_PROMPT_H

#include "open.h"

#include "lamina/reuse.h"

/* A text with its length; it may hold zero bytes. */
struct text {
    char *bytes; /* owned (free), zero-terminated */
    size_t len;
};

/* A list of tokens. */
struct tokens {
    uint32_t *ids; /* owned (lam_memory_free) */
    size_t n;
};

/* All of a file, or of standard input for "-". */
lam_code read_whole(const char *path, struct text *out, lam_error *err);
/* given, or standard input if it is NULL. */
lam_code given_or_input(const char *given, struct text *out, lam_error *err);

/* A note of how many bytes are no UTF-8, if any: lam_tokenize replaces them. */
void note_replaced(const struct options *o, const struct text *text);

/* "1,2, 3" → tokens. */
lam_code parse_token_ids(const char *list, struct tokens *out, lam_error *err);

/* Whether this model's prompts go through its chat template. */
bool uses_template(const struct options *o, const struct opened *all);
/* Which options exclude each other. False, with a message, for a wrong use. */
bool check_prompt_options(const struct options *o);
/* LAM_E_TEMPLATE if --system or a manifest's prompt has no place in this model's prompts. */
lam_code check_system(const struct options *o, const struct opened *all, lam_error *err);
/* The prompt of the options: --token-ids, -p, or standard input less its last line end. text gets the prompt's text (empty with
 * --token-ids). */
lam_code read_prompt(const struct options *o, const struct opened *all, struct text *text, struct tokens *out, lam_error *err);

/* What --draft says. False, with a message, for a wrong use. */
bool draft_options(const struct options *o, lam_generate_options *out);

/* Tells of --allow-base where an activated adapter's invocation is missing. Returns err->code. */
lam_code explain_feed(lam_error *err);

/* Appends tokens[n] to the session with a progress bar; Ctrl-C ends it with LAM_E_CANCELLED and leaves the session as it
 * was. */
lam_code feed_prompt(const struct options *o, lam_session *session, const uint32_t *tokens, size_t n, lam_error *err);

#endif
