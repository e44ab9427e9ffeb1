/* Taking the difference: which tensors two bases have, whether an adapter can say what differs, and what of it is kept. */
#include "import/diff.h"
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/cpus.h"
#include "base/files.h"
#include "base/sha256.h"
#include "format/vocab.h"
#include "import/adapter_import.h"
#include "import/low_rank.h"
#include "model/identity.h"

#include <math.h>
#include <string.h>

/* Passes over a matrix, for the progress that is told: what most take. */
#define PASSES 6
#define PASSES_LOW_RANK 16

/* ---- whether the two belong together ---- */

/* Takes the text over. */
static lam_code warn(struct lam_diff *d, json_t *text, lam_error *err)
{
    return json_array_append_new(d->warnings, text) == 0 ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "warnings");
}

/* What a configuration may differ in: the order of rows and the norms' offset are undone here, a tied head is compared with its own
 * matrix, and the context is a limit of no effect on what is computed. */
static lam_code compare_configs(struct lam_diff *d, lam_error *err)
{
    static const char *const free_fields[] = {"rope_interleaved", "norm_offset", "tied", "context"};
    static const char *const sizes[] = {"layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocabulary"};
    json_t *base = json_object_get(d->base->metadata, "config"), *tuned = json_object_get(d->tuned->metadata, "config"), *value;
    const char *key;
    if (d->config.arch != d->tuned_config.arch)
        return LAM_RAISE(err, LAM_E_ARCHITECTURE, "the base is a %s, the tuned model a %s", d->config.arch->name, d->tuned_config.arch->name);
    json_object_foreach(base, key, value) {
        const json_t *other = json_object_get(tuned, key);
        bool is_free = false, is_size = false;
        for (size_t i = 0; i < sizeof free_fields / sizeof *free_fields; i++) is_free |= strcmp(key, free_fields[i]) == 0;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) is_size |= strcmp(key, sizes[i]) == 0;
        if (is_free || json_equal(value, other)) continue;
        if (is_size)
            return LAM_RAISE(err, LAM_E_SHAPE, "%s is %lld in the base and %lld in the tuned model", key,
                             (long long)json_integer_value(value), (long long)json_integer_value(other));
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "the configurations differ in %s, which no adapter can change", key);
    }
    if (d->config.n_context != d->tuned_config.n_context)
        return warn(d, json_sprintf("the tuned model is for %u positions, the base for %u: the adapter cannot say so",
                                    d->tuned_config.n_context, d->config.n_context), err);
    return LAM_OK;
}

static lam_code compare_texts(struct lam_diff *d, lam_error *err)
{
    struct lam_vocab vocab;
    if (!d->base->vocab || !d->tuned->vocab) return LAM_RAISE(err, LAM_E_TOKENIZER, "one of the two has no tokenizer");
    LAM_TRY(lam_vocab_open(d->base->vocab, d->base->vocab_bytes, &vocab, err));
    LAM_TRY(lam_adapter_compare_vocabulary(d->tuned->vocab, d->tuned->vocab_bytes, &vocab, err));
    const json_t *ours = json_object_get(d->base->metadata, "chat_template");
    const json_t *theirs = json_object_get(d->tuned->metadata, "chat_template");
    if ((ours || theirs) && !json_equal(ours, theirs))
        return warn(d, json_string("the tuned model has another chat template, which an adapter does not carry"), err);
    return LAM_OK;
}

/* ---- one tensor ---- */

static bool find_side(const struct lam_slm *file, const char *name, struct lam_delta_side *out)
{
    *out = (struct lam_delta_side){.file = file, .entry = lam_slm_find(file, name)};
    return out->entry != NULL;
}

/* Bytes that are alike and mean the same. */
static bool same_bytes(const struct lam_delta *d)
{
    const struct lam_slm_entry *a = d->base.entry, *b = d->tuned.entry;
    return !d->head_dim && a->dtype == b->dtype && a->bytes == b->bytes && !d->base.residual.n && !d->tuned.residual.n &&
           memcmp(lam_slm_tensor_data(d->base.file, a), lam_slm_tensor_data(d->tuned.file, b), (size_t)a->bytes) == 0;
}

