#define _POSIX_C_SOURCE 200809L

#include "alloc_meter.h"
#include "base/alloc.h"
#include "base/os.h"
#include "format/slm.h"
#include "slm_seal.h"
#include "support.h"

#include <stdio.h>
#include <string.h>
#include <zstd.h>

#define GOLDEN "tests/data/format/python.slm"
#define RESIDUAL "tests/data/format/residual.slm"

/* A file in memory as the reader wants it: aligned, and exactly as long as it says so that a sanitizer sees each overrun. */
static uint8_t *aligned_copy(const uint8_t *bytes, size_t len)
{
    void *copy = NULL;
    assert_int_equal(posix_memalign(&copy, 64, len ? len : 1), 0);
    if (len) memcpy(copy, bytes, len);
    return copy;
}

/* The bound of docs/format.md, from what the header declares. */
static size_t memory_bound(const uint8_t *file, size_t len)
{
    if (len < 128) return 4096;
    size_t tensors = lam_load_u32(file + LAM_SLM_AT_TENSORS), raw = lam_load_u32(file + LAM_SLM_AT_METADATA_RAW);
    if (tensors > len / 64) tensors = 0;
    if (raw > LAM_SLM_METADATA_MAX) raw = 0;
    return 4096 + 32 * tensors + 4 * raw + 512 * (raw < 131072 ? raw : 131072);
}

static lam_code open_checked(const uint8_t *file, size_t len, struct lam_slm **out, lam_error *err)
{
    meter_start();
    double start = lam_now();
    lam_code code = lam_slm_open_memory(file, len, out, err);
    assert_true(lam_now() - start < 1);
    if (meter_bytes() > memory_bound(file, len)) fail_msg("%zu bytes of %zu", meter_bytes(), memory_bound(file, len));
    return code;
}

/* ---- the file that Python wrote from docs/format.md ---- */

static void test_golden(void **state)
{
    (void)state;
    struct lam_slm *s;
    lam_error err;
    /* name order, with each tensor's place in execution order */
    static const struct { const char *name; int order; uint8_t dtype, n_dims; uint32_t d0, d1; uint64_t offset, bytes; uint16_t layer; } told[] = {
        {"blk.0.attn_norm.weight", 1, LAM_F32, 1, 8, 1, 65536, 32, 0},
        {"blk.0.attn_q.weight", 2, LAM_Q8_0, 2, 32, 3, 65600, 576, 0},
        {"blk.1.attn_norm.weight", 3, LAM_F32, 1, 7, 1, 131072, 28, 1},
        {"output_norm.weight", 4, LAM_BF16, 1, 3, 1, 196608, 6, LAM_LAYER_NONE},
        {"token_embd.weight", 0, LAM_F16, 2, 8, 20, 0, 512, LAM_LAYER_NONE},
    };
    assert_ok(lam_slm_open(GOLDEN, &s, &err), err);
    assert_int_equal(s->n_entries, 5);
    assert_int_equal(s->kind, LAM_SLM_BASE);
    assert_int_equal(s->flags, LAM_SLM_TIED);
    for (size_t i = 0; i < 5; i++) {
        const struct lam_slm_entry *e = lam_slm_find(s, told[i].name);
        assert_ptr_equal(e, &s->entries[i]);
        assert_int_equal(e->dtype, told[i].dtype);
        assert_int_equal(e->n_dims, told[i].n_dims);
        assert_int_equal(e->dims[0], told[i].d0);
        assert_int_equal(e->dims[1], told[i].d1);
        assert_int_equal(e->offset, told[i].offset);
        assert_int_equal(e->bytes, told[i].bytes);
        assert_int_equal(e->layer, told[i].layer);
        const uint8_t *data = lam_slm_tensor_data(s, e);
        for (size_t j = 0; j < e->bytes; j++) assert_int_equal(data[j], (told[i].order * 37 + j) % 251);
    }
    assert_null(lam_slm_find(s, "blk.0"));
    assert_null(lam_slm_find(s, ""));
    assert_int_equal(s->vocab_bytes, 19);
    assert_memory_equal(s->vocab, "nineteen bytes here", 19);
    assert_string_equal(json_string_value(json_object_get(s->metadata, "architecture")), "test");
    assert_int_equal(s->n_pieces, 1);
    assert_ok(lam_slm_verify_piece(s, 0, &err), err);
    assert_int_equal(lam_slm_verify_piece(s, 1, &err), LAM_E_ARGUMENT);
    lam_slm_close(s);
}

static lam_code fill_pattern(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    (void)context, (void)err;
    for (size_t j = 0; j < bytes; j++) buffer[j] = (uint8_t)((index * 37 + offset + j) % 251);
    return LAM_OK;
}

static const struct lam_slm_decl golden_decls[] = {
    {"token_embd.weight", LAM_F16, 2, {8, 20, 1, 1}, LAM_LAYOUT_TILE16, LAM_LAYER_NONE, 1, 0},
    {"blk.0.attn_norm.weight", LAM_F32, 1, {8, 0, 0, 0}, LAM_LAYOUT_PLAIN, 0, 7, 0},
    {"blk.0.attn_q.weight", LAM_Q8_0, 2, {32, 3, 1, 1}, LAM_LAYOUT_TILE16, 0, 3, 0},
    {"blk.1.attn_norm.weight", LAM_F32, 1, {7, 1, 1, 1}, LAM_LAYOUT_PLAIN, 1, 7, 0},
    {"output_norm.weight", LAM_BF16, 1, {3, 1, 1, 1}, LAM_LAYOUT_PLAIN, LAM_LAYER_NONE, 9, 0},
};

