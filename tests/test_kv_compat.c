/* The worked cases of tests/data/fixtures/kv_compat.json on the code that feeds, re-bases, restores, looks up, generates and merges. Every
 * expected value is produced and compared; every fault that a state can have is put into a real session, file, cache entry or call and
 * refused there with a code of its own; for faults of records the produced value equals the right one and not the wrong one. The last
 * test prints how many of each there are. */
#include "reuse_fixture.h"

#include "base/alloc.h"
#include "base/json.h"
#include "cache/closure.h"
#include "cache/operators.h"
#include "cache/saved.h"
#include "lamina/merge.h"
#include "run/activation.h"
#include "run/objects.h"
#include "run/session.h"
#include "tensor/tiles.h"

#include <math.h>

#define FIXTURE "tests/data/fixtures/kv_compat.json"

static json_t *whole, *fixture, *expected;

/* What was shown, of how many the fixture has. */
static struct { size_t values, records, states; } shown;

enum { LORA_A, LORA_B, ALORA_A2, ALORA_B2, ALORA_A1, HEAD_A, N_ADAPTERS };
static const struct reuse_adapter adapters[N_ADAPTERS] = {
    [LORA_A] = {"A", {ALL, ALL}, false, 1, {0}, 0, false},
    [LORA_B] = {"B", {ALL, ALL}, false, 2, {0}, 0, false},
    [ALORA_A2] = {"A", {ALL, ALL}, false, 3, {99, 100}, 2, false},
    [ALORA_B2] = {"B", {ALL, ALL}, false, 4, {99, 100}, 2, false},
    [ALORA_A1] = {"A", {ALL, ALL}, false, 5, {12}, 1, false}, /* the boundary of its invocation is 1 */
    [HEAD_A] = {"A", {0, 0}, true, 6, {0}, 0, false},
};

static struct reuse all;
static lam_adapter *moved_adapter;
static lam_composition *moved; /* lora_A in another place */

static int open_all(void **state)
{
    (void)state;
    lam_error err;
    size_t n;
    uint8_t *text = test_read_file(FIXTURE, &n);
    assert_ok(lam_json_parse((const char *)text, n, FIXTURE, &whole, &err), err);
    free(text);
    fixture = json_object_get(whole, "fixture");
    expected = json_object_get(whole, "expected");
    reuse_open(&all, REUSE_Q4, adapters, N_ADAPTERS, NULL);
    assert_ok(lam_adapter_load(all.base, all.paths[LORA_A], false, &moved_adapter, &err), err);
    assert_ok(lam_compose(all.base, &moved_adapter, (double[]){1.0}, 1, NULL, &moved, &err), err);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    lam_composition_free(moved);
    lam_adapter_unload(moved_adapter);
    reuse_close(&all);
    json_decref(whole);
    return 0;
}

static lam_composition *manifest(const char *name)
{
    static const char *const names[N_ADAPTERS] = {"lora_A", "lora_B", "alora_A2", "alora_B2", "alora_A1", "head_A"};
    if (strcmp(name, "base") == 0) return all.bare;
    if (strcmp(name, "lora_A_moved") == 0) return moved;
    for (size_t i = 0; i < N_ADAPTERS; i++)
        if (strcmp(name, names[i]) == 0) return all.with[i];
    fail_msg("no manifest %s", name);
    return NULL;
}

static size_t read_tokens(const json_t *list, uint32_t *out)
{
    for (size_t i = 0; i < json_array_size(list); i++) out[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return json_array_size(list);
}

static json_t *request_tokens(void) { return json_object_get(json_object_get(fixture, "request"), "token_ids"); }

static lam_session *fed(lam_composition *c)
{
    uint32_t tokens[16];
    size_t n = read_tokens(request_tokens(), tokens);
    lam_session *s = fixture_session(c, 40);
    reuse_feed(s, tokens, n);
    return s;
}

/* ---- what the program produces, in the form of the fixture ---- */

static json_t *number(double v)
{
    char text[32];
    for (int d = 1; d <= 4; d *= 2)
        if (v * d == (double)(long)(v * d)) {
            snprintf(text, sizeof text, "%ld/%d", (long)(v * d), d);
            return d == 1 ? json_integer((json_int_t)v) : json_string(text);
        }
    fail_msg("%g is no such fraction", v);
    return NULL;
}

/* x[2]·w[2] by the kernel of float matrices. */
static double product(const struct lam_kernels *k, const double *x, const double *w)
{
    float rows[2] = {(float)w[0], (float)w[1]}, in[2] = {(float)x[0], (float)x[1]}, y[16];
    size_t stride;
    assert_true(lam_tile_stride(LAM_F32, 2, &stride));
    uint8_t *tile = lam_alloc_aligned(stride);
    lam_tile_rows(LAM_F32, 2, (const uint8_t *)rows, 1, tile);
    k->gemm_float(LAM_F32, tile, 2, in, 2, 1, y, 16);
    lam_free_aligned(tile);
    return (double)y[0];
}

/* The nearest quarter: the weights of the softmax are exponentials of logarithms, which float32 does not hold exactly. */
static double quarter(float v)
{
    double q = (double)lroundf(v * 4.0f) / 4.0;
    assert_true(fabs(q - (double)v) < 0x1p-20);
    return q;
}

/* The attention kernel's weights for the scores logit·K0[i], and Σ p·V0[i]. */
static void attend(const struct lam_kernels *kernels, float logit, const double *k0, const double *v0, double p[2], double *c)
{
    float q[3] = {logit, 0, 0}, out[3], *scores = calloc(600, sizeof *scores);
    void *k_page = lam_alloc_aligned(lam_kv_k_bytes(LAM_KV_F32, 3)), *v_page = lam_alloc_aligned(lam_kv_v_bytes(LAM_KV_F32, 3));
    const void *k_pages[] = {k_page}, *v_pages[] = {v_page};
    for (size_t i = 0; i < 2; i++) {
        float k[3] = {(float)k0[i], 0, 0}, v[3] = {(float)v0[i], i == 0, i == 1};
        assert_true(kernels->kv_store(LAM_KV_F32, 3, k, v, i, k_page, v_page));
    }
    struct lam_attention a = {.kv = LAM_KV_F32, .k_pages = k_pages, .v_pages = v_pages, .d = 3, .scale = 1.0f, .n = 1, .scores = scores,
                              .scores_stride = 300};
    a.query[0] = (struct lam_query){q, 0, 1, out};
    kernels->attention(&a);
    *c = quarter(out[0]);
    p[0] = quarter(out[1]);
    p[1] = quarter(out[2]);
    lam_free_aligned(k_page);
    lam_free_aligned(v_page);
    free(scores);
}

static void read_pair(const json_t *w, const char *key, double out[2])
{
    const json_t *list = json_object_get(w, key);
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_array_get(list, i);
        out[i] = json_number_value(json_is_array(v) ? json_array_get(v, 0) : v);
    }
}

