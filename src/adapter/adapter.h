/* Adapters: immutable changes of a base, checked against it and staged for the kernels when they are opened.
 *
 * An adapter .slm (kind LAM_SLM_ADAPTER) holds plain F32, F16 or BF16 tensors named "<module>.lora_a", "<module>.lora_b" and
 * "<module>.bias", where <module> is the changed matrix's GGUF name without ".weight" ("blk.0.attn_q"), role as in
 * format/role.h, and this metadata:
 *   { "method": "lora", "name": text, "bases": ["sha256:…", …],
 *     "modules": [ { "name", "rank", "alpha", "scaling": "alpha/r" or "alpha/sqrt(r)" }, … ]   sorted by name,
 *     "source": { … provenance, in no digest … } }
 * B's rows lie in the order of the base's rows (an importer permutes q and k for bases with interleaved rotary pairs).
 * LoRA: Hu et al. 2021, arXiv:2106.09685; rsLoRA: Kalajdzievski 2023, arXiv:2312.03732. */
#ifndef LAM_ADAPTER_ADAPTER_H
#define LAM_ADAPTER_ADAPTER_H

#include "base/error.h"
#include "base/sha256.h"
#include "format/role.h"
#include "format/slm.h"
#include "tensor/dtype.h"

/* A matrix that an adapter may change, as the base has it. */
struct lam_target {
    const char *name;      /* "blk.0.attn_q"; borrowed */
    enum lam_role role;
    uint32_t layer;        /* LAM_LAYER_NONE outside layers */
    uint32_t rows, cols;
    enum lam_dtype dtype;  /* decides the staged form: 14-bit integers on Q*, float32 on float types */
};

struct lam_base_targets {
    const char *base_digest;         /* "sha256:…" */
    const struct lam_target *items;  /* sorted by name */
    size_t n_items;
};

/* A factor f[rows, cols] in the form that the kernels read, in tiles of 16 rows. */
struct lam_factor {
    uint32_t rows, cols;
    bool quantised;      /* 14 bits (docs/numeric.md "Adapters"); else float32 tiles */
    uint8_t *tiles;      /* owned; quantised: struct lam_q14_tiles (kernels.h); float: float32 [tile][col][16] */
};

struct lam_lora {
    const struct lam_target *target; /* borrowed from the base */
    uint32_t rank;
    double alpha;
    bool rank_stabilised;            /* scale alpha/sqrt(r) instead of alpha/r */
    bool no_effect;                  /* B is all zero */
    struct lam_factor a, b;
    float *embedding_a;              /* owned, [n_vocab, rank]: A of an embedding adapter; a and b's forms are then float */
    float *bias;                     /* owned, [rows] or NULL */
};

struct lam_adapter {
    char *name;                      /* owned */
    char digest[LAM_DIGEST_TEXT];    /* adapter_digest */
    struct lam_lora *modules;        /* sorted by name */
    size_t n_modules, n_tensors;
    size_t bytes;                    /* of the staged factors */
    bool bound;                      /* its list of bases holds this base */
};

/* Maps, fully verifies, checks against the base and stages. An adapter bound to other bases only is LAM_E_WRONG_BASE, one bound to
 * none LAM_E_UNBOUND, unless waive is true. Every tensor of the file is used or the call fails. */
lam_code lam_adapter_open(const char *path, const struct lam_base_targets *base, bool waive, struct lam_adapter **out,
                          lam_error *err);
void lam_adapter_free(struct lam_adapter *a);

/* alpha/r or alpha/sqrt(r), in float64. */
double lam_lora_scale(const struct lam_lora *m);

/* NULL if the base has no such matrix. */
const struct lam_target *lam_find_target(const struct lam_base_targets *base, const char *name, size_t len);

/* The digest of an adapter's meaning, from its .slm: method, modules with shape, rank, alpha, scaling rule and the SHA-256 of
 * each factor as float32 in row order, and the bases it is bound to. */
lam_code lam_adapter_digest(const struct lam_slm *s, char out[LAM_DIGEST_TEXT], lam_error *err);

#endif
