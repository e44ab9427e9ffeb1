#include "run/plan.h"
#include "base/alloc.h"
#include "base/cpus.h"
#include "base/footprint.h"
#include "cache/prefix.h"
#include "model/attend.h"
#include "model/forward.h"
#include "model/linear.h"
#include "adapter/effective.h"
#include "run/objects.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#include <stdio.h>
#include <string.h>

#define SAMPLE_BYTES ((size_t)8) /* for each token of the vocabulary while one is drawn */

#define DEFAULT_CONTEXT 4096 /* as lam_session_new */
#define DEFAULT_MAX_ROWS 64  /* as lam_engine_new */
#define DEFAULT_DRAFT 7      /* as lam_generate_with */

static size_t round16(size_t n) { return (n + 15) & ~(size_t)15; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* ---- the forward pass ---- */

/* Of all linear calls: the most that each growing buffer reaches. */
struct linear_needs {
    size_t codes, tile_floats, deltas, t_floats;
};

/* One call: its matrices w[n] and how many rows. bare: tiles of an item where y has no place of its own and they are kept beside. */
static void add_call(const struct lam_model *m, const struct lam_plan_adapters *a, const struct lam_matrix *const w[], size_t n, size_t n_rows,
                     size_t bare, struct linear_needs *needs)
{
    size_t cols = w[0]->cols, floats = n_rows * LAM_TILE_ROWS, deltas = 0, t = 0;
    bool effective = false;
    for (size_t i = 0; i < n; i++) {
        size_t at = w[i]->target ? (size_t)(w[i]->target - m->targets.items) : SIZE_MAX;
        if (at >= m->targets.n_items) continue;
        effective |= a->effective[at];
        deltas += a->operators[at];
        t += n_rows * a->rank_floats[at];
    }
    if (effective) floats += cols * LAM_TILE_ROWS + lam_effective_scratch(w[0]);
    floats += n_rows * LAM_TILE_ROWS * bare;
    needs->codes = larger(needs->codes, n_rows * ((cols + LAM_GROUP - 1) / LAM_GROUP) * LAM_GROUP);
    needs->tile_floats = larger(needs->tile_floats, floats);
    needs->deltas = larger(needs->deltas, deltas);
    needs->t_floats = larger(needs->t_floats, t);
}

/* Tiles of an item of the head, as linear.c cuts it. */
static size_t head_tiles(const struct lam_matrix *w, size_t n_threads)
{
    size_t item = ((size_t)w->rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS * w->stride / (n_threads * 8);
    item = item < (16 << 10) ? 16 << 10 : item > (512 << 10) ? 512 << 10 : item;
    return w->stride >= item ? 1 : item / w->stride;
}

static void add_calls(const struct lam_model *m, const struct lam_plan_adapters *a, const struct lam_plan_pass *p, struct linear_needs *needs)
{
    for (uint32_t i = 0; i < m->config.n_layers; i++) {
        const struct lam_layer *l = &m->layers[i];
        add_call(m, a, (const struct lam_matrix *[]){&l->q, &l->k, &l->v}, 3, p->n_rows, 0, needs);
        add_call(m, a, (const struct lam_matrix *[]){&l->o}, 1, p->n_rows, 0, needs);
        add_call(m, a, (const struct lam_matrix *[]){&l->gate, &l->up}, 2, p->n_rows, 0, needs);
        add_call(m, a, (const struct lam_matrix *[]){&l->down}, 1, p->n_rows, 0, needs);
    }
    add_call(m, a, (const struct lam_matrix *[]){&m->output}, 1, p->n_told, head_tiles(&m->output, p->n_threads), needs);
}

static size_t linear_bytes(const struct lam_model *m, const struct lam_plan_pass *p)
{
    struct linear_needs needs = {0};
    size_t scaled = 0;
    for (size_t i = 0; i < p->n_stacks; i++) {
        add_calls(m, p->stacks[i], p, &needs);
        if (p->stacks[i]->scales_inputs) scaled = p->n_rows * round16(larger(m->config.d_model, m->config.d_ff));
    }
    size_t groups = needs.codes / LAM_GROUP;
    return needs.codes * (sizeof(int8_t) + sizeof(int16_t)) + groups * (2 * sizeof(float) + 2 * sizeof(int32_t)) +
           p->n_threads * needs.tile_floats * sizeof(float) + needs.deltas * 96 + needs.t_floats * (sizeof(float) + sizeof(int16_t)) +
           scaled * sizeof(float);
}

/* The scores grow page by page. Blocks below this size that they have outgrown stay with the allocator, for what comes later. */
#define SMALL_BLOCK ((size_t)128 << 10)

static size_t attend_bytes(const struct lam_plan_pass *p)
{
    size_t pages = (p->n_positions + LAM_KV_PAGE - 1) / LAM_KV_PAGE, stride = (pages + 1) * LAM_KV_PAGE + 16;
    size_t scores = p->n_threads * LAM_ATTENTION_QUERIES * stride * sizeof(float), outgrown = scores > SMALL_BLOCK ? SMALL_BLOCK : 0;
    return scores + (outgrown > p->later ? outgrown - p->later : 0) + p->n_threads * 2 * pages * sizeof(void *) +
           p->max_rows * sizeof(struct lam_attend_block);
}

size_t lam_plan_scratch(const struct lam_model *m, const struct lam_plan_pass *p)
{
    const struct lam_config *c = &m->config;
    size_t q = round16((size_t)c->n_heads * c->head_dim), kv = round16((size_t)c->n_kv_heads * c->head_dim);
    size_t floats = 2 * round16(c->d_model) + 2 * q + 2 * kv + 2 * round16(c->d_ff) + 4 * (c->head_dim / 2);
    return p->max_rows * (floats * sizeof(float) + sizeof(struct lam_row) + sizeof(void *) + sizeof(size_t) + 2) + c->d_model * sizeof(float) +
           linear_bytes(m, p) + attend_bytes(p);
}

/* ---- the base and its sessions ---- */

static size_t model_bytes(const struct lam_model *m)
{
    const struct lam_config *c = &m->config;
    size_t vectors = 0;
    for (size_t i = 0; i < m->n_vectors; i++) vectors += m->vector_list[i].entry->dims[0] * sizeof(float);
    return sizeof *m + vectors + m->n_vectors * sizeof *m->vector_list + c->n_layers * sizeof *m->layers + 2 * c->head_dim * sizeof(float) +
           m->targets.n_items * (sizeof(struct lam_target) + 32) + lam_plan_json(m->file->metadata) + 2 * m->file->n_pieces;
}

static enum lam_kv_type kv_type(const struct lam_model *m, lam_kv choice)
{
    if (choice == LAM_KV_INT8) return LAM_KV_I8;
    if (choice == LAM_KV_FLOAT32 || (choice == LAM_KV_DEFAULT && m->float_weights)) return LAM_KV_F32;
    return LAM_KV_F16;
}

static size_t page_bytes(const struct lam_model *m, lam_kv choice)
{
    struct lam_kv kv = {.type = kv_type(m, choice), .n_layers = m->config.n_layers, .n_heads = m->config.n_kv_heads,
                        .head_dim = m->config.head_dim};
    return lam_kv_page_bytes(&kv);
}

static size_t kv_bytes(const struct lam_model *m, lam_kv choice, size_t n_positions)
{
    size_t pages = (n_positions + LAM_KV_PAGE - 1) / LAM_KV_PAGE;
    return pages * (lam_plan_block(page_bytes(m, choice) + 64) + sizeof(void *));
}

/* As many whole pages as the budget has room for, by the cache's own count. */
static size_t prefix_bytes(const struct lam_model *m, lam_kv choice, size_t budget)
{
    size_t entry = lam_prefix_entry_bytes(LAM_KV_PAGE, 1), page = page_bytes(m, choice);
    return budget / (entry + page) * (lam_plan_counted(entry) + lam_plan_block(page + 64));
}

static size_t session_bytes(const struct lam_model *m, size_t context)
{
    return context * sizeof(uint32_t) + (size_t)m->config.n_vocab * 2 * sizeof(float);
}

/* Metadata's text and its parsed form are there at once, and the text again in canonical form. */
static size_t opening_bytes(const struct lam_model *m)
{
    const struct lam_slm *s = m->file;
    return lam_footprint_here()->opening + s->n_entries * sizeof(void *) + lam_plan_json(s->metadata);
}

struct planning {
    const struct lam_model *model;
    const lam_plan_options *o;
    struct lam_plan_adapters adapters, before;
    size_t max_rows, sessions, guesses; /* guesses: tokens of a draft */
    lam_plan_bytes *out;
};

/* Guesses' logits, and the drafter: a session under a composition of no adapters. */
static void add_drafts(struct planning *p)
{
    const struct lam_model *m = p->model;
    lam_plan_bytes *out = p->out;
    if (p->o->drafts.draft == LAM_DRAFT_NONE) return;
    p->guesses = p->o->drafts.n_draft ? p->o->drafts.n_draft : DEFAULT_DRAFT;
    if (p->guesses > p->max_rows - 1) p->guesses = p->max_rows - 1;
    if (p->guesses > out->context - 1) p->guesses = out->context - 1;
    out->drafts = p->guesses * m->config.n_vocab * sizeof(float);
    if (p->o->drafts.draft != LAM_DRAFT_BASE) return;
    out->drafts += session_bytes(m, out->context) + kv_bytes(m, p->o->kv, out->context);
    out->drafts += m->targets.n_items * sizeof(struct lam_overlay_slot);
}

static void add_session(struct planning *p)
{
    const struct lam_model *m = p->model;
    const lam_plan_options *o = p->o;
    lam_plan_bytes *out = p->out;
    size_t fed = out->context < p->max_rows ? out->context : p->max_rows, stepped = p->sessions < p->max_rows ? p->sessions : p->max_rows;
    out->kv = p->sessions * kv_bytes(m, o->kv, out->context);
    out->session = p->sessions * session_bytes(m, out->context);
    if (o->all_logits) out->session += fed * m->config.n_vocab * sizeof(float);
    out->sampling = (uint64_t)m->config.n_vocab * SAMPLE_BYTES;
    out->prefix = prefix_bytes(m, o->kv, o->prefix_cache);
    add_drafts(p);
    struct lam_plan_pass pass = {.stacks = {&p->adapters, &p->before}, .n_stacks = o->from ? 2 : 1, .max_rows = p->max_rows,
                                 .n_rows = larger(fed, stepped), .n_told = larger(o->all_logits ? fed : stepped, p->guesses + 1),
                                 .n_positions = out->context, .n_threads = out->threads,
                                 .later = o->from ? p->adapters.staged + p->adapters.overlay : 0};
    out->scratch = lam_plan_scratch(m, &pass);
}

/* Files are opened; or all rows of the session are there and a token is drawn; or they are there a second time, computed again. */
static void add_peak(struct planning *p)
{
    const struct lam_footprint *f = lam_footprint_here();
    const struct lam_plan_adapters *a = &p->adapters, *b = &p->before;
    lam_plan_bytes *out = p->out;
    size_t opening = opening_bytes(p->model), staging = larger(a->transient, b->transient) + larger(a->metadata, b->metadata);
    out->staging = larger(opening, staging ? staging + f->opening : 0);
    out->process += staging < f->kept ? staging : f->kept;
    if (f->files_in_memory) out->staging += larger(a->file_bytes, b->file_bytes);
    uint64_t held = (f->files_in_memory ? out->mapped : 0) + out->process + out->base + out->adapters + out->overlay + out->from;
    uint64_t live = out->kv + out->session + out->scratch + out->prefix + out->drafts;
    out->peak = larger(held + out->staging, held + live + larger(out->sampling, out->from_kv));
}

static lam_code add_up(struct planning *p, const lam_plan_stack *stack, lam_error *err)
{
    const struct lam_footprint *f = lam_footprint_here();
    const lam_plan_options *o = p->o;
    lam_plan_bytes *out = p->out;
    LAM_TRY(lam_plan_adapters(p->model, stack, NULL, &p->adapters, err));
    if (o->from) LAM_TRY(lam_plan_adapters(p->model, o->from, stack, &p->before, err));
    out->mapped = p->model->file->file.size;
    out->process = f->process + out->threads * f->thread;
    out->base = model_bytes(p->model) + f->tokenizer;
    out->adapters = p->adapters.staged;
    out->overlay = p->adapters.overlay;
    add_session(p);
    if (o->from) {
        out->from = p->before.staged + p->before.overlay;
        out->from_kv = out->kv;
    }
    add_peak(p);
    return LAM_OK;
}

static void say(const char *what, uint64_t bytes, char *text, size_t size)
{
    size_t used = strlen(text);
    if (bytes) snprintf(text + used, size - used, "%s%s %.1f MB", used ? ", " : "", what, (double)bytes / 1e6);
}

static lam_code check_budget(const lam_plan_bytes *p, uint64_t budget, lam_error *err)
{
    char parts[400] = "";
    if (budget == 0 || p->peak <= budget) return LAM_OK;
    say("program", p->process, parts, sizeof parts);
    say("base", p->base, parts, sizeof parts);
    say("adapters", p->adapters, parts, sizeof parts);
    say("overlay", p->overlay, parts, sizeof parts);
    say("keys and values", p->kv, parts, sizeof parts);
    say("session", p->session, parts, sizeof parts);
    say("scratch", p->scratch, parts, sizeof parts);
    say("prefix cache", p->prefix, parts, sizeof parts);
    say("drafts", p->drafts, parts, sizeof parts);
    say("the composition before", p->from, parts, sizeof parts);
    say("its keys and values", p->from_kv, parts, sizeof parts);
    say("while sampling", p->sampling, parts, sizeof parts);
    say("while staging", p->staging, parts, sizeof parts);
    return LAM_RAISE(err, LAM_E_BUDGET, "%.1f MB are needed for a context of %zu, %.2f MB more than the budget of %.1f MB: %s",
                     (double)p->peak / 1e6, p->context, (double)(p->peak - budget) / 1e6, (double)budget / 1e6, parts);
}

lam_code lam_plan(const char *base_path, const lam_plan_stack *stack, const lam_plan_options *options, lam_plan_bytes *out, lam_error *err)
{
    const lam_plan_options defaults = {0}, *o = options ? options : &defaults;
    struct lam_model *m;
    struct lam_cpus cpus;
    *out = (lam_plan_bytes){0};
    LAM_TRY(lam_model_open(base_path, NULL, &m, err));
    lam_cpus_here(&cpus);
    out->threads = o->threads ? o->threads : cpus.threads;
    out->context = o->context ? o->context : m->config.n_context < DEFAULT_CONTEXT ? m->config.n_context : DEFAULT_CONTEXT;
    struct planning p = {.model = m, .o = o, .out = out, .max_rows = o->max_rows ? o->max_rows : DEFAULT_MAX_ROWS,
                         .sessions = o->sessions ? o->sessions : 1};
    lam_code code = add_up(&p, stack, err);
    lam_plan_adapters_release(&p.adapters);
    lam_plan_adapters_release(&p.before);
    lam_model_close(m);
    return code == LAM_OK ? check_budget(out, o->budget, err) : code;
}
