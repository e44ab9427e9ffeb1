#include "model/attend.h"
#include "base/alloc.h"
#include "base/budget.h"

/* Multiply-adds of a layer below which one thread is done before others are awake: a few microseconds. */
#define SMALL_WORK 200000

lam_code lam_attend_init(struct lam_attend *a, const struct lam_config *config, struct lam_pool *pool,
                         const struct lam_kernels *kernels, size_t max_rows, lam_error *err)
{
    *a = (struct lam_attend){.config = config, .kernels = kernels, .pool = pool};
    a->blocks = lam_alloc(max_rows, sizeof *a->blocks);
    return a->blocks ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "attention of %zu rows", max_rows);
}

void lam_attend_release(struct lam_attend *a)
{
    lam_budget_free(a->scores);
    lam_budget_free(a->page_pointers);
    lam_free(a->blocks);
    *a = (struct lam_attend){0};
}

static size_t divide_up(size_t n, size_t by) { return (n + by - 1) / by; }

/* Blocks of at most rows_at_once rows of one session; written if blocks is not NULL. */
static size_t cut(const struct lam_row *rows, size_t n_rows, size_t rows_at_once, struct lam_attend_block *blocks)
{
    size_t n = 0;
    for (size_t i = 0, end; i < n_rows; i = end) {
        for (end = i + 1; end < n_rows && end - i < rows_at_once && rows[end].kv == rows[i].kv;) end++;
        if (blocks) blocks[n] = (struct lam_attend_block){i, end - i};
        n++;
    }
    return n;
}

/* Chooses rows_at_once and pieces: the fewest steps of the busiest thread, where an item takes a step for each query and one for
 * reading K and V. */
static void choose(struct lam_attend *a)
{
    const struct lam_config *c = a->config;
    size_t group = c->n_heads / c->n_kv_heads, threads = lam_pool_threads(a->pool), best = SIZE_MAX, best_rows = 1;
    size_t rows = group < LAM_ATTENTION_QUERIES ? LAM_ATTENTION_QUERIES / group : 1, pieces = divide_up(group, LAM_ATTENTION_QUERIES);
    for (;;) {
        size_t items = cut(a->rows, a->n_rows, rows, NULL) * c->n_kv_heads * pieces;
        size_t steps = divide_up(items, threads) * (rows * divide_up(group, pieces) + 1);
        if (steps < best) {
            best = steps;
            best_rows = rows;
            a->pieces = pieces;
        }
        if (rows > 1) rows /= 2;
        else if (pieces < group) pieces++;
        else break;
    }
    a->n_blocks = cut(a->rows, a->n_rows, best_rows, a->blocks);
}

lam_code lam_attend_plan(struct lam_attend *a, const struct lam_row *rows, size_t n_rows, lam_error *err)
{
    size_t last = 0, n_threads = lam_pool_threads(a->pool);
    for (size_t i = 0; i < n_rows; i++) last = rows[i].position > last ? rows[i].position : last;
    a->rows = rows;
    a->n_rows = n_rows;
    choose(a);
    size_t pages = last / LAM_KV_PAGE + 1, floats;
    if (pages <= a->max_pages) return LAM_OK;
    lam_budget_free(a->scores);
    lam_budget_free(a->page_pointers);
    a->max_pages = 0;
    a->scores = NULL;
    a->page_pointers = NULL;
    a->scores_stride = (pages + 1) * LAM_KV_PAGE + 16; /* no power of two: queries' scores shall not share cache sets */
    if (!lam_mul_size(n_threads * LAM_ATTENTION_QUERIES, a->scores_stride, &floats))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "attention over %zu positions", last + 1);
    LAM_TRY(lam_budget_alloc(a->budget, floats, sizeof *a->scores, "scores of attention", &a->scores, err));
    LAM_TRY(lam_budget_alloc(a->budget, n_threads * 2 * pages, sizeof *a->page_pointers, "pages of attention", &a->page_pointers, err));
    a->max_pages = pages;
    return LAM_OK;
}

/* The first position that a row sees. */
static size_t first_visible(const struct lam_attend *a, const struct lam_row *row)
{
    const struct lam_config *c = a->config;
    return c->local[a->layer] && row->position + 1 > c->window ? row->position + 1 - c->window : 0;
}

/* Item: a block's rows and a piece of the heads over one KV head. */
static void attend(void *context, size_t item, unsigned thread)
{
    const struct lam_attend *a = context;
    const struct lam_config *c = a->config;
    const struct lam_attend_block *block = &a->blocks[item / a->pieces / c->n_kv_heads];
    size_t kv_head = item / a->pieces % c->n_kv_heads, piece = item % a->pieces, group = c->n_heads / c->n_kv_heads;
    size_t head = kv_head * group + group * piece / a->pieces, end = kv_head * group + group * (piece + 1) / a->pieces;
    const struct lam_kv *kv = a->rows[block->row].kv;
    const void **k_pages = a->page_pointers + (size_t)thread * 2 * a->max_pages, **v_pages = k_pages + a->max_pages;
    struct lam_attention call = {.kv = kv->type, .k_pages = k_pages, .v_pages = v_pages, .d = c->head_dim, .scale = c->attention_scale,
                                 .softcap = c->attention_softcap,
                                 .scores = a->scores + (size_t)thread * LAM_ATTENTION_QUERIES * a->scores_stride,
                                 .scores_stride = a->scores_stride};
    size_t first = SIZE_MAX, last = 0;
    for (size_t i = block->row; i < block->row + block->n_rows; i++) {
        size_t from = first_visible(a, &a->rows[i]), to = a->rows[i].position;
        first = from < first ? from : first;
        last = to > last ? to : last;
        for (size_t h = head; h < end; h++) {
            size_t at = i * a->stride + h * c->head_dim;
            call.query[call.n++] = (struct lam_query){a->q + at, from, to, a->out + at};
        }
    }
    for (size_t p = first / LAM_KV_PAGE; p <= last / LAM_KV_PAGE; p++) {
        k_pages[p] = lam_kv_k(kv, p, a->layer, (uint32_t)kv_head);
        v_pages[p] = lam_kv_v(kv, p, a->layer, (uint32_t)kv_head);
    }
    a->kernels->attention(&call);
}

void lam_attend_run(struct lam_attend *a, uint32_t layer, const float *q, float *out, size_t stride)
{
    const struct lam_config *c = a->config;
    size_t items = a->n_blocks * c->n_kv_heads * a->pieces, visible = 0;
    a->layer = layer;
    a->q = q;
    a->out = out;
    a->stride = stride;
    for (size_t i = 0; i < a->n_rows; i++) visible += a->rows[i].position + 1 - first_visible(a, &a->rows[i]);
    if (2 * visible * c->n_heads * c->head_dim >= SMALL_WORK) {
        lam_pool_run(a->pool, items, attend, a);
        return;
    }
    for (size_t i = 0; i < items; i++) attend(a, i, 0);
}
