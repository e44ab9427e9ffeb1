#include "run/verified.h"
#include "base/alloc.h"
#include "format/merkle.h"
#include "tensor/tiles.h"

/* Pieces that lie within the embedding as a whole, where only looked-up rows of it are read. */
static void find_rows(struct lam_verified *v)
{
    const struct lam_matrix *e = &v->model->embedding;
    if (e->tiles == v->model->output.tiles) return;
    size_t start = (size_t)(e->tiles - v->model->file->data), tiles = ((size_t)e->rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS;
    v->rows_first = (start + LAM_PIECE_BYTES - 1) / LAM_PIECE_BYTES;
    v->rows_end = (start + tiles * e->stride) / LAM_PIECE_BYTES;
    if (v->rows_end < v->rows_first) v->rows_end = v->rows_first;
}

lam_code lam_verified_init(struct lam_verified *v, struct lam_model *model, struct lam_pool *pool, lam_verify mode, lam_error *err)
{
    size_t n = model->file->n_pieces;
    *v = (struct lam_verified){.model = model, .pool = pool, .mode = mode};
    v->good = lam_alloc(n, sizeof *v->good);
    v->sought = lam_alloc(n, sizeof *v->sought);
    if (!v->good || !v->sought) return LAM_RAISE(err, LAM_E_NO_MEMORY, "the state of %zu pieces", n);
    find_rows(v);
    if (mode != LAM_VERIFY_FULL) return LAM_OK;
    lam_pool_lock(pool);
    lam_code code = lam_verified_all(v, err);
    lam_pool_unlock(pool);
    return code;
}

void lam_verified_release(struct lam_verified *v)
{
    lam_free(v->good);
    lam_free(v->sought);
    *v = (struct lam_verified){0};
}

/* Hashes the pieces sought. */
static lam_code hash_sought(struct lam_verified *v, lam_error *err)
{
    const struct lam_slm *file = v->model->file;
    lam_code code = lam_slm_verify_pieces(file, v->pool, v->sought, v->n_sought, v->good, err);
    v->complete = true;
    for (size_t i = 0; i < file->n_pieces; i++) v->complete &= v->good[i];
    return code;
}

/* The first time that everything but embedding rows is good. What was decoded at the opening came from bytes that nobody had hashed. */
static lam_code read_vectors(struct lam_verified *v, lam_error *err)
{
    if (v->vectors_read) return LAM_OK;
    LAM_TRY(lam_model_read_vectors(v->model, err));
    v->vectors_read = true;
    return LAM_OK;
}

lam_code lam_verified_all(struct lam_verified *v, lam_error *err)
{
    LAM_TRY(lam_mapping_check(&v->model->file->file, err));
    v->n_sought = v->model->file->n_pieces;
    for (size_t i = 0; i < v->n_sought; i++) v->sought[i] = i;
    LAM_TRY(hash_sought(v, err));
    return v->mode == LAM_VERIFY_OFF ? LAM_OK : read_vectors(v, err);
}

static void seek(struct lam_verified *v, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (!v->good[i]) v->sought[v->n_sought++] = i;
}

/* The pieces of the tokens' embedding rows. A token outside the vocabulary has none; the forward pass refuses it. */
static void seek_rows(struct lam_verified *v, const uint32_t *tokens, size_t n)
{
    const struct lam_matrix *e = &v->model->embedding;
    size_t start = (size_t)(e->tiles - v->model->file->data);
    for (size_t t = 0; t < n; t++) {
        if (tokens[t] >= e->rows) continue;
        size_t at = start + tokens[t] / LAM_TILE_ROWS * e->stride;
        size_t first = at / LAM_PIECE_BYTES, end = (at + e->stride - 1) / LAM_PIECE_BYTES + 1;
        if (first < v->rows_first) first = v->rows_first;
        if (end > v->rows_end) end = v->rows_end;
        for (size_t i = first; i < end; i++) {
            bool known = v->good[i];
            for (size_t k = 0; !known && k < v->n_sought; k++) known = v->sought[k] == i;
            if (!known) v->sought[v->n_sought++] = i;
        }
    }
}

lam_code lam_verified_need(struct lam_verified *v, const uint32_t *tokens, size_t n, lam_error *err)
{
    if (v->mode == LAM_VERIFY_OFF || (v->complete && v->vectors_read)) return LAM_OK;
    v->n_sought = 0;
    seek(v, 0, v->rows_first);
    seek_rows(v, tokens, n);
    seek(v, v->rows_end, v->model->file->n_pieces);
    if (v->n_sought) LAM_TRY(hash_sought(v, err));
    return read_vectors(v, err);
}
