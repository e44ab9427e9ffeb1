/* Checking a whole stack: each adapter by itself, then what they do to one another. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/os.h"
#include "compose/check_adapter.h"
#include "compose/faults.h"
#include "compose/parts.h"
#include "format/vocab.h"
#include "model/model.h"
#include "text/template.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct checking {
    const lam_manifest *manifest;
    struct lam_model *model;
    const struct lam_base_targets *base;                     /* the model's; NULL: it could not be had */
    lam_fault_list *faults;
    uint8_t *touches;                                        /* [n_adapters][n_items] */
    uint64_t *contested;                                     /* [n_items]: the adapters that claim what has no owner */
    char digests[LAM_MANIFEST_MAX_ADAPTERS][LAM_DIGEST_TEXT]; /* "" where it could not be had */
    char labels[LAM_MANIFEST_MAX_ADAPTERS][LAM_ADAPTER_NAME + 32];
};

static bool differs(const char *wanted, const char *found) { return wanted && strcmp(wanted, found) != 0; }

/* ---- the base ---- */

static void check_tokenizer(struct checking *c)
{
    const struct lam_slm *base = c->model->file;
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
}

/* The manifest's own template, which can be run, or else the base's, if there is a base. */
static void check_template(struct checking *c)
{
    const lam_manifest *m = c->manifest;
    const char *text = m->template_text;
    if (!text && !c->model) return;
    if (!text) text = json_string_value(json_object_get(c->model->file->metadata, "chat_template"));
    char digest[LAM_DIGEST_TEXT] = "none";
    struct lam_template *compiled = NULL;
    lam_error err;
    if (text) lam_digest_bytes(text, strlen(text), digest);
    const char *wanted = m->template_digest ? m->template_digest : "none";
    if (m->states_template && strcmp(wanted, digest) != 0)
        lam_fault_list_add(c->faults, LAM_E_TEMPLATE, "template", "is %s, the manifest names %s", digest, wanted);
    if (m->template_text && lam_template_compile(text, strlen(text), &compiled, &err) != LAM_OK) lam_fault_list_add_error(c->faults, "template", &err);
    lam_template_free(compiled);
}

/* ---- the stack ---- */

/* What the file at path says that it is called, in out; false if it says nothing. */
static bool read_name(const char *path, char out[LAM_ADAPTER_NAME])
{
    struct lam_slm *file;
    lam_error err;
    if (!path || lam_slm_open(path, &file, &err) != LAM_OK) return false;
    const char *name = json_string_value(json_object_get(file->metadata, "name"));
    if (name) snprintf(out, LAM_ADAPTER_NAME, "%.100s", name);
    lam_slm_close(file);
    lam_clean_line(out);
    return name != NULL;
}

void lam_manifest_names(const lam_manifest *m, const char *const adapters[], char (*out)[LAM_ADAPTER_NAME])
{
    for (size_t i = 0; i < m->n_adapters; i++) {
        const lam_manifest_adapter *a = &m->adapters[i];
        char wish[LAM_ADAPTER_NAME];
        const char *otherwise = a->file ? lam_path_base(a->file) : adapters[i] ? lam_path_base(adapters[i]) : "";
        if (a->name || !read_name(adapters[i], wish)) snprintf(wish, sizeof wish, "%.100s", a->name ? a->name : otherwise);
        strcpy(out[i], wish);
        for (size_t k = 0, next = 2; k < i; k++) {
            if (strcmp(out[k], out[i]) != 0) continue;
            snprintf(out[i], LAM_ADAPTER_NAME, "%.100s-%zu", wish, next++);
            k = (size_t)-1; /* look at all again */
        }
    }
}

static void label_adapters(struct checking *c, const char *const adapters[])
{
    char names[LAM_MANIFEST_MAX_ADAPTERS][LAM_ADAPTER_NAME];
    lam_manifest_names(c->manifest, adapters, names);
    for (size_t i = 0; i < c->manifest->n_adapters; i++) snprintf(c->labels[i], sizeof c->labels[i], "adapter %zu, %.111s", i + 1, names[i]);
}