/* Rows of q and k that lie in another order. */
static void set_row_order(const struct lam_diff *d, enum lam_role role, struct lam_delta *delta)
{
    bool rotated = role == LAM_ROLE_Q || role == LAM_ROLE_K;
    if (!rotated || d->config.rope_interleaved == d->tuned_config.rope_interleaved) return;
    delta->head_dim = d->config.head_dim;
    delta->to_pairs = d->config.rope_interleaved;
}

/* Sums over one row, added in the order of rows. */
struct row_sums {
    double base, all, kept, rest;
    uint64_t n_changed, n_kept;
    bool finite;
};

struct measuring {
    struct lam_diff *diff;
    struct lam_diff_item *item;
    uint32_t first;
    struct row_sums *sums; /* [rows of the batch], owned */
};

/* What the file will give for a row: scratch[cols]. */
static void approximate(const struct lam_diff_item *item, uint32_t row, const float *values, float *scratch)
{
    size_t cols = item->delta.cols, rank = item->rank;
    if (!item->left) {
        memcpy(scratch, values, cols * sizeof *scratch);
        lam_delta_change_row(&item->delta, row, scratch);
        return;
    }
    const float *left = item->left + row * rank;
    for (size_t c = 0; c < cols; c++) {
        double sum = 0.0;
        for (size_t k = 0; k < rank; k++) sum = sum + (double)left[k] * (double)item->right[c * rank + k];
        scratch[c] = (float)sum;
    }
}

/* lam_pool_fn: one row of the batch. */
static void measure_item(void *context, size_t i, unsigned thread)
{
    const struct measuring *m = context;
    struct lam_delta_reader *reader = &m->diff->reader;
    const struct lam_delta *d = &m->item->delta;
    uint32_t row = m->first + (uint32_t)i;
    const float *values = reader->rows + i * d->cols;
    float *scratch = reader->tuned + (size_t)thread * reader->cols;
    struct row_sums s = {.finite = true};
    lam_delta_side_row(&d->base, row, reader->blocks + thread * reader->row_bytes, scratch);
    for (uint32_t k = 0; k < d->cols; k++) s.base = s.base + (double)scratch[k] * (double)scratch[k];
    approximate(m->item, row, values, scratch);
    for (uint32_t k = 0; k < d->cols; k++) {
        double all = (double)values[k], kept = (double)scratch[k];
        s.all = s.all + all * all;
        s.kept = s.kept + kept * kept;
        s.rest = s.rest + (all - kept) * (all - kept);
        s.n_changed += values[k] != 0.0f;
        s.n_kept += scratch[k] != 0.0f;
        s.finite &= isfinite(scratch[k]) != 0;
    }
    m->sums[i] = s;
}

/* Norms and counts of a matrix, with what would be kept of it now. */
static lam_code measure(struct lam_diff *d, struct lam_diff_item *item, lam_error *err)
{
    const struct lam_delta *delta = &item->delta;
    uint32_t batch = lam_low_rank_batch(delta->rows, delta->cols), n;
    struct measuring m = {.diff = d, .item = item, .sums = lam_alloc(batch, sizeof *m.sums)};
    struct row_sums t = {.finite = true};
    lam_code code = m.sums ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "sums of %u rows", batch);
    for (; code == LAM_OK && m.first < delta->rows; m.first += n) {
        n = batch < delta->rows - m.first ? batch : delta->rows - m.first;
        code = lam_delta_read(&d->reader, delta, false, m.first, n, d->reader.rows, err);
        if (code == LAM_OK) lam_pool_run(d->pool, n, measure_item, &m);
        for (uint32_t i = 0; code == LAM_OK && i < n; i++) {
            const struct row_sums *s = &m.sums[i];
            t = (struct row_sums){t.base + s->base, t.all + s->all, t.kept + s->kept, t.rest + s->rest, t.n_changed + s->n_changed,
                                  t.n_kept + s->n_kept, t.finite && s->finite};
        }
    }
    lam_free(m.sums);
    if (code == LAM_OK && !t.finite)
        code = LAM_RAISE(err, LAM_E_NON_FINITE, "%s: a value is out of the range of %s", item->name, lam_dtype_info(d->dtype)->name);
    item->base = sqrt(t.base);
    item->all = sqrt(t.all);
    item->kept = sqrt(t.kept);
    item->rest = sqrt(t.rest);
    item->n_changed = t.n_changed;
    item->n_kept = t.n_kept;
    return code;
}

