#include "first_launch.h"

#include "report.h"
#include "transfer.h"

#include <string.h>

static bool is_model(const lam_store_entry *e) { return e->kind == LAM_STORE_BASE || e->kind == LAM_STORE_COMPOSITION; }

/* The model of the index that ran last; if none is known, the last base or composition. */
static lam_code find_installed(lam_store *store, const struct options *o, char digest[LAM_DIGEST_TEXT], bool *found, lam_error *err)
{
    lam_store_entry *entries;
    char used[LAM_DIGEST_TEXT];
    size_t n, last = 0;
    lam_code code = lam_store_list(store, &entries, &n, err);
    if (code != LAM_OK) {
        if (code == LAM_E_STORE_INDEX) hint(err, "`lamina store fsck --repair` mends it, and -m takes a file all the same");
        return code;
    }
    bool known = lam_store_used(store, used, NULL) == LAM_OK;
    for (size_t i = 0; known && i < n; i++)
        if (is_model(&entries[i]) && strcmp(entries[i].digest, used) == 0) last = i + 1;
    for (size_t i = n; !last && i > 0; i--)
        if (is_model(&entries[i - 1])) last = i;
    if (last) {
        memcpy(digest, entries[last - 1].digest, LAM_DIGEST_TEXT);
        note(o, "no model given, and none is active: this is %s, which the store has",
             entries[last - 1].name ? entries[last - 1].name : digest);
    }
    lam_store_free_list(entries, n);
    *found = last > 0;
    return LAM_OK;
}

static lam_code pull_default(lam_store *store, struct transfer *t, const char *url, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    lam_transfer_report pulled;
    lam_store_result active;
    lam_code code = lam_pull(store, url, NULL, NULL, &t->options, &pulled, err);
    if (code == LAM_OK) code = lam_store_activate(store, pulled.digest, NULL, 0, &active, err);
    if (code != LAM_OK) return code;
    memcpy(digest, active.digest, LAM_DIGEST_TEXT);
    note(t->o, "%s is there now, %.2f MB, its root %s", pulled.name, (double)pulled.bytes / 1e6, lam_root_origin_name(pulled.origin));
    return LAM_OK;
}

static enum first_launch fetch(const struct options *o, const char *url, char digest[LAM_DIGEST_TEXT])
{
    struct transfer t;
    lam_error err;
    lam_store *store = NULL;
    note(o, "no model is installed: fetching the default of %s", url);
    lam_code code = transfer_begin(&t, o, &err);
    if (code == LAM_OK) code = open_store(o, true, &store, &err);
    if (code == LAM_OK) code = pull_default(store, &t, url, digest, &err);
    lam_store_close(store);
    transfer_end(&t);
    if (code == LAM_OK) return FIRST_LAUNCH_FOUND;
    if (code == LAM_E_CANCELLED) return report(o, &err), FIRST_LAUNCH_FAILED;
    note(o, "%s (%s)", err.message, lam_code_name(code));
    return FIRST_LAUNCH_NONE;
}

enum first_launch first_launch(const struct options *o, char digest[LAM_DIGEST_TEXT])
{
    lam_error err;
    lam_store *store = NULL;
    bool installed = false;
    lam_code code = open_store(o, false, &store, NULL) == LAM_OK ? find_installed(store, o, digest, &installed, &err) : LAM_OK;
    const char *url = lam_seed_default();
    lam_store_close(store);
    if (code != LAM_OK) return report(o, &err), FIRST_LAUNCH_FAILED;
    if (installed) return FIRST_LAUNCH_FOUND;
    return url && strcmp(o->command, "run") == 0 ? fetch(o, url, digest) : FIRST_LAUNCH_NONE;
}
