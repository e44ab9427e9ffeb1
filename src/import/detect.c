#include "base/alloc.h"
#include "base/files.h"
#include "base/os.h"
#include "format/gguf.h"
#include "format/slm.h"
#include "format/slm_layout.h"
#include "import/base_write.h"

#include <string.h>

lam_code lam_folder_has(const char *folder, const char *name, bool *there, lam_error *err)
{
    char *path = lam_path_join(folder, name);
    if (!path) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", folder);
    *there = lam_path_exists(path);
    lam_free(path);
    return LAM_OK;
}

static lam_code detect_folder(const char *path, enum lam_source_kind *kind, lam_error *err)
{
    /* A trainer may save the base's config.json beside the adapter; transformers, too, looks for the adapter first. */
    bool adapter = false, model = false;
    LAM_TRY(lam_folder_has(path, "adapter_config.json", &adapter, err));
    LAM_TRY(lam_folder_has(path, "config.json", &model, err));
    if (adapter) *kind = LAM_SOURCE_PEFT_ADAPTER;
    else if (model) *kind = LAM_SOURCE_HF_MODEL;
    else return LAM_RAISE(err, LAM_E_MAGIC, "%s: a folder with neither config.json nor adapter_config.json", path);
    return LAM_OK;
}

static lam_code detect_gguf(const char *path, enum lam_source_kind *kind, lam_error *err)
{
    struct lam_gguf *g;
    const char *type = "";
    size_t len = 0;
    LAM_TRY(lam_gguf_open(path, &g, err));
    lam_code code = lam_gguf_string(g, "general.type", false, &type, &len, err);
    if (code == LAM_OK) *kind = len == 7 && memcmp(type, "adapter", 7) == 0 ? LAM_SOURCE_GGUF_ADAPTER : LAM_SOURCE_GGUF_MODEL;
    lam_gguf_close(g);
    return code;
}

#define HEAD 16 /* bytes that tell a file's kind */

/* What a file is that we do not take, or NULL. */
static const char *known_stranger(const uint8_t *head, size_t len)
{
    static const struct {
        const char *bytes;
        size_t at, len;
        const char *what;
    } strangers[] = {
        {"PK\003\004", 0, 4, "a zip archive (a PyTorch pickle?)"}, {"\200\002", 0, 2, "a Python pickle"},
        {"{\"", 8, 2, "safetensors: give the folder that has its config.json"}, {"{", 0, 1, "JSON: give the folder"},
        {"ggml", 0, 4, "GGML, which came before GGUF"}, {"lmgg", 0, 4, "GGML, which came before GGUF"},
        {"SLS0", 0, 4, "a saved session"}, {"ggjt", 0, 4, "GGJT, which came before GGUF"}, {"tjgg", 0, 4, "GGJT, which came before GGUF"},
    };
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        if (len >= strangers[i].at + strangers[i].len && memcmp(head + strangers[i].at, strangers[i].bytes, strangers[i].len) == 0)
            return strangers[i].what;
    return NULL;
}

static lam_code detect_file(const char *path, enum lam_source_kind *kind, lam_error *err)
{
    uint8_t head[HEAD] = {0};
    size_t len;
    LAM_TRY(lam_read_head(path, head, sizeof head, &len, err));
    if (len < 4) return LAM_RAISE(err, LAM_E_MAGIC, "%s: %zu bytes, too few for a model or an adapter", path, len);
    if (memcmp(head, "GGUF", 4) == 0) return detect_gguf(path, kind, err);
    if (memcmp(head, "SLM1", 4) == 0 || memcmp(head, "SLM2", 4) == 0)
        return LAM_RAISE(err, LAM_E_LEGACY, "%s: the obsolete format %.4s", path, (const char *)head);
    if (memcmp(head, "SLM0", 4) == 0) {
        if (len <= LAM_SLM_AT_KIND) return LAM_RAISE(err, LAM_E_TRUNCATED, "%s: a .slm of %zu bytes", path, len);
        uint8_t stored = head[LAM_SLM_AT_KIND];
        if (stored != LAM_SLM_BASE && stored != LAM_SLM_ADAPTER)
            return LAM_RAISE(err, LAM_E_FORMAT, "%s: a .slm of kind %u", path, stored);
        *kind = stored == LAM_SLM_BASE ? LAM_SOURCE_SLM_BASE : LAM_SOURCE_SLM_ADAPTER;
        return LAM_OK;
    }
    const char *what = known_stranger(head, len);
    if (what) return LAM_RAISE(err, LAM_E_MAGIC, "%s: %s", path, what);
    return LAM_RAISE(err, LAM_E_MAGIC, "%s: begins with the bytes %02x %02x %02x %02x, which is neither .slm nor GGUF", path,
                     head[0], head[1], head[2], head[3]);
}

lam_code lam_source_detect(const char *path, enum lam_source_kind *kind, lam_error *err)
{
    return lam_path_is_dir(path) ? detect_folder(path, kind, err) : detect_file(path, kind, err);
}

lam_code lam_import_base(const char *source, const char *out_path, const struct lam_import_options *options, lam_error *err)
{
    enum lam_source_kind kind;
    LAM_TRY(lam_source_detect(source, &kind, err));
    switch (kind) {
    case LAM_SOURCE_GGUF_MODEL: return lam_import_gguf(source, out_path, options, err);
    case LAM_SOURCE_HF_MODEL: return lam_import_hf(source, out_path, options, err);
    case LAM_SOURCE_SLM_BASE: return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is a .slm base already", source);
    default: return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is an adapter, not a base", source);
    }
}
