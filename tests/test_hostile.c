/* Files made to harm: sealed .slm files with hostile content, folders of things that are no files, writers that die, and memory that
 * ends at every possible moment. What is refused, and as what, follows from include/lamina/error.h and docs/format.md. */
#define _POSIX_C_SOURCE 200809L

#include "adapter_case.h"
#include "no_memory.h"

#include "base/alloc.h"
#include "base/files.h"
#include "base/json.h"
#include "base/os.h"
#include "base/utf8.h"
#include "format/slm.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define STORIES "data/stories260K-Q8_0.gguf"
#define OZ "data/adapters/oz"
#define GEMMA "tests/golden/gemma3-swa/"

/* ---- memory that ends ---- */

static lam_code import_base(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/made.slm", f->folder);
    unlink(path);
    lam_code code = lam_import_base(STORIES, path, NULL, err);
    memory.on = false;
    assert_int_equal(access(path, F_OK) == 0, code == LAM_OK); /* all or nothing */
    if (code == LAM_OK) assert_ok(lam_verify_file(path, NULL, out, err), *err);
    return code;
}

static lam_code import_adapter(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    char path[1024];
    lam_adapter_report report;
    snprintf(path, sizeof path, "%s/made.slm", f->folder);
    unlink(path);
    lam_code code = lam_import_adapter(OZ, f->base_path, path, NULL, &report, err);
    memory.on = false;
    assert_int_equal(access(path, F_OK) == 0, code == LAM_OK);
    if (code == LAM_OK) assert_ok(lam_verify_file(path, NULL, out, err), *err);
    return code;
}

static lam_code import_folder(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/made.slm", f->folder);
    unlink(path);
    lam_code code = lam_import_base("tests/golden/gemma3-swa", path, NULL, err);
    memory.on = false;
    assert_int_equal(access(path, F_OK) == 0, code == LAM_OK);
    if (code == LAM_OK) assert_ok(lam_verify_file(path, NULL, out, err), *err);
    return code;
}

static lam_code inspect(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    char *json;
    lam_code code = lam_inspect(f->base_path, true, &json, err);
    if (code != LAM_OK) return code;
    lam_digest_bytes(json, strlen(json), out);
    lam_memory_free(json);
    return LAM_OK;
}

static bool hash_text(void *context, const char *text, uint32_t token)
{
    (void)token;
    lam_sha256_update(context, text, strlen(text));
    return true;
}

static lam_code use_session(lam_base *base, lam_composition *c, struct lam_sha256 *hash, lam_error *err)
{
    lam_session *s;
    uint32_t *tokens;
    size_t n;
    LAM_TRY(lam_session_new(c, 64, &s, err));
    lam_code code = lam_tokenize(base, "Once upon a time", 16, LAM_TOKENIZE_SPECIAL, &tokens, &n, err);
    if (code == LAM_OK) code = lam_session_feed(s, tokens, n, fixture_hash, hash, err);
    lam_sampling sampling;
    lam_sampling_default(&sampling);
    if (code == LAM_OK) code = lam_generate(s, &sampling, 4, hash_text, hash, NULL, err);
    lam_memory_free(tokens);
    lam_session_free(s);
    return code;
}

/* Engine, base, adapter, composition, session: opened and closed again whatever fails. */
static lam_code run_all(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    const lam_engine_options options = {.threads = 1};
    lam_engine *engine;
    lam_base *base = NULL;
    lam_adapter *adapter = NULL;
    lam_composition *c = NULL;
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    const double weight = 0.5;
    lam_sha256_init(&hash);
    LAM_TRY(lam_engine_new(&options, &engine, err));
    lam_code code = lam_base_open(engine, f->base_path, LAM_VERIFY_OFF, &base, err);
    if (code == LAM_OK) code = lam_adapter_load(base, f->adapter_paths[0], false, &adapter, err);
    if (code == LAM_OK) code = lam_compose(base, &adapter, &weight, 1, NULL, &c, err);
    if (code == LAM_OK) lam_sha256_update(&hash, lam_composition_id(c), LAM_DIGEST_TEXT - 1);
    if (code == LAM_OK) code = use_session(base, c, &hash, err);
    lam_composition_free(c);
    lam_adapter_unload(adapter);
    lam_base_free(base);
    lam_engine_free(engine);
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    return code;
}

