#include "store/fetch_slm.h"
#include "base/alloc.h"
#include "base/files.h"
#include "base/os.h"
#include "base/scatter.h"
#include "base/str.h"
#include "format/merkle.h"
#include "format/slm.h"
#include "format/slm_layout.h"

#include <inttypes.h>
#include <string.h>

struct download {
    struct lam_sources *s;
    uint8_t header[LAM_SLM_HEADER_BYTES];
    const uint8_t *expected;   /* [32] or NULL */
    uint8_t promised[32];      /* if nothing is expected: what the source's header says */
    uint8_t *head;             /* [slm.head_bytes], owned; lam_free_aligned */
    struct lam_slm_head slm;
    char *path;                /* owned */
    struct lam_scatter *file;
    struct lam_range *missing; /* [n_missing], owned */
    size_t n_missing;
};

static size_t piece_bytes(const struct lam_slm_head *slm, size_t i)
{
    uint64_t left = slm->data_bytes - (uint64_t)i * LAM_PIECE_BYTES;
    return left < LAM_PIECE_BYTES ? (size_t)left : LAM_PIECE_BYTES;
}

static lam_code other_root(const uint8_t found[32], const uint8_t expected[32], lam_error *err)
{
    char a[LAM_DIGEST_TEXT], b[LAM_DIGEST_TEXT];
    lam_digest_text(found, a);
    lam_digest_text(expected, b);
    return LAM_RAISE(err, LAM_E_ROOT, "its file_root is %s, expected is %s", a, b);
}

/* ---- the head ---- */

static lam_code accept_header(void *context, size_t index, const uint8_t *bytes, size_t len, lam_error *err)
{
    struct download *d = context;
    uint64_t head, file;
    (void)index;
    LAM_TRY(lam_slm_head_bytes(bytes, &head, &file, err));
    if (d->expected && memcmp(bytes + LAM_SLM_AT_FILE_ROOT, d->expected, 32) != 0)
        return other_root(bytes + LAM_SLM_AT_FILE_ROOT, d->expected, err);
    memcpy(d->header, bytes, len);
    return LAM_OK;
}

/* bytes[len] as d->head if it is one, with this root. */
static lam_code keep_head(struct download *d, const uint8_t *bytes, size_t len, const uint8_t root[32], lam_error *err)
{
    struct lam_slm_head slm;
    uint8_t *copy = lam_alloc_aligned(len);
    if (!copy) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu bytes before the data section", len);
    memcpy(copy, bytes, len);
    lam_code code = lam_slm_head_read(copy, len, &slm, err);
    if (code == LAM_OK && memcmp(slm.file_root, root, 32) != 0) code = other_root(slm.file_root, root, err);
    if (code == LAM_OK) {
        lam_free_aligned(d->head);
        d->head = copy;
        d->slm = slm;
    } else {
        lam_free_aligned(copy);
    }
    return code;
}

static lam_code accept_head(void *context, size_t index, const uint8_t *bytes, size_t len, lam_error *err)
{
    struct download *d = context;
    (void)index;
    return keep_head(d, bytes, len, d->header + LAM_SLM_AT_FILE_ROOT, err);
}

static lam_code fetch_header(struct download *d, lam_error *err)
{
    const struct lam_range range = {0, LAM_SLM_HEADER_BYTES};
    return lam_sources_fetch(d->s, &range, 1, accept_header, d, err);
}

static lam_code fetch_head(struct download *d, lam_error *err)
{
    uint64_t head, file;
    LAM_TRY(lam_slm_head_bytes(d->header, &head, &file, err));
    d->s->of = file;
    d->s->done = 0;
    const struct lam_range range = {0, (size_t)head};
    return lam_sources_fetch(d->s, &range, 1, accept_head, d, err);
}

/* The head of the file at d->path, if it is there and has the root that is sought. False: it is to be fetched; what lies there may be anything, and
 * d->header stays what the source said. */
static bool find_head(struct download *d, const uint8_t root[32])
{
    struct lam_file_info info;
    uint8_t header[LAM_SLM_HEADER_BYTES];
    uint64_t head, file;
    size_t len;
    if (lam_file_info(d->path, &info, NULL) != LAM_OK || info.is_dir) return false;
    if (lam_read_head(d->path, header, sizeof header, &len, NULL) != LAM_OK || len < sizeof header) return false;
    if (lam_slm_head_bytes(header, &head, &file, NULL) != LAM_OK || info.size != file) return false;
    uint8_t *bytes = lam_alloc((size_t)head, 1);
    bool good = bytes && lam_read_head(d->path, bytes, (size_t)head, &len, NULL) == LAM_OK && len == head &&
        keep_head(d, bytes, len, root, NULL) == LAM_OK;
    lam_free(bytes);
    return good;
}

