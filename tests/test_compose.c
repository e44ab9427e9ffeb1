/* Compositions through the public API: what is refused and with which code, that a refusal changes nothing, what happens when the
 * base's file changes under the mapping, and handles closed in any order. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE

#include "fixture.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define GQA "tests/golden/llama-gqa/llama-gqa-"
#define ADAPTER "tests/golden/adapters/llama-gqa/"
static const char *const adapters[] = {ADAPTER "all-r4", "twin"};

static void assert_refused(lam_base *base, lam_adapter *const *list, const double *weights, size_t n, lam_code code, const char *word)
{
    lam_composition *c = (void *)&c; /* to be overwritten */
    lam_error err;
    assert_int_equal(lam_compose(base, list, weights, n, NULL, &c, &err), code);
    assert_null(c);
    assert_int_equal(err.code, code);
    if (!strstr(err.message, word)) fail_msg("\"%s\" does not say %s", err.message, word);
    assert_int_equal(lam_compose(base, list, weights, n, NULL, &c, NULL), code); /* err is optional */
}

static void test_refusals(void **state)
{
    (void)state;
    struct fixture f, other;
    uint32_t tokens[20];
    char before[LAM_DIGEST_TEXT], after[LAM_DIGEST_TEXT];
    fixture_import(&f, GQA "q4_0.gguf", adapters, 2);
    fixture_import(&other, GQA "q8_0.gguf", adapters, 1);
    fixture_open(&f, NULL);
    fixture_open(&other, NULL);
    fixture_tokens(1, fixture_vocab(&f), tokens, 20);
    lam_composition *live = fixture_compose(&f, (double[]){1.0, 0.5}, 2);
    fixture_digest(live, tokens, 20, before);

    lam_adapter *foreign[] = {f.adapters[0], other.adapters[0]}, *twice[] = {f.adapters[0], f.adapters[1], f.adapters[0]};
    assert_refused(f.base, foreign, (double[]){1, 1}, 2, LAM_E_WRONG_BASE, "another base");
    assert_refused(f.base, twice, (double[]){1, 1, 1}, 3, LAM_E_DUPLICATE, "twice");
    assert_refused(f.base, twice, (double[]){0, 1, 0}, 3, LAM_E_DUPLICATE, "twice");
    assert_refused(f.base, f.adapters, (double[]){1, NAN}, 2, LAM_E_ARGUMENT, "not finite");
    assert_refused(f.base, f.adapters, (double[]){INFINITY, 1}, 2, LAM_E_ARGUMENT, "not finite");
    assert_refused(f.base, f.adapters, (double[]){1, -INFINITY}, 2, LAM_E_ARGUMENT, "not finite");
    assert_refused(f.base, f.adapters, (double[]){1e300, 1}, 2, LAM_E_ARGUMENT, "1e+300");

    fixture_digest(live, tokens, 20, after);
    assert_string_equal(after, before);
    lam_composition_free(live);
    lam_composition_free(NULL);
    lam_adapter_unload(NULL);
    lam_base_free(NULL);
    lam_engine_free(NULL);
    fixture_close(&f);
    fixture_close(&other);
    fixture_remove(&f);
    fixture_remove(&other);
}

static void test_bias_conflict(void **state)
{
    (void)state;
    static const char *const biased[] = {"tests/golden/adapters/llama-bias/bias-all", "twin"};
    struct fixture f;
    lam_error err;
    lam_composition *c;
    fixture_import(&f, "tests/golden/llama-bias", biased, 2);
    fixture_open(&f, NULL);
    assert_refused(f.base, f.adapters, (double[]){1, 1}, 2, LAM_E_CONFLICT, "bias");
    assert_ok(lam_compose(f.base, f.adapters, (double[]){1, 0}, 2, NULL, &c, &err), err); /* weight 0 replaces nothing */
    lam_composition_free(c);
    fixture_close(&f);
    fixture_remove(&f);
}

static void test_empty_composition_is_the_base(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t tokens[20];
    char base[LAM_DIGEST_TEXT], zero[LAM_DIGEST_TEXT], one[LAM_DIGEST_TEXT];
    fixture_import(&f, GQA "q4_0.gguf", adapters, 2);
    fixture_open(&f, NULL);
    fixture_tokens(1, fixture_vocab(&f), tokens, 20);
    lam_composition *c[] = {fixture_compose(&f, NULL, 0), fixture_compose(&f, (double[]){0.0, -0.0}, 2),
                            fixture_compose(&f, (double[]){0.0, 1.0}, 2)};
    fixture_digest(c[0], tokens, 20, base);
    fixture_digest(c[1], tokens, 20, zero);
    fixture_digest(c[2], tokens, 20, one);
    assert_string_equal(zero, base);
    assert_string_not_equal(one, base);
    for (size_t i = 0; i < 3; i++) lam_composition_free(c[i]);
    fixture_close(&f);
    fixture_remove(&f);
}

