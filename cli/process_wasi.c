/* No signals, no folder of our own, no figures about the process. */
#include "process.h"

void process_keep_streams(void) {}
void process_watch_signals(bool json) { (void)json; }
void process_hold_signals(void) {}
void process_release_signals(void) {}
bool process_wait_input(void) { return true; }
int process_signal(void) { return 0; }
void process_forget_signal(void) {}

bool process_folder(char *path, unsigned long room)
{
    (void)path;
    (void)room;
    return false;
}

double process_peak_bytes(void) { return 0.0; }
double process_anonymous_bytes(void) { return 0.0; }
