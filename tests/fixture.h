/* A base with adapters, imported into a folder of its own, for tests of the public API. */
#ifndef LAM_TESTS_FIXTURE_H
#define LAM_TESTS_FIXTURE_H

#include "support.h"

#include "base/os.h"
#include "base/sha256.h"
#include "lamina/lamina.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE_ADAPTERS 16

struct fixture {
    char *folder;
    char base_path[512];
    char adapter_paths[FIXTURE_ADAPTERS][512];
    size_t n_adapters;
    lam_engine *engine;
    lam_base *base;
    lam_adapter *adapters[FIXTURE_ADAPTERS];
    lam_compose_options compose; /* all zero after fixture_import */
    bool waive;                  /* of the adapters that fixture_open loads; false after fixture_import */
};

static inline void fixture_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Writes to out[512] the folder of another adapter of the same shapes as the PEFT folder source: every seventh factor has its sign
 * changed. */
static inline void fixture_twin(const char *folder, const char *source, char *out)
{
    char path[2048];
    size_t size;
    snprintf(out, 512, "%s/twin", folder);
    lam_error err;
    assert_ok(lam_make_dirs(out, &err), err);
    snprintf(path, sizeof path, "%s/adapter_config.json", source);
    uint8_t *bytes = test_read_file(path, &size);
    snprintf(path, sizeof path, "%s/adapter_config.json", out);
    fixture_write(path, bytes, size);
    free(bytes);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", source);
    bytes = test_read_file(path, &size);
    uint64_t header;
    memcpy(&header, bytes, sizeof header);
    for (size_t at = 8 + header; at + 4 <= size; at += 28) bytes[at + 3] ^= 0x80; /* float32, little-endian */
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", out);
    fixture_write(path, bytes, size);
    free(bytes);
}

static inline void fixture_copy(const char *from, const char *to)
{
    size_t size;
    uint8_t *bytes = test_read_file(from, &size);
    fixture_write(to, bytes, size);
    free(bytes);
}

/* Imports base and adapters (paths from the repository's root; "twin" is the twin of the one before, an .slm is taken as it is) and
 * writes the .slm files; fixture_open opens them. */
static inline void fixture_import(struct fixture *f, const char *base, const char *const *adapters, size_t n)
{
    lam_error err;
    memset(f, 0, sizeof *f);
    f->folder = test_make_folder();
    f->n_adapters = n;
    snprintf(f->base_path, sizeof f->base_path, "%s/base.slm", f->folder);
    assert_ok(lam_import_base(base, f->base_path, NULL, &err), err);
    for (size_t i = 0; i < n; i++) {
        char source[512];
        snprintf(source, sizeof source, "%s", adapters[i]);
        if (i && strcmp(adapters[i], "twin") == 0) fixture_twin(f->folder, adapters[i - 1], source);
        snprintf(f->adapter_paths[i], sizeof f->adapter_paths[i], "%s/adapter-%zu.slm", f->folder, i);
        if (strstr(source, ".slm")) fixture_copy(source, f->adapter_paths[i]);
        else assert_ok(lam_import_adapter(source, f->base_path, f->adapter_paths[i], NULL, NULL, &err), err);
    }
}

static inline void fixture_open(struct fixture *f, const lam_engine_options *options)
{
    lam_error err;
    assert_ok(lam_engine_new(options, &f->engine, &err), err);
    assert_ok(lam_base_open(f->engine, f->base_path, LAM_VERIFY_FULL, &f->base, &err), err);
    for (size_t i = 0; i < f->n_adapters; i++)
        assert_ok(lam_adapter_load(f->base, f->adapter_paths[i], f->waive, &f->adapters[i], &err), err);
}

static inline void fixture_close(struct fixture *f)
{
    for (size_t i = 0; i < f->n_adapters; i++) {
        lam_adapter_unload(f->adapters[i]);
        f->adapters[i] = NULL;
    }
    lam_base_free(f->base);
    lam_engine_free(f->engine);
    f->base = NULL;
    f->engine = NULL;
}

static inline void fixture_remove(struct fixture *f) { test_remove_folder(f->folder); }

static inline size_t fixture_vocab(const struct fixture *f)
{
    lam_base_info info;
    lam_base_describe(f->base, &info);
    return info.n_vocab;
}

static inline lam_composition *fixture_compose(struct fixture *f, const double *weights, size_t n)
{
    lam_error err;
    lam_composition *c;
    assert_ok(lam_compose(f->base, f->adapters, weights, n, &f->compose, &c, &err), err);
    return c;
}

static inline lam_session *fixture_session(lam_composition *c, size_t context)
{
    lam_error err;
    lam_session *s;
    assert_ok(lam_session_new(c, context, &s, &err), err);
    return s;
}

/* A lam_logits_fn: context is a struct lam_sha256. */
static inline bool fixture_hash(void *context, size_t position, const float *logits, size_t n_vocab)
{
    (void)position;
    lam_sha256_update(context, logits, n_vocab * sizeof *logits);
    return true;
}

/* SHA-256 over the logits of every position of tokens[n], fed at once to a new session of c. */
static inline void fixture_digest(lam_composition *c, const uint32_t *tokens, size_t n, char out[LAM_DIGEST_TEXT])
{
    lam_error err;
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_session *s = fixture_session(c, n);
    lam_sha256_init(&hash);
    assert_ok(lam_session_feed(s, tokens, n, fixture_hash, &hash, &err), err);
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    lam_session_free(s);
}

/* tokens[n] at random, the same for the same seed. */
static inline void fixture_tokens(uint64_t seed, size_t n_vocab, uint32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) tokens[i] = (uint32_t)(test_random(&seed) % n_vocab);
}

#endif
