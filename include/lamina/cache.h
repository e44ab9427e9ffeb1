/* GGUF files and Hugging Face folders run directly: imported once into a folder of .slm files.
 *
 * An entry is <key>.slm and <key>.json (where it came from; its modification time is the last use). The key is SHA-256 over
 * the importer's version and real path, size, modification time and inode of every source file: no content is read to find
 * an entry, and nothing need be written to use one. While an entry is made, <key>.lock is held: a second process waits and
 * finds it. Least recently used entries are removed when the folder would pass its limit, but none that a struct lam_cached
 * holds. A damaged entry is made anew. */
#ifndef LAMINA_CACHE_H
#define LAMINA_CACHE_H

#include "lamina/lamina.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lam_lock; /* a held file lock */

#define LAM_CACHE_DEFAULT_MAX ((uint64_t)20000000000) /* bytes */

struct lam_cache_options {
    const char *folder; /* NULL: $LAMINA_CACHE, else $XDG_CACHE_HOME/lamina, else $HOME/.cache/lamina */
    uint64_t max_bytes; /* of the folder; 0: $LAMINA_CACHE_MAX (bytes, or with k, M, G, T), else LAM_CACHE_DEFAULT_MAX */
    lam_progress_fn progress; /* may be NULL; stages "import", and "wait" (0 of 0) while another process imports */
    void *progress_context;
    bool accept_tokenizer; /* of lam_cache_open_adapter: as in lam_import_options; such an import is an entry of its own */
};

/* A .slm in the cache, kept from removal until lam_cache_release. */
struct lam_cached {
    char *path;            /* owned */
    bool was_cached;       /* nothing had to be imported */
    struct lam_lock *hold; /* owned */
};

/* source: a GGUF model or a Hugging Face folder; a .slm is given back as it is. Errors are those of lam_import_base,
 * LAM_E_LIMIT if the entry alone passes the limit, LAM_E_CHANGED if the source was written meanwhile, LAM_E_IO, LAM_E_NOT_FOUND or
 * LAM_E_NO_SPACE if there is no entry and the folder takes none. options may be NULL. */
LAM_API lam_code lam_cache_open_base(const char *source, const struct lam_cache_options *options, struct lam_cached *out, lam_error *err);

/* source: a PEFT folder or a llama.cpp LoRA GGUF, imported for the base at base_path with this base_digest ("sha256:…"); a
 * .slm is given back as it is. report (may be NULL) is filled when something was imported, else zero. */
LAM_API lam_code lam_cache_open_adapter(const char *source, const char *base_path, const char *base_digest,
                                const struct lam_cache_options *options, struct lam_cached *out,
                                struct lam_adapter_report *report, lam_error *err);
/* Also for one that is all zero. */
LAM_API void lam_cache_release(struct lam_cached *c);

struct lam_cache_entry {
    char *key;         /* 64 hex digits */
    char *source;      /* real path when it was imported; "" if unknown */
    uint64_t bytes;
    int64_t last_use;  /* seconds since 1970 */
    bool is_adapter;
};
/* The entries, least recently used first; *entries[*n] is freed with lam_cache_free_list. No folder is no entries. */
LAM_API lam_code lam_cache_list(const struct lam_cache_options *options, struct lam_cache_entry **entries, size_t *n, lam_error *err);
LAM_API void lam_cache_free_list(struct lam_cache_entry *entries, size_t n);

struct lam_cache_cleared {
    size_t n_removed, n_in_use; /* entries; those in use stay */
    uint64_t bytes;             /* freed */
};
/* which: NULL for all, else a key, the beginning of one (8 digits at least), or a source path. LAM_E_NOT_FOUND if no entry
 * is meant. */
LAM_API lam_code lam_cache_clear(const struct lam_cache_options *options, const char *which, struct lam_cache_cleared *out,
                         lam_error *err);

/* The folder that options mean; *out is freed with lam_memory_free. LAM_E_ARGUMENT if no variable tells one. */
LAM_API lam_code lam_cache_folder(const struct lam_cache_options *options, char **out, lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
