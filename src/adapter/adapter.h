/* Adapters: immutable changes of a base, checked against it and staged for the kernels when they are opened.
 *
 * An adapter .slm (kind LAM_SLM_ADAPTER) holds plain F32, F16 or BF16 tensors (I32 for the indices of sparse deltas) named
 * "<module>.<part>" (format/role.h, enum lam_adapter_part), where <module> is the changed tensor's GGUF name without ".weight"
 * ("blk.0.attn_q", "blk.0.attn_norm"), role as there, and this metadata:
 *   { "method": "lora", "dora", "ia3", "sparse" or "dense"; "name": text, "bases": ["sha256:…", …],
 *     "modules": [ { "name" } or, with factors, { "name", "rank", "alpha", "scaling": "alpha/r" or "alpha/sqrt(r)" }, … ]   by name,
 *     "activation": { "invocation": [token, …] }   only in activated LoRA: rows from its last occurrence on,
 *     "source": { … provenance, in no digest … } }
 * What a module is follows from its tensors: factors (with or without B's bias), DoRA: factors and a magnitude; IA³: one of its two
 * vectors; sparse: starts, columns and values; dense: a delta; each perhaps with a new bias or weight, which may also be alone.
 * Rows lie in the order of the base's rows (an importer permutes q and k for bases with interleaved rotary pairs), and a norm is
 * what the base's file would hold.
 * LoRA: Hu et al. 2021, arXiv:2106.09685; rsLoRA: Kalajdzievski 2023, arXiv:2312.03732; DoRA: Liu et al. 2024, arXiv:2402.09353;
 * IA³: Liu et al. 2022, arXiv:2205.05638; activated LoRA: Greenewald et al. 2025, arXiv:2504.12397; sparse deltas as by DARE: Yu et al.
 * 2023, arXiv:2311.03099; task vectors: Ilharco et al. 2022, arXiv:2212.04089. */
#ifndef LAM_ADAPTER_ADAPTER_H
#define LAM_ADAPTER_ADAPTER_H

#include "base/error.h"
#include "base/sha256.h"
#include "format/role.h"
#include "format/slm.h"
#include "tensor/matrix.h"

/* A tensor that an adapter may change, as the base has it: a matrix or a norm. */
struct lam_target {
    const char *name;      /* "blk.0.attn_q"; borrowed */
    enum lam_role role;
    uint32_t layer;        /* LAM_LAYER_NONE outside layers */
    uint32_t rows, cols;   /* of a norm: 1, n */
    enum lam_dtype dtype;  /* decides the staged form: 14-bit integers on Q*, float32 on float types */
    const struct lam_matrix *matrix; /* the base's weights; NULL for norms */
    const float *vector;             /* the base's norm as it is used; NULL for matrices */
    float offset;                    /* added to what a file holds of a norm */
};

struct lam_base_targets {
    const char *base_digest;         /* "sha256:…" */
    const struct lam_target *items;  /* sorted by name */
    size_t n_items;
    struct lam_budget *budget;       /* for what is staged for them; borrowed; NULL: none */
};

/* A factor f[rows, cols] in the form that the kernels read, in tiles of 16 rows. */
struct lam_factor {
    uint32_t rows, cols;
    bool quantised;      /* 14 bits (docs/numeric.md "Adapters"); else float32 tiles */
    uint8_t *tiles;      /* owned; quantised: struct lam_q14_tiles (kernels.h); float: float32 [tile][col][16] */
};

enum lam_method {
    LAM_METHOD_NONE,     /* only a new weight or bias */
    LAM_METHOD_LORA, LAM_METHOD_DORA, LAM_METHOD_IA3_OUTPUT, LAM_METHOD_IA3_INPUT, LAM_METHOD_SPARSE, LAM_METHOD_DENSE
};

struct lam_lora {
    uint32_t rank;
    double alpha;
    bool rank_stabilised;            /* scale alpha/sqrt(r) instead of alpha/r */
    struct lam_factor a, b;
    float *embedding_a;              /* owned, [n_vocab, rank]: A of an embedding adapter; a and b's forms are then float */
    float *b_bias;                   /* owned, [rows] or NULL */
};

