/* The worked case of tests/data/fixtures/lifecycle.json on the code that stages, publishes, leases and retires. Its two adapters run through the
 * linear layer; its handles, slots and generations are those of a real table that begins with its numbers. Faults of states are put into
 * real staged memory, a real publication or a real table, and refused there, each with its code; for faults of records the produced value
 * equals the right one and not the wrong one; claims are listed. */
#include "generation_case.h"

#include "fixture.h"
#include "worked_case.h"

#include "adapter/effective.h"
#include "adapter/factor.h"
#include "base/alloc.h"
#include "lamina/runtime.h"
#include "model/linear.h"
#include "run/objects.h"
#include "tensor/half.h"
#include "tensor/tiles.h"

#include <math.h>

#define FIXTURE "tests/data/fixtures/lifecycle.json"

static const char *text(const char *pointer) { return json_string_value(at(fixture, pointer)); }
static json_int_t integer(const char *pointer) { return json_integer_value(at(fixture, pointer)); }

/* "19/2", or an integer. */
static double fraction(const json_t *value)
{
    long above, below;
    if (json_is_integer(value)) return (double)json_integer_value(value);
    assert_int_equal(sscanf(json_string_value(value), "%ld/%ld", &above, &below), 2);
    return (double)above / (double)below;
}

static json_t *number(double v)
{
    char out[32];
    long below = 1;
    while (below < 16 && v * (double)below != (double)(long)(v * (double)below)) below *= 2;
    assert_true(v * (double)below == (double)(long)(v * (double)below));
    snprintf(out, sizeof out, "%ld/%ld", (long)(v * (double)below), below);
    return below == 1 ? json_integer((json_int_t)v) : json_string(out);
}

static json_t *numbers(const float *v, size_t n)
{
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(out, number((double)v[i]));
    return out;
}

/* ---- the arithmetic: W[2, 3] and an adapter, by the linear layer ---- */

struct small {
    struct lam_target target;
    struct lam_matrix w;
    struct lam_base_targets targets;
    struct lam_module module;
    struct lam_adapter adapter;
    struct lam_overlay overlay, bare;
    struct lam_pool *pool;
    const struct lam_kernels *kernels;
};

static void read_floats(const json_t *rows, size_t n_rows, size_t n_cols, float *out)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_cols; c++) out[r * n_cols + c] = (float)fraction(json_array_get(json_array_get(rows, r), c));
}

static const float *no_bias(const void *context, const struct lam_target *t) { (void)context, (void)t; return NULL; }

/* rank: rows of A and columns of B that are staged. */
static void small_open(struct small *s, const char *name, uint32_t rank)
{
    float w[6], a[6], b[4], packed[4];
    lam_error err;
    const json_t *adapter = json_object_get(fixture, name);
    memset(s, 0, sizeof *s);
    read_floats(json_object_get(fixture, "W"), 2, 3, w);
    read_floats(json_object_get(adapter, "A"), 2, 3, a);
    read_floats(json_object_get(adapter, "B"), 2, 2, b);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t k = 0; k < rank; k++) packed[r * rank + k] = b[r * 2 + k];
    assert_true(lam_tile_stride(LAM_F32, 3, &s->w.stride));
    uint8_t *tile = lam_alloc_aligned(s->w.stride);
    lam_tile_rows(LAM_F32, 3, (const uint8_t *)w, 2, tile);
    s->w.dtype = LAM_F32;
    s->w.rows = 2;
    s->w.cols = 3;
    s->w.tiles = tile;
    s->w.target = &s->target;
    s->target = (struct lam_target){.name = "proj", .role = LAM_ROLE_Q, .rows = 2, .cols = 3, .dtype = LAM_F32, .matrix = &s->w};
    s->targets = (struct lam_base_targets){.base_digest = "", .items = &s->target, .n_items = 1};
    s->module = (struct lam_module){.target = &s->target, .method = LAM_METHOD_LORA};
    s->module.lora.rank = rank;
    s->module.lora.alpha = fraction(json_object_get(adapter, "scale")) * rank;
    assert_ok(lam_factor_stage(a, rank, 3, false, NULL, &s->module.lora.a, &err), err);
    assert_ok(lam_factor_stage(packed, 2, rank, false, NULL, &s->module.lora.b, &err), err);
    s->adapter = (struct lam_adapter){.name = (char *)name, .modules = &s->module, .n_modules = 1};
    struct lam_stack_item item = {.adapter = &s->adapter, .weight = 1, .active = true};
    struct lam_stack stack = {.items = &item, .n = 1}, none = {.n = 0};
    assert_ok(lam_overlay_build(&s->targets, &stack, no_bias, NULL, &s->overlay, &err), err);
    assert_ok(lam_overlay_build(&s->targets, &none, no_bias, NULL, &s->bare, &err), err);
    assert_ok(lam_pool_new(1, &s->pool, &err), err);
    assert_ok(lam_kernels_pick(NULL, &s->kernels, &err), err);
}

static void small_close(struct small *s)
{
    lam_overlay_release(&s->overlay);
    lam_overlay_release(&s->bare);
    lam_factor_release(&s->module.lora.a);
    lam_factor_release(&s->module.lora.b);
    lam_free_aligned((uint8_t *)s->w.tiles);
    lam_pool_free(s->pool);
}

