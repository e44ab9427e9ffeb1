/* Reading .slm: every number of the file is checked here once, so that what struct lam_slm shows can be used as it is. */
#include "base/alloc.h"
#include "base/cursor.h"
#include "format/name.h"
#include "format/slm_layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

/* Every value of a JSON text costs a parser a heap block or more, so a bound on bytes alone would not bound memory. */
#define METADATA_VALUES_MAX ((size_t)1 << 17)

_Static_assert(sizeof(struct lam_slm_entry) == LAM_SLM_ENTRY_BYTES, "entries are used in place");
_Static_assert(offsetof(struct lam_slm_entry, dims) == 8 && offsetof(struct lam_slm_entry, offset) == 24 &&
                   offsetof(struct lam_slm_entry, layout) == 40 && offsetof(struct lam_slm_entry, zero) == 56,
               "entries are used in place");

/* The sections as the header gives them, all within the file. */
struct sections {
    size_t metadata_at, metadata_bytes, metadata_raw, vocab_at, vocab_bytes, directory_at, names_at, names_bytes;
    size_t data_at, data_bytes, residuals_at, n_pieces; /* residuals_at counts from data_at */
};

static lam_code check_identity(const uint8_t *h, size_t len, lam_error *err)
{
    if (len < 4) return LAM_RAISE(err, LAM_E_TRUNCATED, ".slm: %zu bytes are no header", len);
    if (memcmp(h, "SLM1", 4) == 0 || memcmp(h, "SLM2", 4) == 0)
        return LAM_RAISE(err, LAM_E_LEGACY, ".slm: the obsolete format %.4s; import the model again", (const char *)h);
    if (memcmp(h, "0MLS", 4) == 0) return LAM_RAISE(err, LAM_E_BYTE_ORDER, ".slm: written for the other byte order");
    if (memcmp(h, "GGUF", 4) == 0)
        return LAM_RAISE(err, LAM_E_MAGIC, "a GGUF file, not an .slm file; import it first (lam_import_base, lam_import_adapter)");
    if (memcmp(h, "SLM0", 4) != 0) return LAM_RAISE(err, LAM_E_MAGIC, "not an .slm file");
    const uint16_t one = 1;
    if (*(const uint8_t *)&one != 1) return LAM_RAISE(err, LAM_E_BYTE_ORDER, ".slm: this machine is big-endian");
    if (len < LAM_SLM_HEADER_BYTES) return LAM_RAISE(err, LAM_E_TRUNCATED, ".slm: %zu bytes are no header", len);
    uint16_t version = lam_load_u16(h + LAM_SLM_AT_VERSION);
    if (version != 0) return LAM_RAISE(err, LAM_E_VERSION, ".slm: version %u, this reader knows 0", version);
    uint32_t crc = lam_load_u32(h + LAM_SLM_AT_CRC), expected = lam_slm_header_crc(h);
    if (crc != expected)
        return LAM_RAISE(err, LAM_E_CHECKSUM, ".slm: header checksum %08" PRIx32 ", expected %08" PRIx32, crc, expected);
    return LAM_OK;
}

static lam_code check_known_fields(const uint8_t *h, lam_error *err)
{
    if (h[LAM_SLM_AT_KIND] == 2) return LAM_RAISE(err, LAM_E_UNSUPPORTED, ".slm: collections");
    if (h[LAM_SLM_AT_KIND] > 2) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, ".slm: kind %u", h[LAM_SLM_AT_KIND]);
    if (h[LAM_SLM_AT_LOG2_PIECE] != LAM_SLM_LOG2_PIECE)
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, ".slm: pieces of 2^%u bytes", h[LAM_SLM_AT_LOG2_PIECE]);
    uint32_t flags = lam_load_u32(h + LAM_SLM_AT_FLAGS);
    if (flags & ~(uint32_t)LAM_SLM_TIED) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, ".slm: flags %#" PRIx32, flags);
    uint32_t residuals = lam_load_u32(h + LAM_SLM_AT_RESIDUALS);
    if (residuals == 0 && lam_load_u64(h + LAM_SLM_AT_RESIDUAL) != 0)
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, ".slm: the offset of residuals, of which there are none");
    if (residuals != 0 && h[LAM_SLM_AT_KIND] != LAM_SLM_BASE)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, ".slm: outlier residuals in an adapter");
    return LAM_OK;
}