struct low_rank_reading {
    struct lam_diff *diff;
    const struct lam_delta *delta;
    uint64_t told; /* bytes of progress */
};

/* See lam_low_rank_source. */
static lam_code read_for_low_rank(void *context, uint32_t first, uint32_t n, float *out, lam_error *err)
{
    struct low_rank_reading *c = context;
    uint64_t whole = (uint64_t)c->delta->rows * c->delta->cols * sizeof(float);
    uint64_t part = (uint64_t)n * c->delta->cols * sizeof(float) / PASSES_LOW_RANK;
    LAM_TRY(lam_delta_read(&c->diff->reader, c->delta, true, first, n, out, err));
    if (c->told + part > whole) part = whole - c->told;
    c->told += part;
    return lam_progress_add(&c->diff->progress, part, err);
}

static float *rounded(const double *values, size_t n, enum lam_dtype dtype)
{
    float *out = lam_alloc(n, sizeof *out);
    for (size_t i = 0; out && i < n; i++) out[i] = lam_delta_round(dtype, (float)values[i]);
    return out;
}

static lam_code find_factors(struct lam_diff *d, struct lam_diff_item *item, uint64_t *told, lam_error *err)
{
    struct lam_delta *delta = &item->delta;
    struct lam_low_rank found = {0};
    struct low_rank_reading reading = {d, delta, 0};
    struct lam_low_rank_source source = {delta->rows, delta->cols, read_for_low_rank, &reading, d->pool};
    uint32_t least = delta->rows < delta->cols ? delta->rows : delta->cols;
    delta->dtype = LAM_F32; /* not the elements but the factors are rounded */
    item->rank = d->options->rank < least ? d->options->rank : least;
    LAM_TRY(lam_low_rank_find(&source, item->rank, &found, err));
    item->left = rounded(found.left, (size_t)delta->rows * item->rank, d->dtype);
    item->right = rounded(found.right, (size_t)delta->cols * item->rank, d->dtype);
    item->n_iterations = found.n_iterations;
    lam_low_rank_release(&found);
    *told = reading.told;
    return item->left && item->right ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: factors of rank %u", item->name, item->rank);
}

/* The generator's key of a module: the first 8 bytes of its name's SHA-256, little-endian. */
static uint64_t key_of(const char *name)
{
    uint8_t digest[LAM_SHA256_BYTES];
    uint64_t key = 0;
    lam_sha256(name, strlen(name), digest);
    for (int i = 7; i >= 0; i--) key = key << 8 | digest[i];
    return key;
}

static lam_code choose(struct lam_diff *d, struct lam_diff_item *item, lam_error *err)
{
    const lam_diff_options *o = d->options;
    struct lam_delta *delta = &item->delta;
    double size = (double)delta->rows * (double)delta->cols;
    uint64_t wanted = (uint64_t)(o->density * size + 0.5);
    delta->key = key_of(item->role == LAM_ROLE_OUTPUT && d->config.tied && d->tuned_config.tied ? "token_embd" : item->name);
    delta->seed = o->seed;
    delta->divisor = 1.0 - o->drop;
    delta->drop_below = (uint64_t)(o->drop * 4294967296.0);
    return o->density > 0.0 && wanted < item->n_changed ? lam_delta_prune(&d->reader, delta, wanted, err) : LAM_OK;
}