/* y[2] = x[3] · (W + Δ)ᵀ, or by W alone. */
static void small_run(const struct small *s, bool with, const float *x, float y[2])
{
    struct lam_linear_scratch scratch = {0};
    lam_error err;
    float *in = lam_alloc_aligned(64), *out = lam_alloc_aligned(64);
    const struct lam_overlay *overlay = with ? &s->overlay : &s->bare;
    atomic_bool failed = false;
    memcpy(in, x, 3 * sizeof *x);
    struct lam_linear linear = {.w = &s->w, .y = out, .y_stride = 16};
    struct lam_linear_call call = {.x = in, .x_stride = 16, .n_rows = 1, .overlays = &overlay, .linears = &linear, .n = 1, .failed = &failed};
    assert_ok(lam_linear_run(&scratch, s->pool, s->kernels, &call, &err), err);
    memcpy(y, out, 2 * sizeof *y);
    lam_linear_scratch_release(&scratch);
    lam_free_aligned(in);
    lam_free_aligned(out);
}

/* The weights as they act: a column for each unit vector; less the base's if that is asked for. */
static json_t *acting(const struct small *s, bool with, bool less_base)
{
    float w[2][3], y[2], z[2];
    for (size_t k = 0; k < 3; k++) {
        float x[3] = {k == 0, k == 1, k == 2};
        small_run(s, with, x, y);
        small_run(s, false, x, z);
        for (size_t r = 0; r < 2; r++) w[r][k] = less_base ? y[r] - z[r] : y[r];
    }
    return json_pack("[o,o]", numbers(w[0], 3), numbers(w[1], 3));
}

static json_t *output(const struct small *s, const char *name)
{
    float x[3], y[2];
    for (size_t k = 0; k < 3; k++) x[k] = (float)fraction(json_array_get(json_object_get(json_object_get(fixture, name), "x"), k));
    small_run(s, true, x, y);
    return numbers(y, 2);
}

/* ---- a table with the fixture's numbers, and its switch from slot 7 to slot 8 ---- */

struct holding {
    struct small *payload;
    size_t bytes;
};

static size_t held_bytes, most_bytes; /* of payloads, and of the record of a publication */
static void hold_bytes(size_t n) { held_bytes += n; most_bytes = held_bytes > most_bytes ? held_bytes : most_bytes; }
static void drop_payload(void *payload) { held_bytes -= ((struct holding *)payload)->bytes; }

struct switching {
    struct lam_generations table;
    struct small small[2];        /* old, new */
    struct holding holding[2];
    struct lam_handle old;        /* request-old's lease */
    struct lam_publication p;     /* of new: all done but the store */
};

static void set_slot(struct lam_generations *g, uint32_t slot, uint64_t generation, uint64_t pointer)
{
    atomic_store(&g->slots[slot].tag, generation << 3 | LAM_SLOT_FREE);
    atomic_store(&g->slots[slot].pointer_generation, pointer);
}

static void switching_open(struct switching *s)
{
    lam_error err;
    memset(s, 0, sizeof *s);
    held_bytes = most_bytes = 0;
    small_open(&s->small[0], "old", 2);
    small_open(&s->small[1], "new", 1);
    for (size_t i = 0; i < 2; i++) s->holding[i] = (struct holding){&s->small[i], (size_t)integer(i ? "/memory/new" : "/memory/old")};
    assert_ok(lam_generations_init(&s->table, &err), err);
    /* one before what the old handle says, as reserving and publishing advance them; slot 8 as it says */
    set_slot(&s->table, 7, (uint64_t)integer("/before/handle/slot_generation") - 1, (uint64_t)integer("/before/handle/pointer_generation") - 1);
    set_slot(&s->table, 8, (uint64_t)integer("/before/slots/8/slot_generation"), (uint64_t)integer("/before/slots/8/pointer_generation"));
    s->table.next = 7;
    s->table.catalogue = (uint64_t)integer("/before/catalog_generation") - 1;
    hold_bytes(s->holding[0].bytes);
    assert_ok(generation_publish(&s->table, text("/old/digest"), &s->holding[0], drop_payload, &err), err);
    assert_ok(lam_generations_acquire(&s->table, &s->old, &err), err);
    assert_ok(lam_generations_use_begin(&s->table, &s->old, &err), err); /* last_use_complete: false */
    hold_bytes((size_t)integer("/memory/metadata"));
    hold_bytes(s->holding[1].bytes);
    assert_ok(generation_stage(&s->table, text("/new/digest"), &s->holding[1], drop_payload, &s->p, &err), err);
}

static void switching_close(struct switching *s)
{
    lam_generations_release(&s->table);
    small_close(&s->small[0]);
    small_close(&s->small[1]);
}

static json_t *handle_json(const struct lam_handle *h)
{
    return json_pack("{s:I,s:I,s:I,s:s}", "slot", (json_int_t)h->slot, "slot_generation", (json_int_t)h->slot_generation,
                     "pointer_generation", (json_int_t)h->pointer_generation, "digest", h->digest);
}