/* Each section has one place. at: where the header puts it; place: where the sections before it end. */
static lam_code check_place(const char *what, uint64_t at, uint64_t place, uint64_t bytes, size_t len, lam_error *err)
{
    if (at < place)
        return LAM_RAISE(err, LAM_E_OVERLAP, ".slm: %s at %" PRIu64 " overlaps what ends at %" PRIu64, what, at, place);
    if (at > len || bytes > len - at)
        return LAM_RAISE(err, LAM_E_TRUNCATED, ".slm: %s (%" PRIu64 " bytes at %" PRIu64 ") ends after the file's %zu bytes",
                         what, bytes, at, len);
    if (at > place)
        return LAM_RAISE(err, LAM_E_GAP, ".slm: %s at %" PRIu64 " leaves a gap from %" PRIu64, what, at, place);
    return LAM_OK;
}

static lam_code check_zero(const uint8_t *file, size_t from, size_t to, lam_error *err)
{
    for (size_t i = from; i < to; i++)
        if (file[i]) return LAM_RAISE(err, LAM_E_GAP, ".slm: padding at %zu is not zero", i);
    return LAM_OK;
}

static size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) & ~(multiple - 1); }

/* Names follow the directory, each behind the one before, so the entries alone tell where they end. */
static lam_code measure_names(const uint8_t *file, size_t n, size_t have, struct sections *s, lam_error *err)
{
    const struct lam_slm_entry *entries = (const struct lam_slm_entry *)(const void *)(file + s->directory_at);
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (entries[i].name_offset != end)
            return LAM_RAISE(err, entries[i].name_offset < end ? LAM_E_OVERLAP : LAM_E_GAP,
                             ".slm: name of entry %zu at %" PRIu32 ", expected %" PRIu64, i, entries[i].name_offset, end);
        end += entries[i].name_len;
        if (end > UINT32_MAX) return LAM_RAISE(err, LAM_E_OVERFLOW, ".slm: names of more than 4 GiB");
    }
    s->names_at = s->directory_at + n * LAM_SLM_ENTRY_BYTES;
    if (end > have - s->names_at) return LAM_RAISE(err, LAM_E_TRUNCATED, ".slm: ends within the names");
    s->names_bytes = (size_t)end;
    return LAM_OK;
}

/* The table must lie in the data section; where in it, only the tensors tell. */
static lam_code locate_residuals(const uint8_t *file, struct sections *s, lam_error *err)
{
    uint64_t n = lam_load_u32(file + LAM_SLM_AT_RESIDUALS), at = lam_load_u64(file + LAM_SLM_AT_RESIDUAL);
    if (n == 0) return LAM_OK;
    if (at < s->data_at) return LAM_RAISE(err, LAM_E_OVERLAP, ".slm: residuals at %" PRIu64 ", before the data section", at);
    if (at - s->data_at > s->data_bytes || n * LAM_SLM_RECORD_BYTES > s->data_bytes - (at - s->data_at))
        return LAM_RAISE(err, LAM_E_TRUNCATED, ".slm: %" PRIu64 " residuals at %" PRIu64 " end after the data section", n, at);
    s->residuals_at = (size_t)(at - s->data_at);
    return LAM_OK;
}

/* Of a file of len bytes, of which file[have] are there: all before the data section. Sums and roundings below cannot wrap: each
 * summand was found to be within the file (len ≤ SIZE_MAX / 2). */
