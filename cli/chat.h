/* The chat on a terminal: chat.c holds the conversation, chat_commands.c what begins with '/'. */
#ifndef LAM_CLI_CHAT_H
#define LAM_CLI_CHAT_H

#include "open.h"

#include <stdio.h>

struct chat {
    struct options *o;
    struct opened *all;
    FILE *talk;             /* where prompts and notices go: standard output if it is a terminal, else standard error */
    lam_session *session;   /* NULL before the first answer of a composition */
    uint32_t *fed;          /* [context] tokens in the session, owned */
    size_t n_fed;
    lam_message *messages;  /* contents owned */
    size_t n_messages;
    char *reply;            /* the answer so far, owned */
    size_t reply_len;
    bool colour, done;
};

/* Reads lines until the end of input or /quit. Returns the exit status. */
int chat(struct options *o, struct opened *all);

/* Forgets all messages but the first keep ones. */
void chat_forget(struct chat *c, size_t keep);

/* A line that begins with '/'. */
lam_code chat_command(struct chat *c, const char *line, lam_error *err);
/* What is composed, and its id. */
void chat_print_composition(const struct chat *c);

#endif
