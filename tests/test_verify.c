/* When the base's bytes are hashed: lazily, at the opening, never. A base of several pieces is damaged in one byte of each kind of place;
 * lazily verified it ends a session before a token that depends on the byte, and no other. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE

#include "fixture.h"

#include "base/pool.h"
#include "format/merkle.h"
#include "format/slm.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS 50000u /* of 256 bytes: the embedding covers three pieces and a part of the next */
#define N_TOKENS 3

/* llama-gqa with more rows in embedding and head, which repeat. */
static char *folder, wide_path[512], wide_digest[2][LAM_DIGEST_TEXT];

/* Rows in the embedding's second and third piece. */
static const uint32_t in_second[N_TOKENS] = {20000, 20001, 30000}, in_third[N_TOKENS] = {35000, 40000, 45001};

static bool is_wide(const struct lam_slm *s, const struct lam_slm_entry *e) { return e->dims[1] == 288 && s->n_pieces == 1; }

struct copying {
    const struct lam_slm *source;
    const struct lam_slm_entry **order; /* in execution order */
};

static lam_code repeat(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    const struct copying *c = context;
    const uint8_t *from = lam_slm_tensor_data(c->source, c->order[index]);
    (void)err;
    for (size_t i = 0; i < bytes; i++) buffer[i] = from[(offset + i) % c->order[index]->bytes];
    return LAM_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct lam_slm_entry *l = *(const struct lam_slm_entry *const *)a, *r = *(const struct lam_slm_entry *const *)b;
    return l->offset < r->offset ? -1 : l->offset > r->offset;
}

static void write_wide(const struct lam_slm *s, const char *path)
{
    lam_error err;
    struct lam_slm_out *out;
    struct copying c = {.source = s, .order = calloc(s->n_entries, sizeof *c.order)};
    json_t *metadata = json_deep_copy(s->metadata);
    assert_non_null(c.order);
    assert_int_equal(json_object_set_new(json_object_get(metadata, "config"), "vocabulary", json_integer(ROWS)), 0);
    for (size_t i = 0; i < s->n_entries; i++) c.order[i] = &s->entries[i];
    qsort(c.order, s->n_entries, sizeof *c.order, by_offset);
    assert_ok(lam_slm_out_new(LAM_SLM_BASE, s->flags, &out, &err), err);
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct lam_slm_entry *e = c.order[i];
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)e->name_len, s->names + e->name_offset);
        struct lam_slm_decl decl = {.name = name, .dtype = e->dtype, .n_dims = e->n_dims, .layout = e->layout, .layer = e->layer,
                                    .role = e->role, .dims = {e->dims[0], is_wide(s, e) ? ROWS : e->dims[1], e->dims[2], e->dims[3]}};
        assert_ok(lam_slm_out_tensor(out, &decl, &err), err);
    }
    lam_slm_out_metadata(out, metadata);
    lam_slm_out_vocab(out, s->vocab, s->vocab_bytes);
    assert_ok(lam_slm_out_write(out, path, repeat, &c, NULL, &err), err);
    lam_slm_out_free(out);
    json_decref(metadata);
    free(c.order);
}

static lam_engine *new_engine(void)
{
    lam_error err;
    lam_engine *engine;
    assert_ok(lam_engine_new(&(lam_engine_options){.threads = 2}, &engine, &err), err);
    return engine;
}

static lam_session *new_session(lam_base *base)
{
    lam_error err;
    lam_composition *c;
    lam_session *s;
    assert_ok(lam_compose(base, NULL, NULL, 0, NULL, &c, &err), err);
    assert_ok(lam_session_new(c, 16, &s, &err), err);
    lam_composition_free(c);
    return s;
}

static lam_code feed_digest(lam_session *s, const uint32_t *tokens, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256_init(&hash);
    lam_code code = lam_session_feed(s, tokens, N_TOKENS, fixture_hash, &hash, err);
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    return code;
}

