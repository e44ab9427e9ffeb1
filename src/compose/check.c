/* Checking a whole stack: each adapter by itself, then what they do to one another. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/os.h"
#include "compose/check_adapter.h"
#include "compose/faults.h"
#include "compose/parts.h"
#include "format/vocab.h"
#include "model/model.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct checking {
    const lam_manifest *manifest;
    const struct lam_base_targets *base;
    lam_fault_list *faults;
    uint8_t *touches;                                        /* [n_adapters][n_items] */
    char digests[LAM_MANIFEST_MAX_ADAPTERS][LAM_DIGEST_TEXT]; /* "" where it could not be had */
    char labels[LAM_MANIFEST_MAX_ADAPTERS][128];
};

static bool differs(const char *wanted, const char *found) { return wanted && strcmp(wanted, found) != 0; }

/* ---- the base ---- */

static void check_text(struct checking *c, const struct lam_slm *base)
{
    const lam_manifest *m = c->manifest;
    struct lam_vocab vocab;
    uint8_t hash[LAM_SHA256_BYTES];
    char digest[LAM_DIGEST_TEXT] = "";
    lam_error err = {.code = LAM_E_FORMAT, .message = "the base has no vocabulary"};
    if (base->vocab && lam_vocab_open(base->vocab, base->vocab_bytes, &vocab, &err) == LAM_OK && lam_vocab_digest(&vocab, hash, &err) == LAM_OK)
        lam_digest_text(hash, digest);
    if (!digest[0]) lam_fault_list_add_error(c->faults, "tokenizer", &err);
    else if (differs(m->tokenizer_digest, digest))
        lam_fault_list_add(c->faults, LAM_E_TOKENIZER, "tokenizer", "is %s, the manifest names %s", digest, m->tokenizer_digest);
    const json_t *text = json_object_get(base->metadata, "chat_template");
    if (!m->states_template) return;
    strcpy(digest, "none");
    if (json_is_string(text)) {
        lam_sha256(json_string_value(text), json_string_length(text), hash);
        lam_digest_text(hash, digest);
    }
    const char *wanted = m->template_digest ? m->template_digest : "none";
    if (strcmp(wanted, digest) != 0) lam_fault_list_add(c->faults, LAM_E_TEMPLATE, "template", "is %s, the manifest names %s", digest, wanted);
}

/* ---- the stack ---- */

static void label_adapters(struct checking *c, const char *const adapters[])
{
    for (size_t i = 0; i < c->manifest->n_adapters; i++) {
        const lam_manifest_adapter *a = &c->manifest->adapters[i];
        const char *name = a->file ? lam_path_base(a->file) : a->name ? a->name : adapters[i] ? lam_path_base(adapters[i]) : "";
        snprintf(c->labels[i], sizeof c->labels[i], "adapter %zu, %.100s", i + 1, name);
    }
}

static void check_one(struct checking *c, size_t i, const char *path)
{
    const lam_manifest_adapter *a = &c->manifest->adapters[i];
    if (!isfinite(a->weight)) lam_fault_list_add(c->faults, LAM_E_ARGUMENT, c->labels[i], "its weight is not finite");
    if (!path) return;
    lam_check_adapter(path, c->labels[i], c->base, a, c->touches + i * c->base->n_items, c->digests[i], c->faults);
    if (!c->digests[i][0]) return;
    if (differs(a->digest, c->digests[i]))
        lam_fault_list_add(c->faults, LAM_E_DIGEST, c->labels[i], "is %s, the manifest names %s", c->digests[i], a->digest);
    for (size_t k = 0; k < i; k++)
        if (strcmp(c->digests[k], c->digests[i]) == 0)
            lam_fault_list_add(c->faults, LAM_E_DUPLICATE, c->labels[i], "is the same as adapter %zu: one adapter stands in a stack once", k + 1);
}

static const struct lam_target *find_module(struct checking *c, const char *module, const char *what)
{
    char subject[160];
    const struct lam_target *t = lam_find_target(c->base, module, strlen(module));
    snprintf(subject, sizeof subject, "%s of %.100s", what, module);
    if (!t) lam_fault_list_add(c->faults, LAM_E_UNMATCHED, subject, "the base has no such module");
    return t;
}

/* Who has target t alone; n_adapters if nobody is named. */
static size_t owner_of(const struct checking *c, size_t t)
{
    for (size_t i = 0; i < c->manifest->n_owners; i++)
        if (strcmp(c->manifest->owners[i].module, c->base->items[t].name) == 0) return c->manifest->owners[i].adapter;
    return c->manifest->n_adapters;
}