static lam_code locate_sections(const uint8_t *file, size_t have, size_t len, struct sections *s, lam_error *err)
{
    uint64_t file_bytes = lam_load_u64(file + LAM_SLM_AT_FILE_BYTES), data_bytes = lam_load_u64(file + LAM_SLM_AT_DATA_BYTES);
    if (len > SIZE_MAX / 2 || file_bytes > SIZE_MAX / 2)
        return LAM_RAISE(err, LAM_E_OVERFLOW, ".slm: a length of %" PRIu64 " bytes", file_bytes);
    if (file_bytes > len)
        return LAM_RAISE(err, LAM_E_TRUNCATED, ".slm: %zu of %" PRIu64 " bytes are there", len, file_bytes);
    if (file_bytes < len)
        return LAM_RAISE(err, LAM_E_GAP, ".slm: %zu bytes follow the end at %" PRIu64, len - (size_t)file_bytes, file_bytes);
    if (data_bytes > len) return LAM_RAISE(err, LAM_E_OVERFLOW, ".slm: data section of %" PRIu64 " bytes", data_bytes);
    s->data_bytes = (size_t)data_bytes;
    s->n_pieces = s->data_bytes / LAM_PIECE_BYTES + (s->data_bytes % LAM_PIECE_BYTES != 0);
    LAM_TRY(check_place("piece table", lam_load_u64(file + LAM_SLM_AT_PIECES), LAM_SLM_HEADER_BYTES, 32 * s->n_pieces, have, err));

    s->metadata_at = LAM_SLM_HEADER_BYTES + 32 * s->n_pieces;
    uint64_t metadata_bytes = lam_load_u64(file + LAM_SLM_AT_METADATA_BYTES);
    LAM_TRY(check_place("metadata", lam_load_u64(file + LAM_SLM_AT_METADATA), s->metadata_at, metadata_bytes, have, err));
    s->metadata_bytes = (size_t)metadata_bytes;
    s->metadata_raw = lam_load_u32(file + LAM_SLM_AT_METADATA_RAW);

    size_t end = s->metadata_at + s->metadata_bytes;
    s->vocab_at = round_up(end, 64);
    s->vocab_bytes = lam_load_u32(file + LAM_SLM_AT_VOCAB_BYTES);
    LAM_TRY(check_place("vocabulary", s->vocab_at, s->vocab_at, s->vocab_bytes, have, err));
    LAM_TRY(check_zero(file, end, s->vocab_at, err));

    uint64_t n = lam_load_u32(file + LAM_SLM_AT_TENSORS);
    end = s->vocab_at + s->vocab_bytes;
    s->directory_at = round_up(end, 64);
    LAM_TRY(check_place("directory", lam_load_u64(file + LAM_SLM_AT_DIRECTORY), s->directory_at, n * LAM_SLM_ENTRY_BYTES, have, err));
    LAM_TRY(check_zero(file, end, s->directory_at, err));
    LAM_TRY(measure_names(file, (size_t)n, have, s, err));

    end = s->names_at + s->names_bytes;
    s->data_at = round_up(end, LAM_SLM_LAYER_ALIGN);
    LAM_TRY(check_place("data section", lam_load_u64(file + LAM_SLM_AT_DATA), s->data_at, s->data_bytes, len, err));
    if (s->data_at > have) return LAM_RAISE(err, LAM_E_TRUNCATED, ".slm: the data section begins at %zu, behind the %zu bytes that are there", s->data_at, have);
    LAM_TRY(check_zero(file, end, s->data_at, err));
    if (s->data_bytes < len - s->data_at)
        return LAM_RAISE(err, LAM_E_GAP, ".slm: %zu bytes follow the data section", len - s->data_at - s->data_bytes);
    return locate_residuals(file, s, err);
}