/* ---- adapters ---- */

/* A damaged or unfitting artefact loads nothing, and says why. */
static void test_adapter_load(void **state)
{
    (void)state;
    struct fixture f, bias;
    lam_adapter *a;
    lam_error err;
    static const char *const biased[] = {"tests/golden/adapters/llama-bias/all-r4"};
    fixture_import(&f, GQA "q4_0.gguf", adapters, 2);
    fixture_import(&bias, "tests/golden/llama-bias", biased, 1);
    fixture_open(&f, NULL);
    const struct { const char *path; bool waive; lam_code code; } cases[] = {
        {"/nonexistent/adapter.slm", false, LAM_E_NOT_FOUND},
        {GQA "q4_0.gguf", false, LAM_E_MAGIC},
        {bias.adapter_paths[0], false, LAM_E_WRONG_BASE},
        {bias.adapter_paths[0], true, LAM_E_SHAPE}, /* a waiver is no licence for what does not fit */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        a = (void *)&a;
        assert_int_equal(lam_adapter_load(f.base, cases[i].path, cases[i].waive, &a, &err), cases[i].code);
        assert_null(a);
    }
    assert_int_not_equal(lam_adapter_load(f.base, f.base_path, false, &a, &err), LAM_OK); /* a base is no adapter */
    assert_null(a);
    size_t size;
    uint8_t *bytes = test_read_file(f.adapter_paths[0], &size);
    bytes[size - 100] ^= 4;
    fixture_write(f.adapter_paths[0], bytes, size);
    assert_int_equal(lam_adapter_load(f.base, f.adapter_paths[0], false, &a, &err), LAM_E_DIGEST);
    assert_null(a);
    free(bytes);
    fixture_close(&f);
    fixture_remove(&f);
    fixture_remove(&bias);
}

static void test_non_finite_factor(void **state)
{
    (void)state;
    struct fixture f;
    char twin[512], path[600], out[600];
    size_t size;
    lam_error err;
    static const uint32_t values[] = {0x7fc00000, 0x7f800000, 0xff800000};
    fixture_import(&f, GQA "q4_0.gguf", adapters, 1);
    fixture_twin(f.folder, ADAPTER "all-r4", twin);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", twin);
    snprintf(out, sizeof out, "%s/bad.slm", f.folder);
    for (size_t i = 0; i < 3; i++) {
        uint8_t *bytes = test_read_file(path, &size);
        memcpy(bytes + size - 4 * (i + 1), &values[i], 4);
        fixture_write(path, bytes, size);
        free(bytes);
        assert_int_equal(lam_import_adapter(twin, f.base_path, out, NULL, NULL, &err), LAM_E_NON_FINITE);
        assert_int_not_equal(access(out, F_OK), 0);
    }
    fixture_remove(&f);
}

/* ---- the base's file changes while it is mapped ---- */

enum change { TRUNCATED, EMPTIED, GROWN, REPLACED, WRITTEN, REMOVED, N_CHANGES };

static void change_file(const char *path, enum change kind)
{
    size_t size;
    uint8_t *bytes = test_read_file(path, &size);
    char other[600];
    usleep(20000); /* the clock of file times is coarse */
    switch (kind) {
    case TRUNCATED: assert_int_equal(truncate(path, (off_t)(size / 2)), 0); break;
    case EMPTIED: assert_int_equal(truncate(path, 0), 0); break;
    case GROWN: assert_int_equal(truncate(path, (off_t)(size + 1)), 0); break;
    case REPLACED:
        snprintf(other, sizeof other, "%s.new", path);
        fixture_write(other, bytes, size);
        assert_int_equal(rename(other, path), 0);
        break;
    case WRITTEN: {
        int fd = open(path, O_WRONLY);
        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, bytes + size - 1, 1, (off_t)size - 1), 1);
        close(fd);
        break;
    }
    case REMOVED: assert_int_equal(unlink(path), 0); break;
    case N_CHANGES: break;
    }
    free(bytes);
}