static void check_one(struct checking *c, size_t i, const char *path)
{
    const lam_manifest_adapter *a = &c->manifest->adapters[i];
    if (!isfinite(a->weight)) lam_fault_list_add(c->faults, LAM_E_ARGUMENT, c->labels[i], "its weight is not finite");
    if (!path) return;
    if (c->base) lam_check_adapter(path, c->labels[i], c->base, a, c->touches + i * c->base->n_items, c->digests[i], c->faults);
    else lam_identify_adapter(path, c->labels[i], a, c->digests[i], c->faults);
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

/* The adapters that still act on target t and claim what mask tells of (0: all of it), as bits; only its owner, if that is one of them. */
static uint64_t claimants(const struct checking *c, const bool *acts, size_t t, unsigned mask)
{
    uint64_t all = 0;
    size_t owner = owner_of(c, t);
    for (size_t i = 0; i < c->manifest->n_adapters; i++) {
        unsigned touch = c->touches[i * c->base->n_items + t];
        bool claims = mask ? touch & mask : c->manifest->adapters[i].rule == LAM_STACK_REPLACE;
        if (!acts[i] || !claims) continue;
        if (i == owner) return (uint64_t)1 << i;
        all |= (uint64_t)1 << i;
    }
    return all;
}

static bool several(uint64_t set) { return set & (set - 1); }
static size_t first_of(uint64_t set) { return (size_t)__builtin_ctzll(set); }

/* Tells of a contest, if there is one. */
static bool is_contested(struct checking *c, size_t t, uint64_t claiming, const char *what)
{
    if (!several(claiming)) return false;
    c->contested[t] |= claiming;
    lam_fault_list_add(c->faults, LAM_E_CONFLICT, c->base->items[t].name, "%s and %s both replace %s; name its owner", c->labels[first_of(claiming)],
                       c->labels[first_of(claiming & (claiming - 1))], what);
    return true;
}

/* What adapters do to one another on one target (adapter/overlay.h). */
static void check_target(struct checking *c, size_t t)
{
    const lam_manifest *m = c->manifest;
    bool acts[LAM_MANIFEST_MAX_ADAPTERS];
    for (size_t i = 0; i < m->n_adapters; i++) acts[i] = c->touches[i * c->base->n_items + t] && m->adapters[i].weight != 0.0;
    uint64_t replacing = claimants(c, acts, t, 0);
    if (is_contested(c, t, replacing, "this module")) return;
    for (size_t i = 0; replacing && i < m->n_adapters; i++)
        if (i < first_of(replacing) || (i > first_of(replacing) && m->adapters[i].rule == LAM_STACK_REPLACE)) acts[i] = false;
    uint64_t weight = claimants(c, acts, t, LAM_TOUCH_WEIGHT);
    bool contested = is_contested(c, t, weight, "this tensor");
    for (size_t i = 0; weight && !contested && c->base->items[t].matrix && i < m->n_adapters; i++)
        if (acts[i] && c->touches[i * c->base->n_items + t] & LAM_TOUCH_DORA)
            lam_fault_list_add(c->faults, LAM_E_CONFLICT, c->base->items[t].name, "%s scales rows by the base's, which %s replaces", c->labels[i],
                               c->labels[first_of(weight)]);
    is_contested(c, t, claimants(c, acts, t, LAM_TOUCH_BIAS), "its bias");
}

static void check_base(struct checking *c)
{
    const lam_manifest *m = c->manifest;
    if (differs(m->base_digest, c->model->base_digest))
        lam_fault_list_add(c->faults, LAM_E_WRONG_BASE, "base", "is %s, the manifest names %s", c->model->base_digest, m->base_digest);
    lam_check_base_parts(c->model->file, &m->base_parts, "base", c->faults);
    check_tokenizer(c);
}

/* Without a base: what can be told of the rest. */
static void check_all(struct checking *c, const char *const adapters[])
{
    if (c->base) check_base(c);
    check_template(c);
    label_adapters(c, adapters);
    for (size_t i = 0; i < c->manifest->n_adapters; i++) check_one(c, i, adapters[i]);
    if (!c->base) return;
    check_owners(c);
    for (size_t t = 0; t < c->base->n_items; t++) check_target(c, t);
}

static void close_checking(struct checking *c)
{
    if (!c) return;
    lam_free(c->touches);
    lam_free(c->contested);
    lam_model_close(c->model);
    lam_free(c);
}

/* Goes through the whole stack, base or NULL. *out is closed by the caller, also after a failure. */
static lam_code examine(const lam_manifest *m, const char *base, const char *const adapters[], lam_fault_list *faults, struct checking **out,
                        lam_error *err)
{
    struct checking *c = *out = NULL;
    if (m->n_adapters > LAM_MANIFEST_MAX_ADAPTERS)
        return LAM_RAISE(err, LAM_E_LIMIT, "%zu adapters, %d at most", m->n_adapters, LAM_MANIFEST_MAX_ADAPTERS);
    c = *out = lam_alloc(1, sizeof *c);
    if (!c) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapters: out of memory", m->n_adapters);
    *c = (struct checking){.manifest = m, .faults = faults};
    if (base) {
        LAM_TRY(lam_model_open(base, NULL, &c->model, err));
        c->base = &c->model->targets;
        c->touches = lam_alloc(m->n_adapters, c->base->n_items);
        c->contested = lam_alloc(c->base->n_items, sizeof *c->contested);
        if (!c->touches || !c->contested) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", base);
    }
    check_all(c, adapters);
    return LAM_OK;
}

lam_code lam_manifest_check(const lam_manifest *m, const char *base, const char *const adapters[], lam_fault_list *faults, lam_error *err)
{
    struct checking *c;
    lam_error why;
    lam_code code = examine(m, base, adapters, faults, &c, &why);
    if (code != LAM_OK) {
        lam_fault_list_add_error(faults, "base", &why);
        close_checking(c);
        c = NULL;
        if (code != LAM_E_NO_MEMORY && examine(m, NULL, adapters, faults, &c, &why) != LAM_OK && why.code != code)
            lam_fault_list_add_error(faults, "stack", &why);
    }
    close_checking(c);
    return lam_fault_list_error(faults, "stack", err);
}

/* The contests with the names of their modules behind them, in one block. */
static lam_code list_contests(const struct checking *c, lam_contest **out, size_t *n, lam_error *err)
{
    size_t bytes = 0, count = 0;
    for (size_t t = 0; t < c->base->n_items; t++)
        if (c->contested[t]) count++, bytes += sizeof **out + strlen(c->base->items[t].name) + 1;
    if (count == 0) return LAM_OK;
    lam_contest *next = *out = lam_alloc(bytes, 1);
    if (!next) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu contests", count);
    *n = count;
    char *text = (char *)(next + count);
    for (size_t t = 0; t < c->base->n_items; t++) {
        if (!c->contested[t]) continue;
        *next++ = (lam_contest){text, c->contested[t]};
        strcpy(text, c->base->items[t].name);
        text += strlen(text) + 1;
    }
    return LAM_OK;
}

lam_code lam_manifest_contests(const lam_manifest *m, const char *base, const char *const adapters[], lam_contest **out, size_t *n, lam_error *err)
{
    lam_fault_list faults = {0};
    struct checking *c;
    *out = NULL;
    *n = 0;
    lam_code code = examine(m, base, adapters, &faults, &c, err);
    for (size_t i = 0; code == LAM_OK && i < faults.n; i++) /* an adapter that could not be looked through is no claimant */
        if (faults.items[i].code == LAM_E_NO_MEMORY) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", base);
    if (code == LAM_OK) code = list_contests(c, out, n, err);
    close_checking(c);
    lam_fault_list_release(&faults);
    return code;
}