/* ---- the pieces ---- */

/* Lists the pieces that the open file lacks; with fresh all of them. */
static lam_code list_missing(struct download *d, bool fresh, lam_error *err)
{
    uint8_t *piece = lam_alloc(LAM_PIECE_BYTES, 1), leaf[32];
    d->missing = lam_alloc(d->slm.n_pieces, sizeof *d->missing);
    lam_code code = piece && d->missing ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu pieces", d->slm.n_pieces);
    d->s->done = d->slm.head_bytes;
    for (size_t i = 0; code == LAM_OK && i < d->slm.n_pieces; i++) {
        uint64_t at = d->slm.head_bytes + (uint64_t)i * LAM_PIECE_BYTES;
        size_t n = piece_bytes(&d->slm, i);
        bool good = false;
        if (!fresh) {
            code = lam_scatter_read(d->file, at, piece, n, err);
            lam_merkle_leaf(piece, n, leaf);
            good = code == LAM_OK && memcmp(leaf, d->slm.leaves + 32 * i, 32) == 0;
            if (d->s->progress && !d->s->progress(d->s->progress_context, "check", at + n, d->slm.file_bytes))
                code = LAM_RAISE(err, LAM_E_CANCELLED, "stopped; the same command goes on from here");
        }
        if (good) d->s->done += n;
        else d->missing[d->n_missing++] = (struct lam_range){at, n};
    }
    lam_free(piece);
    return code;
}

static lam_code accept_piece(void *context, size_t index, const uint8_t *bytes, size_t len, lam_error *err)
{
    struct download *d = context;
    uint64_t at = d->missing[index].from;
    size_t i = (size_t)((at - d->slm.head_bytes) / LAM_PIECE_BYTES);
    uint8_t leaf[32];
    lam_merkle_leaf(bytes, len, leaf);
    if (memcmp(leaf, d->slm.leaves + 32 * i, 32) == 0) return lam_scatter_write(d->file, at, bytes, len, err);
    size_t zeros = len;
    while (zeros && bytes[zeros - 1] == 0) zeros--;
    return LAM_RAISE(err, LAM_E_DIGEST, "piece %zu of %zu (bytes %" PRIu64 " to %" PRIu64 ") is wrong%s", i, d->slm.n_pieces, at,
                     at + len,
                     len - zeros >= 4096 ? ": it ends in zeros" : "");
}

static lam_code check_room(struct download *d, const char *folder, bool fresh, lam_error *err)
{
    uint64_t needed = fresh ? d->slm.head_bytes : 0, free_bytes = lam_disk_free(folder);
    for (size_t i = 0; i < d->n_missing; i++) needed += d->missing[i].bytes;
    if (needed <= free_bytes) return LAM_OK;
    return LAM_RAISE(err, LAM_E_NO_SPACE, "%.200s: %" PRIu64 " bytes (%.1f MB) are needed, %" PRIu64 " (%.1f MB) are free", folder,
                     needed,
                     (double)needed / 1e6, free_bytes, (double)free_bytes / 1e6);
}

/* Everything behind the head, into the file at d->path, which is made if it is not there with this length; and the head, unless it was
 * found. */
static lam_code fetch_data(struct download *d, const char *folder, bool head_found, lam_error *err)
{
    struct lam_file_info info;
    bool fresh = lam_file_info(d->path, &info, NULL) != LAM_OK || info.size != d->slm.file_bytes;
    if (!fresh) LAM_TRY(lam_scatter_open(d->path, d->slm.file_bytes, &d->file, err));
    LAM_TRY(list_missing(d, fresh, err));
    LAM_TRY(check_room(d, folder, fresh, err));
    if (fresh) LAM_TRY(lam_scatter_open(d->path, d->slm.file_bytes, &d->file, err)); /* nothing is made before there is room for it */
    else lam_sources_say(d->s, "going on: %.1f of %.1f MB are there", (double)d->s->done / 1e6, (double)d->slm.file_bytes / 1e6);
    if (!head_found) LAM_TRY(lam_scatter_write(d->file, 0, d->head, (size_t)d->slm.head_bytes, err));
    d->s->of = d->s->total = d->slm.file_bytes;
    LAM_TRY(lam_sources_fetch(d->s, d->missing, d->n_missing, accept_piece, d, err));
    return lam_scatter_sync(d->file, err);
}