/* *differs: whether anything does. */
static lam_code diff_matrix(struct lam_diff *d, struct lam_diff_item *item, bool *differs, lam_error *err)
{
    uint64_t bytes = (uint64_t)item->delta.rows * item->delta.cols * sizeof(float), told = 0;
    item->delta.dtype = d->dtype;
    *differs = !same_bytes(&item->delta);
    if (*differs) {
        LAM_TRY(measure(d, item, err));
        *differs = item->n_changed > 0;
    }
    if (*differs) {
        if (d->options->method != LAM_DIFF_LORA) LAM_TRY(lam_progress_add(&d->progress, told = bytes / PASSES, err));
        LAM_TRY(choose(d, item, err));
        if (d->options->method == LAM_DIFF_LORA) LAM_TRY(find_factors(d, item, &told, err));
        LAM_TRY(measure(d, item, err));
    }
    return lam_progress_add(&d->progress, bytes - told, err);
}

/* The value of a vector, as it is used, in the base's order; zeros where there is none. offset: what its file leaves out. */
static void vector_of(const struct lam_diff *d, const struct lam_delta_side *side, enum lam_role role, float offset, float *out, uint32_t n)
{
    uint8_t *blocks = d->reader.blocks;
    bool turn = side->file == d->tuned && (role == LAM_ROLE_Q_BIAS || role == LAM_ROLE_K_BIAS) &&
                d->config.rope_interleaved != d->tuned_config.rope_interleaved;
    memset(out, 0, n * sizeof *out);
    if (!side->entry) return;
    lam_delta_side_row(side, 0, blocks, out);
    for (uint32_t i = 0; offset != 0.0f && i < n; i++) out[i] = out[i] + offset;
    if (!turn) return;
    float *copy = d->reader.tuned;
    uint32_t width = d->config.head_dim, half = width / 2;
    memcpy(copy, out, n * sizeof *out);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i % width;
        out[i] = copy[i - at + (d->config.rope_interleaved ? at % 2 * half + at / 2 : at % half * 2 + at / half)];
    }
}

static lam_code diff_vector(struct lam_diff *d, struct lam_diff_item *item, enum lam_role role, bool *differs, lam_error *err)
{
    uint32_t n = item->delta.cols;
    bool norm = item->part == LAM_PART_WEIGHT && role != LAM_ROLE_ROPE_FACTORS;
    float *base = d->reader.rows;
    item->vector = lam_alloc(n, sizeof *item->vector);
    if (!item->vector) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u values", n);
    vector_of(d, &item->delta.base, role, norm ? d->config.norm_offset : 0.0f, base, n);
    vector_of(d, &item->delta.tuned, role, norm ? d->tuned_config.norm_offset : 0.0f, item->vector, n);
    double all = 0.0, size = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        double x = (double)item->vector[i] - (double)base[i];
        if (!isfinite(x)) return LAM_RAISE(err, LAM_E_NON_FINITE, "%s: element %u is not finite", item->name, i);
        all = all + x * x;
        size = size + (double)base[i] * (double)base[i];
        item->n_changed += item->vector[i] != base[i];
    }
    item->base = sqrt(size);
    item->all = item->kept = sqrt(all);
    item->n_kept = item->n_changed;
    *differs = item->n_changed > 0;
    if (!norm) return LAM_OK;
    float same = d->config.norm_offset == d->tuned_config.norm_offset ? 0.0f : d->config.norm_offset;
    if (d->config.norm_offset == d->tuned_config.norm_offset) lam_delta_side_row(&item->delta.tuned, 0, d->reader.blocks, item->vector);
    for (uint32_t i = 0; same != 0.0f && i < n; i++) item->vector[i] = item->vector[i] - same;
    return LAM_OK;
}

/* ---- all tensors ---- */

/* The role of the matrix whose bias this is, or 0. */
static enum lam_role matrix_of(enum lam_role bias)
{
    for (int role = LAM_ROLE_Q; role <= LAM_ROLE_DOWN; role++)
        if (lam_role_bias((enum lam_role)role) == bias) return (enum lam_role)role;
    return (enum lam_role)0;
}

