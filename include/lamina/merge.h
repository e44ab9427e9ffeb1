/* A composition as a base of its own. */
#ifndef LAMINA_MERGE_H
#define LAMINA_MERGE_H

#include "lamina/lamina.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lam_merge_options {
    const char *dtype;        /* of changed matrices: "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "q4_64"; NULL: each its own */
    bool strict;              /* LAM_E_DTYPE where a matrix cannot have the type that it should, instead of a larger one and a note */
    lam_progress_fn progress; /* may be NULL */
    void *progress_context;
} lam_merge_options;

/* Writes a new base: every changed matrix is W + Δ as the policy materialize forms it (docs/numeric.md), encoded again; changed norms and
 * biases are F32; everything else has the base's bytes. A name that ends in .gguf gets a GGUF file, else it is a .slm. The composition must
 * be of the policy materialize in every module. A tied head is untied unless both sides come out alike.
 * *report (may be NULL): a JSON object as text, freed with lam_memory_free: the new base's digest, and for every changed matrix what encoding
 * lost (docs/adapters.md).
 * LAM_E_MERGE_ACTIVATED for adapters that act on some rows only; LAM_E_UNSUPPORTED for a bias that the architecture has no place for;
 * LAM_E_ARGUMENT, LAM_E_DTYPE, LAM_E_NON_FINITE, LAM_E_DIGEST, LAM_E_CHANGED, LAM_E_CANCELLED, LAM_E_NO_SPACE, LAM_E_IO, LAM_E_NO_MEMORY; for .gguf
 * also those of lam_export_gguf. No file is left after one. */
LAM_API lam_code lam_merge(lam_composition *composition, const char *out_path, const lam_merge_options *options, char **report, lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