static const struct lam_slm_decl residual_decls[] = {
    {"token_embd.weight", LAM_F16, 2, {8, 20, 1, 1}, LAM_LAYOUT_TILE16, 0, 1, 3},
    {"blk.0.attn_q.weight", LAM_Q4_64, 2, {64, 3, 1, 1}, LAM_LAYOUT_TILE16, 0, 3, 5},
    {"blk.0.attn_k.weight", LAM_Q4_64, 2, {64, 2, 1, 1}, LAM_LAYOUT_TILE16, 0, 4, 0},
    {"output_norm.weight", LAM_BF16, 1, {3, 1, 1, 1}, LAM_LAYOUT_PLAIN, 0, 9, 0},
};

/* See tools/make_format_golden.py. Half bits: 1.5, -0.25, 65504; 0.5, -0.5, 2^-24, 3, -4. */
static lam_code give_residual(void *context, size_t index, const uint8_t **bytes, lam_error *err)
{
    static struct {
        uint32_t starts[21];
        uint16_t columns[3], values[3];
    } embedding = {{0, 2}, {0, 7, 3}, {0x3e00, 0xb400, 0x7bff}};
    static const struct {
        uint32_t starts[4];
        uint16_t columns[5], values[5];
    } q = {{0, 3, 3, 5}, {5, 6, 63, 0, 1}, {0x3800, 0xb800, 0x0001, 0x4200, 0xc400}};
    (void)context, (void)err;
    for (size_t r = 1; r < 20; r++) embedding.starts[r] = 2;
    embedding.starts[20] = 3;
    assert_true(index < 2);
    *bytes = index == 0 ? (const uint8_t *)&embedding : (const uint8_t *)&q;
    return LAM_OK;
}

static void check_written(const char *golden, const struct lam_slm_decl *decls, size_t n_decls, lam_slm_residual_fn residual)
{
    lam_error err;
    struct lam_slm_out *o;
    char *folder = test_make_folder(), *path = lam_path_join(folder, "out.slm");
    json_t *metadata;
    static const char text[] = "{\"n\":[1,5e-1,\"\\u20ac\"],\"architecture\":\"test\"}";
    assert_ok(lam_json_parse(text, sizeof text - 1, "metadata", &metadata, &err), err);
    assert_ok(lam_slm_out_new(LAM_SLM_BASE, LAM_SLM_TIED, &o, &err), err);
    for (size_t i = 0; i < n_decls; i++) assert_ok(lam_slm_out_tensor(o, &decls[i], &err), err);
    lam_slm_out_metadata(o, metadata);
    lam_slm_out_vocab(o, (const uint8_t *)"nineteen bytes here", 19);
    lam_slm_out_residuals(o, residual);
    assert_ok(lam_slm_out_write(o, path, fill_pattern, NULL, NULL, &err), err);
    size_t written, expected;
    uint8_t *a = test_read_file(path, &written), *b = test_read_file(golden, &expected);
    uint64_t bound;
    assert_ok(lam_slm_out_size(o, &bound, &err), err);
    assert_true(bound >= written);
    assert_int_equal(written, expected);
    assert_memory_equal(a, b, expected);
    free(a);
    free(b);
    lam_slm_out_free(o);
    json_decref(metadata);
    lam_free(path);
    test_remove_folder(folder);
}

static void test_write_equals_golden(void **state)
{
    (void)state;
    check_written(GOLDEN, golden_decls, sizeof golden_decls / sizeof *golden_decls, NULL);
    check_written(RESIDUAL, residual_decls, sizeof residual_decls / sizeof *residual_decls, give_residual);
}

/* ---- outlier residuals ---- */

static void test_residual(void **state)
{
    (void)state;
    struct lam_slm *s;
    struct lam_residual r;
    lam_error err;
    float row[64] = {0}, embedding[8] = {0};
    assert_ok(lam_slm_open(RESIDUAL, &s, &err), err);
    assert_int_equal(s->n_residuals, 2);
    const struct lam_slm_entry *q = lam_slm_find(s, "blk.0.attn_q.weight");
    assert_int_equal(lam_slm_residual_values(s, q), 5);
    assert_ok(lam_slm_residual(s, q, &r, &err), err);
    for (size_t i = 0; i < 3; i++) lam_residual_add_row(&r, i, row);
    for (size_t k = 0; k < 64; k++) {
        float want = k == 0 ? 3.0f : k == 1 ? -4.0f : k == 5 ? 0.5f : k == 6 ? -0.5f : k == 63 ? 0x1p-24f : 0.0f;
        assert_true(row[k] == want);
    }
    assert_ok(lam_slm_residual(s, lam_slm_find(s, "token_embd.weight"), &r, &err), err);
    lam_residual_add_row(&r, 19, embedding);
    assert_true(embedding[3] == 65504.0f && embedding[0] == 0.0f);
    const struct lam_slm_entry *k = lam_slm_find(s, "blk.0.attn_k.weight");
    assert_int_equal(lam_slm_residual_values(s, k), 0);
    assert_ok(lam_slm_residual(s, k, &r, &err), err);
    assert_int_equal(r.n, 0);
    lam_residual_add_row(&r, 0, row);
    assert_ok(lam_slm_verify_piece(s, 0, &err), err);
    lam_slm_close(s);
}

/* ---- a file of several pieces ---- */

struct filled {
    uint64_t next[3]; /* offset that the next range of each tensor must have */
    uint64_t unit[3];
};

