/* Reading a manifest: field by field from tables, with every fault told. */
#include "base/alloc.h"
#include "base/files.h"
#include "base/json.h"
#include "base/os.h"
#include "base/utf8.h"
#include "compose/faults.h"
#include "compose/identity.h"
#include "compose/manifest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_DEPTH 16
#define WHERE 200 /* bytes of a place such as "adapters[1].weight" */

/* A manifest while it is read. */
struct reading {
    struct lam_manifest_parts *parts;
    lam_fault_list *faults;
    const char *folder;
};

/* One member of an object: into is the structure that the object fills. */
struct field {
    const char *name;
    void (*read)(struct reading *r, const char *where, const json_t *value, void *into);
    bool needed;
};

static void read_object(struct reading *r, const char *where, const json_t *value, const struct field *fields, size_t n, void *into)
{
    char place[WHERE];
    const char *key, *dot = *where ? "." : "";
    json_t *member;
    if (!json_is_object(value)) {
        lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be an object");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(place, sizeof place, "%.90s%s%.90s", where, dot, fields[i].name);
        const json_t *given = json_object_get(value, fields[i].name);
        if (given) fields[i].read(r, place, given, into);
        else if (fields[i].needed) lam_fault_list_add(r->faults, LAM_E_FORMAT, place, "is missing");
    }
    json_object_foreach((json_t *)value, key, member) {
        size_t i = 0;
        while (i < n && strcmp(key, fields[i].name) != 0) i++;
        snprintf(place, sizeof place, "%.90s%s%.90s", where, dot, key);
        if (i == n) lam_fault_list_add(r->faults, LAM_E_UNKNOWN_FIELD, place, "is no field of a manifest");
    }
}
#define READ_OBJECT(r, where, value, fields, into) read_object(r, where, value, fields, sizeof(fields) / sizeof *(fields), into)

/* A text of one line that is not empty; NULL with a fault otherwise. */
static const char *read_text(struct reading *r, const char *where, const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) != json_string_length(value)) {
        lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be a text that is not empty");
        return NULL;
    }
    if (lam_utf8_is_line(text, strlen(text))) return text;
    lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "holds a control character");
    return NULL;
}

bool lam_is_digest(const char *text)
{
    return strncmp(text, "sha256:", 7) == 0 && strspn(text + 7, "0123456789abcdef") == 64 && !text[71];
}

static const char *read_digest(struct reading *r, const char *where, const json_t *value)
{
    const char *text = read_text(r, where, value);
    if (!text || lam_is_digest(text)) return text;
    lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be \"sha256:\" and 64 hexadecimal digits in small letters");
    return NULL;
}

/* The index of a text in names[n]; n with a fault if it is none of them. */
static size_t read_choice(struct reading *r, const char *where, const json_t *value, const char *const *names, size_t n)
{
    char list[100] = "";
    const char *text = json_string_value(value);
    for (size_t i = 0; i < n; i++) {
        if (text && strcmp(text, names[i]) == 0) return i;
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s\"%s\"", i == 0 ? "" : i + 1 == n ? " or " : ", ", names[i]);
    }
    lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be %s", list);
    return n;
}

/* A path relative to the manifest, made one that can be opened; kept with the manifest. */
static const char *read_file(struct reading *r, const char *where, const json_t *value)
{
    const char *text = read_text(r, where, value);
    if (!text) return NULL;
    if (*text == '/') {
        lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be relative to the manifest");
        return NULL;
    }
    char *path = *r->folder ? lam_path_join(r->folder, text) : lam_strdup(text);
    json_t *kept = path ? json_string_nocheck(path) : NULL;
    lam_free(path);
    if (json_array_append_new(r->parts->paths, kept) != 0) {
        lam_fault_list_add(r->faults, LAM_E_NO_MEMORY, where, "out of memory");
        return NULL;
    }
    return json_string_value(json_array_get(r->parts->paths, json_array_size(r->parts->paths) - 1));
}

/* ---- the base and what goes with it ---- */

static void base_digest(struct reading *r, const char *w, const json_t *v, void *m) { ((lam_manifest *)m)->base_digest = read_digest(r, w, v); }
static void base_name(struct reading *r, const char *w, const json_t *v, void *m) { ((lam_manifest *)m)->base_name = read_text(r, w, v); }
static void base_file(struct reading *r, const char *w, const json_t *v, void *m) { ((lam_manifest *)m)->base_file = read_file(r, w, v); }