/* The module's name: a tensor's without its last part. */
static void name_module(const char *tensor, char out[32])
{
    size_t len = (size_t)(strrchr(tensor, '.') - tensor);
    if (len > 31) len = 31;
    memcpy(out, tensor, len);
    out[len] = 0;
}

/* The matrix that is used as the head. */
static bool find_head(const struct lam_slm *file, const struct lam_config *c, struct lam_delta_side *out)
{
    return find_side(file, c->tied ? "token_embd.weight" : "output.weight", out);
}

static lam_code add_item(struct lam_diff *d, const struct lam_tensor_spec *spec, uint32_t layer, lam_error *err)
{
    char tensor[64];
    struct lam_diff_item *item = &d->items[d->n_items];
    bool matrix = lam_role_is_matrix(spec->role), differs = false, head = spec->role == LAM_ROLE_OUTPUT;
    enum lam_role owner = matrix_of(spec->role);
    *item = (struct lam_diff_item){.role = owner ? owner : spec->role, .layer = layer,
                                   .part = matrix ? LAM_PART_DELTA : owner ? LAM_PART_BIAS : LAM_PART_WEIGHT};
    lam_tensor_name(spec, layer, tensor);
    name_module(tensor, item->name);
    bool in_base = head ? find_head(d->base, &d->config, &item->delta.base) : find_side(d->base, tensor, &item->delta.base);
    bool in_tuned = head ? find_head(d->tuned, &d->tuned_config, &item->delta.tuned) : find_side(d->tuned, tensor, &item->delta.tuned);
    if (!in_base && !in_tuned) return LAM_OK;
    if (in_base != in_tuned && item->part != LAM_PART_BIAS)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "tensor %s is in the %s alone", tensor, in_base ? "base" : "tuned model");
    lam_role_shape(&d->config, spec->role, &item->delta.rows, &item->delta.cols);
    if (matrix) {
        LAM_TRY(lam_slm_residual(d->base, item->delta.base.entry, &item->delta.base.residual, err));
        LAM_TRY(lam_slm_residual(d->tuned, item->delta.tuned.entry, &item->delta.tuned.residual, err));
        set_row_order(d, spec->role, &item->delta);
        LAM_TRY(diff_matrix(d, item, &differs, err));
    } else {
        LAM_TRY(diff_vector(d, item, spec->role, &differs, err));
    }
    if (differs && spec->role == LAM_ROLE_ROPE_FACTORS)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "the rotary factors differ, which no adapter can change");
    if (differs) {
        d->n_items++;
        return LAM_OK;
    }
    lam_free(item->vector);
    *item = (struct lam_diff_item){0};
    d->n_unchanged++;
    return LAM_OK;
}

/* Sizes of the scratch, and the work to tell. */
static lam_code prepare(struct lam_diff *d, lam_error *err)
{
    const struct lam_arch *arch = d->config.arch;
    uint32_t widest = 1;
    size_t row_bytes = 1, floats = 1;
    for (size_t i = 0; i < arch->n_tensors; i++) {
        uint32_t rows, cols;
        lam_role_shape(&d->config, arch->tensors[i].role, &rows, &cols);
        size_t batch = (size_t)lam_low_rank_batch(rows, cols) * cols, times = arch->tensors[i].in_layer ? d->config.n_layers : 1;
        if (cols > widest) widest = cols;
        if (batch > floats) floats = batch;
        if (lam_role_is_matrix(arch->tensors[i].role)) d->progress.total += (uint64_t)rows * cols * sizeof(float) * times;
    }
    for (int side = 0; side < 2; side++) {
        const struct lam_slm *file = side ? d->tuned : d->base;
        for (size_t i = 0; i < file->n_entries; i++) {
            size_t bytes = 0;
            if (!lam_dtype_row_bytes(file->entries[i].dtype, file->entries[i].dims[0], &bytes))
                return LAM_RAISE(err, LAM_E_OVERFLOW, "a row of %u elements", file->entries[i].dims[0]);
            if (bytes > row_bytes) row_bytes = bytes;
        }
    }
    d->items = lam_alloc((size_t)(d->config.n_layers + 1) * arch->n_tensors, sizeof *d->items);
    if (!d->items) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%u layers", d->config.n_layers);
    return lam_delta_reader_init(&d->reader, d->pool, widest, row_bytes, floats, err);
}

