/* How fast the engine's threads read a base's weights where they are mapped, and how many bytes a token needs of them: the two
 * numbers that bound decode. */
#include "base/os.h"
#include "run/objects.h"
#include "tensor/tiles.h"

#include <stdatomic.h>

#define LINE ((size_t)64)
#define PIECE ((size_t)512 << 10) /* bytes that a thread claims at once */
#define AHEAD 1024                /* bytes; with it the stream doesn't break at a page's end */

struct reading {
    const uint8_t *bytes;
    size_t size;
    atomic_uint_fast64_t sum; /* of what was read, so that the compiler keeps the loads */
};

/* One load of each cache line fetches all of it. */
static uint64_t read_lines(const uint8_t *p, size_t size)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;
    size_t i = 0;
    for (; i + 4 * LINE <= size; i += 4 * LINE) {
        for (size_t k = 0; k < 4 * LINE; k += LINE) __builtin_prefetch(p + i + k + AHEAD);
        a += *(const uint64_t *)(p + i);
        b += *(const uint64_t *)(p + i + LINE);
        c += *(const uint64_t *)(p + i + 2 * LINE);
        d += *(const uint64_t *)(p + i + 3 * LINE);
    }
    for (; i < size; i += LINE) a += p[i];
    return a + b + c + d;
}

static void read_piece(void *context, size_t i, unsigned thread)
{
    struct reading *r = context;
    size_t left = r->size - i * PIECE;
    (void)thread;
    atomic_fetch_add_explicit(&r->sum, read_lines(r->bytes + i * PIECE, left < PIECE ? left : PIECE), memory_order_relaxed);
}

lam_code lam_base_read_bandwidth(lam_base *b, double *bytes_per_second, lam_error *err)
{
    const struct lam_slm *file = b->model->file;
    struct lam_pool *pool = b->engine->pool;
    struct reading r = {.bytes = file->data, .size = file->data_bytes};
    LAM_TRY(lam_mapping_check(&file->file, err));
    lam_pool_lock(pool);
    double start = lam_now();
    lam_pool_run(pool, (r.size + PIECE - 1) / PIECE, read_piece, &r);
    double seconds = lam_now() - start;
    lam_pool_unlock(pool);
    *bytes_per_second = seconds > 0.0 ? (double)r.size / seconds : 0.0;
    return LAM_OK;
}

/* Tiles, and the residual's row starts, columns and values. */
static size_t matrix_bytes(const struct lam_matrix *m)
{
    const struct lam_residual *r = &m->residual;
    size_t tiles = (m->rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS * m->stride;
    return tiles + (r->n ? ((size_t)m->rows + 1) * 4 + (size_t)r->n * (r->columns16 ? 4 : 6) : 0);
}

static uint64_t weight_bytes(const struct lam_model *m)
{
    uint64_t sum = matrix_bytes(&m->output);
    for (uint32_t i = 0; i < m->config.n_layers; i++) {
        const struct lam_layer *l = &m->layers[i];
        const struct lam_matrix *matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < sizeof matrices / sizeof *matrices; k++) sum += matrix_bytes(matrices[k]);
    }
    return sum;
}

void lam_session_next_bytes(const lam_session *s, uint64_t *weights, uint64_t *kv)
{
    const struct lam_model *m = s->composition->base->model;
    uint64_t a_position = lam_kv_page_bytes(&s->kv) / LAM_KV_PAGE / m->config.n_layers; /* of one layer */
    *weights = weight_bytes(m);
    *kv = 0;
    for (uint32_t i = 0; i < m->config.n_layers; i++) {
        size_t seen = s->length + 1, window = m->config.local[i] ? m->config.window : seen;
        *kv += (seen < window ? seen : window) * a_position;
    }
}