#define PART(function, member) \
    static void function(struct reading *r, const char *w, const json_t *v, void *p) { ((lam_base_parts_text *)p)->member = read_digest(r, w, v); }
PART(base_weights, weights)
PART(base_layout, layout)
PART(base_config, config)
PART(base_targets, targets)
#undef PART

static void base_parts(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const struct field fields[] = {{"weights", base_weights, false}, {"layout", base_layout, false}, {"config", base_config, false},
                                          {"targets", base_targets, false}};
    READ_OBJECT(r, where, value, fields, &((lam_manifest *)into)->base_parts);
}

static void read_base(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const struct field fields[] = {{"digest", base_digest, true}, {"name", base_name, false}, {"file", base_file, false},
                                          {"parts", base_parts, false}};
    READ_OBJECT(r, where, value, fields, into);
}

static void tokenizer_digest(struct reading *r, const char *w, const json_t *v, void *m)
{
    ((lam_manifest *)m)->tokenizer_digest = read_digest(r, w, v);
}

static void read_tokenizer(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const struct field fields[] = {{"digest", tokenizer_digest, true}};
    READ_OBJECT(r, where, value, fields, into);
}

static void template_digest(struct reading *r, const char *w, const json_t *v, void *m)
{
    ((lam_manifest *)m)->template_digest = read_digest(r, w, v);
}

/* null says that the base has none. */
static void read_template(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const struct field fields[] = {{"digest", template_digest, true}};
    ((lam_manifest *)into)->states_template = true;
    if (!json_is_null(value)) READ_OBJECT(r, where, value, fields, into);
}

/* ---- adapters ---- */

/* An adapter and its waiver's digests, which are compared when all is read. */
struct adapter_reading {
    lam_manifest_adapter *adapter;
    const char *waived_adapter, *waived_base;
};

static void adapter_digest(struct reading *r, const char *w, const json_t *v, void *a)
{
    ((struct adapter_reading *)a)->adapter->digest = read_digest(r, w, v);
}
static void adapter_name(struct reading *r, const char *w, const json_t *v, void *a)
{
    ((struct adapter_reading *)a)->adapter->name = read_text(r, w, v);
}
static void adapter_file(struct reading *r, const char *w, const json_t *v, void *a)
{
    ((struct adapter_reading *)a)->adapter->file = read_file(r, w, v);
}

static void adapter_weight(struct reading *r, const char *where, const json_t *value, void *a)
{
    if (json_is_number(value)) ((struct adapter_reading *)a)->adapter->weight = json_number_value(value);
    else lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be a number");
}

static void adapter_rule(struct reading *r, const char *where, const json_t *value, void *a)
{
    size_t i = read_choice(r, where, value, lam_rule_names, LAM_N_RULES);
    if (i < LAM_N_RULES) ((struct adapter_reading *)a)->adapter->rule = (lam_stack_rule)i;
}

static void waiver_adapter(struct reading *r, const char *w, const json_t *v, void *a)
{
    ((struct adapter_reading *)a)->waived_adapter = read_digest(r, w, v);
}
static void waiver_base(struct reading *r, const char *w, const json_t *v, void *a)
{
    ((struct adapter_reading *)a)->waived_base = read_digest(r, w, v);
}

static void adapter_waiver(struct reading *r, const char *where, const json_t *value, void *a)
{
    static const struct field fields[] = {{"adapter_digest", waiver_adapter, true}, {"base_digest", waiver_base, true}};
    ((struct adapter_reading *)a)->adapter->waived = true;
    READ_OBJECT(r, where, value, fields, a);
}

static void adapter_accept(struct reading *r, const char *where, const json_t *value, void *a)
{
    if (json_is_boolean(value)) ((struct adapter_reading *)a)->adapter->accept_tokenizer = json_is_true(value);
    else lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be true or false");
}

#define PART(function, member, read) \
    static void function(struct reading *r, const char *w, const json_t *v, void *p) { ((lam_adapter_parts_text *)p)->member = read(r, w, v); }
PART(part_method, method, read_text)
PART(part_modules, modules, read_digest)
PART(part_factors, factors, read_digest)
PART(part_activation, activation, read_digest)
PART(part_alphas, alphas, read_digest)
#undef PART