static int set_up(void **state)
{
    (void)state;
    lam_error err;
    struct lam_slm *s;
    char small[600];
    lam_base *base;
    folder = test_make_folder();
    snprintf(small, sizeof small, "%s/small.slm", folder);
    snprintf(wide_path, sizeof wide_path, "%s/wide.slm", folder);
    assert_ok(lam_import_base("tests/golden/llama-gqa/llama-gqa-f32.gguf", small, NULL, &err), err);
    assert_ok(lam_slm_open(small, &s, &err), err);
    write_wide(s, wide_path);
    lam_slm_close(s);
    lam_engine *engine = new_engine();
    assert_ok(lam_base_open(engine, wide_path, LAM_VERIFY_FULL, &base, &err), err);
    for (int i = 0; i < 2; i++) {
        lam_session *session = new_session(base);
        assert_ok(feed_digest(session, i ? in_third : in_second, wide_digest[i], &err), err);
        lam_session_free(session);
    }
    assert_string_not_equal(wide_digest[0], wide_digest[1]);
    lam_base_free(base);
    lam_engine_free(engine);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_folder(folder);
    return 0;
}

/* Flips a bit of the byte at `offset` of the tensor's data (from its end if negative); *piece is where it lies. The file's time is
 * put back, so that only a hash can tell. */
static void flip(const char *path, const char *tensor, int64_t offset, size_t *piece)
{
    lam_error err;
    struct lam_slm *s;
    struct stat st;
    uint8_t byte;
    assert_ok(lam_slm_open(path, &s, &err), err);
    const struct lam_slm_entry *e = lam_slm_find(s, tensor);
    assert_non_null(e);
    uint64_t at = offset < 0 ? e->offset + e->bytes - (uint64_t)-offset : e->offset + (uint64_t)offset;
    off_t in_file = (off_t)((uint64_t)(s->data - s->file.data) + at);
    lam_slm_close(s);
    if (piece) *piece = (size_t)(at / LAM_PIECE_BYTES);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &byte, 1, in_file), 1);
    byte ^= 0x04;
    assert_int_equal(pwrite(fd, &byte, 1, in_file), 1);
    assert_int_equal(futimens(fd, (const struct timespec[]){st.st_atim, st.st_mtim}), 0);
    close(fd);
}

/* The message names the piece, its bytes and both hashes. */
static void check_message(const lam_error *err, size_t piece)
{
    char text[64];
    snprintf(text, sizeof text, "piece %zu of ", piece);
    assert_non_null(strstr(err->message, text));
    snprintf(text, sizeof text, "(data bytes %zu to ", piece * LAM_PIECE_BYTES);
    assert_non_null(strstr(err->message, text));
    const char *first = strstr(err->message, "sha256:");
    assert_non_null(first);
    const char *second = strstr(first + 7, "sha256:");
    assert_non_null(second);
    assert_int_equal(strspn(second + 7, "0123456789abcdef"), 64);
    assert_memory_not_equal(first, second, LAM_DIGEST_TEXT - 1);
}

/* A call that fails, fails again, and so do steps; nothing is given out and nothing has advanced. */
static void check_ended(lam_session *s, const uint32_t *tokens, size_t piece)
{
    lam_error err;
    char got[LAM_DIGEST_TEXT];
    struct lam_sha256 none;
    uint8_t digest[LAM_SHA256_BYTES];
    char nothing[LAM_DIGEST_TEXT];
    lam_sha256_init(&none);
    lam_sha256_final(&none, digest);
    lam_digest_text(digest, nothing);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(feed_digest(s, tokens, got, &err), LAM_E_DIGEST);
        check_message(&err, piece);
        assert_string_equal(got, nothing);
        assert_int_equal(lam_session_length(s), 0);
        assert_null(lam_session_logits(s));
        assert_int_equal(lam_session_step(&s, tokens, 1, &err), LAM_E_DIGEST);
        check_message(&err, piece);
    }
}