static lam_code check_entry(const struct lam_slm *s, size_t i, lam_error *err)
{
    const struct lam_slm_entry *e = &s->entries[i];
    const char *name = s->names + e->name_offset;
    if (e->name_len > LAM_SLM_NAME_MAX || !lam_name_is_clean(name, e->name_len))
        return LAM_RAISE(err, LAM_E_FORMAT, ".slm: name of entry %zu is empty, too long or not clean UTF-8", i);
    int len = e->name_len < 128 ? e->name_len : 128;
    if (i > 0) {
        const struct lam_slm_entry *before = e - 1;
        int order = lam_name_compare(s->names + before->name_offset, before->name_len, name, e->name_len);
        if (order == 0) return LAM_RAISE(err, LAM_E_DUPLICATE, "tensor %.*s occurs twice", len, name);
        if (order > 0) return LAM_RAISE(err, LAM_E_FORMAT, ".slm: directory is not sorted at tensor %.*s", len, name);
    }
    if (!lam_dtype_info(e->dtype)) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "tensor %.*s: type %u", len, name, e->dtype);
    if (e->dtype == LAM_I32 && s->kind == LAM_SLM_BASE)
        return LAM_RAISE(err, LAM_E_DTYPE, "tensor %.*s of a base has type I32", len, name);
    if (e->layout != LAM_LAYOUT_PLAIN && e->layout != LAM_LAYOUT_TILE16)
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "tensor %.*s: layout %u", len, name, e->layout);
    if (e->flags) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "tensor %.*s: flags %#" PRIx32, len, name, e->flags);
    if (e->residual > s->n_residuals)
        return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.*s: residual %" PRIu32 " of %zu", len, name, e->residual, s->n_residuals);
    if (e->residual && e->layout != LAM_LAYOUT_TILE16)
        return LAM_RAISE(err, LAM_E_SHAPE, "tensor %.*s: residuals belong to matrices in row tiles", len, name);
    for (size_t z = 0; z < sizeof e->zero; z++)
        if (e->zero[z]) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "tensor %.*s: reserved bytes are not zero", len, name);

    size_t unit, bytes;
    LAM_TRY(lam_slm_tensor_size(name, e->name_len, e->dtype, e->layout, e->n_dims, e->dims, &unit, &bytes, err));
    if (e->bytes != bytes)
        return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.*s: %" PRIu64 " bytes declared, its shape needs %zu", len, name, e->bytes, bytes);
    if (e->offset % LAM_SLM_TENSOR_ALIGN)
        return LAM_RAISE(err, LAM_E_ALIGNMENT, "tensor %.*s: offset %" PRIu64 " is not a multiple of 64", len, name, e->offset);
    if (e->offset > s->data_bytes || e->bytes > s->data_bytes - e->offset)
        return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.*s: %" PRIu64 " bytes at %" PRIu64 " leave the data section of %zu", len,
                         name, e->bytes, e->offset, s->data_bytes);
    return LAM_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct lam_slm_entry *l = *(const struct lam_slm_entry *const *)a, *r = *(const struct lam_slm_entry *const *)b;
    return (l->offset > r->offset) - (l->offset < r->offset);
}

static uint64_t record_offset(const struct lam_slm *s, uint32_t number)
{
    return lam_load_u64(s->residuals + (size_t)(number - 1) * LAM_SLM_RECORD_BYTES + LAM_SLM_RECORD_AT_OFFSET);
}

static uint32_t record_values(const struct lam_slm *s, uint32_t number)
{
    return lam_load_u32(s->residuals + (size_t)(number - 1) * LAM_SLM_RECORD_BYTES + LAM_SLM_RECORD_AT_VALUES);
}

