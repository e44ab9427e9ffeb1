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
#include <stddef.h>
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
enum presence { OPTIONAL, NEEDED, NULLABLE };
struct field {
    const char *name;
    void (*read)(struct reading *r, const char *where, const json_t *value, void *into);
    enum presence presence;
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
        if (json_is_null(given) && fields[i].presence != NULLABLE)
            lam_fault_list_add(r->faults, LAM_E_FORMAT, place, fields[i].presence == NEEDED ? "is null, and is needed" : "is null; leave it out instead");
        else if (given) fields[i].read(r, place, given, into);
        else if (fields[i].presence == NEEDED) lam_fault_list_add(r->faults, LAM_E_FORMAT, place, "is missing");
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
    static const struct field fields[] = {{"weights", base_weights, OPTIONAL}, {"layout", base_layout, OPTIONAL}, {"config", base_config, OPTIONAL},
                                          {"targets", base_targets, OPTIONAL}};
    READ_OBJECT(r, where, value, fields, &((lam_manifest *)into)->base_parts);
}

static void read_base(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const struct field fields[] = {{"digest", base_digest, NEEDED}, {"name", base_name, OPTIONAL}, {"file", base_file, OPTIONAL},
                                          {"parts", base_parts, OPTIONAL}};
    READ_OBJECT(r, where, value, fields, into);
}

static void tokenizer_digest(struct reading *r, const char *w, const json_t *v, void *m)
{
    ((lam_manifest *)m)->tokenizer_digest = read_digest(r, w, v);
}

static void read_tokenizer(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const struct field fields[] = {{"digest", tokenizer_digest, NEEDED}};
    READ_OBJECT(r, where, value, fields, into);
}

/* A text of any number of lines. */
static const char *read_content(struct reading *r, const char *where, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text && strlen(text) == json_string_length(value)) return text;
    lam_fault_list_add(r->faults, LAM_E_FORMAT, where, text ? "holds a zero character" : "must be a text");
    return NULL;
}

static void template_digest(struct reading *r, const char *w, const json_t *v, void *m) { ((lam_manifest *)m)->template_digest = read_digest(r, w, v); }
static void template_text(struct reading *r, const char *w, const json_t *v, void *m) { ((lam_manifest *)m)->template_text = read_content(r, w, v); }
static void template_file(struct reading *r, const char *w, const json_t *v, void *m) { ((lam_manifest *)m)->template_file = read_file(r, w, v); }
static void read_prompt(struct reading *r, const char *w, const json_t *v, void *m) { ((lam_manifest *)m)->prompt = read_content(r, w, v); }

static void check_template(const lam_manifest *m, const char *where, lam_fault_list *faults)
{
    char digest[LAM_DIGEST_TEXT];
    lam_digest_bytes(m->template_text, strlen(m->template_text), digest);
    if (m->template_digest && strcmp(m->template_digest, digest) != 0)
        lam_fault_list_add(faults, LAM_E_DIGEST, where, "is %s, its digest says %s", digest, m->template_digest);
}

