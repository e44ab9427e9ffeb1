/* Which modules an adapter's configuration means, decided as PEFT 0.21 does (check_target_module_exists, _set_trainable,
 * IA3Model._check_target_module_feedforward and get_pattern_key in huggingface/peft), and the regular expressions that this takes.
 *
 * The expressions are Python's. Only what means the same to Python's re and to PCRE2 on module names is accepted: literals, ".",
 * classes, groups, look-around, alternatives, repeats, anchors, and the escapes \d \D \w \W \s \S \b \B \A \Z \n \t \r \f and of
 * punctuation. Everything else is LAM_E_UNSUPPORTED with its place. The work of all matches together is bounded (LAM_E_LIMIT). */
#ifndef LAM_IMPORT_ADAPTER_MATCH_H
#define LAM_IMPORT_ADAPTER_MATCH_H

#include "base/error.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lam_module_kind { LAM_MODULE_LINEAR, LAM_MODULE_HEAD, LAM_MODULE_EMBEDDING, LAM_MODULE_NORM };

/* Values as they stand in adapter_config.json; NULL or JSON null: absent. Borrowed, they must outlive the matcher. */
struct lam_module_rules {
    const json_t *target_modules;      /* list of names or endings, one expression, "all-linear"; absent: the defaults */
    const char *const *defaults;       /* endings, up to NULL; NULL: q_proj and v_proj, as LoRA has it for all these architectures */
    const json_t *exclude_modules;     /* list of names or endings, or one expression */
    const json_t *layers_to_transform; /* layer number or list of them */
    const json_t *layers_pattern;      /* expression or list of them */
    const json_t *modules_to_save;     /* list of names; what they mean is no target */
    const json_t *feedforward_modules; /* IA³: list of endings or one expression; absent: down_proj */
};

struct lam_module_match;
/* LAM_E_FORMAT for values of a wrong type and combinations that PEFT refuses. */
lam_code lam_module_match_new(const struct lam_module_rules *rules, struct lam_module_match **out, lam_error *err);
void lam_module_match_free(struct lam_module_match *m);
/* module: its name in the model, as in "model.layers.0.self_attn.q_proj". */
lam_code lam_module_match_find(struct lam_module_match *m, const char *module, enum lam_module_kind kind, bool *targeted,
                               lam_error *err);
/* The i-th entry of a target list that no module has matched yet, or NULL after the last. */
const char *lam_module_match_unused(const struct lam_module_match *m, size_t i);

/* Whether modules_to_save means the module, or one that it is part of: any name that ends with an entry, dots or not. */
bool lam_module_match_saved(struct lam_module_match *m, const char *module);
/* The i-th entry of modules_to_save that no module has matched yet, or NULL after the last. */
const char *lam_module_match_unsaved(const struct lam_module_match *m, size_t i);
/* Whether IA³ scales what goes into the module, and not what comes out. */
lam_code lam_module_match_feedforward(struct lam_module_match *m, const char *module, bool *feedforward, lam_error *err);

/* rank_pattern or alpha_pattern: an object of expressions and numbers, in the file's order. */
struct lam_pattern_table;
/* object may be NULL or JSON null. name is for messages, borrowed. */
lam_code lam_pattern_table_new(const json_t *object, const char *name, struct lam_pattern_table **out, lam_error *err);
void lam_pattern_table_free(struct lam_pattern_table *t);
/* The value of the first key with re.match(r"(.*\.)?(key)$", module); NULL if there is none. */
lam_code lam_pattern_table_find(struct lam_pattern_table *t, const char *module, const json_t **value, lam_error *err);
const char *lam_pattern_table_unused(const struct lam_pattern_table *t, size_t i);

#endif