/* One residual, whose place is known. *end: where it ends. */
static lam_code check_residual_place(const struct lam_slm *s, const struct lam_slm_entry *e, size_t place, size_t *end, lam_error *err)
{
    const char *name = s->names + e->name_offset;
    int len = e->name_len < 128 ? e->name_len : 128;
    uint64_t offset = record_offset(s, e->residual);
    uint32_t n = record_values(s, e->residual);
    size_t bytes;
    if (lam_load_u32(s->residuals + (size_t)(e->residual - 1) * LAM_SLM_RECORD_BYTES + LAM_SLM_RECORD_AT_ZERO) != 0)
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "tensor %.*s: reserved bytes of its residual are not zero", len, name);
    if (n == 0 || n > (uint64_t)e->dims[0] * e->dims[1])
        return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.*s: a residual of %" PRIu32 " values", len, name, n);
    if (!lam_residual_bytes(e->dims[1], e->dims[0], n, &bytes) || offset > s->data_bytes || bytes > s->data_bytes - offset)
        return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.*s: a residual of %" PRIu32 " values at %" PRIu64 " leaves the data section of %zu",
                         len, name, n, offset, s->data_bytes);
    if (offset != place)
        return LAM_RAISE(err, offset < place ? LAM_E_OVERLAP : LAM_E_GAP, "tensor %.*s: residual at %" PRIu64 ", expected %zu", len, name,
                         offset, place);
    *end = (size_t)offset + bytes;
    return LAM_OK;
}

/* Residuals lie behind the tensors in the tensors' order, one for each number. *end: where tensors end; then, where all ends. */
static lam_code check_residual_places(const struct lam_slm *s, const struct lam_slm_entry *const *by_offset, size_t table_at, size_t *end,
                                      lam_error *err)
{
    size_t place, first, seen = 0;
    if (s->n_residuals == 0) return LAM_OK;
    if (!lam_slm_place_residuals(*end, s->n_residuals, &place, &first) || first > s->data_bytes)
        return LAM_RAISE(err, LAM_E_OVERFLOW, ".slm: %zu residuals leave the data section", s->n_residuals);
    if (table_at != place)
        return LAM_RAISE(err, table_at < place ? LAM_E_OVERLAP : LAM_E_GAP, ".slm: residuals at %zu of the data section, expected %zu",
                         table_at, place);
    *end = place + s->n_residuals * LAM_SLM_RECORD_BYTES;
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct lam_slm_entry *e = by_offset[i];
        if (e->residual == 0) continue;
        if (e->residual != seen + 1)
            return LAM_RAISE(err, e->residual <= seen ? LAM_E_DUPLICATE : LAM_E_GAP, "tensor %.*s: residual %" PRIu32 ", expected %zu",
                             e->name_len < 128 ? e->name_len : 128, s->names + e->name_offset, e->residual, seen + 1);
        seen++;
        LAM_TRY(check_residual_place(s, e, round_up(*end, LAM_SLM_TENSOR_ALIGN), end, err));
    }
    if (seen != s->n_residuals) return LAM_RAISE(err, LAM_E_GAP, ".slm: residual %zu of %zu belongs to no tensor", seen + 1, s->n_residuals);
    return LAM_OK;
}

/* Tensors must lie one behind the other at exactly the places that lam_slm_place gives. */
static lam_code check_tensor_places(const struct lam_slm *s, const struct lam_slm_entry **by_offset, size_t residuals_at, lam_error *err)
{
    for (size_t i = 0; i < s->n_entries; i++) by_offset[i] = &s->entries[i];
    qsort(by_offset, s->n_entries, sizeof *by_offset, compare_offsets);
    size_t end = 0, place;
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct lam_slm_entry *e = by_offset[i];
        const char *name = s->names + e->name_offset;
        int len = e->name_len < 128 ? e->name_len : 128;
        if (!lam_slm_place(end, i > 0 && e->layer == by_offset[i - 1]->layer, &place))
            return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.*s: its place does not fit", len, name);
        if (e->offset < end)
            return LAM_RAISE(err, LAM_E_OVERLAP, "tensor %.*s: offset %" PRIu64 " overlaps what ends at %zu", len, name, e->offset, end);
        if (e->offset != place)
            return LAM_RAISE(err, e->offset < place ? LAM_E_ALIGNMENT : LAM_E_GAP,
                             "tensor %.*s: offset %" PRIu64 ", expected %zu", len, name, e->offset, place);
        end = (size_t)(e->offset + e->bytes);
    }
    LAM_TRY(check_residual_places(s, by_offset, residuals_at, &end, err));
    if (round_up(end, LAM_SLM_TENSOR_ALIGN) != s->data_bytes)
        return LAM_RAISE(err, LAM_E_GAP, ".slm: tensors and residuals end at %zu of %zu data bytes", end, s->data_bytes);
    return LAM_OK;
}

