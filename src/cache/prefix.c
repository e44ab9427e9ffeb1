#include "cache/prefix.h"
#include "base/alloc.h"
#include "base/budget.h"

#include <string.h>

struct lam_prefix_entry {
    struct lam_prefix_entry *parent, *first_child, *next; /* next of the same parent */
    struct lam_prefix_entry *newer, *older;               /* by use */
    struct lam_kv_page *page;                             /* held; NULL in the root */
    struct lam_row_contract contract;
    struct lam_rows rows;                                 /* its contract, and tokens and runs that follow the entry */
    size_t bytes;
};

struct lam_prefix {
    struct lam_prefix_entry root;
    struct lam_prefix_entry *newest, *oldest;
    size_t budget;
    struct lam_prefix_counters counters;
};

lam_code lam_prefix_new(size_t budget, struct lam_prefix **out, lam_error *err)
{
    struct lam_prefix *p = *out = lam_alloc(1, sizeof *p);
    if (!p) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a prefix cache");
    p->budget = p->counters.budget = budget;
    return LAM_OK;
}

void lam_prefix_count(const struct lam_prefix *p, struct lam_prefix_counters *out) { *out = p->counters; }

/* ---- the order of use ---- */

static void unlink_use(struct lam_prefix *p, struct lam_prefix_entry *e)
{
    *(e->newer ? &e->newer->older : &p->newest) = e->older;
    *(e->older ? &e->older->newer : &p->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(struct lam_prefix *p, struct lam_prefix_entry *e)
{
    e->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = e;
    p->newest = e;
}

/* e was used, and all before it, which so are newer than it: the oldest entry never has one below it. */
static void touch(struct lam_prefix *p, struct lam_prefix_entry *e)
{
    for (; e && e != &p->root; e = e->parent) {
        unlink_use(p, e);
        link_newest(p, e);
    }
}

static void remove_entry(struct lam_prefix *p, struct lam_prefix_entry *e)
{
    struct lam_prefix_entry **at = &e->parent->first_child;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    unlink_use(p, e);
    p->counters.bytes -= e->bytes;
    p->counters.pages--;
    lam_kv_drop(e->page);
    lam_budget_free(e);
}

void lam_prefix_free(struct lam_prefix *p)
{
    if (!p) return;
    while (p->oldest) remove_entry(p, p->oldest);
    lam_free(p);
}

static void keep_budget(struct lam_prefix *p)
{
    while (p->counters.bytes > p->budget && p->oldest) {
        remove_entry(p, p->oldest);
        p->counters.evicted++;
    }
}

/* ---- a use ---- */

void lam_prefix_begin(struct lam_prefix *p, const struct lam_rows *want, struct lam_prefix_use *use)
{
    *use = (struct lam_prefix_use){.prefix = p, .stage = LAM_PREFIX_FROZEN, .want = *want};
}

static lam_code need_stage(const struct lam_prefix_use *use, enum lam_prefix_stage least, lam_code otherwise, const char *what, lam_error *err)
{
    return use->stage >= least ? LAM_OK : LAM_RAISE(err, otherwise, "the prefix cache: %s", what);
}

lam_code lam_prefix_authorise(struct lam_prefix_use *use, const char *name_space, lam_error *err)
{
    LAM_TRY(need_stage(use, LAM_PREFIX_FROZEN, LAM_E_ARGUMENT, "authorised before it was said for what", err));
    if (strcmp(use->want.contract->name_space, name_space) != 0)
        return LAM_RAISE(err, LAM_E_KV_NAMESPACE, "rows of another namespace were asked for");
    use->stage = LAM_PREFIX_AUTHORISED;
    return LAM_OK;
}

/* The part of want that begins at position `first`, at most `most` of it. */
static struct lam_rows part_of(const struct lam_rows *want, size_t first, size_t most)
{
    struct lam_rows part = *want;
    part.tokens = want->tokens + first;
    part.first = first;
    part.n = want->n - first < most ? want->n - first : most;
    return part;
}

/* The entry below parent that serves most of part; *n is how much. An entry that may not serve is no fault of who looks. */
static struct lam_prefix_entry *best_child(const struct lam_prefix_entry *parent, const struct lam_rows *part, size_t *n)
{
    struct lam_prefix_entry *best = NULL;
    *n = 0;
    for (struct lam_prefix_entry *e = parent->first_child; e; e = e->next) {
        size_t serves;
        if (lam_rows_admit(part, &e->rows, false, &serves, NULL) != LAM_OK || serves <= *n) continue;
        best = e;
        *n = serves;
    }
    return best;
}

lam_code lam_prefix_look_up(struct lam_prefix_use *use, size_t most, lam_error *err)
{
    struct lam_prefix *p = use->prefix;
    LAM_TRY(need_stage(use, LAM_PREFIX_AUTHORISED, LAM_E_KV_UNAUTHORISED, "looked up before it was said for whom", err));
    if (most > use->want.n) most = use->want.n;
    size_t room = most / LAM_KV_PAGE + 1, n = LAM_KV_PAGE;
    use->found = lam_alloc(room, sizeof *use->found);
    use->pages = lam_alloc(room, sizeof *use->pages);
    if (!use->found || !use->pages) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a look-up of %zu pages", room);
    struct lam_prefix_entry *at = &p->root;
    while (use->n < most && n == LAM_KV_PAGE) {
        struct lam_rows part = part_of(&use->want, use->n, most - use->n);
        struct lam_prefix_entry *e = best_child(at, &part, &n);
        if (!e) break;
        use->found[use->n_pages++] = at = e;
        use->n += n;
    }
    if (use->n_pages) touch(p, at);
    p->counters.lookups++;
    p->counters.hits += use->n > 0;
    p->counters.tokens_asked += most;
    p->counters.tokens_found += use->n;
    use->stage = LAM_PREFIX_FOUND;
    return LAM_OK;
}

lam_code lam_prefix_hold(struct lam_prefix_use *use, lam_error *err)
{
    LAM_TRY(need_stage(use, LAM_PREFIX_FOUND, LAM_E_KV_UNAUTHORISED, "held before it was looked up", err));
    for (size_t i = 0; i < use->n_pages; i++) use->pages[i] = lam_kv_hold(use->found[i]->page);
    use->stage = LAM_PREFIX_HELD;
    return LAM_OK;
}

lam_code lam_prefix_fork(struct lam_prefix_use *use, struct lam_kv *kv, lam_error *err)
{
    LAM_TRY(need_stage(use, LAM_PREFIX_HELD, LAM_E_KV_RECEIPT, "forked without being held", err));
    for (size_t i = 0; i < use->n_pages; i++)
        LAM_TRY((i + 1) * LAM_KV_PAGE <= use->n ? lam_kv_share(kv, use->pages[i], err) : lam_kv_copy(kv, use->pages[i], err));
    use->stage = LAM_PREFIX_FORKED;
    return LAM_OK;
}

void lam_prefix_end(struct lam_prefix_use *use)
{
    for (size_t i = 0; use->stage >= LAM_PREFIX_HELD && i < use->n_pages; i++) lam_kv_drop(use->pages[i]);
    lam_free(use->pages);
    lam_free(use->found);
    *use = (struct lam_prefix_use){0};
}

/* ---- publishing ---- */

/* The label of what is offered must be what acted on it. */
static lam_code check_label(const struct lam_prefix_use *use, const struct lam_rows *rows, const uint8_t *base_operators, lam_error *err)
{
    size_t n;
    struct lam_rows computed = use->want;
    if (rows->complete_layers != rows->contract->layers)
        return LAM_RAISE(err, LAM_E_KV_SUFFIX, "rows with %u of %u layers were offered to the prefix cache", rows->complete_layers,
                         rows->contract->layers);
    computed.covered_end = rows->covered_end;
    computed.n = rows->n;
    computed.frozen = true;
    computed.complete_layers = computed.contract->layers;
    if (!rows->frozen) return LAM_RAISE(err, LAM_E_KV_FROZEN, "rows that may still be written were offered to the prefix cache");
    lam_code code = lam_rows_admit(&computed, rows, true, &n, err);
    if (code != LAM_E_KV_EXECUTION) return code;
    bool base = memcmp(lam_rows_operators(rows->runs, rows->n_runs, n), base_operators, LAM_SHA256_BYTES) == 0;
    return LAM_RAISE(err, base ? LAM_E_KV_TAINT : LAM_E_KV_RELABELLED, "position %zu was offered to the prefix cache %s", n,
                     base ? "as the base's" : "under other operators than acted on it");
}

size_t lam_prefix_entry_bytes(size_t n, size_t n_runs)
{
    return sizeof(struct lam_prefix_entry) + n_runs * sizeof(struct lam_run) + n * sizeof(uint32_t);
}

/* n_tokens bounds what a new entry holds; its runs are those of all positions below its end. */
static lam_code new_entry(const struct lam_rows *rows, size_t first, size_t n, struct lam_budget *budget, struct lam_prefix_entry **out,
                          lam_error *err)
{
    size_t n_runs = 0;
    while (n_runs < rows->n_runs && (n_runs == 0 || rows->runs[n_runs - 1].end < first + n)) n_runs++;
    size_t bytes = lam_prefix_entry_bytes(n, n_runs);
    LAM_TRY(lam_budget_alloc(budget, bytes, 1, "an entry of the prefix cache", out, err));
    struct lam_prefix_entry *e = *out;
    struct lam_run *runs = (struct lam_run *)(e + 1);
    uint32_t *tokens = (uint32_t *)(runs + n_runs);
    memcpy(runs, rows->runs, n_runs * sizeof *runs);
    runs[n_runs - 1].end = first + n;
    memcpy(tokens, rows->tokens + first, n * sizeof *tokens);
    e->contract = *rows->contract;
    e->rows = (struct lam_rows){.contract = &e->contract, .tokens = tokens, .first = first, .n = n, .runs = runs, .n_runs = n_runs,
                                .covered_end = first + n, .complete_layers = e->contract.layers, .frozen = true};
    e->bytes = bytes;
    return LAM_OK;
}

/* The entry below parent for rows first .. first+n-1: one that is there already, or a new one. */
static lam_code put_page(struct lam_prefix *p, struct lam_prefix_entry *parent, const struct lam_rows *rows, size_t first, size_t n,
                         const struct lam_kv *kv, struct lam_prefix_entry **out, lam_error *err)
{
    struct lam_rows part = part_of(rows, first, n);
    size_t serves;
    struct lam_prefix_entry *there = best_child(parent, &part, &serves);
    *out = there;
    if (there && serves == n) return LAM_OK;
    struct lam_prefix_entry *e;
    struct lam_kv_page *page = kv->pages[first / LAM_KV_PAGE];
    LAM_TRY(new_entry(rows, first, n, kv->budget, &e, err));
    lam_code code = LAM_OK;
    if (n == LAM_KV_PAGE) e->page = lam_kv_hold(page);
    else code = lam_kv_clone(kv, page, &e->page, err);
    if (code != LAM_OK) {
        lam_budget_free(e);
        return code;
    }
    if (there && serves == there->rows.n) remove_entry(p, there); /* it was a beginning of the new one, and no whole page */
    e->bytes += lam_kv_page_bytes(kv);
    e->parent = parent;
    e->next = parent->first_child;
    parent->first_child = e;
    link_newest(p, e);
    p->counters.bytes += e->bytes;
    p->counters.pages++;
    *out = e;
    return LAM_OK;
}

/* What was forked is still there, as it was: the suffix goes below it. */
static lam_code check_parents(const struct lam_prefix_use *use, const struct lam_rows *rows, const struct lam_kv *kv, lam_error *err)
{
    struct lam_prefix_entry *at = &use->prefix->root;
    for (size_t i = 0; (i + 1) * LAM_KV_PAGE <= use->n; i++) {
        size_t n;
        struct lam_rows part = part_of(rows, i * LAM_KV_PAGE, LAM_KV_PAGE);
        at = best_child(at, &part, &n);
        if (!at || n != LAM_KV_PAGE || kv->pages[i] != use->pages[i])
            return LAM_RAISE(err, LAM_E_KV_PARENT, "page %zu, which the offered rows follow, is no longer in the prefix cache", i);
    }
    return LAM_OK;
}

lam_code lam_prefix_publish(struct lam_prefix_use *use, const struct lam_rows *rows, const struct lam_kv *kv,
                            const uint8_t base_operators[LAM_SHA256_BYTES], lam_error *err)
{
    struct lam_prefix *p = use->prefix;
    LAM_TRY(need_stage(use, LAM_PREFIX_AUTHORISED, LAM_E_KV_UNAUTHORISED, "published before it was said for whom", err));
    LAM_TRY(check_label(use, rows, base_operators, err));
    if (use->stage >= LAM_PREFIX_FORKED) LAM_TRY(check_parents(use, rows, kv, err));
    struct lam_prefix_entry *at = &p->root, *next;
    lam_code code = LAM_OK;
    for (size_t first = 0, n; first < rows->n; first += n) {
        n = rows->n - first < LAM_KV_PAGE ? rows->n - first : LAM_KV_PAGE;
        code = put_page(p, at, rows, first, n, kv, &next, err);
        if (code != LAM_OK) break;
        at = next;
    }
    touch(p, at);
    keep_budget(p);
    return code;
}
