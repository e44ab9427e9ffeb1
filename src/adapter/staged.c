#include "adapter/staged.h"
#include "adapter/factor.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct inspecting {
    struct lam_sha256 a, b, bytes, scales, targets;
    struct lam_inspection *out;
    const struct lam_module *module;
};

static void note(struct inspecting *i, bool good, enum lam_staged_fault fault)
{
    if (!good) i->out->wrong |= 1u << fault;
}

static void missing(struct inspecting *i)
{
    if (i->out->n_missing++ == 0) snprintf(i->out->missing, sizeof i->out->missing, "%s", i->module->target->name);
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (bytes[k]) return false;
    return true;
}

/* Lanes n.. of 16 values of 4 bytes. */
static bool lanes_zero(const uint8_t *line, size_t n) { return all_zero(line + 4 * n, 4 * (LAM_TILE_ROWS - n)); }

static void look_at_float_tile(struct inspecting *i, const float *tile, size_t cols, size_t n_rows, enum lam_staged_fault tail)
{
    for (size_t k = 0; k < cols; k++) {
        note(i, lanes_zero((const uint8_t *)(tile + k * LAM_TILE_ROWS), n_rows), tail);
        for (size_t r = 0; r < LAM_TILE_ROWS; r++) note(i, isfinite(tile[k * LAM_TILE_ROWS + r]), LAM_STAGED_FINITE);
    }
}

/* Groups of 32 columns: 16 scales, then pairs of columns, 4 bytes a row. */
static void look_at_q14_tile(struct inspecting *i, const uint8_t *tile, size_t cols, size_t n_rows, enum lam_staged_fault tail)
{
    for (size_t first = 0; first < cols; first += LAM_GROUP) {
        size_t n = cols - first < LAM_GROUP ? cols - first : LAM_GROUP;
        float scales[LAM_TILE_ROWS];
        memcpy(scales, tile, sizeof scales);
        for (size_t r = 0; r < LAM_TILE_ROWS; r++) note(i, isfinite(scales[r]), LAM_STAGED_FINITE);
        note(i, lanes_zero(tile, n_rows), LAM_STAGED_TAIL);
        for (size_t pair = 0; pair < (n + 1) / 2; pair++) {
            const uint8_t *line = tile + 64 + 64 * pair;
            note(i, lanes_zero(line, n_rows), tail);
            for (size_t r = 0; r < LAM_TILE_ROWS && 2 * pair + 1 == n; r++) note(i, all_zero(line + 4 * r + 2, 2), tail);
        }
        tile += lam_q14_tile_bytes(n);
    }
}

/* A factor that should be [rows, cols], A or B; of another one no byte is read, as nothing says where it ends. */
static void look_at_factor(struct inspecting *i, const struct lam_factor *f, uint32_t rows, uint32_t cols, bool quantised, bool is_a)
{
    enum lam_staged_fault tail = is_a ? LAM_STAGED_TAIL_A : LAM_STAGED_TAIL_B;
    size_t bytes;
    if (!f->tiles) {
        missing(i);
        return;
    }
    bool fits = f->rows == rows && f->cols == cols, known = f->quantised == quantised && lam_factor_bytes(rows, cols, quantised, &bytes);
    note(i, fits, LAM_STAGED_EXTENT);
    note(i, known, LAM_STAGED_LAYOUT);
    if (!fits || !known) return;
    lam_sha256_update(is_a ? &i->a : &i->b, f->tiles, bytes);
    for (size_t t = 0; t * LAM_TILE_ROWS < rows; t++) {
        size_t left = rows - t * LAM_TILE_ROWS, n_rows = left < LAM_TILE_ROWS ? left : LAM_TILE_ROWS;
        if (quantised) look_at_q14_tile(i, lam_factor_q14(f, t, 1).bytes, cols, n_rows, tail);
        else look_at_float_tile(i, lam_factor_float_tile(f, t), cols, n_rows, tail);
    }
}

/* n values of `size` bytes, if they are there. */
static void add(struct inspecting *i, const void *values, size_t n, size_t size)
{
    if (values) lam_sha256_update(&i->bytes, values, n * size);
}

static void add_matrix(struct inspecting *i, const struct lam_matrix *w)
{
    size_t bytes;
    if (w->tiles && lam_tiled_bytes(w->dtype, w->rows, w->cols, &bytes)) lam_sha256_update(&i->bytes, w->tiles, bytes);
}

/* The rank, where both factors agree on another. */
static void look_at_rank(struct inspecting *i, const struct lam_lora *l, bool embedding)
{
    uint32_t stored = l->b.cols;
    if (!l->b.tiles || (!embedding && l->a.rows != stored)) return;
    note(i, l->rank >= stored, LAM_STAGED_RANK);
    note(i, l->rank <= stored, LAM_STAGED_RANK_ABOVE);
}