/* DoRA's magnitude and what the norm of a row of W + c·BA is made of: sqrt(w + 2c·mixed + c²·delta), all in float64 from the decoded
 * base, so that a change of the weight costs no look at the base. */
struct lam_dora {
    float *magnitude;                /* owned, [rows] */
    double *w, *mixed, *delta;       /* owned, [rows]: ‖W‖², W·BA, ‖BA‖² of each row */
};

/* δ[rows, cols], row after row; the columns rise strictly. Owned. */
struct lam_sparse {
    uint32_t *starts, *columns;      /* [rows + 1], [starts[rows]] */
    float *values;
};

/* What an adapter does to one target. */
struct lam_module {
    const struct lam_target *target; /* borrowed from the base */
    enum lam_method method;
    bool no_effect;                  /* its change is zero whatever its weight */
    struct lam_lora lora;            /* LORA, DORA */
    struct lam_dora dora;
    float *ia3;                      /* owned; [rows] or [cols] */
    struct lam_sparse sparse;
    struct lam_matrix dense;         /* tiles owned; F32, F16 or BF16 */
    struct lam_matrix weight;        /* tiles owned, or NULL: the matrix in place of the base's */
    float *vector;                   /* owned, or NULL: the norm in place of the base's, as it is used */
    float *bias;                     /* owned, [rows] or NULL: the bias in place of the base's */
};

/* SHA-256 of what was staged, as lam_adapter_inspect (adapter/staged.h) finds it in memory. */
struct lam_staged_seal {
    uint8_t a[LAM_SHA256_BYTES], b[LAM_SHA256_BYTES]; /* factors */
    uint8_t bytes[LAM_SHA256_BYTES];  /* other vectors and matrices */
    uint8_t scales[LAM_SHA256_BYTES]; /* ranks, alphas, scaling rules */
    uint8_t targets[LAM_SHA256_BYTES]; /* which matrix each module acts on */
};

struct lam_adapter {
    char *name, *path;               /* owned */
    uint8_t file_root[LAM_SHA256_BYTES];
    char digest[LAM_DIGEST_TEXT];    /* adapter_digest */
    struct lam_module *modules;      /* sorted by name */
    size_t n_modules, n_tensors;
    size_t bytes;                    /* of what is staged */
    bool bound;                      /* its list of bases holds this base */
    uint32_t *invocation;            /* owned, [n_invocation]: activated LoRA; NULL: every row */
    size_t n_invocation;
    struct lam_staged_seal seal;     /* when it was staged */
};

/* Maps, fully verifies, checks against the base and stages. An adapter bound to other bases only is LAM_E_WRONG_BASE, one bound to
 * none LAM_E_UNBOUND, unless waive is true. Every tensor of the file is used or the call fails. DoRA reads the base's weights. */
lam_code lam_adapter_open(const char *path, const struct lam_base_targets *base, bool waive, struct lam_adapter **out,
                          lam_error *err);
void lam_adapter_free(struct lam_adapter *a);

/* Whether an adapter's file has modules whose staging reads the base's weights (DoRA), which must have been verified then. */
lam_code lam_adapter_reads_base(const char *path, bool *reads, lam_error *err);

/* The file once more, verified, for what is not kept when it is staged; LAM_E_CHANGED if it is another one by now. */
lam_code lam_adapter_reopen(const struct lam_adapter *a, struct lam_slm **out, lam_error *err);

/* alpha/r or alpha/sqrt(r), in float64. */
double lam_lora_scale(const struct lam_lora *m);

/* NULL if the base has no such tensor. */
const struct lam_target *lam_find_target(const struct lam_base_targets *base, const char *name, size_t len);

/* The digest of an adapter's meaning, from its .slm: method, modules with shape, rank, alpha, scaling rule and the SHA-256 of
 * each factor as float32 (or int32) in row order, the bases it is bound to, and the activation. */
lam_code lam_adapter_digest(const struct lam_slm *s, char out[LAM_DIGEST_TEXT], lam_error *err);
/* The part of it that tensors are: names, shapes and values. */
lam_code lam_adapter_factors_digest(const struct lam_slm *s, char out[LAM_DIGEST_TEXT], lam_error *err);

#endif