static void adapter_parts(struct reading *r, const char *where, const json_t *value, void *a)
{
    static const struct field fields[] = {{"method", part_method, false}, {"modules", part_modules, false}, {"factors", part_factors, false},
                                          {"activation", part_activation, false}, {"alphas", part_alphas, false}};
    READ_OBJECT(r, where, value, fields, &((struct adapter_reading *)a)->adapter->parts);
}

/* A waiver names the two digests that it is for. */
static void check_waiver(struct reading *r, const char *where, const struct adapter_reading *a)
{
    char place[WHERE];
    const char *base = r->parts->manifest.base_digest;
    snprintf(place, sizeof place, "%.150s.waiver", where);
    if (a->waived_adapter && a->adapter->digest && strcmp(a->waived_adapter, a->adapter->digest) != 0)
        lam_fault_list_add(r->faults, LAM_E_DIGEST, place, "is for adapter %s, this one is %s", a->waived_adapter, a->adapter->digest);
    if (a->waived_base && base && strcmp(a->waived_base, base) != 0)
        lam_fault_list_add(r->faults, LAM_E_WRONG_BASE, place, "is for base %s, the manifest's is %s", a->waived_base, base);
}

static void check_distinct(struct reading *r, const char *where, size_t i)
{
    const lam_manifest_adapter *list = r->parts->adapters;
    for (size_t k = 0; k < i && list[i].digest; k++)
        if (list[k].digest && strcmp(list[k].digest, list[i].digest) == 0)
            lam_fault_list_add(r->faults, LAM_E_DUPLICATE, where, "is adapters[%zu] once more: %s", k, list[i].digest);
}

static void read_adapters(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const struct field fields[] = {{"digest", adapter_digest, true}, {"name", adapter_name, false}, {"file", adapter_file, false},
                                          {"weight", adapter_weight, false}, {"rule", adapter_rule, false}, {"waiver", adapter_waiver, false},
                                          {"accept_tokenizer", adapter_accept, false}, {"parts", adapter_parts, false}};
    lam_manifest *m = into;
    size_t n = json_array_size(value);
    if (!json_is_array(value)) lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be an array");
    if (n > LAM_MANIFEST_MAX_ADAPTERS) {
        lam_fault_list_add(r->faults, LAM_E_LIMIT, where, "%zu adapters, %d at most", n, LAM_MANIFEST_MAX_ADAPTERS);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        char place[WHERE];
        struct adapter_reading a = {.adapter = &r->parts->adapters[i]};
        a.adapter->weight = 1.0;
        snprintf(place, sizeof place, "%.90s[%zu]", where, i);
        READ_OBJECT(r, place, json_array_get(value, i), fields, &a);
        check_waiver(r, place, &a);
        check_distinct(r, place, i);
    }
    m->adapters = r->parts->adapters;
    m->n_adapters = n;
}

/* ---- owners, policies and the rest ---- */

/* Room for as many items as an object has; NULL, with a fault, if it is none or memory lacks. */
static void *room_for(struct reading *r, const char *where, const json_t *value, size_t size)
{
    if (!json_is_object(value)) {
        lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be an object");
        return NULL;
    }
    void *room = lam_alloc(json_object_size(value), size);
    if (!room) lam_fault_list_add(r->faults, LAM_E_NO_MEMORY, where, "out of memory");
    return room;
}

/* Module → the digest of the adapter that has it alone. */
static void read_owners(struct reading *r, const char *where, const json_t *value, void *into)
{
    lam_manifest *m = into;
    const char *module;
    json_t *item;
    lam_owner *owners = r->parts->owners = room_for(r, where, value, sizeof *owners);
    if (!owners) return;
    json_object_foreach((json_t *)value, module, item) {
        char place[WHERE];
        snprintf(place, sizeof place, "%.90s.%.90s", where, module);
        const char *digest = read_digest(r, place, item);
        if (!digest) continue;
        size_t i = 0;
        while (i < m->n_adapters && !(m->adapters[i].digest && strcmp(m->adapters[i].digest, digest) == 0)) i++;
        if (i == m->n_adapters) lam_fault_list_add(r->faults, LAM_E_UNMATCHED, place, "no adapter of the manifest is %s", digest);
        else owners[m->n_owners++] = (lam_owner){module, i};
    }
    m->owners = owners;
}

