/* The worked case of tests/data/fixtures/residency.json on the ledger of pages (src/run/residency.h): its values are produced, each fault of a
 * state is put into the ledger, the arrival or the admission and refused there with its code, and each fault of a record differs from what
 * is produced. */
#include "worked_case.h"

#include "run/residency.h"

#define FIXTURE "tests/data/fixtures/residency.json"

static json_int_t integer(const json_t *value, const char *pointer) { return json_integer_value(at(value, pointer)); }
static const char *string(const json_t *value, const char *pointer) { return json_string_value(at(value, pointer)); }

/* ---- a ledger, an arrival and an admission as a fixture states them ---- */

enum { A, B, R0, C, R1, N_RESIDENTS };
static const char *const resident_names[N_RESIDENTS] = {"a", "b", "r0", "c", "r1"};

struct state {
    struct lam_page pages[32];
    struct lam_resident residents[N_RESIDENTS];
    struct lam_ledger ledger;
    struct lam_worker_limits worker;
    struct lam_arrival arrival;
    struct lam_admission admission; /* as the fixture's transaction has it */
};

/* The place of text in list[n]; n if it is not there. */
static uint32_t place(const char *text, const char *const *list, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && (!text || strcmp(list[i], text) != 0)) i++;
    return i;
}

static uint32_t resident(const char *name)
{
    uint32_t i = place(name, resident_names, N_RESIDENTS);
    return i < N_RESIDENTS ? i : LAM_NO_OWNER;
}