static json_t *pair(double a, double b) { return json_pack("[o,o]", number(a), number(b)); }

static json_t *produce_record(const struct lam_kernels *k)
{
    const json_t *w = json_object_get(fixture, "witness");
    double wk0[2], wv0[2], dwk0[2], out_dir[2], wk1[2], wv1[2], x[2][2], k0[2], v0[2], kd[2], p[2][2], c[2], h[2][2];
    read_pair(w, "WK0", wk0);
    read_pair(w, "WV0", wv0);
    read_pair(w, "dWK0", dwk0);
    read_pair(w, "out_dir", out_dir);
    read_pair(w, "WK1", wk1);
    read_pair(w, "WV1", wv1);
    for (size_t i = 0; i < 2; i++) {
        double changed[2] = {wk0[0] + dwk0[0], wk0[1] + dwk0[1]};
        for (size_t j = 0; j < 2; j++)
            x[i][j] = json_number_value(json_array_get(json_array_get(json_object_get(w, "x"), i), j));
        k0[i] = product(k, x[i], wk0);
        v0[i] = product(k, x[i], wv0);
        kd[i] = product(k, x[i], changed);
    }
    for (size_t i = 0; i < 2; i++) { /* the base, and with the changed query */
        attend(k, i ? logf(3.0f) : 0.0f, k0, v0, p[i], &c[i]);
        for (size_t j = 0; j < 2; j++) h[i][j] = x[1][j] + c[i] * out_dir[j];
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "K0", pair(k0[0], k0[1]), "V0", pair(v0[0], v0[1]),
                     "K0_q", pair(k0[0], k0[1]), "V0_q", pair(v0[0], v0[1]), "K0_direct", pair(kd[0], kd[1]), "p_base",
                     pair(p[0][0], p[0][1]), "p_q", pair(p[1][0], p[1][1]), "c_base", number(c[0]), "c_q", number(c[1]), "h_base",
                     pair(h[0][0], h[0][1]), "h_q", pair(h[1][0], h[1][1]), "K1_base", number(product(k, h[0], wk1)), "K1_q",
                     number(product(k, h[1], wk1)), "V1_base", number(product(k, h[0], wv1)), "V1_q", number(product(k, h[1], wv1)));
}

static json_t *produce_head(const struct lam_kernels *k)
{
    const json_t *head = json_object_get(fixture, "lm_head");
    double h[2], y[2][2];
    lam_error err;
    size_t kept;
    read_pair(head, "h", h);
    for (size_t i = 0; i < 2; i++) {
        double w[2], changed[2];
        for (size_t j = 0; j < 2; j++) {
            w[j] = json_number_value(json_array_get(json_array_get(json_object_get(head, "W"), i), j));
            changed[j] = w[j] + json_number_value(json_array_get(json_array_get(json_object_get(head, "dW"), i), j));
        }
        y[0][i] = product(k, h, w);
        y[1][i] = product(k, h, changed);
    }
    lam_session *s = fed(all.bare);
    assert_ok(lam_session_rebase(s, all.with[HEAD_A], &kept, &err), err);
    json_t *out = json_pack("{s:o,s:o,s:b}", "logits_base", pair(y[0][0], y[0][1]), "logits_adapted", pair(y[1][0], y[1][1]), "kv_changed",
                            kept != lam_session_length(s));
    lam_session_free(s);
    return out;
}

/* One aLoRA for each invocation that the fixture has. */
static lam_composition *invoked_by(const json_t *invocation, lam_adapter **adapter)
{
    struct reuse_adapter a = {.name = "invoked", .layer = {ALL, ALL}, .seed = 40};
    lam_composition *c;
    lam_error err;
    char path[512];
    a.n_invocation = read_tokens(invocation, a.invocation);
    reuse_import(all.folder, all.base_path, &a, path);
    assert_ok(lam_adapter_load(all.base, path, false, adapter, &err), err);
    assert_ok(lam_compose(all.base, adapter, (double[]){1.0}, 1, NULL, &c, &err), err);
    return c;
}

static json_t *produce_activation(const json_t *entry)
{
    uint32_t tokens[16];
    size_t n = read_tokens(json_object_get(entry, "tokens"), tokens), frontier;
    lam_error err;
    lam_adapter *adapter;
    lam_composition *c = invoked_by(json_object_get(entry, "invocation"), &adapter);
    lam_session *s = fixture_session(c, 40);
    reuse_feed(s, tokens, n);
    json_t *mask = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(mask, json_boolean(lam_activation_mask(s->starts, 1, i)));
    json_t *out = json_pack("{s:I,s:I,s:o}", "start", (json_int_t)s->starts[0], "offset", (json_int_t)(n - s->starts[0]), "mask", mask);
    assert_ok(lam_session_rebase(s, all.bare, &frontier, &err), err); /* the rows that the base's own cache has, too */
    json_object_set_new(out, "frontier", json_integer((json_int_t)frontier));
    lam_session_free(s);
    lam_composition_free(c);
    lam_adapter_unload(adapter);
    return out;
}

