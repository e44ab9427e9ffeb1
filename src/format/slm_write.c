/* Writing .slm: everything small is laid out in memory, the data section is streamed and hashed as it goes. */
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/str.h"
#include "format/name.h"
#include "format/slm_layout.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define COMPRESSION_LEVEL 19

struct planned {
    struct lam_slm_decl decl;
    char *name;        /* owned */
    size_t name_len;
    size_t unit, bytes; /* see lam_slm_tensor_size */
    size_t residual_bytes;
};

struct lam_slm_out {
    enum lam_slm_kind kind;
    uint32_t flags;
    struct planned *tensors; /* n, in execution order */
    size_t n, cap;
    const json_t *metadata;
    const uint8_t *vocab;
    size_t vocab_bytes;
    size_t n_residuals;
    lam_slm_residual_fn residual;
};

/* What lies where in one file being written; offsets from its start except tensor offsets. */
struct plan {
    size_t n_pieces, metadata_at, vocab_at, directory_at, directory_bytes, data_at, data_bytes, file_bytes;
    uint8_t *metadata;     /* compressed; owned */
    size_t metadata_raw, metadata_bytes;
    uint8_t *directory;    /* entries, then names; owned */
    size_t *offsets;       /* n, in the data section, in execution order; owned */
    size_t residuals_at;   /* the table, in the data section */
    size_t *residual_offsets; /* n, 0 where a tensor has none; owned */
};

/* Where the data stream stands: hashing of the piece at hand and the leaves so far. */
struct stream {
    struct lam_writer *writer;
    struct lam_sha256 piece;
    size_t piece_bytes, at; /* bytes hashed of this piece; position in the data section */
    uint8_t *leaves;        /* n_pieces × 32 */
    size_t n_leaves;
};

lam_code lam_slm_out_new(enum lam_slm_kind kind, uint32_t flags, struct lam_slm_out **out, lam_error *err)
{
    if (kind != LAM_SLM_BASE && kind != LAM_SLM_ADAPTER) return LAM_RAISE(err, LAM_E_ARGUMENT, ".slm kind %d", (int)kind);
    if (flags & ~(uint32_t)LAM_SLM_TIED) return LAM_RAISE(err, LAM_E_ARGUMENT, ".slm flags %#x", flags);
    *out = lam_alloc(1, sizeof **out);
    if (!*out) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    (*out)->kind = kind;
    (*out)->flags = flags;
    return LAM_OK;
}

void lam_slm_out_free(struct lam_slm_out *o)
{
    if (!o) return;
    for (size_t i = 0; i < o->n; i++) lam_free(o->tensors[i].name);
    lam_free(o->tensors);
    lam_free(o);
}

lam_code lam_slm_out_tensor(struct lam_slm_out *o, const struct lam_slm_decl *decl, lam_error *err)
{
    struct planned t = {.decl = *decl, .name_len = strlen(decl->name)};
    if (t.name_len > LAM_SLM_NAME_MAX || !lam_name_is_clean(decl->name, t.name_len))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "tensor name of %zu bytes is empty, too long or not clean UTF-8", t.name_len);
    if (!lam_dtype_info(decl->dtype)) return LAM_RAISE(err, LAM_E_DTYPE, "tensor %s: type %d", decl->name, (int)decl->dtype);
    if (decl->layout != LAM_LAYOUT_PLAIN && decl->layout != LAM_LAYOUT_TILE16)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "tensor %s: layout %d", decl->name, (int)decl->layout);
    if (decl->residual_values && (o->kind != LAM_SLM_BASE || decl->layout != LAM_LAYOUT_TILE16))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "tensor %s: residuals belong to matrices of a base", decl->name);
    for (int i = decl->n_dims; i >= 0 && i < 4; i++) t.decl.dims[i] = 1;
    LAM_TRY(lam_slm_tensor_size(decl->name, t.name_len, decl->dtype, decl->layout, decl->n_dims, t.decl.dims, &t.unit,
                                &t.bytes, err));
    if (decl->residual_values && (decl->residual_values > (uint64_t)decl->dims[0] * decl->dims[1] ||
                                  !lam_residual_bytes(decl->dims[1], decl->dims[0], decl->residual_values, &t.residual_bytes)))
        return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %s: a residual of %u values", decl->name, decl->residual_values);
    if (o->n == o->cap) {
        size_t cap = o->cap ? o->cap * 2 : 64;
        struct planned *grown = lam_realloc(o->tensors, cap, sizeof *grown);
        if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", cap);
        o->tensors = grown;
        o->cap = cap;
    }
    t.name = lam_strdup(decl->name);
    if (!t.name) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    t.decl.name = t.name;
    o->tensors[o->n++] = t;
    o->n_residuals += decl->residual_values != 0;
    return LAM_OK;
}

