/* What names a cache entry: the files that a source consists of, without their content. */
#ifndef LAM_IMPORT_CACHE_KEY_H
#define LAM_IMPORT_CACHE_KEY_H

#include "import/import.h"

#define LAM_CACHE_KEY_TEXT 65 /* 64 hex digits and zero */

struct lam_cache_key {
    char text[LAM_CACHE_KEY_TEXT];
    uint64_t source_bytes; /* of all files */
};

/* base_digest: NULL for a base; accept_tokenizer as in lam_import_options. The source's own files (all parts of a split GGUF, all JSON, safetensors, template,
 * tokenizer and model card files of a folder) enter the key. */
lam_code lam_cache_key(const char *source, const char *base_digest, bool accept_tokenizer, struct lam_cache_key *out, lam_error *err);

#endif