static json_t *produce_switch(const json_t *entry)
{
    lam_composition *from = manifest(json_string_value(json_object_get(entry, "from")));
    lam_composition *to = manifest(json_string_value(json_object_get(entry, "to")));
    lam_error err;
    size_t kept;
    lam_session *s = fed(from), *fresh = fed(to);
    const float *before = lam_session_logits(s);
    assert_ok(lam_session_rebase(s, to, &kept, &err), err);
    assert_memory_equal(lam_session_logits(s), lam_session_logits(fresh), REUSE_VOCAB * sizeof(float));
    size_t n = lam_session_length(s);
    const char *action = kept == 0 ? "recompute" : kept < n ? "fork" : lam_session_logits(s) == before ? "reuse" : "recompute_logits";
    lam_session_free(s);
    lam_session_free(fresh);
    return json_pack("{s:I,s:s}", "reuse", (json_int_t)kept, "action", action);
}

/* How many positions a history that leaves a published one at `boundary` shares by whole pages, with pages of `size` positions: the fixture's
 * positions are spread so that a page is ours. */
static json_int_t indexed_reuse(size_t size, size_t boundary)
{
    uint32_t tokens[1600];
    size_t n = LAM_KV_PAGE * boundary / size, shared = 0;
    struct reuse r;
    reuse_open(&r, REUSE_Q4, NULL, 0, &(lam_engine_options){.prefix_cache = 16u << 20});
    fixture_tokens(4, 200, tokens, 1600);
    lam_session *a = fixture_session(r.bare, 1700), *b = fixture_session(r.bare, 1700);
    reuse_feed(a, tokens, n + 40);
    for (size_t i = n; i < n + 40; i++) tokens[i] += 10;
    reuse_feed(b, tokens, n + 40);
    assert_int_equal(lam_session_cached(b), n); /* the part of a page is copied */
    for (size_t p = 0; p < b->kv.n_pages; p++)
        if (b->kv.pages[p] == a->kv.pages[p]) shared = p + 1;
    lam_session_free(a);
    lam_session_free(b);
    reuse_close(&r);
    return (json_int_t)(shared * size);
}

static json_t *produced(void)
{
    static json_t *cache; /* it is used by two tests */
    if (cache) return cache;
    const struct lam_kernels *k;
    lam_error err;
    assert_ok(lam_kernels_pick(NULL, &k, &err), err);
    json_t *activation = json_array(), *switches = json_array();
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(fixture, "activation"), i, entry) json_array_append_new(activation, produce_activation(entry));
    json_array_foreach(json_object_get(fixture, "switches"), i, entry) json_array_append_new(switches, produce_switch(entry));
    const json_t *blocks = json_object_get(fixture, "blocks");
    json_int_t reuse = indexed_reuse((size_t)json_integer_value(json_object_get(blocks, "size")),
                                     (size_t)json_integer_value(json_object_get(blocks, "boundary")));
    cache = json_pack("{s:o,s:o,s:o,s:o,s:{s:I}}", "record", produce_record(k), "lm_head", produce_head(k), "activation", activation, "switches",
                      switches, "blocks", "indexed_reuse", reuse);
    assert_non_null(cache);
    return cache;
}

static void assert_json(const json_t *got, const json_t *want, const char *what)
{
    if (got && json_equal(got, want)) return;
    char *a = json_dumps(got, JSON_ENCODE_ANY), *b = json_dumps(want, JSON_ENCODE_ANY);
    fail_msg("%s: %s, not %s", what, a, b);
}

/* ---- expected values ---- */

static void test_witness_and_head(void **state)
{
    (void)state;
    assert_json(json_object_get(produced(), "record"), json_object_get(expected, "record"), "record");
    assert_json(json_object_get(json_object_get(produced(), "lm_head"), "logits_base"), json_object_get(expected, "logits_base"), "base");
    assert_json(json_object_get(json_object_get(produced(), "lm_head"), "logits_adapted"), json_object_get(expected, "logits_adapted"), "adapted");
    shown.values += 3;
}

static void test_activations(void **state)
{
    (void)state;
    size_t i;
    json_t *want;
    json_array_foreach(json_object_get(expected, "activation"), i, want) {
        json_t *got = json_array_get(json_object_get(produced(), "activation"), i), *frontier = json_object_get(want, "frontier");
        assert_json(json_object_get(got, "start"), json_object_get(want, "start"), "start");
        assert_json(json_object_get(got, "offset"), json_object_get(want, "offset"), "offset");
        assert_json(json_object_get(got, "mask"), json_object_get(want, "mask"), "mask");
        if (frontier) assert_json(json_object_get(got, "frontier"), json_array_get(frontier, 1), "frontier");
    }
    shown.values++;
    const json_t *absent = json_object_get(expected, "invocation_absent");
    uint32_t tokens[16];
    lam_error err;
    lam_adapter *adapter;
    lam_composition *c = invoked_by(json_object_get(absent, "invocation"), &adapter);
    lam_session *s = fixture_session(c, 40);
    size_t n = read_tokens(json_object_get(absent, "tokens"), tokens);
    assert_string_equal(json_string_value(json_object_get(absent, "decision")), "reject");
    assert_int_equal(lam_session_feed(s, tokens, n, NULL, NULL, &err), LAM_E_INVOCATION);
    shown.values++;
    lam_session_free(s);
    lam_composition_free(c);
    lam_adapter_unload(adapter);
}

static void test_switches(void **state)
{
    (void)state;
    size_t i;
    json_t *want;
    json_array_foreach(json_object_get(expected, "reuse"), i, want)
        assert_json(json_object_get(json_array_get(json_object_get(produced(), "switches"), i), "reuse"), want, "reuse");
    json_array_foreach(json_object_get(fixture, "switches"), i, want)
        assert_json(json_object_get(json_array_get(json_object_get(produced(), "switches"), i), "action"), json_object_get(want, "action"), "action");
    shown.values++;
}