struct damage {
    const char *tensor;
    int64_t offset;
    bool ends[2]; /* the session of in_second, of in_third */
};
static const struct damage damages[] = {
    {"token_embd.weight", 20000 * 256 + 5, {true, false}},
    {"token_embd.weight", 40000 * 256 + 77, {false, true}},
    {"token_embd.weight", 0, {false, false}},           /* in the first piece, which no token of ours lies in */
    {"token_embd.weight", -1, {true, true}},            /* shares its piece with the first layer */
    {"blk.0.attn_norm.weight", 3, {true, true}},
    {"blk.1.ffn_down.weight", 100, {true, true}},
    {"output_norm.weight", 8, {true, true}},
    {"output.weight", 30000 * 256, {true, true}},
    {"output.weight", -1, {true, true}},
};

static void check_damage(const struct damage *d)
{
    lam_error err;
    lam_base *base;
    lam_engine *engine = new_engine();
    char got[LAM_DIGEST_TEXT];
    size_t piece;
    flip(wide_path, d->tensor, d->offset, &piece);
    for (int order = 0; order < 2; order++) { /* whichever session comes first */
        assert_ok(lam_base_open(engine, wide_path, LAM_VERIFY_LAZY, &base, &err), err);
        for (int k = 0; k < 2; k++) {
            int i = k ^ order;
            lam_session *s = new_session(base);
            const uint32_t *tokens = i ? in_third : in_second;
            if (d->ends[i]) {
                check_ended(s, tokens, piece);
            } else {
                assert_ok(feed_digest(s, tokens, got, &err), err);
                assert_string_equal(got, wide_digest[i]);
            }
            lam_session_free(s);
        }
        assert_int_equal(lam_base_verify(base, NULL, &err), LAM_E_DIGEST);
        check_message(&err, piece);
        lam_base_free(base);
    }
    assert_int_equal(lam_base_open(engine, wide_path, LAM_VERIFY_FULL, &base, &err), LAM_E_DIGEST);
    check_message(&err, piece);
    assert_null(base);
    assert_ok(lam_base_open(engine, wide_path, LAM_VERIFY_OFF, &base, &err), err);
    lam_session *s = new_session(base);
    assert_ok(feed_digest(s, in_second, got, &err), err);
    lam_session_free(s);
    lam_base_free(base);
    flip(wide_path, d->tensor, d->offset, NULL);
    lam_engine_free(engine);
}

static void test_damages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) check_damage(&damages[i]);
}

/* A session that runs ends at the first token that depends on a damaged byte, with what it has intact. */
static void test_damage_met_later(void **state)
{
    (void)state;
    lam_error err;
    lam_base *base;
    lam_engine *engine = new_engine();
    size_t piece;
    char got[LAM_DIGEST_TEXT];
    flip(wide_path, "token_embd.weight", 40000 * 256, &piece);
    assert_ok(lam_base_open(engine, wide_path, LAM_VERIFY_LAZY, &base, &err), err);
    lam_session *s = new_session(base);
    assert_ok(feed_digest(s, in_second, got, &err), err);
    assert_int_equal(lam_session_step(&s, &in_third[1], 1, &err), LAM_E_DIGEST);
    check_message(&err, piece);
    assert_int_equal(lam_session_length(s), N_TOKENS);
    assert_non_null(lam_session_logits(s));
    assert_ok(lam_session_step(&s, &in_second[0], 1, &err), err);
    lam_session_free(s);
    lam_base_free(base);
    lam_engine_free(engine);
    flip(wide_path, "token_embd.weight", 40000 * 256, NULL);
}

/* Norms are decoded when the base is opened. What was wrong then and is right when it is hashed must not remain in what was decoded. */
static void test_decoded_before_hashed(void **state)
{
    (void)state;
    static const char *const tensors[] = {"blk.0.attn_norm.weight", "output_norm.weight"};
    lam_error err;
    lam_base *base;
    lam_engine *engine = new_engine();
    char got[LAM_DIGEST_TEXT];
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        flip(wide_path, tensors[i], 3, NULL); /* a high byte */
        assert_ok(lam_base_open(engine, wide_path, LAM_VERIFY_LAZY, &base, &err), err);
        flip(wide_path, tensors[i], 3, NULL);
        lam_session *s = new_session(base);
        assert_ok(feed_digest(s, in_second, got, &err), err);
        assert_string_equal(got, wide_digest[0]);
        lam_session_free(s);
        lam_base_free(base);
    }
    lam_engine_free(engine);
}