static void check_change(enum change kind)
{
    struct fixture f;
    lam_error err;
    lam_base_info info;
    uint32_t tokens[] = {3, 4, 5}, token;
    uint32_t *list;
    char root[LAM_DIGEST_TEXT], *text;
    size_t n;
    fixture_import(&f, GQA "q4_0.gguf", adapters, 2);
    fixture_open(&f, &(lam_engine_options){.threads = 2});
    lam_composition *c = fixture_compose(&f, (double[]){1, 1}, 2);
    lam_session *s[2] = {fixture_session(c, 100), fixture_session(c, 100)};
    assert_ok(lam_session_feed(s[0], tokens, 3, NULL, NULL, &err), err);
    size_t n_vocab = fixture_vocab(&f);
    float *logits = malloc(n_vocab * sizeof *logits);
    assert_non_null(logits);
    memcpy(logits, lam_session_logits(s[0]), n_vocab * sizeof *logits);

    change_file(f.base_path, kind);
    assert_refused(f.base, f.adapters, (double[]){1, 1}, 2, LAM_E_CHANGED, "base.slm");
    assert_int_equal(lam_session_feed(s[0], tokens, 3, NULL, NULL, &err), LAM_E_CHANGED);
    assert_int_equal(lam_session_step(s, tokens, 2, &err), LAM_E_CHANGED);
    lam_sampling sampling;
    lam_sampling_default(&sampling);
    assert_int_equal(lam_generate(s[0], &sampling, 3, NULL, NULL, &n, &err), LAM_E_CHANGED);
    assert_int_equal(n, 0);
    assert_int_equal(lam_base_verify(f.base, root, &err), LAM_E_CHANGED);
    assert_int_equal(lam_tokenize(f.base, "text", 4, 0, &list, &n, &err), LAM_E_CHANGED);
    assert_null(list);
    assert_int_equal(lam_detokenize_text(f.base, tokens, 3, false, &text, &err), LAM_E_CHANGED);
    assert_null(text);

    /* what needs no byte of the file goes on */
    assert_int_equal(lam_session_length(s[0]), 3);
    assert_memory_equal(lam_session_logits(s[0]), logits, n_vocab * sizeof *logits);
    assert_ok(lam_session_sample(s[0], &sampling, &token, &err), err);
    assert_ok(lam_session_truncate(s[0], 1, &err), err);
    lam_base_describe(f.base, &info);
    assert_non_null(info.name);
    free(logits);
    lam_session_free(s[0]);
    lam_session_free(s[1]);
    lam_composition_free(c);
    fixture_close(&f);
    fixture_remove(&f);
}

static void test_file_changes(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_CHANGES; kind++) check_change((enum change)kind);
}