static lam_code fill_counted(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    struct filled *f = context;
    assert_int_equal(offset, f->next[index]);
    assert_int_equal(bytes % f->unit[index], 0);
    assert_true(bytes <= LAM_PIECE_BYTES);
    assert_int_equal((uintptr_t)buffer % 64, 0);
    f->next[index] += bytes;
    return fill_pattern(NULL, index, offset, buffer, bytes, err);
}

static lam_code fill_failing(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    (void)context, (void)buffer, (void)bytes, (void)offset;
    return index == 1 ? LAM_RAISE(err, LAM_E_CANCELLED, "stop") : LAM_OK;
}

static void test_pieces(void **state)
{
    (void)state;
    lam_error err;
    struct lam_slm_out *o;
    struct lam_slm *s;
    uint8_t root[32];
    char *folder = test_make_folder(), *path = lam_path_join(folder, "out.slm");
    static const struct lam_slm_decl decls[] = {
        {"embedding", LAM_F16, 2, {576, 8001, 1, 1}, LAM_LAYOUT_TILE16, LAM_LAYER_NONE, 0, 0},
        {"plain", LAM_F32, 2, {7, 3, 1, 1}, LAM_LAYOUT_PLAIN, 0, 0, 0},
        {"tail", LAM_F32, 3, {1, 2, 3, 1}, LAM_LAYOUT_PLAIN, 0, 0, 0},
    };
    struct filled filled = {.unit = {576 * 2 * 16, 28, 4}};
    assert_ok(lam_slm_out_new(LAM_SLM_ADAPTER, 0, &o, &err), err);
    for (size_t i = 0; i < 3; i++) assert_ok(lam_slm_out_tensor(o, &decls[i], &err), err);
    assert_int_equal(lam_slm_out_write(o, path, fill_failing, NULL, NULL, &err), LAM_E_CANCELLED);
    assert_false(lam_path_exists(path));
    assert_ok(lam_slm_out_write(o, path, fill_counted, &filled, root, &err), err);
    lam_slm_out_free(o);
    assert_int_equal(filled.next[0], 501 * 576 * 2 * 16);
    assert_int_equal(filled.next[1], 84);
    assert_int_equal(filled.next[2], 24);

    assert_ok(lam_slm_open(path, &s, &err), err);
    assert_int_equal(s->kind, LAM_SLM_ADAPTER);
    assert_int_equal(s->n_pieces, 3);
    assert_null(s->vocab);
    assert_int_equal(json_object_size(s->metadata), 0);
    assert_memory_equal(root, s->weights_root, 32);
    for (size_t i = 0; i < 3; i++) assert_ok(lam_slm_verify_piece(s, i, &err), err);
    const struct lam_slm_entry *tail = lam_slm_find(s, "tail");
    assert_int_equal(tail->offset, 501 * 576 * 2 * 16 / 65536 * 65536 + 65536 + 128);
    assert_int_equal(lam_slm_tensor_data(s, tail)[5], (2 * 37 + 5) % 251);
    size_t data_at = (size_t)(s->data - s->file.data);
    lam_slm_close(s);

    /* one byte of the second piece: the open cannot see it, that piece's check does, the others' do not */
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, (long)(data_at + LAM_PIECE_BYTES + 1), SEEK_SET), 0);
    fputc(0xEE, f);
    fclose(f);
    assert_ok(lam_slm_open(path, &s, &err), err);
    assert_ok(lam_slm_verify_piece(s, 0, &err), err);
    assert_int_equal(lam_slm_verify_piece(s, 1, &err), LAM_E_DIGEST);
    assert_non_null(strstr(err.message, "4194304"));
    assert_ok(lam_slm_verify_piece(s, 2, &err), err);
    lam_slm_close(s);
    lam_free(path);
    test_remove_folder(folder);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    lam_error err;
    struct lam_slm_out *o;
    char *folder = test_make_folder(), *path = lam_path_join(folder, "out.slm");
    assert_int_equal(lam_slm_out_new(LAM_SLM_BASE, 2, &o, &err), LAM_E_ARGUMENT);
    assert_ok(lam_slm_out_new(LAM_SLM_BASE, 0, &o, &err), err);
    struct lam_slm_decl d = {"x", LAM_Q8_0, 2, {33, 4, 1, 1}, LAM_LAYOUT_TILE16, 0, 0, 0};
    assert_int_equal(lam_slm_out_tensor(o, &d, &err), LAM_E_SHAPE);
    d.dims[0] = 32;
    d.n_dims = 3;
    assert_int_equal(lam_slm_out_tensor(o, &d, &err), LAM_E_SHAPE);
    d.n_dims = 2;
    d.name = "";
    assert_int_equal(lam_slm_out_tensor(o, &d, &err), LAM_E_ARGUMENT);
    d.name = "x";
    d.residual_values = 32 * 4 + 1;
    assert_int_equal(lam_slm_out_tensor(o, &d, &err), LAM_E_OVERFLOW);
    d.residual_values = 1;
    d.layout = LAM_LAYOUT_PLAIN;
    assert_int_equal(lam_slm_out_tensor(o, &d, &err), LAM_E_ARGUMENT);
    d.layout = LAM_LAYOUT_TILE16;
    d.residual_values = 0;
    assert_ok(lam_slm_out_tensor(o, &d, &err), err);
    assert_ok(lam_slm_out_tensor(o, &d, &err), err);
    assert_int_equal(lam_slm_out_write(o, path, fill_pattern, NULL, NULL, &err), LAM_E_DUPLICATE);
    lam_slm_out_free(o);

    /* metadata above 16 MiB, and not an object */
    assert_ok(lam_slm_out_new(LAM_SLM_BASE, 0, &o, &err), err);
    char *big = calloc(LAM_SLM_METADATA_MAX + 1, 1);
    memset(big, 'a', LAM_SLM_METADATA_MAX);
    json_t *metadata = json_pack("{s:s}", "k", big), *list = json_array();
    lam_slm_out_metadata(o, metadata);
    assert_int_equal(lam_slm_out_write(o, path, fill_pattern, NULL, NULL, &err), LAM_E_LIMIT);
    lam_slm_out_metadata(o, list);
    assert_int_equal(lam_slm_out_write(o, path, fill_pattern, NULL, NULL, &err), LAM_E_ARGUMENT);
    lam_slm_out_free(o);
    json_decref(metadata);
    json_decref(list);
    free(big);
    lam_free(path);
    test_remove_folder(folder);
}

