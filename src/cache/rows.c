#include "cache/rows.h"
#include "base/alloc.h"

#include <string.h>

void lam_row_contract_here(const char *base_digest, uint32_t n_layers, enum lam_kv_type type, const char *name_space,
                           struct lam_row_contract *out)
{
    static const char *const dtypes[] = {[LAM_KV_F16] = "f16", [LAM_KV_F32] = "f32", [LAM_KV_I8] = "i8"};
    *out = (struct lam_row_contract){
        .numeric = "nc1", .graph_revision = LAM_GRAPH_REVISION, .layers = n_layers, .schema = LAM_ROW_SCHEMA, .dtype = dtypes[type],
        .quantisation = type == LAM_KV_I8 ? "groups of 32" : "none", .shard = "0/1", .rope = "base", .visibility = "causal",
        .window = "model", .side_inputs = "none"};
    strncpy(out->base_digest, base_digest, sizeof out->base_digest - 1);
    strncpy(out->name_space, name_space, sizeof out->name_space - 1);
    lam_closure_projections(false, out->same_layer);
    lam_closure_projections(true, out->earlier_layers);
}

/* The first of a that b lacks; NULL if there is none. */
static const char *lacking(const char *const *a, const char *const *b)
{
    for (; *a; a++) {
        const char *const *at = b;
        while (*at && strcmp(*at, *a) != 0) at++;
        if (!*at) return *a;
    }
    return NULL;
}

static lam_code check_closure(const char *where, const char *const *want, const char *const *have, lam_error *err)
{
    const char *name = lacking(want, have);
    if (name) return LAM_RAISE(err, LAM_E_KV_CLOSURE_NARROW, "cached rows: their closure lacks %s of %s", name, where);
    name = lacking(have, want);
    if (name) return LAM_RAISE(err, LAM_E_KV_CLOSURE_WIDE, "cached rows: their closure has %s of %s", name, where);
    return LAM_OK;
}

static lam_code check_text(lam_code code, const char *what, const char *want, const char *have, lam_error *err)
{
    if (strcmp(want, have) == 0) return LAM_OK;
    return LAM_RAISE(err, code, "cached rows: %s is \"%s\", not \"%s\"", what, have, want);
}

/* A revision is "<layout>_v<number>": how the parts of a block are connected, and which account of it the closure follows. */
static lam_code check_graph(const char *want, const char *have, lam_error *err)
{
    size_t layout = strcspn(want, "_");
    if (strncmp(want, have, layout + 1) != 0)
        return LAM_RAISE(err, LAM_E_KV_GRAPH_LAYOUT, "cached rows: their graph is \"%s\", with blocks that are connected otherwise than in \"%s\"",
                         have, want);
    return check_text(LAM_E_KV_GRAPH, "the revision of their dependency graph", want, have, err);
}

static lam_code check_contract(const struct lam_row_contract *want, const struct lam_row_contract *have, lam_error *err)
{
    if (strcmp(want->name_space, have->name_space) != 0) /* whose they are is not for others to read */
        return LAM_RAISE(err, LAM_E_KV_NAMESPACE, "cached rows belong to another namespace");
    LAM_TRY(check_text(LAM_E_KV_BASE, "their base", want->base_digest, have->base_digest, err));
    LAM_TRY(check_graph(want->graph_revision, have->graph_revision, err));
    LAM_TRY(check_closure("their own layer", want->same_layer, have->same_layer, err));
    LAM_TRY(check_closure("earlier layers", want->earlier_layers, have->earlier_layers, err));
    if (want->layers != have->layers)
        return LAM_RAISE(err, LAM_E_KV_DEPTH, "cached rows: they have %u layers, not %u", have->layers, want->layers);
    LAM_TRY(check_text(LAM_E_KV_SCHEMA, "their schema", want->schema, have->schema, err));
    LAM_TRY(check_text(LAM_E_KV_SCHEMA, "their numeric contract", want->numeric, have->numeric, err));
    LAM_TRY(check_text(LAM_E_KV_DTYPE, "their type", want->dtype, have->dtype, err));
    LAM_TRY(check_text(LAM_E_KV_QUANTISATION, "their quantisation", want->quantisation, have->quantisation, err));
    LAM_TRY(check_text(LAM_E_KV_SHARD, "their shard", want->shard, have->shard, err));
    LAM_TRY(check_text(LAM_E_KV_ROPE, "their rotation", want->rope, have->rope, err));
    LAM_TRY(check_text(LAM_E_KV_VISIBILITY, "their visibility", want->visibility, have->visibility, err));
    LAM_TRY(check_text(LAM_E_KV_VISIBILITY, "their window", want->window, have->window, err));
    return check_text(LAM_E_KV_SIDE_INPUTS, "their side input", want->side_inputs, have->side_inputs, err);
}

