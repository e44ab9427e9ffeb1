#include "store/blob.h"
#include "base/alloc.h"
#include "base/durable.h"
#include "base/os.h"
#include "base/sha256.h"
#include "compose/manifest.h"

#include <string.h>

#define CHUNK ((size_t)4 << 20)
#define BLOB_MODE 0444

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

lam_code lam_blob_path(const struct lam_store *s, const char *digest, char **out, lam_error *err)
{
    struct lam_str path = {0};
    *out = NULL;
    if (!lam_is_digest(digest)) return LAM_RAISE(err, LAM_E_ARGUMENT, "\"%.80s\" is no digest", digest);
    if (!lam_str_printf(&path, "%s/" LAM_STORE_BLOBS "/%s", s->folder, digest + 7)) {
        lam_str_release(&path);
        return no_memory(err);
    }
    *out = path.data;
    return LAM_OK;
}

static lam_code check_file(const char *path, const char *digest, uint64_t size, lam_error *err)
{
    struct lam_file_info info;
    lam_code code = lam_link_info(path, &info, err);
    if (code == LAM_E_NOT_FOUND) return LAM_RAISE(err, LAM_E_STORE_BLOB_MISSING, "%s: the blob is not there", digest);
    if (code != LAM_OK) return code;
    if (!info.is_plain) return LAM_RAISE(err, LAM_E_STORE_LINK, "%s is no plain file", path);
    if (size != UINT64_MAX && info.size != size)
        return LAM_RAISE(err, LAM_E_STORE_BLOB_SIZE, "%s: the blob has %llu bytes, its descriptor says %llu", digest,
                         (unsigned long long)info.size, (unsigned long long)size);
    return LAM_OK;
}

lam_code lam_blob_check(const struct lam_store *s, const char *digest, uint64_t size, lam_error *err)
{
    char *path;
    LAM_TRY(lam_blob_path(s, digest, &path, err));
    lam_code code = check_file(path, digest, size, err);
    lam_free(path);
    return code;
}

static lam_code read_mapped(const char *path, const char *digest, struct lam_str *out, lam_error *err)
{
    struct lam_mapping file;
    uint8_t hash[LAM_SHA256_BYTES];
    char found[LAM_DIGEST_TEXT];
    LAM_TRY(lam_map_file(path, &file, err));
    lam_code code = LAM_OK;
    if (file.size > LAM_STORE_SMALL_MAX)
        code = LAM_RAISE(err, LAM_E_LIMIT, "%s: %zu bytes, %llu at most", digest, file.size, (unsigned long long)LAM_STORE_SMALL_MAX);
    else if (!lam_str_append(out, file.data ? (const void *)file.data : "", file.size)) code = no_memory(err);
    lam_unmap_file(&file);
    if (code != LAM_OK) return code;
    lam_sha256(out->data, out->len, hash); /* of the copy: what is used is what was hashed */
    lam_digest_text(hash, found);
    return strcmp(found, digest) == 0 ? LAM_OK : LAM_RAISE(err, LAM_E_STORE_BLOB_BYTES, "%s: the blob's bytes hash to %s", digest, found);
}

lam_code lam_blob_read(const struct lam_store *s, const char *digest, uint64_t size, struct lam_str *out, lam_error *err)
{
    char *path;
    LAM_TRY(lam_blob_path(s, digest, &path, err));
    lam_code code = check_file(path, digest, size, err);
    if (code == LAM_OK) code = read_mapped(path, digest, out, err);
    lam_free(path);
    return code;
}

lam_code lam_blob_hash(const struct lam_store *s, const char *path, const char *stage, char digest[LAM_DIGEST_TEXT], uint64_t *size,
                       lam_error *err)
{
    struct lam_mapping file;
    struct lam_sha256 sum;
    uint8_t hash[LAM_SHA256_BYTES];
    lam_code code = LAM_OK;
    LAM_TRY(lam_map_file(path, &file, err));
    lam_sha256_init(&sum);
    for (size_t at = 0; code == LAM_OK && at < file.size; at += CHUNK) {
        size_t n = file.size - at < CHUNK ? file.size - at : CHUNK;
        lam_sha256_update(&sum, file.data + at, n);
        code = lam_store_progress(s, stage, at + n, file.size, err);
    }
    lam_sha256_final(&sum, hash);
    lam_digest_text(hash, digest);
    *size = file.size;
    lam_unmap_file(&file);
    return code;
}