static void test_interval_digests(void **state)
{
    (void)state;
    size_t i;
    json_t *want;
    lam_error err;
    json_array_foreach(json_object_get(expected, "interval_equal_base"), i, want) {
        lam_session *base = fed(all.bare), *s = fed(manifest(json_string_value(json_object_get(want, "manifest"))));
        size_t begin = (size_t)json_integer_value(json_array_get(json_object_get(want, "interval"), 0));
        size_t end = (size_t)json_integer_value(json_array_get(json_object_get(want, "interval"), 1));
        char one[LAM_DIGEST_TEXT], two[LAM_DIGEST_TEXT];
        assert_ok(lam_session_interval(base, begin, end, one, &err), err);
        assert_ok(lam_session_interval(s, begin, end, two, &err), err);
        assert_int_equal(strcmp(one, two) == 0, json_is_true(json_object_get(want, "equal")));
        lam_session_free(base);
        lam_session_free(s);
    }
    shown.values++;
}

/* By the graph, and by the bytes of a real cache. */
static void check_affected(const char *target, uint32_t layer, uint32_t cached, bool changes)
{
    static const struct { const char *name; enum lam_role role; unsigned module; } roles[] = {
        {"Q", LAM_ROLE_Q, Q}, {"K", LAM_ROLE_K, K}, {"V", LAM_ROLE_V, V}, {"O", LAM_ROLE_O, O}, {"MLP", LAM_ROLE_GATE, GATE},
        {"MLP", LAM_ROLE_UP, UP}, {"MLP", LAM_ROLE_DOWN, DOWN}, {"LM_HEAD", LAM_ROLE_OUTPUT, 0}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(roles[i].name, target) != 0) continue;
        assert_int_equal(lam_closure_reaches(roles[i].role, layer, cached), changes);
        struct reuse_adapter a = {.name = "one", .head = !roles[i].module, .seed = 50};
        if (layer < 2) a.layer[layer] = roles[i].module;
        char path[512];
        lam_adapter *adapter;
        lam_composition *c;
        lam_error err;
        reuse_import(all.folder, all.base_path, &a, path);
        assert_ok(lam_adapter_load(all.base, path, false, &adapter, &err), err);
        assert_ok(lam_compose(all.base, &adapter, (double[]){1.0}, 1, NULL, &c, &err), err);
        lam_session *base = fed(all.bare), *s = fed(c);
        bool same = true;
        for (uint32_t h = 0; h < s->kv.n_heads; h++) {
            same &= memcmp(lam_kv_k(&s->kv, 0, cached, h), lam_kv_k(&base->kv, 0, cached, h), lam_kv_k_bytes(s->kv.type, s->kv.head_dim)) == 0;
            same &= memcmp(lam_kv_v(&s->kv, 0, cached, h), lam_kv_v(&base->kv, 0, cached, h), lam_kv_v_bytes(s->kv.type, s->kv.head_dim)) == 0;
        }
        assert_int_equal(!same, changes);
        lam_session_free(base);
        lam_session_free(s);
        lam_composition_free(c);
        lam_adapter_unload(adapter);
    }
}

static void test_affected(void **state)
{
    (void)state;
    size_t i;
    json_t *want;
    json_array_foreach(json_object_get(expected, "affected"), i, want)
        check_affected(json_string_value(json_object_get(want, "target")), (uint32_t)json_integer_value(json_object_get(want, "layer")),
                       (uint32_t)json_integer_value(json_object_get(want, "cached_layer")), json_is_true(json_object_get(want, "changes")));
    const json_t *graph = json_object_get(fixture, "graph");
    assert_string_equal(json_string_value(json_object_get(graph, "revision")), LAM_GRAPH_REVISION);
    for (int earlier = 0; earlier < 2; earlier++) {
        const char *names[LAM_PROJECTIONS + 1];
        const json_t *list = json_object_get(graph, earlier ? "earlier_layers" : "same_layer");
        lam_closure_projections(earlier, names);
        json_array_foreach(list, i, want) assert_string_equal(names[i], json_string_value(want));
        assert_null(names[json_array_size(list)]);
    }
    shown.values++;
}

static void test_blocks(void **state)
{
    (void)state;
    size_t i;
    json_t *want;
    json_array_foreach(json_object_get(expected, "blocks"), i, want)
        assert_int_equal(indexed_reuse((size_t)json_integer_value(json_object_get(want, "size")),
                                       (size_t)json_integer_value(json_object_get(want, "boundary"))),
                         json_integer_value(json_object_get(want, "indexed_reuse")));
    shown.values++;
}

/* The candidate: the base's rows serve the request's first two; the suffix is computed and published under its own label, and the base's
 * branch is still what it was. */
static void test_candidate(void **state)
{
    (void)state;
    struct reuse r;
    uint32_t tokens[16];
    char base[LAM_DIGEST_TEXT], again[LAM_DIGEST_TEXT];
    reuse_open(&r, REUSE_Q4, adapters, N_ADAPTERS, &(lam_engine_options){.prefix_cache = 8u << 20});
    size_t n = read_tokens(request_tokens(), tokens);
    lam_error err;
    lam_session *s = fixture_session(r.bare, 40), *t;
    assert_ok(lam_session_isolate(s, "tenant-blue", &err), err);
    reuse_feed(s, tokens, n);
    reuse_future(s, base);
    lam_session_free(s);
    t = fixture_session(r.with[ALORA_A2], 40);
    assert_ok(lam_session_isolate(t, "tenant-blue", &err), err);
    reuse_feed(t, tokens, n);
    assert_string_equal(json_string_value(json_object_get(expected, "candidate_decision")), "accept");
    assert_int_equal(lam_session_cached(t), json_integer_value(json_object_get(expected, "covered_end")));
    assert_int_equal(lam_session_cached(t), json_integer_value(json_object_get(expected, "first_suffix_row")));
    lam_session_free(t);
    s = fixture_session(r.bare, 40);
    assert_ok(lam_session_isolate(s, "tenant-blue", &err), err);
    reuse_feed(s, tokens, n);
    assert_int_equal(lam_session_cached(s), n - 1);
    reuse_future(s, again);
    assert_string_equal(base, again);
    shown.values += 3;
    lam_session_free(s);
    reuse_close(&r);
}

/* ---- faults of records ---- */

static const json_t *at_pointer(const json_t *root, const char *pointer)
{
    while (root && *pointer) {
        size_t n = strcspn(++pointer, "/");
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)n, pointer);
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(key)) : json_object_get(root, key);
        pointer += n;
    }
    return root;
}

