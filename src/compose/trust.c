#include "compose/trust.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

#define MOST_KEYS 1000
#define MOST_PEM_BYTES 65536
#define ENDING ".pem"

struct trusted {
    char *name;  /* owned */
    uint8_t key[LAM_ED25519_KEY];
};

struct lam_trust {
    struct trusted *keys; /* [n], owned */
    size_t n;
};

static bool ends_so(const char *name)
{
    size_t len = strlen(name), ending = strlen(ENDING);
    return len > ending && strcmp(name + len - ending, ENDING) == 0;
}

static lam_code add_key(struct lam_trust *t, const char *path, lam_error *err)
{
    struct lam_file_info info;
    struct lam_mapping file;
    const char *base = lam_path_base(path);
    LAM_TRY(lam_file_info(path, &info, err));
    if (info.size > MOST_PEM_BYTES) return LAM_RAISE(err, LAM_E_LIMIT, "%s: %llu bytes are no key", path, (unsigned long long)info.size);
    if (t->n == MOST_KEYS) return LAM_RAISE(err, LAM_E_LIMIT, "%s: a trust list has %d keys at most", path, MOST_KEYS);
    struct trusted *more = lam_realloc(t->keys, t->n + 1, sizeof *more);
    if (!more) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    t->keys = more;
    struct trusted *k = &t->keys[t->n];
    LAM_TRY(lam_map_file(path, &file, err));
    lam_error why;
    lam_code code = lam_ed25519_public(file.data ? (const char *)file.data : "", file.size, k->key, &why);
    lam_unmap_file(&file);
    if (code == LAM_E_PRIVATE_KEY)
        return LAM_RAISE(err, code, "%s is a private key: only public ones belong into a trust list, and nobody else should have this one", path);
    if (code != LAM_OK) return LAM_RAISE(err, code, "%s: %s", path, why.message);
    k->name = lam_strndup(base, strlen(base) - (ends_so(base) ? strlen(ENDING) : 0));
    if (!k->name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_clean_line(k->name);
    t->n++;
    return LAM_OK;
}

static lam_code add_folder(struct lam_trust *t, const char *folder, lam_error *err)
{
    char **names;
    size_t n;
    LAM_TRY(lam_list_dir(folder, &names, &n, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        if (!ends_so(names[i])) continue;
        char *path = lam_path_join(folder, names[i]);
        code = path ? add_key(t, path, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", folder);
        lam_free(path);
    }
    lam_free_names(names, n);
    return code;
}

/* Where the list is, and whether somebody named it; *out is NULL if nobody did and no variable tells. */
static lam_code find_place(const char *path, bool *named, char **out, lam_error *err)
{
    const char *given = path ? path : getenv("LAMINA_TRUST"), *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    *named = given && *given;
    *out = NULL;
    if (*named) *out = lam_strdup(given);
    else if (config && *config) *out = lam_path_join(config, "lamina/trust");
    else if (home && *home) *out = lam_path_join(home, ".config/lamina/trust");
    else return LAM_OK;
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "trust list");
}

lam_code lam_trust_open(const char *path, lam_trust **out, lam_error *err)
{
    bool named;
    char *place;
    *out = NULL;
    LAM_TRY(find_place(path, &named, &place, err));
    struct lam_trust *t = lam_alloc(1, sizeof *t);
    lam_code code = t ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "trust list");
    if (t && place && lam_ed25519_present() && (named || lam_path_exists(place)))
        code = lam_path_is_dir(place) ? add_folder(t, place, err) : add_key(t, place, err);
    lam_free(place);
    if (code == LAM_OK) *out = t;
    else lam_trust_free(t);
    return code;
}

void lam_trust_free(lam_trust *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n; i++) lam_free(t->keys[i].name);
    lam_free(t->keys);
    lam_free(t);
}

size_t lam_trust_size(const lam_trust *t) { return t->n; }

const char *lam_trust_find(const lam_trust *t, const uint8_t key[LAM_ED25519_KEY])
{
    for (size_t i = 0; t && i < t->n; i++)
        if (memcmp(t->keys[i].key, key, LAM_ED25519_KEY) == 0) return t->keys[i].name;
    return NULL;
}