static void test_memory(void **state)
{
    static const struct stage stages[] = {{"import of a GGUF", import_base}, {"import of a folder", import_folder},
                                          {"import of an adapter", import_adapter}, {"inspect", inspect}, {"a run", run_all}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) fail_each(&stages[i], *state);
}

/* ---- sealed .slm files with other metadata ---- */

struct rewrite {
    const struct lam_slm *from;
    const struct lam_slm_entry **order; /* of the data */
    int layer_off;                      /* added to the layer of the first tensor */
    uint32_t flags;
    json_t *metadata;                   /* owned */
};

static lam_code copy_bytes(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    const struct rewrite *r = context;
    (void)err;
    memcpy(buffer, lam_slm_tensor_data(r->from, r->order[index]) + offset, bytes);
    return LAM_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct lam_slm_entry *l = *(const struct lam_slm_entry *const *)a, *r = *(const struct lam_slm_entry *const *)b;
    return (l->offset > r->offset) - (l->offset < r->offset);
}

static struct rewrite rewrite_begin(const char *path, struct lam_slm **from)
{
    lam_error err;
    assert_ok(lam_slm_open(path, from, &err), err);
    struct rewrite r = {.from = *from, .flags = (*from)->flags, .metadata = json_deep_copy((*from)->metadata)};
    r.order = calloc((*from)->n_entries, sizeof *r.order);
    for (size_t i = 0; i < (*from)->n_entries; i++) r.order[i] = &(*from)->entries[i];
    qsort(r.order, (*from)->n_entries, sizeof *r.order, by_offset);
    return r;
}

static void rewrite_end(struct rewrite *r, struct lam_slm *from, const char *path)
{
    struct lam_slm_out *out;
    lam_error err;
    assert_ok(lam_slm_out_new(from->kind, r->flags, &out, &err), err);
    for (size_t i = 0; i < from->n_entries; i++) {
        const struct lam_slm_entry *e = r->order[i];
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)e->name_len, from->names + e->name_offset);
        struct lam_slm_decl d = {.name = name, .dtype = e->dtype, .n_dims = e->n_dims, .layout = e->layout, .role = e->role,
                                 .layer = (uint16_t)(e->layer + (i == 0 ? r->layer_off : 0))};
        memcpy(d.dims, e->dims, sizeof d.dims);
        assert_ok(lam_slm_out_tensor(out, &d, &err), err);
    }
    lam_slm_out_metadata(out, r->metadata);
    lam_slm_out_vocab(out, from->vocab, from->vocab_bytes);
    assert_ok(lam_slm_out_write(out, path, copy_bytes, r, NULL, &err), err);
    lam_slm_out_free(out);
    json_decref(r->metadata);
    free(r->order);
    lam_slm_close(from);
}

/* Sets object[path's last part], path being "a.b.c", to the JSON value; "" removes it. */
static void set_path(json_t *object, const char *path, const char *value)
{
    lam_error err;
    const char *dot;
    char part[64];
    for (; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
        object = json_is_array(object) ? json_array_get(object, (size_t)atoi(part)) : json_object_get(object, part);
        assert_non_null(object);
    }
    json_t *json = NULL;
    if (*value) assert_ok(lam_json_parse(value, strlen(value), "value", &json, &err), err);
    if (json) json_object_set_new(object, path, json);
    else json_object_del(object, path);
}

struct sealed_case {
    const char *set[3][2]; /* path and value */
    lam_code code;
    const char *says;
};

