/* A base of two layers with adapters made on the spot, for tests of what one computation leaves to the next. */
#ifndef LAM_TESTS_REUSE_FIXTURE_H
#define LAM_TESTS_REUSE_FIXTURE_H

#include "base/cursor.h"
#include "base/str.h"
#include "fixture.h"
#include "lamina/reuse.h"

#define REUSE_BASE "tests/golden/llama-gqa"
#define REUSE_Q4 "tests/golden/llama-gqa/llama-gqa-q4_0.gguf"
#define REUSE_VOCAB 288
#define REUSE_RANK 3

/* The modules of the base, with their sizes. */
static const struct reuse_module { const char *name; uint32_t rows, cols; } reuse_modules[] = {
    {"self_attn.q_proj", 64, 64}, {"self_attn.k_proj", 32, 64}, {"self_attn.v_proj", 32, 64}, {"self_attn.o_proj", 64, 64},
    {"mlp.gate_proj", 108, 64}, {"mlp.up_proj", 108, 64}, {"mlp.down_proj", 64, 108}};
enum { Q = 1, K = 2, V = 4, O = 8, GATE = 16, UP = 32, DOWN = 64, MLP = 112, ALL = 127 };

/* A LoRA on these modules of each layer, and perhaps the head. */
struct reuse_adapter {
    const char *name;
    unsigned layer[2];     /* modules, as bits */
    bool head;
    uint64_t seed;         /* of its factors */
    uint32_t invocation[4];
    size_t n_invocation;   /* 0: not activated */
    bool zero_b;
};

struct reuse_tensors {
    char header[16384];
    size_t len, bytes;
    uint8_t data[1 << 17];
};

static inline void reuse_put(struct reuse_tensors *t, const char *module, const char *part, uint32_t rows, uint32_t cols, bool zero,
                             uint64_t *seed)
{
    t->len += (size_t)snprintf(t->header + t->len, sizeof t->header - t->len,
                               "%s\"base_model.model.%s.lora_%s.weight\":{\"dtype\":\"F32\",\"shape\":[%u,%u],\"data_offsets\":[%zu,%zu]}",
                               t->len > 1 ? "," : "", module, part, rows, cols, t->bytes, t->bytes + 4 * (size_t)rows * cols);
    for (size_t i = 0; i < (size_t)rows * cols; i++) {
        float v = test_random_float(seed) * 0.25f;
        if (zero) v = 0.0f;
        assert_true(t->bytes + 4 <= sizeof t->data);
        memcpy(t->data + t->bytes, &v, 4);
        t->bytes += 4;
    }
}

static inline void reuse_pair(struct reuse_tensors *t, const struct reuse_adapter *a, const char *module, uint32_t rows, uint32_t cols,
                              struct lam_str *targets)
{
    uint64_t seed = a->seed; /* of a module alone, so that adapters may share some */
    for (const char *c = module; *c; c++) seed = seed * 131 + (unsigned char)*c;
    reuse_put(t, module, "A", REUSE_RANK, cols, false, &seed);
    reuse_put(t, module, "B", rows, REUSE_RANK, a->zero_b, &seed);
    assert_true(lam_str_printf(targets, "%s\"%s\"", targets->len ? "," : "", module));
}

/* Writes a PEFT folder and imports it to out[512]. */
static inline void reuse_import(const char *folder, const char *base_path, const struct reuse_adapter *a, char *out)
{
    char peft[400], path[512], module[64];
    struct reuse_tensors *t = calloc(1, sizeof *t);
    struct lam_str targets = {0}, config = {0};
    lam_error err;
    assert_non_null(t);
    t->header[t->len++] = '{';
    for (unsigned l = 0; l < 2; l++)
        for (size_t m = 0; m < sizeof reuse_modules / sizeof *reuse_modules; m++) {
            if (!(a->layer[l] >> m & 1)) continue;
            snprintf(module, sizeof module, "model.layers.%u.%s", l, reuse_modules[m].name);
            reuse_pair(t, a, module, reuse_modules[m].rows, reuse_modules[m].cols, &targets);
        }
    if (a->head) reuse_pair(t, a, "lm_head", REUSE_VOCAB, 64, &targets);
    t->header[t->len++] = '}';
    while (t->len % 8) t->header[t->len++] = ' ';
    snprintf(peft, sizeof peft, "%s/%s", folder, a->name);
    assert_ok(lam_make_dirs(peft, &err), err);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", peft);
    FILE *f = fopen(path, "wb");
    uint8_t size[8];
    lam_store_u64(size, t->len);
    assert_non_null(f);
    assert_true(fwrite(size, 1, 8, f) == 8 && fwrite(t->header, 1, t->len, f) == t->len && fwrite(t->data, 1, t->bytes, f) == t->bytes);
    assert_int_equal(fclose(f), 0);
    assert_true(lam_str_printf(&config, "{\"peft_type\":\"LORA\",\"task_type\":\"CAUSAL_LM\",\"base_model_name_or_path\":\"base\",\"r\":%d,"
                                        "\"lora_alpha\":6,\"target_modules\":[%s],\"alora_invocation_tokens\":", REUSE_RANK, targets.data));
    for (size_t i = 0; i < a->n_invocation; i++) assert_true(lam_str_printf(&config, "%s%u", i ? "," : "[", a->invocation[i]));
    assert_true(lam_str_puts(&config, a->n_invocation ? "]}" : "null}"));
    snprintf(path, sizeof path, "%s/adapter_config.json", peft);
    fixture_write(path, config.data, config.len);
    snprintf(out, 512, "%s/%s-%llu.slm", folder, a->name, (unsigned long long)a->seed);
    assert_ok(lam_import_adapter(peft, base_path, out, NULL, NULL, &err), err);
    lam_str_release(&targets);
    lam_str_release(&config);
    free(t);
}