static lam_code check_directory(const struct lam_slm *s, size_t residuals_at, lam_error *err)
{
    for (size_t i = 0; i < s->n_entries; i++) LAM_TRY(check_entry(s, i, err));
    const struct lam_slm_entry **by_offset = lam_alloc(s->n_entries, sizeof *by_offset);
    if (!by_offset) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu tensors", s->n_entries);
    lam_code code = check_tensor_places(s, by_offset, residuals_at, err);
    lam_free(by_offset);
    return code;
}

/* An upper bound on the values of a JSON text: separators and openings outside of strings. */
static size_t count_values(const char *text, size_t len)
{
    size_t n = 1;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"') quoted = !quoted;
        else if (quoted) i += text[i] == '\\';
        else n += text[i] == ',' || text[i] == ':' || text[i] == '[' || text[i] == '{';
    }
    return n;
}

static lam_code parse_metadata(const char *text, size_t len, json_t **out, lam_error *err)
{
    size_t n = count_values(text, len);
    if (n > METADATA_VALUES_MAX)
        return LAM_RAISE(err, LAM_E_LIMIT, ".slm: metadata has about %zu values, %zu are allowed", n, METADATA_VALUES_MAX);
    json_t *value;
    LAM_TRY(lam_json_parse(text, len, ".slm metadata", &value, err));
    struct lam_str canonical = {0};
    lam_code code = json_is_object(value) ? lam_json_canonical(value, &canonical, err)
                                          : LAM_RAISE(err, LAM_E_FORMAT, ".slm: metadata is not an object");
    if (code == LAM_OK && (canonical.len != len || memcmp(canonical.data, text, len) != 0))
        code = LAM_RAISE(err, LAM_E_FORMAT, ".slm: metadata is not canonical JSON");
    lam_str_release(&canonical);
    if (code == LAM_OK) *out = value;
    else json_decref(value);
    return code;
}

static lam_code read_metadata(const uint8_t *packed, const struct sections *s, json_t **out, lam_error *err)
{
    if (s->metadata_raw > LAM_SLM_METADATA_MAX)
        return LAM_RAISE(err, LAM_E_LIMIT, ".slm: metadata of %zu bytes, %zu are allowed", s->metadata_raw, LAM_SLM_METADATA_MAX);
    if (ZSTD_getFrameContentSize(packed, s->metadata_bytes) != s->metadata_raw ||
        ZSTD_findFrameCompressedSize(packed, s->metadata_bytes) != s->metadata_bytes)
        return LAM_RAISE(err, LAM_E_FORMAT, ".slm: metadata is not one zstd frame of %zu bytes holding %zu", s->metadata_bytes,
                         s->metadata_raw);
    char *text = lam_alloc(s->metadata_raw, 1);
    if (!text) return LAM_RAISE(err, LAM_E_NO_MEMORY, ".slm: metadata of %zu bytes", s->metadata_raw);
    size_t got = ZSTD_decompress(text, s->metadata_raw, packed, s->metadata_bytes);
    lam_code code = LAM_OK;
    if (ZSTD_isError(got))
        code = LAM_RAISE(err, ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation ? LAM_E_NO_MEMORY : LAM_E_FORMAT, ".slm: metadata: zstd: %s", ZSTD_getErrorName(got));
    else if (got != s->metadata_raw)
        code = LAM_RAISE(err, LAM_E_FORMAT, ".slm: metadata has %zu bytes, %zu declared", got, s->metadata_raw);
    else code = parse_metadata(text, got, out, err);
    lam_free(text);
    return code;
}