/* ---- faults of the header and the directory, checksum and root made right again ---- */

static void expect(const uint8_t *file, size_t len, lam_code code, const char *what)
{
    struct lam_slm *s;
    lam_error err = {.message = ""};
    lam_code got = open_checked(file, len, &s, &err);
    struct lam_residual r;
    bool open = got == LAM_OK;
    for (size_t i = 0; got == LAM_OK && i < s->n_entries; i++) got = lam_slm_residual(s, &s->entries[i], &r, &err);
    if (got != code) fail_msg("%s: %s (%s), expected %s", what, lam_code_name(got), err.message, lam_code_name(code));
    if (open) lam_slm_close(s);
}

struct patch {
    const char *what;
    size_t at, bytes;
    uint64_t value;
    lam_code code;
};

/* Each patch alone, on a copy of a file; patches count from the offset in the header's field base_at, if that is not 0. */
static void try_patches(const char *path, const struct patch *patches, size_t n, size_t base_at)
{
    size_t len;
    uint8_t *golden = test_read_file(path, &len), *file = aligned_copy(golden, len);
    size_t base = base_at ? (size_t)lam_load_u64(golden + base_at) : 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t value[8];
        lam_store_u64(value, patches[i].value);
        memcpy(file + base + patches[i].at, value, patches[i].bytes);
        slm_seal(file, len);
        expect(file, len, patches[i].code, patches[i].what);
        memcpy(file, golden, len);
    }
    expect(file, len, LAM_OK, "undamaged");
    free(file);
    free(golden);
}

static void test_header_faults(void **state)
{
    (void)state;
    static const struct patch patches[] = {
        {"magic", 0, 1, 'X', LAM_E_MAGIC},
        {"SLM1", 3, 1, '1', LAM_E_LEGACY},
        {"SLM2", 3, 1, '2', LAM_E_LEGACY},
        {"byte order", 0, 4, 0x534C4D30, LAM_E_BYTE_ORDER},
        {"version 1", 4, 2, 1, LAM_E_VERSION},
        {"version 256", 4, 2, 256, LAM_E_VERSION},
        {"collection", 6, 1, 2, LAM_E_UNSUPPORTED},
        {"kind 3", 6, 1, 3, LAM_E_UNKNOWN_FIELD},
        {"piece size", 7, 1, 21, LAM_E_UNKNOWN_FIELD},
        {"flags", 8, 4, 2, LAM_E_UNKNOWN_FIELD},
        {"high flag", 8, 4, 0x80000001, LAM_E_UNKNOWN_FIELD},
        {"more tensors", 12, 4, 6, LAM_E_GAP},
        {"fewer tensors", 12, 4, 4, LAM_E_GAP},
        {"2^32 - 1 tensors", 12, 4, UINT32_MAX, LAM_E_TRUNCATED},
        {"residuals", 16, 4, 1, LAM_E_OVERLAP},
        {"residual offset", 64, 8, 64, LAM_E_UNKNOWN_FIELD},
        {"metadata length short", 20, 4, 5, LAM_E_FORMAT},
        {"metadata length above 16 MiB", 20, 4, (16 << 20) + 1, LAM_E_LIMIT},
        {"metadata offset low", 24, 8, 128, LAM_E_OVERLAP},
        {"metadata offset high", 24, 8, 161, LAM_E_GAP},
        {"metadata offset out", 24, 8, UINT64_MAX, LAM_E_TRUNCATED},
        {"metadata bytes", 32, 8, UINT64_MAX, LAM_E_TRUNCATED},
        {"directory offset low", 40, 8, 192, LAM_E_OVERLAP},
        {"directory offset high", 40, 8, 4096, LAM_E_GAP},
        {"directory offset out", 40, 8, UINT64_MAX - 63, LAM_E_TRUNCATED},
        {"data offset low", 48, 8, 0, LAM_E_OVERLAP},
        {"data offset high", 48, 8, 131072, LAM_E_TRUNCATED},
        {"data bytes short", 56, 8, 196608, LAM_E_GAP},
        {"data bytes long", 56, 8, 200000, LAM_E_TRUNCATED},
        {"data bytes 2^63", 56, 8, (uint64_t)1 << 63, LAM_E_OVERFLOW},
        {"piece table low", 72, 8, 64, LAM_E_OVERLAP},
        {"piece table high", 72, 8, 192, LAM_E_GAP},
        {"file longer", 80, 8, 262209, LAM_E_TRUNCATED},
        {"file shorter", 80, 8, 262207, LAM_E_GAP},
        {"file 2^63", 80, 8, (uint64_t)1 << 63, LAM_E_OVERFLOW},
        {"vocabulary shorter", 120, 4, 18, LAM_E_GAP},  /* its last byte becomes padding that is not zero */
        {"vocabulary out", 120, 4, UINT32_MAX, LAM_E_TRUNCATED},
        {"vocabulary none", 120, 4, 0, LAM_E_GAP},
    };
    try_patches(GOLDEN, patches, sizeof patches / sizeof *patches, 0);
}