static void check_sealed(const struct fixture *f, const char *source, bool adapter, const struct sealed_case *c)
{
    char path[1024];
    lam_error err = {0};
    struct lam_slm *from;
    lam_base *base = NULL;
    lam_adapter *loaded = NULL;
    snprintf(path, sizeof path, "%s/hostile.slm", f->folder);
    struct rewrite r = rewrite_begin(source, &from);
    for (int i = 0; i < 3 && c->set[i][0]; i++) set_path(r.metadata, c->set[i][0], c->set[i][1]);
    rewrite_end(&r, from, path);
    lam_code code = adapter ? lam_adapter_load(f->base, path, true, &loaded, &err)
                            : lam_base_open(f->engine, path, LAM_VERIFY_FULL, &base, &err);
    if (code != c->code || (c->says && !strstr(err.message, c->says)))
        fail_msg("%s = %s: %s: %s", c->set[0][0] ? c->set[0][0] : "", c->set[0][1] ? c->set[0][1] : "", lam_code_name(code), err.message);
    lam_adapter_unload(loaded);
    lam_base_free(base);
}

static void test_sealed_bases(void **state)
{
    static const struct sealed_case cases[] = {
        {{{NULL, NULL}}, LAM_OK, NULL},
        {{{"config.layers", "4294967301"}}, LAM_E_FORMAT, "configuration"},  /* 2^32 + 5 is no 5 */
        {{{"config.vocabulary", "4294967808"}}, LAM_E_FORMAT, "configuration"},
        {{{"config.window", "-1"}}, LAM_E_LIMIT, "window"},
        {{{"config.norm_eps", "1e-5"}}, LAM_E_FORMAT, "configuration"},      /* float32 rounds it */
        {{{"config.norm_eps", "-1"}}, LAM_E_FORMAT, "epsilon"},
        {{{"config.attention_scale", "1e308"}}, LAM_E_FORMAT, "attention scale"},
        {{{"config.attention_softcap", "-1"}}, LAM_E_FORMAT, "soft-caps"},
        {{{"config.logit_softcap", "-2"}}, LAM_E_FORMAT, "soft-caps"},
        {{{"config.embedding_scale", "1e39"}}, LAM_E_FORMAT, "embedding scale"},
        {{{"config.norm_offset", "-1e39"}}, LAM_E_FORMAT, "norm offset"},
        {{{"config.local_layers", "{}"}}, LAM_E_FORMAT, "local_layers"},
        {{{"config.local_layers", "[0]"}}, LAM_E_FORMAT, "window of 0"},
        {{{"config.local_layers", "[1,1]"}, {"config.window", "4"}}, LAM_E_FORMAT, "configuration"},
        {{{"config.local_layers", "[1,0]"}, {"config.window", "4"}}, LAM_E_FORMAT, "configuration"},
        {{{"config.local_layers", "[5]"}, {"config.window", "4"}}, LAM_E_FORMAT, "configuration"},
        {{{"config.local_layers", "[4294967296]"}, {"config.window", "4"}}, LAM_E_FORMAT, "local_layers"},
        {{{"config.local_layers", "[0,3]"}, {"config.window", "4"}}, LAM_OK, NULL},
        {{{"config.rope.theta", "0"}}, LAM_E_FORMAT, "base"},
        {{{"config.rope_local.theta", "-10000"}}, LAM_E_FORMAT, "local"},
        {{{"config.rope_local.scaling", "\"yarn\""}}, LAM_E_FORMAT, "local"},
        {{{"config.rope.attention_factor", "1e300"}}, LAM_E_FORMAT, "rotary"},
        {{{"config.rope.scaling", "\"linear\""}, {"config.rope.factor", "1e-30"}}, LAM_E_FORMAT, "rotary frequency"},
        {{{"config.rope.scaling", "\"llama3\""}, {"config.rope.factor", "8"}}, LAM_E_FORMAT, "original context"},
        {{{"config.rope.scaling", "\"dynamic\""}}, LAM_E_UNKNOWN_FIELD, "dynamic"},
        {{{"config.rope.extra", "1"}}, LAM_E_UNKNOWN_FIELD, "rope"},
        {{{"config.extra", "1"}}, LAM_E_UNKNOWN_FIELD, "configuration"},
        {{{"config.tied", "false"}}, LAM_E_FORMAT, "tied"},                  /* the header says tied */
        {{{"config", "[]"}}, LAM_E_FORMAT, NULL},
        {{{"chat_template", "\"{{ 1\""}}, LAM_OK, NULL},                     /* lam_chat_format tells */
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_sealed(f, f->base_path, false, &cases[i]);
}

static void test_sealed_adapters(void **state)
{
    static const struct sealed_case cases[] = {
        {{{NULL, NULL}}, LAM_OK, NULL},
        {{{"modules.0.rank", "4294967304"}}, LAM_E_RANK, "4294967304"}, /* 2^32 + 8 is no 8 */
        {{{"modules.0.rank", "0"}}, LAM_E_RANK, NULL},
        {{{"modules.0.rank", "9"}}, LAM_E_SHAPE, NULL},
        {{{"modules.0.name", "\"blk.0.attn_k\\u0000x\""}}, LAM_E_UNMATCHED, NULL},
        {{{"modules.0.name", "\"blk.0.attn_q\""}}, LAM_E_ORDER, NULL},
        {{{"modules.1.name", "\"blk.0.attn_k\""}}, LAM_E_DUPLICATE, NULL},
        {{{"activation", "{\"invocation\": []}"}}, LAM_E_FORMAT, NULL},
        {{{"activation", "{\"invocation\": [1, -1]}"}}, LAM_E_TOKEN, NULL},
        {{{"activation", "{\"invocation\": [1], \"until\": 2}"}}, LAM_E_FORMAT, NULL},
        {{{"modules.0.extra", "1"}}, LAM_E_UNKNOWN_FIELD, NULL},
        {{{"modules.0.scaling", "\"alpha\""}}, LAM_E_METHOD, NULL},
        {{{"modules", "[]"}}, LAM_E_UNMATCHED, NULL},
        {{{"bases", "\"sha256\""}}, LAM_E_FORMAT, "bases"},
        {{{"method", ""}}, LAM_E_METHOD, NULL},
        {{{"scale", "2"}}, LAM_E_UNKNOWN_FIELD, "scale"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_sealed(f, f->adapter_paths[0], true, &cases[i]);
}

/* A tensor's layer number is part of what the file says. */
static void test_adapter_layer(void **state)
{
    struct fixture *f = *state;
    char path[1024];
    lam_error err;
    struct lam_slm *from;
    lam_adapter *loaded;
    snprintf(path, sizeof path, "%s/layer.slm", f->folder);
    struct rewrite r = rewrite_begin(f->adapter_paths[0], &from);
    r.layer_off = 3;
    rewrite_end(&r, from, path);
    assert_int_equal(lam_adapter_load(f->base, path, true, &loaded, &err), LAM_E_FORMAT);
    assert_null(loaded);
}

/* A name is one line of text, whatever the file says. */
static void test_names(void **state)
{
    struct fixture *f = *state;
    char path[1024];
    lam_error err;
    struct lam_slm *from;
    lam_adapter *loaded;
    lam_adapter_info info;
    snprintf(path, sizeof path, "%s/name.slm", f->folder);
    struct rewrite r = rewrite_begin(f->adapter_paths[0], &from);
    /* an escape, a line's end, a letter; C1's own escape; the direction of writing turned about; a letter of the same row as that */
    set_path(r.metadata, "name", "\"a\\u001b[31m\\n\xc3\xa9\\u009b2J\\u202e\\u2066\\u2010\"");
    rewrite_end(&r, from, path);
    assert_ok(lam_adapter_load(f->base, path, true, &loaded, &err), err);
    lam_adapter_describe(loaded, &info);
    assert_string_equal(info.name, "a?[31m?\xc3\xa9" "??2J" "???" "???" "\xe2\x80\x90");
    lam_adapter_unload(loaded);
}

static lam_code compose_one(struct fixture *f, const struct adapter_case *c, double weight, lam_error *err)
{
    char path[1024];
    lam_adapter *loaded;
    lam_composition *composition;
    snprintf(path, sizeof path, "%s/weighted.slm", f->folder);
    case_write((struct adapter_case *)c, path);
    assert_ok(lam_adapter_load(f->base, path, true, &loaded, err), *err);
    lam_code code = lam_compose(f->base, &loaded, &weight, 1, NULL, &composition, err);
    lam_adapter_unload(loaded);
    lam_composition_free(composition);
    return code;
}

/* A weight may not take what it scales out of float32, whose largest value is 3.4028e38. l is from −4/64 to 4/64 here, so that w·(l − 1)
 * is −w·68/64 at least. */
static void test_weights_beyond(void **state)
{
    static const struct {
        enum lam_adapter_part part;
        uint32_t n;
    } vectors[] = {{LAM_PART_IA3_OUTPUT, 64}, {LAM_PART_IA3_INPUT, 64}};
    static struct adapter_case c;
    struct fixture *f = *state;
    lam_error err;
    for (size_t i = 0; i < 2; i++) {
        memset(&c, 0, sizeof c);
        c.metadata = json_pack("{s:s,s:s,s:[],s:[{s:s}]}", "method", "ia3", "name", "case", "bases", "modules", "name", "blk.0.attn_q");
        case_add(&c, "blk.0.attn_q", LAM_ROLE_Q, vectors[i].part, 1, vectors[i].n, 1);
        assert_ok(compose_one(f, &c, 3e38, &err), err);
        assert_int_equal(compose_one(f, &c, 3.3e38, &err), LAM_E_ARGUMENT);
        assert_int_equal(compose_one(f, &c, 1e39, &err), LAM_E_ARGUMENT);
        assert_int_equal(compose_one(f, &c, 1e300, &err), LAM_E_ARGUMENT);
        json_decref(c.metadata);
    }
    memset(&c, 0, sizeof c);
    c.metadata = json_pack("{s:s,s:s,s:[],s:[o]}", "method", "lora", "name", "case", "bases", "modules", case_module("blk.0.attn_q", 2, 4.0));
    case_add(&c, "blk.0.attn_q", LAM_ROLE_Q, LAM_PART_A, 2, 64, 1);
    case_add(&c, "blk.0.attn_q", LAM_ROLE_Q, LAM_PART_B, 64, 2, 2);
    struct case_tensor *bias = case_add(&c, "blk.0.attn_q", LAM_ROLE_Q, LAM_PART_B_BIAS, 1, 64, 3);
    memcpy(bias->bytes, &(float){3e38f}, 4);
    assert_ok(compose_one(f, &c, 0.5, &err), err); /* times 4/2 */
    assert_int_equal(compose_one(f, &c, 1.0, &err), LAM_E_ARGUMENT);
    json_decref(c.metadata);
}

/* 512 bytes cut a name of two-byte characters in the middle of one, or a path is no UTF-8. */
static void test_messages(void **state)
{
    (void)state;
    char path[700];
    lam_error err;
    for (size_t first = 0; first < 2; first++) {
        memset(path, 'a', first);
        for (size_t i = first; i + 2 < sizeof path; i += 2) memcpy(path + i, "\xc3\xa9", 3);
        assert_int_equal(LAM_RAISE(&err, LAM_E_IO, "%s", path), LAM_E_IO);
        assert_int_equal(lam_utf8_valid_prefix((const uint8_t *)err.message, strlen(err.message)), strlen(err.message));
        assert_true(strlen(err.message) > 500);
    }
    LAM_RAISE(&err, LAM_E_IO, "%s", "a\xff\x80" "b\n");
    assert_string_equal(err.message, "a??b?");
}

/* ---- parameters ---- */

static void test_rows(void **state)
{
    (void)state;
    static const size_t rows[] = {65537, SIZE_MAX / 4, SIZE_MAX};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const lam_engine_options options = {.threads = 1, .max_rows = rows[i]};
        lam_engine *engine;
        lam_error err;
        assert_int_equal(lam_engine_new(&options, &engine, &err), LAM_E_ARGUMENT);
        assert_null(engine);
    }
}

static bool cut_history(void *context, const char *text, uint32_t token)
{
    lam_error err;
    (void)text, (void)token;
    assert_ok(lam_session_truncate(context, 1, &err), err);
    return false;
}

/* The callback may shorten the very history that is generated. */
static void test_generate_and_truncate(void **state)
{
    struct fixture *f = *state;
    const uint32_t tokens[] = {1, 403, 407};
    lam_error err;
    lam_sampling sampling;
    size_t n;
    lam_composition *c = fixture_compose(f, NULL, 0);
    lam_session *s = fixture_session(c, 16);
    lam_sampling_default(&sampling);
    assert_ok(lam_session_feed(s, tokens, 3, NULL, NULL, &err), err);
    assert_ok(lam_generate(s, &sampling, 8, cut_history, s, &n, &err), err);
    assert_int_equal(n, 1);
    assert_int_equal(lam_session_length(s), 1);
    lam_session_free(s);
    lam_composition_free(c);
}

/* ---- JSON ---- */

/* Every beginning of a text is refused, in a block that ends where the text does. */
static void test_json_beginnings(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,-2.5e+3,true,null,\"x\\u00e9\\ud83d\\ude00\\n\\\\\"],\"b\":{\"\xc3\xa9\":{}}}";
    lam_error err;
    json_t *value;
    assert_ok(lam_json_parse(text, sizeof text - 1, "whole", &value, &err), err);
    json_decref(value);
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *part = malloc(n ? n : 1);
        memcpy(part, text, n);
        assert_int_equal(lam_json_parse(part, n, "part", &value, &err), LAM_E_FORMAT);
        assert_null(value);
        free(part);
    }
}

/* RFC 8259, sections 6 to 8, and the limits that base/json.h states. */
static void test_json_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len; /* 0: of the text */
        lam_code code;
    } cases[] = {
        {"\"\\ud800\"", 0, LAM_E_FORMAT}, {"\"\\udc00\"", 0, LAM_E_FORMAT}, {"\"\\ud800\\u0041\"", 0, LAM_E_FORMAT},
        {"\"\\x\"", 0, LAM_E_FORMAT}, {"\"\\u12g4\"", 0, LAM_E_FORMAT}, {"\"\xed\xa0\x80\"", 0, LAM_E_FORMAT},
        {"\"\xc3\"", 0, LAM_E_FORMAT}, {"\"\n\"", 0, LAM_E_FORMAT}, {"01", 0, LAM_E_FORMAT}, {"-", 0, LAM_E_FORMAT},
        {"1.", 0, LAM_E_FORMAT}, {".5", 0, LAM_E_FORMAT}, {"1e", 0, LAM_E_FORMAT}, {"+1", 0, LAM_E_FORMAT}, {"1e999", 0, LAM_E_FORMAT},
        {"NaN", 0, LAM_E_FORMAT}, {"[1,]", 0, LAM_E_FORMAT}, {"{\"a\":1,}", 0, LAM_E_FORMAT}, {"{\"a\" 1}", 0, LAM_E_FORMAT},
        {"[1 2]", 0, LAM_E_FORMAT}, {"1 2", 0, LAM_E_FORMAT}, {"[1\0]", 4, LAM_E_FORMAT}, {"{\"\\u0000\":1}", 0, LAM_E_FORMAT},
        {"{\"a\":1,\"\\u0061\":2}", 0, LAM_E_DUPLICATE}, {"\xef\xbb\xbf{}", 0, LAM_E_FORMAT}, {"\"\\u0000\"", 0, LAM_OK},
        {" [ 0 , -0 , 1E+2 ] ", 0, LAM_OK}, {"9223372036854775807", 0, LAM_OK}, {"1e-999", 0, LAM_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_error err;
        json_t *value;
        size_t len = cases[i].len ? cases[i].len : strlen(cases[i].text);
        lam_code code = lam_json_parse(cases[i].text, len, "case", &value, &err);
        if (code != cases[i].code) fail_msg("%s: %s", cases[i].text, lam_code_name(code));
        json_decref(value);
    }
    lam_error err;
    json_t *value;
    static const char big[] = "[9223372036854775807,9223372036854775808,-9223372036854775808,1000000000000000019884624838656]";
    assert_ok(lam_json_parse(big, sizeof big - 1, "big", &value, &err), err);
    assert_true(json_integer_value(json_array_get(value, 0)) == INT64_MAX);
    assert_true(json_real_value(json_array_get(value, 1)) == 0x1p63);
    assert_true(json_integer_value(json_array_get(value, 2)) == INT64_MIN);
    assert_true(json_real_value(json_array_get(value, 3)) == 1e30);
    json_decref(value);
}