static lam_code diff_all(struct lam_diff *d, lam_error *err)
{
    const struct lam_arch *arch = d->config.arch;
    LAM_TRY(lam_progress_add(&d->progress, 0, err));
    for (size_t i = 0; i < arch->n_tensors; i++)
        if (!arch->tensors[i].in_layer && arch->tensors[i].role != LAM_ROLE_OUTPUT && arch->tensors[i].role != LAM_ROLE_OUTPUT_NORM)
            LAM_TRY(add_item(d, &arch->tensors[i], LAM_LAYER_NONE, err));
    for (uint32_t layer = 0; layer < d->config.n_layers; layer++)
        for (size_t i = 0; i < arch->n_tensors; i++)
            if (arch->tensors[i].in_layer) LAM_TRY(add_item(d, &arch->tensors[i], layer, err));
    for (size_t i = 0; i < arch->n_tensors; i++)
        if (arch->tensors[i].role == LAM_ROLE_OUTPUT || arch->tensors[i].role == LAM_ROLE_OUTPUT_NORM)
            LAM_TRY(add_item(d, &arch->tensors[i], LAM_LAYER_NONE, err));
    if (d->n_items == 0) return LAM_RAISE(err, LAM_E_CONFLICT, "nothing differs: the two have the same weights");
    return LAM_OK;
}

static lam_code check_options(struct lam_diff *d, lam_error *err)
{
    const lam_diff_options *o = d->options;
    const char *dtype = o->dtype ? o->dtype : "f32";
    d->dtype = strcmp(dtype, "f16") == 0 ? LAM_F16 : strcmp(dtype, "bf16") == 0 ? LAM_BF16 : LAM_F32;
    if (d->dtype == LAM_F32 && strcmp(dtype, "f32") != 0)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "type \"%.40s\": f32, f16 and bf16 are possible", dtype);
    if (o->method == LAM_DIFF_LORA && (o->rank == 0 || o->rank > 8192))
        return LAM_RAISE(err, LAM_E_RANK, "rank %u: 1 to 8192 are possible", o->rank);
    if (!(o->density >= 0.0 && o->density <= 1.0)) return LAM_RAISE(err, LAM_E_ARGUMENT, "density %g: 0 to 1 are possible", o->density);
    if (!(o->drop >= 0.0 && o->drop < 1.0)) return LAM_RAISE(err, LAM_E_ARGUMENT, "drop %g: 0 to less than 1 are possible", o->drop);
    return LAM_OK;
}

/* One of the two files: its configuration, its digest, all of its bytes hashed. */
static lam_code open_side(struct lam_diff *d, const char *path, struct lam_slm **file, struct lam_config *config, char *digest, lam_error *err)
{
    LAM_TRY(lam_slm_open(path, file, err));
    if ((*file)->kind != LAM_SLM_BASE) return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is an adapter, not a model", path);
    LAM_TRY(lam_config_from_json(json_object_get((*file)->metadata, "config"), config, err));
    LAM_TRY(lam_base_digest(*file, digest, err));
    size_t n = (*file)->n_pieces;
    size_t *list = lam_alloc(n, sizeof *list);
    bool *good = lam_alloc(n, sizeof *good);
    for (size_t i = 0; list && i < n; i++) list[i] = i;
    lam_code code = list && good ? lam_slm_verify_pieces(*file, d->pool, list, n, good, err)
                                 : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu pieces", n);
    lam_free(list);
    lam_free(good);
    return code;
}