static lam_code check_file_root(const uint8_t *file, const struct sections *s, struct lam_slm *slm, lam_error *err)
{
    struct lam_slm_parts parts = {
        .header = file, .metadata = file + s->metadata_at, .metadata_bytes = s->metadata_bytes,
        .vocab = file + s->vocab_at, .vocab_bytes = s->vocab_bytes,
        .directory = file + s->directory_at, .directory_bytes = s->names_at + s->names_bytes - s->directory_at,
    };
    lam_merkle_root(slm->pieces, slm->n_pieces, slm->weights_root);
    lam_slm_file_root(&parts, slm->weights_root, slm->file_root);
    if (memcmp(slm->file_root, file + LAM_SLM_AT_FILE_ROOT, 32) == 0) return LAM_OK;
    char found[LAM_DIGEST_TEXT], declared[LAM_DIGEST_TEXT];
    lam_digest_text(slm->file_root, found);
    lam_digest_text(file + LAM_SLM_AT_FILE_ROOT, declared);
    return LAM_RAISE(err, LAM_E_DIGEST, ".slm: file_root is %s, the header says %s", found, declared);
}

lam_code lam_slm_head_bytes(const uint8_t header[LAM_SLM_HEADER_BYTES], uint64_t *head, uint64_t *file, lam_error *err)
{
    LAM_TRY(check_identity(header, LAM_SLM_HEADER_BYTES, err));
    LAM_TRY(check_known_fields(header, err));
    *head = lam_load_u64(header + LAM_SLM_AT_DATA);
    *file = lam_load_u64(header + LAM_SLM_AT_FILE_BYTES);
    if (*head < LAM_SLM_HEADER_BYTES) return LAM_RAISE(err, LAM_E_OVERLAP, ".slm: the data section at %" PRIu64 " overlaps the header", *head);
    if (*head > *file) return LAM_RAISE(err, LAM_E_TRUNCATED, ".slm: the data section at %" PRIu64 " is behind the file's %" PRIu64 " bytes", *head, *file);
    if (*head > LAM_SLM_HEAD_MAX)
        return LAM_RAISE(err, LAM_E_LIMIT, ".slm: %" PRIu64 " bytes before the data section, %zu at most", *head, LAM_SLM_HEAD_MAX);
    return LAM_OK;
}

lam_code lam_slm_head_read(const uint8_t *head, size_t bytes, struct lam_slm_head *out, lam_error *err)
{
    struct sections s = {0};
    struct lam_slm slm = {0};
    uint64_t head_bytes, file_bytes;
    LAM_TRY(lam_slm_head_bytes(head, &head_bytes, &file_bytes, err));
    LAM_TRY(file_bytes > SIZE_MAX / 2 ? LAM_RAISE(err, LAM_E_OVERFLOW, ".slm: a length of %" PRIu64 " bytes", file_bytes) : LAM_OK);
    LAM_TRY(locate_sections(head, bytes, (size_t)file_bytes, &s, err));
    slm.pieces = head + LAM_SLM_HEADER_BYTES;
    slm.n_pieces = s.n_pieces;
    LAM_TRY(check_file_root(head, &s, &slm, err));
    *out = (struct lam_slm_head){.head_bytes = s.data_at, .file_bytes = file_bytes, .data_bytes = s.data_bytes, .leaves = slm.pieces, .n_pieces = s.n_pieces};
    memcpy(out->file_root, slm.file_root, 32);
    return LAM_OK;
}

