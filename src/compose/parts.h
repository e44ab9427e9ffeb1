/* The parts of what a digest is over, so that a difference can be told more precisely than by the digest. */
#ifndef LAM_COMPOSE_PARTS_H
#define LAM_COMPOSE_PARTS_H

#include "format/slm.h"
#include "lamina/manifest.h"

/* As lam_manifest_parts, of an open file. */
lam_code lam_file_parts(const struct lam_slm *file, char out[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT], lam_error *err);

/* A fault for each part that is stated and differs. */
void lam_check_base_parts(const struct lam_slm *file, const lam_base_parts_text *stated, const char *subject, lam_fault_list *faults);
void lam_check_adapter_parts(const struct lam_slm *file, const lam_adapter_parts_text *stated, const char *subject, lam_fault_list *faults);

#endif