/* Every tensor has the shape that the configuration gives: a forward pass would refuse others. */
static lam_code check_shapes(const struct lam_slm *file, const struct lam_config *c, lam_error *err)
{
    for (size_t i = 0; i < file->n_entries; i++) {
        const struct lam_slm_entry *e = &file->entries[i];
        char name[64] = "";
        uint32_t layer, rows = 0, cols = 0;
        if (e->name_len < sizeof name) memcpy(name, file->names + e->name_offset, e->name_len);
        const struct lam_tensor_spec *spec = lam_arch_match_gguf(c->arch, name, &layer);
        if (spec) lam_role_shape(c, spec->role, &rows, &cols);
        bool matrix = spec && lam_role_is_matrix(spec->role);
        if (!spec || e->dims[0] != cols || e->dims[1] != rows || e->dims[2] != 1 || e->dims[3] != 1 ||
            e->layout != (matrix ? LAM_LAYOUT_TILE16 : LAM_LAYOUT_PLAIN) || (!matrix && lam_dtype_is_quantised(e->dtype)))
            return LAM_RAISE(err, LAM_E_SHAPE, "%s: tensor %s is not what the configuration asks for", file->file.path, name);
    }
    return LAM_OK;
}

static lam_code run(struct lam_diff *d, const char *base_path, const char *tuned_path, const char *out_path, lam_error *err)
{
    struct lam_cpus cpus;
    LAM_TRY(check_options(d, err));
    lam_cpus_here(&cpus);
    LAM_TRY(lam_pool_new(d->options->threads ? d->options->threads : cpus.threads, &d->pool, err));
    d->warnings = json_array();
    if (!d->warnings) return LAM_RAISE(err, LAM_E_NO_MEMORY, "warnings");
    LAM_TRY(open_side(d, base_path, &d->base, &d->config, d->base_digest, err));
    LAM_TRY(open_side(d, tuned_path, &d->tuned, &d->tuned_config, d->tuned_digest, err));
    LAM_TRY(compare_configs(d, err));
    LAM_TRY(compare_texts(d, err));
    LAM_TRY(check_shapes(d->base, &d->config, err));
    LAM_TRY(check_shapes(d->tuned, &d->tuned_config, err));
    LAM_TRY(prepare(d, err));
    LAM_TRY(diff_all(d, err));
    return lam_diff_write(d, out_path, err);
}

static lam_code digest_of(const char *path, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_slm *s;
    LAM_TRY(lam_slm_open(path, &s, err));
    lam_code code = lam_adapter_digest(s, out, err);
    lam_slm_close(s);
    return code;
}

static lam_code make_report(const struct lam_diff *d, const char *out_path, char **report, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    struct lam_str text = {0};
    LAM_TRY(digest_of(out_path, digest, err));
    json_t *json = lam_diff_report(d, digest);
    lam_code code = json ? lam_json_canonical(json, &text, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "the report");
    json_decref(json);
    if (code == LAM_OK) *report = text.data;
    else lam_str_release(&text);
    return code;
}

lam_code lam_diff(const char *base_path, const char *tuned_path, const char *out_path, const lam_diff_options *options, char **report,
                  lam_error *err)
{
    struct lam_diff d = {.options = options, .progress_options = {.progress = options->progress, .progress_context = options->progress_context}};
    d.progress = (struct lam_progress){.options = &d.progress_options, .stage = "diff"};
    if (report) *report = NULL;
    lam_code code = run(&d, base_path, tuned_path, out_path, err);
    if (code == LAM_OK && report) {
        code = make_report(&d, out_path, report, err);
        if (code != LAM_OK) lam_remove_file(out_path, NULL);
    }
    for (size_t i = 0; i < d.n_items + 1 && d.items; i++) {
        lam_free(d.items[i].vector);
        lam_free(d.items[i].left);
        lam_free(d.items[i].right);
    }
    lam_free(d.items);
    lam_delta_reader_release(&d.reader);
    lam_slm_close(d.base);
    lam_slm_close(d.tuned);
    json_decref(d.warnings);
    lam_pool_free(d.pool);
    return code;
}
