/* What a tuned model changed of its base, as an adapter. */
#ifndef LAMINA_DIFF_H
#define LAMINA_DIFF_H

#include "lamina/lamina.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lam_diff_method {
    LAM_DIFF_SPARSE, /* the differing elements */
    LAM_DIFF_DENSE,  /* all elements: a task vector */
    LAM_DIFF_LORA    /* factors of the nearest matrix of a rank */
} lam_diff_method;

typedef struct lam_diff_options {
    lam_diff_method method;
    uint32_t rank;         /* LAM_DIFF_LORA: at most this; a smaller matrix gets its lesser side */
    double density;        /* of each matrix, the share of elements that is kept, those of the largest magnitude, ties to the lower index;
                            * 0 and 1: all */
    double drop;           /* 0 … below 1. DARE (Yu et al. 2023, arXiv:2311.03099): each element of a matrix that is left is dropped with
                            * this probability, and the others are divided by 1 − drop */
    uint64_t seed;         /* of the drops: what is dropped depends on seed, module, row and column alone */
    const char *dtype;     /* of factors, deltas and values: "f32" (NULL too), "f16" or "bf16". New norms and biases are always F32 */
    unsigned threads;      /* 0: as an engine. The bytes don't depend on it */
    lam_progress_fn progress; /* may be NULL */
    void *progress_context;
} lam_diff_options;

/* base_path and tuned_path, two base .slm of one architecture, shape and tokenizer → out_path, an adapter .slm bound to the base. The
 * differences are those of decoded weights, residuals included. Tied heads get the embedding's difference, too.
 * *report (may be NULL): a JSON object as text, freed with lam_memory_free: what the file holds, and for every tensor that differs the norms
 * of its difference, of what is kept of it and of the rest (docs/adapters.md).
 * LAM_E_ARCHITECTURE, LAM_E_SHAPE, LAM_E_UNSUPPORTED (a configuration, rotary factors or norms that one of them lacks differ), LAM_E_TOKENIZER, LAM_E_CONFLICT (nothing
 * differs, or nothing is kept), LAM_E_NON_FINITE, LAM_E_LIMIT, LAM_E_ARGUMENT, LAM_E_CANCELLED, LAM_E_NO_SPACE and the files' own errors. No file is
 * left after one. */
LAM_API lam_code lam_diff(const char *base_path, const char *tuned_path, const char *out_path, const lam_diff_options *options,
                          char **report, lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
