#include "import/cache_key.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/json.h"
#include "base/os.h"
#include "base/str.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define IMPORTER_VERSION 2 /* raise it when the same source gives other bytes */

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

static bool belongs_to_folder(const char *name)
{
    static const char *const suffixes[] = {".json", ".safetensors", ".jinja", ".model", ".md"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (ends_with(name, suffixes[i])) return true;
    return false;
}

/* name and first differ in nothing but the number of the part: PREFIX-00001-of-0000N.gguf. */
static bool is_part_of(const char *name, const char *first)
{
    static const char shape[] = "-00001-of-";
    size_t n = strlen(first), tail = strlen("-00001-of-00001.gguf");
    if (n < tail || strlen(name) != n || strncmp(first + n - tail, shape, strlen(shape)) != 0) return false;
    size_t number = n - tail + 1;
    return memcmp(name, first, number) == 0 && strcmp(name + number + 5, first + number + 5) == 0;
}

/* 64-bit numbers go beyond what canonical JSON holds. */
static json_t *number_text(uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return json_string(text);
}

/* The key is taken over JSON. */
static lam_code check_text(const char *path, lam_error *err)
{
    size_t len = strlen(path);
    if (lam_utf8_valid_prefix((const uint8_t *)path, len) == len) return LAM_OK;
    return LAM_RAISE(err, LAM_E_FORMAT, "%s: a name that is not UTF-8", path);
}

static lam_code add_file(json_t *files, const char *folder, const char *name, struct lam_cache_key *key, lam_error *err)
{
    struct lam_file_info info;
    LAM_TRY(check_text(name, err));
    char *path = folder ? lam_path_join(folder, name) : NULL;
    if (folder && !path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", name);
    lam_code code = lam_file_info(path ? path : name, &info, err);
    lam_free(path);
    if (code != LAM_OK || info.is_dir) return code;
    key->source_bytes += info.size;
    json_t *file = json_pack("{s:s,s:o,s:o,s:o,s:o}", "name", name, "size", number_text(info.size), "mtime", number_text(info.mtime_ns),
                             "inode", number_text(info.inode), "device", number_text(info.device));
    return json_array_append_new(files, file) == 0 ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", name);
}

/* The files of the folder `real`, or the file itself with the other parts of a split model. */
static lam_code add_files(json_t *files, const char *real, struct lam_cache_key *key, lam_error *err)
{
    bool is_dir = lam_path_is_dir(real);
    const char *base = lam_path_base(real);
    char *folder = is_dir ? lam_strdup(real) : lam_strndup(real, (size_t)(base - real)), **names = NULL;
    size_t n = 0;
    if (!folder) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", real);
    lam_code code = is_dir || is_part_of(base, base) ? lam_list_dir(folder, &names, &n, err) : add_file(files, NULL, real, key, err);
    for (size_t i = 0; code == LAM_OK && i < n; i++)
        if (is_dir ? belongs_to_folder(names[i]) : is_part_of(names[i], base)) code = add_file(files, folder, names[i], key, err);
    lam_free_names(names, n);
    lam_free(folder);
    return code;
}

lam_code lam_cache_key(const char *source, const char *base_digest, bool accept_tokenizer, struct lam_cache_key *out, lam_error *err)
{
    char *real = NULL;
    uint8_t digest[LAM_SHA256_BYTES];
    char text[LAM_DIGEST_TEXT];
    *out = (struct lam_cache_key){0};
    LAM_TRY(lam_real_path(source, &real, err));
    json_t *files = json_array();
    json_t *whole = json_pack("{s:i,s:s,s:s?,s:O}", "importer", IMPORTER_VERSION, "source", real, "base", base_digest, "files", files);
    lam_code code = check_text(real, err);
    bool named = !whole || !accept_tokenizer || json_object_set_new(whole, "accept_tokenizer", json_true()) == 0;
    if (code == LAM_OK && (!whole || !named)) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", source);
    if (code == LAM_OK) code = add_files(files, real, out, err);
    if (code == LAM_OK) code = lam_json_digest(whole, digest, err);
    if (code == LAM_OK) {
        lam_digest_text(digest, text);
        memcpy(out->text, strchr(text, ':') + 1, sizeof out->text);
    }
    json_decref(whole);
    json_decref(files);
    lam_free(real);
    return code;
}