static void read_policy(struct reading *r, const char *where, const json_t *value, void *into)
{
    size_t i = read_choice(r, where, value, lam_policy_names, LAM_N_POLICIES);
    if (i < LAM_N_POLICIES) ((lam_manifest *)into)->policy = (lam_policy)i;
}

static void read_module_policies(struct reading *r, const char *where, const json_t *value, void *into)
{
    lam_manifest *m = into;
    const char *module;
    json_t *item;
    lam_module_policy *list = r->parts->policies = room_for(r, where, value, sizeof *list);
    if (!list) return;
    json_object_foreach((json_t *)value, module, item) {
        char place[WHERE];
        snprintf(place, sizeof place, "%.90s.%.90s", where, module);
        size_t i = read_choice(r, place, item, lam_policy_names, LAM_N_POLICIES);
        if (i < LAM_N_POLICIES) list[m->n_module_policies++] = (lam_module_policy){module, (lam_policy)i};
    }
    m->module_policies = list;
}

static void read_kv(struct reading *r, const char *where, const json_t *value, void *into)
{
    size_t i = read_choice(r, where, value, lam_kv_names, LAM_N_KV);
    if (i < LAM_N_KV) ((lam_manifest *)into)->kv = (lam_kv)(LAM_KV_FLOAT16 + i);
}

static void read_contract(struct reading *r, const char *where, const json_t *value, void *into)
{
    (void)into;
    const char *text = read_text(r, where, value);
    if (text && strcmp(text, LAM_NUMERIC_CONTRACT) != 0)
        lam_fault_list_add(r->faults, LAM_E_VERSION, where, "is %.60s; this is " LAM_NUMERIC_CONTRACT, text);
}

static void read_window(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const char *const names[] = {LAM_WINDOW_POLICY};
    (void)into;
    read_choice(r, where, value, names, 1);
}

/* A whole number may be written as 1e9, too: to JSON, and to the schema, that is the same number. */
static void read_budget(struct reading *r, const char *where, const json_t *value, void *into)
{
    double bytes = json_number_value(value);
    if (bytes >= 1.0 && bytes < 0x1p53 && bytes == floor(bytes)) ((lam_manifest *)into)->memory_budget = (uint64_t)bytes;
    else lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be a whole number of bytes, above 0 and below 2^53");
}

/* Receipts are told as canonical texts, for lam_receipt_check. */
static void read_receipts(struct reading *r, const char *where, const json_t *value, void *into)
{
    lam_manifest *m = into;
    size_t n = json_array_size(value);
    if (!json_is_array(value)) lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be an array");
    r->parts->receipts = lam_alloc(n, sizeof *r->parts->receipts);
    if (!r->parts->receipts) lam_fault_list_add(r->faults, LAM_E_NO_MEMORY, where, "out of memory");
    for (size_t i = 0; r->parts->receipts && i < n; i++) {
        char place[WHERE];
        struct lam_str text = {0};
        lam_error why;
        snprintf(place, sizeof place, "%.90s[%zu]", where, i);
        if (lam_json_canonical(json_array_get(value, i), &text, &why) != LAM_OK) lam_fault_list_add_error(r->faults, place, &why);
        r->parts->receipts[m->n_receipts++] = text.data;
        if (!json_is_object(json_array_get(value, i))) lam_fault_list_add(r->faults, LAM_E_FORMAT, place, "must be an object");
    }
    m->receipts = (const char *const *)r->parts->receipts;
}

static void read_id(struct reading *r, const char *w, const json_t *v, void *m) { ((lam_manifest *)m)->id = read_digest(r, w, v); }

static void read_type(struct reading *r, const char *where, const json_t *value, void *into)
{
    (void)into;
    const char *text = json_string_value(value);
    if (!text || strncmp(text, "lamina.manifest.", 16) != 0)
        lam_fault_list_add(r->faults, LAM_E_MAGIC, where, "must be \"" LAM_MANIFEST_TYPE "\"");
    else if (strcmp(text, LAM_MANIFEST_TYPE) != 0)
        lam_fault_list_add(r->faults, LAM_E_VERSION, where, "is %.100s; this reads " LAM_MANIFEST_TYPE, text);
}