void lam_slm_out_metadata(struct lam_slm_out *o, const json_t *metadata) { o->metadata = metadata; }

void lam_slm_out_residuals(struct lam_slm_out *o, lam_slm_residual_fn residual) { o->residual = residual; }

void lam_slm_out_vocab(struct lam_slm_out *o, const uint8_t *bytes, size_t len)
{
    o->vocab = bytes;
    o->vocab_bytes = len;
}

static lam_code metadata_text(const struct lam_slm_out *o, struct lam_str *text, lam_error *err)
{
    if (o->metadata && !json_is_object(o->metadata)) return LAM_RAISE(err, LAM_E_ARGUMENT, "metadata is not a JSON object");
    if (o->metadata) LAM_TRY(lam_json_canonical(o->metadata, text, err));
    else if (!lam_str_puts(text, "{}")) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    if (text->len > LAM_SLM_METADATA_MAX)
        return LAM_RAISE(err, LAM_E_LIMIT, "metadata has %zu bytes, %zu are allowed", text->len, LAM_SLM_METADATA_MAX);
    return LAM_OK;
}

static lam_code compress_metadata(const struct lam_slm_out *o, struct plan *p, lam_error *err)
{
    struct lam_str text = {0};
    lam_code code = metadata_text(o, &text, err);
    if (code == LAM_OK) {
        size_t bound = ZSTD_compressBound(text.len);
        p->metadata_raw = text.len;
        p->metadata = lam_alloc(bound, 1);
        p->metadata_bytes = p->metadata ? ZSTD_compress(p->metadata, bound, text.data, text.len, COMPRESSION_LEVEL) : 0;
        if (!p->metadata || ZSTD_isError(p->metadata_bytes))
            code = LAM_RAISE(err, LAM_E_NO_MEMORY, "compressing %zu bytes of metadata", text.len);
    }
    lam_str_release(&text);
    return code;
}

static int compare_planned(const void *a, const void *b)
{
    const struct planned *l = *(const struct planned *const *)a, *r = *(const struct planned *const *)b;
    return lam_name_compare(l->name, l->name_len, r->name, r->name_len);
}

static void store_entry(uint8_t *e, const struct planned *t, size_t name_at, size_t offset, uint32_t residual)
{
    lam_store_u32(e, (uint32_t)name_at);
    lam_store_u16(e + 4, (uint16_t)t->name_len);
    e[6] = (uint8_t)t->decl.dtype;
    e[7] = t->decl.n_dims;
    for (int i = 0; i < 4; i++) lam_store_u32(e + 8 + 4 * i, t->decl.dims[i]);
    lam_store_u64(e + 24, offset);
    lam_store_u64(e + 32, t->bytes);
    lam_store_u16(e + 40, (uint16_t)t->decl.layout);
    lam_store_u16(e + 42, t->decl.layer);
    lam_store_u32(e + 44, residual);
    lam_store_u32(e + 48, t->decl.role);
}

/* The number of tensor t's residual; 0 if it has none. */
static uint32_t residual_number(const struct lam_slm_out *o, const struct planned *t)
{
    uint32_t number = 0;
    if (!t->decl.residual_values) return 0;
    for (const struct planned *before = o->tensors; before <= t; before++) number += before->decl.residual_values != 0;
    return number;
}

/* Directory and names, sorted; entries' memory comes zeroed. */
static lam_code fill_directory(const struct lam_slm_out *o, struct plan *p, lam_error *err)
{
    const struct planned **sorted = lam_alloc(o->n, sizeof *sorted);
    if (!sorted) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", o->n);
    for (size_t i = 0; i < o->n; i++) sorted[i] = &o->tensors[i];
    qsort(sorted, o->n, sizeof *sorted, compare_planned);
    lam_code code = LAM_OK;
    uint8_t *names = p->directory + o->n * LAM_SLM_ENTRY_BYTES;
    size_t name_at = 0;
    for (size_t i = 0; code == LAM_OK && i < o->n; i++) {
        const struct planned *t = sorted[i];
        if (i > 0 && compare_planned(&sorted[i - 1], &sorted[i]) == 0)
            code = LAM_RAISE(err, LAM_E_DUPLICATE, "tensor %s is declared twice", t->name);
        store_entry(p->directory + i * LAM_SLM_ENTRY_BYTES, t, name_at, p->offsets[t - o->tensors], residual_number(o, t));
        memcpy(names + name_at, t->name, t->name_len);
        name_at += t->name_len;
    }
    lam_free(sorted);
    return code;
}

