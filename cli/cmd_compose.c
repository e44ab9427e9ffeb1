/* lamina compose: a manifest of what the options name. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "default_model.h"
#include "open.h"
#include "output.h"
#include "prompt.h"
#include "report.h"

#include "lamina/cache.h"
#include "lamina/receipt.h"

#include <stdlib.h>
#include <string.h>

/* The manifest of what is open, with every digest; its texts are borrowed from all. */
static void describe(const struct opened *all, lam_manifest_adapter *adapters, lam_manifest *out)
{
    *out = *all->stack.m;
    memcpy(adapters, out->adapters, out->n_adapters * sizeof *adapters);
    out->id = lam_composition_id(all->composition);
    out->base_digest = all->info.base_digest;
    out->base_name = all->info.name;
    out->tokenizer_digest = all->info.tokenizer_digest;
    out->states_template = true;
    out->template_digest = lam_composition_template_digest(all->composition);
    const char *kv = lam_composition_kv_format(all->composition);
    out->kv = strcmp(kv, "f16") == 0 ? LAM_KV_FLOAT16 : strcmp(kv, "f32") == 0 ? LAM_KV_FLOAT32 : LAM_KV_INT8;
    for (size_t i = 0; i < out->n_adapters; i++) {
        lam_adapter_info info;
        lam_adapter_describe(all->adapters[i].adapter, &info);
        adapters[i].digest = info.digest;
        if (!adapters[i].name) adapters[i].name = info.name;
        adapters[i].waived = !info.bound;
    }
    out->adapters = adapters;
}

/* Checks the receipts of the options against the composition, and puts them behind the manifest's own. */
static lam_code add_receipts(const struct options *o, lam_manifest *m, struct text texts[MAX_LIST], const char **list, lam_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_receipts && n < 2 * MAX_LIST; i++) list[n++] = m->receipts[i];
    for (size_t i = 0; i < o->receipts.n; i++) {
        lam_receipt_info info;
        lam_code code = read_whole(o->receipts.items[i], &texts[i], err);
        if (code == LAM_OK) code = lam_receipt_check(texts[i].bytes, texts[i].len, m->id, NULL, &info, err);
        if (code != LAM_OK) return about(err, o->receipts.items[i]);
        if (n == 2 * MAX_LIST) return fail(err, LAM_E_LIMIT, "%d receipts at most", 2 * MAX_LIST);
        list[n++] = texts[i].bytes;
    }
    m->receipts = list;
    m->n_receipts = n;
    return LAM_OK;
}

/* What the digests of base and adapters are made of. */
struct parts {
    char base[LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT], adapters[MAX_ADAPTERS][LAM_MANIFEST_PARTS][LAM_DIGEST_TEXT];
};

static lam_code add_parts(const struct opened *all, lam_manifest_adapter *adapters, struct parts *p, lam_manifest *m, lam_error *err)
{
    lam_code code = lam_manifest_parts(all->base_path, p->base, err);
    m->base_parts = (lam_base_parts_text){p->base[0], p->base[1], p->base[2], p->base[3]};
    for (size_t i = 0; code == LAM_OK && i < m->n_adapters; i++) {
        struct lam_cached file = {0};
        struct lam_cache_options options = {.accept_tokenizer = adapters[i].accept_tokenizer};
        code = lam_cache_open_adapter(adapters[i].file, all->base_path, all->info.base_digest, &options, &file, NULL, err);
        if (code == LAM_OK) code = lam_manifest_parts(file.path, p->adapters[i], err);
        lam_cache_release(&file);
        adapters[i].parts = (lam_adapter_parts_text){.method = p->adapters[i][0], .modules = p->adapters[i][1], .factors = p->adapters[i][2],
                                                     .activation = p->adapters[i][3], .alphas = p->adapters[i][4]};
    }
    return code;
}

static lam_code write_manifest(const struct options *o, struct opened *all, lam_error *err)
{
    lam_manifest_adapter adapters[MAX_ADAPTERS];
    lam_manifest m;
    struct text *texts = calloc(MAX_LIST, sizeof *texts);
    const char **list = calloc(2 * MAX_LIST, sizeof *list);
    struct parts *parts = malloc(sizeof *parts);
    describe(all, adapters, &m);
    lam_code code = texts && list && parts ? add_parts(all, adapters, parts, &m, err) : fail_memory(err);
    if (code == LAM_OK) code = add_receipts(o, &m, texts, list, err);
    if (code == LAM_OK) code = take_receipts(o, all, m.receipts, m.n_receipts, err);
    if (code == LAM_OK && o->output) {
        code = check_replaceable(o->output, err);
        if (code == LAM_OK) code = check_not_read(o, all, o->output, err);
        if (code == LAM_OK) code = lam_manifest_write(&m, o->output, err);
    } else if (code == LAM_OK) {
        char *json;
        code = lam_manifest_json(&m, "manifest.json", &json, err);
        if (code == LAM_OK) puts(json);
        if (code == LAM_OK) lam_memory_free(json);
    }
    for (size_t i = 0; texts && i < MAX_LIST; i++) free(texts[i].bytes);
    free(texts);
    free(list);
    free(parts);
    return code;
}

int cmd_compose(struct options *o)
{
    lam_error err;
    char path[MODEL_PATH];
    int failed = choose_model(o, 0, 0, path);
    if (failed) return failed;
    struct opened *all = calloc(1, sizeof *all);
    lam_code code = all ? open_all(o, all, &err) : fail_memory(&err);
    if (code == LAM_OK) code = check_system(o, all, &err);
    if (code == LAM_OK) code = write_manifest(o, all, &err);
    int status = code == LAM_OK ? 0 : report(o, &err);
    if (code == LAM_OK && o->output && o->json)
        status = print_json(o, json_pack("{s:s,s:s,s:s}", "output", o->output, "composition_id", lam_composition_id(all->composition), "standing",
                                         standing(all)));
    else if (code == LAM_OK && o->output && !o->quiet) {
        printf("%s\ncomposition %s\n", o->output, lam_composition_id(all->composition));
        print_standing(stdout, all, 0);
    }
    if (all) close_all(all);
    free(all);
    return status;
}
