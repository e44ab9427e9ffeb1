/* Memory that ends while a stack of every method is composed, run, re-based, saved and restored, while manifests and receipts are made and
 * read, and while models are compared and merged. */
#define _POSIX_C_SOURCE 200809L

#include "no_memory.h"

#include "lamina/diff.h"
#include "lamina/manifest.h"
#include "lamina/merge.h"
#include "lamina/receipt.h"
#include "lamina/reuse.h"

#include <unistd.h>

#define METHODS "tests/golden/methods/llama-gqa/"

enum { DORA, IA3, BIASED, SPARSE, DENSE, NORMS, HEAD, ACTIVATED, N_STACK };
static const char *const stack[N_STACK] = {METHODS "dora", METHODS "ia3", METHODS "lora-bias", METHODS "sparse.slm", METHODS "dense.slm",
                                           METHODS "norms", METHODS "saved-head", METHODS "alora"};

/* What every stage opens. */
struct opened {
    lam_engine *engine;
    lam_base *base;
    lam_adapter *adapters[N_STACK];
    lam_composition *dual, *materialized;
};

static lam_code open_all(const struct fixture *f, struct opened *o, lam_error *err)
{
    static const double weights[N_STACK] = {1, 0.5, 2, 1, 0.25, 0.5, 1, 1};
    const lam_engine_options options = {.threads = 1};
    static const lam_owner owners[] = {{"output_norm", NORMS}};
    const lam_compose_options dual = {.owners = owners, .n_owners = 1, .chat_template = "{{ messages[0].content }}"};
    const lam_compose_options materialize = {.owners = owners, .n_owners = 1, .policy = LAM_POLICY_MATERIALIZE};
    *o = (struct opened){0};
    lam_code code = lam_engine_new(&options, &o->engine, err);
    if (code == LAM_OK) code = lam_base_open(o->engine, f->base_path, LAM_VERIFY_OFF, &o->base, err);
    for (size_t i = 0; code == LAM_OK && i < N_STACK; i++) code = lam_adapter_load(o->base, f->adapter_paths[i], true, &o->adapters[i], err);
    if (code == LAM_OK) code = lam_compose(o->base, o->adapters, weights, N_STACK, &dual, &o->dual, err);
    if (code == LAM_OK) code = lam_compose(o->base, o->adapters, weights, N_STACK - 1, &materialize, &o->materialized, err);
    return code;
}

static void close_all(struct opened *o)
{
    lam_composition_free(o->dual);
    lam_composition_free(o->materialized);
    for (size_t i = 0; i < N_STACK; i++) lam_adapter_unload(o->adapters[i]);
    lam_base_free(o->base);
    lam_engine_free(o->engine);
}

static lam_code feed(lam_session *s, uint64_t seed, size_t n, struct lam_sha256 *hash, lam_error *err)
{
    uint32_t tokens[64];
    fixture_tokens(seed, 32, tokens, n);
    return lam_session_feed(s, tokens, n, fixture_hash, hash, err);
}

/* Under one policy, re-based to the other, saved, restored, continued. */
static lam_code use(const struct fixture *f, struct opened *o, struct lam_sha256 *hash, lam_error *err)
{
    char path[1024];
    size_t kept;
    lam_session *s = NULL, *again = NULL;
    const lam_restore_options restore = {.context = 128, .allow_base = true};
    snprintf(path, sizeof path, "%s/session", f->folder);
    lam_code code = lam_session_new(o->materialized, 128, &s, err);
    if (code == LAM_OK) code = feed(s, 1, 20, hash, err);
    if (code == LAM_OK) lam_session_allow_base(s, true);
    if (code == LAM_OK) code = lam_session_rebase(s, o->dual, &kept, err);
    if (code == LAM_OK) code = feed(s, 2, 5, hash, err);
    if (code == LAM_OK) code = lam_session_save(s, path, err);
    if (code == LAM_OK) code = lam_session_restore(o->dual, path, &restore, &again, err);
    if (code == LAM_OK) code = feed(again, 3, 5, hash, err);
    lam_session_free(s);
    lam_session_free(again);
    return code;
}

static lam_code run_stack(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    struct opened o;
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256_init(&hash);
    lam_code code = open_all(f, &o, err);
    if (code == LAM_OK) code = use(f, &o, &hash, err);
    close_all(&o);
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    return code;
}

/* A composition's base as a file of its own, and what that file changes of the first. */
static lam_code merge_and_diff(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    char merged[1024], adapter[1024], *text = NULL;
    struct opened o;
    const lam_merge_options merge = {.dtype = "q8_0"};
    const lam_diff_options diff = {.method = LAM_DIFF_LORA, .rank = 2, .threads = 1};
    snprintf(merged, sizeof merged, "%s/merged.slm", f->folder);
    snprintf(adapter, sizeof adapter, "%s/diff.slm", f->folder);
    unlink(merged);
    unlink(adapter);
    lam_code code = open_all(f, &o, err);
    if (code == LAM_OK) code = lam_merge(o.materialized, merged, &merge, &text, err);
    lam_memory_free(text);
    text = NULL;
    close_all(&o);
    if (code == LAM_OK) code = lam_diff(f->base_path, merged, adapter, &diff, &text, err);
    lam_memory_free(text);
    memory.on = false;
    assert_int_equal(access(adapter, F_OK) == 0, code == LAM_OK); /* all or nothing */
    if (code == LAM_OK) assert_ok(lam_verify_file(adapter, NULL, out, err), *err);
    return code;
}