/* *end: where the tensors end; then, where the residuals do. */
static bool place_residuals(const struct lam_slm_out *o, struct plan *p, size_t *end)
{
    size_t at;
    if (o->n_residuals == 0) return true;
    if (!lam_slm_place_residuals(*end, o->n_residuals, &p->residuals_at, &at)) return false;
    for (size_t i = 0; i < o->n; i++) {
        if (o->tensors[i].residual_bytes == 0) continue;
        if (!lam_round_up(at, LAM_SLM_TENSOR_ALIGN, &p->residual_offsets[i]) ||
            !lam_add_size(p->residual_offsets[i], o->tensors[i].residual_bytes, &at))
            return false;
    }
    *end = at;
    return true;
}

/* Sizes and offsets of all sections. False if a size does not fit. */
static bool place_sections(const struct lam_slm_out *o, struct plan *p)
{
    size_t end = 0, names = 0;
    for (size_t i = 0; i < o->n; i++) {
        const struct planned *t = &o->tensors[i];
        if (!lam_slm_place(end, i > 0 && t->decl.layer == o->tensors[i - 1].decl.layer, &p->offsets[i]) ||
            !lam_add_size(p->offsets[i], t->bytes, &end))
            return false;
        names += t->name_len;
    }
    if (!place_residuals(o, p, &end)) return false;
    if (!lam_round_up(end, LAM_SLM_TENSOR_ALIGN, &p->data_bytes) || o->n > UINT32_MAX / LAM_SLM_ENTRY_BYTES ||
        names > UINT32_MAX || o->vocab_bytes > UINT32_MAX)
        return false;
    p->n_pieces = p->data_bytes / LAM_PIECE_BYTES + (p->data_bytes % LAM_PIECE_BYTES != 0);
    p->metadata_at = LAM_SLM_HEADER_BYTES + 32 * p->n_pieces;
    p->directory_bytes = o->n * LAM_SLM_ENTRY_BYTES + names;
    return lam_add_size(p->metadata_at, p->metadata_bytes, &end) && lam_round_up(end, 64, &p->vocab_at) &&
           lam_add_size(p->vocab_at, o->vocab_bytes, &end) && lam_round_up(end, 64, &p->directory_at) &&
           lam_add_size(p->directory_at, p->directory_bytes, &end) && lam_round_up(end, LAM_SLM_LAYER_ALIGN, &p->data_at) &&
           lam_add_size(p->data_at, p->data_bytes, &p->file_bytes);
}

static lam_code make_plan(const struct lam_slm_out *o, struct plan *p, lam_error *err)
{
    LAM_TRY(compress_metadata(o, p, err));
    p->offsets = lam_alloc(o->n, sizeof *p->offsets);
    p->residual_offsets = lam_alloc(o->n, sizeof *p->residual_offsets);
    if (!p->offsets || !p->residual_offsets) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", o->n);
    if (!place_sections(o, p)) return LAM_RAISE(err, LAM_E_OVERFLOW, "the file's size does not fit");
    p->directory = lam_alloc(p->directory_bytes, 1);
    if (!p->directory) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", o->n);
    return fill_directory(o, p, err);
}

static void free_plan(struct plan *p)
{
    lam_free(p->metadata);
    lam_free(p->directory);
    lam_free(p->offsets);
    lam_free(p->residual_offsets);
}

static lam_code write_zeros(struct lam_writer *w, size_t n, lam_error *err)
{
    static const uint8_t zeros[4096];
    for (; n > sizeof zeros; n -= sizeof zeros) LAM_TRY(lam_writer_write(w, zeros, sizeof zeros, err));
    return lam_writer_write(w, zeros, n, err);
}

/* Zeros up to `offset` from the start of the file. */
static lam_code pad_to(struct lam_writer *w, size_t offset, lam_error *err)
{
    return write_zeros(w, offset - (size_t)lam_writer_offset(w), err);
}

static void finish_piece(struct stream *s)
{
    lam_sha256_final(&s->piece, s->leaves + 32 * s->n_leaves++);
    s->piece_bytes = 0;
}

static void hash_data(struct stream *s, const uint8_t *bytes, size_t n)
{
    s->at += n;
    while (n) {
        if (s->piece_bytes == 0) {
            lam_sha256_init(&s->piece);
            lam_sha256_update(&s->piece, "\x00", 1);
        }
        size_t take = LAM_PIECE_BYTES - s->piece_bytes < n ? LAM_PIECE_BYTES - s->piece_bytes : n;
        lam_sha256_update(&s->piece, bytes, take);
        s->piece_bytes += take;
        bytes += take;
        n -= take;
        if (s->piece_bytes == LAM_PIECE_BYTES) finish_piece(s);
    }
}