/* ---- things that are no files ---- */

static void copy_golden(const char *folder, const char *name)
{
    char path[1024];
    size_t size;
    snprintf(path, sizeof path, GEMMA "%s", name);
    uint8_t *bytes = test_read_file(path, &size);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fixture_write(path, bytes, size);
    free(bytes);
}

static const char *const model_files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};

static char *copy_model(void)
{
    char *folder = test_make_folder();
    for (size_t i = 0; i < 4; i++) copy_golden(folder, model_files[i]);
    return folder;
}

/* A FIFO would be waited for without end, a device read without end; a folder and a link to nothing are not "absent". */
static void test_no_files(void **state)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json", "chat_template.jinja"};
    struct fixture *f = *state;
    lam_error err;
    alarm(60);
    for (size_t i = 0; i < 6; i++)
        for (int kind = 0; kind < 4; kind++) {
            char *folder = copy_model(), path[1024], out[1024];
            snprintf(path, sizeof path, "%s/%s", folder, names[i]);
            snprintf(out, sizeof out, "%s/out.slm", folder);
            unlink(path);
            int made = kind == 0 ? mkfifo(path, 0600) : kind == 1 ? symlink("/dev/zero", path) : kind == 2 ? mkdir(path, 0700)
                                                                                                           : symlink("nothing", path);
            assert_int_equal(made, 0);
            lam_code code = lam_import_base(folder, out, NULL, &err);
            if (code != (kind == 3 ? LAM_E_NOT_FOUND : LAM_E_IO)) fail_msg("%s, kind %d: %s", names[i], kind, lam_code_name(code));
            assert_int_not_equal(access(out, F_OK), 0);
            test_remove_folder(folder);
        }
    char path[1024];
    lam_source_kind found;
    lam_base *base;
    snprintf(path, sizeof path, "%s/fifo", f->folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(lam_source_detect(path, &found, &err), LAM_E_IO);
    assert_int_equal(lam_base_open(f->engine, path, LAM_VERIFY_FULL, &base, &err), LAM_E_IO);
    alarm(0);
}