const uint8_t *lam_rows_operators(const struct lam_run *runs, size_t n_runs, size_t p)
{
    size_t i = 0;
    while (i + 1 < n_runs && runs[i].end <= p) i++;
    return runs[i].operators;
}

/* Positions from `first` on, below end, whose operators are the same; the runs of both cover them. */
static size_t same_operators(const struct lam_rows *a, const struct lam_rows *b, size_t first, size_t end)
{
    size_t i = 0, k = 0, at = first;
    while (at < end) {
        while (i < a->n_runs && a->runs[i].end <= at) i++;
        while (k < b->n_runs && b->runs[k].end <= at) k++;
        if (i == a->n_runs || k == b->n_runs || memcmp(a->runs[i].operators, b->runs[k].operators, LAM_SHA256_BYTES) != 0) return at;
        at = a->runs[i].end < b->runs[k].end ? a->runs[i].end : b->runs[k].end;
    }
    return end;
}

lam_code lam_rows_admit(const struct lam_rows *want, const struct lam_rows *have, bool whole, size_t *n, lam_error *err)
{
    *n = 0;
    if (!want->tokens) return LAM_RAISE(err, LAM_E_NO_TOKENS, "rows without tokens: nothing about them can be derived");
    LAM_TRY(check_contract(want->contract, have->contract, err));
    if (have->complete_layers != have->contract->layers)
        return LAM_RAISE(err, LAM_E_KV_LAYERS, "cached rows: %u of their %u layers are there", have->complete_layers, have->contract->layers);
    if (!have->frozen) return LAM_RAISE(err, LAM_E_KV_FROZEN, "cached rows: they may still be written");
    if (have->first != want->first)
        return LAM_RAISE(err, LAM_E_KV_POSITIONS, "cached rows begin at position %zu, not %zu", have->first, want->first);
    if (have->covered_end > have->first + have->n)
        return LAM_RAISE(err, LAM_E_KV_COVERAGE, "cached rows: they claim %zu positions and have tokens for %zu", have->covered_end,
                         have->first + have->n);
    size_t most = have->covered_end - have->first, same = 0;
    if (most > want->n) most = want->n;
    while (same < most && want->tokens[same] == have->tokens[same]) same++;
    /* A row is a function of all before it: what precedes `first` must agree as well. */
    size_t end = same_operators(want, have, 0, want->first + same);
    *n = end > want->first ? end - want->first : 0;
    if (!whole || *n == have->covered_end - have->first) return LAM_OK;
    if (*n < same) return LAM_RAISE(err, LAM_E_KV_EXECUTION, "cached rows: other operators acted on position %zu", end);
    if (same < most) return LAM_RAISE(err, LAM_E_KV_TOKENS, "cached rows: another token stands at position %zu", want->first + same);
    return LAM_RAISE(err, LAM_E_KV_COVERAGE, "cached rows: they claim %zu positions, of which %zu serve", have->covered_end, want->first + *n);
}

/* ---- as JSON ---- */