static lam_code read_file(struct lam_slm *slm, const uint8_t *file, size_t len, lam_error *err)
{
    struct sections s = {0};
    LAM_TRY(check_identity(file, len, err));
    if ((uintptr_t)file % LAM_SLM_TENSOR_ALIGN)
        return LAM_RAISE(err, LAM_E_ARGUMENT, ".slm: bytes in memory are not aligned to 64");
    LAM_TRY(check_known_fields(file, err));
    LAM_TRY(locate_sections(file, len, len, &s, err));
    slm->kind = file[LAM_SLM_AT_KIND];
    slm->flags = lam_load_u32(file + LAM_SLM_AT_FLAGS);
    slm->entries = (const struct lam_slm_entry *)(const void *)(file + s.directory_at);
    slm->n_entries = lam_load_u32(file + LAM_SLM_AT_TENSORS);
    slm->names = (const char *)file + s.names_at;
    slm->data = file + s.data_at;
    slm->data_bytes = s.data_bytes;
    slm->vocab = s.vocab_bytes ? file + s.vocab_at : NULL;
    slm->vocab_bytes = s.vocab_bytes;
    slm->pieces = file + LAM_SLM_HEADER_BYTES;
    slm->n_pieces = s.n_pieces;
    slm->n_residuals = lam_load_u32(file + LAM_SLM_AT_RESIDUALS);
    slm->residuals = slm->data + s.residuals_at;
    LAM_TRY(check_directory(slm, s.residuals_at, err));
    LAM_TRY(check_file_root(file, &s, slm, err));
    return read_metadata(file + s.metadata_at, &s, &slm->metadata, err);
}

lam_code lam_slm_open_memory(const uint8_t *bytes, size_t len, struct lam_slm **out, lam_error *err)
{
    struct lam_slm *s = lam_alloc(1, sizeof *s);
    if (!s) return LAM_RAISE(err, LAM_E_NO_MEMORY, "out of memory");
    lam_code code = read_file(s, bytes, len, err);
    if (code == LAM_OK) *out = s;
    else lam_slm_close(s);
    return code;
}

lam_code lam_slm_open(const char *path, struct lam_slm **out, lam_error *err)
{
    struct lam_mapping file;
    lam_error why;
    LAM_TRY(lam_map_file(path, &file, err));
    lam_code code = lam_slm_open_memory(file.data, file.size, out, &why);
    if (code == LAM_OK) {
        (*out)->file = file;
        return LAM_OK;
    }
    lam_unmap_file(&file);
    return LAM_RAISE(err, code, "%.250s: %.259s", path, why.message);
}

void lam_slm_close(struct lam_slm *s)
{
    if (!s) return;
    json_decref(s->metadata);
    if (s->file.path) lam_unmap_file(&s->file);
    lam_free(s);
}

const struct lam_slm_entry *lam_slm_find(const struct lam_slm *s, const char *name)
{
    size_t low = 0, high = s->n_entries, len = strlen(name);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct lam_slm_entry *e = &s->entries[middle];
        int order = lam_name_compare(name, len, s->names + e->name_offset, e->name_len);
        if (order == 0) return e;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

uint32_t lam_slm_residual_values(const struct lam_slm *s, const struct lam_slm_entry *e)
{
    return e->residual ? record_values(s, e->residual) : 0;
}

lam_code lam_slm_residual(const struct lam_slm *s, const struct lam_slm_entry *e, struct lam_residual *out, lam_error *err)
{
    *out = (struct lam_residual){0};
    if (!e->residual) return LAM_OK;
    *out = lam_residual_view(s->data + record_offset(s, e->residual), e->dims[1], e->dims[0], record_values(s, e->residual));
    return lam_residual_check(out, e->dims[1], e->dims[0], s->names + e->name_offset, e->name_len < 128 ? e->name_len : 128, err);
}

const uint8_t *lam_slm_tensor_data(const struct lam_slm *s, const struct lam_slm_entry *e) { return s->data + e->offset; }
