/* The keys of an exported GGUF. */
#ifndef LAM_IMPORT_EXPORT_KEYS_H
#define LAM_IMPORT_EXPORT_KEYS_H

#include "format/gguf.h"
#include "model/model.h"

/* The original's keys if the base came from GGUF, else what llama.cpp needs, from configuration and vocabulary.
 * LAM_E_UNSUPPORTED names what GGUF (as llama.cpp reads it) cannot say. */
lam_code lam_export_keys(const struct lam_model *m, struct lam_gguf_out *o, lam_error *err);

#endif