static void test_record_faults(void **state)
{
    (void)state;
    size_t i;
    json_t *fault;
    json_array_foreach(json_object_get(whole, "negatives"), i, fault) {
        if (strcmp(json_string_value(json_object_get(fault, "surface")), "record") != 0) continue;
        const json_t *mutate = json_object_get(fault, "mutate");
        const json_t *got = at_pointer(produced(), json_string_value(json_object_get(mutate, "field")));
        if (!got || !json_equal(got, json_object_get(mutate, "from")) || json_equal(got, json_object_get(mutate, "to")))
            fail_msg("%s: %s", json_string_value(json_object_get(fault, "id")), json_string_value(json_object_get(mutate, "field")));
        shown.records++;
    }
}

/* ---- faults of states ---- */

/* Writes a saved session's file with another description or other tokens, sealed again. */
static void reseal(const char *from, const char *to, json_t *description, const uint32_t *tokens)
{
    lam_error err;
    struct lam_saved file;
    struct lam_str text = {0};
    size_t n;
    uint8_t *bytes = test_read_file(from, &n), header[LAM_SAVED_HEADER], digest[LAM_SHA256_BYTES];
    assert_ok(lam_saved_parse(bytes, n, &file, &err), err);
    assert_ok(lam_json_canonical(description, &text, &err), err);
    assert_ok(lam_saved_header(text.len, file.n_tokens, file.kv_bytes, file.logits_bytes, header, &err), err);
    struct lam_str out = {0};
    assert_true(lam_str_append(&out, header, sizeof header) && lam_str_append(&out, text.data, text.len));
    assert_true(lam_str_append(&out, tokens ? (const void *)tokens : file.tokens, file.n_tokens * 4));
    assert_true(lam_str_append(&out, file.kv, file.kv_bytes) && lam_str_append(&out, file.logits, file.logits_bytes));
    lam_sha256(out.data, out.len, digest);
    assert_true(lam_str_append(&out, digest, sizeof digest));
    fixture_write(to, out.data, out.len);
    lam_str_release(&out);
    lam_str_release(&text);
    free(bytes);
}

struct restoring {
    char good[512], bad[512];
    json_t *description;
    lam_composition *composition;
    const char *salt;
};

static void begin_restoring(struct restoring *r)
{
    lam_error err;
    struct lam_saved file;
    size_t n;
    *r = (struct restoring){.composition = all.with[ALORA_A2], .salt = "tenant-blue"};
    snprintf(r->good, sizeof r->good, "%s/good.session", all.folder);
    snprintf(r->bad, sizeof r->bad, "%s/bad.session", all.folder);
    uint32_t tokens[16];
    n = read_tokens(request_tokens(), tokens);
    lam_session *s = fixture_session(r->composition, 40);
    assert_ok(lam_session_isolate(s, r->salt, &err), err);
    reuse_feed(s, tokens, n);
    assert_ok(lam_session_save(s, r->good, &err), err);
    lam_session_free(s);
    uint8_t *bytes = test_read_file(r->good, &n);
    assert_ok(lam_saved_parse(bytes, n, &file, &err), err);
    assert_ok(lam_json_parse((const char *)file.description, file.description_len, r->good, &r->description, &err), err);
    free(bytes);
}

/* The code that restoring a file with this description gives. */
static lam_code restored(const struct restoring *r, const uint32_t *tokens)
{
    lam_error err;
    lam_session *s;
    reseal(r->good, r->bad, r->description, tokens);
    lam_code code = lam_session_restore(r->composition, r->bad, &(lam_restore_options){.salt = r->salt}, &s, &err);
    lam_session_free(s);
    return code;
}

/* Sets a member of the description's key, or of its graph; NULL takes it away. */
static lam_code with_key(const char *object, const char *key, json_t *value)
{
    struct restoring r;
    begin_restoring(&r);
    assert_int_equal(restored(&r, NULL), LAM_OK);
    json_t *at = r.description;
    if (object) at = json_object_get(at, "key");
    if (object && strcmp(object, "graph") == 0) at = json_object_get(at, "graph");
    if (value) json_object_set_new(at, key, value);
    else json_object_del(at, key);
    lam_code code = restored(&r, NULL);
    json_decref(r.description);
    return code;
}

static lam_code with_tokens(const uint32_t *tokens)
{
    struct restoring r;
    begin_restoring(&r);
    lam_code code = restored(&r, tokens);
    json_decref(r.description);
    return code;
}

/* The base's rows labelled as the adapter's. */
static lam_code with_other_execution(void)
{
    struct restoring r;
    begin_restoring(&r);
    json_t *runs = json_object_get(r.description, "execution");
    assert_int_equal(json_array_size(runs), 2);
    json_array_remove(runs, 0);
    lam_code code = restored(&r, NULL);
    json_decref(r.description);
    return code;
}

static lam_code feed_mutated(const uint32_t *tokens, size_t n)
{
    lam_error err;
    lam_session *s = fixture_session(all.with[ALORA_A2], 40);
    lam_code code = lam_session_feed(s, tokens, n, NULL, NULL, &err);
    assert_int_equal(lam_session_length(s), 0);
    lam_session_free(s);
    return code;
}

/* The rows and logits of a session's file under the labels of a session of `as`, which are sound in themselves: what a program that computes
 * wrongly, or one who forges, would leave. */
static lam_code restore_relabelled(lam_composition *as, const char *folder, const char *record)
{
    lam_error err;
    struct lam_saved file;
    char label[512], path[512];
    json_t *description;
    size_t n;
    lam_session *s = fed(as), *t;
    snprintf(label, sizeof label, "%s/label.session", folder);
    snprintf(path, sizeof path, "%s/relabelled.session", folder);
    assert_ok(lam_session_save(s, label, &err), err);
    lam_session_free(s);
    uint8_t *bytes = test_read_file(label, &n);
    assert_ok(lam_saved_parse(bytes, n, &file, &err), err);
    assert_ok(lam_json_parse((const char *)file.description, file.description_len, label, &description, &err), err);
    free(bytes);
    reseal(record, path, description, NULL);
    json_decref(description);
    lam_code code = lam_session_restore(as, path, NULL, &t, &err);
    assert_null(t);
    return code;
}