lam_code lam_blob_hold(const struct lam_store *s, const char *digest, struct lam_lock **out, lam_error *err)
{
    char *path;
    *out = NULL;
    LAM_TRY(lam_blob_path(s, digest, &path, err));
    lam_code code = lam_lock_try(path, LAM_LOCK_SHARED, out, err);
    lam_free(path);
    return code == LAM_E_NOT_FOUND ? LAM_RAISE(err, LAM_E_STORE_BLOB_MISSING, "%s: the blob is not there", digest) : code;
}

/* ---- staging ---- */

void lam_staged_release(struct lam_staged *staged)
{
    lam_free(staged->path);
    *staged = (struct lam_staged){0};
}

/* Writes bytes[len] to a new file of the work folder, hashing them on the way. s may be NULL: no progress. */
static lam_code write_staged(const struct lam_store *s, struct lam_work *work, const uint8_t *bytes, size_t len, struct lam_staged *out,
                             lam_error *err)
{
    struct lam_writer *w;
    struct lam_sha256 sum;
    uint8_t hash[LAM_SHA256_BYTES];
    *out = (struct lam_staged){.size = len};
    LAM_TRY(lam_work_file(work, &out->path, err));
    lam_sha256_init(&sum);
    lam_code code = lam_writer_open(out->path, &w, err);
    if (code == LAM_OK) {
        for (size_t at = 0; code == LAM_OK && at < len; at += CHUNK) {
            size_t n = len - at < CHUNK ? len - at : CHUNK;
            lam_sha256_update(&sum, bytes + at, n);
            code = lam_writer_write(w, bytes + at, n, err);
            if (code == LAM_OK && s) code = lam_store_progress(s, "copy", at + n, len, err);
        }
        if (code == LAM_OK) code = lam_writer_commit(w, err);
        else lam_writer_abort(w);
    }
    lam_sha256_final(&sum, hash);
    lam_digest_text(hash, out->digest);
    if (code != LAM_OK) lam_staged_release(out);
    return code;
}

lam_code lam_blob_stage_bytes(struct lam_work *w, const void *bytes, size_t len, struct lam_staged *out, lam_error *err)
{
    return write_staged(NULL, w, bytes, len, out, err);
}

lam_code lam_blob_stage_copy(const struct lam_store *s, struct lam_work *w, const char *path, struct lam_staged *out, lam_error *err)
{
    struct lam_mapping file;
    *out = (struct lam_staged){0};
    LAM_TRY(lam_map_file(path, &file, err));
    uint64_t room = lam_disk_free(w->folder);
    lam_code code = room >= file.size ? write_staged(s, w, file.data, file.size, out, err)
                  : LAM_RAISE(err, LAM_E_NO_SPACE, "%s: %zu bytes are needed in %s, %llu are free", path, file.size, s->folder,
                              (unsigned long long)room);
    lam_unmap_file(&file);
    return code;
}

lam_code lam_blob_stage_made(const struct lam_store *s, char *path, struct lam_staged *out, lam_error *err)
{
    *out = (struct lam_staged){.path = path};
    lam_code code = lam_blob_hash(s, path, "hash", out->digest, &out->size, err);
    if (code != LAM_OK) lam_staged_release(out);
    return code;
}

/* ---- placing ---- */

/* Whether a plain file with these bytes, which nobody may write, is there. */
static bool is_good(const struct lam_store *s, const char *path, const struct lam_staged *staged)
{
    struct lam_file_info info;
    char found[LAM_DIGEST_TEXT];
    uint64_t size;
    return lam_link_info(path, &info, NULL) == LAM_OK && info.is_plain && info.size == staged->size && info.mode == BLOB_MODE &&
           lam_blob_hash(s, path, "compare", found, &size, NULL) == LAM_OK && strcmp(found, staged->digest) == 0;
}

lam_code lam_blob_place(struct lam_store *s, struct lam_staged *staged, lam_error *err)
{
    char *path;
    LAM_TRY(lam_blob_path(s, staged->digest, &path, err));
    lam_code code = is_good(s, path, staged) ? lam_remove_file(staged->path, err) : lam_place_file(staged->path, path, BLOB_MODE, err);
    lam_free(path);
    return code;
}

lam_code lam_blob_put(struct lam_store *s, struct lam_work *w, const void *bytes, size_t len, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_staged staged;
    LAM_TRY(lam_blob_stage_bytes(w, bytes, len, &staged, err));
    lam_code code = lam_blob_place(s, &staged, err);
    memcpy(digest, staged.digest, LAM_DIGEST_TEXT);
    lam_staged_release(&staged);
    return code;
}
