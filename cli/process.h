/* What the program asks of its process: signals, standard streams, its own place. process_posix.c and process_wasi.c hold it. */
#ifndef LAM_CLI_PROCESS_H
#define LAM_CLI_PROCESS_H

#include <stdbool.h>

/* Makes sure that 0, 1 and 2 are open, so that no file of ours ever gets one of them: a message would then be written into it. */
void process_keep_streams(void);

/* From now on Ctrl-C, SIGTERM and SIGHUP end the program at once with 128 + their number, unless held; and a mapped file that was
 * truncated under us ends it with a message (as JSON with json) and 1: the library cannot tell in time. */
void process_watch_signals(bool json);
/* While held, the first signal only leaves a mark, for work that cleans up behind itself; a second one ends the program. Each hold
 * has its release. */
void process_hold_signals(void);
void process_release_signals(void);
/* Waits until standard input has a line, or its end. False if a signal came first, or had come already; held signals are meant. */
bool process_wait_input(void);
/* The number of the signal that left its mark, else 0. */
int process_signal(void);
void process_forget_signal(void);

/* The folder of this program, within path[room]. False where the system does not tell. */
bool process_folder(char *path, unsigned long room);

/* Peak resident bytes, 0 where the system does not tell. */
double process_peak_bytes(void);
/* Resident bytes that lie in no file, 0 where the system does not tell. */
double process_anonymous_bytes(void);

#endif