/* A field of another type is not the default's silent wish. */
static void test_field_types(void **state)
{
    static const struct {
        const char *key, *value;
        lam_code code;
    } cases[] = {
        {"query_pre_attn_scalar", "\"256\"", LAM_E_FORMAT}, {"query_pre_attn_scalar", "0", LAM_E_FORMAT},
        {"query_pre_attn_scalar", "-4", LAM_E_FORMAT}, {"final_logit_softcapping", "\"30\"", LAM_E_FORMAT},
        {"final_logit_softcapping", "-30", LAM_E_FORMAT}, {"sliding_window", "\"512\"", LAM_E_FORMAT},
        {"sliding_window", "1.5", LAM_E_FORMAT}, {"sliding_window", "0", LAM_E_FORMAT}, {"rope_local_base_freq", "\"1e4\"", LAM_E_FORMAT},
        {"rope_local_base_freq", "0", LAM_E_FORMAT}, {"rope_scaling", "\"linear\"", LAM_E_FORMAT},
        {"rope_scaling", "{\"rope_type\": 5, \"factor\": 8}", LAM_E_FORMAT}, {"rope_scaling", "{\"factor\": 8}", LAM_E_FORMAT},
        {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 8, \"new\": 1}", LAM_E_UNKNOWN_FIELD},
        {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 8}", LAM_OK}, {"tie_word_embeddings", "\"false\"", LAM_E_FORMAT},
        {"tie_word_embeddings", "1", LAM_E_FORMAT}, {"hidden_activation", "5", LAM_E_FORMAT}, {"rms_norm_eps", "-1", LAM_E_FORMAT},
        {"num_hidden_layers", "4294967298", LAM_E_FORMAT}, {"final_logit_softcapping", "null", LAM_OK},
    };
    (void)state;
    char *folder = copy_model(), path[1024], out[1024];
    size_t size;
    lam_error err;
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(out, sizeof out, "%s/out.slm", folder);
    uint8_t *text = test_read_file(path, &size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *config;
        assert_ok(lam_json_parse((const char *)text, size, "config.json", &config, &err), err);
        set_path(config, cases[i].key, cases[i].value);
        assert_int_equal(json_dump_file(config, path, 0), 0);
        json_decref(config);
        lam_code code = lam_import_base(folder, out, NULL, &err);
        if (code != cases[i].code) fail_msg("%s = %s: %s: %s", cases[i].key, cases[i].value, lam_code_name(code), code ? err.message : "");
    }
    free(text);
    test_remove_folder(folder);
}

