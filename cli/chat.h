/* The chat on a terminal. */
#ifndef LAM_CLI_CHAT_H
#define LAM_CLI_CHAT_H

#include "common.h"

/* Reads lines until the end of input or /quit. Returns the exit status. */
int chat(struct options *o, struct opened *all);

/* Set by Ctrl-C; a generation stops at its next token. */
extern volatile int interrupted;
void watch_interrupts(void);

#endif