static const char *state_name(const struct lam_slot *s)
{
    static const char *const names[] = {"free", "loading", "active", "retiring", "reclaiming"};
    return names[lam_slot_state(s)];
}

/* What the lease's generation computes for its request's input. */
static json_t *answer(struct switching *s, const struct lam_handle *h)
{
    const struct holding *held = lam_generations_payload(&s->table, h);
    return output(held->payload, held->payload == &s->small[0] ? "old" : "new");
}

static json_t *produce_switch(void)
{
    struct switching s;
    struct lam_handle new;
    lam_error err;
    switching_open(&s);
    json_t *before = json_pack("{s:I,s:o}", "catalog_generation", (json_int_t)s.table.catalogue, "handle", handle_json(&s.table.current));
    struct lam_handle kept = s.old;
    assert_ok(lam_publication_publish(&s.p, &err), err);
    held_bytes -= (size_t)integer("/memory/metadata");
    assert_ok(lam_generations_acquire(&s.table, &new, &err), err);
    assert_ok(lam_generations_check(&s.table, &s.old, &err), err);
    json_t *after = json_pack("{s:I,s:o,s:{s:o,s:o},s:{s:s,s:s},s:{s:o,s:o},s:b}", "catalog_generation", (json_int_t)s.table.catalogue, "handle",
                              handle_json(&s.table.current), "leases", "request-old", handle_json(&s.old), "request-new", handle_json(&new),
                              "slot_states", "7", state_name(&s.table.slots[7]), "8", state_name(&s.table.slots[8]), "outputs", "request-old",
                              answer(&s, &s.old), "request-new", answer(&s, &new), "alias_resolved_per_decode",
                              !lam_handle_same(&kept, &s.old));
    json_t *memory = json_pack("{s:I}", "peak", (json_int_t)most_bytes);
    lam_generations_use_end(&s.table, &s.old);
    assert_string_equal(state_name(&s.table.slots[7]), "retiring");
    assert_ok(lam_generations_give_back(&s.table, &s.old, &err), err);
    json_t *retire = json_pack("{s:I,s:I,s:s}", "slot_generation_after", (json_int_t)lam_slot_generation(&s.table.slots[7]),
                               "pointer_generation_after", (json_int_t)atomic_load(&s.table.slots[7].pointer_generation), "state_after",
                               state_name(&s.table.slots[7]));
    assert_ok(lam_generations_give_back(&s.table, &new, &err), err);
    /* back to the old one: another publication, never the old number */
    assert_ok(generation_publish(&s.table, text("/old/digest"), &s.holding[0], drop_payload, &err), err);
    json_t *recovery = json_pack("{s:s,s:I}", "mode", s.table.catalogue == 10 ? "publish_new_generation" : "?", "catalog_generation",
                                 (json_int_t)s.table.catalogue);
    switching_close(&s);
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "before", before, "after", after, "memory", memory, "retire", retire, "post_publish_recovery",
                     recovery);
}

static json_t *produce_abort(void)
{
    struct switching s;
    struct lam_handle shadow, now;
    lam_error err;
    switching_open(&s);
    shadow = s.p.handle;
    lam_publication_abort(&s.p);
    assert_ok(lam_generations_acquire(&s.table, &now, &err), err);
    json_t *out = json_pack("{s:I,s:o,s:o,s:b,s:s,s:I,s:I,s:b}", "catalog_generation", (json_int_t)s.table.catalogue, "handle",
                            handle_json(&s.table.current), "output_old", answer(&s, &now), "shadow_visible",
                            lam_generations_visible(&s.table) == shadow.slot, "shadow_state", state_name(&s.table.slots[shadow.slot]),
                            "slot_generation_after", (json_int_t)lam_slot_generation(&s.table.slots[shadow.slot]), "pointer_generation_after",
                            (json_int_t)atomic_load(&s.table.slots[shadow.slot].pointer_generation), "bindable",
                            lam_generations_check(&s.table, &shadow, &err) == LAM_OK);
    assert_ok(lam_generations_give_back(&s.table, &now, &err), err);
    lam_generations_use_end(&s.table, &s.old);
    assert_ok(lam_generations_give_back(&s.table, &s.old, &err), err);
    switching_close(&s);
    return out;
}

/* What Lamina's own operations do, of those that the fixture tells apart. */
static json_t *produce_operations(const struct small *s, const json_t *after, const json_t *recovery)
{
    uint8_t before[256];
    memcpy(before, s->w.tiles, s->w.stride);
    json_t *live = acting(s, true, false), *bare = acting(s, false, false);
    bool base_kept = memcmp(before, s->w.tiles, s->w.stride) == 0;
    json_t *out = json_pack("{s:{s:s},s:{s:s},s:{s:s}}", "live", "weights",
                            base_kept && json_equal(live, at(expected, "/merged_old")) ? "base_plus_factors" : "delta_added", "unload", "weights",
                            json_equal(bare, at(fixture, "/W")) ? "plain_base" : "plain_merged", "generation_swap", "rollback",
                            json_integer_value(at(recovery, "/catalog_generation")) > json_integer_value(at(after, "/catalog_generation"))
                                ? "publish_another" : "unmerge");
    json_decref(live);
    json_decref(bare);
    return out;
}