/* A bit of the weights flipped in place, the file's times put back: only a verification can tell, and it does. */
static void test_flipped_bit(void **state)
{
    (void)state;
    struct fixture f;
    struct stat st;
    lam_error err;
    lam_base *base;
    char root[LAM_DIGEST_TEXT], again[LAM_DIGEST_TEXT];
    fixture_import(&f, GQA "q4_0.gguf", adapters, 0);
    fixture_open(&f, &(lam_engine_options){.threads = 2});
    assert_ok(lam_base_verify(f.base, root, &err), err);
    int fd = open(f.base_path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    const off_t places[] = {st.st_size - 1, st.st_size - 20000};
    for (size_t i = 0; i < 2; i++) {
        for (int flip = 0; flip < 2; flip++) {
            uint8_t byte;
            assert_int_equal(pread(fd, &byte, 1, places[i]), 1);
            byte ^= 0x10;
            assert_int_equal(pwrite(fd, &byte, 1, places[i]), 1);
            assert_int_equal(futimens(fd, (const struct timespec[]){st.st_atim, st.st_mtim}), 0);
            if (flip == 0) {
                assert_int_equal(lam_base_verify(f.base, again, &err), LAM_E_DIGEST);
                assert_int_equal(lam_base_open(f.engine, f.base_path, LAM_VERIFY_FULL, &base, &err), LAM_E_DIGEST);
                assert_null(base);
                assert_ok(lam_base_open(f.engine, f.base_path, LAM_VERIFY_OFF, &base, &err), err);
                lam_base_free(base);
            } else {
                assert_ok(lam_base_verify(f.base, again, &err), err);
                assert_string_equal(again, root);
            }
        }
    }
    close(fd);
    fixture_close(&f);
    fixture_remove(&f);
}

/* ---- lifetimes ---- */

enum handle { ENGINE, BASE, FIRST_ADAPTER, SECOND_ADAPTER, COMPOSITION, SESSION, N_HANDLES };

/* Every handle closed in a random order; the session works until it is closed itself. */
static void test_any_order_of_closing(void **state)
{
    (void)state;
    struct fixture f;
    lam_error err;
    uint64_t random = 3;
    uint32_t tokens[N_HANDLES * 2];
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    char want[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    fixture_import(&f, GQA "q4_0.gguf", adapters, 2);
    for (int round = 0; round < 60; round++) {
        fixture_open(&f, &(lam_engine_options){.threads = 1 + (unsigned)round % 2});
        lam_composition *c = fixture_compose(&f, (double[]){1, 0.5}, 2);
        lam_session *s = fixture_session(c, 64);
        fixture_tokens(1, fixture_vocab(&f), tokens, N_HANDLES * 2);
        int order[N_HANDLES];
        size_t fed = 0;
        lam_sha256_init(&hash);
        for (int i = 0; i < N_HANDLES; i++) {
            int j = (int)(test_random(&random) % (uint64_t)(i + 1));
            order[i] = order[j];
            order[j] = i;
        }
        if (round == 0) fixture_digest(c, tokens, N_HANDLES, want);
        for (int i = 0; i < N_HANDLES; i++) {
            if (s) assert_ok(lam_session_feed(s, &tokens[fed++], 1, fixture_hash, &hash, &err), err);
            switch ((enum handle)order[i]) {
            case ENGINE: lam_engine_free(f.engine); break;
            case BASE: lam_base_free(f.base); break;
            case FIRST_ADAPTER: lam_adapter_unload(f.adapters[0]); break;
            case SECOND_ADAPTER: lam_adapter_unload(f.adapters[1]); break;
            case COMPOSITION: lam_composition_free(c); break;
            case SESSION:
                if (fed == N_HANDLES) { /* it was the last to go */
                    lam_sha256_final(&hash, digest);
                    lam_digest_text(digest, got);
                    assert_string_equal(got, want);
                }
                lam_session_free(s);
                s = NULL;
                break;
            case N_HANDLES: break;
            }
        }
    }
    fixture_remove(&f);
}

/* The KV format is the caller's choice: part of the id, of every position's bytes and of the logits; the default is one of them. */
static void test_kv_choice(void **state)
{
    (void)state;
    static const struct { lam_kv kv; const char *name; } all[] = {
        {LAM_KV_DEFAULT, "f16"}, {LAM_KV_FLOAT16, "f16"}, {LAM_KV_FLOAT32, "f32"}, {LAM_KV_INT8, "i8"}};
    struct fixture f;
    lam_error err;
    lam_base_info info;
    uint32_t tokens[40];
    char ids[4][LAM_DIGEST_TEXT], logits[4][LAM_DIGEST_TEXT];
    fixture_import(&f, GQA "q4_0.gguf", adapters, 0);
    fixture_open(&f, NULL);
    lam_base_describe(f.base, &info);
    fixture_tokens(1, info.n_vocab, tokens, 40);
    size_t heads = (size_t)info.n_layers * info.n_kv_heads, d = info.head_dim;
    const size_t bytes[] = {4 * heads * d, 4 * heads * d, 8 * heads * d, heads * ((d + 3) / 4 * 4 + (d + 31) / 32 * 4 + d + 4)};
    for (size_t i = 0; i < 4; i++) {
        lam_composition *c;
        assert_ok(lam_compose(f.base, NULL, NULL, 0, &(lam_compose_options){.kv = all[i].kv}, &c, &err), err);
        assert_string_equal(lam_composition_kv_format(c), all[i].name);
        assert_int_equal(lam_composition_kv_bytes(c), bytes[i]);
        char member[32];
        snprintf(member, sizeof member, "\"kv_format\":\"%s\"", all[i].name);
        assert_non_null(strstr(lam_composition_json(c), member));
        strcpy(ids[i], lam_composition_id(c));
        fixture_digest(c, tokens, 40, logits[i]);
        lam_composition_free(c);
        for (size_t j = 0; j < i; j++) {
            bool same = strcmp(all[i].name, all[j].name) == 0;
            assert_int_equal(strcmp(ids[i], ids[j]) == 0, same);
            assert_int_equal(strcmp(logits[i], logits[j]) == 0, same);
        }
    }
    lam_composition *c = (void *)&c;
    assert_int_equal(lam_compose(f.base, NULL, NULL, 0, &(lam_compose_options){.kv = (lam_kv)4}, &c, &err), LAM_E_ARGUMENT);
    assert_null(c);
    fixture_close(&f);
    fixture_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_bias_conflict), cmocka_unit_test(test_empty_composition_is_the_base),
        cmocka_unit_test(test_adapter_load), cmocka_unit_test(test_non_finite_factor), cmocka_unit_test(test_file_changes),
        cmocka_unit_test(test_flipped_bit),  cmocka_unit_test(test_any_order_of_closing),
        cmocka_unit_test(test_kv_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