/* Entry 0 is blk.0.attn_norm (offset 65536), 1 blk.0.attn_q (65600), 2 blk.1.attn_norm (131072), 3 output_norm (196608),
 * 4 token_embd (0). */
static void test_directory_faults(void **state)
{
    (void)state;
    static const struct patch patches[] = {
        {"name offset", 0, 4, 1, LAM_E_GAP},
        {"name offset low", 64, 4, 0, LAM_E_OVERLAP},
        {"name offset out", 64, 4, UINT32_MAX, LAM_E_GAP},
        {"name length", 4, 2, 21, LAM_E_GAP},
        {"no name", 4, 2, 0, LAM_E_GAP},
        {"name length out", 4 * 64 + 4, 2, 65535, LAM_E_OVERLAP},
        {"dtype 4", 6, 1, 4, LAM_E_UNKNOWN_FIELD},
        {"dtype 255", 6, 1, 255, LAM_E_UNKNOWN_FIELD},
        {"dtype of another size", 6, 1, LAM_F16, LAM_E_FORMAT},
        {"block not dividing", 6, 1, LAM_Q8_0, LAM_E_SHAPE},
        {"rank 0", 7, 1, 0, LAM_E_SHAPE},
        {"rank 5", 7, 1, 5, LAM_E_SHAPE},
        {"tile of rank 1", 64 + 7, 1, 1, LAM_E_SHAPE},
        {"dimension 0", 8, 4, 0, LAM_E_SHAPE},
        {"dimension 9", 8, 4, 9, LAM_E_FORMAT},
        {"unused dimension", 12, 4, 2, LAM_E_SHAPE},
        {"huge dimension", 8, 4, UINT32_MAX, LAM_E_FORMAT},
        {"offset odd", 24, 8, 65537, LAM_E_ALIGNMENT},
        {"offset into another", 64 + 24, 8, 65536, LAM_E_OVERLAP},
        {"offset with a gap", 64 + 24, 8, 65664, LAM_E_GAP},
        {"layer not at 64 KiB", 2 * 64 + 24, 8, 66176, LAM_E_ALIGNMENT},
        {"offset out", 24, 8, UINT64_MAX - 63, LAM_E_OVERFLOW},
        {"bytes", 32, 8, 64, LAM_E_FORMAT},
        {"bytes 2^63", 32, 8, (uint64_t)1 << 63, LAM_E_FORMAT},
        {"layout 2", 40, 2, 2, LAM_E_UNKNOWN_FIELD},
        {"layout plain instead of tiles", 64 + 40, 2, 0, LAM_E_FORMAT},
        {"layer", 64 + 42, 2, 5, LAM_E_ALIGNMENT},
        {"residual", 44, 4, 1, LAM_E_OVERFLOW},
        {"flags", 52, 4, 1, LAM_E_UNKNOWN_FIELD},
        {"reserved", 60, 1, 1, LAM_E_UNKNOWN_FIELD},
        {"unsorted", 5 * 64, 1, 'z', LAM_E_FORMAT},
        {"control character", 5 * 64, 1, '\n', LAM_E_FORMAT},
        {"not UTF-8", 5 * 64, 1, 0xFF, LAM_E_FORMAT},
        {"padding", 5 * 64 + 101, 1, 1, LAM_E_GAP},
        {"no tensor at the end", 3 * 64 + 24, 8, 131136, LAM_E_ALIGNMENT},
    };
    try_patches(GOLDEN, patches, sizeof patches / sizeof *patches, LAM_SLM_AT_DIRECTORY);
}

/* The table is at 1728 of the data section, the residual of token_embd (20 rows of 8) at 1792, that of attn_q (3 rows of 64) at 1920.
 * Entries: 0 attn_k, 1 attn_q, 2 output_norm, 3 token_embd. */