/* An adapter that is bound to no base is bound to one. */
static lam_code bind(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    char bound[1024];
    lam_adapter_report report;
    snprintf(bound, sizeof bound, "%s/bound.slm", f->folder);
    unlink(bound);
    lam_code code = lam_import_adapter(METHODS "sparse.slm", f->base_path, bound, NULL, &report, err);
    memory.on = false;
    assert_int_equal(access(bound, F_OK) == 0, code == LAM_OK); /* all or nothing */
    if (code == LAM_OK) memcpy(out, report.digest, LAM_DIGEST_TEXT);
    return code;
}

/* Who claims what of two adapters that replace everything. */
static lam_code contests(const struct fixture *f, const char *const files[], lam_error *err)
{
    lam_manifest_adapter adapters[] = {{.file = files[0], .weight = 1, .rule = LAM_STACK_REPLACE}, {.file = files[1], .weight = 1, .rule = LAM_STACK_REPLACE}};
    lam_manifest m = {.adapters = adapters, .n_adapters = 2};
    lam_contest *list;
    size_t n;
    lam_code code = lam_manifest_contests(&m, f->base_path, files, &list, &n, err);
    if (code == LAM_OK) assert_true(n > 0 && list[0].claimants == 3);
    else assert_true(n == 0 && !list);
    lam_memory_free(list);
    return code;
}

/* A manifest with a template and a signed receipt is written, read, checked. */
static lam_code manifest(const struct fixture *f, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    char path[1024], *text = NULL, *json = NULL;
    char id[LAM_DIGEST_TEXT];
    lam_fault_list faults = {0};
    lam_manifest *read = NULL;
    lam_trust *trust = NULL;
    lam_receipt_info info;
    const char *const files[] = {f->adapter_paths[DORA], f->adapter_paths[SPARSE]};
    const char *receipt;
    lam_digest_bytes("id", 2, id);
    lam_manifest_adapter adapters[] = {{.file = files[0], .weight = 0.5}, {.file = files[1], .weight = 2, .rule = LAM_STACK_REPLACE}};
    lam_manifest m = {.base_file = f->base_path, .adapters = adapters, .n_adapters = 2, .kv = LAM_KV_FLOAT16};
    char base[LAM_DIGEST_TEXT], digests[2][LAM_DIGEST_TEXT];
    for (size_t i = 0; i < 2; i++) lam_digest_bytes(&i, sizeof i, digests[i]), adapters[i].digest = digests[i];
    lam_digest_bytes("base", 4, base);
    m.base_digest = base;
    char template[1024], template_digest[LAM_DIGEST_TEXT];
    snprintf(template, sizeof template, "%s/t.jinja", f->folder);
    fixture_write(template, "{{ messages[0].content }}", 25);
    lam_digest_bytes("{{ messages[0].content }}", 25, template_digest);
    m.template_digest = template_digest;
    m.template_file = template;
    m.prompt = "P";
    m.sampling = (lam_manifest_sampling){.given = LAM_SAMPLING_TEMPERATURE, .temperature = 0.5};
    snprintf(path, sizeof path, "%s/manifest.json", f->folder);
    lam_code code = lam_receipt_make(id, "{\"perplexity\":1.5}", "A B", "tests/data/receipts/alice-private.pem", &text, err);
    receipt = text;
    m.receipts = &receipt;
    m.n_receipts = 1;
    if (code == LAM_OK) code = lam_manifest_write(&m, path, err);
    if (code == LAM_OK) code = lam_manifest_read(path, &read, &faults, err);
    if (code == LAM_OK) code = lam_trust_open("tests/data/receipts/alice.pem", &trust, err);
    if (code == LAM_OK) code = lam_receipt_check(read->receipts[0], strlen(read->receipts[0]), id, trust, &info, err);
    if (code == LAM_OK) assert_int_equal(info.state, LAM_RECEIPT_VERIFIED);
    if (code == LAM_OK) code = lam_manifest_json(read, path, &json, err);
    if (code == LAM_OK) lam_digest_bytes(json, strlen(json), out);
    lam_fault_list_release(&faults);
    if (code == LAM_OK) {
        code = lam_manifest_check(read, f->base_path, files, &faults, err); /* its digests are made up */
        if (code == LAM_E_WRONG_BASE || code == LAM_E_DIGEST) code = LAM_OK;
    }
    if (code == LAM_OK) code = contests(f, files, err);
    lam_fault_list_release(&faults);
    lam_trust_free(trust);
    lam_manifest_free(read);
    lam_memory_free(json);
    lam_memory_free(text);
    return code;
}

static void test_stack(void **state)
{
    static const struct stage s = {"a stack of every method", run_stack};
    fail_each(&s, *state);
}

static void test_merge_and_diff(void **state)
{
    static const struct stage s = {"merge and diff", merge_and_diff};
    fail_each(&s, *state);
}

static void test_bind(void **state)
{
    static const struct stage s = {"binding", bind};
    fail_each(&s, *state);
}

static void test_manifest(void **state)
{
    static const struct stage s = {"a manifest", manifest};
    fail_each(&s, *state);
}

static int setup(void **state)
{
    static struct fixture f;
    fixture_import(&f, "tests/golden/llama-gqa/llama-gqa-q4_0.gguf", stack, N_STACK);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stack), cmocka_unit_test(test_merge_and_diff), cmocka_unit_test(test_bind),
                                       cmocka_unit_test(test_manifest)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