static size_t read_list(const json_t *list, uint32_t *out)
{
    for (size_t i = 0; i < json_array_size(list); i++) out[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return json_array_size(list);
}

static uint32_t dtype_of(const char *text) { return place(text, (const char *[]){"f16", "f32"}, 2); }
static uint32_t layout_of(const char *text) { return place(text, (const char *[]){"paired_rows", "row_major", "other"}, 3); }
static uint32_t attempt_of(const char *text) { return (uint32_t)atoi(strchr(text, '#') + 1); }

static void read_page(const json_t *slot, struct lam_page *out)
{
    static const char *const states[] = {"free", "reserved", "owned"}, *const classes[] = {"", "kv", "adapter"};
    const char *class = string(slot, "/class");
    *out = (struct lam_page){.number = (uint32_t)integer(slot, "/slot"), .owner = resident(string(slot, "/owner")),
                             .state = (enum lam_page_state)place(string(slot, "/state"), states, 3),
                             .class = class ? (enum lam_page_class)place(class, classes, 3) : LAM_PAGE_NONE,
                             .generation = (uint64_t)integer(slot, "/generation")};
}

static void read_adapter(const json_t *f, const char *name, struct lam_resident *out)
{
    const json_t *adapter = json_object_get(json_object_get(f, "adapters"), name);
    int state = 0;
    while (strcmp(lam_residency_name((enum lam_residency)state), string(adapter, "/state")) != 0) state++;
    out->state = (enum lam_residency)state;
    out->leases = (uint32_t)integer(adapter, "/refcount");
    out->pins = (uint32_t)integer(adapter, "/pin_count");
    out->queued = (uint32_t)integer(adapter, "/queued_reservations");
    out->uses = (uint32_t)integer(adapter, "/inflight_events");
    out->generation = (uint64_t)integer(adapter, "/generation");
    out->planned = (uint64_t)json_integer_value(json_array_get(json_object_get(json_object_get(f, "live_launch_generations"), name), 0));
    out->source_verified = json_is_true(json_object_get(adapter, "host_source_verified"));
    out->last_use = (uint64_t)integer(adapter, "/last_touch");
    out->n_pages = read_list(json_object_get(adapter, "slots"), out->pages);
}

static void read_arrival(const json_t *f, struct state *s)
{
    const json_t *incoming = json_object_get(f, "incoming"), *worker = json_object_get(f, "worker");
    s->worker = (struct lam_worker_limits){.dtype = dtype_of(string(worker, "/dtype")), .layout = layout_of(string(worker, "/layout")),
                                           .max_rank = (uint32_t)integer(worker, "/max_rank"), .n_targets = 4,
                                           /* the model's, whatever a ledger says of it */
                                           .layers = (size_t)integer(fixture, "/geometry/layers"), .hidden = (size_t)integer(fixture, "/geometry/hidden"),
                                           .element_bytes = (size_t)integer(fixture, "/geometry/element_bytes")};
    s->arrival = (struct lam_arrival){.adapter = C, .kv = R1, .attempt = attempt_of(string(incoming, "/attempt")),
                                      .rank = (uint32_t)integer(incoming, "/rank"),
                                      .n_targets = (uint32_t)json_array_size(json_object_get(incoming, "targets")),
                                      .dtype = dtype_of(string(incoming, "/dtype")), .layout = layout_of(string(incoming, "/layout")),
                                      .adapter_pages = (size_t)integer(incoming, "/adapter_slots"), .kv_initial = (size_t)integer(incoming, "/kv_initial"),
                                      .kv_growth = (size_t)integer(incoming, "/kv_growth"), .guard = (size_t)integer(incoming, "/guard"),
                                      .demand = (size_t)integer(f, "/admission/demand")};
    strcpy(s->arrival.digest, string(incoming, "/artifact_digest"));
}

/* How the load went, as the transaction states it. */
static void read_load(const json_t *txn, struct lam_admission *a)
{
    a->n_begun = 1;
    a->n_ended = json_is_true(json_object_get(txn, "copy_event_complete"));
    strcpy(a->staged_digest, string(txn, "/staged_digest"));
    a->staged_layout = layout_of(string(txn, "/staged_layout"));
    a->n_table = read_list(json_object_get(txn, "page_table"), a->table);
    a->generation = (uint64_t)integer(txn, "/published_generation");
    a->pointer_generation = (uint64_t)integer(txn, "/pointer_generation");
    a->pinned = attempt_of(string(txn, "/pinned_attempt"));
}

static void read_state(const json_t *f, struct state *s)
{
    const json_t *g = json_object_get(f, "geometry"), *txn = json_object_get(f, "txn");
    size_t i;
    json_t *item;
    memset(s, 0, sizeof *s);
    json_array_foreach(json_object_get(f, "slots"), i, item) read_page(item, &s->pages[i]);
    for (size_t r = 0; r < N_RESIDENTS; r++)
        s->residents[r] = (struct lam_resident){.name = resident_names[r], .class = r == R0 || r == R1 ? LAM_PAGE_KV : LAM_PAGE_ADAPTER};
    read_adapter(f, "a", &s->residents[A]);
    read_adapter(f, "b", &s->residents[B]);
    s->residents[R0].state = LAM_ACTIVE;
    s->residents[R0].generation = 1;
    s->residents[R0].n_pages = read_list(at(f, "/kv/r0/slots"), s->residents[R0].pages);
    s->residents[C].state = LAM_HOST_READY;
    s->ledger = (struct lam_ledger){.hidden = (size_t)integer(g, "/hidden"), .layers = (size_t)integer(g, "/layers"),
                                    .element_bytes = (size_t)integer(g, "/element_bytes"), .buffers = (size_t)integer(g, "/paired_buffers"),
                                    .page_bytes = (size_t)integer(g, "/slot_bytes"), .pool_bytes = (size_t)integer(g, "/pool_bytes"),
                                    .total = (size_t)integer(g, "/total_slots"), .pages = s->pages, .n_pages = i, .residents = s->residents,
                                    .n_residents = N_RESIDENTS};
    read_arrival(f, s);
    json_array_foreach(json_object_get(txn, "victims"), i, item) s->admission.victims[i] = resident(json_string_value(item));
    s->admission.n_victims = i;
    s->admission.n_reserved = read_list(json_object_get(txn, "reserved"), s->admission.reserved);
    s->admission.n_adapter = read_list(json_object_get(txn, "adapter_pages"), s->admission.adapter_pages);
    s->admission.n_kv = read_list(json_object_get(txn, "kv_pages"), s->admission.kv_pages);
    read_load(txn, &s->admission);
}

/* ---- values ---- */

static json_t *list_json(const uint32_t *list, size_t n)
{
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(out, json_integer(list[i]));
    return out;
}

static json_t *pages_json(const struct lam_ledger *l)
{
    static const char *const states[] = {"free", "reserved", "owned"}, *const classes[] = {"", "kv", "adapter"};
    json_t *out = json_array();
    for (size_t i = 0; i < l->n_pages; i++) {
        const struct lam_page *p = &l->pages[i];
        json_t *page = json_pack("{s:I,s:s,s:n,s:n,s:n}", "slot", (json_int_t)p->number, "state", states[p->state], "class", "owner", "generation");
        if (p->owner != LAM_NO_OWNER) {
            json_object_set_new(page, "class", json_string(classes[p->class]));
            json_object_set_new(page, "owner", json_string(resident_names[p->owner]));
            json_object_set_new(page, "generation", json_integer((json_int_t)p->generation));
        }
        json_array_append_new(out, page);
    }
    return out;
}

static json_t *produce_admission(const struct state *s)
{
    size_t page = s->ledger.page_bytes, free_pages = lam_ledger_free_pages(&s->ledger), reclaimable = lam_ledger_reclaimable(&s->ledger);
    size_t demand = s->arrival.adapter_pages + s->arrival.kv_initial + s->arrival.kv_growth + s->arrival.guard;
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "free", (json_int_t)free_pages, "reclaimable", (json_int_t)reclaimable, "demand",
                     (json_int_t)demand, "free_bytes", (json_int_t)(free_pages * page), "reclaimable_bytes", (json_int_t)(reclaimable * page),
                     "demand_bytes", (json_int_t)(demand * page), "adapter_bytes", (json_int_t)(s->arrival.adapter_pages * page), "kv_initial_bytes",
                     (json_int_t)(s->arrival.kv_initial * page), "kv_growth_bytes", (json_int_t)(s->arrival.kv_growth * page));
}

