/* Writing a manifest in canonical form. What is the default is written, too: the file then says all that it means. */
#include "base/alloc.h"
#include "base/files.h"
#include "base/os.h"
#include "compose/faults.h"
#include "compose/identity.h"
#include "compose/manifest.h"

#include <string.h>

const char *const lam_rule_names[LAM_N_RULES] = {[LAM_STACK_ADD] = "add", [LAM_STACK_REPLACE] = "replace"};
const char *const lam_policy_names[LAM_N_POLICIES] = {[LAM_POLICY_DUAL] = "dual", [LAM_POLICY_MATERIALIZE] = "materialize"};
const char *const lam_kv_names[LAM_N_KV] = {"f16", "f32", "i8"};

/* Where a manifest is being written to. */
struct writing {
    char *folder;   /* real path of the manifest's folder */
    bool lacking;   /* memory was lacking */
};

/* Adds a member, and remembers if that failed. */
static void put(struct writing *w, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0) w->lacking = true;
}

static void put_text(struct writing *w, json_t *object, const char *key, const char *text)
{
    if (text) put(w, object, key, json_string(text));
}

/* The path from folder (real) to target (real): up from where they part, then down. */
static bool relative(const char *folder, const char *target, struct lam_str *out)
{
    size_t same = 0, i = 0;
    while (folder[i] && folder[i] == target[i]) {
        i++;
        if (folder[i - 1] == '/') same = i;
    }
    if (!folder[i] && target[i] == '/') same = i + 1;
    else if (!folder[i] && i && folder[i - 1] == '/') same = i;
    bool ok = lam_str_puts(out, "");
    const char *rest = strlen(folder) >= same ? folder + same : "";
    for (bool more = *rest != 0; ok && more; more = rest != NULL) {
        ok = lam_str_puts(out, "../");
        rest = strchr(rest, '/');
        if (rest) rest++;
    }
    return ok && lam_str_puts(out, target + same);
}

/* A file of the manifest, as it stands there. */
static lam_code put_file(struct writing *w, json_t *object, const char *file, lam_error *err)
{
    char *real = NULL;
    struct lam_str path = {0};
    if (!file) return LAM_OK;
    LAM_TRY(lam_real_path(file, &real, err));
    bool absolute = *real == '/' && *w->folder == '/';
    bool ok = absolute ? relative(w->folder, real, &path) : lam_str_puts(&path, file);
    if (ok) put_text(w, object, "file", path.data);
    else w->lacking = true;
    lam_str_release(&path);
    lam_free(real);
    return LAM_OK;
}

/* The parts of a digest that are stated. */
static void put_parts(struct writing *w, json_t *object, const char *const names[], const char *const values[], size_t n)
{
    json_t *parts = json_object();
    for (size_t i = 0; i < n; i++) put_text(w, parts, names[i], values[i]);
    if (json_object_size(parts)) put(w, object, "parts", parts);
    else json_decref(parts);
}

static lam_code put_template(struct writing *w, const lam_manifest *m, json_t *root, lam_error *err)
{
    lam_code code = LAM_OK;
    bool own = m->template_text || m->template_file;
    json_t *template = m->template_digest || own ? json_object() : json_null();
    if (m->template_digest) put_text(w, template, "digest", m->template_digest);
    if (m->template_file) code = put_file(w, template, m->template_file, err);
    else if (m->template_text) put_text(w, template, "text", m->template_text);
    if (m->states_template || own) put(w, root, "template", template);
    else json_decref(template);
    return code;
}

static json_t *sampling_json(struct writing *w, const lam_manifest_sampling *s)
{
    json_t *out = json_object();
    for (size_t i = 0; i < LAM_N_SAMPLING; i++) {
        const struct lam_sampling_field *f = &lam_sampling_fields[i];
        const char *at = (const char *)s + f->at;
        if (!(s->given & f->bit)) continue;
        put(w, out, f->name, f->whole ? json_integer((json_int_t)*(const uint64_t *)at) : json_real(*(const double *)at));
    }
    return out;
}

static lam_code put_base(struct writing *w, const lam_manifest *m, json_t *root, lam_error *err)
{
    json_t *base = json_object();
    put_text(w, base, "digest", m->base_digest);
    put_text(w, base, "name", m->base_name);
    lam_code code = put_file(w, base, m->base_file, err);
    const lam_base_parts_text *p = &m->base_parts;
    put_parts(w, base, (const char *const[]){"weights", "layout", "config", "targets"},
              (const char *const[]){p->weights, p->layout, p->config, p->targets}, 4);
    put(w, root, "base", base);
    if (m->tokenizer_digest) put(w, root, "tokenizer", json_pack("{s:s}", "digest", m->tokenizer_digest));
    return code == LAM_OK ? put_template(w, m, root, err) : code;
}

static lam_code put_adapter(struct writing *w, const lam_manifest *m, const lam_manifest_adapter *a, json_t *list, lam_error *err)
{
    json_t *item = json_pack("{s:f,s:s}", "weight", a->weight, "rule", lam_rule_names[a->rule]);
    put_text(w, item, "digest", a->digest);
    put_text(w, item, "name", a->name);
    lam_code code = put_file(w, item, a->file, err);
    const lam_adapter_parts_text *p = &a->parts;
    put_parts(w, item, (const char *const[]){"method", "modules", "factors", "activation", "alphas"},
              (const char *const[]){p->method, p->modules, p->factors, p->activation, p->alphas}, LAM_MANIFEST_PARTS);
    if (a->waived)
        put(w, item, "waiver", json_pack("{s:s?,s:s?}", "adapter_digest", a->digest, "base_digest", m->base_digest));
    if (a->accept_tokenizer) put(w, item, "accept_tokenizer", json_true());
    if (json_array_append_new(list, item) != 0) w->lacking = true;
    return code;
}

