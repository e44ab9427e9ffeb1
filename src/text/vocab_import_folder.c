#include "text/vocab_import.h"

#include "base/alloc.h"
#include "base/os.h"

/* Map dir/name if it exists; *source stays empty else. */
static lam_code map_optional(const char *dir, const char *name, struct lam_mapping *file, struct lam_vocab_source *source, lam_error *err)
{
    char *path = lam_path_join(dir, name);
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "path of %s", name);
    lam_code code = LAM_OK;
    if (lam_path_exists(path)) code = lam_map_file(path, file, err);
    if (code == LAM_OK && file->path) *source = (struct lam_vocab_source){file->data ? (const char *)file->data : "", file->size};
    lam_free(path);
    return code;
}

lam_code lam_vocab_import_folder(const char *dir, uint8_t **bytes, size_t *len, lam_error *err)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "generation_config.json"};
    struct lam_mapping files[4] = {0};
    struct lam_vocab_source sources[4] = {0};
    lam_code code = LAM_OK;
    for (int i = 0; i < 4 && code == LAM_OK; i++) code = map_optional(dir, names[i], &files[i], &sources[i], err);
    if (code == LAM_OK) {
        if (sources[0].text) code = lam_vocab_import_hf(&sources[0], &sources[2], &sources[3], bytes, len, err);
        else if (sources[1].text) code = lam_vocab_import_spm(&sources[1], &sources[2], &sources[3], bytes, len, err);
        else code = LAM_RAISE(err, LAM_E_NOT_FOUND, "%s has neither tokenizer.json nor tokenizer.model", dir);
    }
    for (int i = 0; i < 4; i++)
        if (files[i].path) lam_unmap_file(&files[i]);
    return code;
}
