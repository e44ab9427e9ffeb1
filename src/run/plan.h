/* Parts of a memory plan (lamina/plan.h). Each function says what the functions that allocate will take; tests/test_plan.c holds them
 * together. */
#ifndef LAM_RUN_PLAN_H
#define LAM_RUN_PLAN_H

#include "cache/kv.h"
#include "lamina/plan.h"
#include "model/model.h"

/* What a stack's adapters take, and what calls of the forward pass need because of them. */
struct lam_plan_adapters {
    size_t staged, overlay;
    size_t transient;   /* the largest copies while one is staged, or an overlay built */
    size_t file_bytes;  /* of the largest file: read into memory where files are not mapped */
    size_t metadata;    /* the largest metadata, parsed */
    size_t *rank_floats; /* [targets]: of A x of one row, all adapters together; owned */
    size_t *operators;  /* [targets]; owned */
    bool *effective;    /* [targets]: multiplied as W + Δ in float32, or with weights of its own; owned */
    bool scales_inputs; /* IA³: rows are copied */
};
/* The files that loaded (may be NULL) has are staged already. */
lam_code lam_plan_adapters(const struct lam_model *m, const lam_plan_stack *stack, const lam_plan_stack *loaded,
                           struct lam_plan_adapters *out, lam_error *err);
void lam_plan_adapters_release(struct lam_plan_adapters *a);

/* What a forward pass is asked for: plans of n_rows rows at most, of which n_told want logits, over n_positions, with the adapters of
 * any of stacks[n_stacks] (their buffers grow, and never shrink). */
struct lam_plan_pass {
    const struct lam_plan_adapters *stacks[2];
    size_t n_stacks, max_rows, n_rows, n_told, n_positions, n_threads;
    size_t later; /* bytes that are allocated when the passes before the last ones have run */
};
/* Buffers of the forward pass and its linear layers. */
size_t lam_plan_scratch(const struct lam_model *m, const struct lam_plan_pass *p);

/* Bytes that a heap block of n bytes takes, and a JSON value with all that it holds. */
size_t lam_plan_block(size_t n);
/* The same of one from lam_budget_alloc. */
size_t lam_plan_counted(size_t n);
size_t lam_plan_json(const json_t *value);

#endif