static json_t *produced(void)
{
    static json_t *cache; /* it is used by two tests */
    if (cache) return cache;
    struct small old, new;
    small_open(&old, "old", 2);
    small_open(&new, "new", 1);
    cache = produce_switch();
    float base = (float)integer("/binary16/base"), delta = (float)integer("/binary16/delta");
    float merged = lam_f16_to_f32(lam_f32_to_f16(base + delta)), unmerged = lam_f16_to_f32(lam_f32_to_f16(merged - delta));
    json_object_set_new(cache, "abort", produce_abort());
    json_object_set_new(cache, "old", json_pack("{s:o,s:o}", "delta", acting(&old, true, true), "y", output(&old, "old")));
    json_object_set_new(cache, "new", json_pack("{s:o,s:o}", "delta", acting(&new, true, true), "y", output(&new, "new")));
    json_object_set_new(cache, "merged", json_pack("[o,o]", acting(&old, true, false), acting(&new, true, false)));
    json_object_set_new(cache, "binary16", json_pack("{s:o,s:o,s:b,s:b}", "merged", number((double)merged), "unmerged", number((double)unmerged),
                                                     "finite", isfinite(merged) && isfinite(unmerged), "round_trip_exact", unmerged == base));
    json_object_set_new(cache, "operations",
                        produce_operations(&old, json_object_get(cache, "after"), json_object_get(cache, "post_publish_recovery")));
    small_close(&old);
    small_close(&new);
    return cache;
}

/* ---- expected values ---- */

static void assert_json(const json_t *got, const json_t *want, const char *what)
{
    if (want && json_equal(got, want)) return;
    char *a = json_dumps(got, JSON_ENCODE_ANY), *b = json_dumps(want, JSON_ENCODE_ANY);
    fail_msg("%s: %s, not %s", what, a, b);
}

static void test_values(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"/old/delta", "/old_delta"}, {"/old/y", "/old_y"}, {"/new/delta", "/new_delta"}, {"/new/y", "/new_y"}, {"/merged/0", "/merged_old"},
        {"/merged/1", "/merged_new"}, {"/before", "/before"}, {"/after/catalog_generation", "/after/catalog_generation"},
        {"/after/handle", "/after/handle"}, {"/after/slot_states/7", "/after/slot_7"}, {"/after/slot_states/8", "/after/slot_8"},
        {"/abort/catalog_generation", "/abort/catalog_generation"}, {"/abort/handle", "/abort/handle"}, {"/abort/output_old", "/abort/old_y"},
        {"/binary16/merged", "/binary16/merged"}, {"/binary16/unmerged", "/binary16/unmerged"}, {"/binary16/finite", "/binary16/finite"}};
    static const char *const whole_records[] = {"/after", "/abort", "/memory/peak", "/retire/slot_generation_after", "/retire/pointer_generation_after",
                                                "/retire/state_after", "/post_publish_recovery/catalog_generation", "/post_publish_recovery/mode"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) assert_json(at(produced(), pairs[i][0]), at(expected, pairs[i][1]), pairs[i][0]);
    for (size_t i = 0; i < sizeof whole_records / sizeof *whole_records; i++) {
        json_t *got = json_deep_copy(at(produced(), whole_records[i])), *want = at(fixture, whole_records[i]);
        if (json_is_object(got)) json_object_set(got, "stage", json_object_get(want, "stage")); /* where the fixture stops: a label */
        if (json_is_object(got) && !json_object_get(want, "stage")) json_object_del(got, "stage");
        assert_json(got, want, whole_records[i]);
        json_decref(got);
    }
    size_t i;
    json_t *row;
    json_array_foreach(at(expected, "/reclaim_truth_table"), i, row) {
        struct lam_reclaim r = {.state = LAM_SLOT_RETIRING, .leases = json_integer_value(json_object_get(row, "refcount")),
                                .uses = !json_is_true(json_object_get(row, "last_use")), .slot_generation_after = 1, .pointer_generation_after = 1};
        assert_int_equal(lam_reclaim_check(&r, NULL) == LAM_OK, json_is_true(json_object_get(row, "reclaim")));
    }
}

/* ---- faults ---- */

