#include "compose/check_adapter.h"
#include "base/alloc.h"
#include "compose/faults.h"
#include "compose/parts.h"
#include "tensor/decode.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_INVOCATION 1024
#define N_PARTS (LAM_PART_WEIGHT + 1)

struct scan {
    const char *label;
    struct lam_slm *file;
    const struct lam_base_targets *base;
    lam_fault_list *faults;
    uint8_t *touches;
    bool *used;          /* [file->n_entries] */
};

/* The module at work. */
struct module_scan {
    const char *name;
    const struct lam_target *target;
    uint32_t rank;                               /* 0: no factors */
    const struct lam_slm_entry *parts[N_PARTS];  /* by enum lam_adapter_part */
};

static void fault(const struct scan *s, lam_code code, const char *what, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void fault(const struct scan *s, lam_code code, const char *what, const char *format, ...)
{
    char subject[320], message[400];
    va_list args;
    snprintf(subject, sizeof subject, "%.150s%s%.150s", s->label, *what ? ": " : "", what);
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    lam_fault_list_add(s->faults, code, subject, "%s", message);
}

/* ---- the file as a whole ---- */

static void check_method(const struct scan *s)
{
    static const char *const known[] = {"lora", "dora", "ia3", "sparse", "dense"};
    const char *method = json_string_value(json_object_get(s->file->metadata, "method"));
    for (size_t i = 0; method && i < sizeof known / sizeof *known; i++)
        if (strcmp(method, known[i]) == 0) return;
    fault(s, LAM_E_METHOD, "method", "%s is no method that is implemented", method ? method : "none");
}

static void check_binding(const struct scan *s, bool waived)
{
    const json_t *bases = json_object_get(s->file->metadata, "bases");
    bool bound = false;
    if (!json_is_array(bases)) fault(s, LAM_E_FORMAT, "bases", "the metadata has no list of bases");
    for (size_t i = 0; i < json_array_size(bases); i++) {
        const char *digest = json_string_value(json_array_get(bases, i));
        if (!digest) fault(s, LAM_E_FORMAT, "bases", "entry %zu is no digest", i);
        else bound |= strcmp(digest, s->base->base_digest) == 0;
    }
    if (bound || waived || !json_is_array(bases)) return;
    const char *first = json_string_value(json_array_get(bases, 0));
    if (json_array_size(bases) == 0) fault(s, LAM_E_UNBOUND, "bases", "bound to no base, and no waiver is recorded");
    else fault(s, LAM_E_WRONG_BASE, "bases", "bound to base %s, this base is %s", first ? first : "?", s->base->base_digest);
}

static void check_activation(const struct scan *s)
{
    const json_t *activation = json_object_get(s->file->metadata, "activation"), *list = json_object_get(activation, "invocation");
    size_t n = json_array_size(list);
    if (!activation) return;
    if (n == 0 || n > MAX_INVOCATION || json_object_size(activation) != 1)
        fault(s, LAM_E_FORMAT, "activation", "an activation is an invocation of 1 to %d tokens", MAX_INVOCATION);
    for (size_t i = 0; i < n; i++) {
        const json_t *token = json_array_get(list, i);
        if (!json_is_integer(token) || json_integer_value(token) < 0 || json_integer_value(token) > INT32_MAX)
            fault(s, LAM_E_TOKEN, "activation", "token %zu of the invocation is no token", i);
    }
}

static void check_bytes(const struct scan *s)
{
    lam_error err;
    for (size_t i = 0; i < s->file->n_pieces; i++)
        if (lam_slm_verify_piece(s->file, i, &err) != LAM_OK) fault(s, err.code, "bytes", "%s", err.message);
}

/* ---- one tensor ---- */

static bool is_factor(int part)
{
    return part == LAM_PART_A || part == LAM_PART_B || part == LAM_PART_MAGNITUDE || part == LAM_PART_B_BIAS;
}

/* What a part's shape must be; of sparse values the file decides. */
static void part_shape(const struct module_scan *m, int part, uint32_t *rows, uint32_t *cols)
{
    const struct lam_target *t = m->target;
    bool embedding = t->role == LAM_ROLE_EMBEDDING;
    const struct lam_slm_entry *values = m->parts[LAM_PART_VALUES];
    uint32_t d_out = embedding ? t->cols : t->rows;
    *rows = 1;
    switch (part) {
    case LAM_PART_A: *rows = embedding ? t->rows : m->rank, *cols = embedding ? m->rank : t->cols; break;
    case LAM_PART_B: *rows = d_out, *cols = m->rank; break;
    case LAM_PART_B_BIAS: *cols = d_out; break;
    case LAM_PART_IA3_INPUT: *cols = t->cols; break;
    case LAM_PART_STARTS: *cols = t->rows + 1; break;
    case LAM_PART_COLUMNS: case LAM_PART_VALUES: *cols = values ? values->dims[0] : 0; break;
    case LAM_PART_DELTA: *rows = t->rows, *cols = t->cols; break;
    case LAM_PART_WEIGHT: *rows = t->matrix ? t->rows : 1, *cols = t->cols; break;
    default: *cols = t->rows;
    }
}

static void check_finite(const struct scan *s, const struct lam_slm_entry *e, const char *name)
{
    size_t row_bytes = 0, bad = 0, first = 0;
    lam_dtype_row_bytes(e->dtype, e->dims[0], &row_bytes);
    for (size_t r = 0; r < e->dims[1]; r++)
        if (!lam_row_is_finite(e->dtype, lam_slm_tensor_data(s->file, e) + r * row_bytes, e->dims[0]) && bad++ == 0) first = r;
    if (bad) fault(s, LAM_E_NON_FINITE, name, "NaN or infinity in %zu of %u rows, the first of them %zu", bad, e->dims[1], first);
}

/* What a factor's other shape comes from: turned round, or of another rank. */
static lam_code shape_code(const struct module_scan *m, int part, const struct lam_slm_entry *e)
{
    uint32_t rows, cols;
    part_shape(m, part, &rows, &cols);
    if ((part != LAM_PART_A && part != LAM_PART_B) || e->n_dims != 2) return LAM_E_SHAPE;
    if (e->dims[0] == rows && e->dims[1] == cols) return part == LAM_PART_B ? LAM_E_TRANSPOSED_B : LAM_E_TRANSPOSED;
    bool by_row = (part == LAM_PART_A) != (m->target->role == LAM_ROLE_EMBEDDING); /* the rank counts rows */
    return e->dims[by_row ? 0 : 1] == (by_row ? cols : rows) ? LAM_E_RANK : LAM_E_SHAPE;
}

static void check_part(const struct scan *s, const struct module_scan *m, int part)
{
    const struct lam_slm_entry *e = m->parts[part];
    bool index = part == LAM_PART_STARTS || part == LAM_PART_COLUMNS;
    bool fits_type = index ? e->dtype == LAM_I32 : e->dtype == LAM_F32 || e->dtype == LAM_F16 || e->dtype == LAM_BF16;
    uint32_t rows, cols;
    char name[96];
    lam_part_tensor(m->target->name, (enum lam_adapter_part)part, name);
    part_shape(m, part, &rows, &cols);
    if (e->dims[0] != cols || e->dims[1] != rows || e->dims[2] != 1 || e->dims[3] != 1)
        fault(s, shape_code(m, part, e), name, "%u rows of %u, the base asks for %u of %u", e->dims[1], e->dims[0], rows, cols);
    if (!fits_type || e->layout != LAM_LAYOUT_PLAIN) fault(s, LAM_E_DTYPE, name, "has type %s", lam_dtype_info(e->dtype)->name);
    else if (!index) check_finite(s, e, name);
    if (e->role != ((uint32_t)m->target->role | (uint32_t)part << 16) || e->layer != m->target->layer)
        fault(s, LAM_E_FORMAT, name, "has role %u, layer %u", e->role, e->layer);
}

/* ---- one module ---- */

static void find_parts(const struct scan *s, struct module_scan *m)
{
    for (int part = LAM_PART_A; part < N_PARTS; part++) {
        char name[96];
        if (is_factor(part) && !m->rank) continue;
        lam_part_tensor(m->target->name, (enum lam_adapter_part)part, name);
        m->parts[part] = lam_slm_find(s->file, name);
        if (m->parts[part]) s->used[m->parts[part] - s->file->entries] = true;
    }
}

/* Rank, alpha and scaling rule of a module with factors. */
static void read_scaling(const struct scan *s, const json_t *item, struct module_scan *m)
{
    const json_t *rank = json_object_get(item, "rank"), *alpha = json_object_get(item, "alpha");
    const char *scaling = json_string_value(json_object_get(item, "scaling"));
    m->rank = 0;
    if (!rank) {
        if (json_object_size(item) != 1) fault(s, LAM_E_UNKNOWN_FIELD, m->name, "the module has unknown fields");
        return;
    }
    if (!json_is_integer(rank) || !json_is_number(alpha) || !scaling) {
        fault(s, LAM_E_FORMAT, m->name, "rank, alpha or scaling rule is missing or of another type");
        return;
    }
    if (json_object_size(item) != 4) fault(s, LAM_E_UNKNOWN_FIELD, m->name, "the module has unknown fields");
    json_int_t value = json_integer_value(rank);
    if (value < 1 || value > INT32_MAX) fault(s, LAM_E_RANK, m->name, "rank %lld", (long long)value);
    else m->rank = (uint32_t)value;
    if (!isfinite(json_number_value(alpha))) fault(s, LAM_E_NON_FINITE, m->name, "alpha is not finite");
    if (strcmp(scaling, "alpha/r") != 0 && strcmp(scaling, "alpha/sqrt(r)") != 0)
        fault(s, LAM_E_METHOD, m->name, "scaling rule %.100s", scaling);
}

/* Starts rise from 0 to the number of values; in a row columns rise strictly and are below the width. */
static void check_sparse(const struct scan *s, const struct module_scan *m)
{
    const struct lam_slm_entry *starts = m->parts[LAM_PART_STARTS], *columns = m->parts[LAM_PART_COLUMNS], *values = m->parts[LAM_PART_VALUES];
    const struct lam_target *t = m->target;
    if (!starts && !columns && !values) return;
    if (!starts || !columns || !values) {
        fault(s, LAM_E_MISSING_PAIR, m->name, "a sparse delta without %s",
              lam_part_name(!starts ? LAM_PART_STARTS : !columns ? LAM_PART_COLUMNS : LAM_PART_VALUES));
        return;
    }
    if (starts->dims[0] != t->rows + 1 || columns->dims[0] != values->dims[0] || starts->dtype != LAM_I32 || columns->dtype != LAM_I32) return;
    const uint32_t *start = (const uint32_t *)(const void *)lam_slm_tensor_data(s->file, starts); /* 64-byte aligned */
    const uint32_t *column = (const uint32_t *)(const void *)lam_slm_tensor_data(s->file, columns);
    uint32_t n = values->dims[0], bad = 0;
    if (start[0] != 0 || start[t->rows] != n) fault(s, LAM_E_FORMAT, m->name, "rows from %u to %u of %u values", start[0], start[t->rows], n);
    for (uint32_t r = 0; r < t->rows && bad == 0; r++) {
        if (start[r + 1] < start[r] || start[r + 1] > n) {
            fault(s, LAM_E_FORMAT, m->name, "row %u goes from %u to %u", r, start[r], start[r + 1]);
            return;
        }
        for (uint32_t i = start[r]; i < start[r + 1] && bad == 0; i++) {
            if (column[i] >= t->cols) fault(s, LAM_E_OVERFLOW, m->name, "column %u of %u in row %u", column[i], t->cols, r), bad++;
            else if (i > start[r] && column[i] <= column[i - 1])
                fault(s, column[i] == column[i - 1] ? LAM_E_DUPLICATE : LAM_E_FORMAT, m->name, "the columns of row %u don't rise: %u after %u",
                      r, column[i], column[i - 1]), bad++;
        }
    }
}

/* That the module's parts are one thing, and one that its target can take. */
static void check_whole(const struct scan *s, const struct module_scan *m)
{
    const struct lam_slm_entry *const *p = m->parts;
    const struct lam_target *t = m->target;
    bool embedding = t->role == LAM_ROLE_EMBEDDING, ia3 = p[LAM_PART_IA3_OUTPUT] || p[LAM_PART_IA3_INPUT];
    bool sparse = p[LAM_PART_STARTS] || p[LAM_PART_COLUMNS] || p[LAM_PART_VALUES];
    if (m->rank && (!p[LAM_PART_A] || !p[LAM_PART_B]))
        fault(s, LAM_E_MISSING_PAIR, m->name, "has no %s", p[LAM_PART_A] ? "lora_b" : p[LAM_PART_B] ? "lora_a" : "factors");
    if (!t->matrix && (m->rank || ia3 || sparse || p[LAM_PART_DELTA])) fault(s, LAM_E_METHOD, m->name, "is no matrix: it can only be replaced");
    else if (embedding && (ia3 || p[LAM_PART_MAGNITUDE] || p[LAM_PART_B_BIAS]))
        fault(s, LAM_E_METHOD, m->name, "the embedding takes no DoRA, no IA³ and no bias of B");
    if (p[LAM_PART_IA3_OUTPUT] && p[LAM_PART_IA3_INPUT]) fault(s, LAM_E_DUPLICATE, m->name, "has both of ia3_output and ia3_input");
    if ((m->rank != 0) + ia3 + sparse + (p[LAM_PART_DELTA] != NULL) > 1) fault(s, LAM_E_CONFLICT, m->name, "is changed in two ways");
    if (p[LAM_PART_BIAS] && !lam_role_bias(t->role)) fault(s, LAM_E_UNSUPPORTED, m->name, "this module has no bias");
    bool any = false;
    for (int part = LAM_PART_A; part < N_PARTS; part++) any |= p[part] != NULL;
    if (!any && !m->rank) fault(s, LAM_E_MISSING_TENSOR, m->name, "has no tensor");
}

static void check_module(const struct scan *s, const json_t *item, size_t i, const char **before)
{
    struct module_scan m = {.name = json_string_value(json_object_get(item, "name"))};
    char place[40];
    if (!m.name) {
        snprintf(place, sizeof place, "modules[%zu]", i);
        fault(s, LAM_E_FORMAT, place, "has no name");
        return;
    }
    int order = *before ? strcmp(*before, m.name) : -1;
    if (order == 0) fault(s, LAM_E_DUPLICATE, m.name, "occurs twice");
    else if (order > 0) fault(s, LAM_E_ORDER, m.name, "stands after %.100s", *before);
    *before = m.name;
    m.target = lam_find_target(s->base, m.name, json_string_length(json_object_get(item, "name")));
    read_scaling(s, item, &m);
    if (!m.target) {
        size_t len = strlen(m.name), n_tensors = 0;
        for (size_t k = 0; k < s->file->n_entries; k++) {
            const struct lam_slm_entry *e = &s->file->entries[k];
            const char *name = s->file->names + e->name_offset;
            const char *dot = e->name_len > len && memcmp(name, m.name, len) == 0 && name[len] == '.' ? name + len + 1 : NULL;
            if (dot && !memchr(dot, '.', e->name_len - len - 1)) s->used[k] = true, n_tensors++;
        }
        fault(s, LAM_E_UNMATCHED, m.name, "the base has no such module (%zu tensors)", n_tensors);
        return;
    }
    find_parts(s, &m);
    for (int part = LAM_PART_A; part < N_PARTS; part++)
        if (m.parts[part]) check_part(s, &m, part);
    check_sparse(s, &m);
    check_whole(s, &m);
    s->touches[m.target - s->base->items] =
        (uint8_t)(LAM_TOUCH | (m.parts[LAM_PART_WEIGHT] ? LAM_TOUCH_WEIGHT : 0) | (m.parts[LAM_PART_BIAS] ? LAM_TOUCH_BIAS : 0) |
                  (m.parts[LAM_PART_MAGNITUDE] ? LAM_TOUCH_DORA : 0));
}

static void check_modules(const struct scan *s)
{
    const json_t *modules = json_object_get(s->file->metadata, "modules");
    const char *before = NULL;
    if (json_array_size(modules) == 0) fault(s, LAM_E_UNMATCHED, "modules", "the adapter changes no module");
    for (size_t i = 0; i < json_array_size(modules); i++) check_module(s, json_array_get(modules, i), i, &before);
    for (size_t k = 0; k < s->file->n_entries; k++) {
        char name[128];
        if (s->used[k]) continue;
        snprintf(name, sizeof name, "%.*s", (int)s->file->entries[k].name_len, s->file->names + s->file->entries[k].name_offset);
        fault(s, LAM_E_UNMATCHED, name, "belongs to no module");
    }
}

static void take_digest(const struct scan *s, char digest[LAM_DIGEST_TEXT])
{
    lam_error err;
    if (lam_adapter_digest(s->file, digest, &err) == LAM_OK) return;
    digest[0] = 0;
    fault(s, err.code, "", "%s", err.message);
}

static void check_file(struct scan *s, const lam_manifest_adapter *entry, char digest[LAM_DIGEST_TEXT])
{
    check_method(s);
    check_binding(s, entry->waived);
    check_bytes(s);
    check_activation(s);
    take_digest(s, digest);
    s->used = lam_alloc(s->file->n_entries, sizeof *s->used);
    if (s->used) check_modules(s);
    else fault(s, LAM_E_NO_MEMORY, "", "out of memory");
    lam_free(s->used);
    lam_check_adapter_parts(s->file, &entry->parts, s->label, s->faults); /* what is wrong in itself comes before what is only another */
}

/* Opens the file at path; false, with a fault, if it is no adapter. */
static bool open_scan(struct scan *s, const char *path)
{
    lam_error err;
    if (lam_slm_open(path, &s->file, &err) != LAM_OK) fault(s, err.code, "", "%s", err.message);
    else if (s->file->kind != LAM_SLM_ADAPTER) fault(s, LAM_E_FORMAT, "", "is a base, not an adapter");
    else return true;
    return false;
}

void lam_check_adapter(const char *path, const char *label, const struct lam_base_targets *base, const lam_manifest_adapter *entry, uint8_t *touches,
                       char digest[LAM_DIGEST_TEXT], lam_fault_list *faults)
{
    struct scan s = {.label = label, .base = base, .faults = faults, .touches = touches};
    digest[0] = 0;
    if (open_scan(&s, path)) check_file(&s, entry, digest);
    lam_slm_close(s.file);
}

void lam_identify_adapter(const char *path, const char *label, const lam_manifest_adapter *entry, char digest[LAM_DIGEST_TEXT],
                          lam_fault_list *faults)
{
    struct scan s = {.label = label, .faults = faults};
    digest[0] = 0;
    if (open_scan(&s, path)) {
        take_digest(&s, digest);
        lam_check_adapter_parts(s.file, &entry->parts, label, faults);
    }
    lam_slm_close(s.file);
}
