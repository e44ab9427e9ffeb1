/* Callbacks into JavaScript: imported functions, whose addresses the library can call. */
#include "exports.h"

#define FROM_PAGE(name) __attribute__((import_module("lamina"), import_name(#name)))

FROM_PAGE(text) bool page_text(void *context, const char *text, uint32_t token);
FROM_PAGE(feed) bool page_feed(void *context, size_t done, size_t total);
FROM_PAGE(progress) bool page_progress(void *context, const char *stage, uint64_t done, uint64_t total);

lam_text_fn lam_web_text_callback(void) { return page_text; }
lam_feed_progress_fn lam_web_feed_callback(void) { return page_feed; }
lam_progress_fn lam_web_progress_callback(void) { return page_progress; }