/* Reserved as the ledger itself chooses. */
static void reserve(struct state *s)
{
    lam_error err;
    read_state(fixture, s);
    assert_ok(lam_admission_choose(&s->ledger, &s->arrival, &s->admission, &err), err);
    assert_ok(lam_admission_reserve(&s->ledger, &s->worker, &s->arrival, &s->admission, &err), err);
    read_load(json_object_get(fixture, "txn"), &s->admission);
    memcpy(s->admission.table, s->admission.adapter_pages, sizeof s->admission.table);
}

static const char *const undo_names[LAM_UNDO_STEPS] = {"cancel_or_wait_events", "unpublish_and_unpin", "release_kv", "reload_victim",
                                                       "validate_victim", "publish_victim", "free_rest"};

static json_t *produce_rollback(void)
{
    struct state s;
    lam_error err;
    uint32_t left[32];
    size_t n_left = 0;
    json_t *order = json_array();
    reserve(&s);
    s.admission.overwritten = true;
    s.admission.n_ended = 0;
    assert_int_equal(lam_admission_undo(&s.ledger, &s.arrival, &s.admission, LAM_UNDO_COPIES, &err), LAM_E_RES_PENDING);
    s.admission.n_ended = 1;
    for (int step = 0; step < LAM_UNDO_STEPS; step++) {
        assert_ok(lam_admission_undo(&s.ledger, &s.arrival, &s.admission, (enum lam_undo_step)step, &err), err);
        json_array_append_new(order, json_string(undo_names[step]));
    }
    for (size_t i = 0; i < s.ledger.n_pages; i++)
        if (s.pages[i].state == LAM_PAGE_RESERVED) left[n_left++] = s.pages[i].number;
    assert_int_equal(lam_ledger_free_pages(&s.ledger), integer(fixture, "/admission/free"));
    assert_int_equal(s.residents[B].state, LAM_IDLE);
    return json_pack("{s:o,s:o,s:b,s:b,s:b,s:I,s:o}", "order", order, "slots", pages_json(&s.ledger), "c_visible",
                     lam_residency_visible(s.residents[C].state), "kv_committed", s.residents[R1].n_pages != 0, "request_admitted",
                     s.residents[C].leases != 0, "victim_generation", (json_int_t)s.residents[B].generation, "reserved_left", list_json(left, n_left));
}