static lam_code name_file(struct download *d, const char *folder, const uint8_t root[32], lam_error *err)
{
    char text[LAM_DIGEST_TEXT];
    struct lam_str name = {0};
    lam_digest_text(root, text);
    if (!lam_str_printf(&name, "%s/%s.slm", folder, text + strlen("sha256:"))) {
        lam_str_release(&name);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", folder);
    }
    lam_free(d->path);
    d->path = name.data;
    return LAM_OK;
}

/* The head by one source, or as it lies in the folder already (*found). Nobody else can be blamed for what this source says of it. */
static lam_code head_from(struct download *d, const char *folder, lam_root_fn decide, void *context, bool *found, lam_error *err)
{
    LAM_TRY(fetch_header(d, err));
    if (!d->expected) {
        memcpy(d->promised, d->header + LAM_SLM_AT_FILE_ROOT, 32);
        LAM_TRY(decide(context, d->promised, err));
        LAM_TRY(name_file(d, folder, d->promised, err));
        *found = find_head(d, d->promised);
    }
    return *found ? LAM_OK : fetch_head(d, err);
}

static lam_code find_or_fetch_head(struct download *d, const char *folder, lam_root_fn decide, void *context, bool *found,
                                   lam_error *err)
{
    struct lam_sources *s = d->s;
    lam_code code = LAM_E_NOT_FOUND;
    *found = false;
    if (d->expected) {
        LAM_TRY(name_file(d, folder, d->expected, err));
        *found = find_head(d, d->expected);
        if (*found) return LAM_OK;
    }
    for (size_t i = 0; code != LAM_OK && !lam_sources_blameless(code) && i < s->n; i++) {
        s->only = &s->list[i];
        code = head_from(d, folder, decide, context, found, err);
    }
    s->only = NULL;
    return code;
}

static lam_code download(struct download *d, const char *folder, lam_root_fn decide, void *context, lam_error *err)
{
    bool found;
    LAM_TRY(find_or_fetch_head(d, folder, decide, context, &found, err));
    LAM_TRY(lam_make_dirs(folder, err));
    return fetch_data(d, folder, found, err);
}

static void release(struct download *d)
{
    lam_scatter_close(d->file);
    lam_free_aligned(d->head);
    lam_free(d->missing);
    lam_free(d->path);
}

lam_code lam_fetch_slm(struct lam_sources *s, const char *folder, const uint8_t *expected, lam_root_fn decide, void *context,
                       char **path,
                       uint8_t root[32], lam_error *err)
{
    struct download d = {.s = s, .expected = expected};
    struct lam_slm *whole = NULL;
    *path = NULL;
    lam_code code = download(&d, folder, decide, context, err);
    if (code == LAM_OK) code = lam_slm_open(d.path, &whole, err); /* the directory, too, and what its residuals say */
    lam_slm_close(whole);
    if (code == LAM_OK) {
        memcpy(root, d.slm.file_root, 32);
        *path = d.path;
        d.path = NULL;
    }
    release(&d);
    return code;
}

/* Within the folder, where the download looks for what is there already. */
static lam_code copy_damaged(const char *from, const char *to, lam_error *err)
{
    struct lam_mapping file;
    struct lam_scatter *copy;
    LAM_TRY(lam_map_file(from, &file, err));
    lam_code code = lam_scatter_open(to, file.size, &copy, err);
    if (code == LAM_OK) {
        code = lam_scatter_write(copy, 0, file.data, file.size, err);
        lam_scatter_close(copy);
    }
    lam_unmap_file(&file);
    return code;
}

lam_code lam_fetch_repaired(struct lam_sources *s, const char *folder, const char *damaged, const uint8_t expected[32], char **path,
                            lam_error *err)
{
    struct download d = {.s = s};
    uint8_t root[32];
    *path = NULL;
    lam_code code = lam_make_dirs(folder, err);
    if (code == LAM_OK) code = name_file(&d, folder, expected, err);
    if (code == LAM_OK && !lam_path_exists(d.path) && lam_path_exists(damaged)) code = copy_damaged(damaged, d.path, err);
    lam_free(d.path);
    return code == LAM_OK ? lam_fetch_slm(s, folder, expected, NULL, NULL, path, root, err) : code;
}
