#include "store/curl.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libcurl.so.4" /* the version of its interface since 2006 */

lam_code lam_curl_load(struct lam_curl *out, lam_error *err)
{
    static const struct {
        const char *name;
        size_t place;
    } functions[] = {
        {"curl_global_init", offsetof(struct lam_curl, global_init)}, {"curl_easy_init", offsetof(struct lam_curl, easy_init)},
        {"curl_easy_cleanup", offsetof(struct lam_curl, easy_cleanup)}, {"curl_easy_setopt", offsetof(struct lam_curl, easy_setopt)},
        {"curl_easy_getinfo", offsetof(struct lam_curl, easy_getinfo)}, {"curl_easy_strerror", offsetof(struct lam_curl, easy_strerror)},
        {"curl_multi_init", offsetof(struct lam_curl, multi_init)}, {"curl_multi_cleanup", offsetof(struct lam_curl, multi_cleanup)},
        {"curl_multi_add_handle", offsetof(struct lam_curl, multi_add_handle)},
        {"curl_multi_remove_handle", offsetof(struct lam_curl, multi_remove_handle)},
        {"curl_multi_perform", offsetof(struct lam_curl, multi_perform)}, {"curl_multi_poll", offsetof(struct lam_curl, multi_poll)},
        {"curl_multi_info_read", offsetof(struct lam_curl, multi_info_read)},
        {"curl_slist_append", offsetof(struct lam_curl, slist_append)}, {"curl_slist_free_all", offsetof(struct lam_curl, slist_free_all)},
    };
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return LAM_RAISE(err, LAM_E_NETWORK, "models come and go over HTTP by libcurl, which cannot be loaded: %.300s", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function) return LAM_RAISE(err, LAM_E_NETWORK, LIBRARY " has no %s: it is older than 7.66", functions[i].name);
        memcpy((char *)out + functions[i].place, &function, sizeof function); /* POSIX has data and functions in pointers alike */
    }
    if (out->global_init(CURL_GLOBAL_DEFAULT) != 0) return LAM_RAISE(err, LAM_E_NETWORK, "libcurl cannot be used here");
    return LAM_OK;
}