static void look_at_lora(struct inspecting *i, const struct lam_lora *l)
{
    const struct lam_target *t = i->module->target;
    bool embedding = t->role == LAM_ROLE_EMBEDDING, quantised = lam_dtype_is_quantised(t->dtype) && !embedding;
    uint32_t d_out = embedding ? t->cols : t->rows;
    look_at_rank(i, l, embedding);
    look_at_factor(i, &l->b, d_out, l->rank, quantised, false);
    if (!embedding) look_at_factor(i, &l->a, l->rank, t->cols, quantised, true);
    else if (!l->embedding_a) missing(i);
    else if (!(i->out->wrong & LAM_STAGED_SHAPES)) lam_sha256_update(&i->a, l->embedding_a, (size_t)t->rows * l->rank * sizeof(float));
    add(i, l->b_bias, d_out, sizeof(float));
    lam_sha256_update(&i->scales, &l->rank, sizeof l->rank);
    lam_sha256_update(&i->scales, &l->alpha, sizeof l->alpha);
    lam_sha256_update(&i->scales, &l->rank_stabilised, sizeof l->rank_stabilised);
    note(i, isfinite(l->alpha), LAM_STAGED_FINITE);
}

static void look_at_dora(struct inspecting *i, const struct lam_dora *d)
{
    size_t rows = i->module->target->rows;
    if (!d->magnitude || !d->w || !d->mixed || !d->delta) {
        missing(i);
        return;
    }
    add(i, d->magnitude, rows, sizeof *d->magnitude);
    add(i, d->w, rows, sizeof *d->w);
    add(i, d->mixed, rows, sizeof *d->mixed);
    add(i, d->delta, rows, sizeof *d->delta);
}

static void look_at_sparse(struct inspecting *i, const struct lam_sparse *s)
{
    size_t rows = i->module->target->rows;
    if (!s->starts || !s->columns || !s->values) {
        missing(i);
        return;
    }
    add(i, s->starts, rows + 1, sizeof *s->starts);
    add(i, s->columns, s->starts[rows], sizeof *s->columns);
    add(i, s->values, s->starts[rows], sizeof *s->values);
}

static void look_at(struct inspecting *i, const struct lam_module *m)
{
    const struct lam_target *t = m->target;
    i->module = m;
    lam_sha256_update(&i->targets, t->name, strlen(t->name) + 1);
    switch (m->method) {
    case LAM_METHOD_DORA: look_at_dora(i, &m->dora); __attribute__((fallthrough));
    case LAM_METHOD_LORA: look_at_lora(i, &m->lora); break;
    case LAM_METHOD_IA3_OUTPUT: case LAM_METHOD_IA3_INPUT:
        if (!m->ia3) missing(i);
        add(i, m->ia3, m->method == LAM_METHOD_IA3_INPUT ? t->cols : t->rows, sizeof(float));
        break;
    case LAM_METHOD_SPARSE: look_at_sparse(i, &m->sparse); break;
    case LAM_METHOD_DENSE:
        if (!m->dense.tiles) missing(i);
        add_matrix(i, &m->dense);
        break;
    case LAM_METHOD_NONE: break;
    }
    add_matrix(i, &m->weight);
    add(i, m->vector, t->cols, sizeof(float));
    add(i, m->bias, t->rows, sizeof(float));
    i->out->n_staged += m->method || m->weight.tiles || m->vector || m->bias;
}

void lam_adapter_inspect(const struct lam_adapter *a, struct lam_inspection *out)
{
    *out = (struct lam_inspection){0};
    struct inspecting i = {.out = out};
    struct lam_sha256 *const hashes[] = {&i.a, &i.b, &i.bytes, &i.scales, &i.targets};
    uint8_t *const digests[] = {out->seal.a, out->seal.b, out->seal.bytes, out->seal.scales, out->seal.targets};
    for (size_t k = 0; k < 5; k++) lam_sha256_init(hashes[k]);
    for (size_t m = 0; m < a->n_modules; m++) look_at(&i, &a->modules[m]);
    for (size_t k = 0; k < 5; k++) lam_sha256_final(hashes[k], digests[k]);
}

static uint32_t difference(const uint8_t *a, const uint8_t *b, enum lam_staged_fault fault)
{
    return memcmp(a, b, LAM_SHA256_BYTES) == 0 ? 0 : 1u << fault;
}

uint32_t lam_seal_differences(const struct lam_staged_seal *a, const struct lam_staged_seal *b)
{
    return difference(a->a, b->a, LAM_STAGED_A) | difference(a->b, b->b, LAM_STAGED_B) | difference(a->bytes, b->bytes, LAM_STAGED_BYTES) |
           difference(a->scales, b->scales, LAM_STAGED_SCALE) | difference(a->targets, b->targets, LAM_STAGED_TARGETS);
}