static void test_residual_faults(void **state)
{
    (void)state;
    static const struct patch header[] = {
        {"in an adapter", 6, 1, 1, LAM_E_UNSUPPORTED},
        {"none, with an offset", 16, 4, 0, LAM_E_UNKNOWN_FIELD},
        {"one", 16, 4, 1, LAM_E_OVERFLOW},
        {"three", 16, 4, 3, LAM_E_GAP},
        {"2^32 - 1", 16, 4, UINT32_MAX, LAM_E_TRUNCATED},
        {"table before the data", 64, 8, 0, LAM_E_OVERLAP},
        {"table in the tensors", 64, 8, 65536 + 1664, LAM_E_OVERLAP},
        {"table behind its place", 64, 8, 65536 + 1792, LAM_E_GAP},
        {"table at the end", 64, 8, 65536 + 1984 - 31, LAM_E_TRUNCATED},
        {"table out", 64, 8, UINT64_MAX, LAM_E_TRUNCATED},
    };
    static const struct patch directory[] = {
        {"one of two tensors", 0 + 44, 4, 2, LAM_E_DUPLICATE},
        {"without its tensor", 64 + 44, 4, 0, LAM_E_GAP},
        {"number 3 of 2", 64 + 44, 4, 3, LAM_E_OVERFLOW},
        {"number 2^32 - 1", 64 + 44, 4, UINT32_MAX, LAM_E_OVERFLOW},
        {"out of order", 3 * 64 + 44, 4, 2, LAM_E_GAP},
        {"the first one twice", 64 + 44, 4, 1, LAM_E_DUPLICATE},
        {"of a vector", 2 * 64 + 44, 4, 1, LAM_E_SHAPE},
        {"of a plain matrix", 64 + 40, 2, 0, LAM_E_SHAPE},
    };
    static const struct patch data[] = {
        {"offset low", 1728, 8, 1728, LAM_E_OVERLAP},
        {"offset high", 1728, 8, 1856, LAM_E_GAP},
        {"offset out", 1744, 8, 1985, LAM_E_OVERFLOW},
        {"offset 2^64 - 64", 1728, 8, UINT64_MAX - 63, LAM_E_OVERFLOW},
        {"no values", 1728 + 8, 4, 0, LAM_E_FORMAT},
        {"more values than weights", 1728 + 8, 4, 161, LAM_E_FORMAT},
        {"values that leave the section", 1728 + 8, 4, 160, LAM_E_OVERFLOW},
        {"values into the next", 1728 + 8, 4, 20, LAM_E_OVERLAP},
        {"one value fewer", 1744 + 8, 4, 4, LAM_E_FORMAT},
        {"reserved", 1728 + 12, 4, 1, LAM_E_UNKNOWN_FIELD},
        {"rows don't begin at 0", 1920, 4, 1, LAM_E_FORMAT},
        {"a row beyond the values", 1920 + 4, 4, 6, LAM_E_FORMAT},
        {"a row of 2^32 - 1", 1920 + 4, 4, UINT32_MAX, LAM_E_FORMAT},
        {"rows fall", 1920 + 8, 4, 2, LAM_E_FORMAT},
        {"rows end early", 1920 + 12, 4, 4, LAM_E_FORMAT},
        {"column 64", 1936 + 4, 2, 64, LAM_E_OVERFLOW},
        {"column 65535", 1936, 2, 65535, LAM_E_OVERFLOW},
        {"column twice", 1936 + 2, 2, 5, LAM_E_DUPLICATE},
        {"columns fall", 1936 + 2, 2, 4, LAM_E_FORMAT},
        {"infinity", 1946, 2, 0x7c00, LAM_E_NON_FINITE},
        {"minus infinity", 1946 + 8, 2, 0xfc00, LAM_E_NON_FINITE},
        {"NaN", 1946 + 2, 2, 0x7e01, LAM_E_NON_FINITE},
    };
    try_patches(RESIDUAL, header, sizeof header / sizeof *header, 0);
    try_patches(RESIDUAL, directory, sizeof directory / sizeof *directory, LAM_SLM_AT_DIRECTORY);
    try_patches(RESIDUAL, data, sizeof data / sizeof *data, LAM_SLM_AT_DATA);
}

/* 64 bytes more at the end, in which no tensor lies. */
static void test_unused_data(void **state)
{
    (void)state;
    size_t len;
    uint8_t *golden = test_read_file(GOLDEN, &len), *longer = calloc(len + 64, 1);
    memcpy(longer, golden, len);
    uint8_t *file = aligned_copy(longer, len + 64);
    lam_store_u64(file + LAM_SLM_AT_FILE_BYTES, len + 64);
    lam_store_u64(file + LAM_SLM_AT_DATA_BYTES, lam_load_u64(file + LAM_SLM_AT_DATA_BYTES) + 64);
    slm_seal(file, len + 64);
    expect(file, len + 64, LAM_E_GAP, "unused data");
    free(file);
    free(longer);
    free(golden);
}

/* Names blk.0.attn_norm.weight and blk.1.attn_norm.weight have one length: make them one. */
static void test_duplicate_name(void **state)
{
    (void)state;
    size_t len;
    uint8_t *golden = test_read_file(GOLDEN, &len), *file = aligned_copy(golden, len);
    uint8_t *directory = file + lam_load_u64(file + LAM_SLM_AT_DIRECTORY), *names = directory + 5 * 64;
    const struct lam_slm_entry *e = (const struct lam_slm_entry *)(const void *)directory;
    memcpy(names + e[2].name_offset, names + e[0].name_offset, e[0].name_len);
    slm_seal(file, len);
    expect(file, len, LAM_E_FORMAT, "unsorted"); /* attn_q stands between the two */
    memcpy(names, "blk.1.attn_norm.weightblk.1.attn_norm.wei", 41);
    lam_store_u16(directory + 64 + 4, 22);
    lam_store_u16(directory + 2 * 64 + 4, 19);
    lam_store_u32(directory + 2 * 64, 44);
    memcpy(names + 22, "blk.1.attn_norm.weight", 22);
    slm_seal(file, len);
    expect(file, len, LAM_E_DUPLICATE, "one name twice");
    free(file);
    free(golden);
}

/* Without new checksums and roots, each damage is found as damage. */
static void test_checksums(void **state)
{
    (void)state;
    size_t len;
    uint8_t *golden = test_read_file(GOLDEN, &len), *file = aligned_copy(golden, len);
    for (size_t at = 6; at < 128; at++) {
        file[at] ^= 1;
        expect(file, len, LAM_E_CHECKSUM, "header byte");
        file[at] ^= 1;
    }
    size_t metadata = (size_t)lam_load_u64(file + LAM_SLM_AT_METADATA), directory = (size_t)lam_load_u64(file + LAM_SLM_AT_DIRECTORY);
    const size_t ats[] = {128, 159, metadata, metadata + 5, directory - 64, directory + 48, directory + 2 * 64 + 48};
    for (size_t i = 0; i < sizeof ats / sizeof *ats; i++) { /* pieces, metadata, vocabulary, two roles */
        file[ats[i]] ^= 1;
        expect(file, len, LAM_E_DIGEST, "hashed byte");
        file[ats[i]] ^= 1;
    }
    /* a wrong root under a right checksum */
    file[LAM_SLM_AT_FILE_ROOT] ^= 1;
    lam_store_u32(file + LAM_SLM_AT_CRC, lam_slm_header_crc(file));
    expect(file, len, LAM_E_DIGEST, "file_root");
    free(file);
    free(golden);
}

