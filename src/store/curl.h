/* libcurl, loaded when something is fetched or sent for the first time: a program that does neither starts without it and the thirty
 * libraries that it needs (docs/decisions/2026-11-30-pull.md). */
#ifndef LAM_STORE_CURL_H
#define LAM_STORE_CURL_H

#include "base/error.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

/* libcurl's functions, by their names there without "curl_". */
struct lam_curl {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    void (*easy_cleanup)(CURL *easy);
    CURLcode (*easy_setopt)(CURL *easy, CURLoption option, ...);
    CURLcode (*easy_getinfo)(CURL *easy, CURLINFO info, ...);
    const char *(*easy_strerror)(CURLcode code);
    CURLM *(*multi_init)(void);
    CURLMcode (*multi_cleanup)(CURLM *multi);
    CURLMcode (*multi_add_handle)(CURLM *multi, CURL *easy);
    CURLMcode (*multi_remove_handle)(CURLM *multi, CURL *easy);
    CURLMcode (*multi_perform)(CURLM *multi, int *running);
    CURLMcode (*multi_poll)(CURLM *multi, struct curl_waitfd fds[], unsigned n, int milliseconds, int *ready);
    CURLMsg *(*multi_info_read)(CURLM *multi, int *left);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
};

/* Fills *out; the library stays loaded until the process ends. LAM_E_NETWORK, with the reason, if it cannot be loaded. */
lam_code lam_curl_load(struct lam_curl *out, lam_error *err);

#endif