/* Why a fault cannot happen here; NULL: it can. */
static const char *no_place(const char *id)
{
    static const char *const reasons[][2] = {
        {"life-07", "no caller hands in an activation: its width is the base's"},
        {"life-24", "nothing is ever unmerged"},
        {"life-25", "nothing is merged into loaded weights"},
        {"life-26", "nothing is merged into loaded weights"},
        {"life-30", "a merged base's identity is computed from what was merged"},
        {"life-31", "a merged base's identity is computed from what was merged"},
        {"life-32", "a merged base's identity is computed from what was merged"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (strcmp(reasons[i][0], id) == 0) return reasons[i][1];
    return NULL;
}

static void check_record(const json_t *fault, const char *id)
{
    const json_t *mutate = json_object_get(fault, "mutate");
    const char *field = json_string_value(json_object_get(mutate, "field"));
    const json_t *got = at(produced(), field);
    if (!got || !json_equal(got, json_object_get(mutate, "from")) || json_equal(got, json_object_get(mutate, "to"))) fail_msg("%s: %s", id, field);
}

/* ---- faults in staged memory, by a real runtime ---- */

struct real {
    struct fixture f;
    lam_runtime *runtime;
    lam_adapter *adapter;
    lam_composition *composition;
};

#define RANK_7 "tests/golden/adapters/llama-gqa/rank-7" /* 7 of 16 lanes, and an odd column */
#define DORA "tests/golden/methods/llama-gqa/dora"      /* bytes of no factor, too */

static void real_open(struct real *r, const char *source)
{
    lam_error err;
    memset(r, 0, sizeof *r);
    fixture_import(&r->f, "tests/golden/llama-gqa/llama-gqa-q4_0.gguf", &source, 1);
    assert_ok(lam_engine_new(&(lam_engine_options){.threads = 1}, &r->f.engine, &err), err);
    assert_ok(lam_runtime_new(r->f.engine, &r->runtime, &err), err);
    assert_ok(lam_runtime_load(r->runtime, r->f.base_path, LAM_VERIFY_FULL, &err), err);
    assert_ok(lam_adapter_load(lam_runtime_base(r->runtime), r->f.adapter_paths[0], false, &r->adapter, &err), err);
    assert_ok(lam_runtime_compose(r->runtime, &r->adapter, (double[]){1}, 1, NULL, &r->composition, &err), err);
}

static void real_close(struct real *r)
{
    lam_composition_free(r->composition);
    lam_adapter_unload(r->adapter);
    lam_runtime_free(r->runtime);
    fixture_close(&r->f);
    fixture_remove(&r->f);
}

/* Bytes of A's and B's first tiles that are padding: lane 8 of the first scales, lane 8 of the first values, and the half of the pair behind the
 * last of 7 columns. */
static uint8_t *scale_padding(struct lam_lora *l) { return l->a.tiles + 4 * 8; }
static uint8_t *a_padding(struct lam_lora *l) { return l->a.tiles + 64 + 4 * 8; }
static uint8_t *b_padding(struct lam_lora *l) { return l->b.tiles + 64 + 64 * 3 + 2; }

/* Another matrix of the same kind. */
static const struct lam_target *elsewhere(const struct lam_target *t)
{
    const struct lam_target *other = t + 1;
    while (other->role != t->role) other++;
    return other;
}

static void damage(struct lam_module *m, const char *id)
{
    struct lam_lora *l = &m->lora;
#define IS(name) (strcmp(id, name) == 0)
    if (IS("life-02") || IS("life-09")) l->a.tiles[0] ^= 1;
    if (IS("life-03") || IS("life-10")) l->b.tiles[64] ^= 1;
    if (IS("life-04") || IS("life-11")) l->alpha *= 2;
    if (IS("life-08")) l->rank--;
    if (IS("life-16")) l->rank++;
    if (IS("life-17")) l->a.rows--;
    if (IS("life-54")) l->a.quantised = false;
    if (IS("life-14")) *a_padding(l) = 1;
    if (IS("life-15")) *b_padding(l) = 1;
    if (IS("life-55")) *scale_padding(l) = 1;
    if (IS("life-53")) m->dora.magnitude[0] *= 2;
    if (IS("life-18")) m->target = elsewhere(m->target);
    if (IS("life-56")) memcpy(l->a.tiles, &(float){INFINITY}, sizeof(float));
    if (IS("life-57")) m->method = LAM_METHOD_NONE;
    if (IS("life-58")) l->b.tiles = NULL;
#undef IS
}

/* What is to be active next. */
static lam_code activate_next(struct real *r, lam_generation *out, lam_error *err)
{
    return lam_runtime_activate(r->runtime, r->composition, NULL, out, err);
}

/* What was active before. */
static lam_code go_back(struct real *r, lam_generation *out, lam_error *err) { return lam_runtime_rollback(r->runtime, out, err); }

/* Damage in memory is refused by the step, which changes nothing; undone, it goes. */
static lam_code step_damaged(struct real *r, const char *id, lam_code (*step)(struct real *, lam_generation *, lam_error *))
{
    lam_error err;
    lam_generation before, after;
    struct lam_module *m = &r->adapter->staged->modules[0], was = *m;
    uint8_t a[128], b[64 * 5];
    float magnitude = was.dora.magnitude ? was.dora.magnitude[0] : 0;
    memcpy(a, was.lora.a.tiles, sizeof a);
    memcpy(b, was.lora.b.tiles, sizeof b);
    assert_ok(lam_runtime_current(r->runtime, &before, &err), err);
    damage(m, id);
    lam_code code = step(r, NULL, &err);
    assert_ok(lam_runtime_current(r->runtime, &after, &err), err);
    assert_int_equal(before.catalogue, after.catalogue);
    assert_string_equal(before.composition_id, after.composition_id);
    *m = was;
    if (m->dora.magnitude) m->dora.magnitude[0] = magnitude;
    memcpy(was.lora.a.tiles, a, sizeof a);
    memcpy(was.lora.b.tiles, b, sizeof b);
    lam_generation now;
    assert_ok(step(r, &now, &err), err);
    assert_int_equal(now.catalogue, before.catalogue + 1);
    return code;
}

static lam_code activate_damaged(const char *id)
{
    struct real r;
    bool dora = strcmp(id, "life-53") == 0;
    real_open(&r, dora ? DORA : RANK_7);
    struct lam_lora *l = &r.adapter->staged->modules[0].lora;
    if (!dora) assert_true(l->rank == 7 && l->b.quantised && *a_padding(l) == 0 && *b_padding(l) == 0 && *scale_padding(l) == 0);
    lam_code code = step_damaged(&r, id, activate_next);
    real_close(&r);
    return code;
}

/* The old one is the way back: it is active, then the base is, then it is damaged. */
static lam_code go_back_damaged(const char *id)
{
    struct real r;
    lam_error err;
    lam_composition *base;
    real_open(&r, RANK_7);
    assert_ok(lam_runtime_activate(r.runtime, r.composition, NULL, NULL, &err), err);
    assert_ok(lam_runtime_compose(r.runtime, NULL, NULL, 0, NULL, &base, &err), err);
    assert_ok(lam_runtime_activate(r.runtime, base, NULL, NULL, &err), err);
    lam_code code = step_damaged(&r, id, go_back);
    lam_composition_free(base);
    real_close(&r);
    return code;
}

/* The base's file with another byte among its weights. */
static lam_code load_drifted_base(void)
{
    struct real r;
    lam_error err;
    lam_runtime *other;
    char path[600];
    real_open(&r, RANK_7);
    size_t size;
    uint8_t *bytes = test_read_file(r.f.base_path, &size);
    struct lam_slm *file = lam_runtime_base(r.runtime)->model->file;
    bytes[(size_t)(file->data - file->file.data) + file->data_bytes / 2] ^= 1;
    snprintf(path, sizeof path, "%s/drifted.slm", r.f.folder);
    fixture_write(path, bytes, size);
    free(bytes);
    assert_ok(lam_runtime_new(r.f.engine, &other, &err), err);
    lam_code code = lam_runtime_load(other, path, LAM_VERIFY_FULL, &err);
    assert_null(lam_runtime_base(other));
    lam_runtime_free(other);
    real_close(&r);
    return code;
}

/* Another adapter under the active composition's id. */
static lam_code activate_alias(void)
{
    struct real r;
    lam_error err;
    lam_composition *other;
    real_open(&r, RANK_7);
    assert_ok(lam_runtime_activate(r.runtime, r.composition, NULL, NULL, &err), err);
    assert_ok(lam_runtime_compose(r.runtime, NULL, NULL, 0, NULL, &other, &err), err);
    memcpy(other->id, r.composition->id, sizeof other->id);
    lam_code code = lam_runtime_activate(r.runtime, other, NULL, NULL, &err);
    lam_composition_free(other);
    real_close(&r);
    return code;
}

/* ---- faults in a publication, a table or a lease ---- */

static lam_code publish_mutated(const char *id)
{
    struct switching s;
    lam_error err;
    struct lam_publication good;
    switching_open(&s);
    good = s.p;
    struct lam_handle current = s.table.current;
    uint64_t word = atomic_load(&s.table.word), catalogue = s.table.catalogue;
#define IS(name) (strcmp(id, name) == 0)
    if (IS("life-33")) s.table.catalogue = 9;
    if (IS("life-34")) s.table.current.slot_generation = 11;
    if (IS("life-35")) s.table.current.pointer_generation = 30;
    if (IS("life-36")) strcpy(s.table.current.digest, "new");
    if (IS("life-37")) s.table.current.slot = 8;
    if (IS("life-39")) s.p.shadow_state = LAM_SLOT_PUBLISHED;
    if (IS("life-40")) s.p.shadow_slot_generation = 21;
    if (IS("life-41")) s.p.shadow_pointer_generation = 41;
    if (IS("life-50")) s.p.expected.slot_generation = 11;
    if (IS("life-51")) s.p.shadow = 7;
    if (IS("life-52")) s.p.staged.n_begun = 1;
    if (IS("life-59")) atomic_store(&s.table.word, (uint64_t)8 << LAM_GENERATION_COUNT_BITS);
    if (IS("life-83")) s.p.catalogue = 7;
    if (IS("life-60")) assert_ok(lam_publication_publish(&s.p, &err), err);
#undef IS
    lam_code code = lam_publication_publish(&s.p, &err);
    if (strcmp(id, "life-60") != 0) { /* undone, it goes */
        s.table.current = current;
        s.table.catalogue = catalogue;
        atomic_store(&s.table.word, word);
        s.p = good;
        assert_ok(lam_publication_publish(&s.p, &err), err);
    }
    assert_int_equal(s.table.catalogue, 9);
    lam_generations_use_end(&s.table, &s.old);
    assert_ok(lam_generations_give_back(&s.table, &s.old, &err), err);
    switching_close(&s);
    return code;
}

static lam_code use_mutated(const char *id)
{
    struct switching s;
    lam_error err;
    switching_open(&s);
    struct lam_handle h = s.old;
    if (strcmp(id, "life-42") == 0) {
        lam_publication_abort(&s.p); /* slot 8 is free, as the fixture has it */
        h.slot = 8;
    }
    if (strcmp(id, "life-43") == 0) h.pointer_generation = 41;
    if (strcmp(id, "life-38") == 0) atomic_fetch_sub(&s.table.slots[7].leases, 1);
    lam_code code = lam_generations_use_begin(&s.table, &h, &err);
    assert_int_equal(atomic_load(&s.table.slots[7].uses), 1); /* nothing was begun */
    if (strcmp(id, "life-38") == 0) atomic_fetch_add(&s.table.slots[7].leases, 1);
    assert_ok(lam_generations_use_begin(&s.table, &s.old, &err), err);
    lam_generations_use_end(&s.table, &s.old);
    lam_generations_use_end(&s.table, &s.old);
    assert_ok(lam_generations_give_back(&s.table, &s.old, &err), err);
    lam_publication_abort(&s.p);
    switching_close(&s);
    return code;
}

/* The steps in another order: the first that is refused. */
static lam_code order_mutated(const json_t *order)
{
    static const char *const names[LAM_PUBLICATION_STEPS] = {"resolve_old", "validate_artifact", "reserve_shadow", "zero_tail", "copy_all_modules",
                                                             "validate_staged", "record_event", "wait_event", "freeze_handle",
                                                             "compare_and_publish", "mark_active", "mark_retiring"};
    struct lam_publication p = {.shadow = LAM_NO_SLOT};
    size_t i;
    json_t *name;
    json_array_foreach(order, i, name) {
        int step = 0;
        while (strcmp(names[step], json_string_value(name)) != 0) step++;
        lam_code code = lam_publication_step(&p, (enum lam_publication_step)step, NULL);
        if (code != LAM_OK) return code;
    }
    return LAM_OK;
}

static lam_code reclaim_mutated(const char *id)
{
    struct lam_reclaim r = {.state = LAM_SLOT_RETIRING, .leases = integer("/retire/refcount"), .uses = 0,
                            .slot_generation = (uint64_t)integer("/before/handle/slot_generation"),
                            .pointer_generation = (uint64_t)integer("/before/handle/pointer_generation"),
                            .slot_generation_after = (uint64_t)integer("/retire/slot_generation_after"),
                            .pointer_generation_after = (uint64_t)integer("/retire/pointer_generation_after")};
    assert_int_equal(lam_reclaim_check(&r, NULL), LAM_OK);
    if (strcmp(id, "life-73") == 0) r.leases = 1;
    if (strcmp(id, "life-74") == 0) r.uses = 1;
    if (strcmp(id, "life-75") == 0) r.slot_generation_after = 12;
    if (strcmp(id, "life-76") == 0) r.pointer_generation_after = 31;
    return lam_reclaim_check(&r, NULL);
}

static const struct state_fault {
    const char *id;
    lam_code code;
    lam_code (*provoke)(const char *id);
} state_faults[] = {
    {"life-02", LAM_E_GEN_PREVIOUS_A, go_back_damaged},     {"life-03", LAM_E_GEN_PREVIOUS_B, go_back_damaged},
    {"life-04", LAM_E_GEN_PREVIOUS_SCALE, go_back_damaged}, {"life-08", LAM_E_GEN_STAGED_RANK, go_back_damaged},
    {"life-09", LAM_E_GEN_STAGED_A, activate_damaged},      {"life-10", LAM_E_GEN_STAGED_B, activate_damaged},
    {"life-11", LAM_E_GEN_STAGED_SCALE, activate_damaged},  {"life-14", LAM_E_GEN_STAGED_TAIL_A, activate_damaged},
    {"life-15", LAM_E_GEN_STAGED_TAIL_B, activate_damaged}, {"life-16", LAM_E_GEN_STAGED_RANK_ABOVE, activate_damaged},
    {"life-17", LAM_E_GEN_STAGED_EXTENT, activate_damaged}, {"life-18", LAM_E_GEN_STAGED_TARGETS, activate_damaged},
    {"life-33", LAM_E_GEN_CATALOGUE, publish_mutated},      {"life-34", LAM_E_GEN_CATALOGUE_GENERATION, publish_mutated},
    {"life-35", LAM_E_GEN_CATALOGUE_POINTER, publish_mutated}, {"life-36", LAM_E_GEN_CATALOGUE_DIGEST, publish_mutated},
    {"life-37", LAM_E_GEN_CATALOGUE_SLOT, publish_mutated}, {"life-38", LAM_E_GEN_LEASE_UNCOUNTED, use_mutated},
    {"life-39", LAM_E_GEN_SHADOW_USED, publish_mutated},    {"life-40", LAM_E_GEN_SHADOW_GENERATION, publish_mutated},
    {"life-41", LAM_E_GEN_SHADOW_POINTER, publish_mutated}, {"life-42", LAM_E_GEN_LEASE_SLOT, use_mutated},
    {"life-43", LAM_E_GEN_LEASE_POINTER, use_mutated},      {"life-50", LAM_E_GEN_STALE, publish_mutated},
    {"life-51", LAM_E_GEN_SHADOW_LIVE, publish_mutated},    {"life-52", LAM_E_GEN_PENDING, publish_mutated},
    {"life-53", LAM_E_GEN_STAGED_DIGEST, activate_damaged}, {"life-54", LAM_E_GEN_STAGED_LAYOUT, activate_damaged},
    {"life-55", LAM_E_GEN_STAGED_TAIL, activate_damaged},   {"life-56", LAM_E_GEN_STAGED_FINITE, activate_damaged},
    {"life-57", LAM_E_GEN_STAGED_MODULES, activate_damaged}, {"life-58", LAM_E_GEN_STAGED_MISSING, activate_damaged},
    {"life-59", LAM_E_GEN_SHADOW_EXPOSED, publish_mutated}, {"life-60", LAM_E_GEN_PUBLISHED, publish_mutated},
    {"life-73", LAM_E_GEN_RECLAIM_LEASED, reclaim_mutated}, {"life-74", LAM_E_GEN_RECLAIM_USED, reclaim_mutated},
    {"life-75", LAM_E_GEN_RECLAIM_GENERATION, reclaim_mutated}, {"life-76", LAM_E_GEN_RECLAIM_POINTER, reclaim_mutated},
    {"life-83", LAM_E_GEN_REWIND, publish_mutated},
};

static const struct { const char *id; lam_code code; } order_faults[] = {
    {"life-44", LAM_E_GEN_STEP_WAIT}, {"life-45", LAM_E_GEN_STEP_COPY}, {"life-46", LAM_E_GEN_STEP_VERIFY},
    {"life-47", LAM_E_GEN_STEP_TAIL}, {"life-48", LAM_E_GEN_STEP_ORDER}, {"life-49", LAM_E_GEN_STEP_ARTEFACT},
};

static void assert_code(const char *id, lam_code got, lam_code want)
{
    if (got != want) fail_msg("%s: %s, not %s", id, lam_code_name(got), lam_code_name(want));
}

/* Among both lists, and the two that are dealt with by hand. */
static void test_codes_are_distinct(void **state)
{
    (void)state;
    enum { N_STATES = sizeof state_faults / sizeof *state_faults, N_ORDERS = sizeof order_faults / sizeof *order_faults, N = N_STATES + N_ORDERS + 2 };
    lam_code codes[N] = {LAM_E_DIGEST, LAM_E_GEN_ALIAS};
    for (size_t i = 0; i < N_STATES; i++) codes[2 + i] = state_faults[i].code;
    for (size_t i = 0; i < N_ORDERS; i++) codes[2 + N_STATES + i] = order_faults[i].code;
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++)
            if (codes[i] == codes[k]) fail_msg("two faults have the code %s", lam_code_name(codes[i]));
}

static void check_state(const json_t *fault, const char *id)
{
    for (size_t i = 0; i < sizeof state_faults / sizeof *state_faults; i++)
        if (strcmp(state_faults[i].id, id) == 0) {
            assert_code(id, state_faults[i].provoke(id), state_faults[i].code);
            return;
        }
    for (size_t i = 0; i < sizeof order_faults / sizeof *order_faults; i++)
        if (strcmp(order_faults[i].id, id) == 0) {
            assert_int_equal(order_mutated(at(fault, "/mutate/from")), LAM_OK);
            assert_code(id, order_mutated(at(fault, "/mutate/to")), order_faults[i].code);
            return;
        }
    if (strcmp(id, "life-01") == 0) assert_code(id, load_drifted_base(), LAM_E_DIGEST);
    else if (strcmp(id, "life-19") == 0) assert_code(id, activate_alias(), LAM_E_GEN_ALIAS);
    else fail_msg("%s is not dealt with", id);
}

static void test_faults(void **state)
{
    (void)state;
    size_t i, n[3] = {0}, without = 0; /* states, records, claims */
    json_t *fault, *lists[] = {json_object_get(whole, "negatives"), json_object_get(whole, "extra_negatives")};
    for (size_t l = 0; l < 2; l++)
        json_array_foreach(lists[l], i, fault) {
            const char *id = json_string_value(json_object_get(fault, "id")), *surface = json_string_value(json_object_get(fault, "surface"));
            const char *why = no_place(id);
            if (why) {
                print_message("%s has no place here: %s\n", id, why);
                without++;
            } else if (strcmp(surface, "state") == 0) check_state(fault, id), n[0]++;
            else if (strcmp(surface, "record") == 0) check_record(fault, id), n[1]++;
            else print_message("%s is a claim: %s\n", id, json_string_value(json_object_get(fault, "why"))), n[2]++;
        }
    print_message("lifecycle: %zu faults of states refused, %zu of records told apart, %zu claims, %zu without a place\n", n[0], n[1], n[2], without);
    assert_int_equal(n[0] + n[1] + n[2] + without, json_array_size(lists[0]) + json_array_size(lists[1]));
    assert_true(n[0] == 47 && n[1] == 32 && n[2] == 5 && without == 7);
}

static int open_all(void **state)
{
    (void)state;
    worked_case_open(FIXTURE);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    json_decref(produced());
    json_decref(whole);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_codes_are_distinct), cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