/* ---- metadata ---- */

/* A file without tensors around these metadata bytes. */
static void expect_metadata(const void *packed, size_t n, size_t raw, lam_code code, const char *what)
{
    size_t directory = (128 + n + 63) / 64 * 64, len = (directory + 65535) / 65536 * 65536;
    uint8_t *zeros = calloc(len, 1), *file = aligned_copy(zeros, len);
    free(zeros);
    memcpy(file, "SLM0", 4);
    file[LAM_SLM_AT_LOG2_PIECE] = 22;
    lam_store_u32(file + LAM_SLM_AT_METADATA_RAW, (uint32_t)raw);
    lam_store_u64(file + LAM_SLM_AT_METADATA, 128);
    lam_store_u64(file + LAM_SLM_AT_METADATA_BYTES, n);
    lam_store_u64(file + LAM_SLM_AT_DIRECTORY, directory);
    lam_store_u64(file + LAM_SLM_AT_DATA, len);
    lam_store_u64(file + LAM_SLM_AT_PIECES, 128);
    lam_store_u64(file + LAM_SLM_AT_FILE_BYTES, len);
    memcpy(file + 128, packed, n);
    slm_seal(file, len);
    expect(file, len, code, what);
    free(file);
}

/* text, compressed; raw is what the header says of its length. */
static void expect_text(const char *text, size_t len, size_t raw, lam_code code, const char *what)
{
    size_t bound = ZSTD_compressBound(len);
    void *packed = malloc(bound);
    size_t n = ZSTD_compress(packed, bound, text, len, 3);
    expect_metadata(packed, n, raw, code, what);
    free(packed);
}

static void test_metadata_faults(void **state)
{
    (void)state;
    static const struct { const char *text; lam_code code; } told[] = {
        {"{}", LAM_OK}, {"{\"a\":1}", LAM_OK}, {"[]", LAM_E_FORMAT}, {"7", LAM_E_FORMAT}, {"", LAM_E_FORMAT}, {"{", LAM_E_FORMAT},
        {"{\"a\":1,\"a\":1}", LAM_E_DUPLICATE}, {"{ }", LAM_E_FORMAT}, {"{\"b\":1,\"a\":1}", LAM_E_FORMAT}, {"{\"a\":1.0}", LAM_E_FORMAT},
        {"{\"a\":\"\\u0041\"}", LAM_E_FORMAT}, {"{}\n", LAM_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        expect_text(told[i].text, strlen(told[i].text), strlen(told[i].text), told[i].code, told[i].text);
    expect_text("{\"a\":1}", 7, 6, LAM_E_FORMAT, "more than declared");
    expect_text("{\"a\":1}", 7, 8, LAM_E_FORMAT, "less than declared");
    expect_metadata("{\"a\":1}", 7, 7, LAM_E_FORMAT, "not compressed");
    expect_metadata("", 0, 0, LAM_E_FORMAT, "none");

    struct lam_str two = {0};
    char packed[128];
    size_t n = ZSTD_compress(packed, sizeof packed, "{}", 2, 3);
    lam_str_append(&two, packed, n);
    lam_str_append(&two, packed, n);
    expect_metadata(two.data, two.len, 2, LAM_E_FORMAT, "two frames");
    expect_metadata(two.data, two.len, 4, LAM_E_FORMAT, "two frames");
    lam_str_release(&two);
}

static void test_missing_and_empty(void **state)
{
    (void)state;
    struct lam_slm *s;
    lam_error err;
    uint8_t *unaligned = malloc(300000);
    size_t len;
    uint8_t *golden = test_read_file(GOLDEN, &len);
    memcpy(unaligned + 1, golden, len);
    assert_int_equal(lam_slm_open("tests/data/format/no-such.slm", &s, &err), LAM_E_NOT_FOUND);
    assert_int_equal(lam_slm_open("tests/data/format", &s, &err), LAM_E_IO);
    assert_int_equal(lam_slm_open("tests/data/format/python.gguf", &s, &err), LAM_E_MAGIC);
    assert_int_equal(lam_slm_open_memory(NULL, 0, &s, &err), LAM_E_TRUNCATED);
    assert_int_equal(lam_slm_open_memory(unaligned + 1, len, &s, &err), LAM_E_ARGUMENT);
    free(golden);
    free(unaligned);
}

static void test_metadata_bombs(void **state)
{
    (void)state;
    size_t big = LAM_SLM_METADATA_MAX;
    char *text = malloc(big + 64);
    memset(text, ' ', big + 64);
    expect_text(text, big + 1, big + 1, LAM_E_LIMIT, "more than 16 MiB");
    expect_text(text, big + 1, 2, LAM_E_FORMAT, "more than 16 MiB, not declared");
    for (size_t i = 0; i + 2 < big; i += 3) memcpy(text + i, "{},", 3);
    memcpy(text, "{\"a\":[", 6);
    expect_text(text, big, big, LAM_E_LIMIT, "millions of values");
    memset(text, '[', big);
    expect_text(text, 100000, 100000, LAM_E_FORMAT, "depth");
    struct lam_str many = {0}; /* almost as many values as are allowed */
    lam_str_puts(&many, "{\"a\":[0");
    for (size_t i = 0; i < 43000; i++) lam_str_puts(&many, ",[[]]");
    lam_str_puts(&many, "]}");
    expect_text(many.data, many.len, many.len, LAM_OK, "129,000 values");
    lam_str_release(&many);
    free(text);
}

/* ---- damage ---- */

static void test_truncations(void **state)
{
    (void)state;
    size_t len;
    uint8_t *golden = test_read_file(GOLDEN, &len);
    size_t metadata = (size_t)lam_load_u64(golden + LAM_SLM_AT_METADATA), packed = (size_t)lam_load_u64(golden + LAM_SLM_AT_METADATA_BYTES);
    size_t directory = (size_t)lam_load_u64(golden + LAM_SLM_AT_DIRECTORY), data = (size_t)lam_load_u64(golden + LAM_SLM_AT_DATA);
    const size_t borders[] = {0, 4, 128, 160, metadata + packed, directory - 64, directory, directory + 64, directory + 5 * 64,
                              directory + 5 * 64 + 101, data, data + 512, data + 65536, data + 131072, len};
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++)
        for (int d = -1; d <= 1; d++) {
            size_t n = borders[i] + (size_t)d;
            if ((borders[i] == 0 && d < 0) || n >= len) continue;
            uint8_t *file = aligned_copy(golden, n);
            expect(file, n, LAM_E_TRUNCATED, "cut");
            if (n >= 128) { /* and with a header that agrees */
                lam_store_u64(file + LAM_SLM_AT_FILE_BYTES, n);
                slm_seal(file, n);
                struct lam_slm *s;
                lam_error err;
                lam_code code = open_checked(file, n, &s, &err);
                if (code != LAM_E_TRUNCATED && code != LAM_E_OVERFLOW) fail_msg("cut to %zu: %s", n, lam_code_name(code));
            }
            free(file);
        }
    uint8_t *longer = aligned_copy(golden, len + 1); /* test_read_file gives one zero more */
    expect(longer, len + 1, LAM_E_GAP, "one byte more");
    free(longer);
    free(golden);
}

/* Whatever lam_slm_residual lets through can be added to rows of the tensor's width. */
static void touch_residual(const struct lam_slm *s, const struct lam_slm_entry *e)
{
    struct lam_residual r;
    if (lam_slm_residual(s, e, &r, NULL) != LAM_OK || e->dims[0] > 1 << 20) return;
    float *row = calloc(e->dims[0], sizeof *row);
    assert_non_null(row);
    for (size_t i = 0; i < e->dims[1]; i++) lam_residual_add_row(&r, i, row);
    free(row);
}

static void touch_everything(const struct lam_slm *s)
{
    volatile unsigned sum = 0;
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct lam_slm_entry *e = &s->entries[i];
        const uint8_t *data = lam_slm_tensor_data(s, e);
        sum += data[0] + data[e->bytes - 1] + (unsigned)s->names[e->name_offset] + (unsigned)s->names[e->name_offset + e->name_len - 1];
    }
    for (size_t i = 0; i < s->n_entries; i++) touch_residual(s, &s->entries[i]);
    if (s->vocab) sum += s->vocab[0] + s->vocab[s->vocab_bytes - 1];
    for (size_t i = 0; i < s->n_pieces; i++) sum += lam_slm_verify_piece(s, i, NULL) == LAM_OK;
}