/* ---- writers ---- */

static void put_part(const char *folder, const char *name, char path[1024])
{
    snprintf(path, 1024, "%s/%s", folder, name);
    fixture_write(path, "half", 4);
}

/* What a killed process left is removed by who next writes the same file; what a living one writes, and what only looks like it, is not. */
static void test_leftovers(void **state)
{
    (void)state;
    char *folder = test_make_folder(), dead[1024], other[1024], foreign[1024], out[1024];
    lam_error err;
    struct lam_writer *living;
    snprintf(out, sizeof out, "%s/out.slm", folder);
    put_part(folder, "out.slm.123-7f00a.part", dead);
    put_part(folder, "other.slm.123-7f00a.part", other);
    put_part(folder, "out.slm.download.part", foreign);
    assert_ok(lam_writer_open(out, &living, &err), err);
    assert_ok(lam_writer_write(living, "first", 5, &err), err);
    assert_ok(lam_import_base(STORIES, out, NULL, &err), err);
    assert_int_not_equal(access(dead, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(access(foreign, F_OK), 0);
    assert_ok(lam_verify_file(out, NULL, NULL, &err), err);
    assert_ok(lam_writer_commit(living, &err), err); /* the later one wins, whole */
    size_t size;
    uint8_t *bytes = test_read_file(out, &size);
    assert_int_equal(size, 5);
    assert_memory_equal(bytes, "first", 5);
    free(bytes);
    test_remove_folder(folder);
}

static int setup(void **state)
{
    static struct fixture f;
    static const char *const adapters[] = {OZ};
    const lam_engine_options options = {.threads = 1};
    fixture_import(&f, STORIES, adapters, 1);
    fixture_open(&f, &options);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_close(*state);
    fixture_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),       cmocka_unit_test(test_sealed_bases),   cmocka_unit_test(test_sealed_adapters),
        cmocka_unit_test(test_adapter_layer), cmocka_unit_test(test_names),         cmocka_unit_test(test_messages),      cmocka_unit_test(test_weights_beyond),
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_generate_and_truncate),
        cmocka_unit_test(test_json_beginnings), cmocka_unit_test(test_json_values), cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_field_types),  cmocka_unit_test(test_leftovers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