/* What a verification on demand finds ends lazy sessions, too, until the bytes are right again. */
static void test_verified_again(void **state)
{
    (void)state;
    lam_error err;
    lam_base *base;
    lam_engine *engine = new_engine();
    char got[LAM_DIGEST_TEXT], root[LAM_DIGEST_TEXT];
    assert_ok(lam_base_open(engine, wide_path, LAM_VERIFY_LAZY, &base, &err), err);
    assert_ok(lam_base_verify(base, root, &err), err);
    lam_session *s = new_session(base);
    assert_ok(feed_digest(s, in_second, got, &err), err);
    flip(wide_path, "blk.0.attn_q.weight", 9, NULL);
    assert_int_equal(lam_base_verify(base, NULL, &err), LAM_E_DIGEST);
    assert_int_equal(lam_session_step(&s, in_second, 1, &err), LAM_E_DIGEST);
    flip(wide_path, "blk.0.attn_q.weight", 9, NULL);
    assert_ok(lam_session_step(&s, in_second, 1, &err), err);
    lam_session_free(s);
    lam_base_free(base);
    lam_engine_free(engine);
}

/* A bias that an adapter replaces is blended with the base's when it is composed: before any forward pass. */
static void test_blended_bias(void **state)
{
    (void)state;
    struct fixture f;
    lam_error err;
    lam_base *base;
    lam_adapter *adapter;
    lam_composition *c;
    fixture_import(&f, "tests/golden/llama-bias/llama-bias-legacymix.gguf",
                   (const char *const[]){"tests/golden/adapters/llama-bias/bias-lora-only"}, 1);
    f.engine = new_engine();
    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged) flip(f.base_path, "output.weight", 0, NULL);
        assert_ok(lam_base_open(f.engine, f.base_path, LAM_VERIFY_LAZY, &base, &err), err);
        assert_ok(lam_adapter_load(base, f.adapter_paths[0], false, &adapter, &err), err);
        assert_int_equal(lam_compose(base, &adapter, (double[]){0.5}, 1, NULL, &c, &err), damaged ? LAM_E_DIGEST : LAM_OK);
        lam_composition_free(c);
        lam_adapter_unload(adapter);
        lam_base_free(base);
    }
    fixture_close(&f);
    fixture_remove(&f);
}

/* ---- several sessions on one base that nobody has looked at ---- */

#define THREADS 4

struct worker {
    lam_base *base;
    unsigned index;
    const char *failure; /* NULL if none */
};

static void *work(void *argument)
{
    struct worker *w = argument;
    lam_composition *c = NULL;
    lam_session *s = NULL;
    char got[LAM_DIGEST_TEXT];
    bool third = w->index % 2;
    if (lam_compose(w->base, NULL, NULL, 0, NULL, &c, NULL) != LAM_OK) w->failure = "compose";
    else if (lam_session_new(c, 16, &s, NULL) != LAM_OK) w->failure = "session";
    else if (feed_digest(s, third ? in_third : in_second, got, NULL) != LAM_OK) w->failure = "feed";
    else if (strcmp(got, wide_digest[third]) != 0) w->failure = "digest";
    else if (w->index == 0 && lam_base_verify(w->base, NULL, NULL) != LAM_OK) w->failure = "verify";
    lam_session_free(s);
    lam_composition_free(c);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    lam_error err;
    lam_base *base;
    lam_engine *engine = new_engine();
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    assert_ok(lam_base_open(engine, wide_path, LAM_VERIFY_LAZY, &base, &err), err);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.base = base, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        if (workers[i].failure) fail_msg("thread %u: %s", i, workers[i].failure);
    lam_base_free(base);
    lam_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damages), cmocka_unit_test(test_damage_met_later), cmocka_unit_test(test_decoded_before_hashed),
        cmocka_unit_test(test_verified_again), cmocka_unit_test(test_blended_bias), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