static json_t *produced(void)
{
    static json_t *cache; /* it is used by two tests */
    struct state s;
    lam_error err;
    if (cache) return cache;
    read_state(fixture, &s);
    cache = json_pack("{s:o}", "admission", produce_admission(&s));
    reserve(&s);
    json_object_set_new(cache, "txn", json_pack("{s:o,s:o,s:o}", "reserved", list_json(s.admission.reserved, s.admission.n_reserved), "page_table",
                                                list_json(s.admission.adapter_pages, s.admission.n_adapter), "kv_pages",
                                                list_json(s.admission.kv_pages, s.admission.n_kv)));
    assert_int_equal(s.admission.n_victims, 1);
    assert_int_equal(s.admission.victims[0], B);
    assert_ok(lam_admission_commit(&s.ledger, &s.worker, &s.arrival, &s.admission, &err), err);
    json_object_set_new(cache, "after", pages_json(&s.ledger));
    json_object_set_new(cache, "rollback", produce_rollback());
    return cache;
}

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
        {"/admission/demand", "/demand_slots"}, {"/admission/demand_bytes", "/demand_bytes"}, {"/admission/free", "/free_slots"},
        {"/admission/free_bytes", "/free_bytes"}, {"/admission/reclaimable", "/reclaimable_slots"},
        {"/admission/reclaimable_bytes", "/reclaimable_bytes"}, {"/admission/adapter_bytes", "/adapter_c_bytes"},
        {"/admission/kv_initial_bytes", "/kv_initial_bytes"}, {"/admission/kv_growth_bytes", "/kv_growth_bytes"}, {"/txn/reserved", "/reserved"},
        {"/txn/page_table", "/page_table"}, {"/txn/kv_pages", "/kv_slots"}, {"/rollback/victim_generation", "/rollback/copy_failed/b_generation"},
        {"/rollback/victim_generation", "/rollback/digest_failed/b_generation"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) assert_json(at(produced(), pairs[i][0]), at(expected, pairs[i][1]), pairs[i][0]);
    assert_json(at(produced(), "/after"), at(fixture, "/after"), "after");
    assert_json(at(produced(), "/rollback/slots"), at(fixture, "/rollback/slots"), "rollback");
    struct state s;
    read_state(fixture, &s);
    assert_int_equal(lam_arrival_check(&s.ledger, &s.worker, &s.arrival, NULL) == LAM_OK, strcmp(string(expected, "/decision"), "admit") == 0);
    assert_int_equal(s.ledger.page_bytes, integer(expected, "/slot_bytes"));
    assert_int_equal(s.ledger.pool_bytes, integer(expected, "/pool_bytes"));
}

static void test_states(void **state)
{
    (void)state;
    const json_t *order = at(expected, "/state_machine/order"), *table = at(expected, "/state_machine/table");
    for (int i = 0; i <= LAM_RESIDENCIES; i++) {
        enum lam_residency r = (enum lam_residency)(i % LAM_RESIDENCIES);
        assert_string_equal(json_string_value(json_array_get(order, (size_t)i)), lam_residency_name(r));
        const json_t *row = json_object_get(table, lam_residency_name(r));
        if (!row) continue;
        assert_int_equal(lam_residency_has_pages(r), json_is_true(json_object_get(row, "pages")));
        assert_int_equal(lam_residency_visible(r), json_is_true(json_object_get(row, "visible")));
        assert_int_equal(lam_residency_visible(r), !json_is_false(json_object_get(row, "bind"))); /* an active one is bound already */
    }
}

static void test_formulas(void **state)
{
    (void)state;
    size_t i, k;
    json_t *example, *m;
    json_array_foreach(json_object_get(expected, "page_examples"), i, example) {
        size_t pages = 0;
        json_array_foreach(json_object_get(example, "modules"), k, m)
            pages += lam_factor_pages((size_t)integer(example, "/H"), (size_t)integer(m, "/rank"), (size_t)integer(m, "/d_in"), (size_t)integer(m, "/d_out"));
        if (json_object_get(example, "modules")) assert_int_equal(pages, integer(example, "/pages"));
        else {
            struct state s; /* slots of attention: what an arrival of this rank must ask for */
            read_state(fixture, &s);
            s.worker.max_rank = 16;
            s.arrival.rank = (uint32_t)integer(example, "/rank");
            s.arrival.adapter_pages = (size_t)integer(example, "/slots");
            s.arrival.demand = s.arrival.adapter_pages + 4;
            lam_code code = lam_arrival_check(&s.ledger, &s.worker, &s.arrival, NULL);
            assert_int_equal(code, s.arrival.rank == 1 ? LAM_OK : LAM_E_RES_SHORT);
            assert_int_equal(s.arrival.adapter_pages, s.arrival.n_targets * s.arrival.rank);
        }
    }
    json_array_foreach(json_object_get(expected, "byte_examples"), i, example) {
        size_t bytes = 0;
        json_array_foreach(json_object_get(example, "modules"), k, m)
            bytes += lam_pair_bytes((size_t)integer(m, "/rank"), (size_t)integer(m, "/d_in"), (size_t)integer(m, "/d_out"), (size_t)integer(m, "/bytes"));
        assert_int_equal(bytes, integer(example, "/total"));
    }
    const json_t *ranking = json_object_get(expected, "victim_ranking"), *order = json_object_get(ranking, "order");
    struct lam_resident residents[8] = {{0}};
    uint32_t victims[LAM_ADMISSION_VICTIMS];
    lam_error err;
    size_t n;
    json_array_foreach(json_object_get(ranking, "candidates"), i, m)
        residents[i] = (struct lam_resident){.name = string(m, "/id"), .class = LAM_PAGE_ADAPTER, .state = LAM_IDLE, .source_verified = true,
                                             .last_use = (uint64_t)integer(m, "/last_touch"), .n_pages = (size_t)integer(m, "/pages")};
    struct lam_ledger l = {.residents = residents, .n_residents = i};
    for (int all = 0; all < 2; all++) { /* as many as are needed, and all in order */
        const json_t *want = all ? order : json_object_get(ranking, "chosen");
        assert_ok(lam_victims_choose(&l, all ? 12 : (size_t)integer(ranking, "/need"), victims, &n, &err), err);
        assert_int_equal(n, json_array_size(want));
        for (size_t v = 0; v < n; v++) assert_string_equal(residents[victims[v]].name, json_string_value(json_array_get(want, v)));
    }
    assert_int_equal(lam_victims_choose(&l, 13, victims, &n, &err), LAM_E_RES_SHORT);
    assert_non_null(strstr(err.message, "1 too few"));
}

