/* Adapters written tensor by tensor, sound or not, for tests of what is refused. */
#ifndef LAM_TESTS_ADAPTER_CASE_H
#define LAM_TESTS_ADAPTER_CASE_H

#include "support.h"

#include "format/role.h"
#include "format/slm.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <string.h>

#define CASE_TENSORS 16

struct case_tensor {
    char name[80];
    enum lam_dtype dtype;
    uint32_t rows, cols;
    uint32_t role;      /* with its part */
    uint16_t layer;
    uint8_t bytes[16384];
};

struct adapter_case {
    json_t *metadata;   /* owned */
    struct case_tensor tensors[CASE_TENSORS];
    size_t n;
};

/* A part of a module in layer 0, float32, with values that depend on place and seed alone. */
static inline struct case_tensor *case_add(struct adapter_case *c, const char *module, enum lam_role role, enum lam_adapter_part part,
                                           uint32_t rows, uint32_t cols, unsigned seed)
{
    struct case_tensor *t = &c->tensors[c->n++];
    assert_true(c->n <= CASE_TENSORS && (size_t)rows * cols * 4 <= sizeof t->bytes);
    *t = (struct case_tensor){.dtype = LAM_F32, .rows = rows, .cols = cols, .role = (uint32_t)role | (uint32_t)part << 16};
    snprintf(t->name, sizeof t->name, "%s.%s", module, lam_part_name(part));
    for (uint32_t i = 0; i < rows * cols; i++) {
        float value = (float)((int)((i * 7 + seed * 13) % 9) - 4) / 64.0f;
        memcpy(t->bytes + 4 * i, &value, 4);
    }
    return t;
}

static inline lam_code case_fill(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes, lam_error *err)
{
    (void)err;
    memcpy(buffer, ((struct adapter_case *)context)->tensors[index].bytes + offset, bytes);
    return LAM_OK;
}

static inline void case_write(struct adapter_case *c, const char *path)
{
    struct lam_slm_out *out;
    lam_error err;
    assert_ok(lam_slm_out_new(LAM_SLM_ADAPTER, 0, &out, &err), err);
    for (size_t i = 0; i < c->n; i++) {
        const struct case_tensor *t = &c->tensors[i];
        struct lam_slm_decl decl = {.name = t->name, .dtype = t->dtype, .n_dims = 2, .dims = {t->cols, t->rows, 1, 1},
                                    .layout = LAM_LAYOUT_PLAIN, .layer = t->layer, .role = t->role};
        assert_ok(lam_slm_out_tensor(out, &decl, &err), err);
    }
    lam_slm_out_metadata(out, c->metadata);
    assert_ok(lam_slm_out_write(out, path, case_fill, c, NULL, &err), err);
    lam_slm_out_free(out);
}

static inline json_t *case_module(const char *name, int rank, double alpha)
{
    return json_pack("{s:s,s:i,s:f,s:s}", "name", name, "rank", rank, "alpha", alpha, "scaling", "alpha/r");
}

/* LoRA on q (rank 2) and v (rank 4) of layer 0 of a base of these widths. */
static inline void case_lora(struct adapter_case *c, const char *base_digest, uint32_t d_model, uint32_t d_v)
{
    memset(c, 0, sizeof *c);
    c->metadata = json_pack("{s:s,s:s,s:[s],s:[o,o]}", "method", "lora", "name", "case", "bases", base_digest, "modules",
                            case_module("blk.0.attn_q", 2, 4.0), case_module("blk.0.attn_v", 4, 8.0));
    assert_non_null(c->metadata);
    case_add(c, "blk.0.attn_q", LAM_ROLE_Q, LAM_PART_A, 2, d_model, 1);
    case_add(c, "blk.0.attn_q", LAM_ROLE_Q, LAM_PART_B, d_model, 2, 2);
    case_add(c, "blk.0.attn_v", LAM_ROLE_V, LAM_PART_A, 4, d_model, 3);
    case_add(c, "blk.0.attn_v", LAM_ROLE_V, LAM_PART_B, d_v, 4, 4);
}

static inline json_t *case_modules(const struct adapter_case *c) { return json_object_get(c->metadata, "modules"); }

#endif