/* The base before the adapters, whose waivers name it, and those before the owners. */
static const struct field whole[] = {
    {"type", read_type, true}, {"id", read_id, false}, {"base", read_base, true}, {"tokenizer", read_tokenizer, false},
    {"template", read_template, false}, {"adapters", read_adapters, false}, {"module_owners", read_owners, false},
    {"policy", read_policy, false}, {"module_policies", read_module_policies, false}, {"numeric_contract", read_contract, false},
    {"kv_format", read_kv, false}, {"window_policy", read_window, false}, {"memory_budget", read_budget, false},
    {"receipts", read_receipts, false},
};

static bool within_depth(const json_t *value, int depth)
{
    const char *key;
    size_t i;
    json_t *item;
    if (!json_is_object(value) && !json_is_array(value)) return true;
    if (depth == 0) return false;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item) if (!within_depth(item, depth - 1)) return false;
        return true;
    }
    json_object_foreach((json_t *)value, key, item) if (!within_depth(item, depth - 1)) return false;
    return true;
}

lam_code lam_manifest_parse(const char *text, size_t len, const char *folder, const char *what, lam_manifest **out, lam_fault_list *faults,
                            lam_error *err)
{
    *out = NULL;
    if (len > LAM_MANIFEST_MAX_BYTES) {
        lam_fault_list_add(faults, LAM_E_LIMIT, "manifest", "%zu bytes, %zu at most", len, LAM_MANIFEST_MAX_BYTES);
        return lam_fault_list_error(faults, what, err);
    }
    struct lam_manifest_parts *parts = lam_alloc(1, sizeof *parts);
    if (!parts) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", what);
    lam_error why;
    struct reading r = {.parts = parts, .faults = faults, .folder = folder};
    parts->paths = json_array();
    if (!parts->paths) lam_fault_list_add(faults, LAM_E_NO_MEMORY, "manifest", "out of memory");
    else if (lam_json_parse(text, len, what, &parts->root, &why) != LAM_OK) lam_fault_list_add_error(faults, "manifest", &why);
    else if (!within_depth(parts->root, MOST_DEPTH)) lam_fault_list_add(faults, LAM_E_LIMIT, "manifest", "nested deeper than %d", MOST_DEPTH);
    else READ_OBJECT(&r, "", parts->root, whole, &parts->manifest);
    lam_code code = lam_fault_list_error(faults, what, err);
    if (code == LAM_OK) *out = &parts->manifest;
    else lam_manifest_free(&parts->manifest);
    return code;
}

lam_code lam_manifest_read(const char *path, lam_manifest **out, lam_fault_list *faults, lam_error *err)
{
    struct lam_mapping file;
    struct lam_file_info info;
    *out = NULL;
    LAM_TRY(lam_file_info(path, &info, err));
    if (info.size > LAM_MANIFEST_MAX_BYTES)
        return LAM_RAISE(err, LAM_E_LIMIT, "%s: %llu bytes, a manifest has %zu at most", path, (unsigned long long)info.size,
                         LAM_MANIFEST_MAX_BYTES);
    LAM_TRY(lam_map_file(path, &file, err));
    size_t len = (size_t)(lam_path_base(path) - path);
    char *folder = lam_strndup(path, len > 1 ? len - 1 : len);
    lam_code code = folder ? lam_manifest_parse(file.data ? (const char *)file.data : "", file.size, folder, path, out, faults, err)
                           : LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_free(folder);
    lam_unmap_file(&file);
    return code;
}

void lam_manifest_free(lam_manifest *m)
{
    struct lam_manifest_parts *parts = (struct lam_manifest_parts *)m; /* its first member */
    if (!m) return;
    for (size_t i = 0; i < m->n_receipts; i++) lam_free(parts->receipts[i]);
    lam_free(parts->receipts);
    lam_free(parts->owners);
    lam_free(parts->policies);
    json_decref(parts->paths);
    json_decref(parts->root);
    lam_free(parts);
}

bool lam_manifest_detect(const char *path)
{
    uint8_t head[256];
    size_t len = 0, i = 0;
    if (lam_path_is_dir(path) || lam_read_head(path, head, sizeof head, &len, NULL) != LAM_OK) return false;
    while (i < len && strchr(" \t\r\n", head[i]) && head[i]) i++;
    return i < len && head[i] == '{';
}
