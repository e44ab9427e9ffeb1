/* Sessions in files (docs/format.md, "Saved sessions"). */
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/os.h"
#include "cache/saved.h"
#include "run/activation.h"
#include "run/session.h"
#include "run/witness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- saving ---- */

static json_t *digest_json(const uint8_t digest[LAM_SHA256_BYTES])
{
    char text[LAM_DIGEST_TEXT];
    lam_digest_text(digest, text);
    return json_string(text);
}

static void tokens_digest(const uint32_t *tokens, size_t n, uint8_t out[LAM_SHA256_BYTES])
{
    struct lam_sha256 hash;
    lam_sha256_init(&hash);
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[4];
        lam_store_u32(bytes, tokens[i]);
        lam_sha256_update(&hash, bytes, sizeof bytes);
    }
    lam_sha256_final(&hash, out);
}

static json_t *adapters_json(const struct lam_composition *c)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < c->n_adapters; i++)
        if (json_array_append_new(list, json_pack("{s:s,s:s}", "name", c->adapters[i]->staged->name, "adapter_digest",
                                                  c->adapters[i]->staged->digest)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *starts_json(const struct lam_session *s)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < lam_composition_n_activated(s->composition); i++)
        if (json_array_append_new(list, s->starts[i] == LAM_NO_START ? json_null() : json_integer((json_int_t)s->starts[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* What the last token's logits depend on beside its rows. */
static lam_code logits_operators(const struct lam_session *s, uint8_t out[LAM_SHA256_BYTES], lam_error *err)
{
    uint64_t mask = lam_activation_mask(s->starts, lam_composition_n_activated(s->composition), s->length - 1);
    return lam_activation_operators(s->composition, mask, LAM_CLOSURE_LOGITS, out, err);
}

static lam_code logits_json(const struct lam_session *s, json_t **out, lam_error *err)
{
    uint8_t digest[LAM_SHA256_BYTES];
    *out = json_null();
    if (!s->has_logits) return LAM_OK;
    LAM_TRY(logits_operators(s, digest, err));
    *out = json_pack("{s:[s,s],s:o}", "rule", "hidden_closure", "lm_head", "operators", digest_json(digest));
    return *out ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a session's description");
}

/* Under the lock of the engine's pool. */
static lam_code describe(const struct lam_session *s, struct lam_str *out, lam_error *err)
{
    struct lam_row_contract contract;
    struct lam_run *runs;
    struct lam_rows rows;
    uint8_t tokens[LAM_SHA256_BYTES], interval[LAM_SHA256_BYTES];
    json_t *logits = NULL;
    char draws[24];
    LAM_TRY(lam_session_rows(s, &contract, &runs, &rows, err));
    tokens_digest(s->tokens, s->length, tokens);
    snprintf(draws, sizeof draws, "%llu", (unsigned long long)s->n_draws);
    lam_code code = lam_interval_digest(&contract, runs, rows.n_runs, 0, s->length, interval, err);
    if (code == LAM_OK) code = logits_json(s, &logits, err);
    json_t *whole = code != LAM_OK ? NULL : json_pack(
        "{s:s,s:s,s:o,s:o,s:o,s:o,s:i,s:I,s:i,s:o,s:o,s:o,s:b,s:s}", "type", "lamina.session.v0", "composition_id", s->composition->id,
        "adapters", adapters_json(s->composition), "key", lam_row_contract_json(&contract), "execution",
        lam_runs_json(runs, rows.n_runs, s->length), "interval_digest", digest_json(interval), "first_position", 0, "covered_end",
        (json_int_t)s->length, "complete_layers", (int)rows.complete_layers, "tokens_digest", digest_json(tokens), "logits", logits,
        "starts", starts_json(s), "stale", s->stale, "draws", draws);
    lam_free(runs);
    if (code == LAM_OK) code = whole ? lam_json_canonical(whole, out, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "a session's description");
    json_decref(whole);
    return code;
}

struct hashing {
    struct lam_writer *writer;
    struct lam_sha256 hash;
};

static lam_code put(struct hashing *h, const void *bytes, size_t n, lam_error *err)
{
    lam_sha256_update(&h->hash, bytes, n);
    return lam_writer_write(h->writer, bytes, n, err);
}

/* The last page with zeros where rows were that are no longer in the history. */
static lam_code clean_copy(const struct lam_session *s, size_t page, struct lam_kv_page **out, lam_error *err)
{
    const struct lam_kernels *kernels = s->composition->base->engine->kernels;
    struct lam_kv one = s->kv;
    float *zeros = lam_alloc(s->kv.head_dim, sizeof *zeros);
    lam_code code = zeros ? lam_kv_clone(&s->kv, s->kv.pages[page], out, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "a position of zeros");
    one.pages = out;
    for (size_t at = s->length % LAM_KV_PAGE; code == LAM_OK && at < LAM_KV_PAGE; at++)
        for (uint32_t l = 0; l < one.n_layers; l++)
            for (uint32_t h = 0; h < one.n_heads; h++)
                kernels->kv_store(one.type, one.head_dim, zeros, zeros, at, lam_kv_k(&one, 0, l, h), lam_kv_v(&one, 0, l, h));
    lam_free(zeros);
    return code;
}

static lam_code put_pages(struct hashing *h, const struct lam_session *s, lam_error *err)
{
    size_t page_bytes = lam_kv_page_bytes(&s->kv);
    for (size_t p = 0; p * LAM_KV_PAGE < s->length; p++) {
        bool whole = (p + 1) * LAM_KV_PAGE <= s->length;
        struct lam_kv_page *page;
        if (whole) page = lam_kv_hold(s->kv.pages[p]);
        else LAM_TRY(clean_copy(s, p, &page, err));
        lam_code code = put(h, lam_kv_bytes(page), page_bytes, err);
        lam_kv_drop(page);
        LAM_TRY(code);
    }
    return LAM_OK;
}

static lam_code put_all(struct hashing *h, const struct lam_session *s, const struct lam_str *description, lam_error *err)
{
    size_t n_vocab = s->composition->base->model->config.n_vocab, logits = s->has_logits ? n_vocab * sizeof *s->logits : 0;
    size_t pages = (s->length + LAM_KV_PAGE - 1) / LAM_KV_PAGE;
    uint8_t header[LAM_SAVED_HEADER], digest[LAM_SHA256_BYTES];
    LAM_TRY(lam_saved_header(description->len, s->length, pages * lam_kv_page_bytes(&s->kv), logits, header, err));
    LAM_TRY(put(h, header, sizeof header, err));
    LAM_TRY(put(h, description->data, description->len, err));
    for (size_t i = 0; i < s->length; i++) {
        uint8_t bytes[4];
        lam_store_u32(bytes, s->tokens[i]);
        LAM_TRY(put(h, bytes, sizeof bytes, err));
    }
    LAM_TRY(put_pages(h, s, err));
    LAM_TRY(put(h, s->logits, logits, err)); /* machines are little-endian, or bases would not open */
    lam_sha256_final(&h->hash, digest);
    return lam_writer_write(h->writer, digest, sizeof digest, err);
}

lam_code lam_session_save(lam_session *s, const char *path, lam_error *err)
{
    struct lam_pool *pool = s->composition->base->engine->pool;
    struct lam_str description = {0};
    struct hashing h = {.writer = NULL};
    lam_sha256_init(&h.hash);
    lam_pool_lock(pool);
    lam_code code = describe(s, &description, err);
    lam_pool_unlock(pool);
    if (code == LAM_OK) code = lam_writer_open(path, &h.writer, err);
    if (code == LAM_OK) code = put_all(&h, s, &description, err);
    if (code == LAM_OK) code = lam_writer_commit(h.writer, err);
    else lam_writer_abort(h.writer);
    lam_str_release(&description);
    return code;
}

/* ---- restoring ---- */

static lam_code bad(const char *what, lam_error *err) { return LAM_RAISE(err, LAM_E_FORMAT, "a saved session: %s", what); }

/* Another composition's state: with the same adapters by name it is their bytes that changed. */
static lam_code check_identity(const json_t *d, const struct lam_composition *c, lam_error *err)
{
    const char *id = json_string_value(json_object_get(d, "composition_id"));
    const json_t *adapters = json_object_get(d, "adapters");
    if (!id || !json_is_array(adapters)) return bad("it names no composition", err);
    if (strcmp(id, c->id) == 0) return LAM_OK;
    for (size_t i = 0; i < json_array_size(adapters) && i < c->n_adapters; i++) {
        const json_t *a = json_array_get(adapters, i);
        const char *name = json_string_value(json_object_get(a, "name")), *digest = json_string_value(json_object_get(a, "adapter_digest"));
        const struct lam_adapter *here = c->adapters[i]->staged;
        if (name && digest && strcmp(name, here->name) == 0 && strcmp(digest, here->digest) != 0)
            return LAM_RAISE(err, LAM_E_KV_REVISION, "adapter %s has other bytes than when the session was saved", here->name);
    }
    return LAM_RAISE(err, LAM_E_IDENTITY, "the session was saved under %.80s, this is %s", id, c->id);
}

static lam_code check_members(const json_t *d, lam_error *err)
{
    static const char *const known[] = {"type", "composition_id", "adapters", "key", "execution", "interval_digest", "first_position",
                                        "covered_end", "complete_layers", "tokens_digest", "logits", "starts", "stale", "draws"};
    /* Not of the rows: whose they are and where that one stood. */
    static const char *const owner[] = {"composition_id", "adapters", "starts", "stale", "draws"};
    const char *key, *type = json_string_value(json_object_get(d, "type"));
    json_t *value;
    if (!type || strcmp(type, "lamina.session.v0") != 0) return bad("its description is of another type", err);
    json_object_foreach((json_t *)(uintptr_t)d, key, value) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(known[i], key) != 0) i++;
        if (i == sizeof known / sizeof *known) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "a saved session has a member that we do not know: %s", key);
    }
    for (size_t i = 0; i < sizeof owner / sizeof *owner; i++)
        if (!json_object_get(d, owner[i]))
            return LAM_RAISE(err, LAM_E_KV_OWNER, "a saved session lacks \"%s\", without which nobody can go on with its rows", owner[i]);
    return LAM_OK;
}

/* Where activated adapters act: their invocations must be there. */
static lam_code read_starts(const json_t *d, struct lam_session *s, bool allow_base, lam_error *err)
{
    const json_t *starts = json_object_get(d, "starts"), *stale = json_object_get(d, "stale");
    size_t n = lam_composition_n_activated(s->composition);
    if (!json_is_array(starts) || json_array_size(starts) != n || !json_is_boolean(stale)) return bad("it does not say where adapters act", err);
    s->stale = json_is_true(stale);
    for (size_t i = 0; i < n; i++) {
        const struct lam_adapter *a = lam_composition_activated(s->composition, i);
        const json_t *start = json_array_get(starts, i);
        json_int_t at = json_integer_value(start);
        if (json_is_null(start)) {
            if (s->stale || allow_base) continue;
            return LAM_RAISE(err, LAM_E_BASE_FALLBACK, "adapter %s never acted in the saved session, which is the base's in its place", a->name);
        }
        if (!json_is_integer(start) || at < 0 || (size_t)at >= s->length) return bad("an adapter acts where there is no row", err);
        size_t left = s->length - (size_t)at, match = a->n_invocation < left ? a->n_invocation : left;
        if ((match < a->n_invocation && !s->stale) || memcmp(s->tokens + at, a->invocation, match * sizeof *s->tokens) != 0)
            return bad("an adapter acts where its invocation does not stand", err);
        s->starts[i] = (size_t)at;
    }
    return LAM_OK;
}

static lam_code read_draws(const json_t *d, struct lam_session *s, lam_error *err)
{
    const char *text = json_string_value(json_object_get(d, "draws"));
    char *end;
    if (!text || text[0] < '0' || text[0] > '9' || strlen(text) > 20) return bad("it has no proper number of draws", err);
    s->n_draws = strtoull(text, &end, 10);
    return *end ? bad("it has no proper number of draws", err) : LAM_OK;
}

static bool is_digest(const json_t *value, const uint8_t digest[LAM_SHA256_BYTES])
{
    char text[LAM_DIGEST_TEXT];
    lam_digest_text(digest, text);
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* The rows of the file must be those that the composition would compute for these tokens. Under the lock. */
static lam_code check_rows(const json_t *d, const struct lam_session *s, lam_error *err)
{
    struct lam_row_contract contracts[2];
    struct lam_run *runs[2] = {NULL, NULL};
    struct lam_rows want, have = {.tokens = s->tokens, .n = s->length, .frozen = true};
    uint8_t digest[LAM_SHA256_BYTES];
    size_t n;
    json_int_t first = json_integer_value(json_object_get(d, "first_position")), end = json_integer_value(json_object_get(d, "covered_end"));
    json_int_t layers = json_integer_value(json_object_get(d, "complete_layers"));
    if (first < 0 || end < first || layers < 0 || layers > UINT32_MAX) return bad("its rows are malformed", err);
    have.first = (size_t)first;
    have.covered_end = (size_t)end;
    have.complete_layers = (uint32_t)layers;
    LAM_TRY(lam_row_contract_read(json_object_get(d, "key"), &contracts[0], err));
    have.contract = &contracts[0];
    LAM_TRY(lam_runs_read(json_object_get(d, "execution"), &runs[0], &have.n_runs, err));
    have.runs = runs[0];
    lam_code code = lam_session_rows(s, &contracts[1], &runs[1], &want, err);
    if (code == LAM_OK) code = lam_rows_admit(&want, &have, true, &n, err);
    if (code == LAM_OK && n != s->length) code = LAM_RAISE(err, LAM_E_KV_COVERAGE, "a saved session: %zu of %zu rows are covered", n, s->length);
    if (code == LAM_OK) code = lam_interval_digest(&contracts[1], want.runs, want.n_runs, 0, s->length, digest, err);
    if (code == LAM_OK && !is_digest(json_object_get(d, "interval_digest"), digest))
        code = LAM_RAISE(err, LAM_E_KV_EXECUTION, "a saved session: its interval digest is another");
    lam_free(runs[0]);
    lam_free(runs[1]);
    return code;
}

/* Under the lock. */
static lam_code check_logits(const json_t *d, const struct lam_saved *file, struct lam_session *s, lam_error *err)
{
    const json_t *logits = json_object_get(d, "logits"), *rule = json_object_get(logits, "rule");
    uint8_t digest[LAM_SHA256_BYTES];
    size_t n_vocab = s->composition->base->model->config.n_vocab;
    if (json_is_null(logits)) return file->logits_bytes ? bad("it has logits without a key", err) : LAM_OK;
    if (s->length == 0 || file->logits_bytes != n_vocab * sizeof *s->logits) return bad("it has another number of logits", err);
    const char *first = json_string_value(json_array_get(rule, 0)), *second = json_string_value(json_array_get(rule, 1));
    if (json_array_size(rule) != 2 || !first || !second || strcmp(first, "hidden_closure") != 0 || strcmp(second, "lm_head") != 0)
        return LAM_RAISE(err, LAM_E_KV_LOGITS, "a saved session: the key of its logits does not cover the hidden state and the head");
    LAM_TRY(logits_operators(s, digest, err));
    if (!is_digest(json_object_get(logits, "operators"), digest))
        return LAM_RAISE(err, LAM_E_KV_LOGITS, "a saved session: its logits are of other operators");
    memcpy(s->logits, file->logits, file->logits_bytes);
    for (size_t i = 0; i < n_vocab; i++)
        if (!isfinite(s->logits[i])) return LAM_RAISE(err, LAM_E_NON_FINITE, "a saved session: logit %zu is not finite", i);
    s->has_logits = true;
    return LAM_OK;
}

static lam_code read_tokens(const json_t *d, const struct lam_saved *file, struct lam_session *s, lam_error *err)
{
    uint32_t n_vocab = s->composition->base->model->config.n_vocab;
    uint8_t digest[LAM_SHA256_BYTES];
    for (size_t i = 0; i < file->n_tokens; i++) {
        s->tokens[i] = lam_load_u32(file->tokens + 4 * i);
        if (s->tokens[i] >= n_vocab) return LAM_RAISE(err, LAM_E_TOKEN, "a saved session: token %u is outside the vocabulary of %u", s->tokens[i], n_vocab);
    }
    s->length = file->n_tokens;
    tokens_digest(s->tokens, s->length, digest);
    if (is_digest(json_object_get(d, "tokens_digest"), digest)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_KV_TOKENS, "a saved session: its rows are of other tokens");
}

static lam_code read_pages(const struct lam_saved *file, struct lam_session *s, lam_error *err)
{
    size_t page_bytes = lam_kv_page_bytes(&s->kv), n = (s->length + LAM_KV_PAGE - 1) / LAM_KV_PAGE;
    if (file->kv_bytes / page_bytes != n || file->kv_bytes % page_bytes) return bad("its keys and values are of another size", err);
    LAM_TRY(lam_kv_reserve(&s->kv, s->length, err));
    for (size_t p = 0; p < n; p++) memcpy(lam_kv_bytes(s->kv.pages[p]), file->kv + p * page_bytes, page_bytes);
    return LAM_OK;
}

static lam_code fill(const json_t *d, const struct lam_saved *file, const lam_restore_options *options, struct lam_session *s, lam_error *err)
{
    struct lam_pool *pool = s->composition->base->engine->pool;
    LAM_TRY(read_tokens(d, file, s, err));
    LAM_TRY(read_starts(d, s, options->allow_base, err));
    LAM_TRY(read_draws(d, s, err));
    lam_pool_lock(pool);
    lam_code code = check_rows(d, s, err);
    if (code == LAM_OK) code = check_logits(d, file, s, err);
    lam_pool_unlock(pool);
    LAM_TRY(code);
    LAM_TRY(read_pages(file, s, err));
    return lam_witness_check(s, err);
}

static lam_code restore(lam_composition *c, const struct lam_saved *file, const json_t *d, const lam_restore_options *options,
                        lam_session **out, lam_error *err)
{
    struct lam_session *s;
    size_t context = options->context;
    LAM_TRY(check_members(d, err));
    LAM_TRY(check_identity(d, c, err));
    if (context && context < file->n_tokens)
        return LAM_RAISE(err, LAM_E_CONTEXT, "the saved session has %zu tokens, the context room for %zu", file->n_tokens, context);
    LAM_TRY(lam_session_new(c, context, &s, err));
    if (s->context < file->n_tokens) { /* the default is less than what was saved */
        lam_session_free(s);
        LAM_TRY(lam_session_new(c, file->n_tokens, &s, err));
    }
    lam_code code = options->salt ? lam_session_isolate(s, options->salt, err) : LAM_OK;
    if (code == LAM_OK) code = fill(d, file, options, s, err);
    s->allow_base = options->allow_base;
    s->restored = true;
    if (code == LAM_OK) *out = s;
    else lam_session_free(s);
    return code;
}

lam_code lam_session_restore(lam_composition *composition, const char *path, const lam_restore_options *options, lam_session **out,
                             lam_error *err)
{
    const lam_restore_options defaults = {0};
    struct lam_mapping map;
    struct lam_saved file;
    lam_error why;
    json_t *d = NULL;
    *out = NULL;
    LAM_TRY(lam_map_file(path, &map, err));
    lam_code code = lam_saved_parse(map.data, map.size, &file, &why);
    if (code == LAM_OK) code = lam_json_parse((const char *)file.description, file.description_len, "a saved session's description", &d, &why);
    if (code == LAM_OK) code = restore(composition, &file, d, options ? options : &defaults, out, &why);
    json_decref(d);
    lam_unmap_file(&map);
    return code == LAM_OK ? LAM_OK : LAM_RAISE(err, code, "%.200s: %.300s", path, why.message);
}