static json_t *names_json(const char *const *names)
{
    json_t *list = json_array();
    for (; list && *names; names++)
        if (json_array_append_new(list, json_string(*names)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

json_t *lam_row_contract_json(const struct lam_row_contract *c)
{
    json_t *graph = json_pack("{s:s,s:i,s:o,s:o}", "revision", c->graph_revision, "layers", (int)c->layers, "same_layer",
                              names_json(c->same_layer), "earlier_layers", names_json(c->earlier_layers));
    return json_pack("{s:s,s:s,s:o,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "base_digest", c->base_digest, "numeric_contract", c->numeric,
                     "graph", graph, "schema", c->schema, "dtype", c->dtype, "quantisation", c->quantisation, "shard", c->shard, "rope",
                     c->rope, "visibility", c->visibility, "window_policy", c->window, "side_inputs", c->side_inputs, "namespace",
                     c->name_space);
}

static lam_code read_names(const json_t *graph, const char *key, const char *out[LAM_PROJECTIONS + 1], lam_error *err)
{
    const json_t *list = json_object_get(graph, key);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > LAM_PROJECTIONS) return LAM_RAISE(err, LAM_E_FORMAT, "the graph of cached rows has no proper %s", key);
    for (size_t i = 0; i < n; i++)
        if (!(out[i] = json_string_value(json_array_get(list, i)))) return LAM_RAISE(err, LAM_E_FORMAT, "%s holds what is no name", key);
    out[n] = NULL;
    return LAM_OK;
}

static lam_code read_graph(const json_t *graph, struct lam_row_contract *out, lam_error *err)
{
    json_int_t layers = json_integer_value(json_object_get(graph, "layers"));
    out->graph_revision = json_string_value(json_object_get(graph, "revision"));
    if (!out->graph_revision || layers < 1 || layers > UINT32_MAX || json_object_size(graph) != 4)
        return LAM_RAISE(err, LAM_E_FORMAT, "the graph of cached rows is malformed");
    out->layers = (uint32_t)layers;
    LAM_TRY(read_names(graph, "same_layer", out->same_layer, err));
    return read_names(graph, "earlier_layers", out->earlier_layers, err);
}

/* Places and owners: they change while rows stay the same. */
static bool names_a_place(const char *key)
{
    static const char *const keys[] = {"request_id", "attempt", "catalog_alias", "catalog_path", "adapter_name", "slot", "slot_index",
                                       "slot_generation", "pointer_generation", "block_ids", "sampling_policy", "rng_offset", "worker",
                                       "path", "thread"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

/* Text members by name, where they go, and whether they are copied to an array of so many bytes. */
struct member {
    const char *key;
    const char **text;
    char *copy; /* [LAM_DIGEST_TEXT] */
};

_Static_assert(LAM_NAMESPACE_TEXT == LAM_DIGEST_TEXT, "both are copied alike");

static lam_code read_member(const json_t *json, const struct member *m, lam_error *err)
{
    const json_t *value = json_object_get(json, m->key);
    const char *text = json_string_value(value);
    if (!text && strcmp(m->key, "namespace") == 0)
        return LAM_RAISE(err, LAM_E_KV_KEY_NAMESPACE, "the key of cached rows does not say whose they are");
    if (!text || (m->copy && json_string_length(value) >= LAM_DIGEST_TEXT))
        return LAM_RAISE(err, LAM_E_FORMAT, "the key of cached rows has no proper %s", m->key);
    if (m->copy) memcpy(m->copy, text, strlen(text) + 1);
    else *m->text = text;
    return LAM_OK;
}

lam_code lam_row_contract_read(const json_t *json, struct lam_row_contract *out, lam_error *err)
{
    *out = (struct lam_row_contract){0};
    const struct member members[] = {
        {"base_digest", NULL, out->base_digest}, {"numeric_contract", &out->numeric, NULL}, {"schema", &out->schema, NULL},
        {"dtype", &out->dtype, NULL}, {"quantisation", &out->quantisation, NULL}, {"shard", &out->shard, NULL},
        {"rope", &out->rope, NULL}, {"visibility", &out->visibility, NULL}, {"window_policy", &out->window, NULL},
        {"side_inputs", &out->side_inputs, NULL}, {"namespace", NULL, out->name_space},
    };
    size_t n = sizeof members / sizeof *members;
    const char *key;
    json_t *value;
    if (!json_is_object(json)) return LAM_RAISE(err, LAM_E_FORMAT, "cached rows have no key");
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        size_t i = 0;
        while (i < n && strcmp(key, members[i].key) != 0) i++;
        if (i < n || strcmp(key, "graph") == 0) continue;
        if (names_a_place(key)) return LAM_RAISE(err, LAM_E_KV_KEY_PLACE, "the key of cached rows names a place or an owner: %s", key);
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "the key of cached rows has a member that we do not know: %s", key);
    }
    for (size_t i = 0; i < n; i++) LAM_TRY(read_member(json, &members[i], err));
    return read_graph(json_object_get(json, "graph"), out, err);
}

json_t *lam_runs_json(const struct lam_run *runs, size_t n_runs, size_t end)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n_runs; i++) {
        char text[LAM_DIGEST_TEXT];
        size_t stop = runs[i].end < end ? runs[i].end : end;
        lam_digest_text(runs[i].operators, text);
        if (json_array_append_new(list, json_pack("{s:I,s:s}", "end", (json_int_t)stop, "operators", text)) != 0) {
            json_decref(list);
            return NULL;
        }
        if (stop == end) break;
    }
    return list;
}