/* ---- faults ---- */

static void put(json_t *root, const char *pointer, json_t *value)
{
    char front[128];
    const char *last = strrchr(pointer, '/') + 1;
    snprintf(front, sizeof front, "%.*s", (int)(last - 1 - pointer), pointer);
    json_t *parent = at(root, front);
    if (json_is_array(parent)) json_array_set(parent, (size_t)atoi(last), value);
    else json_object_set(parent, last, value);
}

static lam_code run_order(const json_t *order)
{
    static const char *const step_names[LAM_ADMIT_STEPS] = {"validate_identity", "derive_demand", "prove_victim", "mark_retiring", "reserve", "copy",
                                                            "wait_copy_event", "validate_bytes", "publish", "pin_request", "commit_kv",
                                                            "finalize_eviction"};
    struct lam_admission a = {0};
    size_t i;
    json_t *name;
    json_array_foreach(order, i, name) {
        lam_code code = lam_admission_step(&a, (enum lam_admission_step)place(json_string_value(name), step_names, LAM_ADMIT_STEPS), NULL);
        if (code != LAM_OK) return code;
    }
    return LAM_OK;
}

/* The first refusal of a fixture; what was refused has changed nothing. */
static lam_code admit(const json_t *f)
{
    struct state s, before;
    lam_error err;
    lam_code code = run_order(at(f, "/txn/order"));
    if (code != LAM_OK) return code;
    read_state(f, &s);
    before = s;
    code = lam_admission_reserve(&s.ledger, &s.worker, &s.arrival, &s.admission, &err);
    if (code == LAM_OK) {
        before = s;
        code = lam_admission_commit(&s.ledger, &s.worker, &s.arrival, &s.admission, &err);
    }
    if (code != LAM_OK) {
        assert_memory_equal(s.pages, before.pages, sizeof s.pages);
        assert_memory_equal(s.residents, before.residents, sizeof s.residents);
    }
    return code;
}

static const struct { const char *id; lam_code code; } state_faults[] = {
    {"res-01", LAM_E_RES_GEOMETRY}, {"res-02", LAM_E_RES_LAYERS}, {"res-03", LAM_E_RES_WIDTH}, {"res-04", LAM_E_RES_ELEMENT},
    {"res-05", LAM_E_RES_TOTAL}, {"res-06", LAM_E_RES_POOL}, {"res-07", LAM_E_RES_OWNER}, {"res-08", LAM_E_RES_PAGES_OTHER},
    {"res-09", LAM_E_RES_CONSERVATION}, {"res-10", LAM_E_RES_CLASS}, {"res-11", LAM_E_RES_GENERATION}, {"res-12", LAM_E_RES_ORPHAN},
    {"res-13", LAM_E_RES_PAGES}, {"res-14", LAM_E_RES_PAGES_FREE}, {"res-15", LAM_E_RES_VICTIM_LEASED}, {"res-16", LAM_E_RES_VICTIM_PINNED},
    {"res-17", LAM_E_RES_VICTIM_QUEUED}, {"res-18", LAM_E_RES_VICTIM_USED}, {"res-19", LAM_E_RES_VICTIM_STATE},
    {"res-20", LAM_E_RES_VICTIM_SOURCE}, {"res-21", LAM_E_RES_VICTIM_PLANNED}, {"res-22", LAM_E_RES_VICTIM_ACTIVE},
    {"res-23", LAM_E_RES_VICTIM_KV}, {"res-24", LAM_E_RES_VICTIMS_FEW}, {"res-25", LAM_E_RES_VICTIM_TWICE}, {"res-26", LAM_E_RES_DEMAND},
    {"res-27", LAM_E_RES_RANK}, {"res-28", LAM_E_RES_TARGETS}, {"res-29", LAM_E_RES_DTYPE}, {"res-30", LAM_E_RES_LAYOUT},
    {"res-31", LAM_E_RES_DEMAND_RANK}, {"res-32", LAM_E_RES_GROWTH}, {"res-33", LAM_E_RES_DEMAND_SUM}, {"res-34", LAM_E_RES_SHORT},
    {"res-40", LAM_E_RES_RESERVED}, {"res-41", LAM_E_RES_RESERVED_LIVE}, {"res-42", LAM_E_RES_SPLIT}, {"res-43", LAM_E_RES_KV},
    {"res-44", LAM_E_RES_STEP_WAIT}, {"res-45", LAM_E_RES_STEP_VALIDATE}, {"res-46", LAM_E_RES_STEP_FINAL}, {"res-47", LAM_E_RES_PENDING},
    {"res-48", LAM_E_RES_STAGED_DIGEST}, {"res-49", LAM_E_RES_STAGED_LAYOUT}, {"res-50", LAM_E_RES_PAGE_TABLE},
    {"res-51", LAM_E_RES_PAGE_TABLE_OTHER}, {"res-52", LAM_E_RES_POINTER}, {"res-53", LAM_E_RES_PIN},
};