/* An adapter of the same name with other bytes: its sessions are told by them, or, relabelled, by what they hold. */
static lam_code restore_revised(unsigned place, const struct reuse_adapter *other, bool relabelled)
{
    lam_error err;
    lam_adapter *adapter;
    lam_composition *c;
    lam_session *s = fed(all.with[place]), *t;
    char path[512], file[512];
    size_t kept;
    snprintf(file, sizeof file, "%s/revised.session", all.folder);
    assert_ok(lam_session_save(s, file, &err), err);
    reuse_import(all.folder, all.base_path, other, path);
    assert_ok(lam_adapter_load(all.base, path, false, &adapter, &err), err);
    assert_ok(lam_compose(all.base, &adapter, (double[]){1.0}, 1, NULL, &c, &err), err);
    lam_code code = lam_session_restore(c, file, NULL, &t, &err);
    assert_null(t);
    if (relabelled) code = restore_relabelled(c, all.folder, file);
    assert_ok(lam_session_rebase(s, c, &kept, &err), err);
    assert_int_equal(kept, other->head ? 4 : 0);
    lam_session_free(s);
    lam_composition_free(c);
    lam_adapter_unload(adapter);
    return code;
}

static lam_code restore_fallback(void)
{
    lam_error err;
    char file[512];
    lam_session *s = fixture_session(all.with[ALORA_A2], 40), *t;
    snprintf(file, sizeof file, "%s/fallback.session", all.folder);
    lam_session_allow_base(s, true);
    reuse_feed(s, (const uint32_t[]){11, 12, 13}, 3);
    assert_ok(lam_session_save(s, file, &err), err);
    lam_session_free(s);
    lam_code code = lam_session_restore(all.with[ALORA_A2], file, NULL, &t, &err);
    assert_ok(lam_session_restore(all.with[ALORA_A2], file, &(lam_restore_options){.allow_base = true}, &s, &err), err);
    lam_session_free(s);
    return code;
}

static lam_code restore_logits_rule(void)
{
    struct restoring r;
    begin_restoring(&r);
    json_object_set_new(json_object_get(r.description, "logits"), "rule", json_pack("[s]", "hidden_closure"));
    lam_code code = restored(&r, NULL);
    json_decref(r.description);
    return code;
}

/* A copy of the float base in which one weight of this tensor has another sign. */
static void copy_with_other_weight(const char *tensor, const char *folder)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};
    lam_error err;
    char path[512];
    assert_ok(lam_make_dirs(folder, &err), err);
    for (size_t i = 0; i < 4; i++) {
        size_t n;
        snprintf(path, sizeof path, REUSE_BASE "/%s", files[i]);
        uint8_t *bytes = test_read_file(path, &n);
        if (i == 3) {
            json_t *header;
            size_t len = (size_t)lam_load_u64(bytes);
            assert_ok(lam_json_parse((const char *)bytes + 8, len, path, &header, &err), err);
            const json_t *at = json_array_get(json_object_get(json_object_get(header, tensor), "data_offsets"), 0);
            assert_true(json_is_integer(at));
            bytes[8 + len + (size_t)json_integer_value(at) + 3] ^= 0x80; /* float32, little-endian */
            json_decref(header);
        }
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        fixture_write(path, bytes, n);
        free(bytes);
    }
}

/* A session of the float base under one that differs in one weight of this tensor: under its own label, and relabelled. */
static lam_code restore_other_weights(const char *tensor)
{
    lam_error err;
    char folder[400], file[512];
    struct reuse one, other;
    lam_session *t;
    reuse_open(&one, REUSE_BASE, NULL, 0, NULL);
    lam_session *s = fed(one.bare);
    snprintf(folder, sizeof folder, "%s/changed", one.folder);
    snprintf(file, sizeof file, "%s/weights.session", one.folder);
    assert_ok(lam_session_save(s, file, &err), err);
    lam_session_free(s);
    copy_with_other_weight(tensor, folder);
    reuse_open(&other, folder, NULL, 0, NULL);
    assert_int_equal(lam_session_restore(other.bare, file, NULL, &t, &err), LAM_E_IDENTITY);
    lam_code code = restore_relabelled(other.bare, one.folder, file);
    reuse_close(&other);
    reuse_close(&one);
    return code;
}

/* Without any of what a session, the owner of its rows, needs to go on with them. */
static lam_code restore_unowned(void)
{
    static const char *const members[] = {"composition_id", "adapters", "starts", "stale", "draws"};
    lam_code code = with_key(NULL, members[0], NULL);
    for (size_t i = 1; i < sizeof members / sizeof *members; i++) assert_int_equal(with_key(NULL, members[i], NULL), code);
    return code;
}

/* ---- calls ---- */

static lam_code generate_with_beams(void)
{
    lam_error err;
    lam_sampling p;
    uint64_t draws;
    lam_session *s = fed(all.with[ALORA_A2]);
    lam_sampling_default(&p);
    assert_ok(lam_generate_with(s, &p, &(lam_generate_options){.n_beams = 1}, 1, NULL, NULL, NULL, &err), err);
    size_t n = lam_session_length(s);
    draws = s->n_draws;
    lam_code code = lam_generate_with(s, &p, &(lam_generate_options){.n_beams = 2}, 4, NULL, NULL, NULL, &err);
    assert_true(lam_session_length(s) == n && s->n_draws == draws);
    lam_session_free(s);
    return code;
}

static lam_code merge_activated(void)
{
    lam_error err;
    char path[512];
    snprintf(path, sizeof path, "%s/merged.slm", all.folder);
    lam_code code = lam_merge(all.with[ALORA_A2], path, NULL, NULL, &err);
    assert_false(lam_path_exists(path));
    return code;
}

/* ---- the steps of the prefix cache ---- */

enum wrong { EARLY_LOOK_UP, EARLY_FORK, NOT_FROZEN, PARTIAL_LAYERS, RELABELLED, TAINT_DROPPED, PARENT_LOST };