static lam_code stream_bytes(struct stream *s, const uint8_t *bytes, size_t n, lam_error *err)
{
    hash_data(s, bytes, n);
    return lam_writer_write(s->writer, bytes, n, err);
}

static lam_code stream_pad_to(struct stream *s, size_t offset, lam_error *err)
{
    static const uint8_t zeros[4096];
    while (s->at < offset)
        LAM_TRY(stream_bytes(s, zeros, offset - s->at < sizeof zeros ? offset - s->at : sizeof zeros, err));
    return LAM_OK;
}

/* Largest range of whole units that fits a piece, at least one unit. */
static size_t range_bytes(const struct planned *t)
{
    size_t units = LAM_PIECE_BYTES / t->unit;
    return units == 0 ? t->unit : units > t->bytes / t->unit ? t->bytes : units * t->unit;
}

static lam_code stream_tensors(const struct lam_slm_out *o, const struct plan *p, struct stream *s, lam_slm_fill_fn fill,
                               void *context, lam_error *err)
{
    size_t largest = 0;
    for (size_t i = 0; i < o->n; i++)
        if (range_bytes(&o->tensors[i]) > largest) largest = range_bytes(&o->tensors[i]);
    uint8_t *buffer = lam_alloc_aligned(largest);
    if (!buffer) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu bytes", largest);
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < o->n; i++) {
        const struct planned *t = &o->tensors[i];
        size_t range = range_bytes(t);
        code = stream_pad_to(s, p->offsets[i], err);
        for (size_t at = 0; code == LAM_OK && at < t->bytes; at += range) {
            size_t n = t->bytes - at < range ? t->bytes - at : range;
            code = fill(context, i, at, buffer, n, err);
            if (code == LAM_OK) code = stream_bytes(s, buffer, n, err);
        }
    }
    lam_free_aligned(buffer);
    return code;
}

static lam_code stream_residuals(const struct lam_slm_out *o, const struct plan *p, struct stream *s, void *context, lam_error *err)
{
    if (o->n_residuals == 0) return LAM_OK;
    if (!o->residual) return LAM_RAISE(err, LAM_E_ARGUMENT, "%zu residuals, and nothing that gives them", o->n_residuals);
    LAM_TRY(stream_pad_to(s, p->residuals_at, err));
    for (size_t i = 0; i < o->n; i++) {
        uint8_t record[LAM_SLM_RECORD_BYTES] = {0};
        if (o->tensors[i].residual_bytes == 0) continue;
        lam_store_u64(record + LAM_SLM_RECORD_AT_OFFSET, p->residual_offsets[i]);
        lam_store_u32(record + LAM_SLM_RECORD_AT_VALUES, o->tensors[i].decl.residual_values);
        LAM_TRY(stream_bytes(s, record, sizeof record, err));
    }
    for (size_t i = 0; i < o->n; i++) {
        const uint8_t *bytes;
        if (o->tensors[i].residual_bytes == 0) continue;
        LAM_TRY(stream_pad_to(s, p->residual_offsets[i], err));
        LAM_TRY(o->residual(context, i, &bytes, err));
        LAM_TRY(stream_bytes(s, bytes, o->tensors[i].residual_bytes, err));
    }
    return LAM_OK;
}

static lam_code stream_data(const struct lam_slm_out *o, const struct plan *p, struct stream *s, lam_slm_fill_fn fill, void *context,
                            lam_error *err)
{
    LAM_TRY(stream_tensors(o, p, s, fill, context, err));
    LAM_TRY(stream_residuals(o, p, s, context, err));
    LAM_TRY(stream_pad_to(s, p->data_bytes, err));
    if (s->piece_bytes) finish_piece(s);
    return LAM_OK;
}