/* null says that there is none. */
static void read_template(struct reading *r, const char *where, const json_t *value, void *into)
{
    static const struct field fields[] = {{"digest", template_digest, NEEDED}, {"text", template_text, OPTIONAL}, {"file", template_file, OPTIONAL}};
    lam_manifest *m = into;
    m->states_template = true;
    if (!json_is_null(value)) READ_OBJECT(r, where, value, fields, into);
    if (m->template_text && m->template_file) lam_fault_list_add(r->faults, LAM_E_CONFLICT, where, "has a text and a file: only one of them can be it");
    else if (m->template_text) check_template(m, "template.text", r->faults);
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
    static const struct field fields[] = {{"adapter_digest", waiver_adapter, NEEDED}, {"base_digest", waiver_base, NEEDED}};
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
    static const struct field fields[] = {{"method", part_method, OPTIONAL}, {"modules", part_modules, OPTIONAL}, {"factors", part_factors, OPTIONAL},
                                          {"activation", part_activation, OPTIONAL}, {"alphas", part_alphas, OPTIONAL}};
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
    static const struct field fields[] = {{"digest", adapter_digest, NEEDED}, {"name", adapter_name, OPTIONAL}, {"file", adapter_file, OPTIONAL},
                                          {"weight", adapter_weight, OPTIONAL}, {"rule", adapter_rule, OPTIONAL}, {"waiver", adapter_waiver, OPTIONAL},
                                          {"accept_tokenizer", adapter_accept, OPTIONAL}, {"parts", adapter_parts, OPTIONAL}};
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

#define SAMPLING(name, bit, whole, least, most) {#name, LAM_SAMPLING_##bit, whole, offsetof(lam_manifest_sampling, name), least, most}
const struct lam_sampling_field lam_sampling_fields[LAM_N_SAMPLING] = {
    SAMPLING(temperature, TEMPERATURE, false, 0, 100), SAMPLING(top_k, TOP_K, true, 0, 1e9), SAMPLING(top_p, TOP_P, false, 0, 1),
    SAMPLING(min_p, MIN_P, false, 0, 1), SAMPLING(repeat_penalty, REPEAT_PENALTY, false, 0.01, 100), SAMPLING(seed, SEED, true, 0, 0x1p53 - 1),
};

static void read_sampling_field(struct reading *r, const char *where, const json_t *value, const struct lam_sampling_field *f)
{
    lam_manifest_sampling *s = &r->parts->manifest.sampling;
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= f->least && number <= f->most) || (f->whole && number != floor(number))) {
        lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be a %snumber from %.16g to %.16g", f->whole ? "whole " : "", f->least, f->most);
        return;
    }
    s->given |= f->bit;
    if (f->whole) *(uint64_t *)((char *)s + f->at) = (uint64_t)number;
    else *(double *)((char *)s + f->at) = number;
}

static void read_sampling(struct reading *r, const char *where, const json_t *value, void *into)
{
    const char *key;
    json_t *item;
    (void)into;
    if (!json_is_object(value)) lam_fault_list_add(r->faults, LAM_E_FORMAT, where, "must be an object");
    json_object_foreach((json_t *)value, key, item) {
        char place[WHERE];
        size_t i = 0;
        while (i < LAM_N_SAMPLING && strcmp(key, lam_sampling_fields[i].name) != 0) i++;
        snprintf(place, sizeof place, "%.90s.%.90s", where, key);
        if (i == LAM_N_SAMPLING) lam_fault_list_add(r->faults, LAM_E_UNKNOWN_FIELD, place, "is no field of a manifest");
        else read_sampling_field(r, place, item, &lam_sampling_fields[i]);
    }
}