static void check_state(const json_t *fault, const char *id)
{
    size_t i = 0;
    while (i < sizeof state_faults / sizeof *state_faults && strcmp(state_faults[i].id, id) != 0) i++;
    if (i == sizeof state_faults / sizeof *state_faults) fail_msg("%s is not dealt with", id);
    json_t *mutated = json_deep_copy(fixture);
    put(mutated, string(fault, "/mutate/field"), at(fault, "/mutate/to"));
    lam_code code = admit(mutated);
    json_decref(mutated);
    if (code != state_faults[i].code) fail_msg("%s: %s, not %s", id, lam_code_name(code), lam_code_name(state_faults[i].code));
}

static void check_record(const json_t *fault, const char *id)
{
    const json_t *got = at(produced(), string(fault, "/mutate/field"));
    if (!got || !json_equal(got, at(fault, "/mutate/from")) || json_equal(got, at(fault, "/mutate/to"))) fail_msg("%s", id);
}

/* No two faults have one code. */
static void test_codes_are_distinct(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof state_faults / sizeof *state_faults; i++)
        for (size_t k = 0; k < i; k++)
            if (state_faults[i].code == state_faults[k].code) fail_msg("%s and %s have one code", state_faults[k].id, state_faults[i].id);
}

/* The fixture's wrong order of going back is refused at its first step. */
static void test_undo_order(void **state)
{
    (void)state;
    struct state s;
    lam_error err;
    reserve(&s);
    assert_int_equal(lam_admission_undo(&s.ledger, &s.arrival, &s.admission, LAM_UNDO_RELOAD, &err), LAM_E_RES_STEP_ORDER);
    assert_ok(lam_admission_commit(&s.ledger, &s.worker, &s.arrival, &s.admission, &err), err);
    assert_int_equal(lam_admission_undo(&s.ledger, &s.arrival, &s.admission, LAM_UNDO_COPIES, &err), LAM_E_RES_STEP_ORDER); /* too late */
    assert_int_equal(lam_admission_commit(&s.ledger, &s.worker, &s.arrival, &s.admission, &err), LAM_E_RES_STEP_ORDER);     /* and not twice */
}

static void test_faults(void **state)
{
    (void)state;
    size_t i, n[2] = {0}; /* states, records */
    json_t *fault, *lists[] = {json_object_get(whole, "negatives"), json_object_get(whole, "extra_negatives")};
    assert_int_equal(admit(fixture), LAM_OK);
    for (size_t l = 0; l < 2; l++)
        json_array_foreach(lists[l], i, fault) {
            const char *id = string(fault, "/id");
            bool is_state = strcmp(string(fault, "/surface"), "state") == 0;
            if (is_state) check_state(fault, id);
            else check_record(fault, id);
            n[!is_state]++;
        }
    print_message("residency: %zu faults of states refused, %zu of records told apart\n", n[0], n[1]);
    assert_true(n[0] == 48 && n[1] == 14);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_states), cmocka_unit_test(test_formulas),
                                       cmocka_unit_test(test_undo_order), cmocka_unit_test(test_codes_are_distinct), cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