static void check_owners(struct checking *c)
{
    const lam_manifest *m = c->manifest;
    for (size_t i = 0; i < m->n_owners; i++) {
        const lam_owner *o = &m->owners[i];
        char subject[160];
        const struct lam_target *t = find_module(c, o->module, "owner");
        snprintf(subject, sizeof subject, "owner of %.100s", o->module);
        if (o->adapter >= m->n_adapters) lam_fault_list_add(c->faults, LAM_E_UNMATCHED, subject, "there is no adapter %zu", o->adapter + 1);
        else if (t && c->digests[o->adapter][0] && !c->touches[o->adapter * c->base->n_items + (size_t)(t - c->base->items)])
            lam_fault_list_add(c->faults, LAM_E_UNMATCHED, subject, "%s does not change it", c->labels[o->adapter]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(m->owners[k].module, o->module) == 0) lam_fault_list_add(c->faults, LAM_E_DUPLICATE, subject, "is named twice");
    }
    for (size_t i = 0; i < m->n_module_policies; i++) {
        char subject[160];
        find_module(c, m->module_policies[i].module, "policy");
        snprintf(subject, sizeof subject, "policy of %.100s", m->module_policies[i].module);
        for (size_t k = 0; k < i; k++)
            if (strcmp(m->module_policies[k].module, m->module_policies[i].module) == 0)
                lam_fault_list_add(c->faults, LAM_E_DUPLICATE, subject, "is named twice");
    }
}

/* The adapters that still act on target t and claim what mask tells of: the first two in *a and *b, or its owner alone in *a. */
static size_t claimants(const struct checking *c, const bool *acts, size_t t, unsigned mask, size_t *a, size_t *b)
{
    size_t n = 0, owner = owner_of(c, t);
    for (size_t i = 0; i < c->manifest->n_adapters; i++) {
        unsigned touch = c->touches[i * c->base->n_items + t];
        bool claims = mask ? touch & mask : c->manifest->adapters[i].rule == LAM_STACK_REPLACE;
        if (!acts[i] || !claims) continue;
        if (i == owner) {
            *a = i;
            return 1;
        }
        if (n++ == 0) *a = i;
        else if (n == 2) *b = i;
    }
    return n;
}

static void conflict(struct checking *c, size_t t, size_t a, size_t b, const char *what)
{
    lam_fault_list_add(c->faults, LAM_E_CONFLICT, c->base->items[t].name, "%s and %s both replace %s; name its owner", c->labels[a],
                   c->labels[b], what);
}

/* What adapters do to one another on one target (adapter/overlay.h). */
static void check_target(struct checking *c, size_t t)
{
    const lam_manifest *m = c->manifest;
    bool acts[LAM_MANIFEST_MAX_ADAPTERS];
    size_t a = 0, b = 0;
    for (size_t i = 0; i < m->n_adapters; i++) acts[i] = c->touches[i * c->base->n_items + t] && m->adapters[i].weight != 0.0;
    size_t n = claimants(c, acts, t, 0, &a, &b);
    if (n > 1) {
        conflict(c, t, a, b, "this module");
        return;
    }
    for (size_t i = 0; n && i < m->n_adapters; i++)
        if (i < a || (i > a && m->adapters[i].rule == LAM_STACK_REPLACE)) acts[i] = false;
    n = claimants(c, acts, t, LAM_TOUCH_WEIGHT, &a, &b);
    if (n > 1) conflict(c, t, a, b, "this tensor");
    for (size_t i = 0; n == 1 && c->base->items[t].matrix && i < m->n_adapters; i++)
        if (acts[i] && c->touches[i * c->base->n_items + t] & LAM_TOUCH_DORA)
            lam_fault_list_add(c->faults, LAM_E_CONFLICT, c->base->items[t].name, "%s scales rows by the base's, which %s replaces", c->labels[i],
                           c->labels[a]);
    if (claimants(c, acts, t, LAM_TOUCH_BIAS, &a, &b) > 1) conflict(c, t, a, b, "its bias");
}

static void check_all(struct checking *c, const struct lam_model *model, const char *const adapters[])
{
    const lam_manifest *m = c->manifest;
    if (differs(m->base_digest, model->base_digest))
        lam_fault_list_add(c->faults, LAM_E_WRONG_BASE, "base", "is %s, the manifest names %s", model->base_digest, m->base_digest);
    lam_check_base_parts(model->file, &m->base_parts, "base", c->faults);
    check_text(c, model->file);
    label_adapters(c, adapters);
    for (size_t i = 0; i < m->n_adapters; i++) check_one(c, i, adapters[i]);
    check_owners(c);
    for (size_t t = 0; t < c->base->n_items; t++) check_target(c, t);
}

lam_code lam_manifest_check(const lam_manifest *m, const char *base, const char *const adapters[], lam_fault_list *faults, lam_error *err)
{
    struct lam_model *model;
    if (m->n_adapters > LAM_MANIFEST_MAX_ADAPTERS)
        lam_fault_list_add(faults, LAM_E_LIMIT, "adapters", "%zu, %d at most", m->n_adapters, LAM_MANIFEST_MAX_ADAPTERS);
    else if (lam_model_open(base, &model, err) != LAM_OK) {
        lam_fault_list_add_error(faults, "base", err);
    } else {
        struct checking *c = lam_alloc(1, sizeof *c);
        if (c) *c = (struct checking){.manifest = m, .base = &model->targets, .faults = faults};
        if (c) c->touches = lam_alloc(m->n_adapters, model->targets.n_items);
        if (c && c->touches) check_all(c, model, adapters);
        else lam_fault_list_add(faults, LAM_E_NO_MEMORY, "base", "out of memory");
        if (c) lam_free(c->touches);
        lam_free(c);
        lam_model_close(model);
    }
    return lam_fault_list_error(faults, "stack", err);
}
