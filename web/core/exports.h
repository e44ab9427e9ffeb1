/* What the browser's module has beside the public functions of include/lamina/: callbacks that lead to the page, and threads. */
#ifndef LAM_WEB_EXPORTS_H
#define LAM_WEB_EXPORTS_H

#include "lamina/lamina.h"
#include "lamina/reuse.h"

/* A worker's thread: returns after lam_web_threads_leave. index: 0 … 63, one of its own for each worker. */
void lam_web_thread(unsigned index);
/* Workers that wait for a function. */
unsigned lam_web_threads_waiting(void);
/* Lets every worker that waits return. */
void lam_web_threads_leave(void);

/* Callbacks to hand to the library; context is a number that the page's side gave. */
lam_text_fn lam_web_text_callback(void);
lam_feed_progress_fn lam_web_feed_callback(void);
lam_progress_fn lam_web_progress_callback(void);

#endif