static void fill_header(const struct lam_slm_out *o, const struct plan *p, const uint8_t weights_root[32],
                        uint8_t h[LAM_SLM_HEADER_BYTES])
{
    memcpy(h, "SLM0", 4);
    h[LAM_SLM_AT_KIND] = (uint8_t)o->kind;
    h[LAM_SLM_AT_LOG2_PIECE] = LAM_SLM_LOG2_PIECE;
    lam_store_u32(h + LAM_SLM_AT_FLAGS, o->flags);
    lam_store_u32(h + LAM_SLM_AT_TENSORS, (uint32_t)o->n);
    lam_store_u32(h + LAM_SLM_AT_METADATA_RAW, (uint32_t)p->metadata_raw);
    lam_store_u64(h + LAM_SLM_AT_METADATA, p->metadata_at);
    lam_store_u64(h + LAM_SLM_AT_METADATA_BYTES, p->metadata_bytes);
    lam_store_u64(h + LAM_SLM_AT_DIRECTORY, p->directory_at);
    lam_store_u64(h + LAM_SLM_AT_DATA, p->data_at);
    lam_store_u64(h + LAM_SLM_AT_DATA_BYTES, p->data_bytes);
    lam_store_u32(h + LAM_SLM_AT_RESIDUALS, (uint32_t)o->n_residuals);
    if (o->n_residuals) lam_store_u64(h + LAM_SLM_AT_RESIDUAL, p->data_at + p->residuals_at);
    lam_store_u64(h + LAM_SLM_AT_PIECES, LAM_SLM_HEADER_BYTES);
    lam_store_u64(h + LAM_SLM_AT_FILE_BYTES, p->file_bytes);
    lam_store_u32(h + LAM_SLM_AT_VOCAB_BYTES, (uint32_t)o->vocab_bytes);
    struct lam_slm_parts parts = {h, p->metadata, p->metadata_bytes, o->vocab, o->vocab_bytes, p->directory, p->directory_bytes};
    lam_slm_file_root(&parts, weights_root, h + LAM_SLM_AT_FILE_ROOT);
    lam_store_u32(h + LAM_SLM_AT_CRC, lam_slm_header_crc(h));
}

static lam_code write_all(const struct lam_slm_out *o, const struct plan *p, struct stream *s, lam_slm_fill_fn fill,
                          void *context, uint8_t weights_root[32], lam_error *err)
{
    struct lam_writer *w = s->writer;
    LAM_TRY(pad_to(w, p->metadata_at, err)); /* header and piece table come last, in place */
    LAM_TRY(lam_writer_write(w, p->metadata, p->metadata_bytes, err));
    LAM_TRY(pad_to(w, p->vocab_at, err));
    LAM_TRY(lam_writer_write(w, o->vocab, o->vocab_bytes, err));
    LAM_TRY(pad_to(w, p->directory_at, err));
    LAM_TRY(lam_writer_write(w, p->directory, p->directory_bytes, err));
    LAM_TRY(pad_to(w, p->data_at, err));
    LAM_TRY(stream_data(o, p, s, fill, context, err));
    lam_merkle_root(s->leaves, s->n_leaves, weights_root);
    uint8_t header[LAM_SLM_HEADER_BYTES] = {0};
    fill_header(o, p, weights_root, header);
    LAM_TRY(lam_writer_patch(w, 0, header, sizeof header, err));
    return lam_writer_patch(w, LAM_SLM_HEADER_BYTES, s->leaves, 32 * s->n_leaves, err);
}

lam_code lam_slm_out_write(struct lam_slm_out *o, const char *path, lam_slm_fill_fn fill, void *context,
                           uint8_t weights_root[32], lam_error *err)
{
    struct plan plan = {0};
    struct stream stream = {0};
    uint8_t root[32];
    lam_code code = make_plan(o, &plan, err);
    if (code == LAM_OK && !(stream.leaves = lam_alloc(plan.n_pieces, 32)))
        code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu pieces", plan.n_pieces);
    if (code == LAM_OK) code = lam_writer_open(path, &stream.writer, err);
    if (code == LAM_OK) {
        code = write_all(o, &plan, &stream, fill, context, root, err);
        if (code == LAM_OK) code = lam_writer_commit(stream.writer, err);
        else lam_writer_abort(stream.writer);
    }
    if (code == LAM_OK && weights_root) memcpy(weights_root, root, 32);
    lam_free(stream.leaves);
    free_plan(&plan);
    return code;
}

lam_code lam_slm_out_size(const struct lam_slm_out *o, uint64_t *bytes, lam_error *err)
{
    struct plan p = {.offsets = lam_alloc(o->n, sizeof *p.offsets), .residual_offsets = lam_alloc(o->n, sizeof *p.residual_offsets)};
    struct lam_str text = {0};
    lam_code code = p.offsets && p.residual_offsets ? metadata_text(o, &text, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", o->n);
    p.metadata_bytes = ZSTD_compressBound(text.len);
    *bytes = code == LAM_OK && place_sections(o, &p) ? p.file_bytes : UINT64_MAX;
    lam_str_release(&text);
    free_plan(&p);
    return code;
}