static bool read_digest(const char *text, uint8_t out[LAM_SHA256_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    if (!text || strlen(text) != 7 + 2 * LAM_SHA256_BYTES || memcmp(text, "sha256:", 7) != 0) return false;
    for (size_t i = 0; i < LAM_SHA256_BYTES; i++) {
        const char *high = strchr(digits, text[7 + 2 * i]), *low = strchr(digits, text[8 + 2 * i]);
        if (!high || !low) return false;
        out[i] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    return true;
}

lam_code lam_runs_read(const json_t *json, struct lam_run **runs, size_t *n_runs, lam_error *err)
{
    *runs = NULL;
    *n_runs = json_array_size(json);
    if (!json) return LAM_RAISE(err, LAM_E_KV_KEY_EXECUTION, "the key of cached rows does not say what acted on them");
    if (!json_is_array(json)) return LAM_RAISE(err, LAM_E_FORMAT, "what acted on cached rows is no list");
    struct lam_run *list = lam_alloc(*n_runs, sizeof *list);
    if (!list) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu runs", *n_runs);
    json_int_t before = 0;
    for (size_t i = 0; i < *n_runs; i++) {
        const json_t *run = json_array_get(json, i);
        json_int_t end = json_integer_value(json_object_get(run, "end"));
        if (json_object_size(run) != 2 || end <= before || end > INT32_MAX ||
            !read_digest(json_string_value(json_object_get(run, "operators")), list[i].operators)) {
            lam_free(list);
            return LAM_RAISE(err, LAM_E_FORMAT, "run %zu of what acted on cached rows is malformed", i);
        }
        list[i].end = (size_t)end;
        before = end;
    }
    *runs = list;
    return LAM_OK;
}

lam_code lam_interval_digest(const struct lam_row_contract *contract, const struct lam_run *runs, size_t n_runs, size_t begin, size_t end,
                             uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    json_t *whole = json_pack("{s:s,s:o,s:I,s:I,s:o}", "type", "lamina.interval.v0", "contract", lam_row_contract_json(contract), "begin",
                              (json_int_t)begin, "end", (json_int_t)end, "execution", lam_runs_json(runs, n_runs, end));
    if (!whole) return LAM_RAISE(err, LAM_E_NO_MEMORY, "interval digest");
    lam_code code = lam_json_digest(whole, out, err);
    json_decref(whole);
    return code;
}
