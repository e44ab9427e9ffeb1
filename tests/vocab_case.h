/* Vocabularies of tests/data/tokenizer, opened for a test. */
#ifndef LAM_TESTS_VOCAB_CASE_H
#define LAM_TESTS_VOCAB_CASE_H

#include "base/alloc.h"
#include "base/cursor.h"
#include "base/os.h"
#include "format/gguf.h"
#include "format/vocab.h"
#include "support.h"
#include "text/tokenizer.h"
#include "text/vocab_import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define VOCAB_DATA "tests/data/tokenizer/"

/* A .zst file of the data folder, decompressed; freed with lam_free_aligned. */
static inline uint8_t *read_zst(const char *name, size_t *len)
{
    char path[256];
    size_t packed_len;
    snprintf(path, sizeof path, VOCAB_DATA "%s.zst", name);
    uint8_t *packed = test_read_file(path, &packed_len);
    unsigned long long size = ZSTD_getFrameContentSize(packed, packed_len);
    /* A streamed frame doesn't tell its size. */
    size_t cap = size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR ? (size_t)48 << 20 : (size_t)size;
    uint8_t *out = lam_alloc_aligned(cap + 1);
    assert_non_null(out);
    *len = ZSTD_decompress(out, cap, packed, packed_len);
    assert_false(ZSTD_isError(*len));
    free(packed);
    return out;
}

struct vocab_case {
    uint8_t *section;
    size_t section_len;
    struct lam_vocab vocab;
    struct lam_tokenizer *tokenizer;
};

/* What a file's bytes are, by the end of its name: .gguf, .tokenizer.json or .model. */
static inline lam_code import_bytes(const char *name, const uint8_t *bytes, size_t len, uint8_t **section, size_t *section_len, lam_error *err)
{
    const char *end = strrchr(name, '.');
    struct lam_vocab_source source = {(const char *)bytes, len};
    if (strcmp(end, ".json") == 0) return lam_vocab_import_hf(&source, NULL, NULL, section, section_len, err);
    if (strcmp(end, ".model") == 0) return lam_vocab_import_spm(&source, NULL, NULL, section, section_len, err);
    struct lam_gguf *g;
    LAM_TRY(lam_gguf_open_memory(bytes, len, &g, err));
    lam_code code = lam_vocab_import_gguf(g, section, section_len, err);
    lam_gguf_close(g);
    return code;
}

static inline void open_section(struct vocab_case *c)
{
    lam_error err = {0};
    assert_ok(lam_vocab_open(c->section, c->section_len, &c->vocab, &err), err);
    assert_ok(lam_tokenizer_new(&c->vocab, &c->tokenizer, &err), err);
}

static inline void open_case(const char *name, struct vocab_case *c)
{
    lam_error err = {0};
    size_t len;
    uint8_t *bytes = read_zst(name, &len);
    assert_ok(import_bytes(name, bytes, len, &c->section, &c->section_len, &err), err);
    lam_free_aligned(bytes);
    open_section(c);
}

static inline void close_case(struct vocab_case *c)
{
    lam_tokenizer_free(c->tokenizer);
    lam_free_aligned(c->section);
}

/* Fails unless text gives exactly the expected tokens. */
static inline void check_tokens(const struct vocab_case *c, const char *name, const void *text, size_t len, unsigned flags,
                                const uint32_t *expected, size_t n_expected)
{
    lam_error err = {0};
    uint32_t *tokens;
    size_t n;
    assert_ok(lam_tokenizer_encode(c->tokenizer, text, len, flags, &tokens, &n, &err), err);
    if (n != n_expected || (n > 0 && memcmp(tokens, expected, n * sizeof *tokens) != 0)) {
        size_t i = 0;
        while (i < n && i < n_expected && tokens[i] == expected[i]) i++;
        fail_msg("%s: \"%.*s\": %zu tokens for %zu, the first difference at %zu: %u for %u", name, (int)len, (const char *)text, n,
                 n_expected, i, i < n ? tokens[i] : LAM_TOKEN_NONE, i < n_expected ? expected[i] : LAM_TOKEN_NONE);
    }
    lam_free(tokens);
}

/* One string of strings.bin, and what a golden file says of it. */
struct golden {
    uint8_t *strings, *expected; /* freed with lam_free_aligned */
    struct lam_cursor s, e;
    uint32_t stride, i;
    const uint8_t *text;
    uint32_t text_len;
    uint32_t *tokens; /* owned */
    uint32_t n;
    const uint8_t *decoded; /* NULL: see decoded_len */
    uint32_t decoded_len;
};
#define GOLDEN_SAME 0xFFFFFFFEu
#define GOLDEN_NOT_COMPARED 0xFFFFFFFFu

static inline void golden_open(struct golden *g, const char *name)
{
    char file[128];
    size_t len;
    memset(g, 0, sizeof *g);
    g->strings = read_zst("strings.bin", &len);
    g->s = lam_cursor_init(g->strings, len);
    snprintf(file, sizeof file, "%s.golden", name);
    g->expected = read_zst(file, &len);
    g->e = lam_cursor_init(g->expected, len);
    assert_true(lam_cursor_u32(&g->e, &g->stride));
}

/* False at the end. */
static inline bool golden_next(struct golden *g)
{
    do {
        if (lam_cursor_left(&g->s) == 0) {
            assert_int_equal(lam_cursor_left(&g->e), 0);
            return false;
        }
        assert_true(lam_cursor_u32(&g->s, &g->text_len) && lam_cursor_bytes(&g->s, g->text_len, &g->text));
    } while (g->i++ >= 200 && (g->i - 1) % g->stride != 0);
    const uint8_t *ids;
    assert_true(lam_cursor_u32(&g->e, &g->n) && lam_cursor_bytes(&g->e, 4ull * g->n, &ids) && lam_cursor_u32(&g->e, &g->decoded_len));
    g->tokens = realloc(g->tokens, 4 * (size_t)g->n + 4);
    assert_non_null(g->tokens);
    for (uint32_t i = 0; i < g->n; i++) g->tokens[i] = lam_load_u32(ids + 4 * (size_t)i);
    g->decoded = NULL;
    if (g->decoded_len < GOLDEN_SAME) assert_true(lam_cursor_bytes(&g->e, g->decoded_len, &g->decoded));
    return true;
}

static inline void golden_close(struct golden *g)
{
    lam_free_aligned(g->strings);
    lam_free_aligned(g->expected);
    free(g->tokens);
}

#endif
