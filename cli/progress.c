#define _POSIX_C_SOURCE 200809L

#include "progress.h"

#include "process.h"

#include <string.h>
#include <unistd.h>

#define PATIENCE 0.7  /* seconds before a bar is worth while */
#define INTERVAL 0.1  /* seconds between two drawings */

void progress_begin(struct progress *p, const struct options *o, bool tokens)
{
    *p = (struct progress){.show = !o->quiet && !o->json && isatty(STDERR_FILENO), .unit = tokens ? "tokens" : "MB",
                           .size = tokens ? 1.0 : 1e6};
    process_hold_signals();
}

static void draw(struct progress *p, double seconds, uint64_t done, uint64_t total)
{
    static const char full[] = "################";
    const int width = (int)sizeof full - 1;
    double part = total ? (double)done / (double)total : 0.0, rate = (double)done / seconds;
    int filled = (int)(part * width), digits = p->size > 1.0;
    double left = rate > 0.0 ? ((double)total - (double)done) / rate : 0.0;
    fprintf(stderr, "\r\033[K%-7s [%-*.*s] %3.0f %%  %.*f of %.*f %s, ", p->stage, width, filled, full, part * 100.0, digits,
            (double)done / p->size, digits, (double)total / p->size, p->unit);
    fprintf(stderr, "%.*f/s, %d:%02d left", digits, rate / p->size, (int)left / 60, (int)left % 60);
    fflush(stderr);
    p->drawn = true;
}

bool progress_step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    struct progress *p = context;
    double now = now_seconds();
    if (!p->stage || strcmp(p->stage, stage) != 0) {
        p->stage = stage;
        p->start = now;
        p->last = 0.0;
    }
    if (!p->show || now - p->start < PATIENCE || now - p->last < INTERVAL || (total && done >= total)) return !process_signal();
    p->last = now;
    if (total) {
        draw(p, now - p->start, done, total);
    } else if (strcmp(stage, "wait") == 0) {
        fprintf(stderr, "\r\033[K%s: another process is at work, %.0f s", stage, now - p->start);
        p->drawn = true;
    }
    return !process_signal();
}

void progress_end(struct progress *p)
{
    if (p->drawn) fprintf(stderr, "\r\033[K");
    p->drawn = false;
    process_release_signals();
}