#define REUSE_ADAPTERS 16

struct reuse {
    char *folder, base_path[512], paths[REUSE_ADAPTERS][512];
    lam_engine *engine;
    lam_base *base;
    lam_adapter *adapters[REUSE_ADAPTERS];
    lam_composition *with[REUSE_ADAPTERS]; /* each alone */
    lam_composition *bare;
    size_t n;
};

static inline void reuse_open(struct reuse *r, const char *source, const struct reuse_adapter *adapters, size_t n, const lam_engine_options *options)
{
    lam_error err;
    *r = (struct reuse){.folder = test_make_folder(), .n = n};
    snprintf(r->base_path, sizeof r->base_path, "%s/base.slm", r->folder);
    assert_ok(lam_import_base(source, r->base_path, NULL, &err), err);
    assert_ok(lam_engine_new(options, &r->engine, &err), err);
    assert_ok(lam_base_open(r->engine, r->base_path, LAM_VERIFY_FULL, &r->base, &err), err);
    assert_ok(lam_compose(r->base, NULL, NULL, 0, NULL, &r->bare, &err), err);
    for (size_t i = 0; i < n; i++) {
        reuse_import(r->folder, r->base_path, &adapters[i], r->paths[i]);
        assert_ok(lam_adapter_load(r->base, r->paths[i], false, &r->adapters[i], &err), err);
        assert_ok(lam_compose(r->base, &r->adapters[i], (double[]){1.0}, 1, NULL, &r->with[i], &err), err);
    }
}

static inline void reuse_close(struct reuse *r)
{
    for (size_t i = 0; i < r->n; i++) {
        lam_composition_free(r->with[i]);
        lam_adapter_unload(r->adapters[i]);
    }
    lam_composition_free(r->bare);
    lam_base_free(r->base);
    lam_engine_free(r->engine);
    test_remove_folder(r->folder);
}

static inline void reuse_feed(lam_session *s, const uint32_t *tokens, size_t n)
{
    lam_error err;
    assert_ok(lam_session_feed(s, tokens, n, NULL, NULL, &err), err);
}

/* A session's future as a digest: its logits, and those after eight more tokens, one by one. */
static inline void reuse_future(lam_session *s, char out[LAM_DIGEST_TEXT])
{
    lam_error err;
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256_init(&hash);
    for (uint32_t i = 0; i < 8; i++) {
        assert_non_null(lam_session_logits(s));
        lam_sha256_update(&hash, lam_session_logits(s), REUSE_VOCAB * sizeof(float));
        uint32_t token = 40 + 7 * i;
        assert_ok(lam_session_step(&s, &token, 1, &err), err);
    }
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
}

/* The future of a new session of c that was fed tokens[n] at once; `generated` more came one by one. */
static inline void reuse_fresh(lam_composition *c, const uint32_t *tokens, size_t n, size_t generated, char out[LAM_DIGEST_TEXT])
{
    lam_error err;
    lam_session *s = fixture_session(c, n + generated + 8);
    reuse_feed(s, tokens, n);
    for (size_t i = 0; i < generated; i++) assert_ok(lam_session_step(&s, &tokens[n + i], 1, &err), err);
    reuse_future(s, out);
    lam_session_free(s);
}

#define assert_future(session, c, tokens, n) \
    do {                                                                  \
        char got_[LAM_DIGEST_TEXT], want_[LAM_DIGEST_TEXT];               \
        reuse_future(session, got_);                                      \
        reuse_fresh(c, tokens, n, 0, want_);                              \
        assert_string_equal(got_, want_);                                 \
    } while (0)

#endif