void lam_manifest_sampling_apply(const lam_manifest_sampling *s, lam_sampling *out)
{
    if (s->given & LAM_SAMPLING_TEMPERATURE) out->temperature = (float)s->temperature;
    if (s->given & LAM_SAMPLING_TOP_K) out->top_k = (uint32_t)s->top_k;
    if (s->given & LAM_SAMPLING_TOP_P) out->top_p = (float)s->top_p;
    if (s->given & LAM_SAMPLING_MIN_P) out->min_p = (float)s->min_p;
    if (s->given & LAM_SAMPLING_REPEAT_PENALTY) out->repeat_penalty = (float)s->repeat_penalty;
    if (s->given & LAM_SAMPLING_SEED) out->seed = s->seed;
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
    {"type", read_type, NEEDED}, {"id", read_id, OPTIONAL}, {"base", read_base, NEEDED}, {"tokenizer", read_tokenizer, OPTIONAL},
    {"template", read_template, NULLABLE}, {"adapters", read_adapters, OPTIONAL}, {"module_owners", read_owners, OPTIONAL},
    {"policy", read_policy, OPTIONAL}, {"module_policies", read_module_policies, OPTIONAL}, {"numeric_contract", read_contract, OPTIONAL},
    {"kv_format", read_kv, OPTIONAL}, {"window_policy", read_window, OPTIONAL}, {"memory_budget", read_budget, OPTIONAL},
    {"prompt", read_prompt, OPTIONAL}, {"sampling", read_sampling, OPTIONAL}, {"receipts", read_receipts, OPTIONAL},
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

/* JSON is UTF-8 without a mark (RFC 8259): what editors and shells write instead has a name. NULL: nothing is wrong with it. */
static const char *wrong_encoding(const char *text, size_t len)
{
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        return "begins with a byte order mark (EF BB BF), which JSON does not have: save it as UTF-8 without one";
    if (len >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0)) return "is UTF-16; JSON is UTF-8";
    return memchr(text, 0, len) ? "holds a zero byte; JSON is UTF-8 text" : NULL;
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
    const char *encoding = wrong_encoding(text, len);
    if (!parts->paths) lam_fault_list_add(faults, LAM_E_NO_MEMORY, "manifest", "out of memory");
    else if (encoding) lam_fault_list_add(faults, LAM_E_FORMAT, "manifest", "%s", encoding);
    else if (lam_json_parse(text, len, what, &parts->root, &why) != LAM_OK) lam_fault_list_add_error(faults, "manifest", &why);
    else if (!within_depth(parts->root, MOST_DEPTH)) lam_fault_list_add(faults, LAM_E_LIMIT, "manifest", "nested deeper than %d", MOST_DEPTH);
    else READ_OBJECT(&r, "", parts->root, whole, &parts->manifest);
    lam_code code = lam_fault_list_error(faults, what, err);
    if (code == LAM_OK) *out = &parts->manifest;
    else lam_manifest_free(&parts->manifest);
    return code;
}

/* Reads the template's file, if it has one. */
static lam_code load_template(struct lam_manifest_parts *parts, const char *what, lam_fault_list *faults, lam_error *err)
{
    lam_manifest *m = &parts->manifest;
    struct lam_mapping file;
    struct lam_file_info info;
    lam_error why;
    if (!m->template_file) return LAM_OK;
    lam_code code = lam_file_info(m->template_file, &info, &why);
    if (code == LAM_OK && info.size > LAM_MANIFEST_MAX_BYTES)
        code = LAM_RAISE(&why, LAM_E_LIMIT, "%s: %llu bytes, %zu at most", m->template_file, (unsigned long long)info.size, LAM_MANIFEST_MAX_BYTES);
    if (code == LAM_OK) code = lam_map_file(m->template_file, &file, &why);
    if (code == LAM_OK) {
        const char *text = file.data ? (const char *)file.data : "";
        if (memchr(text, 0, file.size) || lam_utf8_valid_prefix((const uint8_t *)text, file.size) != file.size)
            code = LAM_RAISE(&why, LAM_E_UTF8, "%s: is no text in UTF-8", m->template_file);
        else if (!(m->template_text = parts->template_text = lam_strndup(text, file.size)))
            code = LAM_RAISE(&why, LAM_E_NO_MEMORY, "%s: out of memory", m->template_file);
        lam_unmap_file(&file);
    }
    if (code != LAM_OK) lam_fault_list_add_error(faults, "template.file", &why);
    else check_template(m, "template.file", faults);
    return lam_fault_list_error(faults, what, err);
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
    if (code == LAM_OK) code = load_template((struct lam_manifest_parts *)*out, path, faults, err);
    if (code == LAM_OK) return LAM_OK;
    lam_manifest_free(*out);
    *out = NULL;
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
    lam_free(parts->template_text);
    json_decref(parts->paths);
    json_decref(parts->root);
    lam_free(parts);
}

bool lam_manifest_detect(const char *path)
{
    uint8_t head[256];
    size_t len = 0, i = 0;
    if (lam_path_is_dir(path) || lam_read_head(path, head, sizeof head, &len, NULL) != LAM_OK) return false;
    const char *text = (const char *)head;
    if (len >= 4 && (memcmp(text, "\xFF\xFE{", 4) == 0 || memcmp(text, "\xFE\xFF\0{", 4) == 0)) return true;
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) i = 3;
    while (i < len && strchr(" \t\r\n", head[i]) && head[i]) i++;
    return i < len && head[i] == '{';
}