static void put_modules(struct writing *w, const lam_manifest *m, json_t *root)
{
    json_t *owners = json_object(), *policies = json_object();
    for (size_t i = 0; i < m->n_owners; i++) put_text(w, owners, m->owners[i].module, m->adapters[m->owners[i].adapter].digest);
    for (size_t i = 0; i < m->n_module_policies; i++)
        put_text(w, policies, m->module_policies[i].module, lam_policy_names[m->module_policies[i].policy]);
    put(w, root, "module_owners", owners);
    put(w, root, "module_policies", policies);
    put_text(w, root, "policy", lam_policy_names[m->policy]);
}

static lam_code put_receipts(struct writing *w, const lam_manifest *m, json_t *root, lam_error *err)
{
    json_t *list = json_array();
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < m->n_receipts; i++) {
        json_t *receipt = NULL;
        code = lam_json_parse(m->receipts[i], strlen(m->receipts[i]), "receipt", &receipt, err);
        if (code == LAM_OK && json_array_append_new(list, receipt) != 0) w->lacking = true;
    }
    put(w, root, "receipts", list);
    return code;
}

static lam_code build(struct writing *w, const lam_manifest *m, json_t *root, lam_error *err)
{
    put_text(w, root, "type", LAM_MANIFEST_TYPE);
    put_text(w, root, "id", m->id);
    put_text(w, root, "numeric_contract", LAM_NUMERIC_CONTRACT);
    put_text(w, root, "window_policy", LAM_WINDOW_POLICY);
    if (m->kv != LAM_KV_DEFAULT) put_text(w, root, "kv_format", lam_kv_names[m->kv - LAM_KV_FLOAT16]);
    if (m->memory_budget) put(w, root, "memory_budget", json_integer((json_int_t)m->memory_budget));
    put_text(w, root, "prompt", m->prompt);
    if (m->sampling.given) put(w, root, "sampling", sampling_json(w, &m->sampling));
    LAM_TRY(put_base(w, m, root, err));
    json_t *adapters = json_array();
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < m->n_adapters; i++) code = put_adapter(w, m, &m->adapters[i], adapters, err);
    put(w, root, "adapters", adapters);
    put_modules(w, m, root);
    return code == LAM_OK ? put_receipts(w, m, root, err) : code;
}

/* The real path of the folder that path lies in. */
static lam_code folder_of(const char *path, char **out, lam_error *err)
{
    size_t len = (size_t)(lam_path_base(path) - path);
    char *folder = len ? lam_strndup(path, len > 1 ? len - 1 : 1) : lam_strdup(".");
    if (!folder) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", path);
    lam_code code = lam_real_path(folder, out, err);
    lam_free(folder);
    return code;
}

/* What is written can be read: faults of the caller's manifest come out here. */
static lam_code check_text(const struct lam_str *text, lam_error *err)
{
    lam_manifest *again;
    lam_fault_list faults = {0};
    lam_code code = lam_manifest_parse(text->data, text->len, "", "manifest", &again, &faults, err);
    lam_manifest_free(again);
    lam_fault_list_release(&faults);
    if (code == LAM_OK || code == LAM_E_NO_MEMORY || !err) return code;
    err->code = LAM_E_ARGUMENT;
    return LAM_E_ARGUMENT;
}

lam_code lam_manifest_json(const lam_manifest *m, const char *path, char **json, lam_error *err)
{
    struct writing w = {0};
    struct lam_str text = {0};
    *json = NULL;
    for (size_t i = 0; i < m->n_owners; i++)
        if (m->owners[i].adapter >= m->n_adapters)
            return LAM_RAISE(err, LAM_E_ARGUMENT, "owner of %.100s: there is no adapter %zu", m->owners[i].module, m->owners[i].adapter);
    LAM_TRY(folder_of(path, &w.folder, err));
    json_t *root = json_object();
    lam_code code = root ? build(&w, m, root, err) : LAM_E_NO_MEMORY;
    if (code == LAM_OK && w.lacking) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "manifest: out of memory, or a text that is not UTF-8");
    if (code == LAM_OK) code = lam_json_canonical(root, &text, err);
    if (code == LAM_OK) code = check_text(&text, err);
    json_decref(root);
    lam_free(w.folder);
    if (code == LAM_OK) *json = text.data;
    else lam_str_release(&text);
    return code;
}

lam_code lam_manifest_write(const lam_manifest *m, const char *path, lam_error *err)
{
    char *json;
    struct lam_writer *w;
    LAM_TRY(lam_manifest_json(m, path, &json, err));
    lam_code code = lam_writer_open(path, &w, err);
    if (code == LAM_OK) {
        code = lam_writer_write(w, json, strlen(json), err);
        if (code == LAM_OK) code = lam_writer_write(w, "\n", 1, err);
        if (code == LAM_OK) code = lam_writer_commit(w, err);
        else lam_writer_abort(w);
    }
    lam_free(json);
    return code;
}
