#include "text/merge.h"

#include "base/alloc.h"

void lam_merger_release(struct lam_merger *m)
{
    lam_free(m->symbols);
    lam_free(m->heap);
}

void lam_merger_clear(struct lam_merger *m) { m->n = m->n_heap = 0; }

static lam_code grow(void **items, size_t n, size_t *cap, size_t size, lam_error *err)
{
    if (n < *cap) return LAM_OK;
    size_t more = *cap ? *cap * 2 : 64;
    void *grown = lam_realloc(*items, more, size);
    if (!grown) return LAM_RAISE(err, LAM_E_NO_MEMORY, "merging %zu symbols", n);
    *items = grown;
    *cap = more;
    return LAM_OK;
}

lam_code lam_merger_push(struct lam_merger *m, uint32_t id, uint32_t start, uint32_t len, lam_error *err)
{
    LAM_TRY(grow((void **)&m->symbols, m->n, &m->cap, sizeof *m->symbols, err));
    uint32_t at = (uint32_t)m->n;
    m->symbols[m->n++] = (struct lam_symbol){.id = id, .start = start, .len = len,
                                             .prev = at ? at - 1 : LAM_SYMBOL_END, .next = LAM_SYMBOL_END};
    if (at) m->symbols[at - 1].next = at;
    return LAM_OK;
}

static bool before(const struct lam_candidate *a, const struct lam_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void sift_up(struct lam_candidate *heap, size_t at)
{
    struct lam_candidate moving = heap[at];
    while (at > 0 && before(&moving, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = moving;
}

static void sift_down(struct lam_candidate *heap, size_t n, size_t at)
{
    struct lam_candidate moving = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &moving)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

/* Put the pair (left, its next) on the heap if it merges. */
static lam_code consider(struct lam_merger *m, uint32_t left, lam_pair_fn pair, const void *context, lam_error *err)
{
    if (left == LAM_SYMBOL_END || m->symbols[left].next == LAM_SYMBOL_END) return LAM_OK;
    struct lam_candidate c = {.left = left};
    if (!pair(context, &m->symbols[left], &m->symbols[m->symbols[left].next], &c.rank, &c.result)) return LAM_OK;
    LAM_TRY(grow((void **)&m->heap, m->n_heap, &m->cap_heap, sizeof *m->heap, err));
    m->heap[m->n_heap] = c;
    sift_up(m->heap, m->n_heap++);
    return LAM_OK;
}

static struct lam_candidate pop(struct lam_merger *m)
{
    struct lam_candidate top = m->heap[0];
    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap) sift_down(m->heap, m->n_heap, 0);
    return top;
}

/* A candidate is stale if its symbols have changed since. As in Hugging Face tokenizers, what counts is that the pair now
 * there gives the same token, not that it is the same pair. */
static bool still_holds(const struct lam_merger *m, const struct lam_candidate *c, lam_pair_fn pair, const void *context)
{
    const struct lam_symbol *left = &m->symbols[c->left];
    uint32_t rank, result;
    if (left->len == 0 || left->next == LAM_SYMBOL_END) return false;
    return pair(context, left, &m->symbols[left->next], &rank, &result) && result == c->result;
}

lam_code lam_merger_run(struct lam_merger *m, lam_pair_fn pair, const void *context, lam_error *err)
{
    m->n_heap = 0;
    if (m->n >= UINT32_MAX) return LAM_RAISE(err, LAM_E_LIMIT, "a word of %zu symbols", m->n);
    for (size_t i = 0; i + 1 < m->n; i++) LAM_TRY(consider(m, (uint32_t)i, pair, context, err));
    while (m->n_heap > 0) {
        struct lam_candidate top = pop(m);
        if (!still_holds(m, &top, pair, context)) continue;
        struct lam_symbol *left = &m->symbols[top.left], *right = &m->symbols[left->next];
        left->id = top.result;
        left->len += right->len;
        right->len = 0;
        left->next = right->next;
        if (left->next != LAM_SYMBOL_END) m->symbols[left->next].prev = top.left;
        LAM_TRY(consider(m, left->prev, pair, context, err));
        LAM_TRY(consider(m, top.left, pair, context, err));
    }
    return LAM_OK;
}