/* Damages the sections before the data, and the data from `from` on if that is not 0. */
static void mutate(const char *path, size_t n_entries, size_t from, uint64_t seed)
{
    size_t len, opened = 0;
    uint8_t *golden = test_read_file(path, &len), *file = aligned_copy(golden, len);
    size_t small = (size_t)lam_load_u64(golden + LAM_SLM_AT_DIRECTORY) + n_entries * 64 + 120;
    static const uint64_t sizes[] = {0, 1, 63, 64, 128, 65536, 262144, 0xFFFFFFFF, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX - 63, UINT64_MAX};
    for (int round = 0; round < 20000; round++) {
        for (uint64_t k = test_random(&seed) % 3 + 1; k > 0; k--) {
            bool data = from && test_random(&seed) % 2;
            size_t at = data ? from + test_random(&seed) % (len - from - 8) : test_random(&seed) % (small - 8);
            if (test_random(&seed) % 2) file[at] = (uint8_t)test_random(&seed);
            else if (test_random(&seed) % 2) file[at] ^= (uint8_t)(1u << test_random(&seed) % 8);
            else lam_store_u64(file + at / 8 * 8, sizes[test_random(&seed) % (sizeof sizes / sizeof *sizes)]);
        }
        if (round % 4) slm_seal(file, len);
        struct lam_slm *s;
        lam_error err;
        if (open_checked(file, len, &s, &err) == LAM_OK) {
            opened++;
            touch_everything(s);
            lam_slm_close(s);
        }
        memcpy(file, golden, small);
        if (from) memcpy(file + from, golden + from, len - from);
    }
    assert_in_range(opened, 200, 19000);
    free(file);
    free(golden);
}

static void test_mutations(void **state)
{
    (void)state;
    mutate(GOLDEN, 5, 0, 4711);
    mutate(RESIDUAL, 4, 65536 + 1728, 4712);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_write_equals_golden), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_writer_refuses), cmocka_unit_test(test_header_faults), cmocka_unit_test(test_directory_faults), cmocka_unit_test(test_residual),
        cmocka_unit_test(test_residual_faults),
        cmocka_unit_test(test_duplicate_name), cmocka_unit_test(test_unused_data), cmocka_unit_test(test_checksums), cmocka_unit_test(test_metadata_faults), cmocka_unit_test(test_missing_and_empty),
        cmocka_unit_test(test_metadata_bombs), cmocka_unit_test(test_truncations), cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