static lam_code misuse(enum wrong wrong)
{
    struct lam_prefix *p;
    struct lam_prefix_use use;
    struct lam_row_contract contract;
    struct lam_run *runs, other[4];
    struct lam_rows rows, label;
    struct lam_operators none = {.n_layers = 2};
    uint8_t base_operators[LAM_SHA256_BYTES];
    uint32_t tokens[600];
    lam_error err;
    lam_session *s = fixture_session(all.with[ALORA_A2], 620);
    fixture_tokens(4, 90, tokens, 600);
    tokens[300] = 99;
    tokens[301] = 100;
    reuse_feed(s, tokens, 600);
    assert_ok(lam_prefix_new(8u << 20, &p, &err), err);
    assert_ok(lam_operators_digest(&none, LAM_CLOSURE_ROWS, base_operators, &err), err);
    assert_ok(lam_session_rows(s, &contract, &runs, &rows, &err), err);
    assert_int_equal(rows.n_runs, 2);
    lam_prefix_begin(p, &rows, &use); /* all is well at first, and whole pages are there then */
    assert_ok(lam_prefix_authorise(&use, "", &err), err);
    assert_ok(lam_prefix_publish(&use, &rows, &s->kv, base_operators, &err), err);
    lam_prefix_end(&use);

    lam_code code = LAM_OK;
    struct lam_kv kv;
    label = rows;
    memcpy(other, runs, 2 * sizeof *runs);
    label.runs = other;
    assert_ok(lam_session_new_kv(s, s->composition, &kv, &err), err);
    lam_prefix_begin(p, &rows, &use);
    if (wrong == EARLY_LOOK_UP) code = lam_prefix_look_up(&use, 600, &err);
    assert_ok(lam_prefix_authorise(&use, "", &err), err);
    assert_ok(lam_prefix_look_up(&use, 590, &err), err);
    if (wrong == EARLY_FORK) code = lam_prefix_fork(&use, &kv, &err);
    assert_ok(lam_prefix_hold(&use, &err), err);
    assert_ok(lam_prefix_fork(&use, &kv, &err), err);
    assert_ok(lam_kv_write(&kv, 590, 600, &err), err);
    if (wrong == NOT_FROZEN) label.frozen = false;
    if (wrong == PARTIAL_LAYERS) label.complete_layers = 1;
    if (wrong == RELABELLED) other[1].operators[0] ^= 1;
    if (wrong == TAINT_DROPPED) memcpy(other[1].operators, base_operators, sizeof base_operators);
    if (wrong == PARENT_LOST) { /* the branch that was forked was written over */
        struct lam_kv_page *own;
        assert_ok(lam_kv_clone(&kv, kv.pages[0], &own, &err), err);
        lam_kv_drop(kv.pages[0]);
        kv.pages[0] = own;
    }
    if (code == LAM_OK) code = lam_prefix_publish(&use, &label, &kv, base_operators, &err);
    lam_prefix_end(&use);
    lam_kv_release(&kv);
    lam_free(runs);
    lam_prefix_free(p);
    lam_session_free(s);
    return code;
}

static json_t *names(const char *a, const char *b, const char *c, const char *d)
{
    return c ? json_pack("[s,s,s,s]", a, b, c, d) : json_pack("[s,s]", a, b);
}

/* What a fault of the fixture gives here. */
static const struct {
    const char *id;
    lam_code code;
} state_faults[] = {
    {"kv-09", LAM_E_KV_HIDDEN},      {"kv-10", LAM_E_KV_PROJECTION},       {"kv-13", LAM_E_KV_HEAD},         {"kv-21", LAM_E_INVOCATION},
    {"kv-22", LAM_E_INVOCATION_CUT}, {"kv-23", LAM_E_KV_GRAPH_LAYOUT},     {"kv-24", LAM_E_KV_CLOSURE_NARROW}, {"kv-25", LAM_E_KV_CLOSURE_WIDE},
    {"kv-26", LAM_E_KV_DEPTH},       {"kv-34", LAM_E_KV_REVISION},         {"kv-35", LAM_E_KV_KEY_EXECUTION}, {"kv-36", LAM_E_KV_KEY_PLACE},
    {"kv-37", LAM_E_KV_KEY_NAMESPACE}, {"kv-38", LAM_E_KV_OWNER},          {"kv-39", LAM_E_KV_TOKENS},       {"kv-40", LAM_E_KV_POSITIONS},
    {"kv-41", LAM_E_KV_BASE},        {"kv-42", LAM_E_KV_EXECUTION},        {"kv-43", LAM_E_KV_SCHEMA},       {"kv-44", LAM_E_KV_DTYPE},
    {"kv-45", LAM_E_KV_QUANTISATION}, {"kv-46", LAM_E_KV_SHARD},           {"kv-47", LAM_E_KV_ROPE},         {"kv-48", LAM_E_KV_SIDE_INPUTS},
    {"kv-49", LAM_E_KV_NAMESPACE},   {"kv-50", LAM_E_KV_COVERAGE},         {"kv-52", LAM_E_KV_UNAUTHORISED}, {"kv-53", LAM_E_BASE_FALLBACK},
    {"kv-54", LAM_E_KV_LOGITS},      {"kv-55", LAM_E_KV_RELABELLED},       {"kvx-01", LAM_E_NO_TOKENS},      {"kvx-02", LAM_E_BEAMS},
    {"kvx-03", LAM_E_KV_SUFFIX},     {"kvx-04", LAM_E_KV_PARENT},          {"kvx-05", LAM_E_KV_TAINT},       {"kvx-06", LAM_E_KV_RECEIPT},
    {"kvx-07", LAM_E_KV_GRAPH},      {"kvx-08", LAM_E_KV_VISIBILITY},      {"kvx-09", LAM_E_KV_FROZEN},      {"kvx-10", LAM_E_KV_LAYERS},
    {"kvx-11", LAM_E_MERGE_ACTIVATED},
};
#define N_STATE_FAULTS (sizeof state_faults / sizeof *state_faults)

static lam_code provoke(const char *id)
{
    static const struct reuse_adapter lora_revised = {"A", {ALL, ALL}, false, 21, {0}, 0, false}, head_revised = {"A", {0, 0}, true, 22, {0}, 0, false};
    const char *other_digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
#define IS(text) (strcmp(id, text) == 0)
    if (IS("kv-09")) return restore_other_weights("model.layers.0.self_attn.o_proj.weight");
    if (IS("kv-10")) return restore_other_weights("model.layers.1.self_attn.k_proj.weight");
    if (IS("kv-13")) return restore_revised(HEAD_A, &head_revised, true);
    if (IS("kv-21")) return feed_mutated((const uint32_t[]){11, 12, 99, 101}, 4);
    if (IS("kv-22")) return feed_mutated((const uint32_t[]){11, 12, 99}, 3);
    if (IS("kv-23")) return with_key("graph", "revision", json_string("parallel_v1"));
    if (IS("kv-24")) return with_key("graph", "earlier_layers", names("K", "V", NULL, NULL));
    if (IS("kv-25")) return with_key("graph", "same_layer", names("K", "O", "Q", "V"));
    if (IS("kv-26")) return with_key("graph", "layers", json_integer(1));
    if (IS("kv-34")) return restore_revised(LORA_A, &lora_revised, false);
    if (IS("kv-35")) return with_key(NULL, "execution", NULL);
    if (IS("kv-36")) return with_key("key", "slot_generation", json_integer(12));
    if (IS("kv-37")) return with_key("key", "namespace", NULL);
    if (IS("kv-38")) return restore_unowned();
    if (IS("kv-39")) return with_tokens((const uint32_t[]){11, 13, 99, 100});
    if (IS("kv-40")) return with_key(NULL, "first_position", json_integer(1));
    if (IS("kv-41")) return with_key("key", "base_digest", json_string(other_digest));
    if (IS("kv-42")) return with_other_execution();
    if (IS("kv-43")) return with_key("key", "schema", json_string("kv_row_v2"));
    if (IS("kv-44")) return with_key("key", "dtype", json_string("f32"));
    if (IS("kv-45")) return with_key("key", "quantisation", json_string("int8"));
    if (IS("kv-46")) return with_key("key", "shard", json_string("1/2"));
    if (IS("kv-47")) return with_key("key", "rope", json_string("rope_v2"));
    if (IS("kv-48")) return with_key("key", "side_inputs", json_string("image-1"));
    if (IS("kv-49")) return with_key("key", "namespace", json_string(other_digest));
    if (IS("kv-50")) return with_key(NULL, "covered_end", json_integer(6));
    if (IS("kv-52")) return misuse(EARLY_LOOK_UP);
    if (IS("kv-53")) return restore_fallback();
    if (IS("kv-54")) return restore_logits_rule();
    if (IS("kv-55")) return misuse(RELABELLED);
    if (IS("kvx-01")) return feed_mutated(NULL, 4);
    if (IS("kvx-02")) return generate_with_beams();
    if (IS("kvx-03")) return misuse(PARTIAL_LAYERS);
    if (IS("kvx-04")) return misuse(PARENT_LOST);
    if (IS("kvx-05")) return misuse(TAINT_DROPPED);
    if (IS("kvx-06")) return misuse(EARLY_FORK);
    if (IS("kvx-07")) return with_key("graph", "revision", json_string("serial_v0"));
    if (IS("kvx-08")) return with_key("key", "visibility", json_string("prefix_lm"));
    if (IS("kvx-09")) return misuse(NOT_FROZEN);
    if (IS("kvx-10")) return with_key(NULL, "complete_layers", json_integer(1));
    if (IS("kvx-11")) return merge_activated();
#undef IS
    return LAM_OK;
}

static void check_state_faults(const json_t *faults)
{
    size_t i;
    json_t *fault;
    json_array_foreach(faults, i, fault) {
        const char *id = json_string_value(json_object_get(fault, "id"));
        size_t k = 0;
        if (strcmp(json_string_value(json_object_get(fault, "surface")), "state") != 0) continue;
        while (k < N_STATE_FAULTS && strcmp(state_faults[k].id, id) != 0) k++;
        if (k == N_STATE_FAULTS) fail_msg("%s is not dealt with", id);
        lam_code code = provoke(id);
        if (code != state_faults[k].code) fail_msg("%s: %s, not %s", id, lam_code_name(code), lam_code_name(state_faults[k].code));
        shown.states++;
    }
}

static void test_state_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_STATE_FAULTS; i++)
        for (size_t k = 0; k < i; k++)
            if (state_faults[i].code == state_faults[k].code) fail_msg("%s and %s have one code", state_faults[k].id, state_faults[i].id);
    check_state_faults(json_object_get(whole, "negatives"));
    check_state_faults(json_object_get(whole, "extra_negatives"));
    assert_int_equal(misuse((enum wrong)99), LAM_OK); /* nothing wrong: published */
}

static size_t of_surface(const char *surface)
{
    static const char *const lists[] = {"negatives", "extra_negatives"};
    size_t i, n = 0;
    json_t *fault;
    for (size_t k = 0; k < 2; k++)
        json_array_foreach(json_object_get(whole, lists[k]), i, fault) n += strcmp(json_string_value(json_object_get(fault, "surface")), surface) == 0;
    return n;
}

/* After all others. An entry of "expected" counts once, however many numbers it has; "source_codes" only tells how many codes there are. */
static void test_count(void **state)
{
    (void)state;
    size_t values = json_object_size(expected) - 1, records = of_surface("record"), states = of_surface("state");
    print_message("kv_compat.json   positive entries %zu of %zu   faults of records %zu of %zu   faults of states %zu of %zu\n", shown.values, values,
                  shown.records, records, shown.states, states);
    assert_true(shown.values == values && shown.records == records && shown.states == states);
    assert_int_equal(records + states, 55 + 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_witness_and_head), cmocka_unit_test(test_activations), cmocka_unit_test(test_switches),
        cmocka_unit_test(test_interval_digests), cmocka_unit_test(test_affected),    cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_candidate),        cmocka_unit_test(test_record_faults), cmocka_unit_test(test_state_faults),
        cmocka_unit_test(test_count),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
